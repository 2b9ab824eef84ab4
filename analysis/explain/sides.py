"""The cost of a training on each device, measured or else predicted, and the counts from which the winner changes."""

from math import inf

import msgspec

from analysis import labels
from analysis.stats import Estimate
from analysis.training import costs
from analysis.training.costs import TrainingCost, whole_training
from kernels.problems import Training


class Side(msgspec.Struct, frozen=True):
    """A training on a device and its cost, with validation in the epochs. `unknown`: parts that no row measured. `ran`: whether
    a row ran as many samples and epochs; else its time is put together from parts."""

    device: str
    training: Training
    cost: TrainingCost
    unknown: tuple[str, ...] = ()
    ran: bool = False

    @property
    def name(self) -> str:
        return labels.device(self.device)

    @property
    def whole(self) -> Estimate:
        """Seconds of the whole training in a process of its own."""
        return whole_training(self.cost, self.training.epochs, self.training.steps)

    @property
    def parts(self) -> dict[str, Estimate]:
        """Part -> seconds of the whole training; they add up."""
        return costs.parts(self.cost, self.training.epochs, self.training.steps)

    @property
    def largest(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name].value)


def turns(cpu: Side, gpu: Side) -> tuple[str, dict[str, float]]:
    """(the device that finishes first if there are enough epochs, {samples, epochs: the count from which it does}). Left out
    are unknown counts, those of at most 1, and samples if all of them are one batch."""
    t, both = cpu.training, (cpu.cost, gpu.cost)
    after = costs.break_even(*both, t.steps)
    to, both = ("gpu", both) if after and after.value < inf else ("cpu", both[::-1])
    found = {"samples": costs.break_even(*both, epochs=t.epochs), "epochs": costs.break_even(*both, t.steps)}
    each = {"samples": t.batch if t.batch < t.samples else 0, "epochs": 1}
    counts = {what: e.value * each[what] for what, e in found.items() if e and e.value < inf}
    return to, {what: at for what, at in counts.items() if at > 1}
