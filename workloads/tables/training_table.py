"""The table of trainings on a terminal: a line a training, with what its step, epoch, fit and start-up take."""

from typing import TYPE_CHECKING, ClassVar

from workloads.printing import Lines, number, scaled, where

if TYPE_CHECKING:
    from analysis.stats import Estimate
    from workloads.records import Measurement


class TrainingTable(Lines):
    """Prints a line for each training, 120 columns wide. The costs of a step, an epoch and a fit are those of later epochs
    (analysis.training.costs); of a training without later epochs ms/step is the whole fit over its steps."""

    HEAD = (
        "model 12< | batch 5 | samples 7 | ep 4 | where 11< | how 9< | ms/step 7 | ms/ep 6 | ms/fit 6 | comp. s 7 | "
        "start s 7 | whole s 7 | notes 5<"
    )
    LEAST = "ms/fit | ms/ep | ep | start s | comp. s | samples | notes"

    ABOUT: ClassVar = {
        "<": "less than this, maybe nothing",
        "ms/step": "a step",
        "ms/ep": "an epoch beside its steps",
        "ms/fit": "a fit beside its epochs",
        "comp. s": "compilation",
        "start s": "importing the library and starting the device",
        "whole s": "start-up, building, compilation and all epochs, in a process of its own.",
    }

    def __init__(self, markdown: bool = False):
        super().__init__(markdown)
        self._all: list[Measurement] = []

    def wanted(self, m: "Measurement") -> bool:
        """Only trainings have a line; the products measured for a budget appear in the budget."""
        if m.problem.op == "training":
            self._all.append(m)
        return m.problem.op == "training"

    def cells(self, m: "Measurement") -> list[str]:
        """The texts of a training's line, in the order of HEAD."""
        from analysis.stats import median_of
        from analysis.text import rows
        from analysis.training import costs

        p = m.problem
        start = [p.model, str(p.batch), str(p.samples), str(p.epochs), where(m), rows.loop_name(m)]
        began = scaled(costs.start(m, self._all))
        if not m.ok:
            return [*start, m.status, "-", "-", "-", began, "-", m.reason]
        cost = costs.measured(m, self._all)
        if cost is None:
            waited = m.on("host-latency")  # samples; None of a row that starts fresh processes and trains in none
            is_whole = m.variant == "trial"  # its samples are whole trainings, which the notes say
            step = median_of(waited) if waited and not is_whole else None
            return [*start, _milliseconds(step), "-", "-", "-", began, "-", " ".join(rows.notes(m, None))]
        return [
            *start,
            _milliseconds(cost.step),
            _milliseconds(cost.epoch),
            _milliseconds(costs.parts(cost, p.epochs, p.steps).get("data-set setup")),
            scaled(cost.compile),
            began,
            scaled(costs.whole_training(cost, p.epochs, p.steps)),
            " ".join(rows.notes(m, cost.step)),
        ]


def _milliseconds(estimate: "Estimate | None") -> str:
    """Seconds as milliseconds; `<` and the upper end of the interval where it includes zero, a dash for None."""
    from analysis import numbers

    if not estimate:
        return "-"
    end = numbers.less_than(estimate)
    return number(estimate.value * 1e3) if end is None else f"<{number(end * 1e3)}"
