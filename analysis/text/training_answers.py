"""What is said first of each training: who wins its whole training and its step; of one measured on one device only, how long it
takes and what of that is start-up, compiling and training."""

from collections.abc import Iterable
from math import inf

from msgspec.structs import replace

from analysis.crossover.crossover import Answer
from analysis.stats import Estimate, faster, group_by, of
from analysis.text import sentences, training
from analysis.text.rates import device_name
from analysis.text.rows import option_words
from analysis.text.training import subject, whole_job
from analysis.training import break_even, costs
from analysis.training.break_even import BY_EPOCH, BY_JOB, BY_STEP, Pair, Setup
from analysis.units import count, join
from kernels import networks
from workloads.records import Measurement

MOST = 8  # of more trainings the table's columns are easier to read than sentences
HEADS = "training | a step, CPU | a step, GPU | whole training, CPU | whole training, GPU | finishes first"
SAID = {
    "step": "{training}, on {device}: a step takes {step:time}.",
    "whole": """
{training}, {samples}, {epochs}, on {device}: {total:time}{without}{doubt}.
Start-up takes {start:time}.
Building and compiling take {built:time}, training {trained:time}.""",
}


def training_sentences(measurements: Iterable[Measurement]) -> list[str]:
    """Who wins each training and its step: like with like, of the most samples that were measured, of many batches that of the
    model's article; then from where the winner changes. Of what ran on one device, or without the fits that tell a step, what
    its rows show."""
    every = list(measurements)
    turns = [a for a in break_even.answers(every) if _worth(a)]
    turns.sort(key=lambda a: (not a.crossings, not break_even.setup_in(a.family).kernel.endswith("/fit")))
    setups = [(break_even.setup_in(a.family), a.family.varies) for a in turns]
    swept = {(setup.kernel, setup.model) for setup, varies in setups if varies == "batch"}
    most: dict[Setup, Pair] = {}
    made = break_even.pairs(every)
    for pair in (p for p in made if not p.setup.switches):
        at = break_even.size_of(pair.setup, "samples")
        alike = replace(at[1] if at else pair.setup, dtype="")
        alike = replace(alike, batch=0) if (alike.kernel, alike.model) in swept else alike
        most[alike] = max(most.get(alike, pair), pair, key=_telling)
    known = {(p.setup.model, p.setup.batch) for p in made}
    rows = [m for m in break_even.trainings(every) if (m.problem.model, m.problem.batch) not in known]
    alone = group_by(rows, lambda m: (m.problem.model, m.problem.batch)).values()
    pairs = map(_of_pair, sorted(most.values(), key=_rank))
    return [*pairs, *map(training.answer_sentence, turns), *(_of_rows(group, every) for group in alone)]


def _rank(pair: Pair) -> tuple[bool, bool]:
    """Keras's own fits go first, and of these the articles' trainings."""
    network = networks.known(pair.setup.model)
    return not pair.setup.kernel.endswith("/fit"), not (network and network.seed)


def _worth(a: Answer) -> bool:
    """Whether an answer is said by itself: a change of winner whose place is known, or the steps of a sweep that has none."""
    if a.crossings:
        return a.form.mode != BY_EPOCH and not any(c.wide for c in a.crossings)
    return a.form.mode == BY_STEP and a.family.varies != "samples" and len(a.points) > 2


def _telling(pair: Pair) -> tuple[bool, tuple[bool, int]]:
    """Of alike pairs the article's batch goes first, then a step that is no mere bound, then the most samples."""
    network = networks.known(pair.setup.model)
    return network is not None and pair.setup.batch == network.batch, pair.weight


def both(pair: Pair, by: str) -> tuple[Estimate, Estimate]:
    """Seconds of a pair's planned whole training, or of its step: (the CPU's best form, the GPU)."""
    epochs, steps = break_even.job_of(pair, "")
    sides = pair.cpu(by, epochs, steps), pair.gpu
    cpu, gpu = (break_even.seconds_by(side.cost, by, steps, epochs) for side in sides)
    return cpu, gpu


def _of_pair(pair: Pair) -> str:
    words, named = whole_job(pair.setup)
    most = ", at most" * any(side.cost.bound for side in (pair.cpu(BY_STEP), pair.gpu))
    whole = sentences.winner(*both(pair, BY_JOB), of=f"{subject(named)}, {words}")
    return f"{whole} {sentences.winner(*both(pair, BY_STEP), of=f'A step alone{most}')}"


def _of_rows(rows: list[Measurement], every: list[Measurement]) -> str:
    """Of a model and batch that no fits tell on both devices the steps, of one device the plainest row."""
    sides = {side: min(group, key=_plainness) for side, group in group_by(rows, lambda m: m.side).items()}
    if len(sides) < 2:
        return single_job(next(iter(sides.values())), every)
    problem = rows[0].problem
    name = f"{sentences.title(problem.model)}, batch {problem.batch:,}, a step"
    return sentences.winner(_step(sides["CPU"]), _step(sides["GPU"]), of=name)


def _step(m: Measurement) -> Estimate:
    """Seconds of a step where the row's fits tell it, else an epoch's a step, of one sample with no end of an interval."""
    if (cost := costs.measured(m)) and cost.step.low > 0:
        return cost.step
    own = m.on("host-latency")
    return of(own) if own and len(own.seconds) > 1 else Estimate(of(own).value, 0.0, inf)


def lines(measurements: Iterable[Measurement]) -> list[str]:
    """A sentence for each training of one device alone; none where there are more than MOST."""
    every = list(measurements)
    alone = chosen(every)
    return [single_job(m, every) for m in alone] if len(alone) <= MOST else []


def chosen(measurements: list[Measurement]) -> list[Measurement]:
    """Of each training on one device only, the row as the framework does it by itself, as what each option changes is told
    elsewhere."""
    pairs = {(p.setup.model, p.setup.batch, p.setup.samples, p.setup.dtype) for p in break_even.pairs(measurements)}
    rows = break_even.trainings(measurements)
    rows = [m for m in rows if (m.problem.model, m.problem.batch, m.problem.samples, m.problem.dtype) not in pairs]
    return [min(group, key=_plainness) for group in group_by(rows, lambda m: (m.problem, m.device)).values()]


def _plainness(m: Measurement) -> tuple:
    """Keras's fit goes before other ways, few options before more, float32 and the most samples before others."""
    return (
        m.variant != "fit",
        len(m.settings.switches),
        m.threads is not None,
        m.problem.dtype != "float32",
        -m.problem.samples,
    )


def single_job(m: Measurement, measurements: Iterable[Measurement] = ()) -> str:
    """`CIFAR-10 CNN, 1,000 samples, 2 epochs, on the CPU: 23 s. Start-up takes 12.7 s. ...`; without fits that tell these,
    its step alone."""
    p, cost = m.problem, costs.measured(m, measurements)
    how = [sentences.title(p.model), f"batch {p.batch:,}"] + [f"{p.dtype} inputs"] * (p.dtype != "float32")
    how += option_words(m.settings.switches) + ([count(m.threads, "thread")] if m.threads is not None else [])
    words: dict = {"training": ", ".join(how), "device": device_name(m.device), "step": of(m.on("host-latency"))}
    by = costs.parts(cost, p.epochs, p.steps) if cost else {}
    trained = by["epochs"] + by["steps"] + by["data-set setup"] if cost else None
    if cost is None or trained is None or trained.value <= 0:
        return sentences.say(SAID["step"], **words)
    words |= {"samples": sentences.counted(p.samples, "samples"), "epochs": sentences.counted(p.epochs, "epochs")}
    words |= {"start": cost.start, "built": by["build and compile"], "trained": trained}
    words |= {
        "total": costs.whole_training(cost, p.epochs, p.steps),
        "without": " without start-up" * (cost.start is None),
    }
    doubt = f" (doubtful: {join(m.flags)})" if m.flags else ""
    return " ".join(sentences.lines(SAID["whole"], doubt=doubt, **words))


def table(measurements: Iterable[Measurement]) -> list[tuple[str, ...]]:
    """A line under HEADS for each of Keras's own fits that was measured at full size."""
    rows = []
    for pair in break_even.pairs(measurements):
        setup = pair.setup
        if setup.switches or not setup.kernel.endswith("/fit") or break_even.planned(setup, "")[0] != setup.samples:
            continue
        step, whole = both(pair, BY_STEP), both(pair, BY_JOB)
        best = sentences.NAMES.get(faster(*whole), sentences.CANT_TELL)
        name = f"{subject(setup)}, {whole_job(setup)[0]}"
        rows.append((name, *map(sentences.timed, (*step, *whole)), best))
    return rows
