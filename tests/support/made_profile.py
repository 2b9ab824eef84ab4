"""A made-up profile whose times follow laws known in closed form, so that every prediction can be worked out by hand."""

from fake_measurements import GPU_MACHINE, by_later_epochs, row, run, write

from analysis.predict.profile import PASSES
from analysis.predict.step_kernels.operation_counts import counts
from kernels import networks
from kernels.problems import Launch, Matmul, Stream, Training, Transfer

CALL = 100e-6  # of a tf.function
RATE = {"cpu": 1e11, "gpu:0": 1e13}  # FLOP/s
BYTES = {"cpu": 1e10, "gpu:0": 1e12}  # bytes/s of passes
STEP = {("cpu", "off"): 400e-6, ("cpu", "on"): 500e-6, ("gpu:0", "on"): 1000e-6, ("gpu:0", "off"): 900e-6}
EPOCH, FIT, OPERATION = 0.03, 0.02, 2e-6
IMPORT = 4.0
LATENCY, LINK = 50e-6, 5e9  # of a copy to the GPU
KERNEL = 3e-6  # launched in a row of many
SIZES = (2**16, 2**20, 2**22, 2**24, 2**26)
VARIANTS = {"off": ("function", "fit_op_by_op"), "on": ("jit", "fit_jit")}
MODELS = ("mlp-784-100x2-10", "cifar10-cnn", "fashion-mlp")


def launches():
    """Calls, operations, Keras's steps and epochs, and what happens once."""
    made = []
    for device in ("cpu", "gpu:0"):
        for jit, (variant, fit) in VARIANTS.items():
            for n in (1, 16, 64):
                each = CALL + n * OPERATION
                clocks = {"host-latency": each, "host-throughput": each} if device != "cpu" else each
                made.append(row(f"launch/tensorflow/{variant}", Launch("elementwise", n), clocks, device=device))
            step = STEP[device, jit]
            laws = {Launch("step", n): 0.05 + n * step for n in (1, 64, 256)}
            laws |= {Launch("epoch", n): FIT + n * (EPOCH + step) for n in (1, 4, 16)}
            made += [row(f"launch/tensorflow/{fit}", p, s, device=device) for p, s in laws.items()]
    for n in (1, 64):
        clocks = {"host-latency": 1e-5, "host-throughput": n * KERNEL}
        made.append(row("launch/cupy/rawkernel", Launch("empty", n), clocks, device="gpu:0"))
    for device in ("cpu", "gpu:0"):  # told, but too short to count
        made.append(row("launch/keras/once", Launch("compile", 1), 1e-8, device=device))
    return [*made, row("launch/tensorflow/start", Launch("import", 1), IMPORT)]


def products(models=MODELS, batches=(8, 32, 128)):
    """Every product and convolution of some networks' steps, as TensorFlow runs them on the CPU and as libraries on the GPU."""
    found = {}
    for model in models:
        for batch in batches:
            for math in ("float32", "tf32"):
                for w in networks.step(networks.find(model), batch, "float32", math):
                    if w.kind in ("dense", "conv"):
                        found[w.problem] = None
    made = []
    for p in found:
        if p.math == "tf32":
            kernel = "matmul/cupy/cublas" if isinstance(p, Matmul) else "conv/cudnn/plan"
            made.append(row(kernel, p, {"device": p.flops / RATE["gpu:0"], "host-latency": 1e-3}, device="gpu:0"))
            continue
        op = "matmul" if isinstance(p, Matmul) else "conv"
        made += [row(f"{op}/tensorflow/{v}", p, CALL + OPERATION + p.flops / RATE["cpu"]) for v in ("function", "jit")]
    return made


def passes():
    made = []
    for operation in PASSES.split():
        for nbytes in SIZES:
            p = Stream(operation, nbytes, "float32")
            seconds = counts(operation).formula * OPERATION + p.bytes_moved / BYTES["cpu"]
            made += [row(f"stream/tensorflow/{v}", p, CALL + seconds) for v in ("function", "jit")]
            gpu = {"device": p.bytes_moved / BYTES["gpu:0"], "host-latency": 1e-4}
            made.append(row("stream/cupy/elementwise", p, gpu, device="gpu:0"))
    return made


def copies():
    sizes = [4**i for i in range(1, 14)]
    return [row("transfer/tensorflow/constant", Transfer("h2d", n), LATENCY + n / LINK, device="gpu:0") for n in sizes]


def training(model, batch, step, device="cpu", epoch=EPOCH, fit=FIT, samples=2048, epochs=1, **fields):
    """A training row whose fits follow a law."""
    made = row("training/keras/fit", Training(model, batch, samples, epochs), step, device=device, **fields)
    return by_later_epochs(made, (fit, epoch, step))


def written(folder, rows, machine=GPU_MACHINE):
    """The rows as a result file in a folder of the machine's; the folder's name."""
    write(folder / machine.key / "rows.jsonl", run(machine), rows)
    return str(folder)


def everything():
    """All rows but trainings."""
    return [*launches(), *products(), *passes(), *copies()]
