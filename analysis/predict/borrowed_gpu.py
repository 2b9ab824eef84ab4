"""Predictions for a stored GPU driven by this machine's host: the host's parts are scaled by measured overheads."""

import statistics

import msgspec

from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.predict.step_parts import COPYING, DEVICE, HIDDEN
from analysis.predict.step_time import overlap_on_gpu
from analysis.stats import Estimate, covering, exact, total
from analysis.units import join

_HOST_CONSTANTS = ("keras-step", "tf-function-call", "tf-op-in-function", "keras-epoch", "tf-op-eager")
# Parts of a step that do not depend on the host.
_NOT_THE_HOSTS = {*DEVICE, *COPYING}


def host_factor(here: Profile, stored: Profile) -> Estimate | None:
    """How many times as long this machine's host (`here`) takes for framework overhead as the host of a stored GPU: the geometric
    mean of the ratios of the overhead constants that both have, with the smallest and the largest as interval. None without a
    common one."""
    ratios = []
    for name in _HOST_CONSTANTS:
        here_s = here.constant(name, "cpu")
        stored_s = stored.constant(name, "cpu")
        if here_s and stored_s and here_s.value > 0 and stored_s.value > 0:
            ratios.append(here_s.value / stored_s.value)
    if not ratios:
        return None
    return covering(statistics.geometric_mean(ratios), *ratios)


def start_factor(here: Profile, stored: Profile) -> Estimate | None:
    """The ratio of the seconds of importing TensorFlow, here over the stored machine; the import is most of a start-up. None
    unless it was measured on both."""
    here_s = _import_s(here)
    stored_s = _import_s(stored)
    if here_s is None or stored_s is None:
        return None
    return here_s / stored_s


def _import_s(profile: Profile) -> Estimate | None:
    """Seconds of importing the library in CPU trainings: the median, from the shortest to the longest; None if none measured
    it."""
    seconds = []
    for training in profile.trainings:
        if not training.on_gpu and "import" in training.phases_s:
            seconds.append(training.phases_s["import"])
    if not seconds:
        return None
    return covering(statistics.median(seconds), *seconds)


def rescaled(prediction: Prediction, factor: Estimate, start: Estimate | None = None) -> Prediction:
    """A prediction for a stored GPU, as if this machine's host drove it. Seconds of the host are multiplied by `factor`, start-up
    by `start` (None: by `factor`); seconds of the device and of copies stay. What overlaps is computed again."""
    parts = {}
    for name, seconds in prediction.parts.items():
        if name != HIDDEN:
            parts[name] = seconds if name in _NOT_THE_HOSTS else seconds * factor
    host_waits = prediction.settings.keras.residence != "prefetch"
    overlap = overlap_on_gpu(parts, host_waits=host_waits)
    if overlap:
        parts[HIDDEN] = exact(overlap)
    return msgspec.structs.replace(
        prediction,
        parts=parts,
        step_s=_as_wide(total(parts.values()), prediction.step_s),
        start_s=prediction.start_s * (start or factor),
        epoch_s=prediction.epoch_s * factor,
        fit_s=prediction.fit_s * factor,
        setup_s=prediction.setup_s * factor,
        compile_s=prediction.compile_s * factor,
    )


def _as_wide(seconds: Estimate, other: Estimate) -> Estimate:
    """`seconds` with an interval that is at least as wide as that of `other`, relative to the value."""
    if other.value <= 0:
        return seconds
    low = seconds.value * (other.low / other.value)
    high = seconds.value * (other.high / other.value)
    bounds = (seconds.low, seconds.high, low, high)
    return covering(seconds.value, *bounds)


def completed(
    prediction: Prediction, stored: Prediction, factor: Estimate, start: Estimate | None = None
) -> Prediction:
    """A prediction for this machine's CPU, with start-up, compilation or epoch that were not measured here taken from `stored`,
    the same prediction on a stored machine's CPU. They are multiplied by `factor` (start-up by `start`), and uncertain by a
    factor of 2."""
    factors = {"start_s": start or factor, "compile_s": factor, "epoch_s": factor}
    taken = {}
    for name, scale in factors.items():
        is_unknown = getattr(prediction, name).high <= 0
        stored_s = getattr(stored, name)
        if is_unknown and stored_s.high > 0:
            seconds = stored_s * scale
            taken[name] = Estimate(seconds.value, seconds.low / 2, seconds.high * 2)
    if not taken:
        return prediction
    words = f"{join(prediction.unmeasured)} on this CPU: taken as {stored.profile}'s CPU has it"
    return msgspec.structs.replace(prediction, **taken, partial=(*prediction.partial, words))
