"""Which rows stand for what in a profile: whose are taken for an execution on a device, what may stand for an arithmetic without
rows, where a shape lies on a curve, and the commands that measure what is lacking.
"""

import math

from kernels.problems import Conv, Matmul, Stream

OP_BY_OP, COMPILED = "op by op", "compiled"
VARIANTS = {OP_BY_OP: "function", COMPILED: "jit"}
CALLS = {OP_BY_OP: "tf-function-call", COMPILED: "tf-jit-call"}
LIBRARIES, HELD = "libraries", "held"
GRAPH = "graph"  # TensorFlow's rows of many operations in one graph, as in a step that is not compiled
POOLED = "stream/tensorflow/pooled"  # of pools, each with its gradient behind it
WORDS = {
    LIBRARIES: "libraries' rows",
    HELD: "TensorFlow's rows inside a graph",
    "function": "TensorFlow's rows in a tf.function",
    "jit": "TensorFlow's rows compiled by XLA",
}
LIBRARY = ("numpy", "mkl", "cupy", "cudnn", "cublaslt")  # backends that are libraries called by themselves
OWN = ("numba", "cuda")
# Whose copies of a batch to the device count, the first that has a law: a batch is a tensor in host memory already.
COPIERS = ("transfer/cupy/array", "transfer/tensorflow/dataset", "transfer/tensorflow/constant")
# What fit makes of its samples; where it was not measured, tf.constant (a fresh copy in host memory, and over to the GPU), and
# back into fresh memory.
HOLDER, CONSTANT = "stream/tensorflow/dataset", "transfer/tensorflow/constant"
BACK = ("transfer/cupy/asarray", "transfer/cupy/array")
PASSES = (
    "copy",
    "add",
    "scale",
    "read",
    "relu",
    "relu_grad",
    "dropout",
    "maxpool",
    "maxpool_grad",
    "batchnorm",
    "sgd",
    "adam",
)
# Arithmetic without rows of its own, and what may stand for it.
_INSTEAD = {
    "tf32": (("float32", "float32"),),
    "bfloat16": (("float16", "float16"), ("float32", "tf32"), ("float32", "float32")),
    "float16": (("bfloat16", "bfloat16"), ("float32", "tf32"), ("float32", "float32")),
}


def clock(device: str) -> str:
    """The clock on which a framework's rows are read: a call that is waited for on the CPU, one of many queued on a GPU."""
    return "host-latency" if device == "cpu" else "host-throughput"


def of(device: str, execution: str, op: str) -> tuple[tuple[str, ...], ...]:
    """Whose rows count, those that are as good together: on a GPU libraries' on its own clock; on the CPU TensorFlow's in that
    execution, inside a graph or in a call of its own, and of compiled products libraries' too, whose threads spin on between
    calls; then what may stand for them."""
    own = VARIANTS[execution]
    other = next(v for v in VARIANTS.values() if v != own)
    if device != "cpu":
        return (LIBRARIES,), (own,), (other,)
    if op == "matmul":
        return ((own,), (LIBRARIES,), (other,)) if execution == OP_BY_OP else ((own, LIBRARIES), (other,))
    return (HELD, own) if execution == OP_BY_OP and op == "conv" else (own,), (other,), (LIBRARIES,)


def maths(problem: Matmul | Conv, device: str) -> list[tuple[str, str]]:
    """The arithmetic asked for, then what may stand for it."""
    instead = [
        (dtype, math_) for dtype, math_ in _INSTEAD.get(problem.math, ()) if device != "cpu" or math_ == "float32"
    ]
    return [(problem.dtype, problem.math), *instead]


def kind(problem: Matmul | Conv) -> str:
    """What a curve's rows have in common beside their arithmetic."""
    return (
        problem.layout
        if isinstance(problem, Matmul)
        else f"{problem.direction}{' grouped' if problem.groups > 1 else ''}"
    )


def at(problem: Matmul | Conv) -> tuple[float, ...]:
    """Where a shape lies: the logarithms of its matrix product's sizes, and of alignment and filter."""
    align = 0.5 * math.log(problem.alignment)
    if isinstance(problem, Matmul):
        return (math.log(problem.m), math.log(problem.n), math.log(problem.k), align)
    return (
        math.log(problem.n),
        0.5 * math.log(problem.p * problem.q),
        math.log(problem.c_in),
        math.log(problem.c_out),
        math.log(problem.r * problem.s),
        math.log(problem.stride),
        align,
    )


def command(problem: Matmul | Conv | Stream, device: str) -> str:
    """The command line that measures rows of such problems."""
    what = {
        "matmul": "matmul --model fashion-mlp --batch 1:2048:x4 --direction all",
        "conv": "conv --model cifar10-cnn --batch 1:2048:x4 --direction all",
        "stream": f"stream --operations {' '.join(PASSES)} --dtypes float32 --sizes 64KiB:256MiB:x4",
    }
    return f"python -m workloads.{what[problem.op]} --device {_device(device)} --backends tensorflow"


def launches(device: str) -> str:
    """The command line that measures the constants of a device."""
    return f"python -m workloads.launch --backends tensorflow --device {_device(device)}"


def _device(device: str) -> str:
    return "cpu" if device == "cpu" else "gpu"
