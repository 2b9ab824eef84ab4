"""The tables of products and convolutions on a terminal: a line a problem with the backends side by side."""

import math
from collections.abc import Callable, Iterable
from typing import Literal

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

_MODE_WORDS = {
    "resident": "GPU",
    "roundtrip": "+copies",
    "roundtrip-pageable": "+pageable",
    "roundtrip-pinned": "+pinned",
}


def layer_names(works: Iterable[Work], directions: bool = False) -> Callable[[Problem], str]:
    """A problem's layers in a few words, whatever its batch: `conv2`, `conv2 +3` (as many more); with their `directions`
    where no other column says them."""
    names: dict = {}
    for work in works:
        names.setdefault(batch_family(work.problem), {})[work.name if directions else work.product] = None

    def named(problem: Problem) -> str:
        first, *more = names.get(batch_family(problem), ["-"])
        return f"{first} +{len(more)}" if more else first

    return named


#: What a column holds: names of the problem, milliseconds (of a framework, of others), a rate, a share of a roof, the winner.
Column = Literal["problem", "framework", "time", "rate", "share", "winner"]


class Matmuls:
    """Prints a line when all rows of a problem are there, the kernels side by side. Times are milliseconds of one call,
    waited for. `names` are the layers that have a problem; a problem that is not `planned` was added by refining."""

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
        self._all: list[Measurement] = []
        self._group: list[Measurement] = []
        self._columns: dict[str, Column] = {}
        self._table: Printed | None = None
        self._markdown = markdown
        self._machine = machine
        self._names = names
        self._planned = frozenset(planned)
        self._kind_width = max((len(_kind(p, "cold" if cold else "warm")) for p in self._planned), default=7)
        self._refining = False

    def shown(self, measurement: Measurement) -> None:
        if is_sustained(measurement):  # its line is in the result file: here it would be a second one of its size
            return
        if measurement.problem.op != self.op:
            self._all.append(measurement)
            return
        if self._group and _together(self._group[0]) != _together(measurement):
            self._flush()
        self._all.append(measurement)
        self._group.append(measurement)

    def finish(self) -> None:
        if self._group:
            self._flush()

    def _flush(self) -> None:
        group, self._group = self._group, []
        if self._planned and group[0].problem not in self._planned and not self._refining:
            self._refining = True
            print("sizes added around the crossovers:")
        if self._table is None:
            self._columns, head = self._find_columns(group), self.head(group[0].problem)
            words = {c: f"{width}<" for c, (_, width) in head.items() if c != "n"} | {"type": f"{self._kind_width}<"}
            words |= {"winner": "6<", "fastest": f"{max(len(self.winner([m])) for m in group)}<"}
            self._table = Printed([f"{c} {words.get(c, 7)}" for c in self._columns], self._markdown, self._least(group))
        self._table.show(self._cells(group))

    def _least(self, group: list[Measurement]) -> list[str]:
        """The columns that a narrow terminal drops, in order: roof shares, frameworks, rates, slower CPU kernels."""
        if {_side(m) for m in group} == {"framework"}:
            return ["pad", "fastest"]
        frameworks = self._columns_of_kind("framework")
        ranked = sorted((m for m in group if _side(m) == "CPU"), key=_host_s)
        cpu = list(dict.fromkeys(f"{_column(m)} ms" for m in ranked))
        return [
            *self._columns_of_kind("share"),
            *frameworks,
            *self._columns_of_kind("rate"),
            "pad",
            *reversed(cpu[1:]),
            "MxNxK",
        ]

    def _columns_of_kind(self, kind: Column) -> list[str]:
        return [name for name, kind_of_column in self._columns.items() if kind_of_column == kind]

    def head(self, p: Problem) -> dict[str, tuple[str, int]]:
        """Column -> (the cell that names the problem, the column's width)."""
        square = {q.m == q.n == q.k for q in (p, *self._planned)} == {True}
        size = str(p.n) if p.m == p.n == p.k else f"{p.m}x{p.n}x{p.k}"
        if self._names is None:
            return {"n": (size, 5)} if square else {"shape": (size, 14)}
        return {"layer": (self._names(p), 20), "MxNxK": (size, 14)}

    def _find_columns(self, group: list[Measurement]) -> dict[str, Column]:
        """The columns: problem, each side's milliseconds, rates and shares of a roof known before any line, the winner."""
        peaks = [r for r in roofs_of(self._all, self._machine) if r.measured and r.kind == "compute"]
        roofed = {"CPU" if r.device == "cpu" else "GPU" for r in peaks if r.note != BEST_MATMUL}
        columns: dict[str, Column] = dict.fromkeys([*self.head(group[0].problem), "type"], "problem")
        sides = stats.group_by(group, _side)
        for side in (side for side in _SIDES if side in sides):
            for m in sides[side]:
                columns[f"{_column(m)} ms"] = "framework" if side == "framework" else "time"
            if side != "framework":
                columns[f"{side} GFLOP/s"] = "rate"
            if side in roofed:
                columns[f"{side} % of roof"] = "share"
        columns["winner" if {"CPU", "GPU"} <= sides.keys() else "fastest"] = "winner"
        return columns

    def _cells(self, group: list[Measurement]) -> list[str]:
        p = group[0].problem
        ceilings = roofs_of(self._all, self._machine)
        cells = {name: text for name, (text, _) in self.head(p).items()}
        cells["type"] = _kind(p, group[0].settings.cache)
        cells["winner"] = cells["fastest"] = Best(self.winner(group))
        quickest = fastest(group)
        for m in group:
            best = fastest([r for r in group if _column(r) == _column(m)])
            milliseconds = number(_host_s(best) * 1e3) if best else m.status
            cells[f"{_column(m)} ms"] = Best(milliseconds) if best and best is quickest else milliseconds
        for side in ("CPU", "GPU"):
            best = fastest([m for m in group if _side(m) == side and m.mode == "resident"])
            if best:
                cells[f"{side} GFLOP/s"] = number(p.flops / stats.call_s(best) / 1e9)
                judged = bounds.judge(best, ceilings)
                if judged.fraction and judged.roof and judged.roof.note != BEST_MATMUL:  # that one still grows
                    cells[f"{side} % of roof"] = f"{100 * judged.fraction.value:.0f}"
        return [cells.get(c, "-") for c in self._columns]

    def winner(self, group: list[Measurement]) -> str:
        """The side that wins, and in which copy modes where the GPU wins in some; without two sides the fastest kernel.

        Rows of a framework stand beside and win nothing, unless there are no others.
        """
        cpu = fastest(self._cpu_rows(group[0]))
        on_gpu = [m for m in group if _side(m) == "GPU"]
        if not on_gpu or cpu is None:
            best = fastest([m for m in group if _side(m) != "framework"]) or fastest(group)
            threads = f" x{best.threads}" if best and best.threads else ""
            return best.label + threads if best else "-"
        wins = self._gpu_wins(group)
        if not wins:
            return "CPU"
        if wins == {m.mode for m in on_gpu}:
            return "GPU"
        words = {**_MODE_WORDS, "resident": "resident"}
        return " ".join(["GPU", *(words[mode] for mode in words if mode in wins)])

    def _gpu_wins(self, group: list[Measurement]) -> set[str]:
        """The copy modes in which the GPU is faster than the CPU; none where one of them has no time."""
        cpu = fastest(self._cpu_rows(group[0]))
        return {m.mode for m in group if cpu and _side(m) == "GPU" and _host_s(m) < _host_s(cpu)}

    def _cpu_rows(self, row: Measurement) -> list[Measurement]:
        """The CPU rows of a row's size, in its arithmetic or in float32, which is precise enough for any lower one."""
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
    """Prints the lines of convolutions; a GPU that wins is named with its kernel, as it has several."""

    op = "conv"

    def head(self, p: Problem) -> dict[str, tuple[str, int]]:
        stride = f"/{p.stride}" if p.stride != 1 else ""
        groups = f" g{p.groups}" if p.groups != 1 else ""
        shape = f"{p.n}x{p.h}x{p.w}x{p.c_in}:{p.c_out}x{p.r}x{p.s}{stride}{groups}"
        layer = {} if self._names is None else {"layer": (self._names(p), 14)}
        return layer | {"NxHxWxC:KxRxS": (shape, 21), "pad": (str(p.pad), 5), "way": (p.direction, 5)}

    def winner(self, group: list[Measurement]) -> str:
        side = super().winner(group)
        best = fastest([m for m in group if _side(m) == "GPU" and m.mode == "resident"])
        return f"{side} ({best.label})" if best and self._gpu_wins(group) else side


_SIDES = ("CPU", "GPU", "framework")


def _kind(p: Problem, cache: str) -> str:
    """The arithmetic, then products in one launch, epilogue, layout and caches where they are not the default."""
    many, epilogue = getattr(p, "batch", None), getattr(p, "epilogue", None)
    words = [p.math, many and f"x{many}", epilogue, p.layout, cache]
    return " ".join(word for word in words if word and word not in ("nn", "NHWC", "warm"))


def _side(m: Measurement) -> str:
    return "framework" if m.backend in FRAMEWORKS else m.side


def _together(m: Measurement) -> tuple:
    """The key that all rows of a line share: problem and caches."""
    return m.problem, m.settings.cache


def _shape(problem: Problem) -> tuple:
    """The problem without its arithmetic."""
    return tuple(getattr(problem, f) for f in problem.__struct_fields__ if f not in ("dtype", "math", "out"))


def _column(m: Measurement) -> str:
    backend, variant = m.backend, m.variant
    if _side(m) == "framework":
        return f"{backend} {variant} {m.device.partition(':')[0].upper()}"
    if _side(m) == "GPU":
        return _MODE_WORDS[m.mode]
    return backend if variant in ("operator", "blas", "parallel", "gemm", "im2col") else f"{backend} {variant}"


def _host_s(m: Measurement) -> float:
    """Median host latency of a call; infinite without one."""
    timed = stats.quickest([m], "host-latency")
    return stats.quick_median(timed[1]) if timed else math.inf


def fastest(rows: list[Measurement]) -> Measurement | None:
    """The row with the lowest host latency."""
    best = stats.quickest(rows, "host-latency")
    return best and best[0]
