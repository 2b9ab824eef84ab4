"""The measurement that would narrow a predicted time most, where its interval is too wide to tell a winner."""

import math

import msgspec

from analysis.explain import measure
from analysis.explain.explanation import Explanation
from analysis.explain.measure import MeasurablePart
from analysis.explain.request import GPU
from analysis.explain.sides import Side
from analysis.predict.curves import UNLIKE
from analysis.predict.prediction import Prediction
from analysis.predict.step_parts import DEVICE, ISSUING, total_of
from analysis.stats import MOST_UNSURE, Estimate, independent_sum
from workloads.records import settings

#: What the interval of a step has beyond the rows of its parts: the errors of such predictions, and work that no row is of.
WHOLE_STEP = "step"
# Part of a step -> the operations that measure.operations has rows of.
_OPERATIONS = {
    "matmul": "matmul",
    "conv": "conv",
    "element-wise": "stream",
    "optimizer": "stream",
    "transfer calls": "transfer",
    "transfer bytes": "transfer",
}


class Narrowing(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement that would narrow a device's predicted time most."""

    #: cpu or gpu:0.
    device: str
    #: The upper end of the whole training's seconds over the lower end; infinite where that is 0.
    factor: float
    #: The part with the widest interval: one of a step, one of the whole training, or WHOLE_STEP.
    widest: str
    #: What measures it.
    measurement: MeasurablePart


def narrowest(explanation: Explanation) -> Narrowing | None:
    """The measurement that would narrow the less certain of the predicted times most. None where a device is named as the
    winner, and where no predicted time of this machine's devices is uncertain by more than a factor of MOST_UNSURE.
    """
    if explanation.likely_winner != "neither":
        return None
    predictions = {prediction.settings.device: prediction for prediction in explanation.predictions}
    unsure = [
        side
        for side in explanation.sides
        if side.cost.source == "predicted"
        and _factor(side.whole) > MOST_UNSURE
        and not (side.device == GPU and explanation.borrowed)
    ]
    if not unsure:
        return None
    side = max(unsure, key=lambda one: _factor(one.whole))
    widths = part_widths(side, predictions[side.device])
    widest = max(widths, key=lambda name: widths[name])
    return Narrowing(
        device=side.device,
        factor=_factor(side.whole),
        widest=widest,
        measurement=_measurement(widest, side, explanation),
    )


def _factor(whole: Estimate) -> float:
    return whole.high / whole.low if whole.low > 0 else math.inf


def part_widths(side: Side, prediction: Prediction) -> dict[str, float]:
    """Part -> the width of its interval, in seconds of the whole training. The parts are those of the training, but for its
    steps, and those of a step. WHOLE_STEP has what a step's interval is wider than its parts make it.
    """
    steps = side.training.steps * side.training.epochs
    widths = {}
    for name, part in side.parts.items():
        if name != "steps":
            widths[name] = _width(part)
    for name, part in prediction.parts.items():
        widths[name] = steps * _width(part)
    beyond_rows = _width(prediction.step_s) - _width(independent_sum(prediction.parts.values()))
    widths[WHOLE_STEP] = steps * max(beyond_rows, _rough_width(prediction))
    return widths


def _width(seconds: Estimate) -> float:
    return seconds.high - seconds.low


def _rough_width(prediction: Prediction) -> float:
    """The width of the interval, in seconds of a step, of work that was priced by rows of other kinds of work: such a price is
    right within a factor of UNLIKE.
    """
    if prediction.rough is None:
        return 0.0
    rough_s = prediction.rough.share * total_of(prediction.parts, DEVICE).value
    return rough_s * (UNLIKE - 1 / UNLIKE)


def _measurement(part: str, side: Side, explanation: Explanation) -> MeasurablePart:
    """The measurement of a part (see part_widths): of dispatch, or of single operations of the step. Where neither tells the
    part (it is start-up, compilation or WHOLE_STEP, or the model is a user's own), that of the training's own step.
    """
    request = explanation.request
    if part in ISSUING and part not in _OPERATIONS:
        return measure.dispatch(side.device)
    operation = _OPERATIONS.get(part)
    if operation and not settings.is_user_model(request.training.model):
        machine = explanation.sources.cpu.machine
        operations = measure.operations(request, side.device, machine)
        if operation in operations:
            return operations[operation]
    return measure.step(request, side.device, side)
