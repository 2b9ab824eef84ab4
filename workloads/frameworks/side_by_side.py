"""The studies teacher, together and trials: their rows, and how the parent process measures those of teacher and together.

How rows take turns alone and together is in workloads.harness.concurrent, what their workers do in work_windows.
"""

import abc
import dataclasses
import itertools
from collections.abc import Callable, Generator, Sequence

from kernels import networks
from kernels.problems import Inference, Training
from workloads.frameworks.trials import Trials
from workloads.harness import concurrent, plan, sweep
from workloads.machine import facts
from workloads.records import Machine, Measurement, Row, Run, Settings, settings
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
#: Where the rows of a study that needs a GPU are skipped, they name this device.
_FIRST_GPU = "gpu:0"
#: Guessed seconds of a trial in a process that is running, and in a fresh one; of starting a process.
_TRIAL_S = 10
_FRESH_TRIAL_S = 25
_START_S = 20
#: Guessed: a window and the units that end behind it take so many times its seconds, and so many seconds more.
_WINDOW_FACTOR = 1.3
_WINDOW_EXTRA_S = 0.5


def measure(
    study: str, measuring: Measuring, run: Run, shown: Callable[[Measurement], None] = lambda m: None
) -> sweep.Outcome:
    """Carries out the study `teacher`, `together` or `trials` into a result file of its own.

    teacher (S3d): a model that is not trained, the teacher, answers on the CPU while another, the student, trains on the GPU;
    each is compared with itself alone. Without a GPU its rows are skipped, unless `--device cpu` asks for both on the CPU.
    together: 1, 2 and 4 processes train the same small model on one device at the same time; the steps a second of all are
    compared with those of one.
    trials: the same training again and again, the model built and compiled anew every time: in one process, in one with
    keras.utils.clear_session, and in a fresh process each.
    measuring: what the command's flags say about measuring. shown: called with each measurement when it is done.
    """
    return concurrent.studied(
        f"training-{study}", experiments(study, measuring, run.machine), measuring=measuring, run=run, shown=shown
    )


def rows(study: str, measuring: Measuring, here: Machine) -> list[Row]:
    """The rows that a study will measure, in their order.

    Raises: Usage; Missing for a device that is not here.
    """
    planned: list[Row] = []
    for experiment in experiments(study, measuring, here):
        planned += experiment.rows
    return planned


def seconds(study: str, measuring: Measuring, here: Machine) -> float:
    """A guess of the seconds that a study takes."""
    planned = rows(study, measuring, here)
    if study == "trials":
        trial_s = sum(_FRESH_TRIAL_S if row.process == "fresh" else _TRIAL_S for row in planned)
        return _trial_count(measuring) * trial_s
    turns = _turns(measuring)
    row_round_s = turns.window_s * _WINDOW_FACTOR + _WINDOW_EXTRA_S
    return len(planned) * (turns.rounds * row_round_s + _START_S)


def experiments(study: str, measuring: Measuring, here: Machine) -> Sequence[concurrent.RowGroup]:
    """The experiments of the study `teacher`, `together` or `trials`: each is a group of rows that are measured together.

    Raises: Usage; Missing for a device that is not here.
    """
    if study == "teacher":
        return _teacher_experiments(measuring, here)
    if study == "together":
        return _together_experiments(measuring, here)
    return _trial_experiments(measuring, here)


def _teacher_experiments(measuring: Measuring, here: Machine) -> list[concurrent.RowGroup]:
    """An experiment for each GPU that trains the student; on the CPU where that is the only device named.

    Each has four rows: teacher and student alone, then both while the other is at work.
    """
    try:
        devices = _named_devices_or_gpus(measuring, here)
        missing = ""
    except GpuLacking as error:
        devices = [_FIRST_GPU]
        missing = str(error)
    student_devices = [device for device in devices if device != "cpu"] or ["cpu"]
    training = _training(STUDENT)
    takes_same_input = networks.find(TEACHER).input == networks.find(training.model).input
    teacher = TEACHER if takes_same_input else training.model
    inference = Inference(teacher, training.batch, training.dtype)
    groups: list[concurrent.RowGroup] = []
    for device in student_devices:
        # `beside` names what runs at the same time.
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


def _together_experiments(measuring: Measuring, here: Machine) -> list[concurrent.RowGroup]:
    """An experiment for each device, with a row for each number of processes that train at the same time."""
    try:
        devices = _named_devices_or_gpus(measuring, here)
        missing = ""
    except GpuLacking as error:
        devices = [_FIRST_GPU]
        missing = str(error)
    training = _training(SMALL)
    groups: list[concurrent.RowGroup] = []
    for device in devices:
        rows = []
        for count in PROCESSES:
            companion = "fits" if count > 1 else "nothing"
            rows.append(Row(FIT, training, _settings(device, beside=companion, at_once=str(count))))
        if missing:
            groups.append(Skipped(rows=rows, reason=missing, cause="no-gpu"))
        else:
            groups.append(SeveralProcesses(rows=rows, turns=_turns(measuring), here=here))
    return groups


def _trial_experiments(measuring: Measuring, here: Machine) -> list[concurrent.RowGroup]:
    """Three experiments for each device: trials in one process, in one that clears Keras's session before each trial, and in a
    fresh process each."""
    training = _training(SMALL)
    devices = plan.devices(measuring.devices, here, measuring.require_gpu)
    process_and_clear_session = (("warm", "off"), ("warm", "on"), ("fresh", "off"))
    groups: list[concurrent.RowGroup] = []
    for device, (process, clear_session) in itertools.product(devices, process_and_clear_session):
        row = Row("training/keras/trial", training, _settings(device, process, clear_session=clear_session))
        group = Trials(
            rows=[row], count=_trial_count(measuring), limits=measuring.limits, seed=measuring.seed, here=here
        )
        groups.append(group)
    return groups


def _training(model: str) -> Training:
    """One epoch of a few steps of a network, in the batch of its article."""
    network = settings.network(model)
    batch = min(network.batch, network.samples)
    return Training(model, batch, samples=batch * STEPS, epochs=1)


def _settings(device: str, process: str = "warm", **options: str) -> Settings:
    """The settings of a row that trains on made-up data. options: further ones of the row, by name.

    process: `warm` for a worker that many rows share, `fresh` for one of its own.
    """
    switches = {**settings.without_defaults({"data": "synthetic"}), **options}
    return Settings(device, threads=None, process=process, switches=switches)


class GpuLacking(Exception):
    """A study needs a GPU, none is here, and no other device was named. Its message says why there is none."""


def _named_devices_or_gpus(measuring: Measuring, here: Machine) -> list[str]:
    """The devices that the user named, else the GPUs of this machine: `gpu:0`.

    Raises: GpuLacking where none was named and there is no GPU; Usage and Missing for a named device that is not here.
    """
    devices = plan.devices(measuring.devices, here, measuring.require_gpu)
    if measuring.devices:
        return devices
    gpus = [device for device in devices if device != "cpu"]
    if not gpus:
        raise GpuLacking(f"no GPU here: {facts.gpu_problem()}; --device cpu runs all of it on the CPU")
    return gpus


def _turns(measuring: Measuring) -> concurrent.Turns:
    """How long and how often the parties of an experiment take turns; less of both with --fast."""
    if measuring.fast:
        return concurrent.Turns(rounds=FAST_ROUNDS, window_s=FAST_WINDOW_S, seed=measuring.seed)
    return concurrent.Turns(rounds=ROUNDS, window_s=WINDOW_S, seed=measuring.seed)


def _trial_count(measuring: Measuring) -> int:
    return FAST_TRIALS if measuring.fast else TRIALS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Skipped(concurrent.RowGroup):
    """Rows that cannot be measured on this machine. Measuring them gives a result `skipped` for each."""

    #: The rows that would be measured.
    rows: list[Row]
    #: What is missing, as a sentence.
    reason: str
    #: The same as one of the kinds that a result file knows.
    cause: Cause

    def measure(self) -> Generator[Measurement]:
        for row in self.rows:
            yield row.result("skipped", self.reason, cause=self.cause)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InTurns(concurrent.RowGroup, abc.ABC):
    """Rows whose processes, the parties, take turns: first one works alone, then several at the same time, and so on."""

    #: The rows, alone first.
    rows: list[Row]
    #: How the parties take turns.
    turns: concurrent.Turns
    #: This machine.
    here: Machine


class WithTeacher(InTurns):
    """Teacher alone, student alone, teacher and student while both are at work: four rows of two processes."""

    def measure(self) -> Generator[Measurement]:
        teacher_and_student = self.rows[:2]
        with concurrent.workers_of(teacher_and_student, self.here) as workers:
            yield from concurrent.alone_and_together(self.rows, workers, self.turns)


class SeveralProcesses(InTurns):
    """1, 2 and 4 processes that train the same at the same time: a row for each of these numbers."""

    def measure(self) -> Generator[Measurement]:
        """Yields a measurement for each row. As many processes are started as the largest number has; a smaller one uses the
        first of them, the others idle meanwhile."""
        process_sets = [tuple(range(row.experiment.at_once)) for row in self.rows]
        parties = [self.rows[0]] * max(map(len, process_sets))
        with concurrent.workers_of(parties, self.here) as workers:
            took = concurrent.in_turns(parties, workers, process_sets, self.turns)
        for row, processes in zip(self.rows, process_sets, strict=True):
            yield concurrent.measured(row, took, members=processes, parties=processes)
