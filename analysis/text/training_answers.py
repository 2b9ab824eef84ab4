"""What is said first of each training: who wins its whole training and its step; of one measured on one device only, how long it
takes and what of that is start-up, compiling and training."""

from collections.abc import Iterable
from math import inf

import msgspec

from analysis.crossover.crossover import Answer
from analysis.stats import Estimate, faster, of
from analysis.text import sentences, training
from analysis.text.rates import device_name
from analysis.text.rows import option_words
from analysis.text.training import subject, whole_job
from analysis.training import break_even, costs
from analysis.training.break_even import BY_EPOCH, BY_JOB, BY_STEP, Pair, Setup
from analysis.units import count, join
from kernels import networks
from workloads.records import Measurement, settings

MOST = 8  # of more trainings the table's columns are easier to read than sentences
_SAID = {
    "one": "{training}: a step takes {step} on the {side}.",
    "job": "{training}, {sizes}, on {device}: {total}{doubt}. Start-up takes {start}, building and compiling {made}, training "
    "{trained}.",
    "parts": "{training}, {sizes}, on {device}: {total} without start-up{doubt}. Building and compiling take {made}, training "
    "{trained}.",
    "step": "{training}, on {device}: a step takes {step}.",
}


def training_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """Who wins each training and its step: like with like, of the most samples that were measured, of many batches that of the
    model's article; then from where the winner changes. Of what ran on one device, or without the fits that tell a step, what
    its rows show."""
    every = list(measurements)
    turns = [a for a in break_even.answers(every) if _worth(a)]
    turns.sort(key=lambda a: (not a.crossings, not break_even.setup_in(a.family).kernel.endswith("/fit")))
    most: dict[Setup, Pair] = {}
    made = break_even.pairs(every)
    for pair in made:
        if not pair.setup.switches:
            at = break_even.size_of(pair.setup, "samples")
            alike = msgspec.structs.replace(at[1] if at else pair.setup, dtype="")
            if any(a.family.varies == "batch" and _is_of(pair.setup, a) for a in turns):
                alike = msgspec.structs.replace(alike, batch=0)
            most[alike] = max(most.get(alike, pair), pair, key=_telling)
    known = {(p.setup.model, p.setup.batch) for p in made}
    return [
        *map(_of_pair, sorted(most.values(), key=_rank)),
        *map(training.answer_sentence, turns),
        *_of_rows(every, known),
    ]


def _rank(pair: Pair) -> tuple[bool, bool]:
    """Keras's own fits go first, and of these the articles' trainings."""
    network = networks.known(pair.setup.model)
    return not pair.setup.kernel.endswith("/fit"), not (network and network.seed)


def _worth(a: "Answer") -> bool:
    """Whether an answer is said by itself: a change of winner whose place is known, or the steps of a sweep that has none."""
    if a.crossings:
        return a.form.mode != BY_EPOCH and not any(c.wide for c in a.crossings)
    return a.form.mode == BY_STEP and a.family.varies != "samples" and len(a.points) > 2


def _is_of(setup: Setup, a: "Answer") -> bool:
    of = dict(a.family.fixed)
    return (setup.kernel, setup.model) == (of["kernel"], of["model"])


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


def _of_rows(measurements: "list[Measurement]", known: set[tuple[str, int]]) -> list[str]:
    """A sentence for each model and batch not `known`: on each device the row with the shortest step, of those without switches
    and of float32 inputs where there are such."""
    cases: dict = {}
    for m in measurements:
        if m.problem.op != "training" or not m.ok or not settings.ordinary(m):
            continue
        if (m.problem.model, m.problem.batch) not in known and (step := _step(m)):
            sides = cases.setdefault((m.problem.model, m.problem.batch), {})
            changed = bool(option_words(m.settings.switches)), m.problem.dtype != "float32"
            found = (*changed, step.value), step
            sides[m.side] = min(sides.get(m.side, found), found, key=lambda one: one[0])
    return [
        _of_steps(f"{sentences.title(model)}, batch {batch}", {side: step for side, (_, step) in sides.items()})
        for (model, batch), sides in cases.items()
    ]


def _step(m: "Measurement") -> Estimate | None:
    """Seconds of a step without what an epoch and a fit cost beside their steps, where the row's fits tell it; else an epoch's
    seconds a step, of one sample with no end of an interval."""
    cost, own = costs.measured(m), m.on("host-latency")
    if cost and cost.step.low > 0:
        return cost.step
    if not (own and own.seconds):
        return None
    return of(own) if len(own.seconds) > 1 else Estimate(of(own).value, 0.0, inf)


def _of_steps(training: str, sides: dict[str, Estimate]) -> str:
    if len(sides) == 2:
        return sentences.winner(sides["CPU"], sides["GPU"], of=f"{training}, a step")
    ((side, step),) = sides.items()
    return _SAID["one"].format(training=training, step=sentences.time(step), side=side)


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """A sentence for each training of one device alone; none where there are more than MOST."""
    every = list(measurements)
    alone = chosen(every)
    return [single_job(m, every) for m in alone] if len(alone) <= MOST else []


def chosen(measurements: "list[Measurement]") -> "list[Measurement]":
    """Of each training on one device only, the row as the framework does it by itself: Keras's fit before other ways, the fewest
    switches before more, as what each of them changes is told elsewhere."""
    pairs = {(p.setup.model, p.setup.batch, p.setup.samples, p.setup.dtype) for p in break_even.pairs(measurements)}
    found: dict[tuple, Measurement] = {}
    for m in break_even.trainings(measurements):
        p = m.problem
        if (p.model, p.batch, p.samples, p.dtype) not in pairs:
            key = (p, m.device)
            found[key] = min(found.get(key, m), m, key=_plainness)
    return list(found.values())


def _plainness(m: "Measurement") -> tuple[bool, int, bool]:
    return m.variant != "fit", len(m.settings.switches), m.threads is not None


def single_job(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> str:
    """`CIFAR-10 CNN, 1,000 samples, 2 epochs, on the CPU: 23 s. Start-up takes 12.7 s, ...`; without fits that tell these,
    its step alone."""
    p, cost = m.problem, costs.measured(m, measurements)
    how = [sentences.title(p.model), f"batch {p.batch}"] + [f"{p.dtype} inputs"] * (p.dtype != "float32")
    how += option_words(m.settings.switches) + ([count(m.threads, "thread")] if m.threads is not None else [])
    words = {"training": ", ".join(how), "device": device_name(m.device)}
    by = costs.parts(cost, p.epochs, p.steps) if cost else {}
    trained = sum((by[name] for name in ("epochs", "steps")), by["data-set setup"]) if cost else None
    if cost is None or trained is None or trained.value <= 0:
        return _SAID["step"].format(step=sentences.time(of(m.on("host-latency"))), **words)
    whole = costs.whole_training(cost, p.epochs, p.steps)
    words |= {"sizes": f"{sentences.counted(p.samples, 'samples')}, {sentences.counted(p.epochs, 'epochs')}"}
    words |= {"made": sentences.time(by["build and compile"]), "trained": sentences.time(trained)}
    words |= {"total": sentences.time(whole), "doubt": f" (doubtful: {join(m.flags)})" if m.flags else ""}
    if cost.start is None:
        return _SAID["parts"].format(**words)
    return _SAID["job"].format(start=sentences.time(cost.start), **words)


HEADS = "training | a step, CPU | a step, GPU | whole training, CPU | whole training, GPU | finishes first"


def table(measurements: "Iterable[Measurement]") -> list[tuple[str, ...]]:
    """A line under HEADS for each of Keras's own fits that was measured at full size."""
    rows = []
    for pair in break_even.pairs(measurements):
        of = pair.setup
        if of.switches or not of.kernel.endswith("/fit") or break_even.planned(of, "")[0] != of.samples:
            continue
        step, whole = both(pair, BY_STEP), both(pair, BY_JOB)
        best = {"gpu": "GPU", "cpu": "CPU"}.get(faster(*whole), sentences.CANT_TELL)
        name = f"{subject(pair.setup)}, {whole_job(pair.setup)[0]}"
        rows.append((name, *map(sentences.timed, (*step, *whole)), best))
    return rows
