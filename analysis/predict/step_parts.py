"""The parts of a training step: their names, their words for people, and which of them the host does."""

from collections.abc import Iterable

from analysis.stats import Estimate, total

#: The host's parts by which a step is issued.
ISSUING = ("dispatch", "launches", "transfer calls")
COPYING = ("transfer bytes",)
HOST = (*ISSUING, *COPYING)
DEVICE = ("matmul", "conv", "element-wise", "optimizer")
PIPELINE = "input pipeline"
#: The overlap of host, device and input pipeline; negative.
HIDDEN = "at the same time"
#: Part -> its words for people, in the order of a budget.
WORDS = {
    "dispatch": "dispatch",
    "launches": "kernel launches",
    "transfer calls": "copy calls",
    "transfer bytes": "copied bytes",
    "matmul": "dense layers",
    "conv": "convolutions",
    "element-wise": "element-wise passes",
    "optimizer": "optimizer",
    PIPELINE: "input pipeline",
    HIDDEN: "overlap",
}
PARTS = tuple(WORDS)
#: What most of a step is.
OVERHEAD, WORK = "overhead-bound", "work-bound"


def total_of(parts: dict[str, Estimate], names: Iterable[str]) -> Estimate:
    """The summed seconds of the parts with these names; a name that is not among the parts counts as 0."""
    return total(parts.get(name) for name in names)


def bound_of(parts: dict[str, Estimate]) -> str:
    """OVERHEAD if starting and issuing work is more than half of a step with these parts, else WORK."""
    step_s = sum(part.value for part in parts.values())
    return OVERHEAD if total_of(parts, ISSUING).value > step_s / 2 else WORK
