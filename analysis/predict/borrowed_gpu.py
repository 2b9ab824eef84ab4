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


def host_factor(here: "Profile", there: "Profile") -> Estimate | None:
    """The ratio of framework overhead, this machine's host over the stored one's: the geometric mean over the constants that
    both have, its interval from the smallest ratio to the largest; None without a common constant."""
    pairs = [(here.constant(name, "cpu"), there.constant(name, "cpu")) for name in _HOST_CONSTANTS]
    ratios = [a.value / b.value for a, b in pairs if a and b and a.value > 0 and b.value > 0]
    if not ratios:
        return None
    return covering(statistics.geometric_mean(ratios), *ratios)


def start_factor(here: "Profile", there: "Profile") -> Estimate | None:
    """The ratio of the median import times in CPU trainings, most of a start-up; None if it was not measured on both."""
    own = [[m for m in p.trainings if not m.on_gpu and "import" in m.phases_s] for p in (here, there)]
    rows = [[m.phases_s["import"] for m in trainings] for trainings in own]
    a, b = (covering(statistics.median(s), *s) if s else None for s in rows)
    return a / b if a and b else None


def rescaled(made: "Prediction", factor: Estimate, start: Estimate | None = None) -> "Prediction":
    """A prediction of a stored GPU, rescaled to this machine's host. The host's seconds are multiplied by `factor`, start-up by
    `start` if it is known. Seconds of the device and the link stay. The overlap is computed again."""
    kept = {*DEVICE, *COPYING}
    parts = {name: e if name in kept else e * factor for name, e in made.parts.items() if name != HIDDEN}
    ahead = made.settings.keras.residence == "prefetch"
    if hidden := overlap_on_gpu(parts, host_waits=not ahead):
        parts[HIDDEN] = exact(hidden)
    step, before = total(parts.values()), made.step_s
    low, high = (before.low / before.value, before.high / before.value) if before.value > 0 else (1.0, 1.0)
    step = covering(step.value, step.low, step.high, step.value * low, step.value * high)
    grown = {name: getattr(made, name) * factor for name in ("epoch_s", "fit_s", "setup_s", "compile_s")}
    begun = made.start_s * (start or factor)
    return msgspec.structs.replace(made, parts=parts, step_s=step, start_s=begun, **grown)


def completed(
    made: "Prediction", stored: "Prediction", factor: Estimate, start: Estimate | None = None
) -> "Prediction":
    """A prediction of this machine's CPU whose unknown parts are taken from the stored machine's CPU and scaled to this host.
    The interval of these parts is widened by a factor of 2 either way."""
    taken = {}
    for name in ("start_s", "compile_s", "epoch_s"):
        if getattr(made, name).high <= 0 < getattr(stored, name).high:
            e = getattr(stored, name) * ((start or factor) if name == "start_s" else factor)
            taken[name] = Estimate(e.value, e.low / 2, e.high * 2)
    if not taken:
        return made
    words = f"{join(made.unmeasured)} on this CPU: taken as {stored.profile}'s CPU has it"
    return msgspec.structs.replace(made, **taken, partial=(*made.partial, words))
