"""The job of a training that was measured on one device only, in a sentence: how long it takes, and what of that is start-up,
compiling and training. What ran on a CPU and a GPU is told side by side, by analysis.job_words."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from analysis import jobs
from analysis.budget_words import device_words
from analysis.estimate import Estimate, of
from analysis.training_words import switch_words
from analysis.units import count, join, percent, seconds
from kernels import networks

if TYPE_CHECKING:
    from workloads.records import Measurement

MOST = 8  # of more jobs the table's columns are easier to read than sentences
_NOISY, _SHOWN = 0.05, 0.2  # of a step: noise worth a word; of the training: what is beside its steps


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """A sentence for each training of one device alone; none where there are more than MOST."""
    every = list(measurements)
    alone = chosen(every)
    return [sentence(m, every) for m in alone] if len(alone) <= MOST else []


def chosen(measurements: "list[Measurement]") -> "list[Measurement]":
    """Of each training on one device only, the row as the framework does it by itself: Keras's fit before other ways, the fewest
    switches before more, as what each of them changes is told elsewhere."""
    both = {(p.setup.model, p.setup.batch, p.setup.samples, p.setup.dtype) for p in jobs.pairs(measurements)}
    found: dict[tuple, Measurement] = {}
    for m in jobs.trainings(measurements):
        p = m.problem
        if (p.model, p.batch, p.samples, p.dtype) not in both:
            key = (p, m.settings.device)
            found[key] = min(found.get(key, m), m, key=_plainness)
    return list(found.values())


def _plainness(m: "Measurement") -> tuple[bool, int, bool]:
    return not m.kernel.endswith("/fit"), len(m.settings.switches), m.settings.threads is not None


def sentence(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> str:
    """`cifar10-cnn (S0) on the CPU: the job of 1,000 samples and 2 epochs takes 22.9 s: 12.7 s start-up, 5.30 s building and
    compiling and 4.90 s training (64 steps of 15.0 ms; what a fit and its epochs cost besides is the rest).`
    Without the short fits that tell a job's parts, its step alone."""
    p, law = m.problem, jobs.law(m, measurements)
    network = networks.known(p.model)
    name = f"{p.model} ({network.seed})" if network and network.seed else p.model
    how = [f"{p.dtype} inputs"] * (p.dtype != "float32") + switch_words(m.settings.switches)
    how += [count(m.settings.threads, "thread")] if m.settings.threads is not None else []
    where = f"{', '.join([name, *how])} on {device_words(m.settings.device)}"
    sizes = f"{count(p.samples, 'sample').replace(str(p.samples), f'{p.samples:,}')} and {count(p.epochs, 'epoch')}"
    if law is None or law.fit_seconds(p.epochs, p.steps).value <= 0:
        return f"{where}: a step of {p.batch} samples takes {seconds(of(m.on('host-latency')).value)}."
    made = sum(e.value for e in (law.build, law.compile, law.compile_last) if e)
    steps, trained = p.epochs * p.steps, law.fit_seconds(p.epochs, p.steps).value
    a_step = law.step if p.steps > 1 and law.step.low > 0 else of(m.on("host-latency"))
    told = f"{count(steps, 'step')} of {seconds(a_step.value)}{_doubt(a_step)}"
    if a_step is not law.step:
        told += ", with their share of what a fit and its epochs cost"
    elif trained - steps * law.step.value > _SHOWN * trained:
        told += "; what a fit and its epochs cost besides is the rest"
    parts = [f"{seconds(law.start.value)} start-up"] if law.start else []
    parts += [f"{seconds(made)} building and compiling"] * (made > 0)
    parts += [f"{seconds(trained)} training ({told})"]
    total = (law.start.value if law.start else 0.0) + made + trained
    without = "" if law.start else ", without its start-up, which no row has"
    flags = f" (doubtful: its row is flagged {join(m.flags)})" if m.flags else ""
    return f"{where}: the job of {sizes} takes {seconds(total)}{without}: {join(parts)}{flags}."


def _doubt(e: Estimate) -> str:
    """How well a step is known, where that is worth a word."""
    if e.noise > 1:
        return ", hardly known"
    return f", +-{percent(e.noise)}" if e.noise > _NOISY else ""
