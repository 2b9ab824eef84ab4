"""The table of layers on a terminal: a line a row, with its rate, its share of its roof and the roof that bounds it."""

from typing import TYPE_CHECKING, ClassVar

from analysis.roofline.bounds import judge
from analysis.roofline.roofs import Roof, roofs_of
from analysis.stats import median_of
from workloads.printing import Lines, number, timed, where

if TYPE_CHECKING:
    from workloads.records import Machine, Measurement


class LayerTable(Lines):
    """A line a direction of a layer. Times are microseconds of a call in a chain."""

    HEAD = (
        "layer 16< | x 2 | direction 9< | batch 5 | where 5< | how 8< | µs 7 | ±% 4 | GFLOP/s 7 | of roof 7 | "
        "bound by 8< | notes 5<"
    )
    LEAST = "±% | notes | x | GFLOP/s"
    ABOUT: ClassVar = {
        "x": "equal layers of the model",
        "direction": "fprop forward, wgrad gradient of the weights, dgrad of the input, backward both at once",
        "µs": "a call, by the slope between two numbers of calls in one function",
    }

    def __init__(self, machine: "Machine | None" = None, markdown: bool = False):
        super().__init__(markdown)
        self._machine = machine
        self._all: list[Measurement] = []
        self._roofs: tuple[Roof, ...] = ()

    def add(self, m: "Measurement") -> None:
        """Keeps a measurement until `finish`: lines name the ceilings of the device, which are known when all rows are
        measured."""
        self._all.append(m)

    def finish(self) -> None:
        """Prints the table of all layers that have been measured."""
        self._roofs = roofs_of(self._all, self._machine)
        for m in self._all:
            if m.problem.op == "layer" and self.wanted(m):
                self._table.show(self.cells(m))
        super().finish()

    def cells(self, m: "Measurement") -> list[str]:
        """The texts of a line of the table, in the order of its columns (HEAD); of a layer that failed, its status and the
        reason.

        The share and the kind are those of the ceiling of the roofline that bounds the layer: memory, or an arithmetic.
        """
        problem = m.problem
        compiled = "XLA" if m.keras.jit_compile == "on" else "op by op"
        equal_layers = f"{problem.count}" if problem.count > 1 else ""
        start = [problem.layer, equal_layers, problem.direction, str(problem.batch), where(m), compiled]
        if not m.ok:
            return [*start, m.status, "-", "-", "-", "-", m.reason]
        seconds = median_of(m.samples[0])
        judged = judge(m, self._roofs, seconds)
        gflop_per_s = number(problem.flops / seconds.value * 1e-9) if problem.flops else "-"
        bound_by = judged.roof.kind if judged.roof else "-"
        microseconds = timed(seconds, 1e6)  # two texts: the median and its interval in percent
        return [*start, *microseconds, gflop_per_s, judged.share, bound_by, " ".join(m.flags)]
