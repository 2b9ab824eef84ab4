"""Training on the CPU or the GPU: the winner along batch, samples, width or depth, by the step, the epoch and the whole
training; measured or predicted.
"""

import re
from collections.abc import Iterable, Mapping
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
BY_WHOLE_TRAINING = "the whole training"
_MLP = re.compile(r"mlp-(\d+)-(\d+)x(\d+)-(\d+)")
_MLP_WITHOUT_SIZE = re.compile(r"mlp-(\d+)-(\d+|W)x(\d+|D)-(\d+)")
_FASHION = re.compile(r"fashion-mlp-(\d+)")
VARIES = ("batch", "samples", "width", "depth")


class Setup(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """Everything about a training but its device, the CPU's form and its epochs. Trainings with one Setup are compared, as they
    do the same work on two devices."""

    #: What trains: training/keras/fit, training/tensorflow/loop ...
    kernel: str
    model: str
    batch: int
    #: Samples of an epoch.
    samples: int
    #: Type of the inputs.
    dtype: str
    #: (name, value) of the options that are not their default, without the two that make a form.
    switches: tuple[tuple[str, str], ...] = ()


class SplitSetup(msgspec.Struct, frozen=True, kw_only=True):
    """A setup with the size that varies split off."""

    size: int
    #: The setup with 0, or a letter in the model's name, in place of the size.
    fixed: Setup


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """The length of a whole training."""

    epochs: int
    #: Steps of an epoch.
    steps: int


class PlannedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """The whole training by which a setup is judged."""

    #: Samples of an epoch.
    samples: int
    epochs: int


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
        """How the CPU was used, in words (FORMS); "" on a GPU."""
        return form_of(self.row)

    def rank(self, training: Training) -> tuple:
        """Sort key of rows of much the same training; the first one stands for `training`: known compilations, the nearest number
        of samples, the same type, most epochs, least noise."""
        problem, step = self.row.problem, self.cost.step
        distance = abs(log(problem.samples / training.samples))
        noise = step.noise if step.value > 0 else inf
        return self.cost.compile is None, distance, problem.dtype != training.dtype, -problem.epochs, noise


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
        """The CPU in the form that finishes the whole training first, with the row's samples and the model's own epochs."""
        return self.sides(BY_WHOLE_TRAINING, "samples")[0]

    @property
    def break_even(self) -> Estimate | None:
        """Epochs after which the GPU has finished before the CPU's best form, although it starts later; None if it never has."""
        return costs.break_even(self.opponent.cost, self.gpu.cost, steps=self.steps)

    @property
    def one_epoch(self) -> Length:
        """A training of one epoch of the row's steps."""
        return Length(epochs=1, steps=self.steps)

    def cpu(self, by: str, length: Length | None = None) -> Trained:
        """The CPU in its fastest form, by the seconds of a step (BY_STEP), an epoch (BY_EPOCH) or the whole training
        (BY_WHOLE_TRAINING) of that length; None: of one epoch."""
        return min(self.cpus, key=lambda side: seconds_by(side.cost, by, length or self.one_epoch).value)

    def sides(self, by: str, varies: str = "") -> tuple[Trained, Trained]:
        """(the CPU in its fastest form, the GPU). The form is the fastest by BY_STEP, BY_EPOCH or BY_WHOLE_TRAINING; the length
        of the whole training depends on the size that varies (`planned`)."""
        return self.cpu(by, planned_length(self, varies)), self.gpu

    def seconds(self, by: str, varies: str = "") -> tuple[Estimate, Estimate]:
        """Seconds of a step, an epoch or the whole training, by `by` as in `sides`: (the CPU's in its fastest form, the
        GPU's)."""
        length = planned_length(self, varies)
        cpu, gpu = (seconds_by(side.cost, by, length) for side in self.sides(by, varies))
        return cpu, gpu


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Trainings on both devices that differ in one size alone."""

    #: The setup without that size.
    fixed: Setup
    #: The size that varies: one of VARIES.
    varies: str
    #: Size -> the training on both devices, the smallest first.
    pairs: dict[int, Pair]


def seconds_by(cost: TrainingCost, by: str, length: Length) -> Estimate:
    """Seconds of a step (BY_STEP), of an epoch (BY_EPOCH) or of the whole training (BY_WHOLE_TRAINING) of that length."""
    if by == BY_STEP:
        return cost.step
    return cost.epoch_seconds(length.steps) if by == BY_EPOCH else whole_training(cost, length.epochs, length.steps)


def form_of(m: Measurement) -> str:
    """How the CPU was used by a row's training, in words (FORMS): whether the GPU was hidden, and jit_compile on. "" for a
    GPU."""
    if m.on_gpu:
        return ""
    return FORMS[m.keras.jit_compile == "on", m.keras.gpu == "visible"]


def setup_of(m: Measurement) -> Setup:
    """The setup of a measured training."""
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
    """The rows of trainings that have a time, alone on the machine, and not in a fresh process for each sample."""
    return [
        m
        for m in measurements
        if m.problem.op == "training" and m.ok and m.on("host-latency") and m.process == "warm" and settings.ordinary(m)
    ]


def is_default(m: Measurement) -> bool:
    """Whether a row was measured with the framework's defaults, so that it may stand for its device: on a GPU with jit_compile as
    Keras chooses; on a CPU with the default number of threads and jit_compile on or as Keras chooses."""
    jit = m.keras.jit_compile
    if m.on_gpu:
        return jit == "auto"
    return m.threads is None and jit != "off"


def trained(measurements: Iterable[Measurement]) -> list[Trained]:
    """The trainings whose costs are known, with them. The import is the same work on both devices, so they get exactly the same
    seconds for it."""
    every = [m for m in measurements if m.problem.op == "training"]
    row_of_form = {costs.start_form(row): row for row in every}
    starts = {form: costs.start_parts(row, every) for form, row in row_of_form.items()}
    with_costs = []
    for row in trainings(every):
        cost = costs.measured(row)
        if cost is None:
            continue
        start = None
        start_parts = starts[costs.start_form(row)]
        if start_parts is not None:
            import_s, device_start_s = start_parts
            start = device_start_s + import_s.value
        with_costs.append(Trained(row=row, cost=replace(cost, start=start)))
    return with_costs


def pairs(measurements: Iterable[Measurement]) -> list[Pair]:
    """The trainings that were measured on both a CPU and the first GPU, sorted by setup. Of several rows of one training, on one
    device in one form, the first by `Trained.rank` counts."""
    sides = [side for side in trained(measurements) if is_default(side.row) and side.device in ("cpu", "gpu:0")]
    pairs = []
    for setup, same_setup in sorted(group_by(sides, lambda side: setup_of(side.row)).items()):
        best = best_by(same_setup, lambda side: (side.device, side.form), lambda side: side.rank(side.row.problem))
        gpus = [side for side in best.values() if is_gpu(side.device)]
        cpus = [side for side in best.values() if not is_gpu(side.device)]
        if gpus and cpus:
            pairs.append(Pair(setup=setup, gpu=gpus[0], cpus=tuple(cpus)))
    return pairs


def split_size(setup: Setup, varies: str) -> SplitSetup | None:
    """The value of a size (one of VARIES) in a setup, and the setup without it; None if the model has no such size.

    Where one batch holds all samples, both vary together: both are 0 in the rest.
    """
    is_one_batch = setup.batch == setup.samples
    if varies == "batch":
        return None if is_one_batch else SplitSetup(size=setup.batch, fixed=replace(setup, batch=0, samples=0))
    if varies == "samples":
        fixed = replace(setup, samples=0, batch=0 if is_one_batch else setup.batch)
        return SplitSetup(size=setup.samples, fixed=fixed)
    mlp = _MLP.fullmatch(setup.model)
    if mlp:
        inputs, units, layers, outputs = mlp.groups()
        if varies == "width":
            return SplitSetup(size=int(units), fixed=replace(setup, model=f"mlp-{inputs}-Wx{layers}-{outputs}"))
        return SplitSetup(size=int(layers), fixed=replace(setup, model=f"mlp-{inputs}-{units}xD-{outputs}"))
    fashion = _FASHION.fullmatch(setup.model)
    if varies == "depth" and fashion:
        return SplitSetup(size=int(fashion[1]), fixed=replace(setup, model="fashion-mlp-D"))
    return None


def split_training(training: Training, varies: str) -> SplitSetup:
    """The value of a size (one of VARIES) in a training by Keras's fit, and the setup without it.

    Raises: ValueError if the model has no such size.
    """
    setup = Setup(
        kernel=costs.FIT,
        model=training.model,
        batch=training.batch,
        samples=training.samples,
        dtype=training.dtype,
    )
    split = split_size(setup, varies)
    if split is None:
        raise ValueError(f"{training.model} has no {varies} that could vary")
    return split


def with_size(fixed: Setup, varies: str, size: int) -> Setup:
    """The setup with `size` put in place of the size that was split off: the reverse of split_size, except that the samples stay
    0 where the batch varies."""
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
    """The family (problems that differ in one size) of trainings that differ in `varies` alone. fixed: the setup without that
    size."""
    fields = [(name, value) for name, value in msgspec.structs.asdict(fixed).items() if name != "switches"]
    return Family("training", varies, (varies,), (*fields, *fixed.switches))


def setup_in(family: Family) -> Setup:
    """The setup that all trainings of a family share: the reverse of family_of. The size that varies is 0, or a letter in the
    model's name."""
    fixed = dict(family.fixed)
    fields: dict[str, Any] = {name: fixed.pop(name) for name in Setup.__struct_fields__ if name in fixed}
    return Setup(**fields, switches=tuple((name, str(value)) for name, value in fixed.items()))


def crossing(
    family: Family, by: str, sides: Mapping[int, tuple[Trained, Trained]], lengths: Mapping[int, Length]
) -> Answer:
    """From which size on the GPU trains faster.

    Args:
        by: what is compared: BY_STEP, BY_EPOCH or BY_WHOLE_TRAINING.
        sides: size -> (the training on the CPU, the training on the GPU).
        lengths: size -> the length of the whole training.
    """
    points = []
    for size, (cpu, gpu) in sorted(sides.items()):
        length = lengths[size]
        points.append(CrossoverPoint(n=size, cpu=_side(cpu, by, length), gpu=_side(gpu, by, length)))
    return sign_changes.classify(points[0].cpu.math, Form(mode=by), points, family=family)


def _side(training: Trained, by: str, length: Length) -> FastestRow:
    """The seconds of a training on one device, as a side of a crossover. by: BY_STEP, BY_EPOCH or BY_WHOLE_TRAINING. Its
    precision is the type of the inputs."""
    row = training.row
    return FastestRow(
        kernel=row.kernel if training.cost.source == "measured" else training.cost.source,
        device=training.device,
        threads=row.threads,
        math=row.problem.dtype,
        seconds=seconds_by(training.cost, by, length),
    )


def planned(setup: Setup, varies: str) -> PlannedTraining:
    """The samples and epochs of the whole training by which a setup is judged. Rows are mostly short trainings, so the seconds of
    the whole are computed from their costs.

    They are the model's own (the article's); but the row's own samples where samples vary or one batch holds them all, and for
    an unknown model the row's samples once.
    """
    network = networks.known(setup.model)
    if network is None:
        return PlannedTraining(samples=setup.samples, epochs=1)
    takes_row_samples = varies == "samples" or setup.batch == setup.samples
    samples = setup.samples if takes_row_samples else network.samples
    return PlannedTraining(samples=samples, epochs=network.epochs)


def planned_steps(setup: Setup, samples: int) -> int:
    """Steps of an epoch of so many samples in a whole training whose times are compared. If the row's batches were all whole, the
    compilation of a smaller last batch was not measured, so the samples of such a batch are left out, on both devices."""
    return max(1, samples // setup.batch) if setup.samples % setup.batch == 0 else -(-samples // setup.batch)


def planned_training(setup: Setup) -> Training:
    """The whole training by which a setup is judged: with its model's own samples and epochs."""
    whole = planned(setup, "")
    return Training(setup.model, setup.batch, whole.samples, whole.epochs, dtype=setup.dtype)


def compiling(side: Trained, training: Training) -> Trained:
    """A measured training with the compilation seconds that `training` has, whatever its own row compiled.

    XLA compiles once, and a second time for a smaller last batch. If only the row had such a batch, its first compilation counts;
    if only the training has one, the second compilation takes between nothing and as long as the first.
    """
    compiles_twice = costs.left_over(training, side.row.settings) > 0
    row_compiled_twice = costs.left_over(side.row.problem, side.row.settings) > 0
    if compiles_twice == row_compiled_twice:
        return side
    first = costs.phase(side.row, "compile")
    if first and compiles_twice:
        return replace(side, cost=replace(side.cost, compile=first + replace(first, low=0.0)))
    return replace(side, cost=replace(side.cost, compile=first))


def sweeps(pairs: list[Pair], varies: Iterable[str] = VARIES) -> list[Sweep]:
    """The series of trainings that differ in one size alone (one of `varies`) and were measured at two values or more. Of several
    pairs of one value the one with most samples counts."""
    sweeps = []
    for name in varies:
        pairs_by_fixed: dict[Setup, dict[int, Pair]] = {}
        for pair in pairs:
            split = split_size(pair.setup, name)
            if split is None:
                continue
            by_size = pairs_by_fixed.setdefault(split.fixed, {})
            by_size[split.size] = max(by_size.get(split.size, pair), pair, key=lambda p: p.weight)
        for fixed, by_size in pairs_by_fixed.items():
            if len(by_size) > 1:
                sweeps.append(Sweep(fixed=fixed, varies=name, pairs=dict(sorted(by_size.items()))))
    return sweeps


def planned_length(pair: Pair, varies: str) -> Length:
    """The length of the whole training by which a pair is judged, where `varies` is the size that varies ("" for none)."""
    whole = planned(pair.setup, varies)
    return Length(epochs=whole.epochs, steps=planned_steps(pair.setup, whole.samples))


def answers(measurements: Iterable[Measurement], varies: Iterable[str] = VARIES) -> list[Answer]:
    """From which batch, number of samples, width or depth the GPU trains faster, for each series of measured trainings: by the
    step, and by the whole training of the model's own samples and epochs; along samples by the epoch too."""
    answers = []
    for sweep in sweeps(pairs(measurements), varies):
        lengths = {size: planned_length(pair, sweep.varies) for size, pair in sweep.pairs.items()}
        by_epoch = (BY_EPOCH,) if sweep.varies == "samples" else ()
        for by in (BY_STEP, *by_epoch, BY_WHOLE_TRAINING):
            sides = {size: pair.sides(by, sweep.varies) for size, pair in sweep.pairs.items()}
            answers.append(crossing(family_of(sweep.fixed, sweep.varies), by, sides, lengths))
    return answers


def main_answers(measurements: Iterable[Measurement]) -> list[Answer]:
    """The answers of `answers` that are worth showing first: those with a crossing that lies between close sizes, then those by
    the step without a crossing. In both groups trainings by Keras's fit come first."""

    def is_shown(answer: Answer) -> bool:
        if answer.crossings:
            return answer.form.mode != BY_EPOCH and not any(crossing.wide for crossing in answer.crossings)
        return answer.form.mode == BY_STEP and answer.family.varies != "samples" and len(answer.points) > 2

    shown = filter(is_shown, answers(measurements))
    return sorted(shown, key=lambda answer: (not answer.crossings, not _is_fit(setup_in(answer.family))))


def _is_fit(setup: Setup) -> bool:
    """Whether Keras's fit trains, not a loop of another kind."""
    return setup.kernel.rpartition("/")[2] == "fit"


def main_pairs(measurements: Iterable[Measurement]) -> list[Pair]:
    """One pair (a training on CPU and GPU) for each model and kernel, without options: at the batch of the model's article, else
    the one with most samples. Keras's fits come first, and among them the articles' models."""

    def weight(pair: Pair) -> tuple[bool, int]:
        """Sort key: of one model the pair with the highest is taken."""
        network = networks.known(pair.setup.model)
        return network is not None and pair.setup.batch == network.batch, pair.weight

    def rank(pair: Pair) -> tuple[bool, bool]:
        """Sort key of the pairs that are taken."""
        network = networks.known(pair.setup.model)
        return not _is_fit(pair.setup), not (network and network.seed)

    plain = [pair for pair in pairs(measurements) if not pair.setup.switches]
    same_model = group_by(plain, lambda pair: (pair.setup.kernel, pair.setup.model))
    return sorted((max(group, key=weight) for group in same_model.values()), key=rank)


def unpaired(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Trainings whose model and batch were not measured on both devices: the plainest row for each device, model, batch and
    number of samples. Plainer are Keras's fits, fewer options, float32."""
    every = list(measurements)
    paired = {(pair.setup.model, pair.setup.batch) for pair in pairs(every)}

    def complexity(m: Measurement) -> tuple:
        """Sort key, the plainest row first."""
        return m.variant != "fit", len(m.settings.switches), m.threads is not None, m.problem.dtype != "float32"

    rows = [m for m in trainings(every) if (m.problem.model, m.problem.batch) not in paired]
    alike = group_by(rows, lambda m: (m.problem.model, m.problem.batch, m.problem.samples, m.device))
    return [min(group, key=complexity) for group in alike.values()]


def small_datasets(pairs: list[Pair]) -> list[tuple[Setup, tuple[Pair, ...]]]:
    """Trainings that differ in their number of samples alone, if there are three numbers or more: (the setup without samples, the
    pairs by rising samples), Keras's fits first. Those with options other than where the samples are (residence) are left
    out."""
    small = []
    for sweep in sweeps(pairs, ("samples",)):
        other_options = set(dict(sweep.fixed.switches)) - {"residence"}
        if len(sweep.pairs) > 2 and not other_options:
            small.append((sweep.fixed, tuple(sweep.pairs.values())))
    return sorted(small, key=lambda fixed_and_pairs: not _is_fit(fixed_and_pairs[0]))


def changed(measurements: Iterable[Measurement]) -> list[tuple[Trained, Trained]]:
    """(training, the same training without the change) for each measured training that differs from a plain fit by Keras in
    options, type of the inputs or threads. If no plain fit of its type was measured, or it is that one, the plain fit in float32
    is compared."""
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
    """Whether a training has no options, and the framework's number of threads."""
    return m.threads is None and m.settings.switches in ({}, {"data": "synthetic"})


def other_step(side: Trained, other: Trained) -> Estimate:
    """Seconds of the other training's step, to be compared with those of a side. If both were measured in different hours, the
    noise between runs is in the interval."""
    same_hour = side.row.at[:13] == other.row.at[:13]
    return other.cost.step if same_hour else other.cost.step * within_factor(1.0, 1 + noise.DEFAULT[noise.MODELS])
