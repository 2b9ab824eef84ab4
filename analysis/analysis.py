"""Analysis: the results of the rows of one run or machine, each computed once. Words are made from it above, in analysis.text."""

import functools

import msgspec

from analysis import checks
from analysis.crossover import ladder
from analysis.crossover.answer import Answer
from analysis.crossover.crossover import crossovers
from analysis.crossover.ladder import Ladder
from analysis.predict import profile
from analysis.predict.budget import Budget, budgets
from analysis.predict.profile import Profile
from analysis.roofline.roofs import Roof, roofs_of
from analysis.training import break_even
from analysis.training.break_even import Pair, Setup
from workloads.machine.health import CheckResult
from workloads.records import Loaded, Machine, Measurement, Measurements


class Analysis(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """The results of the rows of one run or machine. Each is computed when it is first read, and only then."""

    #: The rows, with the runs and files that they are from.
    loaded: Loaded
    #: Where the rows were measured; None if no line of the files says it.
    machine: Machine | None

    @classmethod
    def from_loaded(cls, loaded: Loaded) -> "Analysis":
        """The analysis of result files."""
        return cls(loaded=loaded, machine=loaded.machine)

    @classmethod
    def from_rows(cls, rows: Measurements, machine: Machine | None = None) -> "Analysis":
        """The analysis of rows of one machine, whatever files they are in."""
        loaded = Loaded(runs=(), measurements=tuple(rows), bad_lines=0, files=())
        return cls(loaded=loaded, machine=machine)

    @property
    def rows(self) -> tuple[Measurement, ...]:
        """The rows that count: the newest of each key."""
        return self.loaded.measurements

    @functools.cached_property
    def roofs(self) -> tuple[Roof, ...]:
        """The ceilings of each device, measured and from data sheets. Replaced rows count: a roof is the best rate reached."""
        return roofs_of(self.loaded.every, self.machine)

    @functools.cached_property
    def crossovers(self) -> tuple[Answer, ...]:
        """Who wins at square products, an answer for each precision and form."""
        return crossovers(self.rows, machine=self.machine)

    @functools.cached_property
    def ladders(self) -> dict[str, list[Ladder]]:
        """Operation -> the ladders of its teaching rungs; [] for an operation without any. A rung's share is of a peak that the
        rows reached, whatever replaced ones did."""
        ceilings = self.roofs
        if self.loaded.replaced:
            ceilings = roofs_of(self.rows, self.machine)
        return {op: ladder.ladders(self.rows, ceilings, op) for op in ("matmul", "conv")}

    @functools.cached_property
    def doubts(self) -> list[CheckResult]:
        """What makes timings doubtful, a finding for each check that sees something in the rows."""
        return checks.findings(self.rows, self.roofs, self.machine)

    @functools.cached_property
    def pairs(self) -> list[Pair]:
        """Trainings that ran on both sides."""
        return break_even.pairs(self.rows)

    @functools.cached_property
    def training_crossovers(self) -> list[Answer]:
        """Who wins trainings along batch, samples, width or depth."""
        return break_even.answers(self.rows)

    @functools.cached_property
    def small_datasets(self) -> list[tuple[Setup, tuple[Pair, ...]]]:
        """The trainings of the small-dataset study."""
        return break_even.small_datasets(self.pairs)

    @functools.cached_property
    def profile(self) -> Profile:
        """The microbenchmark rows that predictions read, without those that are faster than the hardware allows."""
        return Profile(profile.credible(self.loaded), self.machine)

    @functools.cached_property
    def budgets(self) -> list[Budget]:
        """The parts of each training step."""
        return budgets(self.profile)
