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

FIT = "training/keras/fit"
RESIDENT = "training/keras/resident"
TENSORFLOW_LOOP = "training/tensorflow/loop"
JAX_LOOP = "training/jax/keras_loop"
LOOPS = (TENSORFLOW_LOOP, JAX_LOOP)
# A CPU row in three forms: switches that make it one. `visible` is the articles' way, on a machine with a GPU.
CPU_FORMS: dict[str, dict[str, str]] = {"hidden": {}, "jit": {"jit_compile": "on"}, "visible": {"gpu": "visible"}}
ARTICLES = ("cifar10-cnn", "cifar10-mlp", "fashion-mlp", "mnist-cnn")  # S0, S1a, S1b, S2; S4 is peaks
REPEATED = (*ARTICLES, "lenet", "mlp-784-500x2-10")  # a step of each is short on either device
FULL_BATCH_EPOCHS = 100  # of a model trained in one batch; the cost of the article's 2000 follows from these
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
    **options,
) -> Row:
    """The row of one training on made-up data. options: further options of the row, by name.

    threads: of the CPU; None for the library's choice. process: `warm` for a worker that many rows share, `fresh` for its own.
    """
    switches = settings.without_defaults({"data": "synthetic", **options})
    return Row(kernel, training, Settings(device, threads=threads, process=process, switches=switches))


def short(model: str, batch: int, dtype: str = "float32") -> Training:
    """A training of one epoch of whole batches, long enough to time a step: of eight steps, or where batches are small of SHORT
    samples, in at most 256 steps. A smaller last batch would be compiled separately."""
    samples = max(8 * batch, min(SHORT, 256 * batch))
    return Training(model=model, batch=batch, samples=samples, epochs=1, dtype=dtype)


def forms(device: str, gpu_here: bool, words: Iterable[str] = CPU_FORMS) -> list[dict[str, Any]]:
    """The options of each form in which a training runs on a device.

    A GPU has one form, without options. The CPU has the forms that `words` names: `hidden` (the usual one), `jit` (compiled by
    XLA) and, where gpu_here, `visible` (in a process that sees a GPU).
    """
    if device != "cpu":
        return [{}]
    return [CPU_FORMS[word] for word in words if word != "visible" or gpu_here]


def article(name: str, device: str) -> Row:
    """The row of an article's training with its batch and samples, as float64. Of its epochs only LEAST_EPOCHS are run: the
    others take as long. name: of its network."""
    network = networks.find(name)
    return row(_float64_training(name, network.batch, network.samples), device)


def _float64_training(model: str, batch: int, samples: int) -> Training:
    """A training of LEAST_EPOCHS epochs on samples that are float64, as those of the articles are."""
    return Training(model=model, batch=batch, samples=samples, epochs=LEAST_EPOCHS, dtype="float64")


# ---------------------------------------------------------------- studies whose rows depend on the device


def seeds(devices: list[str]) -> list[Row]:
    """The rows of the articles' trainings on these devices, but for the article on small regressions, which `peaks` has.

    Then two of their networks on few samples in all forms of a device (CPU_FORMS): of a form that few people would choose, only
    the time of a step matters.
    """
    has_gpu = any(device != "cpu" for device in devices)
    rows = []
    for name in ARTICLES:
        rows += [article(name, device) for device in devices]
    for name, device in itertools.product(("cifar10-cnn", "fashion-mlp"), devices):
        rows += [row(short(name, 32), device, **form) for form in forms(device, has_gpu)]
    return rows


def peaks(devices: list[str]) -> list[Row]:
    """The rows of the article on small regressions (S4), a network that learns the function `peaks`.

    By bare loops as in the article: all of its 2000 steps, with the samples on the device, for each number of samples that it
    has. For the smallest and largest number also with samples that are copied in each step, and with the article's float64
    targets. By Keras's fit: epochs of one step, which all take the same time, so few of them.
    """
    has_gpu = any(device != "cpu" for device in devices)
    loops = [TENSORFLOW_LOOP]
    if available("jax"):
        loops.append(JAX_LOOP)
    rows = []
    for device, samples in itertools.product(devices, (100, 200, 1000, 10_000, 40_000)):
        training = Training(model="peaks", batch=samples, samples=samples, epochs=networks.find("peaks").epochs)
        is_smallest_or_largest = samples in (100, 40_000)
        for kernel in loops:
            rows.append(row(training, device, kernel, residence="resident"))
            if is_smallest_or_largest:
                rows.append(row(training, device, kernel, residence="fed"))
                rows.append(row(training, device, kernel, residence="resident", targets="float64"))
        if is_smallest_or_largest:
            in_epochs = Training(model="peaks", batch=samples, samples=samples, epochs=FULL_BATCH_EPOCHS)
            rows.append(row(in_epochs, device))
        if device == "cpu" and samples == 40_000:
            # Compiled by XLA, and beside a visible GPU: both change the time of a step.
            for form in forms("cpu", has_gpu, ("jit", "visible")):
                rows.append(row(training, device, TENSORFLOW_LOOP, residence="resident", **form))
    return rows


def small_dataset(devices: list[str]) -> list[Row]:
    """The rows that show how the faster device depends on the number of samples: two models on 100 samples and more, up to all of
    their data set, in the articles' batch and as float64."""
    rows = []
    for name, device in itertools.product(("cifar10-cnn", "fashion-mlp"), devices):
        for samples in (100, 1000, 10_000):
            training = Training(model=name, batch=32, samples=samples, dtype="float64")
            rows.append(row(training, device))
        rows.append(article(name, device))
    return rows


def residence(devices: list[str]) -> list[Row]:
    """The rows that compare where the samples of a training are (S3a), on a network of two convolutions.

    In batches of 64 all 50,000 samples are taken, 314 MB as float64; in batches of 8, whose steps are eight times as many, a
    quarter of them. Prefetching and a generator are tried with the larger batch alone. On the CPU nothing is copied to a device:
    there the samples are NumPy arrays, Keras's usual way.
    """
    rows = []
    for device in devices:
        for batch, samples in ((8, 12_500), (64, 50_000)):
            training = _float64_training("mnist-cnn", batch, samples)
            rows.append(row(training, device, residence="numpy"))
            if device == "cpu":
                continue
            rows.append(row(training, device, residence="tf.data"))
            if batch == 64:
                rows.append(row(training, device, residence="prefetch"))
                rows.append(row(training, device, residence="generator"))
            rows.append(row(training, device, RESIDENT, residence="resident"))
    return rows


def one_switch(devices: list[str]) -> list[Row]:
    """The rows of the articles' first CNN with one option at a time away from its default, after a row with none; then with
    samples of other types than float32."""
    cpu_options: list[dict[str, Any]] = [{"jit_compile": "on"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}, {"threads": 4}]
    gpu_options: list[dict[str, Any]] = [{"jit_compile": "off"}, {"tf32": "off"}, {"precision": "mixed_bfloat16"}]
    rows = []
    for device in devices:
        device_options = cpu_options if device == "cpu" else gpu_options
        for options in ({}, {"steps_per_execution": "16"}, *device_options):
            rows.append(row(short("cifar10-cnn", 32), device, **options))
        for dtype in ("float64", "uint8"):
            rows.append(row(short("cifar10-cnn", 32, dtype), device))
    return rows


def backends(devices: list[str]) -> list[Row]:
    """The rows of a short training with Keras on JAX and on PyTorch, as far as these are installed."""
    rows = []
    for library in filter(available, ("jax", "torch")):
        rows += [row(short("cifar10-cnn", 32), device, keras_backend=library) for device in devices]
    return rows


def starts(devices: list[str]) -> list[Row]:
    """The rows that time what comes before a first step (import, device start, build, compilation), in several fresh processes
    each.

    One model is enough, as importing and starting a device do not depend on it and a process takes 20 s.
    """
    training = Training(model="cifar10-cnn", batch=32, samples=1024)
    return [row(training, device, process="fresh") for device in devices]


# ---------------------------------------------------------------- all studies


def _shorts(**batches: Iterable[int]) -> list[Training]:
    """Short trainings: batches has the name of a network, with `_` for `-`, and the batches to train it in."""
    trainings = []
    for name, sizes in batches.items():
        model = "-".join(name.split("_"))
        trainings += [short(model, batch) for batch in sizes]
    return trainings


def _complaints() -> list[Training]:
    """Short trainings of the models that people have complained about, in the batch of each complaint."""
    trainings = []
    for complaint in published_cases.COMPLAINTS:
        for reported in complaint.reported:
            trainings.append(short(reported.training.model, reported.training.batch))
    return trainings


_WIDTHS = [short(f"mlp-784-{units}x2-10", 128) for units in (32, 128, 512, 2048, 8192)]
_DEPTHS = [short(f"fashion-mlp-{layers}", 32) for layers in (1, 5, 30)]
_REPEATS = [Training(name, batch=32, samples=16 * 32) for name in REPEATED]
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
    "width": _WIDTHS,
    # The same for the number of hidden layers, S1b's parameter.
    "depth": _DEPTHS,
    # Whether a job grows with its epochs as the law of its costs says: many, on few samples, where epochs weigh most.
    "epochs": [Training("fashion-mlp", batch=32, samples=1024, epochs=30)],
    "residence": residence,
    "switches": one_switch,
    "backends": backends,
    "starts": starts,
    # `python -m analysis.explain --case` says whether the finding of each complaint comes back.
    "complaints": _complaints(),
    # Networks that no article and no complaint has: they say how far predictions are off.
    "held-out": [
        *_shorts(lenet=(32, 512), vgg_small=(32, 256), resnet_small=(32, 128)),
        short("mlp-784-50x1-10", 32),
        short("mlp-784-4000x2-10", 128),
    ],
    # How much processes differ, for `--rigorous`: what a prediction of a step is off by counts only beyond twice that.
    "repeats": _REPEATS,
}
EXPERIMENTS = ("together", "trials", "teacher")  # of workloads.frameworks.side_by_side, each in a file of its own
DATA_PARALLEL = "data-parallel"  # its rows know the GPUs that are here
NAMES = (*STUDIES, *EXPERIMENTS, DATA_PARALLEL)


def experiments(names: Iterable[str]) -> list[str]:
    """Those of the named studies whose rows run at the same time or one after another in one process, which `side_by_side`
    measures. `all` names every study."""
    names = list(names)
    return [name for name in EXPERIMENTS if name in names or "all" in names]


def rows(names: Iterable[str], devices: list[str]) -> list[Row]:
    """The rows of the named studies on these devices, each row once. `all` names every study.

    The studies of EXPERIMENTS and of several GPUs have no rows here.
    """
    names = list(names)
    study_rows: list[Row] = []
    for name, study in STUDIES.items():
        if name not in names and "all" not in names:
            continue
        if callable(study):
            study_rows += study(devices)
            continue
        for device in devices:
            study_rows += [row(training, device) for training in study]
    return distinct(study_rows)
