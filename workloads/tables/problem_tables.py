"""The tables of products and convolutions on a terminal: a line a problem with the backends side by side."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

from analysis import stats
from analysis.crossover.families import batch_family
from analysis.roofline import bounds
from analysis.roofline.roofs import BEST_MATMUL, roofs_of
from analysis.table import Best, Printed
from kernels.networks import Work
from kernels.problems import Problem
from kernels.registry import FRAMEWORKS
from workloads.printing import number
from workloads.records import Machine, Measurement
from workloads.records.settings import is_sustained

_COLUMN_WIDTH = 7  # of numbers
_MODE_WORDS = {
    "resident": "GPU",
    "roundtrip": "+copies",
    "roundtrip-pageable": "+pageable",
    "roundtrip-pinned": "+pinned",
}


def layer_names(works: Iterable[Work], directions: bool = False) -> Callable[[Problem], str]:
    """A function that names the layers which have a problem at any batch: `conv2`, or `conv2 +3` if three more layers have it.

    works: the products or convolutions of the layers. directions: whether a name says the direction too, such as `conv2 wgrad`.
    """
    names: dict[Any, list[str]] = {}  # a problem without its batch -> its layers
    for work in works:
        layer = work.name if directions else work.product
        layers = names.setdefault(batch_family(work.problem), [])
        if layer not in layers:
            layers.append(layer)

    def layer_name(problem: Problem) -> str:
        first, *others = names.get(batch_family(problem), ["-"])
        return f"{first} +{len(others)}" if others else first

    return layer_name


#: What a column has: names of the problem, milliseconds (of a framework, of others), a rate, a share of a roof, the winner.
Column = Literal["problem", "framework", "time", "rate", "share", "winner"]


class Matmuls:
    """The table of matrix products. It prints a problem's line, with the kernels side by side, once all of its rows have been
    added, which the first row of another problem shows. Times are milliseconds of a call that is waited for."""

    op = "matmul"

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        names: Callable[[Problem], str] | None = None,
        planned: Iterable[Problem] = (),
        cold: bool = False,
        markdown: bool = False,
    ):
        """names: gives the layers that have a problem; None where no layers are timed. planned: the problems that were to be
        timed; others were added around a crossover. cold: whether there are rows with cold caches too."""
        self._all: list[Measurement] = []
        #: The rows of the problem whose line is not printed yet.
        self._group: list[Measurement] = []
        #: Name of a column -> what it has; {} before the first line.
        self._columns: dict[str, Column] = {}
        self._table: Printed | None = None
        self._markdown = markdown
        self._machine = machine
        self._names = names
        self._planned = frozenset(planned)
        self._kind_width = max((len(_kind(p, "cold" if cold else "warm")) for p in self._planned), default=7)
        self._refining = False

    def add(self, measurement: Measurement) -> None:
        """Takes in a row. The first one of another problem prints the line of the problem before it."""
        if is_sustained(measurement):  # timed again for longer: it would be a second line of the same size
            return
        if measurement.problem.op != self.op:
            self._all.append(measurement)
            return
        if self._group and _together(self._group[0]) != _together(measurement):
            self._flush()
        self._all.append(measurement)
        self._group.append(measurement)

    def finish(self) -> None:
        """Prints the line of the last problem."""
        if self._group:
            self._flush()

    def _flush(self) -> None:
        """Prints the line of the problem whose rows are complete; before the first line the columns' names."""
        group, self._group = self._group, []
        if self._planned and group[0].problem not in self._planned and not self._refining:
            self._refining = True
            print("sizes added around the crossovers:")
        if self._table is None:
            self._columns = self._find_columns(group)
            self._table = self._new_table(group)
        self._table.show(self._cells(group))

    def _new_table(self, group: list[Measurement]) -> Printed:
        """The empty table, with a width for each column, by the rows of its first line. `<` is a column aligned to the left."""
        widths = {"type": f"{self._kind_width}<", "winner": "6<"}
        widths["fastest"] = f"{max(len(self.winner([m])) for m in group)}<"
        for name, (_, width) in self.head(group[0].problem).items():
            if name != "n":
                widths[name] = f"{width}<"
        heads = [f"{name} {widths.get(name, _COLUMN_WIDTH)}" for name in self._columns]
        return Printed(heads, self._markdown, self._dropped_columns(group))

    def _dropped_columns(self, group: list[Measurement]) -> list[str]:
        """The columns that a narrow terminal drops, the first of these first: roof shares, frameworks, rates, slower CPU
        kernels. group: the rows of the first line."""
        if {_side(m) for m in group} == {"framework"}:
            return ["pad", "fastest"]
        frameworks = self._columns_of_kind("framework")
        cpu_rows = sorted((m for m in group if _side(m) == "CPU"), key=_host_s)
        cpu_columns = list(dict.fromkeys(f"{_column(m)} ms" for m in cpu_rows))
        slower_columns = cpu_columns[1:]
        return [
            *self._columns_of_kind("share"),
            *frameworks,
            *self._columns_of_kind("rate"),
            "pad",
            *reversed(slower_columns),
            "MxNxK",
        ]

    def _columns_of_kind(self, kind: Column) -> list[str]:
        return [name for name, kind_of_column in self._columns.items() if kind_of_column == kind]

    def head(self, p: Problem) -> dict[str, tuple[str, int]]:
        """The columns that name a problem: name of the column -> (its text for this problem, the column's width)."""
        square = all(problem.m == problem.n == problem.k for problem in (p, *self._planned))
        size = str(p.n) if p.m == p.n == p.k else f"{p.m}x{p.n}x{p.k}"
        if self._names is None:
            return {"n": (size, 5)} if square else {"shape": (size, 14)}
        return {"layer": (self._names(p), 20), "MxNxK": (size, 14)}

    def _find_columns(self, group: list[Measurement]) -> dict[str, Column]:
        """The columns: the problem, milliseconds of each kernel of the CPU, the GPU and frameworks, rates, shares of the
        roofs that were measured before, the winner. group: the rows of the first line."""
        peaks = [roof for roof in roofs_of(self._all, self._machine) if roof.measured and roof.kind == "compute"]
        sides_with_roof = {"CPU" if roof.device == "cpu" else "GPU" for roof in peaks if roof.note != BEST_MATMUL}
        columns: dict[str, Column] = dict.fromkeys([*self.head(group[0].problem), "type"], "problem")
        sides = stats.group_by(group, _side)
        for side in (side for side in _SIDES if side in sides):
            for m in sides[side]:
                columns[f"{_column(m)} ms"] = "framework" if side == "framework" else "time"
            if side != "framework":
                columns[f"{side} GFLOP/s"] = "rate"
            if side in sides_with_roof:
                columns[f"{side} % of roof"] = "share"
        columns["winner" if {"CPU", "GPU"} <= sides.keys() else "fastest"] = "winner"
        return columns

    def _cells(self, group: list[Measurement]) -> list[str]:
        """The texts of a problem's line, in the order of the columns. group: its rows."""
        p = group[0].problem
        ceilings = roofs_of(self._all, self._machine)
        cells = {name: text for name, (text, _) in self.head(p).items()}
        cells["type"] = _kind(p, group[0].settings.cache)
        cells["winner"] = cells["fastest"] = Best(self.winner(group))
        quickest = fastest(group)
        for m in group:
            best = fastest([other for other in group if _column(other) == _column(m)])
            milliseconds = number(_host_s(best) * 1e3) if best else m.status
            cells[f"{_column(m)} ms"] = Best(milliseconds) if best and best is quickest else milliseconds
        for side in ("CPU", "GPU"):
            best = fastest([m for m in group if _side(m) == side and m.mode == "resident"])
            if best:
                cells[f"{side} GFLOP/s"] = number(p.flops / stats.call_s(best) / 1e9)
                judged = bounds.judge(best, ceilings)
                # The roof that is the fastest product so far may still grow: a share of it would not be the last one.
                if judged.fraction and judged.roof and judged.roof.note != BEST_MATMUL:
                    cells[f"{side} % of roof"] = f"{100 * judged.fraction.value:.0f}"
        return [cells.get(c, "-") for c in self._columns]

    def winner(self, group: list[Measurement]) -> str:
        """The side that wins: `CPU`, `GPU`, or the GPU with the copy modes in which it wins. Without rows of both sides it is the
        fastest kernel. Rows of a framework win nothing, unless there are no others.

        group: the rows of one problem.
        """
        cpu = fastest(self._cpu_rows(group[0]))
        on_gpu = [m for m in group if _side(m) == "GPU"]
        if not on_gpu or cpu is None:
            best = fastest([m for m in group if _side(m) != "framework"]) or fastest(group)
            threads = f" x{best.threads}" if best and best.threads else ""
            return best.label + threads if best else "-"
        winning_modes = self._gpu_wins(group)
        if not winning_modes:
            return "CPU"
        if winning_modes == {m.mode for m in on_gpu}:
            return "GPU"
        words = {**_MODE_WORDS, "resident": "resident"}
        return " ".join(["GPU", *(words[mode] for mode in words if mode in winning_modes)])

    def _gpu_wins(self, group: list[Measurement]) -> set[str]:
        """The copy modes in which the GPU is faster than the CPU; none where the CPU has no time. group: the rows of a
        problem."""
        cpu = fastest(self._cpu_rows(group[0]))
        return {m.mode for m in group if cpu and _side(m) == "GPU" and _host_s(m) < _host_s(cpu)}

    def _cpu_rows(self, row: Measurement) -> list[Measurement]:
        """The CPU rows of the same size as a row, in its arithmetic or in float32, which replaces any less precise one."""
        arithmetic = {row.problem.math}
        if row.problem.math != "float64":
            arithmetic.add("float32")
        cpu_rows = []
        for m in self._all:
            is_of_cpu = _side(m) == "CPU" and m.problem.op == self.op and m.problem.math in arithmetic
            is_alike = m.settings.cache == row.settings.cache and _shape(m.problem) == _shape(row.problem)
            if is_of_cpu and is_alike:
                cpu_rows.append(m)
        return cpu_rows


class Convs(Matmuls):
    """The table of convolutions. A GPU that wins is named with its kernel, as it has several."""

    op = "conv"

    def head(self, p: Problem) -> dict[str, tuple[str, int]]:
        """The columns that name a convolution: name of the column -> (its text for this one, the column's width)."""
        stride = f"/{p.stride}" if p.stride != 1 else ""
        groups = f" g{p.groups}" if p.groups != 1 else ""
        shape = f"{p.n}x{p.h}x{p.w}x{p.c_in}:{p.c_out}x{p.r}x{p.s}{stride}{groups}"
        layer = {} if self._names is None else {"layer": (self._names(p), 14)}
        return layer | {"NxHxWxC:KxRxS": (shape, 21), "pad": (str(p.pad), 5), "way": (p.direction, 5)}

    def winner(self, group: list[Measurement]) -> str:
        """The side that wins, as of products, with the GPU's fastest kernel in brackets."""
        side = super().winner(group)
        best = fastest([m for m in group if _side(m) == "GPU" and m.mode == "resident"])
        return f"{side} ({best.label})" if best and self._gpu_wins(group) else side


_SIDES = ("CPU", "GPU", "framework")


def _kind(p: Problem, cache: str) -> str:
    """The text of the column `type`: the arithmetic, then where they are not the default the number of products in one launch,
    epilogue, layout and state of the caches."""
    words = [p.math]
    if getattr(p, "batch", None):
        words.append(f"x{p.batch}")
    if getattr(p, "epilogue", None):
        words.append(p.epilogue)
    if p.layout not in ("nn", "NHWC"):
        words.append(p.layout)
    if cache != "warm":
        words.append(cache)
    return " ".join(words)


def _side(m: Measurement) -> str:
    """The side of a row: CPU, GPU, or framework of either device."""
    return "framework" if m.backend in FRAMEWORKS else m.side


def _together(m: Measurement) -> tuple:
    """What all rows of a line share: the problem and the state of the caches."""
    return m.problem, m.settings.cache


def _shape(problem: Problem) -> tuple:
    """The fields of a problem without its arithmetic."""
    names = [name for name in problem.__struct_fields__ if name not in ("dtype", "math", "out")]
    return tuple(getattr(problem, name) for name in names)


def _column(m: Measurement) -> str:
    """The column of a row's time: of a framework with the device, of a GPU by its copy mode, of a CPU its library, and its kernel
    where that is not the library's plain one."""
    backend, variant = m.backend, m.variant
    if _side(m) == "framework":
        return f"{backend} {variant} {m.device.partition(':')[0].upper()}"
    if _side(m) == "GPU":
        return _MODE_WORDS[m.mode]
    return backend if variant in ("operator", "blas", "parallel", "gemm", "im2col") else f"{backend} {variant}"


def _host_s(m: Measurement) -> float:
    """Median seconds of a call that the host waits for; infinite where there are none."""
    row_and_samples = stats.quickest([m], "host-latency")
    if row_and_samples is None:
        return math.inf
    _, samples = row_and_samples
    return stats.quick_median(samples)


def fastest(rows: list[Measurement]) -> Measurement | None:
    """The row whose calls are the quickest to wait for; None where no row has a time."""
    row_and_samples = stats.quickest(rows, "host-latency")
    return row_and_samples[0] if row_and_samples else None
