"""Training on the CPU or the GPU: the winner along batch, samples, width or depth, by the step, the epoch and the whole
training; measured or predicted.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from math import inf, log
from typing import Any

import msgspec
from msgspec.structs import replace

from analysis import noise
from analysis.crossover import sign_changes
from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.families import Family
from analysis.crossover.fastest_row import FastestRow
from analysis.crossover.forms import Form
from analysis.stats import Estimate, best_by, group_by, is_gpu, within_factor
from analysis.training import costs
from analysis.training.costs import TrainingCost, whole_training
from kernels import networks
from kernels.problems import Training
from workloads.records import Measurement, settings

# The CPU in its forms: (jit_compile on, the GPU visible) -> words.
FORMS = {
    (False, False): "GPU hidden",
    (True, False): "GPU hidden, jit on",
    (False, True): "GPU visible",
    (True, True): "GPU visible, jit on",
}
_FORM_SWITCHES = ("jit_compile", "gpu")
BY_STEP = "a step"
BY_EPOCH = "an epoch"
BY_JOB = "the whole training"
_MLP = re.compile(r"mlp-(\d+)-(\d+)x(\d+)-(\d+)")
_MLP_WITHOUT_SIZE = re.compile(r"mlp-(\d+)-(\d+|W)x(\d+|D)-(\d+)")
_FASHION = re.compile(r"fashion-mlp-(\d+)")
VARIES = ("batch", "samples", "width", "depth")


class Setup(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """Everything about a training but its device, the CPU's form and its epochs: rows of one Setup are the two sides of a
    comparison."""

    kernel: str
    model: str
    batch: int
    samples: int
    dtype: str
    #: (name, value) of those that are not their default, without the two that make a form.
    switches: tuple[tuple[str, str], ...] = ()


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """A training on one device and its cost."""

    #: Its row, without samples where the cost is predicted.
    row: Measurement
    #: Its cost, measured or predicted.
    cost: TrainingCost

    @property
    def device(self) -> str:
        return self.row.device

    @property
    def form(self) -> str:
        return form_of(self.row)

    def rank(self, t: Training) -> tuple:
        """Sort key of a training's rows; the first row stands for the training: known compilations, the nearest number of
        samples, the same type, most epochs, least noise."""
        p, step = self.row.problem, self.cost.step
        distance = abs(log(p.samples / t.samples))
        noise = step.noise if step.value > 0 else inf
        return self.cost.compile is None, distance, p.dtype != t.dtype, -p.epochs, noise


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of a training.

    The import has no interval in their costs: it is the same on both sides, so its uncertainty cannot change the winner.
    """

    #: What both share.
    setup: Setup
    #: The GPU as the framework runs it by default.
    gpu: Trained
    #: The CPU in each form that was measured.
    cpus: tuple[Trained, ...]

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.setup.samples // self.setup.batch)

    @property
    def weight(self) -> int:
        """Sort key of similar pairs: that of most samples stands."""
        return self.setup.samples

    @property
    def opponent(self) -> Trained:
        """The CPU's best form for the whole training of the row's samples and the model's own epochs."""
        return self.sides(BY_JOB, "samples")[0]

    @property
    def break_even(self) -> Estimate | None:
        """Epochs after which the GPU has finished before the CPU's best form (costs.break_even)."""
        return costs.break_even(self.opponent.cost, self.gpu.cost, self.steps)

    def cpu(self, by: str, epochs: int = 1, steps: int | None = None) -> Trained:
        """The CPU's best form by step, epoch (of `steps` steps; None: the row's) or whole training."""
        return min(self.cpus, key=lambda side: seconds_by(side.cost, by, steps or self.steps, epochs).value)

    def sides(self, by: str, varies: str = "") -> tuple[Trained, Trained]:
        """(the CPU's best form, the GPU); best by `by`: step, epoch or planned whole training."""
        return self.cpu(by, *job_of(self, varies)), self.gpu

    def seconds(self, by: str, varies: str = "") -> tuple[Estimate, Estimate]:
        """Seconds of a step, of an epoch or of the planned whole training: (the CPU's best form, the GPU)."""
        epochs, steps = job_of(self, varies)
        cpu, gpu = (seconds_by(side.cost, by, steps, epochs) for side in self.sides(by, varies))
        return cpu, gpu


def seconds_by(cost: TrainingCost, by: str, steps: int, epochs: int = 1) -> Estimate:
    """Seconds of a step, of an epoch of so many steps, or of the whole training of so many epochs."""
    if by == BY_STEP:
        return cost.step
    return cost.epoch_seconds(steps) if by == BY_EPOCH else whole_training(cost, epochs, steps)


def form_of(m: Measurement) -> str:
    """The form of a CPU row in words; empty for a GPU's."""
    if m.on_gpu:
        return ""
    return FORMS[m.keras.jit_compile == "on", m.keras.gpu == "visible"]


def setup_of(m: Measurement) -> Setup:
    """The setup of a row's training."""
    p = m.problem
    switches = [
        (name, value)
        for name, value in m.settings.switches.items()
        if name not in _FORM_SWITCHES and (name, value) != ("data", "synthetic")
    ]
    return Setup(
        kernel=m.kernel,
        model=p.model,
        batch=p.batch,
        samples=p.samples,
        dtype=p.dtype,
        switches=tuple(sorted(switches)),
    )


def trainings(measurements: Iterable[Measurement]) -> list[Measurement]:
    """The rows of warm processes that trained by themselves and have a time."""
    return [
        m
        for m in measurements
        if m.problem.op == "training" and m.ok and m.on("host-latency") and m.process == "warm" and settings.ordinary(m)
    ]


def is_default(m: Measurement) -> bool:
    """Whether a row may stand for a side: the CPU in a form with the threads that the framework takes, the GPU by default."""
    jit = m.keras.jit_compile
    if m.on_gpu:
        return jit == "auto"
    return m.threads is None and jit != "off"


def trained(measurements: Iterable[Measurement]) -> list[Trained]:
    """The rows with known costs, and these. Both devices get exactly the same import time."""
    every = [m for m in measurements if m.problem.op == "training"]
    one_of_form = {costs.start_form(row): row for row in every}
    starts = {form: costs.start_parts(row, every) for form, row in one_of_form.items()}
    with_costs = []
    for row in trainings(every):
        cost = costs.measured(row)
        if cost is None:
            continue
        start = None
        parts = starts[costs.start_form(row)]
        if parts is not None:
            import_s, device_s = parts
            start = device_s + import_s.value
        with_costs.append(Trained(row=row, cost=replace(cost, start=start)))
    return with_costs


def pairs(measurements: Iterable[Measurement]) -> list[Pair]:
    """The trainings that ran on both a CPU and the first GPU, in each form by the row that ranks first."""
    sides = [side for side in trained(measurements) if is_default(side.row) and side.device in ("cpu", "gpu:0")]
    pairs = []
    for setup, same_setup in sorted(group_by(sides, lambda side: setup_of(side.row)).items()):
        best = best_by(same_setup, lambda side: (side.device, side.form), lambda side: side.rank(side.row.problem))
        gpus = [side for side in best.values() if is_gpu(side.device)]
        cpus = [side for side in best.values() if not is_gpu(side.device)]
        if gpus and cpus:
            pairs.append(Pair(setup=setup, gpu=gpus[0], cpus=tuple(cpus)))
    return pairs


def size_of(setup: Setup, varies: str) -> tuple[int, Setup] | None:
    """(the size along `varies`, the setup with 0 or a letter in its place); None if the model has no such size.

    A batch that holds all samples varies with them: then both are 0.
    """
    is_one_batch = setup.batch == setup.samples
    if varies == "batch":
        return None if is_one_batch else (setup.batch, replace(setup, batch=0, samples=0))
    if varies == "samples":
        return setup.samples, replace(setup, samples=0, batch=0 if is_one_batch else setup.batch)
    mlp = _MLP.fullmatch(setup.model)
    if mlp:
        inputs, units, layers, outputs = mlp.groups()
        if varies == "width":
            return int(units), replace(setup, model=f"mlp-{inputs}-Wx{layers}-{outputs}")
        return int(layers), replace(setup, model=f"mlp-{inputs}-{units}xD-{outputs}")
    fashion = _FASHION.fullmatch(setup.model)
    if varies == "depth" and fashion:
        return int(fashion[1]), replace(setup, model="fashion-mlp-D")
    return None


def sized(t: Training, varies: str) -> tuple[int, Setup]:
    """(the size of a training by Keras along what varies, its setup without that).

    Raises: ValueError for a training without such a size.
    """
    setup = Setup(kernel=costs.FIT, model=t.model, batch=t.batch, samples=t.samples, dtype=t.dtype)
    size_and_rest = size_of(setup, varies)
    if size_and_rest is None:
        raise ValueError(f"{t.model} has no {varies} that could vary")
    return size_and_rest


def at(fixed: Setup, varies: str, size: int) -> Setup:
    """The setup with `size` in place of its `varies`: undoes size_of, except that a varied batch leaves samples at 0."""
    if varies == "batch":
        return replace(fixed, batch=size)
    if varies == "samples":
        return replace(fixed, samples=size, batch=fixed.batch or size)
    mlp = _MLP_WITHOUT_SIZE.fullmatch(fixed.model)
    if mlp is None:
        return replace(fixed, model=f"fashion-mlp-{size}")
    inputs, units, layers, outputs = mlp.groups()
    if varies == "width":
        return replace(fixed, model=f"mlp-{inputs}-{size}x{layers}-{outputs}")
    return replace(fixed, model=f"mlp-{inputs}-{units}x{size}-{outputs}")


def family_of(fixed: Setup, varies: str) -> Family:
    """The family of the setup's trainings along what varies."""
    fields = [(name, value) for name, value in msgspec.structs.asdict(fixed).items() if name != "switches"]
    return Family("training", varies, (varies,), (*fields, *fixed.switches))


def setup_in(family: Family) -> Setup:
    """The setup of a family's trainings; the varied field is 0, or a letter in the model's name."""
    fixed = dict(family.fixed)
    fields: dict[str, Any] = {name: fixed.pop(name) for name in Setup.__struct_fields__ if name in fixed}
    return Setup(**fields, switches=tuple((name, str(value)) for name, value in fixed.items()))


def crossing(
    family: Family, by: str, sizes: Mapping[int, tuple[Trained, Trained]], job: Callable[[int], tuple[int, int]]
) -> Answer:
    """The crossover along a size, from (CPU, GPU) at each; `job`: size -> (epochs, steps an epoch) of the whole training."""

    points = []
    for size, (cpu, gpu) in sorted(sizes.items()):
        epochs, steps = job(size)
        points.append(CrossoverPoint(n=size, cpu=_side(cpu, by, epochs, steps), gpu=_side(gpu, by, epochs, steps)))
    return sign_changes.classify(points[0].cpu.math, Form(mode=by), points, family=family)


def _side(training: Trained, by: str, epochs: int, steps: int) -> FastestRow:
    """One device's seconds by step, epoch or whole training, as a side of a crossover; its precision is the input type."""
    row = training.row
    return FastestRow(
        kernel=row.kernel if training.cost.source == "measured" else training.cost.source,
        device=training.device,
        threads=row.threads,
        math=row.problem.dtype,
        seconds=seconds_by(training.cost, by, steps, epochs),
    )


def planned(setup: Setup, varies: str) -> tuple[int, int]:
    """(samples, epochs) of the whole training that rows are compared by, as most rows are short; its time is computed from
    costs. They are the article's, but each row's own samples if samples vary or are all in one batch."""
    network = networks.known(setup.model)
    if network is None:
        return setup.samples, 1
    takes_row_samples = varies == "samples" or setup.batch == setup.samples
    return setup.samples if takes_row_samples else network.samples, network.epochs


def planned_steps(setup: Setup, samples: int) -> int:
    """Steps of an epoch of the whole training that a crossover is of. A row of whole batches did not measure the compilation of a
    smaller last batch, so no point of its crossover has such a batch, on either device."""
    return max(1, samples // setup.batch) if setup.samples % setup.batch == 0 else -(-samples // setup.batch)


def planned_training(setup: Setup) -> Training:
    """The whole training that a setup is judged by: its model's own samples and epochs."""
    samples, epochs = planned(setup, "")
    return Training(setup.model, setup.batch, samples, epochs, dtype=setup.dtype)


def compiling(side: Trained, training: Training) -> Trained:
    """A side with the compilations of a whole training. Without a smaller last batch that compiles once, whatever the row did;
    with one, beside a row that did not, a second time for at most as long as the first."""
    compiles_twice = costs.left_over(training, side.row.settings) > 0
    row_compiled_twice = costs.left_over(side.row.problem, side.row.settings) > 0
    if compiles_twice == row_compiled_twice:
        return side
    first = costs.phase(side.row, "compile")
    if first and compiles_twice:
        return replace(side, cost=replace(side.cost, compile=first + replace(first, low=0.0)))
    return replace(side, cost=replace(side.cost, compile=first))


def sweeps(pairs: list[Pair], varies: Iterable[str] = VARIES) -> list[tuple[Setup, str, dict[int, Pair]]]:
    """(the fixed rest, the varied size, size -> pair) for each size that was measured at two values or more."""
    sweeps = []
    for name in varies:
        pairs_by_size: dict[Setup, dict[int, Pair]] = {}
        for pair in pairs:
            size_and_rest = size_of(pair.setup, name)
            if size_and_rest is None:
                continue
            size, fixed = size_and_rest
            sizes = pairs_by_size.setdefault(fixed, {})
            sizes[size] = max(sizes.get(size, pair), pair, key=lambda p: p.weight)
        for fixed, sizes in pairs_by_size.items():
            if len(sizes) > 1:
                sweeps.append((fixed, name, dict(sorted(sizes.items()))))
    return sweeps


def job_of(pair: Pair, varies: str) -> tuple[int, int]:
    """(epochs, steps an epoch) of the planned whole training of a pair."""
    samples, epochs = planned(pair.setup, varies)
    return epochs, planned_steps(pair.setup, samples)


def answers(measurements: Iterable[Measurement], varies: Iterable[str] = VARIES) -> list[Answer]:
    """The crossover along each swept size: by the step, and by the whole training of the model's own samples and epochs; along
    samples by the epoch too."""
    answers = []
    for fixed, name, sizes in sweeps(pairs(measurements), varies):
        jobs = {size: job_of(pair, name) for size, pair in sizes.items()}
        for by in (BY_STEP, BY_EPOCH, BY_JOB) if name == "samples" else (BY_STEP, BY_JOB):
            sides = {size: pair.sides(by, name) for size, pair in sizes.items()}
            answers.append(crossing(family_of(fixed, name), by, sides, jobs.__getitem__))
    return answers


def main_answers(measurements: Iterable[Measurement]) -> list[Answer]:
    """The crossovers to show: first those with a well-known crossing, then sweeps by the step without one; Keras's fits first
    in each group."""

    def tells(a: Answer) -> bool:
        if a.crossings:
            return a.form.mode != BY_EPOCH and not any(c.wide for c in a.crossings)
        return a.form.mode == BY_STEP and a.family.varies != "samples" and len(a.points) > 2

    telling = filter(tells, answers(measurements))
    return sorted(telling, key=lambda a: (not a.crossings, not _is_fit(setup_in(a.family))))


def _is_fit(setup: Setup) -> bool:
    """Whether Keras's fit trains."""
    return setup.kernel.rpartition("/")[2] == "fit"


def main_pairs(measurements: Iterable[Measurement]) -> list[Pair]:
    """One pair of each model and kernel, without options: at its article's batch, else the one with the most
    samples. Keras's fits come first, among them the articles' models."""

    def weight(pair: Pair) -> tuple:
        network = networks.known(pair.setup.model)
        return network is not None and pair.setup.batch == network.batch, pair.weight

    def rank(pair: Pair) -> tuple[bool, bool]:
        network = networks.known(pair.setup.model)
        return not _is_fit(pair.setup), not (network and network.seed)

    plain = [pair for pair in pairs(measurements) if not pair.setup.switches]
    same_model = group_by(plain, lambda pair: (pair.setup.kernel, pair.setup.model))
    return sorted((max(group, key=weight) for group in same_model.values()), key=rank)


def unpaired(measurements: Iterable[Measurement]) -> list[Measurement]:
    """The plainest row of each device, model, batch and number of samples without a pair of the model and batch. Plainer are
    Keras's fits, fewer options, float32."""
    every = list(measurements)
    paired = {(p.setup.model, p.setup.batch) for p in pairs(every)}

    def plainness(m: Measurement) -> tuple:
        p = m.problem
        return m.variant != "fit", len(m.settings.switches), m.threads is not None, p.dtype != "float32"

    rows = [m for m in trainings(every) if (m.problem.model, m.problem.batch) not in paired]
    alike = group_by(rows, lambda m: (m.problem.model, m.problem.batch, m.problem.samples, m.device))
    return [min(group, key=plainness) for group in alike.values()]


def small_datasets(pairs: list[Pair]) -> list[tuple[Setup, tuple[Pair, ...]]]:
    """(the fixed rest, pairs by rising samples) of trainings at three sample counts or more, Keras's fits first."""
    small = []
    for fixed, _, sizes in sweeps(pairs, ("samples",)):
        other_options = set(dict(fixed.switches)) - {"residence"}
        if len(sizes) > 2 and not other_options:
            small.append((fixed, tuple(sizes.values())))
    return sorted(small, key=lambda fixed_and_pairs: not _is_fit(fixed_and_pairs[0]))


def changed(measurements: Iterable[Measurement]) -> list[tuple[Trained, Trained]]:
    """(row, the plain row to compare it with) of each training by Keras that differs from a plain fit in options, type or
    threads."""
    every = trained(measurements)
    plain = {(setup_of(side.row), side.device): side for side in every if _is_plain(side.row)}
    changes = []
    for side in every:
        setup = setup_of(side.row)
        fit = replace(setup, kernel=costs.FIT, switches=())
        same_type = plain.get((fit, side.device))
        base = same_type
        if same_type is None or same_type is side:
            base = plain.get((replace(fit, dtype="float32"), side.device))
        is_loop = setup.kernel.endswith("loop")
        if base and base is not side and not is_loop:
            changes.append((side, replace(base, cost=replace(base.cost, step=other_step(side, base)))))
    return changes


def _is_plain(m: Measurement) -> bool:
    """Whether a row has no options, and the threads that the framework takes."""
    return m.threads is None and m.settings.switches in ({}, {"data": "synthetic"})


def other_step(side: Trained, other: Trained) -> Estimate:
    """The other's step, to compare with a side's. If the rows are of two hours, the noise between runs is in its interval."""
    same_hour = side.row.at[:13] == other.row.at[:13]
    return other.cost.step if same_hour else other.cost.step * within_factor(1.0, 1 + noise.DEFAULT[noise.MODELS])
