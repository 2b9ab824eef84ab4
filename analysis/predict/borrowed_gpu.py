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
    """The ratio of framework overhead, this machine's host over the stored one's: the geometric mean over the constants that
    both have, its interval from the smallest ratio to the largest; None without a common constant."""
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
    """The ratio of the median import times in CPU trainings, most of a start-up; None if it was not measured on both."""
    here_s = _import_s(here)
    stored_s = _import_s(stored)
    if here_s is None or stored_s is None:
        return None
    return here_s / stored_s


def _import_s(profile: Profile) -> Estimate | None:
    """Seconds of the import in CPU trainings, from the shortest to the longest; None where none measured it."""
    seconds = []
    for training in profile.trainings:
        if not training.on_gpu and "import" in training.phases_s:
            seconds.append(training.phases_s["import"])
    if not seconds:
        return None
    return covering(statistics.median(seconds), *seconds)


def rescaled(prediction: Prediction, factor: Estimate, start: Estimate | None = None) -> Prediction:
    """A prediction of a stored GPU, rescaled to this machine's host. The host's seconds are multiplied by `factor`, start-up by
    `start` if it is known. Seconds of the device and the link stay. The overlap is computed again."""
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
    """Seconds whose interval is widened to at least another's, in proportion."""
    if other.value <= 0:
        return seconds
    low = seconds.value * (other.low / other.value)
    high = seconds.value * (other.high / other.value)
    bounds = (seconds.low, seconds.high, low, high)
    return covering(seconds.value, *bounds)


def completed(
    prediction: Prediction, stored: Prediction, factor: Estimate, start: Estimate | None = None
) -> Prediction:
    """A prediction of this machine's CPU whose unknown parts are taken from the stored machine's CPU and scaled to this host.
    The interval of these parts is widened by a factor of 2 either way."""
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
