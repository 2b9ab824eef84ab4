"""The tables of an Explanation: a step's parts that add up, side by side, and what each change would save."""

from analysis.explain.explanation import GPU, Explanation, job_s
from analysis.predict.combine import DEVICE
from analysis.predict.prediction import Prediction
from analysis.predict.what_if import WhatIf
from analysis.stats import Estimate
from analysis.text.training import step_words
from analysis.training.costs import TrainingCost
from analysis.units import about, digits, join, percent, seconds, signed

MOST_WHAT_IFS = 8
LITTLE = 0.01  # of the job: what saves less is said to make no difference
_NOTHING = 1e-9  # seconds: less is no part
# Parts of a step as a newcomer can read them.
PARTS = {
    "dispatch": "Python and TensorFlow starting the step",
    "launches": "starting the kernels one by one",
    "transfer calls": "calls that copy the batch to the GPU, whatever its size",
    "transfer bytes": "the bytes of the batch on their way to the GPU",
    "matmul": "arithmetic of the dense layers",
    "conv": "arithmetic of the convolutions",
    "element-wise": "element-wise passes (activations, pooling, loss)",
    "optimizer": "the optimizer's update of the weights",
    "input pipeline": "cutting and shuffling the batches",
    "at the same time": "done at the same time",
}
OVERHEAD = ("dispatch", "launches", "transfer calls")
_SHORT = {"cpu": "the CPU", GPU: "the GPU"}


def device_words(p: "Prediction") -> str:
    return _SHORT.get(p.settings.device, p.settings.device)


def budget_lines(e: Explanation) -> list[str]:
    """The step as parts that add up, a column a device; then what is not a step."""
    names = [n for n in PARTS if any(n in p.parts for p in e.sides)]
    heads = [f"{device_words(p)[4:]}, {p.execution}" for p in e.sides]
    width = max(len(PARTS.get(n, n)) for n in names)
    found = [_row("a step", heads, width)]
    for name in names:
        cells = [_cell(p.parts.get(name), p.step_s.value) for p in e.sides]
        if any(name in p.parts and abs(p.parts[name].value) > _NOTHING for p in e.sides):
            found.append(_row(PARTS.get(name, name), cells, width))
    found.append(_row("a step in all", [about(p.step_s) for p in e.sides], width))
    if e.measured:
        costs = [e.measured.get(p.settings.device) for p in e.sides]
        each = [_beside(c, p.step_s.value) if c else ("-",) * 3 for c, p in zip(costs, e.sides, strict=True)]
        heads = ["measured", "not explained (measured less predicted)", "what is predicted lies"]
        found += [_row(name, list(column), width) for name, column in zip(heads, zip(*each, strict=True), strict=True)]
    t = e.asked.training
    for words, part in (
        (f"steps ({t.steps * t.epochs:,})", lambda p: p.step_s * (t.steps * t.epochs)),
        ("epochs beyond their steps", lambda p: p.epoch_s * t.epochs),
        ("the fit beyond its epochs", lambda p: p.fit_s),
        ("compiling", lambda p: p.compile_s),
        ("import, device start, building", lambda p: p.start_s),
    ):
        found.append(_row(words, [_known(p, part(p)) for p in e.sides], width))
    if e.validation_s:
        found.append(_row("validation", [about(e.validation_s[p.settings.device] * t.epochs) for p in e.sides], width))
    whole = [f"{about(job_s(e, p))}{' and what is not known' if p.untold else ''}" for p in e.sides]
    return [*found, _row("the whole job", whole, width)]


def _beside(cost: TrainingCost, predicted: float) -> tuple[str, str, str]:
    """A measured step, what of it is not explained, and whether the predicted one is within its interval."""
    step = cost.step
    rest = f"{'at most ' * cost.bound}{signed(step.value - predicted)} ({percent(step.value / predicted - 1)})"
    inside = predicted <= step.high and (cost.bound or step.low <= predicted)
    return step_words(cost), rest, f"{'in' if inside else 'out'}side the measured interval"


def _known(p: "Prediction", part: Estimate) -> str:
    """A part of the job; what no row tells is counted as nothing and never is."""
    return "not known" if p.untold and part.high <= 0 else about(part)


def _row(name: str, cells: list[str], width: int) -> str:
    return "  ".join([name.ljust(max(width, 40)), *(c.rjust(30) for c in cells)])


def _cell(part: Estimate | None, step: float) -> str:
    return "-" if part is None else f"{signed(part.value)} ({100 * part.value / step:.1f} %)"


def what_if_lines(e: Explanation) -> list[str]:
    """The changes that save something, ranked; then in one line those that do not, and those that nothing could be said of."""
    whole_job = job_s(e, e.sides[-1]).value
    told = [w for w in e.what_ifs if w.job_saved and w.job_saved.value > LITTLE * whole_job][:MOST_WHAT_IFS]
    found = [f"{i}. {what_if_words(w, whole_job)}" for i, w in enumerate(told, 1)]
    no = [w for w in e.what_ifs if w.job_saved and abs(w.job_saved.value) <= LITTLE * whole_job]
    worse = [w for w in e.what_ifs if w.job_saved and w.job_saved.value < -LITTLE * whole_job]
    if no:
        found.append(f"No difference worth a line: {'; '.join(w.change.words for w in no)}.")
    if worse:
        costs = [f"{w.change.words} (+{seconds(-w.job_saved.value)})" for w in worse if w.job_saved]
        found.append(f"These cost time: {'; '.join(costs)}.")
    found += [f"Not known: {w.change.words}: {w.why}" for w in e.what_ifs if w.job_saved is None]
    if e.gpu:
        found.append(_at_once(e))
    return found


def what_if_words(w: "WhatIf", whole_job: float) -> str:
    if w.job_saved is None or w.step_saved is None:
        return f"{w.change.words}: {w.why}"
    sure = "" if w.helps else ", not told from nothing"
    return (
        f"{w.change.words}: saves {about(w.job_saved)} of the job ({percent(w.job_saved.value / whole_job)}{sure}), "
        f"{signed(w.step_saved.value)} of a step's work" + (f"; {w.change.note}" if w.change.note else "")
    )


def _at_once(e: Explanation) -> str:
    """Several trainings at once: measured ones; else what of the GPU lies idle, which is the most that they could use."""
    if e.at_once:
        told = [
            f"{k} of {model} make {digits(gain.value)} times as many steps a second in all"
            for model, k, gain in e.at_once
        ]
        return f"Several trainings at once on the GPU, measured: {join(told)}."
    busy = device_busy(e.sides[-1])
    return (
        f"Several trainings at once: the GPU computes for {percent(busy)} of a step, so others could use the "
        "rest; what they gain was not measured (python -m workloads.training --study together)."
    )


def device_busy(p: "Prediction") -> float:
    """The share of a step that the device computes."""
    return min(1.0, sum(p.parts[n].value for n in DEVICE if n in p.parts) / p.step_s.value)
