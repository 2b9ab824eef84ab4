"""Trainings in words: the winner, crossovers, break-even, one device alone, losses, the effect of options, start-up, and
trainings side by side."""

from collections.abc import Iterable
from math import inf
from statistics import median

from msgspec.structs import replace

from analysis import numbers
from analysis.crossover.crossover import Answer
from analysis.explain import doubts
from analysis.stats import Estimate, best_by, faster, group_by, median_of
from analysis.text import sentences
from analysis.text.rates import device_name
from analysis.text.rows import option_words
from analysis.text.sentences import say
from analysis.training import break_even, costs, measured_training
from analysis.training.break_even import BY_JOB, BY_STEP, Pair, Setup, Trained
from analysis.training.costs import whole_training
from analysis.training.side_by_side import TRIAL, gains, taught, trial_seconds
from analysis.units import count, digits, join
from kernels import networks
from workloads.records import SAMPLES, Measurement, Measurements, settings

MOST_SINGLE = 8  # trainings of one device: of more the table's columns are easier to read than sentences
HEADS = "training | a step, CPU | a step, GPU | whole training, CPU | whole training, GPU | finishes first"
_SHOWN = 0.05  # of a whole training: a part worth a sentence
_OTHER = 2.0  # losses this many times apart are not alike
_LEARNED = 0.05  # of the first loss: what is left when nearly all is learned
_ONCE = ("import_s", "device_start_s", "build_s", "first_call_s")  # what a process does until its first step ends
_SAID = {
    "step": "{training}, on {device}: a step takes {step:time}.",
    "whole": """
{training}, {samples}, {epochs}, on {device}: {total:time}{without}{doubt}.
Start-up takes {start:time}.
Building and compiling take {built:time}, training {trained:time}.""",
    "begins": "{training}: the first epoch begins after {gpu:time} on the GPU, {cpu:time} on the CPU. {caught_up}",
    "overtaken": "The GPU, which begins sooner, is overtaken after {epochs}.",
    "last": "{training}: the last batch has {rest}, so the GPU compiles twice: {time:time}, {share:share} of the whole training. "
    "A multiple of the batch saves that.",
    "loss": "{training}: after {when} the loss is {cpu} on the CPU, {gpu} on the GPU.{why}",
    "tf32": " The GPU's products are in TF32: --tf32 off shows whether that is why.",
    "change": "{where}: a step takes {time:time} instead of {usual:time}, {speed:speed}.",
    "start": "{model:title} on the {side}, {count} fresh processes: {total:time} until the first step ends, "
    "{imported:time} of it importing the framework.",
    "teacher": "{student:title} trains on the {here} while a frozen {teacher:title} answers on the {there}, batch {batch}: "
    "{after:time} one after the other, {at_once:time} overlapped, {gain:speed}.",
    "at once": "{training:title}, batch {batch}, on one {side}, a process each: {of} the steps a second of one.",
    "trial": "{model:title} on the {side}: one more trial takes {there:time} in a process that is there, {own:time} in its own. "
    "{trials:.0f} trials of one process trace the step {traces:.0f} times.",
}


def subject(setup: Setup, varies: str = "") -> str:
    """`CIFAR-10 CNN, batch 32, 50,000 samples`, and how it was trained where that is not Keras's fit of NumPy arrays. The size
    that `varies` is left out."""
    if setup.batch == setup.samples and varies != "batch":
        sizes = [f"{count(setup.samples, 'sample')} in one batch" if setup.samples else "all samples in one batch"]
    else:
        sizes = [f"batch {setup.batch:,}"] if setup.batch else []
        sizes += [count(setup.samples, "sample")] if setup.samples else []
    _, backend, variant = setup.kernel.split("/")
    how = [f"{backend} loop"] * variant.endswith("loop") + option_words(setup.switches)
    how += [f"{setup.dtype} inputs"] * (setup.dtype not in ("float32", "float64"))
    return ", ".join([networks.title(setup.model), *sizes, *how])


def with_type(setup: Setup, varies: str = "") -> str:
    """`subject`, with float64 inputs named too; for lists that have the same training in float32."""
    return subject(setup, varies) + ", float64 inputs" * (setup.dtype == "float64")


def how(m: Measurement, dtype: str = "float32") -> list[str]:
    """The options, type and threads in which a row differs from a plain training of type `dtype`: `jit on`, `2 threads`."""
    said = option_words(m.settings.switches) + [f"{m.problem.dtype} inputs"] * (m.problem.dtype != dtype)
    return said + ([count(m.threads, "thread")] if m.threads is not None else [])


def whole_job(setup: Setup, varies: str = "") -> tuple[str, Setup]:
    """(the whole training that a setup is judged by: `10 epochs` or `60,000 samples, 10 epochs, from its parts`; the setup,
    without its samples if the whole training has another number of them)."""
    samples, epochs = break_even.planned(setup, varies)
    words = sentences.counted(epochs, "epochs")
    if samples == setup.samples:
        return words, setup
    return f"{count(samples, 'sample')}, {words}, from its parts", replace(setup, samples=0)


def job_of(a: Answer) -> tuple[str, Setup]:
    """(the whole training that an answer is about, "" if it is about a step or an epoch; its setup, without samples if the
    whole training has another number of them)."""
    varies, setup = a.family.varies, break_even.setup_in(a.family)
    if a.form.mode != BY_JOB:
        return "", setup
    words, named = whole_job(break_even.at(setup, varies, a.low_n), varies)
    return words, setup if varies == "samples" else replace(setup, samples=named.samples)


def answer_sentence(a: Answer) -> str:
    """The winner along a size: `CIFAR-10 CNN, whole training of 10 epochs: the GPU wins from 10,700 samples. ...`."""
    job, setup = job_of(a)
    by = f"whole training of {job}" if job else f"by {a.form.mode}"
    return " ".join(sentences.crossover(a, f"{subject(setup, a.family.varies)}, {by}"))


def break_even_sentence(pair: Pair) -> str:
    """When the first epoch begins on each device, and the epoch after which the later one has caught up."""
    sides, caught_up = (pair.gpu.cost, pair.opponent.cost), sentences.break_even(pair.break_even)
    gpu, cpu = (whole_training(cost, 0, pair.steps) for cost in sides)
    after = costs.break_even(*sides, pair.steps)  # the CPU in the GPU's place
    if after and 0 < after.value < inf:
        caught_up = _SAID["overtaken"].format(epochs=sentences.counted(after.value, "epochs"))
    return say(_SAID["begins"], training=subject(pair.setup), caught_up=caught_up, gpu=gpu, cpu=cpu)


def last_batch_sentence(pairs: Iterable[Pair]) -> list[str]:
    """The seconds that compiling again for a smaller last batch adds to the GPU's training, for the training with the largest
    share; [] if every share is below _SHOWN."""
    found = []
    for pair in pairs:
        once, rest = costs.phase(pair.gpu.row, "compile_last"), pair.setup.samples % pair.setup.batch
        whole = whole_training(pair.gpu.cost, break_even.planned(pair.setup, "samples")[1], pair.steps)
        if once and rest and once.value >= _SHOWN * whole.value:
            words = {"training": subject(pair.setup), "rest": sentences.counted(rest, "samples"), "time": once}
            found.append((once.value / whole.value, words))
    most = sorted(found, key=lambda one: one[0])[-1:]
    return [say(_SAID["last"], share=share, **words) for share, words in most]


# ---------------------------------------------------------------- the first sentences


def training_sentences(rows: Measurements) -> list[str]:
    """Sentences: the winner of each training and of its step, where the winner changes, and trainings of one device alone."""
    trained = break_even.trained(rows)
    pairs = [_pair_sentence(pair, trained) for pair in break_even.main_pairs(rows)]
    changes = map(answer_sentence, break_even.main_answers(rows))
    return [*pairs, *changes, *single_jobs(rows)]


def _pair_sentence(pair: Pair, trained: Iterable[Trained]) -> str:
    """The winner of the whole training and of its step; of the step alone where no rows tell the whole."""
    both = measured_training.both_sides(pair, trained)
    cpu, gpu = both or pair.sides(BY_STEP)
    cpu_step, gpu_step = cpu.cost.step, gpu.cost.step
    disturbed = bool(doubts.disturbances("", [cpu.row, gpu.row]))
    if both is None:
        step = f"{subject(replace(pair.setup, samples=0))}, a step"
        return sentences.winner(cpu_step, gpu_step, subject=step, disturbed=disturbed)
    words, named = whole_job(pair.setup)
    training = break_even.planned_training(pair.setup)
    cpu_whole, gpu_whole = (measured_training.seconds(side, training) for side in both)
    whole = sentences.winner(cpu_whole, gpu_whole, subject=f"{subject(named)}, {words}", disturbed=disturbed)
    alone = sentences.winner(cpu_step, gpu_step, subject="A step alone", disturbed=disturbed)
    return f"{whole} {alone}"


def single_jobs(rows: Measurements) -> list[str]:
    """A sentence for each training of one device alone; none where there are more than MOST_SINGLE."""
    alone = break_even.unpaired(rows)
    return [single_job(m, rows) for m in alone] if len(alone) <= MOST_SINGLE else []


def single_job(m: Measurement, measurements: Measurements = ()) -> str:
    """`CIFAR-10 CNN, 1,000 samples, 2 epochs, on the CPU: 23 s. Start-up takes 12.7 s. ...`; without fits that tell these,
    its step alone."""
    p, cost = m.problem, costs.measured(m, measurements)
    name = ", ".join([networks.title(p.model), f"batch {p.batch:,}", *how(m)])
    words: dict = {"training": name, "device": device_name(m.device)}
    if cost is None:
        return say(_SAID["step"], step=median_of(m.on("host-latency")), **words)
    by, whole = costs.parts(cost, p.epochs, p.steps), whole_training(cost, p.epochs, p.steps)
    trained = by["data-set setup"] + cost.epoch_seconds(p.steps) * p.epochs
    words |= {"samples": sentences.counted(p.samples, "samples"), "epochs": sentences.counted(p.epochs, "epochs")}
    words |= {"start": cost.start, "built": by["build and compile"], "without": " without start-up" * (not cost.start)}
    words |= {"trained": trained, "total": whole}
    return " ".join(sentences.lines(_SAID["whole"], doubt=f" (doubtful: {join(m.flags)})" * bool(m.flags), **words))


def table(measurements: Measurements, space: str = " ") -> list[tuple[str, ...]]:
    """A line under HEADS for each of Keras's own fits that was measured with all of the model's own samples. space:
    within a time and its interval."""
    trained = break_even.trained(measurements)
    rows = []
    for pair in break_even.pairs(measurements):
        setup = pair.setup
        plain = setup.kernel.endswith("/fit") and not setup.switches
        if not plain or break_even.planned(setup, "")[0] != setup.samples:
            continue
        both = measured_training.both_sides(pair, trained)
        if both is None:
            continue
        training = break_even.planned_training(pair.setup)
        steps = [side.cost.step for side in both]
        whole = [measured_training.seconds(side, training) for side in both]
        best = sentences.NAMES.get(faster(*whole), sentences.CANT_TELL)
        times = [numbers.timed(e, space) for e in (*steps, *whole)]
        rows.append((f"{subject(setup)}, {whole_job(setup)[0]}", *times, best))
    return rows


# ---------------------------------------------------------------- losses


def loss_sentence(pair: Pair) -> str:
    """Last losses on both devices, after the same samples, if they differ by more than _OTHER times; else "". Those of the own
    fits if both have as many epochs, else of a short run. "" also if both have learned nearly all there is."""
    gpu = pair.gpu.row
    cpus = [side.row for side in pair.cpus if side.row.notes.get(SAMPLES) == gpu.notes.get(SAMPLES)]
    named = [("job_loss", m) for m in cpus if m.problem.epochs == gpu.problem.epochs] + [("loss", m) for m in cpus]
    both = ((name, m.series.get(name, ()), gpu.series.get(name, ())) for name, m in named)
    name, a, b = next((one for one in both if all(one)), ("", (0.0,), (0.0,)))
    if max(a[-1], b[-1]) <= max(_OTHER * min(a[-1], b[-1]), _LEARNED * max(a[0], b[0])):
        return ""
    when = count(gpu.problem.epochs, "epoch") if name == "job_loss" else f"{count(len(b), 'epoch')} of few samples"
    why = _SAID["tf32"] if gpu.values.get("tf32") else ""
    words = {"training": subject(pair.setup), "cpu": digits(a[-1]), "gpu": digits(b[-1])}
    return _SAID["loss"].format(when=when, why=why, **words)


# ---------------------------------------------------------------- what options change


def changes(measurements: Measurements) -> list[tuple[str, str, str, Estimate, Estimate]]:
    """(training, device, what was changed, its step, the plain row's step) for each row that differs from a plain one."""
    found = []
    for one, plain in break_even.changed(measurements):
        what, steps = how(one.row, plain.row.problem.dtype), (one.cost.step, plain.cost.step)
        if what and min(e.value for e in steps) > 0:
            found.append((subject(break_even.setup_of(plain.row)), one.device, ", ".join(what), *steps))
    return found


def change_sentences(measurements: Measurements) -> list[str]:
    """A sentence for each change that makes a step certainly shorter or longer, the largest savings first."""
    told = []
    for name, device, what, to, plain in sorted(changes(measurements), key=lambda one: one[3].value / one[4].value):
        if faster(to, plain) != "neither":
            where = f"{name}, on {device_name(device)}, {what}"
            told.append(say(_SAID["change"], where=where, time=to, usual=plain, speed=plain / to))
    return told


# ---------------------------------------------------------------- processes


def start_sentences(measurements: Measurements) -> list[str]:
    """Seconds until the first step ends, a sentence for each row of fresh processes that measured the start-up."""
    told = []
    for m in measurements:
        if m.process == "fresh" and "first_call_s" in m.series and settings.ordinary(m):
            parts = [median(taken) for name in _ONCE if (taken := m.series.get(name))]
            words = {"model": m.problem.model, "side": m.side, "count": len(m.series["import_s"])}
            told.append(say(_SAID["start"], total=sum(parts), imported=parts[0], **words))
    return told


def lines(rows: Measurements) -> list[str]:
    """All sentences on trainings; empty where no row has one."""
    made = break_even.pairs(rows)
    told = single_jobs(rows) + [answer_sentence(a) for a in break_even.answers(rows)]
    told += [break_even_sentence(p) for p in made if not p.setup.switches]
    told += [*last_batch_sentence(made), *filter(None, map(loss_sentence, made))]
    return [*told, *change_sentences(rows), *start_sentences(rows)]


def side_by_side(measurements: Measurements) -> list[str]:
    """Sentences: a student beside a teacher, several trainings at once, a trial in a shared or in its own process."""
    done = [m for m in measurements if m.ok]
    told = []
    for found in taught(done):
        words = {"student": found.student.problem.model, "teacher": found.teacher.problem.model}
        words |= {"here": found.student.side, "there": found.teacher.side, "batch": found.student.problem.batch}
        told.append(say(_SAID["teacher"], gain=found.gain, after=found.after, at_once=found.at_once, **words))
    for alone, pairs in gains(done).values():
        each = join(f"{k} trainings make {numbers.factor(gain)}" for k, gain in pairs)
        p = alone.problem
        told.append(say(_SAID["at once"], of=each, training=p.model, batch=p.batch, side=alone.side))
    for (p, side), rows in group_by((m for m in done if m.kernel == TRIAL), lambda m: (m.problem, m.side)).items():
        quickest = best_by(rows, lambda m: m.process, trial_seconds)
        if len(quickest) == 2:
            own, there = trial_seconds(quickest["fresh"]), trial_seconds(quickest["warm"])
            told.append(say(_SAID["trial"], model=p.model, side=side, there=there, own=own, **quickest["warm"].values))
    return told
