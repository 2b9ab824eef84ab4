"""The articles that this project re-runs, as data: their systems, settings, claims and what they published, in few words.

Ground floor: analysis.published sets them beside what was measured here. S3's systems have no published rate of their own
here; what was asked in them is answered by the residence and batch studies.
"""

import msgspec

from analysis.estimate import Estimate


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
    Case("S0", "cifar10-cnn", "CIFAR-10 CNN on a 2018 Colab CPU and a K80", "float64", 32, 50_000, 10,
         (Claim(50_000, "gpu", "about 9x", 9.0),),
         (Published("cpu", Estimate(220.0, 217.0, 226.0), Estimate(4.5e-3, 4e-3, 5e-3), 36 * 60 + 31.0),
          Published("gpu", Estimate(24.0, 24.0, 27.0), _exactly(485e-6), 4 * 60 + 6.0))),
    Case("S1a", "cifar10-mlp", "CIFAR-10 multilayer perceptron", "float64", 32, 50_000, 10,
         (Claim(50_000, "gpu", "14 to 2", 7.0),), unknown="which CPU and GPU it was, and the seconds of either"),
    Case("S1b", "fashion-mlp", "Fashion-MNIST multilayer perceptron", "float64", 32, 60_000, 5,
         (Claim(60_000, "gpu", "the GPU wins, by less"),),
         unknown="the figure that shows by how much the GPU won"),
    Case("S2", "mnist-cnn", "MNIST CNN on a Tesla T4", "float64", 32, 60_000, 5,
         (Claim(60_000, "gpu", "'GPU is much faster'"),),
         blames="FLOPS: 300 against 20 TFLOPS, 15x", unknown="its layers and its seconds"),
    Case("S4", "peaks", "Peaks regression in Flux.jl", "float32", 40_000, 40_000, 2000,
         (Claim(40_000, "gpu", "200x", 200.0), Claim(100, "cpu", "the CPU faster"), Claim(200, "cpu", "the CPU faster"),
          Claim(1000, "neither", "no difference", 1.0)),
         loop=True, blames="frequent transfer of data to and from the GPU", unknown="the seconds of either device"),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}
