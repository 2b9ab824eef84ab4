"""The analyses of the runs of a page, each with its label and its words, for sections and charts."""

import functools
import os
import pathlib
from collections.abc import Iterable

import msgspec

from analysis import table
from analysis.analysis import Analysis
from analysis.report import layers, rows, stored_gpu
from analysis.roofline.bounds import Judged, judge
from analysis.table import Table
from analysis.text import summary, training
from analysis.text.summary import RunSentences
from workloads.records import Loaded, Measurement, by_machine, read_files


class Material:
    """One run or machine on a page: its analysis, with the words and tables that sections and charts are made of."""

    def __init__(self, analysis: Analysis, letter: str = "", name: str = ""):
        """letter, name: its label on a page of several runs, such as A and nvidia-h200; "" on a page of one."""
        self.analysis = analysis
        self.letter = letter
        self.name = name

    @property
    def label(self) -> str:
        """`A: nvidia-h200`; empty for a page's only run."""
        return f"{self.letter}: {self.name}" if self.letter else ""

    @property
    def rows(self) -> tuple[Measurement, ...]:
        return self.analysis.rows

    @functools.cached_property
    def about_stored_gpu(self) -> list[str]:
        """Sentences on the stored GPU beside which the rows of a machine without one are set; [] where none is."""
        return stored_gpu.sentences(self.analysis.rows, self.analysis.machine)

    @functools.cached_property
    def summary(self) -> RunSentences:
        """The sentences of the answer, and those that are left for the sections. Why there is no crossover is not said where a
        stored GPU takes the place of a missing one.
        """
        return summary.summary(self.analysis, why_no_crossover=not self.about_stored_gpu)

    @property
    def answer(self) -> list[str]:
        """The sentences of the page's answer."""
        return self.about_stored_gpu + self.summary.lines

    @functools.cached_property
    def ordered(self) -> "list[Measurement]":
        """The rows in the order of the table of all numbers, the skipped ones last."""
        return sorted(self.rows, key=lambda m: (m.status == "skipped", rows.order(m)))

    @functools.cached_property
    def judged(self) -> "list[Judged]":
        """The `ordered` rows, each against its roof."""
        return [judge(m, self.analysis.roofs) for m in self.ordered]

    @functools.cached_property
    def numbers(self) -> list[tuple]:
        return [rows.number_row(m, judged) for m, judged in zip(self.ordered, self.judged, strict=True)]

    @functools.cached_property
    def layers(self) -> "dict[str, layers.Layers]":
        """Convolutions, and the products of dense layers and other shapes."""
        return {op: layers.select(self.analysis.loaded, op, self.analysis.roofs) for op in layers.HEADINGS}

    @property
    def table_of_trainings(self) -> list[str]:
        """The trainings with all of their models' own samples, a line each."""
        return Table(training.HEADS, training.table(self.rows, table.UNBROKEN)).md()[:-1]

    @property
    def findings(self) -> list[str]:
        """The findings of these rows for README, a line each."""
        return summary.findings(self.analysis)


#: Share of the smaller run's timed rows, without roofs, above which common rows mean a repeated run.
AGAIN = 0.5
_UNKNOWN = "an unknown machine"
#: Operations that every command measures for its own roofs.
_ROOFS = ("peak", "stream")


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one machine that a page shows as one run."""

    #: The key of the machine; "" where it is not known.
    machine: str
    #: The rows.
    loaded: Loaded
    #: The last two names of the first path that they are from.
    name: str


def shown(paths: "Iterable[str | os.PathLike]") -> list[Material]:
    """What a page shows of these result files and folders: a Material for each machine, and for each run that repeats another
    of its machine. The first path comes first. Where there are several, each has a letter and a name.

    Raises: FileNotFoundError when there is no result file; NoRows when a path has no row.
    """
    groups: list[_Group] = []
    for path in paths:
        for machine, loaded in by_machine(path).items():
            _add(groups, _Group(machine=machine, loaded=loaded, name=_name(path)))
    if len(groups) == 1:
        return [Material(Analysis.from_loaded(groups[0].loaded))]
    machines = [group.machine for group in groups]
    runs = []
    for i, group in enumerate(groups):
        is_only_one = machines.count(group.machine) == 1
        name = group.machine or _UNKNOWN if is_only_one else group.name
        runs.append(Material(Analysis.from_loaded(group.loaded), letter(i), name))
    return runs


def _add(groups: list[_Group], group: _Group) -> None:
    """Adds a group to the list, or joins its rows to the first group of the same machine. It is joined unless it measured the
    same rows again as some group of that machine.
    """
    same_machine = [i for i, other in enumerate(groups) if other.machine == group.machine]
    is_repeated = any(_again(groups[i].loaded, group.loaded) for i in same_machine)
    if not same_machine or is_repeated:
        groups.append(group)
        return
    first = same_machine[0]
    files = [*groups[first].loaded.files, *group.loaded.files]
    groups[first] = msgspec.structs.replace(groups[first], loaded=read_files(files))


def letter(i: int) -> str:
    """A, B, C ..., after Z numbers."""
    return chr(ord("A") + i) if i < 26 else str(i + 1)


def _again(a: Loaded, b: Loaded) -> bool:
    """Whether two runs measured the same again: more than AGAIN of the timed rows of the smaller one are in both."""
    keys_a = _timed_keys(a)
    keys_b = _timed_keys(b)
    fewest = min(len(keys_a), len(keys_b))
    return fewest > 0 and len(keys_a & keys_b) > AGAIN * fewest


def _timed_keys(loaded: Loaded) -> set:
    """The keys of the rows with samples, without those of roofs."""
    return {m.key for m in loaded.measurements if m.ok and m.samples and m.problem.op not in _ROOFS}


def _name(path: "str | os.PathLike") -> str:
    """The last two names of a path: a machine's folder and its run, a run and its file."""
    return "/".join(pathlib.Path(path).resolve().parts[-2:])
