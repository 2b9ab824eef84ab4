"""Records of a crossover: both sides at each size, the sizes at which the winner changes, and the answer."""

import msgspec

from analysis.crossover.families import SQUARES, Family
from analysis.crossover.fastest_row import FastestRow
from analysis.crossover.forms import Form
from analysis.stats import Estimate

#: Ratio of two sizes around a crossing up to which no size between them is measured.
FINE = 1.05
#: Ratio of neighboring sizes beyond which the crossing between them is not interpolated.
WIDE = 10.0


class CrossoverPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest times of CPU and GPU for one size."""

    #: The size that varies, such as the side of square matrices or the batch.
    n: int
    #: The fastest row on the CPU.
    cpu: FastestRow
    #: The fastest row on the GPU.
    gpu: FastestRow

    @property
    def ratio(self) -> Estimate:
        """t_cpu / t_gpu."""
        return self.cpu.seconds / self.gpu.seconds

    @property
    def sign(self) -> int:
        """1: the GPU wins, -1: the CPU wins, 0: the interval of the ratio holds 1, so nobody can tell."""
        if self.ratio.low > 1:
            return 1
        if self.ratio.high < 1:
            return -1
        return 0


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """A size at which the winner changes."""

    #: That size, interpolated between the medians, so that noisier rows do not move it. The interval covers the neighboring
    #: sizes where the winner cannot be told.
    at: Estimate
    #: Measured size below.
    below: int
    #: Measured size above.
    above: int
    #: The winner from there: gpu or cpu.
    to: str
    #: Largest ratio of two neighboring measured sizes between below and above.
    widest_gap: float = 1.0

    @property
    def fine(self) -> bool:
        """Whether no size between its measured ones is needed."""
        return self.above / self.below <= FINE

    @property
    def wide(self) -> bool:
        """Whether its measured sizes lie too far from each other to interpolate between them."""
        return self.widest_gap > WIDE


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Where the GPU starts to win, for problems that differ in one size, in one precision and form of call."""

    #: The arithmetic of the GPU side.
    precision: str
    #: What a call contains.
    form: Form
    #: gpu-from (the GPU wins from the one crossing on), gpu-at-smallest (and everywhere else), cpu-throughout, several
    #: (crossings), cant-tell, no-gpu (no time on a GPU), no-cpu.
    kind: str
    #: The smallest measured size.
    low_n: int
    #: The largest measured size.
    high_n: int
    #: Both sides at each size with both times, smallest first.
    points: tuple[CrossoverPoint, ...] = ()
    #: Every change of the winner, smallest size first.
    crossings: tuple[Crossing, ...] = ()
    #: (first, last) size of each run of sizes whose winner cannot be told.
    bands: tuple[tuple[int, int], ...] = ()
    #: Sizes that were tried without a time, and why, in words.
    gaps: tuple[str, ...] = ()
    #: All sizes at which the GPU was tried in this form.
    tried: tuple[int, ...] = ()
    #: The size that varies and the fields that do not.
    family: Family = SQUARES

    @property
    def predicted(self) -> bool:
        """Whether its seconds are predicted."""
        return any(point.gpu.kernel == "predicted" for point in self.points)

    @property
    def first_and_last(self) -> tuple[CrossoverPoint, ...]:
        """The points of the smallest and the largest size; one where they are the same."""
        if len(self.points) == 1:
            return self.points
        return (self.points[0], self.points[-1])

    @property
    def cpu_maths(self) -> tuple[str, ...]:
        """The arithmetics in which the CPU computed, where they differ from the GPU's: CPUs have no tf32."""
        maths = [point.cpu.math for point in self.points]
        return tuple(dict.fromkeys(math for math in maths if math != self.precision))
