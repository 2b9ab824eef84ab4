"""Guessed time of a plan of trainings, and the order in which devices take turns."""

import functools
import math
from collections.abc import Iterable, Sequence

from analysis import stats, units
from kernels.problems import Training
from workloads import options
from workloads.frameworks import grid, side_by_side, studies, training_row
from workloads.harness import memory_needs, plan
from workloads.harness.plan import RIGOROUS_PROCESSES as FRESH
from workloads.records import Machine, Row, script_files, settings
from workloads.shared_flags import Measuring


def in_turns(rows: Iterable[Row]) -> list[Row]:
    """The same rows, reordered: a row's CPU and GPU versions are neighbors, so a plan that ends early has both sides of what
    it measured. Rows of the same switches come together, so that few worker processes start twice. Rows that need fresh
    processes come last."""

    def alike(row: Row) -> tuple:
        own = row.settings.switches.items() - row.settings.variables.items()
        return row.process == "fresh", row.kernel, row.problem, row.mode, *sorted(own)

    found = stats.group_by(rows, alike)
    switches = [key[4:] for key in found]
    return [row for key in sorted(found, key=lambda key: (key[0], switches.index(key[4:]))) for row in found[key]]


@functools.cache
def values(model: str) -> int:
    """Values of a sample of a user's own model, which is built once; 0 of a known one. Raises: Usage for one that cannot be."""
    if not settings.is_user_model(model) or script_files.script_training(model) is not None:
        return 0
    return math.prod(grid.network(model).input)


def build_models(rows: Iterable[Row]) -> None:
    """Builds each of the user's own models once. Raises: Usage for one that cannot be built."""
    for row in rows:
        values(row.problem.model)


def lines(rows: list[Row], measuring: Measuring, names: Sequence[str], here: Machine) -> list[str]:
    """The plan in words: a line a row, those of the studies of these names among them, their number, the largest data set, rows
    that do not fit into memory, and the guessed minutes of the others. Raises: Missing where no row fits, and for a model of the
    user's own that cannot be trained."""
    every, time = [*rows], 0.0
    for study in studies.experiments(names):
        time += side_by_side.seconds(study, measuring, here)
        every += side_by_side.rows(study, measuring, here)
    left_out = memory_needs.too_large(
        every, lambda r: training_row.require_room(r, here, values(r.problem.model)), name
    )
    fits = [row for row in in_turns(every) if row.key not in left_out]
    own = [row for row in fits if row in rows]  # an experiment has processes of its own
    time += sum(plan.seconds(row, measuring.rigorous) for row in own)
    if left_out and not fits:
        why = next(iter(left_out.values()))
        raise options.Missing(why, wrong="--samples", right="--samples 1000")
    largest = max((training_row.footprint_bytes(r.problem, values(r.problem.model)) for r in fits), default=0)
    size = f"{units.count(len(fits), 'row')}, at most {units.size(largest)} of arrays at a time"
    guess = f"about {time / 60:.1f} minutes, a guess; --stop-after 500 begins no row that may pass it, --resume goes on"
    planned = [name(row, measuring.rigorous and row in own) for row in fits]
    return [*planned, size, *(f"left out: {why}" for why in left_out.values()), guess]


def name(row: Row, rigorous: bool = False) -> str:
    """A row in a few words, a batch that is smaller, its switches and how many processes it takes among them."""
    p, switches = row.problem, row.settings.switches.items()  # the residence is in plan.name
    given = [f"{switch}={text}" for switch, text in switches if switch != "residence" and text != "synthetic"]
    if isinstance(p, Training) and (last := p.samples % p.batch):
        jit = row.keras.jit_compile
        own = row.on_gpu or row.keras.gpu == "visible" or row.library == "jax" if jit == "auto" else jit == "on"
        given += [f"one batch of {last}" if p.samples < p.batch else f"last batch of {last}" + ", compiled too" * own]
    many = [f"in {FRESH} processes"] if rigorous else []
    if row.process == "fresh":
        many = ["each trial in a fresh process" if row.variant == "trial" else f"in {FRESH} fresh processes"]
    return " ".join([plan.name(row), *given, *many])
