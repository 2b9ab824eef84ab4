"""All that is behind an explanation's twelve lines: the whole training and a step in parts, crossovers, memory, cost, changes."""

from analysis.explain import sides
from analysis.explain.explanation import Explanation
from analysis.predict.memory import Memory
from analysis.predict.what_if import WhatIf
from analysis.stats import Estimate
from analysis.table import Table
from analysis.text import sentences as say
from analysis.text.explanation import PARTS, change_words, percent, price
from analysis.text.published import gain_words
from analysis.units import size
from workloads import terminal
from workloads.records import Machine, Measurement

Section = tuple[str, "list[str | Table]"]
STORED_GPU = "--gpu-profile reports/nvidia-h200"
SAID = {
    "used": "On {where} TensorFlow used the GPU in {rows:,} rows, {trained:,} of them trainings.",
    "refused": "On {where} TensorFlow did not use the GPU: {reason}.",
    "unseen": "{where} has a GPU; python -m workloads.doctor says whether TensorFlow sees it.",
    "no gpu": "On {where} no GPU was measured; {flag} sets a stored one beside it.",
    "memory": "The {name} holds about {peak} at its peak.",
    "fits": "The largest batch that fits into its {capacity} is about {batch}.",
    "all fit": "Its {capacity} hold all {samples:,} samples as one batch.",
    "no fit": "Not even a batch of 1 fits into its {capacity}.",
    "energy": "On the {name} it takes about {kwh} kWh.",
    "at once": "{k} trainings of {model} at once make {gain} as many steps a second.",
    "host": "What the host does for the GPU takes {factor} as long here as there.",
    "no host": "What the host does for the GPU is taken as it was there: no call was measured on both.",
    "other gpu": "Your own GPU will differ from the stored {gpu}.",
    "missing": "Missing of {text}.",
    "partial": "Not known: {text}.",
}


def sections(e: Explanation, framework: str) -> list[Section]:
    """Titles and what stands under them; what rests on withheld seconds is left out."""
    told = e.told()
    return [
        ("The whole training, in seconds", [_whole(e)] if e.sides else []),
        ("A step, predicted", [_step(told)] if told.predictions else []),
        ("Where the winner changes", [f"By {a.form.mode}: {s}" for a in told.crossovers for s in crossing(a)]),
        ("What changes would save", [_changes(told)] if told.what_ifs else []),
        ("Memory and cost", [*map(memory_sentence, e.memory, [e] * len(e.memory)), *price(told), *_energy(told)]),
        ("Does the framework use the GPU?", [framework, *_together(told)]),
        ("What this does not know", [*caveats(e)]),
    ]


def lines(found: list[Section]) -> list[str]:
    """The sections for a terminal: a blank line, the title and its lines; nothing of an empty one."""
    said: list[str] = []
    most = max(0, terminal.width() - 2)
    for title, parts in found:
        if parts:
            said += ["", title, *(f"  {s}" for p in parts for s in ([p] if isinstance(p, str) else p.text(most)))]
    return said


def crossing(a) -> list[str]:
    """A predicted crossover by its likeliest values."""
    return say.crossover(a, source=say.PREDICTED)


def _whole(e: Explanation) -> Table:
    names = list(e.sides[0].parts)
    rows = [[name, *(_bounded(s.parts[name], s, name) for s in e.sides)] for name in names]
    rows.append(["in all", *(say.timed(s.whole) for s in e.sides)])
    rows.append(["a step", *(_at_most(s.cost.bound, s.cost.step) for s in e.sides)])
    return Table(["part", *(f"{s.name}, {s.cost.source}" for s in e.sides)], rows)


def _bounded(part: Estimate, side: sides.Side, name: str) -> str:
    """A part's seconds; what no row tells is not nothing."""
    unknown = part.high <= 0 and any(word in name for word in ("start-up", "epoch")) and side.unknown
    return "not known" if unknown else say.timed(part.at_least(0.0))


def _step(e: Explanation) -> Table:
    """The step in parts that add up, what was measured, and what the prediction does not explain of it."""
    names = [n for n in PARTS if any(n in p.parts for p in e.predictions)]
    rows = [[PARTS[n], *(_part(p.parts.get(n), p.step_s.value) for p in e.predictions)] for n in names]
    rows.append(["in all", *(say.timed(p.step_s) for p in e.predictions)])
    if e.measured:
        each = [(e.measured.get(p.settings.device), p.step_s.value) for p in e.predictions]
        rows.append(
            ["measured", *(_at_most(c.bound, c.step_bound if c.bound else c.step) if c else "-" for c, _ in each)]
        )
        rows.append(["measured less predicted", *(_signed(c.step.value - s, s) if c else "-" for c, s in each)])
    heads = [f"{'CPU' if p.settings.device == 'cpu' else 'GPU'}, {p.execution}" for p in e.predictions]
    return Table(["part of a step", *heads], rows)


def _at_most(bound: bool, step: Estimate) -> str:
    """A step; of short fits an upper bound."""
    return f"at most {say.time(step)}" if bound else say.timed(step)


def _part(part: Estimate | None, step: float) -> str:
    return _signed(part.value, step) if part else "-"


def _signed(seconds: float, whole: float) -> str:
    """`-450 µs (-16 %)`."""
    sign = "-" * (seconds < 0)
    return f"{sign}{say.time(abs(seconds))} ({sign}{percent(abs(seconds) / whole)})"


def _changes(e: Explanation) -> Table:
    rows = [[*change_words(w.change, e)[:1], _saved(w), change_words(w.change, e)[1] or "-"] for w in e.what_ifs]
    return Table("change | saves of the whole | besides", rows, left=1, last=True)


def _saved(w: WhatIf) -> str:
    if w.job_saved is None:
        return "not known"
    e = w.job_saved
    if e.value < 0:
        return f"costs {say.time(-e.value)}"
    return say.timed(e) if e.low > 0 else f"perhaps {say.time(e)}"


def memory_sentence(m: Memory, e: Explanation) -> str:
    """Bytes at the peak, and the largest batch that fits."""
    said = SAID["memory"].format(name="CPU" if m.device == "cpu" else "GPU", peak=size(m.peak.value))
    if m.largest_batch is None or m.capacity is None:
        return said
    samples, capacity = e.asked.training.samples, size(m.capacity)
    kind = "no fit" if m.largest_batch.value < 1 else "all fit" if m.largest_batch.low > samples else "fits"
    batch = say.number(m.largest_batch.value, most=2)
    return f"{said} {SAID[kind].format(capacity=capacity, batch=batch, samples=samples)}"


def _energy(e: Explanation) -> list[str]:
    names = {"cpu": "CPU"}
    return [
        SAID["energy"].format(name=names.get(c.device, "GPU"), kwh=say.number(c.joules / 3.6e6))
        for c in e.costs
        if c.joules
    ]


def _together(e: Explanation) -> list[str]:
    return [SAID["at once"].format(k=k, model=say.title(model), gain=say.factor(gain)) for model, k, gain in e.at_once]


def seen(measurements: tuple[Measurement, ...], machine: Machine | None, where: str) -> str:
    """Whether the framework saw the GPU and used it, as far as the rows of the machine `where` can say."""
    rows = [m for m in measurements if m.on_gpu and _of_tensorflow(m)]
    used = [m for m in rows if m.ok]
    if used:
        trained = sum(m.problem.op == "training" for m in used)
        return SAID["used"].format(where=where, rows=len(used), trained=trained)
    if refused := next((m for m in rows if m.status == "failed"), None):
        return SAID["refused"].format(where=where, reason=refused.reason)
    key = "unseen" if machine and machine.gpus else "no gpu"
    return SAID[key].format(where=where, flag=STORED_GPU)


def _of_tensorflow(m: Measurement) -> bool:
    return "tensorflow" in (m.backend, m.keras.keras_backend if m.backend == "keras" else "")


def caveats(e: Explanation) -> list[str]:
    """What the answer does not know or borrows."""
    found = [SAID["partial"].format(text=text.rstrip(".")) for text in e.partial]
    if e.borrowed:
        factor = e.host_factor
        found.append(SAID["host"].format(factor=gain_words(factor)) if factor else SAID["no host"])
        found.append(SAID["other gpu"].format(gpu=e.borrowed))
    return found + [SAID["missing"].format(text=text.rstrip(".")) for text in e.lacks]
