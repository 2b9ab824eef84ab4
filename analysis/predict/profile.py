"""A machine's profile: curves through its microbenchmark rows, from which the times of a training's parts are read."""

# Made once from rows. Products and convolutions are taken as TensorFlow runs them, less what the call around them costs, and
# where there are no such rows as libraries do; element-wise passes by their bytes; calls by the constants of workloads.launch.

import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from analysis.predict import in_graph, operations, profile_rows
from analysis.predict.curves import Curve, Point, curve
from analysis.predict.profile_rows import HELD, LIBRARIES, Rows
from analysis.stats import Estimate
from analysis.units import join
from kernels.problems import Conv, Matmul, Stream

if TYPE_CHECKING:
    from workloads.records import Machine, Measurement


class Lacking(ValueError):
    """A profile lacks rows that a prediction needs; `commands` are the command lines that measure them."""

    def __init__(self, what: str, commands: Iterable[str]):
        self.what, self.commands = what, tuple(commands)
        super().__init__(f"the profile has {what}; measure with: {'; '.join(self.commands)}")


def all_of(each: Iterable[Lacking]) -> Lacking:
    """All that is lacking and every command that measures it, each named once."""
    every = list(each)
    return Lacking(join(dict.fromkeys(e.what for e in every)), dict.fromkeys(c for e in every for c in e.commands))


class Read(msgspec.Struct, frozen=True):
    """Seconds read off a profile, and the rows that they come from; `instead`: what stands for another arithmetic, in words."""

    seconds: Estimate
    source: str
    instead: str = ""


class Profile(Rows):
    """A machine's curves through its rows."""

    def __init__(self, measurements: "tuple[Measurement, ...]", machine: "Machine | None", key: str):
        super().__init__(measurements, machine, key)
        self._curves: dict[tuple, Curve | None] = {}
        self._read: dict[tuple, Read | None] = {}

    @functools.cached_property
    def outside(self) -> "Profile":
        """The profile without rows of operations inside a graph."""
        return Profile(tuple(m for m in self.measurements if not in_graph.stands(m)), self.machine, self.key)

    def memory_bandwidth(self, device: str, nbytes: float) -> float | None:
        """Bytes a second of passes over arrays of so many bytes together, where no cache holds them; else None."""
        return operations.bandwidth(self, device, nbytes)

    def product(self, problem: Matmul | Conv, device: str, execution: str) -> Read | None:
        """Seconds of a product or convolution as that execution runs it on the device, without the call around it; None
        where no row says anything of its kind."""
        key = (problem, device, execution)
        if key not in self._read:
            self._read[key] = self._product(problem, device, execution)
        return self._read[key]

    def _product(self, problem: Matmul | Conv, device: str, execution: str) -> Read | None:
        """By the source that tells it best: of the first sources with rows the one with the narrowest interval. A framework's
        that is hardly more than the call around it is told by a library's, if there is one."""
        for tier in profile_rows.of(device, execution, problem.op):
            found = [self._told(problem, device, source) for source in tier]
            best = min((told for told in found if told), key=lambda told: told[0], default=None)
            if best:
                return best[1]
        return None

    def _told(self, problem: Matmul | Conv, device: str, source: str) -> tuple[float, Read] | None:
        """(how little it is known, seconds) by one source."""
        for math_ in profile_rows.maths(problem, device):
            if made := self._curve(source, device, problem.op, profile_rows.kind(problem), math_):
                instead = (
                    f"{problem.math} priced as {math_[1]}, of which there are rows" if math_[1] != problem.math else ""
                )
                seconds = made.seconds(profile_rows.at(problem), problem.flops, problem.bytes_moved)
                call = None if source in (LIBRARIES, HELD) else in_graph.call_around(self, source, device, problem.op)
                hidden = call is not None and seconds.value < in_graph.TOLD * call
                return math.log(seconds.high / seconds.low) + hidden, Read(seconds, profile_rows.WORDS[source], instead)
        return None

    def _curve(self, source: str, device: str, op: str, kind: str, math_: tuple[str, str]) -> Curve | None:
        key = (source, device, op, kind, math_)
        if key not in self._curves:
            self._curves[key] = curve(self._points(*key), source == LIBRARIES)
        return self._curves[key]

    def _points(self, source: str, device: str, op: str, kind: str, math_: tuple[str, str]) -> Iterable[Point]:
        alike = [
            m
            for m in self.rows.get((op, device), ())
            if (m.problem.dtype, m.problem.math) == math_
            and profile_rows.kind(m.problem) == kind
            and m.settings.cache == "warm"
        ]
        held = {m.problem for m in alike if in_graph.stands(m)}  # a call of its own says nothing that these do not
        for m in alike:
            p = m.problem
            if (p not in held or in_graph.stands(m)) and (seconds := in_graph.own_seconds(self, m, source)) is not None:
                yield Point(profile_rows.at(p), seconds, p.flops, p.bytes_moved)

    def operating(self, device: str) -> Estimate | None:
        """Seconds of a further operation in a graph that is not compiled."""
        return in_graph.operating(self, device)

    def passing(self, problem: Stream, device: str, execution: str) -> Read | None:
        """Seconds of an element-wise pass, by its operation's curve over bytes, else by that of any pass."""
        key = (problem, device, execution)
        if key not in self._read:
            found = operations.passing(self, problem, device, execution)
            self._read[key] = Read(*found) if found else None
        return self._read[key]


def profile(measurements: "Iterable[Measurement]", machine: "Machine | None" = None, key: str = "") -> Profile:
    """The profile of one machine from its rows."""
    return Profile(tuple(measurements), machine, key or (machine.key if machine else "this machine"))


def read(*runs: str, mixed: bool = False) -> Profile:
    """The profile of the result files that RUN names.

    Raises: options.Usage for rows of several machines, unless `mixed`; FileNotFoundError for no file.
    """
    from workloads import records
    from workloads.options import Usage

    machines = records.by_machine(*runs)
    if len(machines) > 1 and not mixed:
        first = next(iter(machines))
        raise Usage(
            f"these rows are of {len(machines)} machines ({', '.join(machines)}), whose times are no one machine's; "
            f"name one, as reports/{first}, or mix them on purpose with --mixed"
        )
    loaded = list(machines.values())
    rows = tuple(m for part in loaded for m in part.measurements)
    return profile(rows, loaded[0].runs[-1].machine if loaded[0].runs else None, "+".join(machines))
