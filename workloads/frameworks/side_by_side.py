"""The studies teacher, together and trials: their rows, how the parent measures them, and the work that its workers do.

How rows take turns alone and together is in workloads.harness.concurrent.
"""

import abc
import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Generator, Sequence

import msgspec
import psutil
from msgspec.structs import replace

from kernels import networks, registry
from kernels.problems import Inference, Training
from workloads.frameworks import data, inference_row, models, tensors, trainers
from workloads.harness import concurrent, copy_modes, one_row, plan, sweep
from workloads.harness.dispatch import Broken
from workloads.harness.memory_needs import require_memory
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Machine, Measurement, Row, Run, Samples, Settings, settings
from workloads.records.rows import Cause
from workloads.shared_flags import Measuring

FIT = "training/keras/fit"
#: Seconds of a window, in which a set of parties works.
WINDOW_S = 5.0
FAST_WINDOW_S = 2.0
#: The interval of three rounds is so much widened that a slowdown of 1.5x cannot be told from none.
ROUNDS = 5
FAST_ROUNDS = 4
#: Numbers of trainings at once.
PROCESSES = (1, 2, 4)
TRIALS = 5
FAST_TRIALS = 3
#: Models of the trainings that run at once, of the student and of the teacher.
SMALL = "mnist-cnn"
STUDENT = "cifar10-cnn"
TEACHER = "vgg-small"
#: Steps of an epoch of these.
STEPS = 64
#: Guessed seconds of a trial in a process that is running, and in a fresh one; of starting a process.
_TRIAL_S = 10
_FRESH_TRIAL_S = 25
_START_S = 20


# ---------------------------------------------------------------- rows


def measure(
    study: str, measuring: Measuring, run: Run, shown: Callable[[Measurement], None] = lambda m: None
) -> sweep.Outcome:
    """Carries out a study into a file of its own.

    teacher (S3d): a frozen teacher's forward pass on the CPU while the student trains on the GPU, each against itself alone;
    without a GPU its rows are skipped, unless `--device cpu` asks for both on the CPU. together: 1, 2 and 4 processes that train
    the same small model on one device at once, in steps a second of all against one. trials: folds and trials, the same training
    again and again in one process, with keras.utils.clear_session and without, and in a fresh process each; the model is built
    and compiled anew every time.
    """
    return concurrent.studied(
        f"training-{study}", experiments(study, measuring, run.machine), measuring=measuring, run=run, shown=shown
    )


def rows(study: str, measuring: Measuring, here: Machine) -> list[Row]:
    """The rows of a study, for the plan.

    Raises: Usage; Missing for a device that is not here.
    """
    planned = []
    for experiment in experiments(study, measuring, here):
        planned += experiment.rows
    return planned


def seconds(study: str, measuring: Measuring, here: Machine) -> float:
    """A guess of how long a study takes."""
    planned = rows(study, measuring, here)
    if study == "trials":
        trial_s = sum(_FRESH_TRIAL_S if row.process == "fresh" else _TRIAL_S for row in planned)
        return _trial_count(measuring) * trial_s
    turns = _turns(measuring)
    round_s = turns.window_s * 1.3 + 0.5
    return len(planned) * (turns.rounds * round_s + _START_S)


def experiments(study: str, measuring: Measuring, here: Machine) -> Sequence[concurrent.RowGroup]:
    """The experiments of a study: teacher, together or trials.

    Raises: Usage; Missing for a device that is not here.
    """
    if study == "teacher":
        return _with_teacher(measuring, here)
    if study == "together":
        return _several_at_once(measuring, here)
    return _trials(measuring, here)


def _with_teacher(measuring: Measuring, here: Machine) -> list[concurrent.RowGroup]:
    """An experiment for each GPU that trains the student; on the CPU where that is the only device named."""
    devices, missing = _devices(measuring, here)
    gpus = [device for device in devices if device != "cpu"]
    if not gpus:
        gpus = ["cpu"] if devices else ["gpu:0"]
    training = _training(STUDENT)
    takes_the_same = networks.find(TEACHER).input == networks.find(training.model).input
    teacher = TEACHER if takes_the_same else training.model
    inference = Inference(teacher, training.batch, training.dtype)
    groups: list[concurrent.RowGroup] = []
    for device in gpus:
        rows = [
            Row("inference/keras/call", inference, _settings("cpu", beside="nothing")),
            Row(FIT, training, _settings(device, beside="nothing")),
            Row("inference/keras/call", inference, _settings("cpu", beside="student")),
            Row(FIT, training, _settings(device, beside="teacher")),
        ]
        if missing:
            groups.append(Skipped(rows=rows, reason=missing, cause="no-gpu"))
        else:
            groups.append(WithTeacher(rows=rows, turns=_turns(measuring), here=here))
    return groups


def _several_at_once(measuring: Measuring, here: Machine) -> list[concurrent.RowGroup]:
    """An experiment for each device."""
    devices, missing = _devices(measuring, here)
    training = _training(SMALL)
    groups: list[concurrent.RowGroup] = []
    for device in devices or ["gpu:0"]:
        rows = []
        for count in PROCESSES:
            companion = "fits" if count > 1 else "nothing"
            rows.append(Row(FIT, training, _settings(device, beside=companion, at_once=str(count))))
        if missing:
            groups.append(Skipped(rows=rows, reason=missing, cause="no-gpu"))
        else:
            groups.append(SeveralProcesses(rows=rows, turns=_turns(measuring), here=here))
    return groups


def _trials(measuring: Measuring, here: Machine) -> list[concurrent.RowGroup]:
    """Three experiments for each device: one process, one that clears Keras's session before each trial, fresh processes."""
    training = _training(SMALL)
    devices = plan.devices(measuring.devices, here, measuring.require_gpu)
    groups: list[concurrent.RowGroup] = []
    for device, (process, clear) in itertools.product(devices, (("warm", "off"), ("warm", "on"), ("fresh", "off"))):
        row = Row("training/keras/trial", training, _settings(device, process, clear_session=clear))
        group = Trials(
            rows=[row], count=_trial_count(measuring), limits=measuring.limits, seed=measuring.seed, here=here
        )
        groups.append(group)
    return groups


def _training(model: str) -> Training:
    """A few steps of a model, in the batch of its article."""
    network = settings.network(model)
    batch = min(network.batch, network.samples)
    return Training(model, batch, batch * STEPS, 1)


def _settings(device: str, process: str = "warm", **options: str) -> Settings:
    """The settings of a study's row on made-up data."""
    switches = {**settings.without_defaults({"data": "synthetic"}), **options}
    return Settings(device, None, process=process, switches=switches)


def _devices(measuring: Measuring, here: Machine) -> tuple[list[str], str]:
    """(the devices of what wants a GPU: those named, else the first GPU; why there is none)."""
    devices = plan.devices(measuring.devices, here, measuring.require_gpu)
    if measuring.devices:
        return devices, ""
    gpus = [device for device in devices if device != "cpu"]
    if gpus:
        return gpus, ""
    return [], f"no GPU here: {facts.gpu_problem()}; --device cpu runs all of it on the CPU"


def _turns(measuring: Measuring) -> concurrent.Turns:
    if measuring.fast:
        return concurrent.Turns(rounds=FAST_ROUNDS, window_s=FAST_WINDOW_S, seed=measuring.seed)
    return concurrent.Turns(rounds=ROUNDS, window_s=WINDOW_S, seed=measuring.seed)


def _trial_count(measuring: Measuring) -> int:
    return FAST_TRIALS if measuring.fast else TRIALS


# ---------------------------------------------------------------- in the parent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Skipped(concurrent.RowGroup):
    """Rows that cannot be measured here."""

    #: The rows that it would have.
    rows: list[Row]
    #: What is missing.
    reason: str
    #: The same as a kind.
    cause: Cause

    def measure(self) -> Generator[Measurement]:
        for row in self.rows:
            yield row.result("skipped", self.reason, cause=self.cause)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InTurns(concurrent.RowGroup, abc.ABC):
    """Rows of parties that take turns, alone and together."""

    #: The rows, alone first.
    rows: list[Row]
    #: How the parties take turns.
    turns: concurrent.Turns
    #: This machine.
    here: Machine


class WithTeacher(InTurns):
    """Teacher alone, student alone, teacher and student while both are at work."""

    def measure(self) -> Generator[Measurement]:
        with concurrent.workers_of(self.rows[:2], self.here) as workers:
            yield from concurrent.alone_and_together(self.rows, workers, self.turns)


class SeveralProcesses(InTurns):
    """1, 2 and 4 processes that do the same at once."""

    def measure(self) -> Generator[Measurement]:
        sets = [tuple(range(row.experiment.at_once)) for row in self.rows]
        parties = [self.rows[0]] * max(map(len, sets))
        with concurrent.workers_of(parties, self.here) as workers:
            took = concurrent.in_turns(parties, workers, sets, self.turns)
        for row, members in zip(self.rows, sets, strict=True):
            yield concurrent.measured(row, took, members, members)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials(concurrent.RowGroup):
    """Trials one after another, in one worker or in a fresh one each."""

    #: One row.
    rows: list[Row]
    #: How many trials.
    count: int
    #: How long a row is timed.
    limits: Limits
    #: Seed of the data.
    seed: int
    #: This machine.
    here: Machine

    def measure(self) -> Generator[Measurement]:
        """The clock is the parent's, so that a process's start and end are in it; a fresh process starts when its trial does."""
        (row,) = self.rows
        order = Order(verb="trial", row=row, limits=self.limits, seed=self.seed)
        trials: list[Measurement] = []
        trial_s: list[float] = []
        with contextlib.closing(Worker(environment(row, self.here.uuids))) as worker:
            for _ in range(self.count):
                begin = time.perf_counter()
                trials.append(worker.ask(order, concurrent.timeout(row.problem)))
                if row.process == "fresh":
                    worker.close()
                trial_s.append(time.perf_counter() - begin)
                if trials[-1].status != "ok":
                    break
        yield row_of_trials(row, trials, trial_s)


def row_of_trials(row: Row, trials: list[Measurement], trial_s: list[float]) -> Measurement:
    """A row of trials: `host-latency` samples are whole trials in their order. series: each phase and value of every trial
    (0 where one did not have it). values: total_s, trials, traces of all."""
    last = trials[-1]
    if last.status != "ok":
        return replace(last, settings=row.settings)
    samples = Samples(
        clock="host-latency",
        seconds=tuple(trial_s),
        calls=1,
        block_sizes=(1,) * len(trials),
        stop_reason=f"{len(trials)} trials",
    )
    series: dict[str, tuple[float, ...]] = {}
    for trial in trials:
        for name in trial.phases_s:
            series[f"{name}_s"] = tuple(other.phases_s.get(name, 0.0) for other in trials)
    for name in ("traces", "functions", "rss_bytes", "final_loss"):
        series[name] = tuple(trial.values[name] for trial in trials)
    values = {
        "total_s": sum(trial_s),
        "trials": float(len(trials)),
        "traces": sum(series["traces"]),
        "jit_compile": last.values["jit_compile"],
    }
    return replace(last, samples=(samples,), phases_s=trials[0].phases_s, values=values, series=series)


# ---------------------------------------------------------------- in a worker


class RepeatedWork(abc.ABC):
    """What a row does again and again, built, compiled and checked in this process."""

    #: Units of work that fill a window.
    units_a_window: int = 20
    #: Steps from which it is estimated how long one takes.
    first_steps: int = 1
    #: How it was checked.
    check: str
    #: Values of the row's measurement.
    values: dict[str, float]

    @abc.abstractmethod
    def run(self, steps: int) -> None:
        """Does so many steps or calls and waits for them."""

    def possible(self, steps: int) -> int:
        """The number of steps nearest to this one that `run` can do."""
        return steps


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a window: a few steps or calls of a row's work, done in one go."""

    #: The work.
    work: RepeatedWork
    #: Its steps or calls.
    steps: int


#: Key of a row without what runs at the same time -> its unit of work, prepared in this process.
_units: dict[str, Unit] = {}
_load_once = functools.lru_cache(maxsize=1)(data.load)


def key(row: Row) -> str:
    """The row's key without what runs at the same time: one preparation serves alone and together."""
    switches = dict(row.settings.switches)
    switches.pop("beside", None)
    switches.pop("at_once", None)
    return Row(row.kernel, row.problem, replace(row.settings, switches=switches)).key


def prepare(row: Row, limits: Limits, seed: int) -> Measurement:
    """Builds, compiles and checks the row's work, and finds how much of it is a unit. A whole window is to take
    `limits.visit_s` seconds.

    Raises: Broken for a wrong answer.
    """
    phases: dict[str, float] = {}
    work = _repeated_work(row, seed, phases)
    steps = steps_of_a_unit(work, limits.visit_s / work.units_a_window)
    _units[key(row)] = Unit(work=work, steps=steps)
    return row.result("ok", phases_s=phases, values=work.values, check=work.check)


def _repeated_work(row: Row, seed: int, phases: dict[str, float]) -> RepeatedWork:
    if row.problem.op == "at-once":
        _units.clear()  # one such row at a time: its arrays are large
        return KernelCalls(row, seed, phases)
    if row.problem.op == "inference":
        return ModelCalls(row, seed, phases)
    return FitSteps(row, seed, phases)


def steps_of_a_unit(work: RepeatedWork, unit_s: float) -> int:
    """How many steps take about `unit_s` seconds, found by growing numbers of them."""
    steps = work.first_steps
    while True:
        begin = time.monotonic()
        work.run(steps)
        step_s = (time.monotonic() - begin) / steps
        wanted = max(1, round(unit_s / step_s))
        if wanted < 2 * steps:
            return work.possible(wanted)
        steps = min(wanted, 8 * steps)


class ModelCalls(RepeatedWork):
    """Answers of a model to a batch, waited for after the last."""

    check = "bound"

    def __init__(self, row: Row, seed: int, phases: dict[str, float]):
        self.values = {}
        self._model, x = inference_row.prepare(row, seed, phases, self.values)
        with tensors.on(self._model.device):
            self._call = inference_row.caller(row, self._model, x)
            with tensors.timed(phases, "first_call"):
                self._call()
            _, wrong = inference_row.checked(row, self._model, x)
        if wrong:
            raise Broken(wrong)

    def run(self, steps: int) -> None:
        with tensors.on(self._model.device):
            for _ in range(steps):
                self._call()
            if self._model.wait:
                self._model.wait()


class KernelCalls(RepeatedWork):
    """Calls of a kernel, each waited for."""

    def __init__(self, row: Row, seed: int, phases: dict[str, float]):
        alone = Row(row.kernel, row.problem.inner, row.settings)
        require_memory(alone.problem, row.device)
        kernel = registry.find(row.kernel)
        check, phases["first_call"] = one_row.checked(kernel, alone, seed)
        if not check.passed:
            raise Broken("the answer is not the reference's")
        self.check = check.how
        self.values = {}
        inputs = alone.problem.inputs(seed)
        self._prepared = copy_modes.prepare(kernel, alone.problem, alone.settings, inputs)
        self.run(1)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._prepared.call()


class FitSteps(RepeatedWork):
    """Steps of a warm fit of whole batches: of one epoch, or of several where an epoch has fewer steps."""

    units_a_window = 5  # a fit's own cost is in its steps' time
    first_steps = 8
    check = "weights"

    def __init__(self, row: Row, seed: int, phases: dict[str, float]):
        problem = row.problem
        network = networks.find(problem.model)
        options = settings.checked_keras(row)
        require_memory(problem, "cpu")
        phases |= tensors.begin(row.device, row.threads)
        x, y = data.load(options.data, network, problem.samples, seed, dtype=problem.dtype)
        task = trainers.Task(row=row, network=network, x=x, y=y, seed=seed, phases=phases)
        self._trainer = trainers.make_trainer(task)
        if self._trainer.wrong:
            raise Broken(self._trainer.wrong)
        self.values = dict(self._trainer.values)
        self._batch = problem.batch
        self._epoch_steps = max(1, problem.samples // problem.batch)
        with tensors.timed(phases, "first_call"):
            self.run(1)

    def run(self, steps: int) -> None:
        epochs = max(1, round(steps / self._epoch_steps))
        self._trainer.fit(min(steps, self._epoch_steps) * self._batch, epochs)

    def possible(self, steps: int) -> int:
        if steps <= self._epoch_steps:
            return steps
        return max(1, round(steps / self._epoch_steps)) * self._epoch_steps


def window(row: Row, limits: Limits, seed: int) -> Measurement:
    """Runs units of the row's work one after another for `limits.visit_s` seconds, at least one. Series: begin_s and end_s on
    the system's monotonic clock, which all processes share. values: steps of a unit.

    Raises: ValueError for a row that was not prepared.
    """
    unit = _units.get(key(row))
    if unit is None:
        raise ValueError("the row was not prepared in this process")
    begin_s: list[float] = []
    end_s: list[float] = []
    stop = time.monotonic() + limits.visit_s
    while not end_s or end_s[-1] < stop:
        begin_s.append(time.monotonic())
        unit.work.run(unit.steps)
        end_s.append(time.monotonic())
    series = {"begin_s": tuple(begin_s), "end_s": tuple(end_s)}
    values = {**unit.work.values, "steps": float(unit.steps)}
    return row.result("ok", values=values, series=series, check=unit.work.check)


def trial(row: Row, limits: Limits, seed: int) -> Measurement:
    """One whole training as a search does it: the model built and compiled anew, and fitted once. The samples are loaded once a
    process; with the switch clear_session Keras first forgets the models before.

    phases_s: import, device_start (a process's first), data, clear, build, first_call (the fit). values: traces of the
    train step (each is compiled, too, where jit is on), functions that TensorFlow holds, rss_bytes, final_loss.
    Raises: Broken for a loss that is no number, and for a model that differs from its table.
    """
    problem = row.problem
    options = settings.checked_keras(row)
    phases: dict[str, float] = {}
    network = networks.find(problem.model)
    require_memory(problem, "cpu")
    phases |= tensors.begin(row.device, row.threads)
    import keras

    device, _ = tensors.start(row.device, row.threads)
    with tensors.timed(phases, "data"):
        x, y = _load_once(options.data, network, problem.samples, seed, dtype=problem.dtype)
    with tensors.timed(phases, "clear"):
        if row.experiment.clear_session == "on":
            keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    with tensors.on(device):
        with tensors.timed(phases, "build"):
            model = models.build(network, settings.JIT[options.jit_compile])
        traces = count_traces(model)
        with tensors.timed(phases, "first_call"):
            history = model.fit(x, y, problem.batch, problem.epochs, verbose=0)
    loss = float(history.history["loss"][-1])
    if not loss < float("inf"):
        raise Broken(f"the loss is {loss}")
    wrong = models.differences(model, network)
    if wrong:
        raise Broken(wrong)
    values = {
        "traces": float(len(traces)),
        "functions": float(graph_functions()),
        "rss_bytes": float(psutil.Process().memory_info().rss),
        "final_loss": loss,
        "jit_compile": float(model.jit_compile is True),
    }
    return row.result("ok", phases_s=phases, values=values, check="weights")


def count_traces(model) -> list[int]:
    """A list that grows by one each time the model's train step is traced: Python runs it only then."""
    traces: list[int] = []
    step = model.train_step

    def counting(*args, **keywords):
        traces.append(1)
        return step(*args, **keywords)

    object.__setattr__(model, "train_step", counting)  # Keras would track it as a part of the model
    return traces


def graph_functions() -> int:
    """The number of graph functions that TensorFlow holds in this process: it grows with models that are not freed."""
    from tensorflow.python.eager import context  # no public way to them

    return len(context.context().list_function_names())
