"""Guessed time of a plan of trainings, and the order in which devices take turns."""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from analysis import stats, units
from kernels.problems import Problem, Training
from workloads import options
from workloads.frameworks import grid, side_by_side, studies, training_row
from workloads.harness import memory_needs, plan
from workloads.harness.plan import RIGOROUS_PROCESSES as FRESH
from workloads.records import Machine, Row, script_files, settings
from workloads.shared_flags import Measuring


def in_turns(rows: Iterable[Row]) -> list[Row]:
    """The same rows in the order in which they are measured.

    The rows of one training on the CPU and the GPU are neighbors, so that a plan that ends early has both sides of what it
    measured. Rows with the same options come together, so that few worker processes have to be started again. Rows that need
    fresh processes come last.
    """
    rows_of_training = stats.group_by(rows, _without_device)
    # Groups of trainings with the same options, in the order in which the options first occur.
    by_switches = stats.group_by(rows_of_training, lambda training: training.switches)
    ordered: list[Row] = []
    for is_fresh in (False, True):
        for group in by_switches.values():
            for training in group:
                if training.is_fresh == is_fresh:
                    ordered += rows_of_training[training]
    return ordered


class TrainingWithoutDevice(NamedTuple):
    """What the rows of one training on the CPU and on the GPU have in common."""

    #: Whether they need fresh processes.
    is_fresh: bool
    #: The row's kernel.
    kernel: str
    #: The row's problem.
    problem: Problem
    #: Copy mode.
    mode: str
    #: Switches but environment variables, by name.
    switches: tuple[tuple[str, str], ...]


def _without_device(row: Row) -> TrainingWithoutDevice:
    """What a row has in common with the row of the same training on another device. Environment variables are no part of it: some
    concern one device alone."""
    switches = row.settings.switches.items() - row.settings.variables.items()
    return TrainingWithoutDevice(
        is_fresh=row.process == "fresh",
        kernel=row.kernel,
        problem=row.problem,
        mode=row.mode,
        switches=tuple(sorted(switches)),
    )


@functools.cache
def values(model: str) -> int:
    """How many numbers a sample of a user's model has; 0 for a network of kernels.networks and for a user's script.

    The model is built in a child process, once for each name.
    Raises: Usage for a model that cannot be built.
    """
    if not settings.is_user_model(model) or script_files.script_training(model) is not None:
        return 0
    return math.prod(grid.network(model).input)


def build_models(rows: Iterable[Row]) -> None:
    """Builds each of the user's models that the rows name, so that an error comes before anything is measured.

    Raises: Usage for one that cannot be built.
    """
    for row in rows:
        values(row.problem.model)


class TrainingForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a command: what it trains, and what that takes."""

    #: The rows that fit into memory, in the order in which they are measured; those of experiments among them.
    rows: tuple[Row, ...]
    #: The command's rows, without those of its experiments.
    rows_of_command: tuple[Row, ...]
    #: Key of a row that does not fit into memory -> why, in words.
    left_out: dict[str, str]
    #: The most memory that the arrays of a row take. Bytes.
    largest_bytes: int
    #: A guess of the time of all rows. Seconds.
    seconds: float


def forecast(rows: Sequence[Row], measuring: Measuring, names: Sequence[str], here: Machine) -> TrainingForecast:
    """The plan of a command, for --dry-run.

    rows: without those of the experiments among the studies; these are added. names: of the studies. here: this machine.
    Raises: Missing where no row fits; Usage for a user's model that cannot be built.
    """
    planned = list(rows)
    seconds = 0.0
    for study in studies.experiments(names):
        seconds += side_by_side.seconds(study, measuring, here)
        planned += side_by_side.rows(study, measuring, here)
    left_out = memory_needs.too_large(
        planned, lambda row: training_row.require_room(row, here, values(row.problem.model)), name
    )
    fitting = [row for row in in_turns(planned) if row.key not in left_out]
    if left_out and not fitting:
        why = next(iter(left_out.values()))
        raise options.Missing(why, wrong="--samples", right="--samples 1000")
    largest_bytes = 0
    for row in fitting:
        largest_bytes = max(largest_bytes, training_row.footprint_bytes(row.problem, values(row.problem.model)))
        if row in rows:  # the processes of an experiment's rows are in its seconds
            seconds += plan.seconds(row, measuring.rigorous)
    return TrainingForecast(
        rows=tuple(fitting),
        rows_of_command=tuple(rows),
        left_out=left_out,
        largest_bytes=largest_bytes,
        seconds=seconds,
    )


def lines(planned: TrainingForecast, *, rigorous: bool) -> list[str]:
    """The plan of a command in words: a line for each row, then the number of rows with the largest memory of one, the rows that
    do not fit into memory, and the guessed minutes of the others.

    rigorous: whether the command measures each row in several processes.
    """
    row_lines = [name(row, rigorous and row in planned.rows_of_command) for row in planned.rows]
    minutes = planned.seconds / 60
    return [
        *row_lines,
        f"{units.count(len(planned.rows), 'row')}, at most {units.size(planned.largest_bytes)} of arrays at a time",
        *(f"left out: {why}" for why in planned.left_out.values()),
        f"about {minutes:.1f} minutes, a guess; --stop-after 500 begins no row that may pass it, --resume goes on",
    ]


def name(row: Row, rigorous: bool = False) -> str:
    """A row in a few words for the plan: what it trains, its options, a smaller last batch, and how many processes it takes.

    rigorous: whether the command measures each row in several processes.
    """
    words = [plan.name(row)]  # the residence is in it
    for switch, text in row.settings.switches.items():
        if switch != "residence" and text != "synthetic":
            words.append(f"{switch}={text}")
    if isinstance(row.problem, Training):
        words += _last_batch(row)
    if row.process == "fresh" and row.variant == "trial":
        words.append("each trial in a fresh process")
    elif row.process == "fresh":
        words.append(f"in {FRESH} fresh processes")
    elif rigorous:
        words.append(f"in {FRESH} processes")
    return " ".join(words)


def _last_batch(row: Row) -> list[str]:
    """Words about the last batch of an epoch where it is smaller than the others, and whether XLA compiles the step for it again;
    [] where all batches are equal."""
    problem = row.problem
    last = problem.samples % problem.batch
    if not last:
        return []
    if problem.samples < problem.batch:
        return [f"one batch of {last}"]
    jit = row.keras.jit_compile
    is_compiled = jit == "on"
    if jit == "auto":
        is_compiled = row.on_gpu or row.keras.gpu == "visible" or row.library == "jax"
    return [f"last batch of {last}, compiled too" if is_compiled else f"last batch of {last}"]
