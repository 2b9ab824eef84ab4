"""RowGroups with trainings side by side: a teacher beside a student, several at once on one device, and many trials in a
row.

How rows take turns alone and together is in workloads.harness.concurrent.
"""

import abc
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Generator, Sequence

from msgspec.structs import replace

from kernels import networks
from kernels.problems import Inference, Training
from workloads.harness import concurrent, plan, sweep
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Machine, Measurement, Row, Run, Samples, Settings, settings
from workloads.records.rows import Cause
from workloads.shared_flags import Measuring

WINDOW_S, FAST_WINDOW_S = 5.0, 2.0
# the interval of three is so much widened that 1.5 times as long cannot be told from as long
ROUNDS, FAST_ROUNDS = (5, 4)
PROCESSES = (1, 2, 4)  # trainings at once
TRIALS, FAST_TRIALS = 5, 3
SMALL, STUDENT, TEACHER = "mnist-cnn", "cifar10-cnn", "vgg-small"
STEPS = 64


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
    return [row for experiment in experiments(study, measuring, here) for row in experiment.rows]


def seconds(study: str, measuring: Measuring, here: Machine) -> float:
    """About how long a study takes: its windows, or its trials at 10 s each, and 20 s for each process that starts."""
    planned = rows(study, measuring, here)
    if study == "trials":
        return sum(_trial_count(measuring) * (25 if row.process == "fresh" else 10) for row in planned)
    turns = _turns(measuring)
    return len(planned) * (turns.rounds * (turns.window_s * 1.3 + 0.5) + 20)


def experiments(study: str, measuring: Measuring, here: Machine) -> Sequence[concurrent.RowGroup]:
    """The experiments of a study: teacher, together or trials.

    Raises: Usage; Missing for a device that is not here.
    """
    if study == "teacher":
        return _with_teacher(measuring, here)
    if study == "together":
        return _several_at_once(measuring, here)
    return _trials(measuring, here)


def _training(model: str) -> Training:
    """A few steps of a model, in the batch of its article."""
    network = settings.network(model)
    batch = min(network.batch, network.samples)
    return Training(model, batch, batch * STEPS, 1)


def _settings(device: str, process: str = "warm", **chosen: str) -> Settings:
    """The settings of a study's row on made-up data; `chosen`: its switches."""
    return Settings(device, None, process=process, switches={**settings.changed({"data": "synthetic"}), **chosen})


def _devices(measuring: Measuring, here: Machine) -> tuple[list[str], str]:
    """(the devices for what is asked of a GPU: those named, else the first GPU; why there is none)."""
    on = plan.devices(measuring.devices, here, measuring.require_gpu)
    if measuring.devices:
        return on, ""
    gpus = [device for device in on if device != "cpu"]
    return gpus, "" if gpus else f"no GPU here: {facts.gpu_problem()}; --device cpu runs all of it on the CPU"


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
    """Teacher alone, student alone, teacher beside the student, student beside the teacher."""

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


def _with_teacher(measuring: Measuring, here: Machine) -> list[concurrent.RowGroup]:
    on, missing = _devices(measuring, here)
    training = _training(STUDENT)
    alike = networks.find(TEACHER).input == networks.find(training.model).input
    answers = Inference(TEACHER if alike else training.model, training.batch, training.dtype)
    experiments: list[concurrent.RowGroup] = []
    for device in [d for d in on if d != "cpu"] or ["cpu" if on else "gpu:0"]:
        rows = []
        for beside_student, beside_teacher in (("nothing", "nothing"), ("teacher", "student")):
            rows.append(Row("inference/keras/call", answers, _settings("cpu", beside=beside_teacher)))
            rows.append(Row("training/keras/fit", training, _settings(device, beside=beside_student)))
        if missing:
            experiments.append(Skipped(rows=rows, reason=missing, cause="no-gpu"))
        else:
            experiments.append(WithTeacher(rows=rows, turns=_turns(measuring), here=here))
    return experiments


def _several_at_once(measuring: Measuring, here: Machine) -> list[concurrent.RowGroup]:
    on, missing = _devices(measuring, here)
    training = _training(SMALL)
    experiments: list[concurrent.RowGroup] = []
    for device in on or ["gpu:0"]:
        rows = []
        for count in PROCESSES:
            chosen = _settings(device, beside="fits" if count > 1 else "nothing", at_once=str(count))
            rows.append(Row("training/keras/fit", training, chosen))
        if missing:
            experiments.append(Skipped(rows=rows, reason=missing, cause="no-gpu"))
        else:
            experiments.append(SeveralProcesses(rows=rows, turns=_turns(measuring), here=here))
    return experiments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials(concurrent.RowGroup):
    """So many trials one after another, in one worker or in a fresh one each."""

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
        """The clock is ours, so that a process's start and end are in it; a fresh process starts when its trial does."""
        (row,) = self.rows
        order = Order("trial", row, self.limits, self.seed)
        trials: list[Measurement] = []
        seconds: list[float] = []
        with contextlib.closing(Worker(environment(row, self.here.uuids))) as worker:
            for _ in range(self.count):
                begin = time.perf_counter()
                trials.append(worker.ask(order, concurrent.timeout(row.problem)))
                if row.process == "fresh":
                    worker.close()
                seconds.append(time.perf_counter() - begin)
                if trials[-1].status != "ok":
                    break
        yield tried(row, trials, seconds)


def _trials(measuring: Measuring, here: Machine) -> list[Trials]:
    training = _training(SMALL)
    on = plan.devices(measuring.devices, here, measuring.require_gpu)
    experiments = []
    for device, (process, clear) in itertools.product(on, (("warm", "off"), ("warm", "on"), ("fresh", "off"))):
        row = Row("training/keras/trial", training, _settings(device, process, clear_session=clear))
        experiments.append(
            Trials(
                rows=[row],
                count=_trial_count(measuring),
                limits=measuring.limits,
                seed=measuring.seed,
                here=here,
            )
        )
    return experiments


def tried(row: Row, taken: list[Measurement], took: list[float]) -> Measurement:
    """A row of trials: `host-latency` samples are whole trials in their order. series: each phase and value of every trial
    (0 where one did not have it). values: total_s, trials, traces of all."""
    if taken[-1].status != "ok":
        return replace(taken[-1], settings=row.settings)
    samples = Samples("host-latency", tuple(took), 1, (1,) * len(took), f"{len(took)} trials")
    phases = dict.fromkeys(name for m in taken for name in m.phases_s)
    series = {f"{name}_s": tuple(m.phases_s.get(name, 0.0) for m in taken) for name in phases}
    series |= {
        name: tuple(m.values[name] for m in taken) for name in ("traces", "functions", "rss_bytes", "final_loss")
    }
    values = {
        "total_s": sum(took),
        "trials": float(len(took)),
        "traces": sum(series["traces"]),
        "jit_compile": taken[-1].values["jit_compile"],
    }
    return replace(taken[-1], samples=(samples,), phases_s=taken[0].phases_s, values=values, series=series)


def _turns(measuring: Measuring) -> concurrent.Turns:
    rounds, window_s = (FAST_ROUNDS, FAST_WINDOW_S) if measuring.fast else (ROUNDS, WINDOW_S)
    return concurrent.Turns(rounds, window_s, measuring.seed)


def _trial_count(measuring: Measuring) -> int:
    return FAST_TRIALS if measuring.fast else TRIALS
