"""An Explanation in words, for a newcomer: short sentences, numbers with units."""

import math
import shlex

import msgspec

from analysis.crossover import crossover
from analysis.crossover.crossover import Answer, Crossing, Side
from analysis.explain.explanation import Explanation, job_s
from analysis.predict.memory import Memory
from analysis.predict.prediction import Prediction
from analysis.predict.step_work import UnknownShare
from analysis.predict.what_if import WhatIf
from analysis.stats import exact, faster, group_by
from analysis.text.explanation_tables import LITTLE, PARTS, budget_lines, device_words, what_if_lines
from analysis.text.training import step_words
from analysis.training.costs import whole_training
from analysis.training.price import Cost
from analysis.units import about, count, digits, join, percent, seconds, size, times
from kernels import networks
from workloads import options
from workloads.records import Machine, Measurement

STORED_GPU = "--gpu-profile reports/nvidia-h200"


def subject(e: Explanation) -> str:
    """`mnist-cnn (S2): batch 32, 60,000 samples, 5 epochs, float32 inputs`."""
    t, network = e.asked.training, networks.known(e.asked.training.model)
    seed = f" ({network.seed})" if network and network.seed else ""
    more = [f"validated on {e.asked.validation:,} samples"] if e.asked.validation else []
    sizes = [f"{t.model}{seed}: batch {t.batch:,}", f"{t.samples:,} samples", count(t.epochs, "epoch")]
    return ", ".join([*sizes, f"{t.dtype} inputs", *more])


def seen(measurements: "tuple[Measurement, ...]", machine: "Machine | None", where: str) -> str:
    """Whether the framework saw the GPU and used it, as far as the rows of the machine `where` can say."""
    rows = [m for m in measurements if m.on_gpu and _of_tensorflow(m)]
    used = [m for m in rows if m.ok]
    if used:
        trained = sum(m.problem.op == "training" for m in used)
        built = next((m.notes["cuda"] for m in used if "cuda" in m.notes), "")
        checked = f", {trained:,} of them trainings with their weights on it" if trained else ""
        said = f"On {where} TensorFlow saw the GPU and used it in {count(len(used), 'measurement')}{checked}"
        return f"{said}; TensorFlow is {built}." if built else f"{said}."
    if refused := next((m for m in rows if m.status == "failed"), None):
        return f"On {where} TensorFlow did not use the GPU: {refused.reason}."
    if machine and machine.gpus:
        return (
            f"{where} has a GPU ({machine.gpus[0].name}), but whether TensorFlow sees it was not measured; "
            "python -m workloads.doctor says so."
        )
    return (
        f"On {where} no GPU was measured: all of this is about its CPU (python -m workloads.doctor says what it sees; "
        f"{STORED_GPU} sets a stored GPU beside it)."
    )


def _of_tensorflow(m: "Measurement") -> bool:
    """Whether TensorFlow did what was measured, by itself or below Keras."""
    library, below = m.backend, m.keras.keras_backend
    return "tensorflow" in (library, below if library == "keras" else "")


def verdict(e: Explanation) -> list[str]:
    """Five sentences at most: who wins, why, where it turns, when the GPU pays back its start, what helps most. The first says
    which layers are only estimated; where these are most of the arithmetic it stands alone, and no time is told."""
    unknown = e.asked.unknown_share
    if unknown and e.withheld:
        return [_withheld(e, unknown)]
    first, *rest = _told(e)
    if unknown:
        first = (
            f"{first.removesuffix('.')}; partial: of {unknown.names}, about {percent(unknown.arithmetic)} of a step's "
            "arithmetic, nothing is known here and all is estimated."
        )
    return [first, *rest]


def _withheld(e: Explanation, unknown: "UnknownShare") -> str:
    """Why no time is told, what was measured, and what would measure it."""
    each = [f"{step_words(cost)} on the {'CPU' if device == 'cpu' else 'GPU'}" for device, cost in e.measured.items()]
    beside = f" Measured, a step takes {join(each)}." if each else ""
    t = e.asked.training
    words = ["--model", t.model, "--batch", str(t.batch), "--samples", str(t.samples), "--epochs", str(t.epochs)]
    command = shlex.join(
        ["python", "-m", "workloads.training", *words, *(["--dtypes", t.dtype] * (t.dtype != "float32"))]
    )
    return (
        f"Partial: which device wins, and in what time, is not told, for nothing here knows {unknown.names}, about "
        f"{percent(unknown.arithmetic)} of a step's arithmetic.{beside} To measure it: {options.typed(command)}"
    )


def _told(e: Explanation) -> list[str]:
    if not (e.cpu and e.gpu):
        (only,) = e.sides
        beside = f", and {join(only.untold)}, which no row tells" if only.untold else ""
        told = [
            f"Only {device_words(only)} could be predicted: a step takes {about(only.step_s)}, the whole job "
            f"{about(job_s(e, only))}{beside}.",
            _largest(e),
        ]
        return [*told, *_best(e)]
    return [_winner(e), _largest(e), *_turns(e), _pays(e), *_best(e)][:5]


def _winner(e: Explanation) -> str:
    if untold := tuple(dict.fromkeys(name for p in e.sides for name in p.untold)):
        return _winner_of_steps(e, untold)
    cpu_side, gpu_side = e.sides
    cpu, gpu = job_s(e, cpu_side), job_s(e, gpu_side)
    word, likelier = faster(cpu, gpu), "gpu" if gpu.value < cpu.value else "cpu"
    step = cpu_side.step_s.value / gpu_side.step_s.value
    ratio = max(cpu.value / gpu.value, gpu.value / cpu.value)
    sure = f"The {likelier.upper()} finishes first, {times(ratio)} as fast"
    close = f"It is too close to be sure, but likely the {likelier.upper()} finishes first, {times(ratio)} as fast"
    turned = (
        f" (by the step alone the {'GPU' if step > 1 else 'CPU'} is ahead)" if (step > 1) != (likelier == "gpu") else ""
    )
    by_step = (
        f"a step takes {seconds(gpu_side.step_s.value)} on the GPU and {seconds(cpu_side.step_s.value)} on the CPU"
    )
    whole = f"the whole job {about(gpu)} and {about(cpu)}, start-up and compilation included"
    return f"{close if word == 'neither' else sure}{turned}: {by_step}; {whole}."


def _winner_of_steps(e: Explanation, untold: tuple[str, ...]) -> str:
    """Who is faster by the step, where what a job takes beside its steps is not measured of both."""
    cpu, gpu = (p.step_s for p in e.sides)
    word = faster(cpu, gpu)
    close = "It is too close to tell which is faster by the step"
    who = close if word == "neither" else f"By the step the {word.upper()} is faster"
    return (
        f"{who}: {about(gpu)} on the GPU and {about(cpu)} on the CPU. Who finishes a whole job first cannot be told: "
        f"{join(untold)} was not measured."
    )


def largest(p: "Prediction") -> tuple[str, float]:
    """(the largest part of a step, its share of the step)."""
    name = max((n for n in p.parts if n != "at the same time"), key=lambda n: p.parts[n].value)
    return name, p.parts[name].value / p.step_s.value


def _largest(e: Explanation) -> str:
    """The largest part of a step on each device, in one sentence."""
    told = []
    for p in reversed(e.sides):
        name, share = largest(p)
        how = "compiled by XLA" if p.execution == "compiled" else "operation by operation"
        amount = f"{seconds(p.parts[name].value)}, {percent(min(share, 1.0))} of it"
        told.append(f"{PARTS.get(name, name)} on {device_words(p)} ({how}; {amount})")
    return f"The largest part of a step is {join(told)}."


def _turns(e: Explanation) -> list[str]:
    wanted = e.asked.varies or ("batch" if e.asked.training.batch < e.asked.training.samples else "samples")
    found = next((a for a in e.crossovers if a.family.varies == wanted), None)
    return [answer_sentence(found)] if found else []


def answer_sentence(a: Answer) -> str:
    """A predicted crossover by its likeliest values, and where the intervals leave it open: `By a step, the GPU wins from
    batch = 24 on (too close to tell at batch 16 to 64; predicted over batch 1 to 1,024).`"""
    name = a.family.varies
    bands = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in a.bands]
    close = f"too close to be sure at {name} {join(bands)}; " if bands and not unsure(a) else ""
    return f"By {a.form.mode}, {_wins(a)} ({close}predicted over {name} {a.low_n:,} to {a.high_n:,})."


def unsure(a: Answer) -> bool:
    """Whether no size has a winner that is sure."""
    return a.bands == ((a.low_n, a.high_n),)


def _wins(a: Answer) -> str:
    """Who wins where, by the likeliest values; turns that lie in one band are one, or none where the winner is the same after
    them."""
    name, ends = a.family.varies, ["GPU" if p.ratio.value > 1 else "CPU" for p in (a.points[0], a.points[-1])]
    each = f"number of {name}" if name == "samples" else name
    if unsure(a):
        likelier = (
            ends[0] if ends[0] == ends[1] else f"{ends[0]} at {name} = {a.low_n:,} and the {ends[1]} at {a.high_n:,}"
        )
        return f"no winner can be told at any {each} looked at; likelier is the {likelier}"
    turns = _turned(a)
    if not turns:
        return f"the {ends[0]} {'likely ' * bool(a.bands)}wins at every {each} looked at"
    if len(turns) == 1 and ends[0] == "CPU":
        return f"the GPU wins from {turns[0][0]} on"
    likely = "likely " * (a.points[0].sign == 0)
    return f"the {ends[0]} {likely}wins at {name} = {a.low_n:,}, {join(f'from {at} the {to}' for at, to in turns)}"


def _turned(a: Answer) -> list[tuple[str, str]]:
    """(where, the device that wins from there) of each turn of the likeliest values; of several in one band it is somewhere
    between the first and the last."""

    def band(c: Crossing) -> tuple[int, int]:
        return next((b for b in a.bands if c.below <= b[1] and b[0] <= c.above), (c.below, c.above))

    made = []
    for found in (f for f in group_by(likeliest(a).crossings, band).values() if len(f) % 2):
        first, last = (_at(c.at.value) for c in (found[0], found[-1]))
        between, beyond = ("somewhere between ", f" and {last}") if len(found) > 1 else ("", "")
        made.append((f"{between}{a.family.varies} = {first}{beyond}", found[0].to.upper()))
    return made


def _at(size_: float) -> str:
    return f"{math.ceil(size_ - 1e-9):,}" if size_ < 100 else f"{float(f'{size_:.2g}'):,.0f}"


def likeliest(a: Answer) -> Answer:
    """The same answer if every prediction's value were certain."""
    points = [msgspec.structs.replace(p, cpu=_certain(p.cpu), gpu=_certain(p.gpu)) for p in a.points]
    return crossover.classify(a.precision, a.form, points, family=a.family)


def _certain(side: Side) -> Side:
    return msgspec.structs.replace(side, seconds=exact(side.seconds.value))


def _pays(e: Explanation) -> str:
    cpu, gpu = e.sides
    later = _begin(gpu) - _begin(cpu)
    begins = f"The GPU's job begins {seconds(abs(later))} {'later' if later > 0 else 'earlier'}"
    if e.break_even is None:
        return f"{begins} and its epochs are no shorter: it never catches up."
    if math.isinf(e.break_even.value):
        earliest = f"after {digits(e.break_even.low)} epochs" if e.break_even.low else "from the first epoch"
        return (
            f"{begins}, and whether its epochs are shorter cannot be told: it is ahead {earliest} at the earliest, or never; "
            f"this job has {e.asked.training.epochs:,}."
        )
    if e.break_even.value == 0:
        return "The GPU's job begins no later than the CPU's, so it is ahead from the first epoch."
    far = (
        f"{digits(e.break_even.low)} to {digits(e.break_even.high)}"
        if math.isfinite(e.break_even.high)
        else f"{digits(e.break_even.low)} or more"
    )
    return (
        f"The GPU's job begins {seconds(later)} later (start-up and compilation), which it has paid back after "
        f"{digits(e.break_even.value)} epochs ({far}); this job has {e.asked.training.epochs:,}."
    )


def _begin(p: "Prediction") -> float:
    return whole_training(p.cost, 0, p.training.steps).value


def _best(e: Explanation) -> list[str]:
    """What helps most without changing what is learned, and what a larger batch would do."""
    whole_job = job_s(e, e.sides[-1]).value
    helping = [w for w in e.what_ifs if w.job_saved and w.job_saved.value > LITTLE * whole_job]
    best = next((w for w in helping if not w.change.learns), None)
    larger = next((w for w in helping if w.change.learns), None)
    if best is None:
        first = "Nothing looked at would help much without changing what is learned"
    else:
        sure = "" if best.helps else ", though that cannot be told from nothing"
        first = f"What would help most: {best.change.words}: {_of_job(best, whole_job)}{sure}"
    return [
        f"{first}; {larger.change.words} would save {_of_job(larger, whole_job)}, but changes what is learned."
        if larger
        else f"{first}."
    ]


def _of_job(w: "WhatIf", whole_job: float) -> str:
    saved = w.job_saved.value if w.job_saved else 0.0
    return f"{seconds(saved)} of the {seconds(whole_job)} ({percent(saved / whole_job)})"


def memory_sentence(m: Memory, samples: int) -> str:
    where = "the CPU" if m.device == "cpu" else "the GPU"
    said = f"On {where} it holds about {about(m.peak, size)} at its peak, {m.source}"
    if m.largest_batch is None or m.capacity is None:
        return f"{said}; how much memory {where} has is not known."
    fits = m.largest_batch.value
    if fits < 1:
        return f"{said}: not even a batch of 1 fits into the {size(m.capacity)} of {where}."
    if m.largest_batch.low > samples:
        return f"{said}; {where} has {size(m.capacity)}, so all {samples:,} samples would fit even as one batch."
    return (
        f"{said}; {where} has {size(m.capacity)}, so the largest batch that fits is about {_at(fits)} "
        f"({_at(m.largest_batch.low)} to {_at(m.largest_batch.high)})."
    )


def cost_sentence(c: Cost) -> str:
    where = "the CPU" if c.device == "cpu" else "the GPU"
    flag = "--price-cpu" if c.device == "cpu" else "--price-gpu"
    money = (
        f"costs {digits(c.money.value)} ({digits(c.money.low)} to {digits(c.money.high)})"
        if c.money
        else f"has no price here ({flag} PER_HOUR)"
    )
    power = (
        f"and takes {digits(c.joules.value)} J ({digits(c.joules.value / 3.6e6)} kWh; power as in the {c.watts_from})"
        if c.joules
        else "and its energy is not known: no row has its power"
    )
    return f"The job on {where} {money}, {power}."


def caveats(e: Explanation) -> list[str]:
    """What the answer does not know or borrows."""
    found = [f"Partial: {text}." for text in e.partial]
    if e.borrowed:
        f = e.host_factor
        scaled = (
            f"what the host does for it is taken as {digits(f.value)} ({digits(f.low)} to {digits(f.high)}) "
            f"times as long as "
            "there, as this machine's calls are"
            if f
            else "its host's times are taken as they are there: no call was measured on both"
        )
        found.append(
            f"The GPU is not of this machine: its times are those stored of {e.borrowed}; {scaled}; copies "
            "are its link's. Your own GPU will differ: a data-center GPU such as an H200 is not a "
            "laptop's, whose arithmetic and memory can be ten times slower."
        )
    found += [f"Missing: {text}." for text in e.lacks]
    if not e.gpu and not e.lacks:
        found.append(f"These rows are of no GPU; {STORED_GPU} takes one that was measured elsewhere.")
    return found


Section = tuple[str, list[str]]


def lines(
    e: Explanation, framework: str, more: tuple[Section, ...] = (), checked: list[str] | None = None
) -> list[str]:
    """The whole answer, in order; `more` are a case's sections, that go after the verdict; `checked` what people believe. What
    rests on a step's time is left out where most of its arithmetic is unknown."""
    timed = not e.withheld
    turns = [*map(answer_sentence, e.crossovers), *([_pays(e)] if e.cpu and e.gpu else [])]
    sections: list[Section] = [
        ("", [subject(e)]),
        ("Does the framework use the GPU?", [framework]),
        ("Verdict", verdict(e)),
        *more,
        ("Where a step's time goes (predicted)", budget_lines(e) * timed),
        ("Where the winner changes", turns * timed),
        ("Memory", [memory_sentence(m, e.asked.training.samples) for m in e.memory]),
        ("Cost of the job", [cost_sentence(c) for c in e.costs] * timed),
        ("What if", what_if_lines(e) * timed),
        ("What people believe, checked", (checked or []) * timed),
        ("What this answer does not know", caveats(e)),
    ]
    return [line for title, text in sections for line in headed(title, text)][1:]


def headed(title: str, text: list[str]) -> list[str]:
    """A blank line, the title, and its lines beneath it; nothing without lines."""
    return ["", *([title] if title else []), *(f"  {line}" if title else line for line in text)] if text else []
