"""Trainings in words: crossovers, break-even, the small-dataset study, the CPU's forms as a trap, where the samples live and what
each option does."""

from collections.abc import Iterable
from statistics import median
from typing import Any

import msgspec

from analysis.crossover.crossover import Answer
from analysis.crossover.families import Family
from analysis.stats import Estimate, group_by
from analysis.text import rates, sentences
from analysis.text.training import loss_sentence, subject, switch_words, way_word, whole_job
from analysis.training import break_even, costs
from analysis.training.break_even import BY_JOB, BY_STEP, Pair, Setup
from analysis.training.costs import TrainingCost, whole_training
from analysis.training.side_by_side import TRIAL, gains, taught, trial_seconds
from analysis.units import count, join
from kernels.problems import Training
from workloads.records import Measurement, settings

_SHOWN = 0.05  # of a whole training: a part worth a sentence
_SAID = {
    "overtaken": "The GPU, which begins sooner, is overtaken after {epochs}.",
    "ahead": "Which device is ahead can't be told.",
    "begins": "{training}: the first epoch begins after {gpu} on the GPU, {cpu} on the CPU.",
    "trap": "{training}: a CPU step takes {best} with the {form}, {worst} with the {trap}. Compare the GPU with the first.",
    "last": "{training}: the last batch has {rest}, so the GPU compiles twice: {time}, {share} of the whole training. "
    "A multiple of the batch saves that.",
    "change": "{training}, on {device}, {what}: a step takes {time} instead of {usual}, {speed}.",
    "way": "{training}, on {device}: a step takes {time} by {way}, the fastest, and {slow} by {slowest}.",
    "start": "{model} on the {device}, {count} fresh processes: {total} until {what}. {share} of it is to {largest}.",
}


def answer_sentence(a: Answer) -> str:
    """Who wins along a size, by what: `CIFAR-10 CNN, whole training of 10 epochs: the GPU wins from 10,700 samples. ...`."""
    job, setup = job_of(a) if a.form.mode == BY_JOB else ("", setup_of(a.family))
    by = f"whole training of {job}" if job else f"by {a.form.mode}"
    return " ".join(sentences.crossover(a, f"{subject(setup, a.family.varies)}, {by}"))


def job_of(a: Answer) -> tuple[str, Setup]:
    """(which whole job an answer is of, its setup without samples that are not the job's)."""
    varies, setup = a.family.varies, setup_of(a.family)
    at = break_even.at(setup, varies, a.low_n)
    if varies == "samples":
        return sentences.counted(break_even.planned(at, varies)[1], "epochs"), setup
    words, named = whole_job(at, varies)
    return words, msgspec.structs.replace(setup, samples=named.samples)


def setup_of(family: "Family") -> Setup:
    """The training that a family of analysis.training.break_even is of; what varies is 0 or a letter in it."""
    fixed = dict(family.fixed)
    own: dict[str, Any] = {name: fixed.pop(name) for name in Setup.__struct_fields__ if name in fixed}
    return Setup(**own, switches=tuple((name, str(value)) for name, value in fixed.items()))


def break_even_sentence(pair: Pair) -> str:
    """When a GPU, which begins later, has caught up."""
    found, sides = pair.break_even, (pair.gpu.cost, pair.opponent.cost)
    gpu, cpu = (whole_training(cost, 0, pair.steps) for cost in sides)
    longer = sides[0].epoch_seconds(pair.steps).value - sides[1].epoch_seconds(pair.steps).value
    begins = {"gpu": sentences.time(gpu), "cpu": sentences.time(cpu)}
    said = sentences.break_even(found)
    if gpu.value < cpu.value and longer > 0:
        epochs = sentences.counted((cpu.value - gpu.value) / longer, "epochs")
        said = _SAID["overtaken"].format(epochs=epochs)
    elif found is not None and found.value == float("inf") and not found.low:
        said = _SAID["ahead"]
    return f"{_SAID['begins'].format(training=subject(pair.setup), **begins)} {said}"


def trap_sentence(pair: Pair) -> str:
    """The CPU's form that is slowest by the step beside its best one; empty where none is known to be slower."""
    best = pair.cpu(BY_STEP)
    traps = [side for side in pair.cpus if _apart(side.cost.step, best.cost.step)]
    if not traps:
        return ""
    worst = max(traps, key=lambda side: side.cost.step.value)
    times = {"best": sentences.time(best.cost.step), "worst": sentences.time(worst.cost.step)}
    return _SAID["trap"].format(training=subject(pair.setup), form=best.form, trap=worst.form, **times)


def _apart(a: Estimate, b: Estimate) -> bool:
    return a.low > b.high or b.low > a.high


def less_than(e: Estimate) -> float | None:
    """What a part is less than that may be nothing: the upper end of an interval that holds 0 far from its end; else None."""
    return max(0.0, e.high) if e.low < 0 and e.value <= e.high / 2 else None


class Small(msgspec.Struct, frozen=True):
    """The small-dataset study, training half: one training at growing samples, the rest fixed."""

    fixed: Setup
    pairs: tuple[Pair, ...]


def small_datasets(made: Iterable[Pair]) -> list[Small]:
    """Trainings that ran with at least three sample counts, Keras's own first."""
    groups: dict[Setup, dict[int, Pair]] = {}
    for pair in made:
        if not set(dict(pair.setup.switches)) - {"residence"} and (at := break_even.size_of(pair.setup, "samples")):
            groups.setdefault(at[1], {})[at[0]] = pair
    found = [
        Small(fixed, tuple(p for _, p in sorted(sizes.items()))) for fixed, sizes in groups.items() if len(sizes) > 2
    ]
    return sorted(found, key=lambda small: not small.fixed.kernel.endswith("/fit"))


def last_batch_sentence(pair: Pair) -> str:
    """What compiling once more for the smaller batch that ends an epoch takes of the GPU's job; "" where it is little."""
    setup, once = pair.setup, costs.phase(pair.gpu.row, "compile_last")
    job = whole_training(pair.gpu.cost, break_even.planned(setup, "samples")[1], pair.steps)
    if once is None or not setup.samples % setup.batch or once.value < _SHOWN * job.value:
        return ""
    words = {"rest": sentences.counted(setup.samples % setup.batch, "samples"), "time": sentences.time(once)}
    share = sentences.share(once.value / job.value)
    return _SAID["last"].format(training=subject(setup), share=share, **words)


def changes(measurements: "Iterable[Measurement]") -> list[tuple[str, str, str, Estimate, Estimate]]:
    """(training, device, what was changed, its step, the plain row's step) for each row that differs from a plain one in
    where the samples live, in one switch, in its type or in its threads."""
    rows = break_even.trainings(measurements)
    plain = {
        (m.kernel, m.problem.model, m.problem.batch, m.problem.samples, m.problem.dtype, m.device): m
        for m in rows
        if not switch_words(m.settings.switches) and m.threads is None
    }
    found = []
    for m in rows:
        p, fit = m.problem, "training/keras/fit"
        own = (p.model, p.batch, p.samples, p.dtype, m.device)
        same, single = (plain.get((fit, *own[:3], dtype, m.device)) for dtype in (p.dtype, "float32"))
        base = single if same is m or same is None else same
        if base is None or base is m or m.kernel.endswith("loop"):
            continue
        what = switch_words(m.settings.switches)
        what += [f"{p.dtype} inputs"] * (p.dtype != base.problem.dtype)
        what += [count(m.threads, "thread")] if m.threads is not None else []
        changed, usual = costs.measured(m), costs.measured(base)
        if what and changed and usual:
            name = f"{sentences.title(p.model)}, batch {p.batch}, {p.samples:,} samples"
            found.append((name, m.device, ", ".join(what), _a_step(changed, p), _a_step(usual, base.problem)))
    return found


def _a_step(cost: TrainingCost, problem: Training) -> Estimate:
    """Seconds a step of a warm epoch, the epoch's own cost shared among its steps."""
    return cost.epoch_seconds(problem.steps) / problem.steps


def change_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """A sentence for each change that is known to move a step, those that save most first."""
    each = sorted(changes(measurements), key=lambda one: one[3].value / one[4].value)
    return [
        _SAID["change"].format(
            training=name,
            device=rates.device_name(device),
            what=what,
            time=sentences.time(to),
            usual=sentences.time(plain),
            speed=against(to, plain),
        )
        for name, device, what, to, plain in each
        if _apart(to, plain)
    ]


def against(changed: Estimate, plain: Estimate) -> str:
    """`4.1x slower`, `14x faster`, or that it can't be told."""
    return sentences.speed(plain.value / changed.value) if _apart(changed, plain) else sentences.CANT_TELL


def way_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """Of models that train all samples in one batch: an epoch of Keras's fit beside the steps of bare loops, which are the same
    arithmetic."""
    groups: dict[tuple, list[tuple[str, Estimate]]] = {}
    for m in break_even.trainings(measurements):
        p, found = m.problem, costs.measured(m)
        if found and p.batch == p.samples and (not m.on_gpu or break_even.is_default(m)):
            name = ", ".join([way_word(m), *switch_words(m.settings.switches, ("residence", "gpu"))])
            name += f" ({break_even.form_of(m)})" if m.keras.gpu == "visible" else ""
            groups.setdefault((p.model, p.samples, p.dtype, m.device), []).append((name, _a_step(found, p)))
    said = []
    for (model, samples, _, device), ways in groups.items():
        if len(ways) > 1:
            (way, quick), *_, (slowest, slow) = sorted(ways, key=lambda way: way[1].value)
            name = f"{sentences.title(model)}, {samples:,} samples in one batch"
            words = {"way": way, "slowest": slowest, "time": sentences.time(quick), "slow": sentences.time(slow)}
            said.append(_SAID["way"].format(training=name, device=rates.device_name(device), **words))
    return said


# What a process does once: the series, what it is, and until when it lasts.
_ONCE = (
    ("import_s", "import the framework", "the framework is imported"),
    ("device_start_s", "start the device", "the device has started"),
    ("build_s", "build the model", "the model is built"),
)
_FIRST = {
    True: ("first_call_s", "finish the first step", "the first step ends"),
    False: ("first_call_s", "compile and finish the first fit", "the first fit ends"),
}


def start_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """What comes before training, a sentence a row of several processes. Where rows of fresh processes were asked for just that,
    those that trained on in several are left out."""
    every = [
        m
        for m in measurements  # trials have a sentence of their own
        if m.problem.op == "training" and "import_s" in m.series and settings.ordinary(m)
    ]
    asked = {(m.problem.model, m.device, break_even.form_of(m)) for m in every if m.process == "fresh"}
    said = []
    for m in every:
        fresh = m.process == "fresh"
        if not fresh and (m.problem.model, m.device, break_even.form_of(m)) in asked:
            continue
        named = [part for part in (*_ONCE, _FIRST[fresh]) if m.series.get(part[0])]
        parts = {what: median(m.series[name]) for name, what, _ in named}
        form = break_even.form_of(m)
        where = "GPU" if m.on_gpu else f"CPU ({form})" if form else "CPU"
        largest, total = max(parts, key=parts.__getitem__), sum(parts.values())
        words = {"model": sentences.title(m.problem.model), "count": len(m.series["import_s"]), "what": named[-1][2]}
        words |= {"total": sentences.time(total), "share": sentences.share(parts[largest] / total)}
        said.append(_SAID["start"].format(device=where, largest=largest, **words))
    return said


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """What the trainings say, a sentence a line; empty where no two rows can be compared."""
    every = list(measurements)
    made = break_even.pairs(every)
    said = [answer_sentence(a) for a in break_even.answers(every)]
    said += [break_even_sentence(p) for p in made if not p.setup.switches]
    said += filter(None, (tell(p) for tell in (trap_sentence, last_batch_sentence) for p in made))
    said += filter(None, (loss_sentence(p, every) for p in made))
    return [*said, *way_sentences(every), *change_sentences(every), *start_sentences(every)]


# ---------------------------------------------------------------- side by side

_TOGETHER = {
    "teacher": "{student} trains on the {here} while a frozen {teacher} answers on the {there}, batch {batch}. "
    "Beside each other its step is {step}, the teacher's answer {answer}.",
    "both": "A step and the teacher's answer take {after} one after the other, {at_once} overlapped: {gain}.",
    "at once": "{training}, batch {batch}, on one {side}, a process each: {of} the steps a second of one.",
    "trial": "{training} on the {side}, {trials} in {how}: {each} each, {total} in all.",
    "trace": "Its train step was traced {traces}.",
    "memory": "Each one adds {memory} of memory.",
    "one more": "One more trial takes {there} in a process that is there, {own} in one of its own.",
}


def side_by_side(measurements: "Iterable[Measurement]") -> list[str]:
    """A sentence or two for each such experiment among the rows."""
    done = [m for m in measurements if m.ok]
    return student_sentences(done) + at_once_sentences(done) + trial_sentences(done)


def student_sentences(done: "list[Measurement]") -> list[str]:
    """The slowdown of teacher and student, and what both at once bring against one after the other."""
    said = []
    for batch in dict.fromkeys(m.problem.batch for m in done if m.experiment.beside == "teacher"):
        if found := taught(done, batch):
            step, answer = (sentences.speed(1 / ratio, "alone") for ratio in found.slower)
            names = {"student": sentences.title(found.student.problem.model), "here": found.student.side}
            names |= {"teacher": sentences.title(found.teacher.problem.model), "there": found.teacher.side}
            said.append(_TOGETHER["teacher"].format(batch=batch, step=step, answer=answer, **names))
            times = {"after": sentences.time(found.after), "at_once": sentences.time(found.at_once)}
            said.append(_TOGETHER["both"].format(gain=sentences.speed(found.gain), **times))
    return said


def at_once_sentences(done: "list[Measurement]") -> list[str]:
    """What several trainings at once bring."""
    said = []
    for alone, pairs in gains(done).values():
        each = [f"{k} trainings make {sentences.factor(gain)}" for k, gain in pairs]
        p = alone.problem
        words = {"training": sentences.title(p.model), "batch": p.batch, "side": alone.side}
        said.append(_TOGETHER["at once"].format(of=join(each), **words))
    return said


def trial_sentences(done: "list[Measurement]") -> list[str]:
    """Trials in one process, with clear_session and without, against as many fresh processes; what one more costs in either."""
    said = []
    groups = group_by((m for m in done if m.kernel == TRIAL), lambda m: (m.problem, m.side))
    for (problem, side), rows in groups.items():
        name = f"{sentences.title(problem.model)}, {count(problem.steps * problem.epochs, 'step')} of batch {problem.batch}"
        said += [_trial(m, name, side) for m in rows]
        ends = [e for fresh in (False, True) if (e := _shortest(rows, fresh)) is not None]
        if len(ends) == 2:
            there, own = map(sentences.time, ends)
            said.append(_TOGETHER["one more"].format(there=there, own=own))
    return said


def _trial(m: "Measurement", name: str, side: str) -> str:
    trials, fresh = int(m.values["trials"]), m.process == "fresh"
    how = "fresh processes" if fresh else "one process"
    how += ", clear_session before each" * (m.experiment.clear_session == "on")
    times = {"each": sentences.time(trial_seconds(m)), "total": sentences.time(m.values["total_s"])}
    said = [_TOGETHER["trial"].format(training=name, side=side, trials=count(trials, "trial"), how=how, **times)]
    said.append(_TOGETHER["trace"].format(traces=count(round(m.values["traces"]), "time")))
    if not fresh and trials > 1:
        grown = (m.series["rss_bytes"][-1] - m.series["rss_bytes"][0]) / (trials - 1) / 2**20
        said.append(_TOGETHER["memory"].format(memory=f"{sentences.number(max(0.0, grown), most=2)} MiB"))
    return " ".join(said)


def _shortest(rows: "list[Measurement]", fresh: bool) -> float | None:
    return min((trial_seconds(m) for m in rows if (m.process == "fresh") is fresh), default=None)
