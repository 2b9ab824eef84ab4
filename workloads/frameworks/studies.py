"""Studies as data: lists of rows, each with the question that it answers.

One alone takes minutes; `--dry-run` says how long.
"""

# The articles' inputs are float64 where what a fit does to them matters (seeds, small-dataset, residence), else float32.

import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

from kernels import networks
from kernels.problems import Training
from workloads.records import Row, Settings, cases
from workloads.records import settings as switches

FIT, RESIDENT = "training/keras/fit", "training/keras/resident"
LOOPS = ("training/tensorflow/loop", "training/jax/keras_loop")
# A CPU row in three forms: switches that make it one. `visible` is the articles' way, on a machine with a GPU.
CPU_FORMS: dict[str, dict[str, str]] = {"hidden": {}, "jit": {"jit_compile": "on"}, "visible": {"gpu": "visible"}}
ARTICLES = ("cifar10-cnn", "cifar10-mlp", "fashion-mlp", "mnist-cnn")  # S0, S1a, S1b, S2; S4 is peaks
REPEATED = (*ARTICLES, "lenet", "mlp-784-500x2-10")  # a step of each is short on either device
FULL_BATCH_EPOCHS = 100  # of a model trained in one batch; the article's 2000 are read off the law of its costs
SHORT = 2048  # samples of a row that is only to show a step
LEAST_EPOCHS = (
    4  # of a long row: its fit is not repeated, as the epochs after the first are its samples; of three their spread
)


def available(library: str) -> bool:
    """Whether a library can be imported here, without importing it."""
    return importlib.util.find_spec(library) is not None


def row(
    model: str,
    batch: int,
    samples: int,
    epochs: int = 1,
    device: str = "cpu",
    kernel: str = FIT,
    dtype: str = "float32",
    threads: int | None = None,
    process: str = "warm",
    **given: str,
) -> Row:
    """One training on made-up data; `given` are its switches beside `data`."""
    chosen = switches.changed({"data": "synthetic", **given})
    settings = Settings(device, threads, process=process, switches=chosen)
    return Row(kernel, Training(model, batch, samples, epochs, dtype), settings)


def forms(device: str, gpu_here: bool, words: Iterable[str] = CPU_FORMS) -> list[dict[str, Any]]:
    """The switches of a device's forms: of a GPU the one that Keras chooses, of the CPU those named that are possible."""
    if device != "cpu":
        return [{}]
    return [CPU_FORMS[word] for word in words if word != "visible" or gpu_here]


def _loops() -> list[str]:
    return [kernel for kernel in LOOPS if kernel.split("/")[1] != "jax" or available("jax")]


def seeds(on: list[str]) -> list[Row]:
    """The articles' trainings at their own batch, samples and type; S4 both ways. S0 runs all its epochs on both devices, the
    others theirs on a GPU and three on the CPU, since what an epoch costs there, S0 has shown to be what the next one does.
    Then the CPU in its three forms, on few samples: what is asked of a form that few would choose is its step."""
    found, gpu = [], any(device != "cpu" for device in on)
    for name in ARTICLES:
        of = networks.find(name)
        for device in on:
            whole = device != "cpu" or name == "cifar10-cnn"
            found.append(row(name, of.batch, of.samples, of.epochs if whole else LEAST_EPOCHS, device, dtype="float64"))
    found += [
        row(name, 32, SHORT, device=device, **form) for name in ARTICLES for device in on for form in forms(device, gpu)
    ]
    return found + peaks(on)


def peaks(on: list[str]) -> list[Row]:
    """S4 both ways. The article's: bare steps, all 2000 of them, on data that is there already, at every size that it has a
    word about. Fed each step, and with the article's float64 targets, at the ends, since these shift a whole line.
    Keras's: epochs of one step, which cost the same each; so few of them."""
    found, gpu = [], any(device != "cpu" for device in on)
    steps = networks.find("peaks").epochs
    for device in on:
        for samples in (100, 200, 1000, 10_000, 40_000):
            for kernel in _loops():
                ways: list[dict[str, Any]] = [{"residence": "resident"}]
                if samples in (100, 40_000):
                    ways += [{"residence": "fed"}, {"residence": "resident", "targets": "float64"}]
                found += [row("peaks", samples, samples, steps, device, kernel, **way) for way in ways]
            if samples in (100, 40_000):
                found.append(row("peaks", samples, samples, FULL_BATCH_EPOCHS, device))
        if device == "cpu":  # TensorFlow's loop compiled by XLA, and with the GPU in sight: the traps
            found += [
                row("peaks", 40_000, 40_000, steps, device, LOOPS[0], residence="resident", **form)
                for form in forms("cpu", gpu, ("jit", "visible"))
            ]
    return found


def batches(on: list[str]) -> list[Row]:
    """From which batch a step is quicker on the GPU. Whole batches alone, so that nothing compiles twice: eight steps, or
    as many as make SHORT samples. The largest only where a CPU does a step of it in well under a second."""
    sizes = {
        "cifar10-cnn": (1, 8, 32, 256, 2048),
        "cifar10-mlp": (1, 32, 256),
        "mnist-cnn": (1, 32),
        "fashion-mlp": (1, 8, 32, 256, 2048, 8192),
    }
    return [
        row(name, batch, max(8 * batch, min(SHORT, 256 * batch)), device=device)
        for name, every in sizes.items()
        for device in on
        for batch in every
    ]


def small_dataset(on: list[str]) -> list[Row]:
    """The small-dataset finding: the same model on 100 samples and more, up to all of its data set, in the articles' batch and
    type."""
    return [
        row(name, 32, samples, LEAST_EPOCHS if samples > SHORT else 1, device, dtype="float64")
        for name in ("cifar10-cnn", "fashion-mlp")
        for samples in (100, 1000, 10_000, networks.find(name).samples)
        for device in on
    ]


def width(on: list[str]) -> list[Row]:
    """From which width of two hidden layers the GPU is quicker: the complaint that 100 units are slower and 1000 faster,
    in its batch."""
    return [
        row(f"mlp-784-{units}x2-10", 128, SHORT, device=device) for device in on for units in (32, 128, 512, 2048, 8192)
    ]


def depth(on: list[str]) -> list[Row]:
    """The same for the number of hidden layers, S1b's own parameter."""
    return [row(f"fashion-mlp-{layers}", 32, SHORT, device=device) for device in on for layers in (1, 5, 30)]


def epochs(on: list[str]) -> list[Row]:
    """Whether a job grows with its epochs as the law of its costs says: many, on few samples, where epochs weigh most."""
    return [row("fashion-mlp", 32, 1024, 30, device) for device in on]


def residence(on: list[str]) -> list[Row]:
    """S3a: where the samples live, on a net of two convolutions with 314 MB of samples (50,000 in float64), at both batches.
    A generator and a prefetch at the larger batch alone: at 8 they take minutes. On the CPU there is nowhere to copy to:
    Keras's own way."""
    found = []
    for device in on:
        for batch, ways in ((8, ("numpy", "tf.data")), (64, ("numpy", "tf.data", "prefetch", "generator"))):
            own = ways if device != "cpu" else ways[:1]
            found += [
                row("mnist-cnn", batch, 50_000, LEAST_EPOCHS, device, dtype="float64", residence=way) for way in own
            ]
            if device != "cpu":
                found.append(
                    row(
                        "mnist-cnn",
                        batch,
                        50_000,
                        LEAST_EPOCHS,
                        device,
                        RESIDENT,
                        dtype="float64",
                        residence="resident",
                    )
                )
    return found


def one_switch(on: list[str]) -> list[Row]:
    """One switch at a time beside the row that has none, which stands first; on the articles' first CNN."""
    found = []
    for device in on:
        own: list[dict] = [{}, {"steps_per_execution": "16"}, {"jit_compile": "off" if device != "cpu" else "on"}]
        if device != "cpu":
            own += [{"tf32": "off"}, {"precision": "mixed_bfloat16"}]
        else:
            own += [{"TF_ENABLE_ONEDNN_OPTS": "0"}, {"threads": 4}]
        found += [row("cifar10-cnn", 32, SHORT, device=device, **given) for given in own]
        found += [row("cifar10-cnn", 32, SHORT, device=device, dtype=dtype) for dtype in ("float64", "uint8")]
    return found


def backends(on: list[str]) -> list[Row]:
    """Keras on its other backends, where they are installed."""
    return [
        row("cifar10-cnn", 32, SHORT, device=device, keras_backend=backend)
        for backend in ("jax", "torch")
        if available(backend)
        for device in on
    ]


def starts(on: list[str]) -> list[Row]:
    """What a process pays before its first step, and how far five processes lie apart. One model: importing and starting a
    device know nothing of it, and a process takes 20 s."""
    return [row("cifar10-cnn", 32, 1024, device=device, process="fresh") for device in on]


def complaints(on: list[str]) -> list[Row]:
    """The trainings of the real complaints, in their batch, short: what is asked is their step. `python -m analysis.explain
    --case` says whether the finding comes back."""
    reported = dict.fromkeys((r.training.model, r.training.batch) for c in cases.COMPLAINTS for r in c.reported)
    return [
        row(model, batch, max(8 * batch, min(SHORT, 256 * batch)), device=device)
        for model, batch in reported
        for device in on
    ]


def held_out(on: list[str]) -> list[Row]:
    """Networks that no article and no complaint has: beside the other studies' they say how far predictions are off
    (`python -m analysis.predict --leave-one-out`)."""
    sizes = {
        "lenet": (32, 512),
        "vgg-small": (32, 256),
        "resnet-small": (32, 128),
        "mlp-784-50x1-10": (32,),
        "mlp-784-4000x2-10": (128,),
    }
    return [
        row(name, batch, max(8 * batch, min(SHORT, 256 * batch)), device=device)
        for name, every in sizes.items()
        for device in on
        for batch in every
    ]


def repeats(on: list[str]) -> list[Row]:
    """How far processes lie apart: one short row a model, for `--rigorous`. What a prediction of a step is off by counts only
    beyond twice that (`python -m analysis.predict --leave-one-out`)."""
    return [row(name, 32, 16 * 32, device=device) for name in REPEATED for device in on]


STUDIES: dict[str, Callable[[list[str]], list[Row]]] = {
    "seeds": seeds,
    "batches": batches,
    "small-dataset": small_dataset,
    "width": width,
    "depth": depth,
    "epochs": epochs,
    "residence": residence,
    "switches": one_switch,
    "backends": backends,
    "starts": starts,
    "complaints": complaints,
    "held-out": held_out,
    "repeats": repeats,
}
EXPERIMENTS = ("together", "trials", "teacher")  # of workloads.frameworks.side_by_side, each in a file of its own
DATA_PARALLEL = "data-parallel"  # its rows know the GPUs that are here
NAMES = (*STUDIES, *EXPERIMENTS, DATA_PARALLEL)


def experiments(names: Iterable[str]) -> list[str]:
    """Those of the studies named that workloads.frameworks.side_by_side carries out."""
    names = list(names)
    return [name for name in EXPERIMENTS if name in names or "all" in names]


def rows(names: Iterable[str], on: list[str]) -> list[Row]:
    """The rows of some studies on those devices, each once, without those of the experiments. `all` is every study."""
    names = list(names)
    chosen = [name for name in STUDIES if name in names or "all" in names]
    return list({r.key: r for name in chosen for r in STUDIES[name](on)}.values())
