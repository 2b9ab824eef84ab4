"""Studies as data: lists of rows, each with the question that it answers.

One alone takes minutes; `--dry-run` says how long.
"""

# The articles' inputs are float64 where what a fit does to them matters (seeds, small-dataset, residence), else float32.

import importlib.util
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from kernels import networks
from kernels.problems import Training
from workloads.records import Row, Settings, distinct, published_cases, settings

FIT, RESIDENT = "training/keras/fit", "training/keras/resident"
LOOPS = ("training/tensorflow/loop", "training/jax/keras_loop")
# A CPU row in three forms: switches that make it one. `visible` is the articles' way, on a machine with a GPU.
CPU_FORMS: dict[str, dict[str, str]] = {"hidden": {}, "jit": {"jit_compile": "on"}, "visible": {"gpu": "visible"}}
ARTICLES = ("cifar10-cnn", "cifar10-mlp", "fashion-mlp", "mnist-cnn")  # S0, S1a, S1b, S2; S4 is peaks
REPEATED = (*ARTICLES, "lenet", "mlp-784-500x2-10")  # a step of each is short on either device
FULL_BATCH_EPOCHS = 100  # of a model trained in one batch; the article's 2000 are read off the law of its costs
SHORT = 2048  # samples of a row that is only to show a step
LEAST_EPOCHS = 4  # of a long row, whose fit is not repeated: three later ones, and so their spread


def available(library: str) -> bool:
    """Whether a library can be imported here, without importing it."""
    return importlib.util.find_spec(library) is not None


def row(
    training: Training,
    device: str = "cpu",
    kernel: str = FIT,
    threads: int | None = None,
    process: str = "warm",
    **given,
) -> Row:
    """One training on made-up data; `given` are its switches beside `data`."""
    chosen = settings.changed({"data": "synthetic", **given})
    return Row(kernel, training, Settings(device, threads, process=process, switches=chosen))


def short(model: str, batch: int, dtype: str = "float32") -> Training:
    """A few whole batches, so that nothing compiles twice: eight steps, or as many as make SHORT samples."""
    return Training(model, batch, max(8 * batch, min(SHORT, 256 * batch)), 1, dtype)


def forms(device: str, gpu_here: bool, words: Iterable[str] = CPU_FORMS) -> list[dict[str, Any]]:
    """The switches of a device's forms. GPU: the form that Keras chooses. CPU: the named forms that are possible."""
    if device != "cpu":
        return [{}]
    return [CPU_FORMS[word] for word in words if word != "visible" or gpu_here]


def article(name: str, device: str) -> Row:
    """An article's training at its own batch, samples and type; of its epochs the first few, which the others are like."""
    own = networks.find(name)
    return row(Training(name, own.batch, own.samples, LEAST_EPOCHS, "float64"), device)


def seeds(on: list[str]) -> list[Row]:
    """The articles' trainings; S4's are in `peaks`. Then S0 and S1b with the CPU in its three forms, on few samples: of a form
    that few would choose, only the step matters."""
    gpu = any(device != "cpu" for device in on)
    pairs = itertools.product(("cifar10-cnn", "fashion-mlp"), on)
    shorts = [row(short(name, 32), d, **form) for name, d in pairs for form in forms(d, gpu)]
    return [article(name, device) for name in ARTICLES for device in on] + shorts


def peaks(on: list[str]) -> list[Row]:
    """S4 both ways. The article's: bare steps, all 2000 of them, on resident data, at every size that it mentions. At the
    smallest and largest size also fed each step, and with the article's float64 targets: these shift a whole line. Keras's:
    epochs of one step, which cost the same each; so few of them."""
    found, gpu = [], any(device != "cpu" for device in on)
    steps, loops = networks.find("peaks").epochs, [name for name in LOOPS if "/jax/" not in name or available("jax")]
    resident: dict[str, Any] = {"residence": "resident"}
    for device, samples in itertools.product(on, (100, 200, 1000, 10_000, 40_000)):
        whole, ends = Training("peaks", samples, samples, steps), samples in (100, 40_000)
        ways = [resident, *([{"residence": "fed"}, {**resident, "targets": "float64"}] if ends else [])]
        found += [row(whole, device, kernel, **way) for kernel in loops for way in ways]
        if ends:
            found.append(row(Training("peaks", samples, samples, FULL_BATCH_EPOCHS), device))
        if device == "cpu" and samples == 40_000:  # compiled by XLA, and with the GPU in sight: the traps
            found += [
                row(whole, device, LOOPS[0], **resident, **form) for form in forms("cpu", gpu, ("jit", "visible"))
            ]
    return found


def small_dataset(on: list[str]) -> list[Row]:
    """The small-dataset finding: the same model on 100 samples and more, up to all of its data set, in the articles' batch and
    type."""
    found = []
    for name, device in itertools.product(("cifar10-cnn", "fashion-mlp"), on):
        fewer = (Training(name, 32, samples, dtype="float64") for samples in (100, 1000, 10_000))
        found += [*(row(training, device) for training in fewer), article(name, device)]
    return found


def residence(on: list[str]) -> list[Row]:
    """S3a: where the samples live, on a net of two convolutions: all of its 314 MB of samples (50,000 in float64) at the larger
    batch, a quarter at the smaller one, whose steps are eight times as many. A generator and a prefetch at the larger one alone.
    On the CPU there is nowhere to copy to: Keras's own way."""
    found = []
    for device in on:
        for batch, samples in ((8, 12_500), (64, 50_000)):
            training = Training("mnist-cnn", batch, samples, LEAST_EPOCHS, "float64")
            ways = ["tf.data", "prefetch", "generator"] if batch == 64 else ["tf.data"]
            gpu = [] if device == "cpu" else [*((FIT, way) for way in ways), (RESIDENT, "resident")]
            found += [row(training, device, kernel, residence=way) for kernel, way in [(FIT, "numpy"), *gpu]]
    return found


def one_switch(on: list[str]) -> list[Row]:
    """One switch at a time beside the row that has none, which stands first; on the articles' first CNN."""
    of_device: dict[bool, list[dict[str, Any]]] = {
        True: [{"jit_compile": "on"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}, {"threads": 4}],
        False: [{"jit_compile": "off"}, {"tf32": "off"}, {"precision": "mixed_bfloat16"}],
    }
    found = []
    for device in on:
        every = [{}, {"steps_per_execution": "16"}, *of_device[device == "cpu"]]
        found += [row(short("cifar10-cnn", 32), device, **given) for given in every]
        found += [row(short("cifar10-cnn", 32, dtype), device) for dtype in ("float64", "uint8")]
    return found


def _shorts(**batches: Iterable[int]) -> list[Training]:
    return [short(name.replace("_", "-"), batch) for name, every in batches.items() for batch in every]


# Trainings that every device runs as they are, most of them short, as their step alone is asked about; or what makes the rows.
STUDIES: dict[str, list[Training] | Callable[[list[str]], list[Row]]] = {
    "seeds": seeds,
    "peaks": peaks,
    # From which batch a step is quicker on the GPU; the largest only where a CPU does a step of it in well under a second.
    "batches": _shorts(
        cifar10_cnn=(1, 8, 32, 256, 2048),
        cifar10_mlp=(1, 32, 256),
        mnist_cnn=(1, 32),
        fashion_mlp=(1, 8, 32, 256, 2048, 8192),
    ),
    "small-dataset": small_dataset,
    # From which width of two hidden layers the GPU is quicker: the complaint that 100 units are slower and 1000 faster.
    "width": [short(f"mlp-784-{units}x2-10", 128) for units in (32, 128, 512, 2048, 8192)],
    # The same for the number of hidden layers, S1b's own parameter.
    "depth": [short(f"fashion-mlp-{layers}", 32) for layers in (1, 5, 30)],
    # Whether a job grows with its epochs as the law of its costs says: many, on few samples, where epochs weigh most.
    "epochs": [Training("fashion-mlp", 32, 1024, 30)],
    "residence": residence,
    "switches": one_switch,
    # Keras on its other backends, where they are installed.
    "backends": lambda on: [
        row(short("cifar10-cnn", 32), device, keras_backend=library)
        for library in filter(available, ("jax", "torch"))
        for device in on
    ],
    # What a process pays before its first step, and how far five processes lie apart. One model: importing and starting a
    # device know nothing of it, and a process takes 20 s.
    "starts": lambda on: [row(Training("cifar10-cnn", 32, 1024), device, process="fresh") for device in on],
    # Those of the real complaints, in their batch: `python -m analysis.explain --case` says whether the finding comes back.
    "complaints": [short(r.training.model, r.training.batch) for c in published_cases.COMPLAINTS for r in c.reported],
    # Networks that no article and no complaint has: they say how far predictions are off.
    "held-out": [
        *_shorts(lenet=(32, 512), vgg_small=(32, 256), resnet_small=(32, 128)),
        short("mlp-784-50x1-10", 32),
        short("mlp-784-4000x2-10", 128),
    ],
    # How far processes lie apart, for `--rigorous`: what a prediction of a step is off by counts only beyond twice that.
    "repeats": [Training(name, 32, 16 * 32) for name in REPEATED],
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
    names, found = list(names), []
    for name in (name for name in STUDIES if name in names or "all" in names):
        made = STUDIES[name]
        found += made(on) if callable(made) else [row(training, device) for device in on for training in made]
    return distinct(found)
