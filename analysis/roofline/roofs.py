"""A machine's measured ceilings: made from the rows of every workload, and the data sheet's beside them.

A ceiling is the best rate seen, not the median; nothing heavy is imported until there are rows that need it.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from analysis import labels
from analysis.roofline import links, memory_levels, overheads
from analysis.roofline.data_sheets import SHEETS, Sheet
from analysis.stats import Estimate, call_s, clock_of, exact, group_by, is_gpu, quick_seconds
from analysis.units import bytes_rate, count, flops_rate, seconds, size
from kernels import networks
from kernels.problems.arrays import ARITHMETIC
from workloads.records import Machine, Measurement, Measurements
from workloads.records.settings import is_sustained

# A row is an error only when its whole interval lies beyond the roof's by more than this.
TOLERANCE = 1.02
# Note of a roof that is just the fastest product that was measured.
BEST_MATMUL = "best seen"
# Arithmetic that GPUs also do on tensor cores, which an FMA loop cannot reach.
TENSOR_MATHS = tuple(name for name, arithmetic in ARITHMETIC.items() if arithmetic.tensor)
# The `peak` kernels that use matrix units or dot products: their arithmetic is another than the vector FMA's.
TENSOR_VARIANTS = ("tensor", "wgmma", "amx", "avx512bf16")
WAITED, QUEUED = "waited call", "queued call"
# No core of a CPU does more: AMX's tiles do 2,048 operations a cycle (Intel, Optimization Reference Manual, TMUL), vectors load
# and store 192 bytes a cycle, the highest clock is 6 to 7 GHz, and a call that does nothing takes more cycles.
_MOST_FLOPS_A_CYCLE = 2048
_MOST_BYTES_A_CYCLE = 256
_MOST_CYCLES_PER_S = 8e9
_LEAST_CYCLES_OF_A_CALL = 16
# The last cache is passed by for certain from this many times its size: there the memory is what is measured.
BEYOND_CACHE = 4


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of a device, as a roofline draws it: the most FLOP/s, bytes/s or calls/s that were measured or that its data sheet
    names."""

    #: `cpu`, `gpu:0`.
    device: str
    #: compute, memory, cache, link (between host and device) or launch.
    kind: str
    #: Of compute the arithmetic, of memory and caches the level (DRAM, HBM, L1, L2, L3), of a link the direction (h2d, d2h), of
    #: launches WAITED or QUEUED.
    name: str
    #: FLOP/s of compute; calls/s of an empty launch; else bytes/s.
    rate: Estimate
    #: The row that it was measured by, or the data sheet.
    source: str
    #: CPU threads that it was measured with; None: the library's default.
    threads: int | None = None
    #: What else is to be known of it, in words.
    note: str = ""
    #: It holds for working sets above so many bytes; of memory: those of which no cache holds a part that shows.
    floor_bytes: int = 0
    #: False for a data sheet's number, by which nothing is judged but the roof itself.
    measured: bool = True
    #: It holds for working sets up to so many bytes; 0: any.
    holds_bytes: int = 0
    #: The arithmetic of a compute roof that was measured.
    math: str = ""

    @property
    def label(self) -> str:
        """`float32`, `DRAM bandwidth`, `link h2d`, `launch: waited call`."""
        return f"{self.short} bandwidth" if self.kind in ("memory", "cache") else self.short

    @property
    def short(self) -> str:
        """The label without the word bandwidth: `float32`, `DRAM`, `link h2d`, `launch: waited call`."""
        words = {"link": f"link {self.name}", "launch": f"launch: {self.name}"}
        return words.get(self.kind, self.name)

    @property
    def speed(self) -> str:
        """The rate in its unit; of a launch, the time of a call."""
        if self.kind == "launch":
            return seconds(1 / self.rate.value)
        if self.kind == "compute":
            return flops_rate(self.rate.value)
        return bytes_rate(self.rate.value)


Roofs = Sequence[Roof]


def describe(measurement: Measurement) -> str:
    """`matmul/numpy/blas, n = 1,024, 2 threads`: kernel, problem and threads of a measurement."""
    p = measurement.problem
    problem = p.math if p.op == "peak" else labels.problem(p)
    if problem.isdecimal():  # a square product
        problem = f"n = {int(problem):,}"
    parts = [measurement.kernel, problem]
    if measurement.threads:
        parts.append(count(measurement.threads, "thread"))
    return ", ".join(parts)


def roofs_of(measurements: Measurements, machine: "Machine | None" = None) -> tuple[Roof, ...]:
    """The limits ("roofs") of each device: measured by `peak`, `stream`, `matmul`, `transfer` and `launch` rows, then those of
    the data sheet, if it is known.

    Limits of a CPU are for each number of threads. Tensor cores without a `peak` row have the fastest matrix product as their
    limit, which its note says. `machine` gives the sizes of the caches and the name of the GPU: without it, only the largest
    arrays that were measured count as memory, unless the bandwidths show where the caches end.
    """
    usable = [
        m
        for m in measurements
        if m.mode == "resident" and quick_seconds(m) and not is_sustained(m) and not is_beyond_hardware(m, machine)
    ]
    measured = [*_compute_roofs(usable), *_memory_roofs(usable, machine), *_link_roofs(usable), *_launch_roofs(usable)]
    measured.sort(key=lambda roof: (roof.device, roof.kind, roof.name, roof.threads or 0))
    return (*measured, *sheet_roofs(machine))


def is_beyond_hardware(measurement: Measurement, machine: "Machine | None") -> bool:
    """Whether a measurement is faster than any CPU or GPU can be, so that it must be an error: shorter than a few cycles, or on a
    CPU faster than the widest units of all its cores."""
    seconds = quick_seconds(measurement)
    if seconds is None:
        return False
    if seconds < _LEAST_CYCLES_OF_A_CALL / _MOST_CYCLES_PER_S:
        return True
    if is_gpu(measurement.device) or machine is None:
        return False
    cycles = seconds * _MOST_CYCLES_PER_S * machine.cores
    if measurement.problem.op == "stream" and measurement.problem.bytes_moved > cycles * _MOST_BYTES_A_CYCLE:
        return True
    return flops_of(measurement) > cycles * _MOST_FLOPS_A_CYCLE


def flops_of(measurement: Measurement) -> float:
    """FLOPs of a call, or if it is a training, of one of its steps; 0 if they are not known."""
    problem = measurement.problem
    if problem.op != "training":
        return problem.flops or 0.0
    network = networks.known(problem.model)
    if network is None:
        return 0.0
    batch = min(problem.batch, problem.samples)
    return batch * networks.training_flops(network)


def sheet_roofs(machine: "Machine | None") -> tuple[Roof, ...]:
    """The limits on the data sheets of the machine's GPUs, of the models in SHEETS."""
    roofs = []
    for index, gpu in enumerate(machine.gpus if machine else ()):
        sheet = SHEETS.get(gpu.name)
        if sheet is None:
            continue
        for math, rate in sheet.flops_per_s.items():
            roofs.append(_sheet_roof(sheet, index, kind="compute", name=math, rate=rate))
        roofs.append(_sheet_roof(sheet, index, kind="memory", name="HBM", rate=sheet.bytes_per_s))
    return tuple(roofs)


def _sheet_roof(sheet: Sheet, gpu: int, *, kind: str, name: str, rate: float) -> Roof:
    """A limit on the data sheet of the machine's GPU number `gpu`: FLOP/s of the arithmetic `name`, or bytes/s of its memory."""
    return Roof(
        device=f"gpu:{gpu}",
        kind=kind,
        name=name,
        rate=exact(rate),
        source=sheet.source,
        note="data sheet",
        measured=False,
    )


class _Best(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement with the highest rate of several."""

    row: Measurement
    #: FLOP/s or bytes/s: that of the row's fastest block, from the row's median to its fastest sample. With the median alone a
    #: roof that was measured in a busy minute would have good rows above it.
    rate: Estimate


def _best(rows: Measurements, work: Callable[[Measurement], float]) -> _Best | None:
    """The row that does the most work a second; None of no rows. `work` gives the FLOPs or bytes of a row's call."""
    if not rows:
        return None
    row = max(rows, key=lambda m: work(m) / call_s(m))
    samples = clock_of(row)
    if samples is None:
        return None
    fastest_block_s = min(samples.medians.values())
    seconds = Estimate(fastest_block_s, min(samples.seconds), max(fastest_block_s, call_s(row)))
    return _Best(row=row, rate=work(row) / seconds)


def _flops(m: Measurement) -> float:
    return m.problem.flops


def _bytes_moved(m: Measurement) -> float:
    return m.problem.bytes_moved


def _compute_roofs(rows: Measurements) -> "Iterable[Roof]":
    """The limit of FLOP/s for each device, arithmetic and number of threads: that of vector units by the `peak` kernels, and that
    of tensor cores or other matrix units if it is higher, by their own `peak` kernels, else by the fastest matrix product."""
    peaks = group_by((m for m in rows if m.problem.op == "peak"), lambda m: (m.device, m.problem.math, m.threads))
    matmuls = group_by(filter(_is_tensor_product, rows), lambda m: (m.device, m.problem.math, None))
    for device, math, threads in dict.fromkeys((*peaks, *matmuls)):
        peak_rows = peaks.get((device, math, threads), [])
        vector = _compute_roof([m for m in peak_rows if m.variant not in TENSOR_VARIANTS], math)
        tensor = _compute_roof([m for m in peak_rows if m.variant in TENSOR_VARIANTS], math)
        if tensor is None:
            tensor = _compute_roof(matmuls.get((device, math, threads), []), math, note=BEST_MATMUL)
        if vector and tensor and tensor.rate.low > TOLERANCE * vector.rate.high:
            yield msgspec.structs.replace(vector, name=f"{math} vector")
            yield tensor
        elif vector:
            yield vector
        elif tensor:
            yield tensor


def _is_tensor_product(m: Measurement) -> bool:
    """Whether a row is a matrix product in an arithmetic that tensor cores have, timed by the GPU's own clock."""
    return bool(m.problem.op == "matmul" and m.on_gpu and m.on("device") and m.problem.math in TENSOR_MATHS)


def _compute_roof(rows: Measurements, math: str, note: str = "") -> Roof | None:
    """The limit of FLOP/s that the fastest of the rows shows, all in the arithmetic `math`; None of no rows."""
    best = _best(rows, _flops)
    if best is None:
        return None
    return Roof(
        device=best.row.device,
        kind="compute",
        name=math,
        rate=best.rate,
        source=describe(best.row),
        threads=best.row.threads,
        note=note,
        math=math,
    )


def _memory_roofs(rows: Measurements, machine: "Machine | None") -> "Iterable[Roof]":
    """The limits of bytes/s of each device and number of threads: one for each cache and the memory, as far as the bandwidths by
    working set show them; if they do not show the memory, the best bandwidth beyond the caches is taken for it."""
    streams = [m for m in rows if m.problem.op == "stream"]
    without_memory_level = []
    for (device, threads), group in group_by(streams, lambda m: (m.device, m.threads)).items():
        level_roofs = list(_level_roofs(group, machine, device, threads))
        yield from level_roofs
        if all(roof.kind == "cache" for roof in level_roofs):
            without_memory_level += group
    for device, group in group_by(without_memory_level, lambda m: m.device).items():
        yield from _rates_beyond_caches(group, machine, device)


def _rates_beyond_caches(rows: Measurements, machine: "Machine | None", device: str) -> "Iterable[Roof]":
    """The memory's limit of bytes/s for each number of threads: the best rate at working sets too large for the last cache;
    nothing if none is. rows: the STREAM rows of one device."""
    cache_bytes = last_cache_bytes(machine, device)
    largest = max(m.problem.footprint_bytes for m in rows)
    if cache_bytes and largest <= cache_bytes:
        return
    smallest = min(largest, BEYOND_CACHE * cache_bytes) if cache_bytes else largest
    name = memory_levels.memory_name(device)
    for same_threads in group_by(rows, lambda m: m.threads).values():
        best = _best([m for m in same_threads if m.problem.footprint_bytes >= smallest], _bytes_moved)
        if best is None:
            continue
        curves = memory_levels.curves(same_threads).values()
        was_searched = any(len(curve) >= memory_levels.LEAST_SIZES for curve in curves)
        note = f"no plateau up to {size(largest)}" if was_searched else ""
        yield _memory_roof(best, kind="memory", name=name, floor_bytes=smallest - 1, note=note)


def _memory_roof(
    best: _Best, *, kind: str, name: str, floor_bytes: int = 0, holds_bytes: int = 0, note: str = ""
) -> Roof:
    """A limit of bytes/s, of a kind (memory or cache) and name, that the best row shows. It holds for working sets above
    `floor_bytes` and, of a cache, up to `holds_bytes`."""
    return Roof(
        device=best.row.device,
        kind=kind,
        name=name,
        rate=best.rate,
        source=describe(best.row),
        threads=best.row.threads,
        note=note,
        floor_bytes=floor_bytes,
        holds_bytes=holds_bytes,
    )


def _level_roofs(rows: Measurements, machine: "Machine | None", device: str, threads: int | None) -> "Iterable[Roof]":
    """The limits of bytes/s of the caches and the memory of one device with one number of threads: of each level the best rate of
    any operation, over all the working sets that it may hold."""
    spans = memory_levels.spans(memory_levels.plateaus(rows, machine))
    caches = memory_levels.levels(machine, device, threads)
    innermost_was_measured = bool(caches) and any(span.plateau.name == caches[0][0] for span in spans)
    # Of working sets smaller than any on a level nothing is known, unless the innermost level was measured.
    cache_floor = 0 if innermost_was_measured else min((span.first_bytes for span in spans), default=1) - 1
    memory_name = memory_levels.memory_name(device)
    for name, same_level in group_by(spans, lambda span: span.plateau.name).items():
        if name == memory_name:
            best = _best(_rows_on(same_level, rows, is_open=True), _bytes_moved)
            floor = max(span.first_bytes for span in same_level) - 1
            if best:
                yield _memory_roof(best, kind="memory", name=name, floor_bytes=floor)
            continue
        best = _best(_rows_on(same_level, rows), _bytes_moved)
        largest = max(span.last_bytes for span in same_level)
        if best:
            yield _memory_roof(best, kind="cache", name=name, floor_bytes=cache_floor, holds_bytes=largest)


def _rows_on(spans: Sequence[memory_levels.Span], rows: Measurements, is_open: bool = False) -> list[Measurement]:
    """The rows whose operation and working set belong to one of the spans, which are ranges of working sets; with `is_open` also
    larger working sets."""
    inside = []
    for span in spans:
        for m in rows:
            nbytes = m.problem.footprint_bytes
            is_inside = span.first_bytes <= nbytes and (is_open or nbytes <= span.last_bytes)
            if is_inside and m.problem.operation == span.plateau.operation:
                inside.append(m)
    return inside


def _link_roofs(rows: Measurements) -> "Iterable[Roof]":
    """The limits of bytes/s between host and device, one for each direction: the best bandwidth of copies from or to pinned
    memory, by either clock."""
    copies = [
        m
        for m in rows
        if m.problem.op == "transfer"
        and m.problem.host_memory == "pinned"
        and m.problem.direction in ("h2d", "d2h")
        and not m.problem.compute
    ]
    for (device, direction), group in group_by(links.fits(copies), lambda link: (link.device, link.direction)).items():
        best = max(group, key=lambda link: link.bandwidth.value)
        source = f"{best.kernel}, pinned, up to {size(best.high)}"
        yield Roof(device=device, kind="link", name=direction, rate=best.bandwidth, source=source)


def _launch_roofs(rows: Measurements) -> "Iterable[Roof]":
    """The limits of calls a second on a GPU, by an empty kernel: calls that are waited for one by one, and queued calls."""
    launches = [m for m in rows if m.problem.op == "launch" and m.on_gpu]
    roof_names = {("kernel", "host-latency"): WAITED, ("kernel-launch", "device"): QUEUED, ("kernel", "device"): QUEUED}
    empty_calls = [
        constant
        for constant in overheads.constants(launches)
        if (constant.name, constant.clock) in roof_names and constant.seconds.low > 0
    ]
    groups = group_by(empty_calls, lambda constant: (constant.device, roof_names[constant.name, constant.clock]))
    for (device, name), group in groups.items():
        shortest = min(group, key=lambda constant: constant.seconds.value)
        yield Roof(device=device, kind="launch", name=name, rate=1 / shortest.seconds, source=shortest.source)


def last_cache_bytes(machine: "Machine | None", device: str) -> int:
    """Bytes of a device's last-level cache; 0 if they are not known."""
    if machine is None:
        return 0
    if not is_gpu(device):
        return max(machine.caches_bytes.values(), default=0)
    gpu = machine.gpu(device)
    return gpu.l2_bytes if gpu else 0
