"""A machine's measured ceilings: made from the rows of every workload, and the data sheet's beside them.

A ceiling is the best rate seen, not the median; nothing heavy is imported until there are rows that need it.
"""

from collections.abc import Iterable, Sequence

import msgspec

from analysis import labels
from analysis.roofline import links, memory_levels, overheads
from analysis.roofline.data_sheets import SHEETS
from analysis.stats import Estimate, call_s, clock_of, exact, group_by, is_gpu, quick_seconds
from analysis.units import bytes_rate, count, flops_rate, seconds, size
from kernels import networks
from kernels.problems.arrays import ARITHMETIC
from workloads.records import Machine, Measurement, Measurements
from workloads.records.settings import is_sustained

# A row is an error only when its whole interval lies beyond the roof's by more than this.
TOLERANCE = 1.02
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


class Roof(msgspec.Struct, frozen=True):
    """A ceiling of a device. `kind` compute: `rate` in FLOP/s for the arithmetic `name`; memory (DRAM, HBM) and cache (L1,
    L2, L3): bytes/s of the level `name`; link: bytes/s of the direction `name` (h2d, d2h) between host and device; launch:
    calls/s of an empty call, a "waited call" or a "queued call".

    math: the arithmetic of a compute roof that was measured.
    threads: the CPU threads it was measured with (None: the library's default). It holds for working sets above
    `floor_bytes` (of memory: those of which no cache holds a part that shows) and up to `holds_bytes` (0: any). measured:
    False for a data-sheet number, which nothing is judged by except the roof itself.
    """

    device: str
    kind: str
    name: str
    rate: Estimate
    source: str
    threads: int | None = None
    note: str = ""
    floor_bytes: int = 0
    measured: bool = True
    holds_bytes: int = 0
    math: str = ""

    @property
    def label(self) -> str:
        """`float32`, `DRAM bandwidth`, `link h2d`, `launch: waited call`."""
        return f"{self.short} bandwidth" if self.kind in ("memory", "cache") else self.short

    @property
    def short(self) -> str:
        """The same without the word bandwidth."""
        words = {"link": f"link {self.name}", "launch": f"launch: {self.name}"}
        return words.get(self.kind, self.name)

    @property
    def speed(self) -> str:
        """The rate in its unit; of a launch, the time of a call."""
        if self.kind == "launch":
            return seconds(1 / self.rate.value)
        return (flops_rate if self.kind == "compute" else bytes_rate)(self.rate.value)


Roofs = Sequence[Roof]


def describe(measurement: Measurement) -> str:
    """A row in a few words: kernel, problem, threads."""
    p, threads = measurement.problem, measurement.threads
    what = p.math if p.op == "peak" else labels.problem(p)
    what = f"n = {int(what):,}" if what.isdecimal() else what  # a square product
    return ", ".join([measurement.kernel, what, *[count(threads or 0, "thread")] * bool(threads)])


def roofs(measurements: Measurements, machine: "Machine | None" = None) -> tuple[Roof, ...]:
    """The ceilings of each device from its `peak`, `stream`, `matmul`, `transfer` and `launch` rows, then the data sheet's,
    if it is known.

    CPU roofs are per thread count. Tensor arithmetic without a `peak` row of its own has the best matmul on the device
    clock as its roof, and says so. `machine` gives the cache sizes (from where on a stream row counts as memory where no
    plateau shows) and the GPU's name; without it the largest working set measured counts.
    """
    usable = [
        m
        for m in measurements
        if m.mode == "resident" and quick_seconds(m) and not is_sustained(m) and not is_beyond_hardware(m, machine)
    ]
    found = [*_compute_roofs(usable), *_memory_roofs(usable, machine), *_link_roofs(usable), *_launch_roofs(usable)]
    return (*sorted(found, key=lambda r: (r.device, r.kind, r.name, r.threads or 0)), *sheet_roofs(machine))


def is_beyond_hardware(measurement: Measurement, machine: "Machine | None") -> bool:
    """Whether a row is faster than any hardware of its kind: than a call that does nothing, or than the widest units of as many
    cores as the machine has. Such a row is an error, and no roof is made from it."""
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
    """FLOPs of a row's call, of a training those of a step; 0 where they are not known."""
    problem = measurement.problem
    if problem.op != "training":
        return problem.flops or 0.0
    network = networks.known(problem.model)
    return min(problem.batch, problem.samples) * networks.training_flops(network) if network else 0.0


def sheet_roofs(machine: "Machine | None") -> tuple[Roof, ...]:
    """The data-sheet peaks of the machine's GPUs, for those in SHEETS."""
    made = []
    for index, gpu in enumerate(machine.gpus if machine else ()):
        if sheet := SHEETS.get(gpu.name):
            peaks = [*(("compute", *peak) for peak in sheet.flops_per_s.items()), ("memory", "HBM", sheet.bytes_per_s)]
            made += [
                Roof(f"gpu:{index}", kind, name, exact(rate), sheet.source, note="data sheet", measured=False)
                for kind, name, rate in peaks
            ]
    return tuple(made)


def _best(rows: Measurements, kind: str, name: str, **fields) -> Roof | None:
    """The fastest of the rows as a roof: FLOPs or bytes over seconds; None of no rows.

    A ceiling is the best that was reached, not the median: its value is the fastest block's, its interval reaches
    from the row's median to its fastest sample. Otherwise a roof measured in a busy minute would make good rows lie above.
    """

    def work(m):
        return m.problem.flops if kind == "compute" else m.problem.bytes_moved

    if not rows:
        return None
    best = max(rows, key=lambda m: work(m) / call_s(m))
    if (samples := clock_of(best)) is None:
        return None
    quick = min(samples.medians.values())
    rate = work(best) / Estimate(quick, min(samples.seconds), max(quick, call_s(best)))
    return Roof(best.device, kind, name, rate, describe(best), best.threads, **fields)


def _compute_roofs(rows: Measurements) -> "Iterable[Roof]":
    """The peak of the vector FMA and, if it is higher, that of tensor cores: their own peak, else the best matmul."""
    peaks = group_by((m for m in rows if m.problem.op == "peak"), lambda m: (m.device, m.problem.math, m.threads))
    matmuls = group_by(
        (
            m
            for m in rows
            if m.problem.op == "matmul" and m.on_gpu and m.on("device") and m.problem.math in TENSOR_MATHS
        ),
        lambda m: (m.device, m.problem.math, None),
    )
    for key in dict.fromkeys((*peaks, *matmuls)):
        own = group_by(peaks.get(key, ()), lambda m: m.variant in TENSOR_VARIANTS)
        vector, tensor = (_best(own.get(is_tensor, []), "compute", key[1], math=key[1]) for is_tensor in (False, True))
        tensor = tensor or _best(matmuls.get(key, []), "compute", key[1], note=BEST_MATMUL, math=key[1])
        if vector and tensor and tensor.rate.low > TOLERANCE * vector.rate.high:
            vector = msgspec.structs.replace(vector, name=f"{key[1]} vector")
        elif vector:
            tensor = None
        yield from filter(None, (vector, tensor))


def _memory_roofs(rows: Measurements, machine: "Machine | None") -> "Iterable[Roof]":
    """A roof for every level that the bandwidth shows; where none is the memory's, the best rate beyond the caches."""
    streams = [m for m in rows if m.problem.op == "stream"]
    plain = []
    for (device, threads), group in group_by(streams, lambda m: (m.device, m.threads)).items():
        found = list(_level_roofs(group, machine, device, threads))
        yield from found
        if all(r.kind == "cache" for r in found):
            plain += group
    for device, on_device in group_by(plain, lambda m: m.device).items():
        cache, name = last_cache_bytes(machine, device), memory_levels.memory_name(device)
        largest = max(m.problem.footprint_bytes for m in on_device)
        start = min(largest, BEYOND_CACHE * cache) if cache else largest
        kept = [m for m in on_device if m.problem.footprint_bytes >= start]
        if cache and largest <= cache:  # a cache's rate is no memory's
            continue
        for group in group_by(kept, lambda m: m.threads).values():
            own = [m for m in on_device if m.threads == group[0].settings.threads]
            searched = any(len(curve) >= memory_levels.LEAST_SIZES for curve in memory_levels.curves(own).values())
            note = f"no plateau up to {size(largest)}" if searched else ""
            if roof := _best(group, "memory", name, floor_bytes=start - 1, note=note):
                yield roof


def _level_roofs(rows: Measurements, machine, device: str, threads: int | None) -> "Iterable[Roof]":
    """The levels of one device and thread count: the fastest operation at each, over all the working sets it may hold."""
    found = memory_levels.held(memory_levels.plateaus(rows, machine))
    claimed = memory_levels.levels(machine, device, threads)
    smallest = min((start for _, start, _ in found), default=1)
    # Of working sets smaller than any on a level nothing is known, unless the innermost level was seen.
    begins = 0 if claimed and any(p.name == claimed[0][0] for p, _, _ in found) else smallest - 1
    for name, group in group_by(found, lambda one: one[0].name).items():
        memory = name == memory_levels.memory_name(device)
        last = max(end for _, _, end in group)
        inside = [
            m
            for p, start, end in group
            for m in rows
            if m.problem.operation == p.operation
            and start <= m.problem.footprint_bytes
            and (memory or m.problem.footprint_bytes <= end)
        ]
        floor = max(start for _, start, _ in group) - 1 if memory else begins
        if roof := _best(
            inside, "memory" if memory else "cache", name, floor_bytes=floor, holds_bytes=0 if memory else last
        ):
            yield roof


def _link_roofs(rows: Measurements) -> "Iterable[Roof]":
    """The link's bandwidth each way, by the best copy of pinned memory on either clock."""
    copies = [
        m
        for m in rows
        if m.problem.op == "transfer"
        and m.problem.host_memory == "pinned"
        and m.problem.direction in ("h2d", "d2h")
        and not m.problem.compute
    ]
    for (device, direction), group in group_by(links.fits(copies), lambda x: (x.device, x.direction)).items():
        best = max(group, key=lambda x: x.bandwidth.value)
        yield Roof(device, "link", direction, best.bandwidth, f"{best.kernel}, pinned, up to {size(best.high)}")


def _launch_roofs(rows: Measurements) -> "Iterable[Roof]":
    """The most calls a second of an empty kernel: waited for one by one, and queued behind each other."""
    launches = [m for m in rows if m.problem.op == "launch" and m.on_gpu]
    wanted = {("kernel", "host-latency"): WAITED, ("kernel-launch", "device"): QUEUED, ("kernel", "device"): QUEUED}
    empty = [c for c in overheads.constants(launches) if (c.name, c.clock) in wanted and c.seconds.low > 0]
    for (device, name), group in group_by(empty, lambda c: (c.device, wanted[c.name, c.clock])).items():
        least = min(group, key=lambda c: c.seconds.value)
        yield Roof(device, "launch", name, 1 / least.seconds, least.source)


def last_cache_bytes(machine: "Machine | None", device: str) -> int:
    """Bytes of a device's last cache; 0 when it is not known."""
    if machine is None:
        return 0
    if not is_gpu(device):
        return max(machine.caches_bytes.values(), default=0)
    gpu = machine.gpu(device)
    return gpu.l2_bytes if gpu else 0
