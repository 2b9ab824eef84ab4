"""Names of rows, which other tools' files go by, what they computed and their times in a few words."""

from collections.abc import Callable, Mapping

import msgspec

from analysis import stats
from analysis.numbers import share
from analysis.stats import Estimate
from analysis.units import count, seconds, size
from kernels.problems import AtOnce, Conv, Inference, LayerCall, Matmul, Problem, Training, Transfer
from workloads import terminal
from workloads.records import Measurement, Settings

_UNITS = ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "bytes"))
# Fields whose values say by themselves what they are.
_SHOWN_BARE = ("device", "mode", "operation", "model", "dtype", "math", "cache")
_FROM_DTYPE = ("math", "out")  # as the operands' type unless told otherwise


def fields(record: Problem | Settings) -> list[tuple[str, str]]:
    """(name, value) of a record's fields that have no default or differ from it; the arithmetic and the output's type only if
    they differ from the operands' type."""
    pairs = []
    dtype = getattr(record, "dtype", None) if "dtype" in record.__struct_fields__ else None
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        usual = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if isinstance(value, dict):
            pairs += [(name, str(one)) for name, one in sorted(value.items())]
        elif value != (dtype if dtype and field.name in _FROM_DTYPE else usual):
            pairs.append((field.name, str(value)))
    return pairs


def row(m: Measurement, between: str = " ", equals: str = "=") -> str:
    """A row's name, unique within a run: `matmul/numpy/blas m=64 n=64 k=64 threads=1`. between: what separates the fields;
    equals: a field's name from its value."""
    pairs = fields(m.problem) + fields(m.settings)
    words = between.join([m.kernel, *(f"{name}{equals}{value}" for name, value in pairs)])
    return terminal.on_one_line(words)


def brief(m: Measurement) -> str:
    """A row's name, shorter than `row` but not always unique: `matmul/numpy/blas n=64 x1`."""
    named = fields(m.problem) + fields(m.settings)
    sizes = {value for name, value in named if name in ("m", "n", "k")}
    is_square = len(sizes) == 1 and m.problem.op == "matmul"
    words = [m.kernel]
    for name, value in named:
        if name in _SHOWN_BARE:
            words.append(value)
        elif name == "threads":
            words.append(f"x{value}")
        elif not (is_square and name in ("m", "k")):
            words.append(f"{name}={value}")
    return terminal.on_one_line(" ".join(words))


def shape(problem: Problem) -> str:
    """The sizes of a matrix product or convolution; "" for other problems."""
    if isinstance(problem, Matmul):
        return product(problem)
    return convolution(problem) if isinstance(problem, Conv) else ""


def product(problem: Matmul) -> str:
    """The sizes of a matrix product: `1024` for n x n matrices, else `32x512x3136` (m, n, k); `256 of 64x64x64` for several in
    one call; then its layout, if an operand is stored transposed, and its epilogue."""
    shape = str(problem.side or f"{problem.m}x{problem.n}x{problem.k}")
    if problem.count > 1:
        shape = f"{problem.count:,} of {shape}"
    words = [shape]
    if problem.layout != "nn":
        words.append(problem.layout)
    if problem.epilogue:
        words.append(problem.epilogue)
    return " ".join(words)


def convolution(problem: Conv) -> str:
    """`32x16x16x64:64x3x3 fprop (pad valid)`: images, filters, direction, and what is unusual about it."""
    return conv_words(msgspec.structs.asdict(problem))


def conv_words(sizes: Mapping[str, str | int]) -> str:
    """The same as `convolution` from its fields, name -> value. A size that varies may be a letter instead of a number: N, C,
    H."""
    return f"{image(sizes)} {sizes['direction']} ({', '.join(how(sizes))})"


def image(sizes: Mapping[str, str | int]) -> str:
    """`32x16x16x64:64x3x3` from a convolution's fields: NxHxWxC of the images, KxRxS of the filters."""
    return f"{sizes['n']}x{one_image(sizes)}"


def one_image(sizes: Mapping[str, str | int]) -> str:
    """`16x16x64:64x3x3` from a convolution's fields: HxWxC of an image, KxRxS of the filters."""
    return f"{sizes['h']}x{sizes['w']}x{sizes['c_in']}:{sizes['c_out']}x{sizes['r']}x{sizes['s']}"


def how(sizes: Mapping[str, str | int]) -> list[str]:
    """What is unusual about a convolution, from its fields, and its padding: [`stride 2`, `2 groups`, `NCHW`, `pad same`]."""
    return [*unusual(sizes), f"pad {sizes['pad']}"]


def unusual(sizes: Mapping[str, str | int]) -> list[str]:
    """What is unusual about a convolution, from its fields, without its padding: [`stride 2`, `2 groups`, `NCHW`]."""
    words = []
    if sizes["stride"] != 1:
        words.append(f"stride {sizes['stride']}")
    if sizes["groups"] != 1:
        words.append(f"{sizes['groups']} groups")
    if sizes["layout"] != "NHWC":
        words.append(str(sizes["layout"]))
    return words


def problem(p: Problem) -> str:
    """What a problem computes, in a few words; with the arithmetic they are unique."""
    return _PROBLEMS.get(p.op, _named_fields)(p)


def _exactly(nbytes: int) -> str:
    """Bytes as a whole number of the largest unit that divides them: `3 KiB`."""
    for power, unit in _UNITS:
        if nbytes % (1 << power) == 0:
            return f"{nbytes >> power:,} {unit}"
    raise ValueError(f"{nbytes} bytes are no whole number")


def _products(p: Matmul | Conv) -> str:
    """The sizes of a product or convolution, and its output's type if that is not the operands'."""
    return f"{shape(p)} to {p.out}" if p.out != p.dtype else shape(p)


def _inference(p: Training | Inference, *sizes: str) -> str:
    """`cifar10-cnn, batch 32`, then further sizes, and the type of the inputs if it is not float32."""
    words = [terminal.on_one_line(p.model), f"batch {p.batch}", *sizes]
    if p.dtype != "float32":
        words.append(f"{p.dtype} inputs")
    return ", ".join(words)


def _layer(p: LayerCall) -> str:
    """`mnist-cnn conv2 fprop, batch 32`; of a layer without a model, its input and arguments instead of the model."""
    words = [part for part in (p.model, p.layer, p.direction) if part]
    if not p.model:
        words += [part for part in (p.input, p.arguments) if part]
    return terminal.on_one_line(f"{' '.join(words)}, batch {p.batch}")


def _copy(p: Transfer) -> str:
    """`h2d pinned 4 MiB`; with a kernel that runs at the same time: `beside fma in 4 chunks on 2 streams`."""
    words = [p.direction, p.host_memory, _exactly(p.nbytes)]
    if p.compute:
        words.append(f"beside {p.compute} in {count(p.chunks, 'chunk')} on {count(p.streams, 'stream')}")
    return " ".join(filter(None, words))


def _named_fields(p: Problem) -> str:
    return " ".join(f"{name} {value}" for name, value in fields(p))


def _at_once(p: AtOnce) -> str:
    """`triad of 256 MiB while 4 work`, or `... alone`: the work of each of several GPUs."""
    return f"{work(p)} while {p.gpus} work" if p.together > 1 else f"{work(p)} alone"


def work(p: AtOnce) -> str:
    """The work of each of several GPUs: `triad of 256 MiB`, `float32 product of side 8192`."""
    return f"{p.math} product of side {p.size}" if p.operation == "matmul" else f"{p.operation} of {size(p.size)}"


_PROBLEMS: dict[str, Callable] = {
    "matmul": _products,
    "conv": _products,
    "stream": lambda p: f"{p.operation} {_exactly(p.nbytes)} {p.dtype}",
    "peak": lambda p: f"{p.flops:,} FLOP",
    "training": lambda p: _inference(p, count(p.samples, "sample"), count(p.epochs, "epoch")),
    "inference": _inference,
    "layer": _layer,
    "feeding": lambda p: f"{p.batch:,} of {p.samples:,} samples of {p.width:,} {p.dtype} values",
    "transfer": _copy,
    "launch": lambda p: f"{p.call} x{p.count} together" if p.count > 1 else p.call,
    "peer": lambda p: f"gpu-{p.source} {'<->' if p.ways == 2 else '->'} gpu-{p.target} {size(p.nbytes)}",
    "collective": lambda p: f"{p.form} {p.dtype} {size(p.nbytes)} over {p.gpus}",
    "at-once": _at_once,
}


def device(name: str) -> str:
    """The name of `cpu` and `gpu:0` for people: `CPU`, `GPU`; of further GPUs `GPU 1`."""
    return {"cpu": "CPU", "gpu:0": "GPU"}.get(name) or numbered(name)


def numbered(name: str) -> str:
    """`GPU 0` of `gpu:0`, `CPU` of `cpu`."""
    kind, _, number = name.partition(":")
    return f"{kind.upper()} {number}" if number else kind.upper()


def numbered_gpu(name: str) -> str:
    """`gpu-3` of `gpu:3`, as sentences on several GPUs have it."""
    kind, _, number = name.partition(":")
    return f"{kind}-{number}"


def short(kernel: str) -> str:
    """Backend and variant of a kernel: `numpy/blas`."""
    return kernel.partition("/")[2]


def backend(kernel: str) -> str:
    """Backend of a kernel: `numpy`."""
    return kernel.split("/")[1]


def variant(kernel: str) -> str:
    """Variant of a kernel: `blas`."""
    return kernel.split("/")[2]


def threads(m: Measurement) -> str:
    """The number of CPU threads that a row sets; "-" if it sets none."""
    return str(m.threads or "-")


def on(m: Measurement, clock: str) -> Estimate | None:
    """Median seconds of a row on a clock (host-latency, host-throughput, device), with the interval; None without samples."""
    samples = m.on(clock)
    return stats.median_of(samples) if samples and samples.seconds else None


def time(e: Estimate | None) -> str:
    """The time that an estimate of seconds is, in its unit; "-" of None."""
    return seconds(e.value) if e else "-"


def width(e: Estimate | None) -> str:
    """Half the width of an interval, relative to the value, in percent; "-" of None."""
    return share(e.noise) if e else "-"


def status(m: Measurement) -> str:
    """The status of a row and its reason: `skipped: out of memory`; "" if it is ok."""
    if m.ok:
        return ""
    return f"{m.status}: {m.reason}" if m.reason else m.status
