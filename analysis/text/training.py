"""Trainings in words: the winner, crossovers, break-even, one device alone, losses, the effect of options, start-up, and
trainings side by side."""

from collections.abc import Iterable, Sequence
from math import inf
from statistics import median

import msgspec
from msgspec.structs import replace

from analysis import numbers
from analysis.crossover.answer import Answer
from analysis.explain import doubts
from analysis.stats import Estimate, best_by, faster, group_by, median_of
from analysis.text import sentences
from analysis.text.rates import device_name
from analysis.text.rows import option_words
from analysis.text.sentences import say
from analysis.training import break_even, costs, measured_training
from analysis.training.break_even import BY_STEP, BY_WHOLE_TRAINING, Pair, Setup, Trained
from analysis.training.contention import TRIAL, several_at_once, taught, trial_seconds
from analysis.training.costs import whole_training
from analysis.units import count, digits, join
from kernels import networks
from workloads.records import SAMPLES, Measurement, Measurements, settings

MOST_SINGLE = 8  # trainings of one device: of more the table's columns are easier to read than sentences
HEADS = "training | a step, CPU | a step, GPU | whole training, CPU | whole training, GPU | finishes first"
_SHOWN = 0.05  # of a whole training: a part worth a sentence
_OTHER = 2.0  # losses this many times apart are not alike
_LEARNED = 0.05  # of the first loss: what is left when nearly all is learned
_ONCE = ("import_s", "device_start_s", "build_s", "first_call_s")  # what a process does until its first step ends
_SENTENCES = {
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
    "at once": "{training:title}, batch {batch}, on one {side}, a process each: {gains} the steps a second of one.",
    "trial": "{model:title} on the {side}: one more trial takes {warm:time} in a process that is there, {fresh:time} in its own. "
    "{trials:.0f} trials of one process trace the step {traces:.0f} times.",
}


def subject(setup: Setup, varies: str = "") -> str:
    """A training in words: `CIFAR-10 CNN, batch 32, 50,000 samples`, then how it was trained where that is not Keras's fit of
    NumPy arrays. varies: the size that a crossover is along, which is left out; setup has 0 for it.
    """
    words = [networks.title(setup.model), *_sizes(setup, varies)]
    _, backend, variant = setup.kernel.split("/")
    if variant.endswith("loop"):
        words.append(f"{backend} loop")
    words += option_words(setup.switches)
    if setup.dtype not in ("float32", "float64"):
        words.append(f"{setup.dtype} inputs")
    return ", ".join(words)


def _sizes(setup: Setup, varies: str) -> list[str]:
    """The batch and the samples in words: `batch 32`, `50,000 samples`; `50,000 samples in one batch` where the batch is all
    samples. Sizes of 0 are left out; varies is as in `subject`.
    """
    if setup.batch == setup.samples and varies != "batch":
        samples = count(setup.samples, "sample") if setup.samples else "all samples"
        return [f"{samples} in one batch"]
    sizes = []
    if setup.batch:
        sizes.append(f"batch {setup.batch:,}")
    if setup.samples:
        sizes.append(count(setup.samples, "sample"))
    return sizes


def with_type(setup: Setup, varies: str = "") -> str:
    """The same words, but float64 inputs are named too, for lists that also have the training in float32."""
    words = subject(setup, varies)
    return f"{words}, float64 inputs" if setup.dtype == "float64" else words


def how(m: Measurement, dtype: str = "float32") -> list[str]:
    """What differs in a row from a training with default options, samples of type `dtype` and the framework's own threads: `jit
    on`, `2 threads`.
    """
    words = option_words(m.settings.switches)
    if m.problem.dtype != dtype:
        words.append(f"{m.problem.dtype} inputs")
    if m.threads is not None:
        words.append(count(m.threads, "thread"))
    return words


class WholeTraining(msgspec.Struct, frozen=True, kw_only=True):
    """A whole training in words, and its setup to be named before them."""

    #: `10 epochs`, or `60,000 samples, 10 epochs, from its parts` where it has other samples than were measured; "" where only a
    #: step or an epoch is meant.
    words: str
    #: The setup; without its samples (0) where the words have another number of them.
    setup: Setup


def whole_training_of(setup: Setup, varies: str = "") -> WholeTraining:
    """The whole training by which a setup is judged: the model's own samples and epochs. varies: the size along which it is
    judged, such as samples; "" for none.
    """
    planned = break_even.planned(setup, varies)
    words = sentences.counted(planned.epochs, "epochs")
    if planned.samples == setup.samples:
        return WholeTraining(words=words, setup=setup)
    samples = count(planned.samples, "sample")
    return WholeTraining(words=f"{samples}, {words}, from its parts", setup=replace(setup, samples=0))


def training_of_answer(a: Answer) -> WholeTraining:
    """The whole training that a crossover is about; without words if it is about a step or an epoch."""
    varies = a.family.varies
    setup = break_even.setup_in(a.family)
    if a.form.mode != BY_WHOLE_TRAINING:
        return WholeTraining(words="", setup=setup)
    whole = whole_training_of(break_even.with_size(setup, varies, a.low_n), varies)
    if varies != "samples":
        setup = replace(setup, samples=whole.setup.samples)
    return WholeTraining(words=whole.words, setup=setup)


def answer_sentence(a: Answer) -> str:
    """The winner along a size: `CIFAR-10 CNN, whole training of 10 epochs: the GPU wins from 10,700 samples. ...`."""
    whole = training_of_answer(a)
    by = f"whole training of {whole.words}" if whole.words else f"by {a.form.mode}"
    return " ".join(sentences.crossover(a, f"{subject(whole.setup, a.family.varies)}, {by}"))


def break_even_sentence(pair: Pair) -> str:
    """When the first epoch begins on each device, and the epoch after which the device that begins later is ahead. pair: the
    rows of one training on the CPU and on the GPU.
    """
    gpu_cost = pair.gpu.cost
    cpu_cost = pair.opponent.cost
    gpu = whole_training(gpu_cost, epochs=0, steps=pair.steps)  # of no epochs: what comes before the first
    cpu = whole_training(cpu_cost, epochs=0, steps=pair.steps)
    caught_up = sentences.break_even(pair.break_even)
    # Epochs until the CPU is ahead, where it is the GPU that begins sooner.
    after = costs.break_even(gpu_cost, cpu_cost, steps=pair.steps)
    if after and 0 < after.value < inf:
        caught_up = _SENTENCES["overtaken"].format(epochs=sentences.counted(after.value, "epochs"))
    return say(_SENTENCES["begins"], training=subject(pair.setup), caught_up=caught_up, gpu=gpu, cpu=cpu)


def last_batch_sentence(pairs: Iterable[Pair]) -> list[str]:
    """A sentence on compiling again for a smaller last batch: of the training on the GPU whose time it takes the largest share
    of; [] if every share is below _SHOWN.
    """
    largest: tuple[float, str] = (0.0, "")
    for pair in pairs:
        compile_last = costs.phase(pair.gpu.row, "compile_last")
        rest = pair.setup.samples % pair.setup.batch
        if not compile_last or not rest:
            continue
        epochs = break_even.planned(pair.setup, "samples").epochs
        whole = whole_training(pair.gpu.cost, epochs, pair.steps)
        share = compile_last.value / whole.value
        if share < max(_SHOWN, largest[0]):
            continue
        sentence = say(
            _SENTENCES["last"],
            training=subject(pair.setup),
            rest=sentences.counted(rest, "samples"),
            time=compile_last,
            share=share,
        )
        largest = (share, sentence)
    return [largest[1]] if largest[1] else []


# ---------------------------------------------------------------- the first sentences


def training_sentences(rows: Measurements) -> list[str]:
    """The sentences on trainings that a run's answer begins with: the winner of each, the size at which it changes, and the
    time of trainings that ran on one device alone.
    """
    trained = break_even.trained(rows)
    pairs = [_pair_sentence(pair, trained) for pair in break_even.main_pairs(rows)]
    changes = map(answer_sentence, break_even.main_answers(rows))
    return [*pairs, *changes, *single_jobs(rows)]


def _pair_sentence(pair: Pair, trained: Iterable[Trained]) -> str:
    """The winner of a whole training and of its step; of the step alone where the rows do not tell the whole training.

    pair: the rows of both devices. trained: all trainings of the run, in which the row of the whole training is looked up.
    """
    both = measured_training.both_sides(pair, trained)
    cpu, gpu = both or pair.sides(BY_STEP)
    cpu_step, gpu_step = cpu.cost.step, gpu.cost.step
    disturbed = bool(doubts.disturbances("", [cpu.row, gpu.row]))
    if both is None:
        step = f"{subject(replace(pair.setup, samples=0))}, a step"
        return sentences.winner(cpu_step, gpu_step, subject=step, disturbed=disturbed)
    planned = whole_training_of(pair.setup)
    training = break_even.planned_training(pair.setup)
    cpu_whole, gpu_whole = (measured_training.seconds(side, training) for side in both)
    whole = sentences.winner(
        cpu_whole, gpu_whole, subject=f"{subject(planned.setup)}, {planned.words}", disturbed=disturbed
    )
    alone = sentences.winner(cpu_step, gpu_step, subject="A step alone", disturbed=disturbed)
    return f"{whole} {alone}"


def single_jobs(rows: Measurements) -> list[str]:
    """A sentence for each training that ran on one device alone; [] where there are more than MOST_SINGLE, as a table is easier
    to read then.
    """
    alone = break_even.unpaired(rows)
    return [single_job(m, rows) for m in alone] if len(alone) <= MOST_SINGLE else []


def single_job(m: Measurement, measurements: Measurements = ()) -> str:
    """The time of one row's training and of its parts: `CIFAR-10 CNN, 1,000 samples, 2 epochs, on the CPU: 23 s. Start-up takes
    12.7 s. ...`; only its step where the cost of the whole cannot be told from the `measurements` of the run.
    """
    problem = m.problem
    cost = costs.measured(m, measurements)
    training = ", ".join([networks.title(problem.model), f"batch {problem.batch:,}", *how(m)])
    device = device_name(m.device)
    if cost is None:
        return say(_SENTENCES["step"], training=training, device=device, step=median_of(m.on("host-latency")))
    parts = costs.parts(cost, problem.epochs, problem.steps)
    lines = sentences.lines(
        _SENTENCES["whole"],
        training=training,
        device=device,
        samples=sentences.counted(problem.samples, "samples"),
        epochs=sentences.counted(problem.epochs, "epochs"),
        total=whole_training(cost, problem.epochs, problem.steps),
        without="" if cost.start else " without start-up",
        doubt=f" (doubtful: {join(m.flags)})" if m.flags else "",
        start=cost.start,
        built=parts["build and compile"],
        trained=parts["data-set setup"] + cost.epoch_seconds(problem.steps) * problem.epochs,
    )
    return " ".join(lines)


def table(measurements: Measurements, space: str = " ") -> list[tuple[str, ...]]:
    """The cells under HEADS of each training by Keras's fit with default options and all samples of its model. space: the space
    between a time and its interval, which may be an unbreakable one.
    """
    trained = break_even.trained(measurements)
    rows = []
    for pair in break_even.pairs(measurements):
        setup = pair.setup
        plain = setup.kernel.endswith("/fit") and not setup.switches
        if not plain or break_even.planned(setup, "").samples != setup.samples:
            continue
        both = measured_training.both_sides(pair, trained)
        if both is None:
            continue
        training = break_even.planned_training(pair.setup)
        steps = [side.cost.step for side in both]
        whole = [measured_training.seconds(side, training) for side in both]
        best = sentences.NAMES.get(faster(*whole), sentences.CANT_TELL)
        times = [numbers.timed(e, space) for e in (*steps, *whole)]
        rows.append((f"{subject(setup)}, {whole_training_of(setup).words}", *times, best))
    return rows


# ---------------------------------------------------------------- losses


def loss_sentence(pair: Pair) -> str:
    """A sentence on losses of the two devices that differ by more than _OTHER times after the same samples; "" if they do not,
    and if both are so low that nearly all is learned (_LEARNED of the first loss).
    """
    gpu = pair.gpu.row
    losses = _common_losses(pair)
    if losses is None:
        return ""
    smaller, larger = sorted((losses.cpu[-1], losses.gpu[-1]))
    alike = _OTHER * smaller
    learned = _LEARNED * max(losses.cpu[0], losses.gpu[0])
    if larger <= max(alike, learned):
        return ""
    when = count(gpu.problem.epochs, "epoch")
    if losses.few_samples:
        when = f"{count(len(losses.gpu), 'epoch')} of few samples"
    return _SENTENCES["loss"].format(
        training=subject(pair.setup),
        when=when,
        cpu=digits(losses.cpu[-1]),
        gpu=digits(losses.gpu[-1]),
        why=_SENTENCES["tf32"] if gpu.values.get("tf32") else "",
    )


class CommonLosses(msgspec.Struct, frozen=True, kw_only=True):
    """Losses of one training on both devices, epoch by epoch, on the same samples."""

    cpu: Sequence[float]
    gpu: Sequence[float]
    #: Whether they are of a short run on few samples, which every row makes; else of the rows' own fits.
    few_samples: bool


def _common_losses(pair: Pair) -> CommonLosses | None:
    """The losses of a pair after the same samples: of the rows' own fits if both have as many epochs, else of their short runs;
    None without either.
    """
    gpu = pair.gpu.row
    cpus = [side.row for side in pair.cpus if side.row.notes.get(SAMPLES) == gpu.notes.get(SAMPLES)]
    whole_fits = [m for m in cpus if m.problem.epochs == gpu.problem.epochs]
    for name, rows in (("job_loss", whole_fits), ("loss", cpus)):
        for m in rows:
            cpu_losses, gpu_losses = m.series.get(name, ()), gpu.series.get(name, ())
            if cpu_losses and gpu_losses:
                return CommonLosses(cpu=cpu_losses, gpu=gpu_losses, few_samples=name == "loss")
    return None


# ---------------------------------------------------------------- what options change


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a step takes with other options than Keras's own."""

    #: The training in words.
    training: str
    #: cpu or gpu:0.
    device: str
    #: The options, type and threads that differ, in words: `jit on, 2 threads`.
    options: str
    #: Seconds of a step with them.
    step: Estimate
    #: Seconds of a step without them.
    plain_step: Estimate


def changes(measurements: Measurements) -> list[StepChange]:
    """The step of each row with other options than a plain row of the same training."""
    changes = []
    for changed, plain in break_even.changed(measurements):
        words = how(changed.row, plain.row.problem.dtype)
        step, plain_step = changed.cost.step, plain.cost.step
        if words and min(step.value, plain_step.value) > 0:
            change = StepChange(
                training=subject(break_even.setup_of(plain.row)),
                device=changed.device,
                options=", ".join(words),
                step=step,
                plain_step=plain_step,
            )
            changes.append(change)
    return changes


def change_sentences(measurements: Measurements) -> list[str]:
    """A sentence for each set of options that makes a step certainly shorter or longer, the shortest first."""
    sentences = []
    for one in sorted(changes(measurements), key=lambda one: one.step.value / one.plain_step.value):
        if faster(one.step, one.plain_step) == "neither":
            continue
        where = f"{one.training}, on {device_name(one.device)}, {one.options}"
        speed = one.plain_step / one.step
        sentences.append(say(_SENTENCES["change"], where=where, time=one.step, usual=one.plain_step, speed=speed))
    return sentences


# ---------------------------------------------------------------- processes


def start_sentences(measurements: Measurements) -> list[str]:
    """A sentence for each row that measured start-up in fresh processes: seconds until the first step ends, and the part of
    them that importing the framework takes. The times are medians over the processes.
    """
    sentences = []
    for m in measurements:
        if m.process != "fresh" or "first_call_s" not in m.series or not settings.ordinary(m):
            continue
        parts = [median(m.series[name]) for name in _ONCE if m.series.get(name)]
        sentence = say(
            _SENTENCES["start"],
            model=m.problem.model,
            side=m.side,
            count=len(m.series["import_s"]),
            total=sum(parts),
            imported=parts[0],
        )
        sentences.append(sentence)
    return sentences


def lines(rows: Measurements) -> list[str]:
    """All sentences on the trainings of a run, in the order of a command's output; [] without trainings."""
    pairs = break_even.pairs(rows)
    lines = single_jobs(rows)
    lines += [answer_sentence(a) for a in break_even.answers(rows)]
    lines += [break_even_sentence(pair) for pair in pairs if not pair.setup.switches]
    lines += last_batch_sentence(pairs)
    lines += filter(None, map(loss_sentence, pairs))
    return [*lines, *change_sentences(rows), *start_sentences(rows)]


def side_by_side(measurements: Measurements) -> list[str]:
    """Sentences on work at the same time: a student and its teacher, several trainings at once, and trials (short trainings of a
    search) that share a process or have one each.
    """
    rows = [m for m in measurements if m.ok]
    sentences = []
    for pair in taught(rows):
        sentence = say(
            _SENTENCES["teacher"],
            student=pair.student.problem.model,
            here=pair.student.side,
            teacher=pair.teacher.problem.model,
            there=pair.teacher.side,
            batch=pair.student.problem.batch,
            after=pair.after,
            at_once=pair.at_once,
            gain=pair.gain,
        )
        sentences.append(sentence)
    for several in several_at_once(rows):
        problem = several.alone.problem
        sentence = say(
            _SENTENCES["at once"],
            gains=join(f"{number} trainings make {numbers.factor(gain)}" for number, gain in several.gains.items()),
            training=problem.model,
            batch=problem.batch,
            side=several.alone.side,
        )
        sentences.append(sentence)
    return sentences + _trial_sentences(rows)


def _trial_sentences(rows: Measurements) -> list[str]:
    """A sentence for each model and device whose trials were measured both in a process each (fresh) and in one process
    (warm).
    """
    sentences = []
    trials = [m for m in rows if m.kernel == TRIAL]
    for (problem, side), alike in group_by(trials, lambda m: (m.problem, m.side)).items():
        quickest = best_by(alike, lambda m: m.process, trial_seconds)
        if len(quickest) != 2:
            continue
        fresh, warm = quickest["fresh"], quickest["warm"]
        sentence = say(
            _SENTENCES["trial"],
            model=problem.model,
            side=side,
            warm=trial_seconds(warm),
            fresh=trial_seconds(fresh),
            **warm.values,
        )
        sentences.append(sentence)
    return sentences
