"""Experiments with trainings side by side: a teacher beside a student, several at once on one device, and many trials in a
row.

How rows take turns alone and together is in workloads.harness.concurrent.
"""

import contextlib
import functools
import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Generator

from msgspec.structs import replace

from kernels import networks
from kernels.problems import Inference, Training
from workloads import options, shared_flags
from workloads.harness import concurrent, plan, sweep
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Machine, Measurement, Row, Run, Samples, Settings
from workloads.records import settings as switches

WINDOW_S, FAST_WINDOW_S = 5.0, 2.0
# the interval of three is so much widened that 1.5 times as long cannot be told from as long
ROUNDS, FAST_ROUNDS = (5, 4)
PROCESSES = (1, 2, 4)  # trainings at once
TRIALS, FAST_TRIALS = 5, 3
SMALL, STUDENT, TEACHER = "mnist-cnn", "cifar10-cnn", "vgg-small"
STEPS = 64


def measure(study: str, args: Namespace, run: Run, shown=lambda m: None) -> sweep.Outcome:
    """Carries out a study into a file of its own.

    teacher (S3d): a frozen teacher's forward pass on the CPU while the student trains on the GPU, each against itself alone;
    without a GPU its rows are skipped, unless `--device cpu` asks for both on the CPU. together: 1, 2 and 4 processes that train
    the same small model on one device at once, in steps a second of all against one. trials: folds and trials, the same training
    again and again in one process, with keras.utils.clear_session and without, and in a fresh process each; the model is built
    and compiled anew every time.
    """
    return concurrent.studied(f"training-{study}", _GROUPS[study](args, run.machine), args, run, shown)


def rows(study: str, args: Namespace, here: Machine) -> list[Row]:
    """The rows of a study, for the plan.

    Raises: Usage; Missing for a device that is not here.
    """
    return [row for group in _GROUPS[study](args, here) for row in group.rows]


def seconds(study: str, args: Namespace, here: Machine) -> float:
    """About how long a study takes: its windows, or its trials at 10 s each, and 20 s for each process that starts."""
    planned = rows(study, args, here)
    if study == "trials":
        return sum(_trial_count(args) * (25 if row.process == "fresh" else 10) for row in planned)
    turns = _turns(args)
    return len(planned) * (turns.rounds * (turns.window_s * 1.3 + 0.5) + 20)


def _trainings(args: Namespace, model: str) -> list[Training]:
    """The trainings asked for, of `model` where none was named.

    Raises: Usage for an unknown one: these studies take networks from the tables.
    """
    found = []
    for name in options.words(args.model) or [model]:
        network = switches.network(name)
        for batch in plan.counts(args.batch, min(network.batch, network.samples)):
            for samples in plan.counts(args.samples, batch * (args.steps or STEPS)):
                found += [Training(name, batch, samples, epochs) for epochs in plan.counts(args.epochs, 1)]
    return found


def _settings(args: Namespace, device: str, process: str = "warm", **own: str) -> Settings:
    """The settings of a study's row, its switches the data, jit where it was asked for, and its `own`."""
    jit = (options.words(args.jit) or ["auto"])[0]
    threads = plan.counts(args.threads, None)[0] if device == "cpu" else None
    chosen = switches.changed({"data": args.data, "jit_compile": jit})
    return Settings(device, threads, process=process, switches={**chosen, **own})


def _devices(args: Namespace, here: Machine) -> tuple[list[str], str]:
    """(the devices for what is asked of a GPU: those named, else the first GPU; why there is none)."""
    on = plan.devices(args, here)
    if options.words(args.device):
        return on, ""
    gpus = [device for device in on if device != "cpu"]
    return gpus, "" if gpus else f"no GPU here: {facts.gpu_problem()}; --device cpu runs all of it on the CPU"


def _group(rows_: list[Row], missing: str, measure: Callable, args: Namespace, here: Machine) -> concurrent.Group:
    """Rows that `measure` carries out together; skipped where something is missing."""
    if missing:
        return concurrent.Group(rows_, lambda: (r.result("skipped", missing) for r in rows_))
    return concurrent.Group(rows_, functools.partial(measure, rows_, args, here))


def _teacher_groups(args: Namespace, here: Machine) -> list[concurrent.Group]:
    on, missing = _devices(args, here)
    groups = []
    for training in _trainings(args, STUDENT):
        alike = networks.find(TEACHER).input == networks.find(training.model).input
        answers = Inference(TEACHER if alike else training.model, training.batch, training.dtype)
        for device in [d for d in on if d != "cpu"] or ["cpu" if on else "gpu:0"]:
            four = []
            for student, teacher_ in (("nothing", "nothing"), ("teacher", "student")):
                four.append(Row("inference/keras/call", answers, _settings(args, "cpu", beside=teacher_)))
                four.append(Row("training/keras/fit", training, _settings(args, device, beside=student)))
            groups.append(_group(four, missing, _beside, args, here))
    return groups


def _beside(four: list[Row], args: Namespace, here: Machine) -> Generator[Measurement]:
    """The rows teacher alone, student alone, teacher beside, student beside."""
    with concurrent.workers_of(four[:2], here) as workers:
        yield from concurrent.alone_and_together(four, workers, _turns(args))


def _together_groups(args: Namespace, here: Machine) -> list[concurrent.Group]:
    on, missing = _devices(args, here)
    groups = []
    for training, device in itertools.product(_trainings(args, SMALL), on or ["gpu:0"]):
        own = [_settings(args, device, beside="fits" if k > 1 else "nothing", at_once=str(k)) for k in PROCESSES]
        groups.append(_group([Row("training/keras/fit", training, s) for s in own], missing, _at_once, args, here))
    return groups


def _at_once(made: list[Row], args: Namespace, here: Machine) -> Generator[Measurement]:
    """The rows of 1, 2, 4 processes that do the same at once."""
    sets = [tuple(range(row.experiment.at_once)) for row in made]
    parties = [made[0]] * max(map(len, sets))
    with concurrent.workers_of(parties, here) as workers:
        took = concurrent.in_turns(parties, workers, sets, _turns(args))
    for row, members in zip(made, sets, strict=True):
        yield concurrent.measured(row, took, members, members)


def _trial_groups(args: Namespace, here: Machine) -> list[concurrent.Group]:
    groups = []
    for training, device in itertools.product(_trainings(args, SMALL), plan.devices(args, here)):
        for process, clear in (("warm", "off"), ("warm", "on"), ("fresh", "off")):
            own = _settings(args, device, process, clear_session=clear)
            groups.append(_group([Row("training/keras/trial", training, own)], "", _tried, args, here))
    return groups


def _tried(rows_: list[Row], args: Namespace, here: Machine) -> Generator[Measurement]:
    """One row: so many trials one after another, in one worker or in a fresh one each. The clock is ours, so that a process's
    start and end are in it; a fresh process starts when its trial does."""
    (row,) = rows_
    fresh = row.process == "fresh"
    limits = shared_flags.limits(args)
    taken: list[Measurement] = []
    took: list[float] = []
    with contextlib.closing(Worker(environment(row, here.uuids))) as worker:
        for _ in range(_trial_count(args)):
            begin = time.perf_counter()
            taken.append(worker.ask(Order("trial", row, limits, args.seed), concurrent.timeout(row.problem)))
            if fresh:
                worker.close()
            took.append(time.perf_counter() - begin)
            if taken[-1].status != "ok":
                break
    yield tried(row, taken, took)


def tried(row: Row, taken: list[Measurement], took: list[float]) -> Measurement:
    """A row of trials: `host-latency` samples are whole trials in their order. series: each phase and value of every trial
    (0 where one did not have it). values: total_s, trials, traces of all."""
    if taken[-1].status != "ok":
        return replace(taken[-1], settings=row.settings)
    samples = Samples("host-latency", tuple(took), 1, tuple(range(len(took))), f"{len(took)} trials")
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


def _turns(args: Namespace) -> concurrent.Turns:
    rounds, window_s = (FAST_ROUNDS, FAST_WINDOW_S) if args.fast else (ROUNDS, WINDOW_S)
    return concurrent.Turns(rounds, window_s, args.seed)


def _trial_count(args: Namespace) -> int:
    return FAST_TRIALS if args.fast else TRIALS


_GROUPS = {"teacher": _teacher_groups, "together": _together_groups, "trials": _trial_groups}
