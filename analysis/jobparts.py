"""Where the seconds of a whole training job go, down to the parts of its steps: start-up, compiling, feeding the fit, then what
the budget of a step says of all steps together. The parts add up; what is not known is a part of its own, signed."""

from typing import TYPE_CHECKING

from analysis import jobs
from analysis.combine import DEVICE, PIPELINE

if TYPE_CHECKING:
    from analysis.budget import Budget
    from analysis.jobs import Device

START, COMPILE, BESIDE = "start-up", "build and compile", "fit and epochs beside their steps"
DISPATCH, CALLS, BYTES, ARITHMETIC = "dispatch", "transfer calls", "bytes", "arithmetic"
REST = "not explained"
PARTS = (START, COMPILE, BESIDE, DISPATCH, CALLS, BYTES, ARITHMETIC, REST)
# The parts of a budget that each stands for.
_OF_STEP = {
    DISPATCH: ("dispatch", "launches", PIPELINE),
    CALLS: ("transfer calls",),
    BYTES: ("transfer bytes",),
    ARITHMETIC: DEVICE,
}


def parts(side: "Device", epochs: int, steps: int, made: "Budget | None") -> dict[str, float]:
    """Seconds of each part of a job of `epochs` epochs of `steps` steps; they add up to jobs.split's total.

    made: the budget of the side's row; without one the steps are not explained.
    """
    by = dict(jobs.split(side, epochs, steps).parts)
    found = {
        START: by["start-up"].value,
        COMPILE: by["build and compile"].value,
        BESIDE: by["per fit"].value + by["per epoch"].value,
    }
    known = {p.name: p.seconds.value for p in made.parts if p.seconds} if made else {}
    for name, own in _OF_STEP.items():
        found[name] = epochs * steps * sum(known.get(part, 0.0) for part in own)
    told = sum(found[name] for name in _OF_STEP)
    return found | {REST: by["per step"].value - told}
