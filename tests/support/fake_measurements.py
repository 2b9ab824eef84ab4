"""Made-up measurements that follow laws known in closed form, and a whole run shaped like the GPU machine's."""

import math
import zlib

import house
import numpy as np
from msgspec.structs import replace

from analysis.analysis import Analysis
from kernels import registry
from kernels.problems import Launch, Matmul, Peak, Stream, Training, Transfer
from kernels.problems.arrays import precision
from workloads.records import SCHEMA, Fits, Gpu, Loaded, Machine, Measurement, Row, Run, Samples, Settings, Writer

H200 = Gpu("NVIDIA H200", "GPU-0", "9.0", 132, 141 * 2**30, 60 * 2**20, 1.98e9, 3.2e9, 700.0, 5, 16)
_CACHES = {"L1d": 48 * 2**10, "L2": 2 * 2**20, "L3": 105 * 2**20}
_CPU = ("Intel Xeon Platinum 8480+", "intel", "avx512", 16, 1, 2**37, _CACHES)
GPU_MACHINE = Machine("nvidia-h200", *_CPU, (H200,), "580.0", "Linux", True)
CPU_MACHINE = Machine("intel-avx512-2c", "Intel Xeon", "intel", "avx512", 2, 1, 2**33, {**_CACHES, "L3": 32 * 2**20})
RUNGS = {"naive", "reordered", "packed", "coalesced", "tiled", "register_tiled", "direct"}  # variants
SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


def with_gpus(*uuids: str) -> Machine:
    """The GPU machine with an H200 for each of these."""
    key = f"nvidia-h200-x{len(uuids)}" if len(uuids) > 1 else GPU_MACHINE.key
    return replace(GPU_MACHINE, key=key, gpus=tuple(replace(H200, uuid=uuid) for uuid in uuids))


def samples(seconds, clock="host-latency", spread=0.0, blocks=5, each=4, seed=0) -> Samples:
    """blocks x each samples around `seconds` with that relative spread; with spread 0 all are equal."""
    rng = np.random.default_rng(zlib.crc32(repr((seed, clock)).encode()))
    drawn = seconds * np.exp(spread * rng.standard_normal(blocks * each))
    return Samples(clock, tuple(drawn.tolist()), 10, (each,) * blocks, "max-noise")


def row(kernel, problem, seconds, *, device="", threads=None, mode="resident", status="ok", spread=0.0, **fields):
    """A measurement; `seconds` by clock, or one number for host latency. The device follows from the backend."""
    device = device or ("gpu:0" if "/cupy/" in kernel else "cpu")
    clocks = {"host-latency": seconds} if isinstance(seconds, float) else seconds or {}
    key = (kernel, repr(problem), device, threads, mode)
    taken = tuple(samples(s, clock, spread, seed=key) for clock, s in clocks.items())
    own = {name: fields.pop(name) for name in ("cache", "process", "switches") if name in fields}
    check = "" if status == "skipped" else "exact"
    settings = Settings(device, threads, mode, **own)
    notes = kernel_notes(kernel) | fields.pop("notes", {})
    return Measurement(kernel, problem, settings, status, samples=taken, check=check, notes=notes, **fields)


def kernel_notes(kernel: str) -> dict[str, str]:
    """The notes that a kernel of a ladder writes into its rows."""
    op, _, variant = kernel.split("/")
    if op not in house.operations() or kernel not in registry.ladder(op):
        return {}
    return {"idea": f"The idea of {kernel}."} | ({"rung": "yes"} if variant in RUNGS else {})


def by_later_epochs(m: Measurement, law: tuple[float, float, float], noise: float = 0.0) -> Measurement:
    """The row of a training whose fits follow (setup, epoch, step) seconds to the digit: five later epochs of its own steps and
    of another number of them. With `noise` they are three, one that much below and one above."""
    setup, epoch, step = law
    steps = m.problem.steps
    few = 8 if steps > 8 else 2 * steps
    spread = (-noise, 0.0, noise) if noise else (0.0,) * 5
    own = tuple((epoch / steps + step) * (1 + d) for d in spread)
    later = tuple((epoch + few * step) * (1 + d) for d in spread)
    taken = Samples("host-latency", own, steps, (len(own),), "epochs of 1 fit")
    fits = (
        Fits(steps=steps, setup_s=(setup,) * 5),
        Fits(steps=few, setup_s=(setup,) * 5, later_epoch_s=later),
    )
    return replace(m, samples=(taken,), fits=fits)


def answer(of: Row, *taken: Samples, status: str = "ok", **fields) -> Measurement:
    """What a worker says of a row, with those samples."""
    return Measurement(of.kernel, of.problem, of.settings, status, samples=taken, **fields)


def square(n: int, math: str = "float32") -> Matmul:
    return Matmul(n, n, n, precision(math)[0], math)


def laws(cpu, gpu, sizes=SIZES, spread: float = 0.0, **gpu_fields) -> list[Measurement]:
    """numpy/blas and cupy/cublas at square sizes, their seconds given by functions of n."""
    made = []
    for n in sizes:
        made.append(row("matmul/numpy/blas", square(n), cpu(n), threads=1, spread=spread))
        made.append(row("matmul/cupy/cublas", square(n), gpu(n), spread=spread, **gpu_fields))
    return made


_CPU_PEAK = {"float64": 60e9, "float32": 120e9}
_GPU_RATE = {"float64": 62e12, "float32": 52e12, "tf32": 380e12, "float16": 760e12, "bfloat16": 780e12}
_HOST_COST = {"resident": 0.0, "roundtrip": 35e-6, "roundtrip-pinned": 22e-6, "roundtrip-pageable": 60e-6}
_LINK = {"roundtrip": 12e9, "roundtrip-pinned": 52e9, "roundtrip-pageable": 9e9}


def _cpu_seconds(n: int, math: str, threads: int, backend: str) -> float:
    rate = _CPU_PEAK[math] * min(threads, 12) * {"numpy": 0.9, "numba": 0.35}[backend]
    fork = 1e-6 + (8e-6 * threads**0.5 if threads > 1 else 0.0) + (20e-6 if backend == "numba" else 0.0)
    return fork + 2 * n**3 / (rate * n / (n + 40 * threads**0.5))


def _device_seconds(n: int, math: str) -> float:
    return 4.5e-6 + 2 * n**3 / (_GPU_RATE[math] * n**2 / (n**2 + 900.0**2)) if n < 4096 else 2 * n**3 / _GPU_RATE[math]


def _cpu_rows(spread: float, cores: int, sizes) -> list[Measurement]:
    made = []
    for math_ in ("float32", "float64"):
        for n in sizes:
            if n <= 512 and math_ == "float32":
                for rung, rate in (("naive", 0.9e9), ("reordered", 8e9), ("packed", 14e9)):
                    made.append(row(f"matmul/numba/{rung}", square(n), 2 * n**3 / rate, threads=1, spread=spread))
            for threads in sorted({1, 2, 4, cores}):
                if threads > cores:
                    continue
                for backend, variants in (("numpy", ("operator", "blas")), ("numba", ("parallel",))):
                    for variant in variants:
                        fresh = n * n * 1e-10 if variant == "operator" else 0  # a fresh result each call
                        time = _cpu_seconds(n, math_, threads, backend) + fresh
                        how = {"threads": threads, "spread": spread, "phases_s": {"first_call": time * 5}}
                        made.append(row(f"matmul/{backend}/{variant}", square(n, math_), time, **how))
    for math_, peak in _CPU_PEAK.items():
        for threads in sorted({1, cores}):
            time, how = 10**9 / (peak * min(threads, 12)), {"threads": threads, "spread": spread / 4}
            made.append(row("peak/numba/fma", Peak(math_, 10**9), time, **how))
    for threads, rate in ((1, 12e9), (cores, 12e9 * math.sqrt(cores))):
        triad = Stream("triad", 512 * 2**20)
        made.append(row("stream/numba/loop", triad, triad.bytes_moved / rate, threads=threads, spread=spread))
        made.append(row("stream/numpy/ufunc", triad, triad.bytes_moved / rate * 1.9, threads=threads, spread=spread))
    return made


def _gpu_rows(spread: float, sizes) -> list[Measurement]:
    made = []
    for math_ in _GPU_RATE:
        for n in sizes:
            p, device = square(n, math_), _device_seconds(n, math_)
            for variant, launch in (("operator", 24e-6), ("cublas", 19e-6)):
                clocks = {"host-latency": device + launch, "host-throughput": max(device, launch * 0.6)}
                if variant == "cublas":
                    clocks["device"] = device
                made.append(row(f"matmul/cupy/{variant}", p, clocks, spread=spread, phases_s={"first_call": 0.4}))
                for mode, rate in _LINK.items():
                    time = device + launch + _HOST_COST[mode] + p.bytes_moved / rate
                    made.append(row(f"matmul/cupy/{variant}", p, time, mode=mode, spread=spread))
    for math_, peak in (("float64", 33e12), ("float32", 60e12)):
        made.append(row("peak/cupy/fma", Peak(math_, 10**13), {"device": 10**13 / peak, "host-latency": 0.3}))
    triad = Stream("triad", 2**30)
    clocks = {"device": triad.bytes_moved / 4.1e12, "host-latency": 3e-4}
    made.append(row("stream/cupy/wide", triad, clocks, spread=spread))
    reason = "needs 768 GiB, the GPU has 139 GiB free"
    made.append(row("matmul/cupy/cublas", square(262144), None, status="skipped", reason=reason))
    return made


def training_rows(gpu: bool = True) -> list[Measurement]:
    """S0's step on both devices, with the sum of its library times beside it."""
    p, made = Training("cifar10-cnn", 32, 9600), []
    for device, step in (("cpu", 1.9e-3), ("gpu:0", 2.6e-3))[: 1 + gpu]:
        phases, values = {"build": 0.6, "first_call": 2.2}, {"parameters": 51210.0, "final_loss": 0.4}
        own = {"phases_s": phases, "values": values, "series": {"loss": (0.9, 0.5, 0.4)}}
        made.append(row("training/keras/fit", p, step, device=device, spread=0.01, **own))
    return made


def stream_curve(kernel, law, sizes, threads=1, operation="triad", spread=0.0) -> list[Measurement]:
    """Rows of one operation over working sets, the bandwidth a function of the working set's bytes."""
    made = []
    for nbytes in sizes:
        p = Stream(operation, nbytes)
        seconds = p.bytes_moved / law(p.footprint_bytes)
        clocks = {"device": seconds, "host-latency": seconds + 1e-5} if "/cupy/" in kernel else seconds
        made.append(row(kernel, p, clocks, threads=threads, spread=spread))
    return made


def stairs(*steps: tuple[int, float], last: float):
    """A bandwidth that falls from step to step: `rate` up to 0.9 of each (bytes, rate), 0.6 of it up to 2.2 times, then on."""

    def law(nbytes: int) -> float:
        for held, rate in steps:
            if nbytes <= 0.9 * held:
                return rate
            if nbytes <= 2.2 * held:
                return 0.6 * rate
        return last

    return law


STREAM_SIZES = tuple(8 * 2**10 * 2**i for i in range(19))  # 8 KiB to 2 GiB


def memory_rows(spread: float = 0.01) -> list[Measurement]:
    """Both devices' levels: the CPU of GPU_MACHINE with one and 16 threads, and its GPU (its first rows cost a call)."""
    made = []
    for threads, rates in ((1, (4e11, 1.5e11, 3.6e10, 1.2e10)), (16, (5.6e12, 2e12, 3e11, 4.8e10))):
        held = 48 * 2**10 * threads, 2 * 2**20 * threads, 105 * 2**20
        law = stairs(*zip(held, rates[:3], strict=True), last=rates[3])
        for operation in ("copy", "triad"):
            made += stream_curve("stream/numba/loop", law, STREAM_SIZES, threads, operation, spread)

    def gpu(nbytes: int) -> float:
        rate = 7e12 if nbytes <= 40 * 2**20 else 5.3e12 if nbytes < 100 * 2**20 else 4.2e12
        return nbytes / (1e-7 + nbytes / rate)

    return made + stream_curve("stream/cupy/wide", gpu, STREAM_SIZES, None, "triad", spread)


def transfer_rows(spread: float = 0.01) -> list[Measurement]:
    """Straight laws of pinned and pageable copies, 4 B to 1 GiB, with the PCIe link that was seen."""
    laws_ = {
        ("transfer/cupy/memcpy_async", "pinned", "h2d"): (1e-5, 5.5e10),
        ("transfer/cupy/memcpy_async", "pinned", "d2h"): (9e-6, 5.2e10),
        ("transfer/cupy/array", "pageable", "h2d"): (2e-5, 1.1e10),
        ("transfer/cupy/array", "pageable", "d2h"): (2.4e-5, 8e9),
        ("transfer/tensorflow/constant", "pageable", "h2d"): (6e-5, 6e9),
    }
    own = {"device": "gpu:0", "spread": spread, "values": {"pcie_generation": 5.0, "pcie_width": 16.0}}
    return [
        row(kernel, Transfer(direction, 4**i, memory), latency + 4**i / rate, **own)
        for (kernel, memory, direction), (latency, rate) in laws_.items()
        for i in range(1, 16)
    ]


def launch_rows(spread: float = 0.01) -> list[Measurement]:
    """Empty kernels (7 µs waited for, 100 ns a further one on the device) and steps of a Keras model with
    almost no work (CPU 400 µs, GPU 900 µs; a fit costs 20 ms)."""
    made = []
    for n in (1, 8, 64):
        clocks = {"host-latency": 5e-6 + 2e-6 * n, "device": 5e-8 + 1e-7 * n}
        made.append(row("launch/cupy/rawkernel", Launch("empty", n), clocks, spread=spread))
        for device, step in (("cpu", 4e-4), ("gpu:0", 9e-4)):
            for variant in ("fit", "fit_jit", "fit_op_by_op"):
                time = 2e-2 + 10 * n * step
                kernel = f"launch/tensorflow/{variant}"
                made.append(row(kernel, Launch("step", 10 * n), time, device=device, spread=spread))
    return made


def tensor_peaks() -> list[Measurement]:
    """Tensor-core peaks beside the FMA ones: wgmma beyond mma.sync, float64 on tensor cores at twice the vector's."""
    wgmma, tensor = {"float16": 9e14, "tf32": 4.5e14}, {"float16": 6e14, "float64": 6.5e13}
    return [
        row(f"peak/cupy/{variant}", Peak(math_, 10**13), {"device": 10**13 / rate, "host-latency": 0.3})
        for variant, rates in (("tensor", tensor), ("wgmma", wgmma))
        for math_, rate in rates.items()
    ]


def whole_run(spread: float = 0.01, sizes=SIZES) -> Loaded:
    """gpu_run and everything that explains it: levels of memory, copies, launches, tensor-core peaks."""
    loaded = gpu_run(spread, sizes)
    more = (*memory_rows(spread), *transfer_rows(spread), *launch_rows(spread), *tensor_peaks())
    return Loaded(loaded.runs, (*loaded.measurements, *more), 0, loaded.files)


def run(machine: Machine, command: str = "python -m workloads.suite --quick") -> Run:
    packages = {"numpy": "2.4.6", "numba": "0.68.1", "python": "3.12.3"}
    return Run(SCHEMA, machine, packages, command, 1, "abc1234", "0123456789abcdef", "2025-01-02T03:04:05Z")


def write(file, of: Run, rows) -> None:
    """A result file of a run with these rows."""
    with Writer(file, of) as writer:
        for m in rows:
            writer.append(m)


def gpu_run(spread: float = 0.01, sizes=SIZES) -> Loaded:
    """A run like the H200's: every form, precision and thread count, and one skipped size."""
    rows = [*_cpu_rows(spread, 16, sizes), *_gpu_rows(spread, sizes), *training_rows()]
    return Loaded((run(GPU_MACHINE),), tuple(rows), 0, ("suite.jsonl",))


def cpu_run(spread: float = 0.01, sizes=SIZES[:5]) -> Loaded:
    """A run of a machine without a GPU, one failed row in it."""
    failed = row("matmul/numba/parallel", square(2048), None, threads=2, status="failed", reason="the worker died")
    rows = [*_cpu_rows(spread, 2, sizes), failed, *training_rows(gpu=False)]
    return Loaded((run(CPU_MACHINE),), tuple(rows), 0, ("suite.jsonl",))


_LAYER_BATCHES = (1, 8, 32, 128, 512)
_LAYER_WAYS = {"eager": 40e-6, "function": 60e-6, "jit": 50e-6}


def _layer_seconds(p, threads: int) -> float:
    """A product waits for its weights too, from L3 at 25 GB/s."""
    loading = p.footprint_bytes / 25e9 if p.op == "matmul" else 0.0
    return 5e-6 * threads**0.5 + loading + p.flops / (100e9 * min(threads, 12))


def layer_rows(
    model: str = "cifar10-cnn",
    batches=_LAYER_BATCHES,
    spread: float = 0.01,
    maths=("float32", "tf32", "bfloat16"),
    kinds=("conv", "dense"),
) -> list[Measurement]:
    """The convolutions and dense products of a network: a CPU of 100 GFLOP/s a thread whose call costs 5 µs; a GPU of 30
    TFLOP/s in float32, 4 times that in tf32 and 10 times in bfloat16 (half where channels are no multiples of 8), whose call
    costs 30 µs; TensorFlow at 1.5 times the library and its own overhead; cold calls twice as long; copies at 10 to 50 GB/s."""
    from kernels import networks
    from kernels.networks.training_step import step

    made = []
    for batch, math_ in ((b, m) for b in batches for m in maths):
        for w in (w for w in step(networks.find(model), batch, *precision(math_)) if w.kind in kinds):
            cpu, gpu = {"conv": ("numpy/im2col", "cudnn/plan"), "dense": ("numpy/blas", "cublaslt/best")}[w.kind]
            op, p = w.problem.op, w.problem
            rate = 30e12 * {"float32": 1, "tf32": 4, "bfloat16": 10}[math_] * (1 if p.alignment == 8 else 0.5)
            device = 2e-6 + p.flops / rate
            own = {"device": "gpu:0", "spread": spread}
            made.append(row(f"{op}/{gpu}", p, {"host-latency": device + 30e-6, "device": device}, **own))
            own_kernel = f"{op}/cupy/{'im2col' if op == 'conv' else 'cublas'}"
            made.append(row(own_kernel, p, {"host-latency": 2 * device + 40e-6, "device": 2 * device}, **own))
            copied = {mode: device + 40e-6 + p.footprint_bytes / rate_ for mode, rate_ in _LINK.items()}
            made += [row(f"{op}/{gpu}", p, seconds, mode=mode, **own) for mode, seconds in copied.items()]
            made += [row(f"{op}/tensorflow/{way}", p, 1.5 * device + cost, **own) for way, cost in _LAYER_WAYS.items()]
            if math_ != "float32":
                continue
            for threads in (1, 16):
                time = _layer_seconds(p, threads)
                made.append(row(f"{op}/{cpu}", p, time, threads=threads, spread=spread))
                if op == "matmul":  # twice as long would be less than its bytes take
                    continue
                cold = row(f"{op}/{cpu}", p, 2 * time, threads=threads, spread=spread)
                made.append(replace(cold, settings=replace(cold.settings, cache="cold")))
            fastest = min(_layer_seconds(p, t) for t in (1, 16))
            ways = _LAYER_WAYS | ({"held": 0.0} if op == "conv" else {})
            made += [row(f"{op}/tensorflow/{way}", p, 1.5 * fastest + c, spread=spread) for way, c in ways.items()]
    return list({m.key: m for m in made}.values())


def layers_run(spread: float = 0.01, **how) -> Loaded:
    """A run of a network's layers with the roofs of whole_run."""
    model = how.get("model", "cifar10-cnn")
    command = f"python -m workloads.conv --model {model} --batch 1 8 32 128 512 --direction all"
    peaks = [m for m in gpu_run(spread, (64,)).measurements if m.problem.op in ("peak", "stream")]
    more = (*memory_rows(spread), *transfer_rows(spread), *launch_rows(spread), *tensor_peaks())
    rows = [*peaks, *more, *layer_rows(spread=spread, **how)]
    return Loaded((run(GPU_MACHINE, command),), tuple(rows), 0, ("conv.jsonl",))


def page_of(rows):
    """What the report's page is made of, from rows that no file holds."""
    from analysis.report.material import Material

    return Material(Analysis.from_rows(rows))
