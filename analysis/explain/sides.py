"""What a training takes on each device, measured where a row tells it, else predicted; from where the winner changes."""

import msgspec

from analysis import labels
from analysis.stats import Estimate
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
        return labels.device(self.device)

    @property
    def whole(self) -> Estimate:
        """Seconds of the whole training in a process of its own."""
        return self.of(self.training.samples, self.training.epochs)

    @property
    def parts(self) -> dict[str, Estimate]:
        """Seconds of the whole training by what they go to; they add up."""
        return costs.parts(self.cost, self.training.epochs, self.training.steps)

    @property
    def largest(self) -> str:
        """The part that takes most."""
        return max(self.parts, key=lambda name: self.parts[name].value)

    def of(self, samples: int, epochs: int) -> Estimate:
        """Seconds of the whole training of other samples and epochs."""
        return whole_training(self.cost, epochs, -(-samples // self.training.batch))


def turns(cpu: Side, gpu: Side) -> tuple[str, dict[str, float]]:
    """(the device that finishes first if there are enough epochs, {samples, epochs: the count from which it does}). A count of
    at most 1 is left out."""

    def behind(samples: int, epochs: int) -> float:
        return gpu.of(samples, epochs).value - cpu.of(samples, epochs).value

    t = cpu.training
    begun, few, many = behind(t.samples, 0), behind(t.batch, t.epochs), behind(1001 * t.batch, t.epochs)
    to, epochs = _turn(begun, behind(t.samples, 1) - begun)
    slope = (many - few) / (1000 * t.batch)
    alike, samples = _turn(few - slope * t.batch, slope) if t.batch < t.samples else (to, 0.0)
    found = {"samples": samples * (alike == to), "epochs": epochs}
    return to, {what: at for what, at in found.items() if at > 1}


def _turn(behind: float, slope: float) -> tuple[str, float]:
    """(who is ahead in the end, where `behind + slope n`, the GPU's seconds less the CPU's, passes 0; 0 where it does not)."""
    to, ahead = "gpu" if slope < 0 else "cpu", "gpu" if behind <= 0 else "cpu"
    return (ahead, 0.0) if ahead == to or slope == 0 else (to, -behind / slope)
