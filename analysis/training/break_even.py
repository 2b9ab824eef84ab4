"""Training on the CPU or the GPU: who wins from which batch, samples, width, depth or epochs, by the step and by the whole
job with its start-up and compilation; and how many epochs a GPU needs to pay back what it costs to begin.

What a row's parts cost is analysis.training.costs'; brackets, signs and their words are analysis.crossover's.
"""

import math
import re
from collections.abc import Iterable

import msgspec

from analysis.crossover import crossover
from analysis.crossover.crossover import Answer, Family, Form, Point, Side
from analysis.stats import NOTHING, Estimate, is_gpu, of, total
from analysis.training import costs
from analysis.training.costs import Costs
from kernels import networks
from workloads.records import Measurement, settings

# The CPU in its forms: (jit_compile on, the GPU visible) -> words.
FORMS = {
    (False, False): "GPU hidden",
    (True, False): "GPU hidden, jit on",
    (False, True): "GPU visible",
    (True, True): "GPU visible, jit on",
}
_FORM_SWITCHES = ("jit_compile", "gpu")
BY_STEP, BY_EPOCH, BY_JOB = "a step", "an epoch", "the whole job"
_MLP = re.compile(r"mlp-(\d+)-(\d+)x(\d+)-(\d+)")
_FASHION = re.compile(r"fashion-mlp-(\d+)")
VARIES = ("batch", "samples", "width", "depth")


class Setup(msgspec.Struct, frozen=True, order=True):
    """Everything about a training but its device, the CPU's form and its epochs: rows of one Setup are the two sides of a
    comparison. `switches`: those that are not their default, without the two that make a form."""

    kernel: str
    model: str
    batch: int
    samples: int
    dtype: str
    switches: tuple[tuple[str, str], ...] = ()


class Device(msgspec.Struct, frozen=True):
    """What one row says of its device: `form` in words, and the law of its costs."""

    row: "Measurement"
    form: str
    costs: Costs

    @property
    def device(self) -> str:
        return self.row.device

    def epoch(self, steps: int) -> Estimate:
        """Seconds of a warm epoch of so many steps."""
        return self.costs.epoch + self.costs.step * steps

    def job(self, epochs: int, steps: int) -> Estimate:
        """Seconds of a job in a process of its own: start-up, build, compilation and the fit."""
        return costs.job_seconds(self.costs, epochs, steps)

    def begins(self, steps: int) -> Estimate:
        """Seconds of a job of so many steps an epoch that do not grow with its epochs."""
        return self.job(1, steps) - self.epoch(steps)


class Pair(msgspec.Struct, frozen=True):
    """Both sides of a training: the GPU as the framework runs it by default, and the CPU in each form that was measured.

    The import has no interval in their costs: both begin with the same one, so what is not known of it moves neither ahead.
    """

    setup: Setup
    gpu: Device
    cpus: tuple[Device, ...]

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.setup.samples // self.setup.batch)

    def cpu(self, by: str, epochs: int = 1, steps: int | None = None) -> Device:
        """The CPU's best form by that count, of so many steps an epoch (the row's own)."""
        return min(self.cpus, key=lambda side: seconds_by(side, by, steps or self.steps, epochs).value)


def seconds_by(side: Device, by: str, steps: int, epochs: int = 1) -> Estimate:
    """Seconds of a step, of an epoch of so many steps, or of the whole job of so many epochs."""
    if by == BY_STEP:
        return side.costs.step
    return side.epoch(steps) if by == BY_EPOCH else side.job(epochs, steps)


def form_of(m: "Measurement") -> str:
    """The form of a CPU row in words; empty for a GPU's."""
    if m.on_gpu:
        return ""
    given = m.keras
    return FORMS[given.jit_compile == "on", given.gpu == "visible"]


def setup_of(m: "Measurement") -> Setup:
    p = m.problem
    given = tuple(
        sorted(
            (name, text)
            for name, text in m.settings.switches.items()
            if name not in _FORM_SWITCHES and (name, text) != ("data", "synthetic")
        )
    )
    return Setup(m.kernel, p.model, p.batch, p.samples, p.dtype, given)


def trainings(measurements: "Iterable[Measurement]") -> "list[Measurement]":
    """The rows of warm processes that trained by themselves and have a time."""
    return [
        m
        for m in measurements
        if m.problem.op == "training" and m.ok and m.on("host-latency") and m.process == "warm" and settings.ordinary(m)
    ]


def is_default(m: "Measurement") -> bool:
    """Whether a row may stand for a side: the CPU in a form with the threads that the framework takes, the GPU by default."""
    jit = m.keras.jit_compile
    return jit == "auto" if m.on_gpu else m.threads is None and jit != "off"


def law(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> Costs | None:
    """The costs of a row; its start-up is that of another row of the same device where its process had begun before.

    A bare loop over one batch has no epochs, and its few short fits tell its microseconds badly: its step is its own fit's,
    of thousands, with what a fit costs shared among them.
    """
    found = costs.costs(m, measurements)
    own = m.on("host-latency")
    if found and own and m.kernel.endswith("loop") and m.problem.batch >= m.problem.samples:
        return msgspec.structs.replace(found, fit=NOTHING, epoch=NOTHING, step=of(own))
    return found


def trust(m: "Measurement", step: Estimate, dtype: str) -> tuple[bool, float, bool]:
    """What the rows of one step are sorted by, the one that tells it best first: by its own epochs, as short fits have in a step
    what a fit does with its samples; then with little noise; then with inputs of that type, others being cast before a step."""
    return not costs.by_epochs(m), step.noise if step.value > 0 else math.inf, m.problem.dtype != dtype


def job(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> Estimate | None:
    """Seconds of a row's own job: its epochs in a process of its own."""
    found = law(m, measurements)
    return costs.job_seconds(found, m.problem.epochs, m.problem.steps) if found else None


def pairs(measurements: "Iterable[Measurement]") -> list[Pair]:
    """The trainings that ran on both a CPU and the first GPU. Of rows that differ in epochs alone the longest stands."""
    every = [m for m in measurements if m.problem.op == "training"]
    groups: dict[Setup, dict[tuple[str, str], Measurement]] = {}
    for m in trainings(every):
        if is_default(m) and m.device in ("cpu", "gpu:0"):
            sides = groups.setdefault(setup_of(m), {})
            key = (m.device, form_of(m))
            sides[key] = max(sides.get(key, m), m, key=lambda row: row.problem.epochs)
    begun = {how: costs.begun(m, every) for how, m in {costs.how_begun(m): m for m in every}.items()}
    found = []
    for setup, sides in sorted(groups.items()):
        if len({device for device, _ in sides}) < 2:
            continue
        made = [
            Device(m, form, _alike(c, begun[costs.how_begun(m)])) for (_, form), m in sides.items() if (c := law(m))
        ]
        gpu = next((d for d in made if is_gpu(d.device)), None)
        cpus = tuple(d for d in made if not is_gpu(d.device))
        if gpu and cpus:
            found.append(Pair(setup, gpu, cpus))
    return found


def _alike(found: Costs, begun: tuple[Estimate, Estimate] | None) -> Costs:
    """The costs with an import that is as long as the other side's, to the digit."""
    return msgspec.structs.replace(found, start=begun[1] + begun[0].value) if begun else found


def size_of(setup: Setup, varies: str) -> tuple[int, Setup] | None:
    """(the size, the setup with 0 in its place) along what varies; None where the model has no such size.

    A batch that holds all samples moves with them: then both are 0.
    """
    change = msgspec.structs.replace
    if varies == "batch":
        return None if setup.batch == setup.samples else (setup.batch, change(setup, batch=0, samples=0))
    if varies == "samples":
        return setup.samples, change(setup, samples=0, batch=0 if setup.batch == setup.samples else setup.batch)
    if found := _MLP.fullmatch(setup.model):
        inputs, units, layers, outputs = found.groups()
        if varies == "width":
            return int(units), change(setup, model=f"mlp-{inputs}-Wx{layers}-{outputs}")
        return int(layers), change(setup, model=f"mlp-{inputs}-{units}xD-{outputs}")
    if varies == "depth" and (found := _FASHION.fullmatch(setup.model)):
        return int(found[1]), change(setup, model="fashion-mlp-D")
    return None


def at(fixed: Setup, varies: str, size: int) -> Setup:
    """The setup at a size along what varies: what size_of took apart, but for a batch's own samples."""
    change = msgspec.structs.replace
    if varies == "batch":
        return change(fixed, batch=size)
    if varies == "samples":
        return change(fixed, samples=size, batch=fixed.batch or size)
    return change(fixed, model=re.sub(r"(?<=[-x])[WD](?=x|-|$)", str(size), fixed.model))


def _family(fixed: Setup, varies: str) -> Family:
    words = tuple((name, value) for name, value in msgspec.structs.asdict(fixed).items() if name != "switches")
    return Family("training", varies, (varies,), (*words, *fixed.switches))


def _point(pair: Pair, size: int, by: str, steps: int, epochs: int) -> Point:
    cpu = pair.cpu(by, epochs, steps)

    def side(of_: Device) -> Side:
        m = of_.row
        return Side(m.kernel, m.device, m.threads, m.problem.dtype, seconds_by(of_, by, steps, epochs))

    return Point(size, side(cpu), side(pair.gpu))


def planned(setup: Setup, varies: str) -> tuple[int, int]:
    """(samples, epochs) of the whole job that rows are compared by, put together from what their parts cost: the article's,
    as most rows are short ones; each row's own samples where these vary, or are all of a batch."""
    network = networks.known(setup.model)
    own = varies == "samples" or setup.batch == setup.samples
    samples = network.samples if network and not own else setup.samples
    return samples, network.epochs if network else 1


def planned_steps(setup: Setup, samples: int) -> int:
    """Steps of an epoch of the planned job. A row of whole batches says nothing of what compiling for a smaller last one takes,
    so its job leaves that batch out, on both devices; the job of a row that has one has one too."""
    return max(1, samples // setup.batch) if setup.samples % setup.batch == 0 else -(-samples // setup.batch)


def answers(measurements: "Iterable[Measurement]", varies: Iterable[str] = VARIES) -> list[Answer]:
    """Who wins along each size that was swept (two of it at least): by the step, and by the whole job of the model's own
    samples and epochs; along samples by the epoch too."""
    made = pairs(measurements)
    found = []
    for name in varies:
        groups: dict[Setup, dict[int, Pair]] = {}
        for pair in made:
            if at := size_of(pair.setup, name):
                held = groups.setdefault(at[1], {})
                held[at[0]] = max(held.get(at[0], pair), pair, key=lambda p: p.setup.samples)
        for fixed, sizes in groups.items():
            if len(sizes) < 2:
                continue
            for by in (BY_STEP, BY_EPOCH, BY_JOB) if name == "samples" else (BY_STEP, BY_JOB):
                points = []
                for size, pair in sorted(sizes.items()):
                    samples, epochs = planned(pair.setup, name)
                    points.append(_point(pair, size, by, planned_steps(pair.setup, samples), epochs))
                found.append(crossover.classify(fixed.dtype, Form(by), points, family=_family(fixed, name)))
    return found


def payback(pair: Pair) -> Estimate | None:
    """Epochs after which the GPU, which begins later, has finished first; 0 where it does not begin later, None where its
    epochs are no shorter. The upper end is infinite where they may be no shorter, and all but the lower one, the earliest, where
    they may be shorter and likely are not."""
    cpu = opponent(pair)
    later = pair.gpu.begins(pair.steps) - cpu.begins(pair.steps)
    gain = cpu.epoch(pair.steps) - pair.gpu.epoch(pair.steps)
    return later / gain if gain.high > 0 else None


def opponent(pair: Pair) -> Device:
    """The CPU's best form for the whole job of the model's own epochs: what a GPU's start is paid back against."""
    return pair.cpu(BY_JOB, planned(pair.setup, "epochs")[1])


class Split(msgspec.Struct, frozen=True):
    """Where the seconds of a whole job go, in order; they add up to `total`."""

    side: Device
    epochs: int
    parts: tuple[tuple[str, Estimate], ...]

    @property
    def total(self) -> Estimate:
        return total(e for _, e in self.parts)


def split(side: Device, epochs: int, steps: int) -> Split:
    """A job in parts: start-up, building and compiling, what a fit, its epochs and its steps cost."""
    c = side.costs
    made = total((c.build, c.compile, c.compile_last))
    return Split(
        side,
        epochs,
        (
            ("start-up", c.start or NOTHING),
            ("build and compile", made),
            ("per fit", c.fit_beyond(steps)),
            ("per epoch", c.epoch * epochs),
            ("per step", c.step * (epochs * steps)),
        ),
    )
