"""What is said first of each training: who wins its step and its whole job; of one measured on one device only, how long its job
takes and what of that is start-up, compiling and training."""

from collections.abc import Iterable
from math import inf

import msgspec

from analysis.crossover.crossover import Answer
from analysis.stats import Estimate, of
from analysis.text import whole_training
from analysis.text.rates import device_name
from analysis.text.training import subject, switch_words, whole_job
from analysis.training import break_even, costs
from analysis.training.break_even import BY_EPOCH, BY_JOB, BY_STEP, Pair, Setup
from analysis.units import count, join, percent, seconds, times
from kernels import networks
from workloads.records import Measurement, settings

MOST = 8  # of more jobs the table's columns are easier to read than sentences
_NOISY, _SHOWN = 0.05, 0.2  # of a step: noise worth a word; of the training: what is beside its steps


def training_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """From where the winner changes, where that is known, and who wins the steps of other sweeps over batch, width or depth;
    then seconds of each training's step on each device and who wins, and the same of its whole job: like with like, of the most
    samples that were measured, of many batches that of the model's article. Of what ran on one device, or without the short
    fits that tell a step, what its rows show."""
    every = list(measurements)
    turns = [a for a in break_even.answers(every) if _worth(a)]
    turns.sort(key=lambda a: not a.crossings)
    fits, bare = (
        [
            whole_training.answer_sentence(a)
            for a in turns
            if whole_training.setup_of(a.family).kernel.endswith("/fit") is own
        ]
        for own in (True, False)
    )
    most: dict[Setup, Pair] = {}
    made = break_even.pairs(every)
    for pair in made:
        if not pair.setup.switches:
            at = break_even.size_of(pair.setup, "samples")
            alike = msgspec.structs.replace(at[1] if at else pair.setup, dtype="")
            if any(a.family.varies == "batch" and _is_of(pair.setup, a) for a in turns):
                alike = msgspec.structs.replace(alike, batch=0)
            most[alike] = max(most.get(alike, pair), pair, key=_telling)
    told = {(p.setup.model, p.setup.batch) for p in made}
    return [*fits, *map(_of_pair, most.values()), *_of_rows(every, told), *bare]


def _worth(a: "Answer") -> bool:
    """Whether an answer is said by itself: a change of winner whose place is known, or the steps of a sweep that has none."""
    if a.crossings:
        return a.form.mode != BY_EPOCH and not any(c.wide for c in a.crossings)
    return a.form.mode == BY_STEP and a.family.varies != "samples" and len(a.points) > 2


def _is_of(setup: Setup, a: "Answer") -> bool:
    of = dict(a.family.fixed)
    return (setup.kernel, setup.model, setup.dtype) == (of["kernel"], of["model"], of["dtype"])


def _telling(pair: Pair) -> tuple[bool, int]:
    """Of alike pairs the article's batch goes first, then the most samples."""
    network = networks.known(pair.setup.model)
    return network is not None and pair.setup.batch == network.batch, pair.setup.samples


def _of_pair(pair: Pair) -> str:
    epochs, steps = break_even.job_of(pair, "")
    words, named = whole_job(pair.setup)

    def both(by: str) -> tuple[Estimate, Estimate]:
        sides = pair.cpu(by, epochs, steps), pair.gpu
        cpu, gpu = (break_even.seconds_by(side.cost, by, steps, epochs) for side in sides)
        return cpu, gpu

    most = "at most " * any(side.cost.bound for side in (pair.cpu(BY_STEP), pair.gpu))

    own = [side.cost.epoch.value for side in (pair.cpu(BY_JOB, epochs, steps), pair.gpu)]
    beyond = any(e > steps * step.value for e, step in zip(own, both(BY_STEP), strict=True))
    epoch = (
        f"; beside its {count(steps, 'step')} an epoch takes {seconds(own[0])} and {seconds(own[1])}" if beyond else ""
    )
    return (
        f"Training {subject(named)}: a step takes {most}{_beside(*both(BY_STEP))}{epoch}; "
        f"the whole job {words}, start-up and compilation included, {_beside(*both(BY_JOB))}."
    )


def _beside(cpu: Estimate, gpu: Estimate) -> str:
    told = f"{seconds(cpu.value)} on the CPU and {seconds(gpu.value)} on the GPU"
    if not (gpu.high < cpu.low or cpu.high < gpu.low):
        side, worse = max((("CPU", cpu), ("GPU", gpu)), key=lambda named: abs(named[1].noise))
        known = (
            "from these samples"
            if worse.high == inf
            else f"as the {side}'s is only known to +-{percent(abs(worse.noise))}"
        )
        return f"{told} (can't tell which is faster, {known})"
    winner, factor = ("GPU", cpu.value / gpu.value) if gpu.value < cpu.value else ("CPU", gpu.value / cpu.value)
    return f"{told} (the {winner} is {times(factor)} as fast)"


def _of_rows(measurements: "list[Measurement]", told: set[tuple[str, int]]) -> list[str]:
    """A sentence for each model and batch not told: on each device the row with the shortest step, of those without switches and
    of float32 inputs where there are such."""
    cases: dict = {}
    for m in measurements:
        if m.problem.op != "training" or not m.ok or not settings.ordinary(m):
            continue
        if (m.problem.model, m.problem.batch) not in told and (step := _step(m)):
            side = m.side
            sides = cases.setdefault((m.problem.model, m.problem.batch), {})
            changed = bool(switch_words(m.settings.switches)), m.problem.dtype != "float32"
            found = (*changed, step.value), step
            sides[side] = min(sides.get(side, found), found, key=lambda one: one[0])
    return [
        _of_steps(model, batch, {side: step for side, (_, step) in sides.items()})
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


def _of_steps(model: str, batch: int, sides: dict[str, Estimate]) -> str:
    said = f"Training {model} at batch {batch}: a step takes"
    if len(sides) == 2:
        return f"{said} {_beside(sides['CPU'], sides['GPU'])}."
    return f"{said} " + " and ".join(f"{seconds(step.value)} on the {side}" for side, step in sides.items()) + "."


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """A sentence for each training of one device alone; none where there are more than MOST."""
    every = list(measurements)
    alone = chosen(every)
    return [single_job(m, every) for m in alone] if len(alone) <= MOST else []


def chosen(measurements: "list[Measurement]") -> "list[Measurement]":
    """Of each training on one device only, the row as the framework does it by itself: Keras's fit before other ways, the fewest
    switches before more, as what each of them changes is told elsewhere."""
    both = {(p.setup.model, p.setup.batch, p.setup.samples, p.setup.dtype) for p in break_even.pairs(measurements)}
    found: dict[tuple, Measurement] = {}
    for m in break_even.trainings(measurements):
        p = m.problem
        if (p.model, p.batch, p.samples, p.dtype) not in both:
            key = (p, m.device)
            found[key] = min(found.get(key, m), m, key=_plainness)
    return list(found.values())


def _plainness(m: "Measurement") -> tuple[bool, int, bool]:
    return m.variant != "fit", len(m.settings.switches), m.threads is not None


def single_job(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> str:
    """`cifar10-cnn (S0) on the CPU: the job of 1,000 samples and 2 epochs takes 22.9 s: 12.7 s start-up, 5.30 s building and
    compiling and 4.90 s training (64 steps of 15.0 ms; what a fit and its epochs cost besides is the rest).`
    Without the short fits that tell a job's parts, its step alone."""
    p, cost = m.problem, costs.measured(m, measurements)
    network = networks.known(p.model)
    name = f"{p.model} ({network.seed})" if network and network.seed else p.model
    how = [f"{p.dtype} inputs"] * (p.dtype != "float32") + switch_words(m.settings.switches)
    how += [count(m.threads, "thread")] if m.threads is not None else []
    where = f"{', '.join([name, *how])} on {device_name(m.device)}"
    sizes = f"{count(p.samples, 'sample').replace(str(p.samples), f'{p.samples:,}')} and {count(p.epochs, 'epoch')}"
    by = costs.parts(cost, p.epochs, p.steps) if cost else {}
    trained = sum(by[name].value for name in ("data-set setup", "epochs", "steps")) if cost else 0.0
    if cost is None or trained <= 0:
        return f"{where}: a step of {p.batch} samples takes {seconds(of(m.on('host-latency')).value)}."
    made, steps = by["build and compile"].value, p.epochs * p.steps
    a_step = cost.step if p.steps > 1 and cost.step.low > 0 else of(m.on("host-latency"))
    most = "at most " * (a_step is cost.step and cost.bound)
    told = f"{count(steps, 'step')} of {most}{seconds(a_step.value)}{_doubt(a_step)}"
    if a_step is not cost.step:
        told += ", with their share of what a fit and its epochs cost"
    elif trained - steps * cost.step.value > _SHOWN * trained:
        told += "; what a fit and its epochs cost besides is the rest"
    said = [f"{seconds(cost.start.value)} start-up"] if cost.start else []
    said += [f"{seconds(made)} building and compiling"] * (made > 0)
    said += [f"{seconds(trained)} training ({told})"]
    total = (cost.start.value if cost.start else 0.0) + made + trained
    without = "" if cost.start else ", without its start-up, which no row has"
    flags = f" (doubtful: its row is flagged {join(m.flags)})" if m.flags else ""
    return f"{where}: the job of {sizes} takes {seconds(total)}{without}: {join(said)}{flags}."


def _doubt(e: Estimate) -> str:
    """How well a step is known, where that is worth a word."""
    if e.noise > 1:
        return ", hardly known"
    return f", +-{percent(e.noise)}" if e.noise > _NOISY else ""
