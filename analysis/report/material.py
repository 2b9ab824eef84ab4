"""The rows of one run or machine and every result derived from them, each computed once, for sections and charts."""

import functools
import os
import pathlib
import re
from collections.abc import Iterable

from analysis.crossover.crossover import Answer, crossovers
from analysis.noise import REPORTS
from analysis.predict import held_out, prediction
from analysis.predict import profile as profiles
from analysis.predict.budget import Budget, budgets
from analysis.predict.held_out import SavedSummary
from analysis.predict.profile import Profile
from analysis.report import layers, rows, stored_gpu
from analysis.roofline.bounds import Judged, judge
from analysis.roofline.roofs import Roof, roofs
from analysis.table import Table
from analysis.text import crossings, summary, training
from analysis.training import break_even
from analysis.training.break_even import Pair
from workloads.records import Loaded, Machine, Measurement, by_machine, read_files


class Material:
    """The rows of one run or machine, with the results of analysis. letter, name: its label on a page of several runs."""

    def __init__(self, loaded: Loaded, letter: str = "", name: str = ""):
        self.loaded, self.letter, self.name = loaded, letter, name
        self.rows: list[Measurement] = list(loaded.measurements)

    @property
    def label(self) -> str:
        """`A: nvidia-h200`; empty for a page's only run."""
        return f"{self.letter}: {self.name}" if self.letter else ""

    @property
    def machine(self) -> "Machine | None":
        return self.loaded.machine

    @functools.cached_property
    def roofs(self) -> "tuple[Roof, ...]":
        return roofs(self.loaded.every, self.machine)

    @functools.cached_property
    def answers(self) -> "tuple[Answer, ...]":
        """The answers of the square products."""
        return crossovers(self.rows, machine=self.machine)

    @functools.cached_property
    def said(self) -> list[str]:
        told = summary.answer(self.loaded, self.machine, self.answers, self.roofs)
        if stored := stored_gpu.sentences(self.rows, self.machine):
            told = [one for one in told if one != crossings.no_gpu_sentence(self.rows, self.machine)]
        return stored + told

    @functools.cached_property
    def ordered(self) -> "list[Measurement]":
        """The rows in the order of the table of all numbers, the skipped ones last."""
        return sorted(self.rows, key=lambda m: (m.status == "skipped", rows.order(m)))

    @functools.cached_property
    def judged(self) -> "list[Judged]":
        """The `ordered` rows, each against its roof."""
        return [judge(m, self.roofs) for m in self.ordered]

    @functools.cached_property
    def numbers(self) -> list[tuple]:
        return [rows.number_row(m, judged) for m, judged in zip(self.ordered, self.judged, strict=True)]

    @functools.cached_property
    def layers(self) -> "dict[str, layers.Layers]":
        """Convolutions, and the products of dense layers and other shapes."""
        return {op: layers.select(self.loaded, op, self.roofs) for op in layers.HEADINGS}

    @functools.cached_property
    def profile(self) -> Profile:
        return profiles.Profile(self.rows, self.machine)

    @functools.cached_property
    def budgets(self) -> list[Budget]:
        return budgets(self.profile)

    @functools.cached_property
    def pairs(self) -> "list[Pair]":
        """Trainings that ran on both sides."""
        return break_even.pairs(self.rows)

    @functools.cached_property
    def trainings(self) -> "list[Answer]":
        """The answers of trainings: crossovers along batch, samples, width or depth."""
        return break_even.answers(self.rows)

    @property
    def table_of_trainings(self) -> list[str]:
        """The trainings with all of their models' own samples, a line each."""
        made = Table(training.HEADS, training.table(self.rows)).md()[:-1]
        return [re.sub(r"(\d) (\S+) (\[\S+) (\S+\])", r"\1&nbsp;\2 \3&nbsp;\4", line) for line in made]

    @property
    def findings(self) -> list[str]:
        """The findings of these rows for README, a line each."""
        return summary.findings(self.answers, self.trainings, self.profile, cases=self.predicted, saved=self.saved)

    @functools.cached_property
    def saved(self) -> list[SavedSummary]:
        """The predictions that were saved for this machine before they were measured, a summary a device."""
        if self.machine is None:
            return []
        known = profiles.Profile(self.rows, self.machine, self.loaded.replaced)
        return held_out.saved_summaries(prediction.saved_sets(REPORTS / self.machine.key).values(), known)

    @functools.cached_property
    def small(self) -> list[tuple[break_even.Setup, tuple[break_even.Pair, ...]]]:
        """The small-dataset study's trainings."""
        return break_even.small_datasets(self.pairs)

    @functools.cached_property
    def predicted(self) -> "list[held_out.Case]":
        """Every training predicted without its model, where the profile has enough rows for that."""
        try:
            return held_out.leave_one_out(self.profile)
        except profiles.Lacking:
            return []


AGAIN = 0.5  # share of the smaller run's timed rows, without roofs, above which common rows mean a repeated run
_UNKNOWN = "an unknown machine"
_ROOFS = ("peak", "stream")  # what every command measures for its own roofs


def shown(paths: "Iterable[str | os.PathLike]") -> list[Material]:
    """One Material for each machine or repeated run, the first path first; several have a letter and a name each.

    Raises: FileNotFoundError when there is no result file; NoRows when a path has no row.
    """
    groups: list[tuple[str, Loaded, str]] = []  # machine, rows, a name
    for path in paths:
        for key, loaded in by_machine(path).items():
            own = [i for i, group in enumerate(groups) if group[0] == key]
            if own and not any(_again(groups[i][1], loaded) for i in own):
                _, before, name = groups[own[0]]
                groups[own[0]] = key, read_files([*before.files, *loaded.files]), name
            else:
                groups.append((key, loaded, _name(path)))
    machines = [key for key, *_ in groups]
    if len(groups) == 1:
        return [Material(groups[0][1])]
    return [
        Material(loaded, letter(i), (key or _UNKNOWN) if machines.count(key) == 1 else name)
        for i, (key, loaded, name) in enumerate(groups)
    ]


def letter(i: int) -> str:
    """A, B, C ..., after Z numbers."""
    return chr(ord("A") + i) if i < 26 else str(i + 1)


def _again(a: Loaded, b: Loaded) -> bool:
    """Whether more than AGAIN of the smaller run's timed rows are in both: then the run was measured again."""
    keys = [
        {m.key for m in loaded.measurements if m.ok and m.samples and m.problem.op not in _ROOFS} for loaded in (a, b)
    ]
    least = min(map(len, keys))
    return bool(least) and len(keys[0] & keys[1]) > AGAIN * least


def _name(path: "str | os.PathLike") -> str:
    """The last two names of a path: a machine's folder and its run, a run and its file."""
    return "/".join(pathlib.Path(path).resolve().parts[-2:])
