"""The articles that this project re-runs, and real complaints, as data: systems, settings, claims, what was published or said.

analysis.text.published sets the articles beside what was measured here, analysis.text.cases answers the complaints.
S3's systems have no published rate of their own here; what was asked in them is answered by the residence and batch studies.
"""

import msgspec

from analysis.stats import Estimate
from kernels.problems import Training


class Published(msgspec.Struct, frozen=True):
    """What an article gives of one device: seconds of an epoch and of a sample, low to high where it gives several; seconds of
    the whole training. None: the article does not say."""

    device: str
    epoch_s: Estimate | None = None
    sample_s: Estimate | None = None
    total_s: float | None = None


class Claim(msgspec.Struct, frozen=True):
    """One claim: at so many `samples` the `faster` device is cpu, gpu or neither; the GPU `gain` times as fast as the CPU where
    the article gives a number. `words` are the article's, shortened."""

    samples: int
    faster: str
    words: str
    gain: float | None = None


class Case(msgspec.Struct, frozen=True):
    """A system of the articles. `loop`: trained by bare steps, not by Keras's fit. `blames`: what the article holds for the
    cause. `unknown`: what it leaves out that a comparison would need."""

    name: str
    model: str
    title: str
    dtype: str
    batch: int
    samples: int
    epochs: int
    claims: tuple[Claim, ...] = ()
    published: tuple[Published, ...] = ()
    loop: bool = False
    blames: str = ""
    unknown: str = ""

    def of(self, device: str) -> Published | None:
        """What it published of `cpu` or `gpu`."""
        return next((p for p in self.published if p.device == device), None)


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value)


_LARGER = "at 100 to 1000 samples no difference"
CASES = (
    Case(
        "S0",
        "cifar10-cnn",
        "CIFAR-10 CNN on a 2018 Colab CPU and a K80",
        "float64",
        32,
        50_000,
        10,
        (Claim(50_000, "gpu", "about 9x", 9.0),),
        (
            Published("cpu", Estimate(220.0, 217.0, 226.0), Estimate(4.5e-3, 4e-3, 5e-3), 36 * 60 + 31.0),
            Published("gpu", Estimate(24.0, 24.0, 27.0), _exactly(485e-6), 4 * 60 + 6.0),
        ),
    ),
    Case(
        "S1a",
        "cifar10-mlp",
        "CIFAR-10 multilayer perceptron",
        "float64",
        32,
        50_000,
        10,
        (Claim(50_000, "gpu", "14 to 2", 7.0),),
        unknown="which CPU and GPU it was, and the seconds of either",
    ),
    Case(
        "S1b",
        "fashion-mlp",
        "Fashion-MNIST multilayer perceptron",
        "float64",
        32,
        60_000,
        5,
        (Claim(60_000, "gpu", "the GPU wins, by less"),),
        unknown="the figure that shows by how much the GPU won",
    ),
    Case(
        "S2",
        "mnist-cnn",
        "MNIST CNN on a Tesla T4",
        "float64",
        32,
        60_000,
        5,
        (Claim(60_000, "gpu", "'GPU is much faster'"),),
        blames="FLOPS: 300 against 20 TFLOPS, 15x",
        unknown="its layers and its seconds",
    ),
    Case(
        "S4",
        "peaks",
        "Peaks regression in Flux.jl",
        "float32",
        40_000,
        40_000,
        2000,
        (
            Claim(40_000, "gpu", "200x", 200.0),
            Claim(100, "cpu", "the CPU faster"),
            Claim(200, "cpu", "the CPU faster"),
            Claim(1000, "neither", "no difference", 1.0),
        ),
        loop=True,
        blames="frequent transfer of data to and from the GPU",
        unknown="the seconds of either device",
    ),
)
BY_NAME = {case.name: case for case in CASES}


class Reported(msgspec.Struct, frozen=True):
    """What a reporter saw of one training: the `faster` device, cpu, gpu or neither, in the reporter's `words`."""

    training: Training
    faster: str
    words: str


class Complaint(msgspec.Struct, frozen=True):
    """A real complaint. `said`: the reporter's words, shortened; `blames` what they hold for the cause. `reported`: the
    trainings that come closest to theirs in Keras, the one that is explained first; none where the complaint is about no
    training. `varies`: the size whose flip answers them (batch or width), over `sizes`. `apart`: what is otherwise here.
    `numbers`: theirs, the unit in the name."""

    name: str
    title: str
    said: str
    reported: tuple[Reported, ...] = ()
    varies: str = ""
    sizes: tuple[int, ...] = ()
    blames: str = ""
    apart: str = ""
    numbers: dict[str, float] = {}


_WIDTHS = (16, 32, 50, 100, 200, 500, 1000, 2000, 4000, 8000)
_BATCHES = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048)
COMPLAINTS = (
    Complaint(
        "so-42097115",
        "Keras MLP on MNIST: faster on the GPU when wide, slower when narrow",
        "1000 hidden units take 103.7 s on the CPU (i7-6700K) and 29.5 s on the GPU; 100 units about 15 s and 20 s",
        (
            Reported(Training("mlp-784-100x2-10", 128, 60_000, 10), "cpu", "about 15 s against 20 s"),
            Reported(Training("mlp-784-1000x2-10", 128, 60_000, 10), "gpu", "29.5 s against 103.7 s"),
        ),
        "width",
        _WIDTHS,
        apart="two hidden layers, and Adam's arithmetic for Nadam's: the same arrays",
    ),
    Complaint(
        "keras-249",
        "MNIST example 2x slower on the GPU",
        "the MNIST example is 2x slower on the GPU; from batch 64 to 128 it became 2x faster",
        (Reported(Training("mnist-cnn", 64, 60_000, 12), "cpu", "2x slower on the GPU"),),
        "batch",
        _BATCHES,
        blames="copying each batch",
        apart="Theano on a Tesla K10 there, Keras on TensorFlow here",
    ),
    Complaint(
        "tensorflow-5995",
        "GPU much slower than CPU",
        "a network of 7-32-32-2 at batch 16 is much slower on the GPU (GTX 660): 2 to 5 % busy, PCIe at 1 %",
        (Reported(Training("mlp-7-32x2-2", 16, 2048, 100), "cpu", "GPU MUCH slower than CPU"),),
        "batch",
        (1, 4, 16, 64, 256, 1024, 4096, 16384),
        apart="2,048 samples, as theirs are not given",
    ),
    Complaint(
        "mxnet-2898",
        "one machine: MNIST 2x faster on the CPU, CIFAR-10 196x faster on the GPU",
        "on the same machine MNIST is 2x faster on the CPU and CIFAR-10 196x faster on the GPU",
        (
            Reported(Training("mlp-784-128x2-10", 128, 60_000, 10), "cpu", "MNIST 2x faster on the CPU"),
            Reported(Training("cifar10-cnn", 128, 50_000, 10), "gpu", "CIFAR-10 196x faster on the GPU"),
        ),
        "batch",
        _BATCHES,
        apart="layers of 128 and 128 for MXNet's 128 and 64, S0's CNN for its Inception-like one",
    ),
    Complaint(
        "indepth-mnist",
        "the CPU beats the GPU, and a faster GPU is no better",
        "784-128-10 at batch 32: 3.5 ms a step on an RTX 5000, 2.3 ms on an i9; without the overhead "
        "0.14 s an epoch, not 6.5 s",
        (Reported(Training("mlp-784-128x1-10", 32, 60_000, 5), "cpu", "2.3 ms against 3.5 ms a step"),),
        "batch",
        _BATCHES,
        blames="overhead of each step",
    ),
    Complaint(
        "tensorflow-44836",
        "136 of 205 ms a step is the copy to the GPU",
        "a dense network on large batches from from_tensor_slices: 136 of the 205 ms of a step are the copy to the GPU",
        blames="copying each batch",
        apart="copies alone are looked at: no network is given",
        numbers={"step_s": 0.205, "copy_s": 0.136},
    ),
    Complaint(
        "cupy-2902",
        "converting CuPy to NumPy is very slow",
        "100 element-wise passes over 60 million elements take 0.021 s, asnumpy of the result 6.17 s",
        blames="the copy to the host",
        apart="float32 elements, as their type is not given",
        numbers={"elements": 60e6, "passes": 100, "passes_s": 0.021, "copy_s": 6.17},
    ),
    Complaint(
        "cntk-751",
        "a network too small to gain: try 500 units instead of 50",
        "one hidden layer of 50 is no faster on the GPU; the advice was 500 units",
        (
            Reported(Training("mlp-784-50x1-10", 64, 60_000, 5), "neither", "too small to gain"),
            Reported(Training("mlp-784-500x1-10", 64, 60_000, 5), "gpu", "try 500 units"),
        ),
        "width",
        _WIDTHS,
        apart="MNIST's inputs and classes, as theirs are not given",
    ),
)
COMPLAINTS_BY_NAME = {complaint.name: complaint for complaint in COMPLAINTS}


class Question(msgspec.Struct, frozen=True):
    """An article's question that is no training of its own: which `training` shows the answer, and which of
    analysis.text.published's checks belong to it."""

    name: str
    title: str
    training: Training
    beliefs: tuple[str, ...]


QUESTIONS = (
    Question(
        "S3a",
        "Batch size and where the data live: small CNNs, 50,000 samples of 316 MB",
        Training("mnist-cnn", 8, 50_000, 3, "float64"),
        ("copy", "batch"),
    ),
    Question("S3b", "Inference without batching: CPU and GPU alike?", Training("inception-v3", 1, 222), ("inference",)),
    Question(
        "S3c", "More GPUs do not speed up TensorFlow by themselves", Training("cifar10-cnn", 32, 50_000, 10), ("batch",)
    ),
    Question(
        "S3d", "A teacher on the CPU while the student trains on the GPU", Training("cifar10-cnn", 32, 50_000, 10), ()
    ),
    Question("S3e", "Counting lanes: 28 to 56 times faster", Training("cifar10-cnn", 32, 50_000, 10), ("flops",)),
)
QUESTIONS_BY_NAME = {question.name: question for question in QUESTIONS}
