"""What a training takes on each device, measured where a row tells it, else predicted; from where the winner changes."""

import msgspec

from analysis.stats import Estimate, faster
from analysis.training import costs
from analysis.training.costs import TrainingCost, whole_training
from kernels.problems import Training


class Side(msgspec.Struct, frozen=True):
    """A training on a device and what it costs, its validation in the epochs. `unknown`: what no row tells of it."""

    device: str
    training: Training
    cost: TrainingCost
    unknown: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "CPU" if self.device == "cpu" else "GPU"

    @property
    def whole(self) -> Estimate:
        """Seconds of the whole training in a process of its own."""
        return self.of(self.training.samples, self.training.epochs)

    @property
    def parts(self) -> dict[str, Estimate]:
        """Seconds of the whole training by what they go to; they add up."""
        return costs.parts(self.cost, self.training.epochs, self.training.steps)

    def of(self, samples: int, epochs: int) -> Estimate:
        """Seconds of the whole training of other samples and epochs."""
        return whole_training(self.cost, epochs, -(-samples // self.training.batch))


class Turn(msgspec.Struct, frozen=True):
    """From so many samples or epochs on, `to` (cpu or gpu) finishes first; 0: from the first on."""

    at: float
    to: str


def likelier(cpu: Side, gpu: Side) -> str:
    """cpu or gpu: the one that finishes first by the values."""
    return "gpu" if gpu.whole.value < cpu.whole.value else "cpu"


def winner(cpu: Side, gpu: Side) -> str:
    """cpu, gpu, or neither where the intervals overlap."""
    return faster(cpu.whole, gpu.whole)


def epochs_turn(cpu: Side, gpu: Side) -> Turn:
    """From how many epochs on another device finishes first."""
    samples = cpu.training.samples
    begun = gpu.of(samples, 0).value - cpu.of(samples, 0).value
    return _turn(begun, gpu.of(samples, 1).value - cpu.of(samples, 1).value - begun)


def samples_turn(cpu: Side, gpu: Side) -> Turn:
    """From how many samples on another device finishes first, with as many epochs."""
    epochs, batch = cpu.training.epochs, cpu.training.batch
    few, many = (gpu.of(n, epochs).value - cpu.of(n, epochs).value for n in (batch, 1001 * batch))
    slope = (many - few) / (1000 * batch)
    return _turn(few - slope * batch, slope)


def _turn(behind: float, slope: float) -> Turn:
    """Where `behind + slope n`, the GPU's seconds less the CPU's, passes 0."""
    to, ahead = "gpu" if slope < 0 else "cpu", "gpu" if behind <= 0 else "cpu"
    return Turn(0.0, ahead) if ahead == to or slope == 0 else Turn(-behind / slope, to)
