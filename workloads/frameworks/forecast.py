"""What a plan of trainings will take: a guess, and the order in which devices take turns."""

import argparse
from collections.abc import Iterable

from analysis import units
from kernels import networks
from kernels.problems import Training
from workloads import shared_flags
from workloads.frameworks import keras_fit, side_by_side, studies, training_row
from workloads.harness import one_row, plan
from workloads.harness.worker import environment
from workloads.records import Machine, Row

# The guess: seconds of a step before any arithmetic, of an epoch, of a fit, of a compilation and of a process's start, FLOP/s of
# a CPU core and of a GPU in small steps, seconds to make a number of the data. Rounded from looks at an H200 with 16 cores.
EPOCH_S, CORE_FLOPS, GPU_FLOPS, NUMBER_S = 0.05, 55e9, 8e12, 15e-9
STEP_S = {"cpu": 3e-3, "gpu": 1.5e-3}
LOOP_STEP_S, LOOP_COMPILES, FIT_S = 0.4e-3, 0.3, 0.03  # of a loop's small model's
COMPILE_S = {"cpu": 1.5, "jit": 4.0, "gpu": 5.0}
START_S = 10.0
BARE = ("loop", "resident")  # without model.fit
UNKNOWN_FLOPS = 1e8  # a sample, of a user's model
FRESH = plan.RIGOROUS_PROCESSES


def in_turns(rows: Iterable[Row]) -> list[Row]:
    """The same rows, those that differ in their device alone after one another: what ends a plan early leaves both sides of
    what it has. The CPU's processes, of each set of variables, and a GPU's live side by side meanwhile: few are started twice,
    as rows of the same switches come together. What takes fresh processes comes last."""
    found: dict[tuple, list[Row]] = {}
    for row in rows:
        s = row.settings
        own = s.switches.items() - s.variables.items()
        found.setdefault((s.process == "fresh", row.kernel, row.problem, s.mode, *sorted(own)), []).append(row)
    switches = [key[4:] for key in found]
    return [row for key in sorted(found, key=lambda key: (key[0], switches.index(key[4:]))) for row in found[key]]


def step_s(row: Row, cores: int) -> float:
    """Seconds that one step is guessed to take."""
    p, s = row.problem, row.settings
    network = networks.known(p.model)
    flops = min(p.batch, p.samples) * (networks.training_flops(network) if network else UNKNOWN_FLOPS)
    rate = GPU_FLOPS if s.on_gpu else CORE_FLOPS * (s.threads or cores)
    return (LOOP_STEP_S if row.kernel.endswith(BARE) else STEP_S["gpu" if s.on_gpu else "cpu"]) + flops / rate


def seconds(row: Row, cores: int, max_time: float, rigorous: bool = False) -> float:
    """Seconds that a row is guessed to take in a process that runs already; `rigorous`: in five of them; a row of fresh
    processes: in five, with their starts."""
    p, s = row.problem, row.settings
    if not isinstance(p, Training):
        return 1.0
    step, network = step_s(row, cores), networks.known(p.model)
    numbers = p.samples * (networks.sample_bytes(network, "uint8") if network else 3000)
    shapes = 2 if p.samples > p.batch and p.samples % p.batch else 1
    where = "gpu" if s.on_gpu else "jit" if s.keras.jit_compile == "on" or s.keras.gpu == "visible" else "cpu"
    fit, epoch = (1e-3, 1e-4) if row.kernel.endswith(BARE) else (FIT_S, EPOCH_S)
    once = numbers * NUMBER_S + shapes * COMPILE_S[where] * (LOOP_COMPILES if row.kernel.endswith(BARE) else 1)
    if s.process == "fresh":
        return FRESH * (once + fit + epoch + step + START_S)
    own = max(p.epochs, keras_fit.FEWEST_LATER + 1) * (epoch + p.steps * step)
    whole = once + fit + own + min(3 * own, keras_fit.MOST * max_time)  # more fits, while they are short
    return FRESH * whole if rigorous else whole


def total(rows: Iterable[Row], cores: int, max_time: float, rigorous: bool = False) -> float:
    """Seconds that all rows are guessed to take, with the processes that they need, which live side by side: one for each set
    of variables, `rigorous` five, kept for all its rows."""
    rows = list(rows)
    warm = {tuple(sorted(environment(r, {}).items())) for r in rows if r.settings.process != "fresh"}
    return sum(seconds(r, cores, max_time, rigorous) for r in rows) + len(warm) * START_S * (FRESH if rigorous else 1)


def lines(rows: list[Row], args: argparse.Namespace, here: Machine) -> list[str]:
    """The plan in words: a line a row, how many, the largest data set, which rows memory is too small for, and the minutes
    that the others are guessed to take."""
    every, time = [*rows], 0.0
    for study in studies.experiments(args.study or []):
        time += side_by_side.seconds(study, args, here)
        every += side_by_side.rows(study, args, here)
    left_out = _too_large(every, here)
    fits = [row for row in in_turns(every) if row.key not in left_out]
    own = [row for row in fits if row in rows]  # an experiment has processes of its own
    time += total(own, here.cores, shared_flags.limits(args)["max_time"], args.rigorous)
    largest = max((row.problem.footprint_bytes for row in fits), default=0)  # 0 of a user's model, not built yet
    size = units.count(len(fits), "row") + f", at most {units.size(largest)} of arrays at a time" * bool(largest)
    guess = f"about {time / 60:.1f} minutes, a guess; --stop-after 500 ends it after a row, and --resume goes on"
    return [*(name(row, args.rigorous and row in own) for row in fits), size, *left_out.values(), guess]


def _too_large(rows: Iterable[Row], here: Machine) -> dict[str, str]:
    """Key -> why a row will be left out, of those that the host's memory or the GPU's is too small for."""
    left_out = {}
    for row in rows:
        try:
            training_row.require_room(row, here)
        except one_row.DoesNotFit as error:
            left_out[row.key] = f"left out: {name(row)}: {error}"
    return left_out


def name(row: Row, rigorous: bool = False) -> str:
    """A row in a few words, its switches and how many processes it takes among them."""
    said = [("data", "synthetic"), ("residence", row.settings.switches.get("residence"))]  # the latter by plan.name
    given = [f"{switch}={text}" for switch, text in row.settings.switches.items() if (switch, text) not in said]
    many = [f"in {FRESH} processes"] if rigorous else []
    if row.process == "fresh":
        many = ["each trial in a fresh process" if row.variant == "trial" else f"in {FRESH} fresh processes"]
    return " ".join([plan.name(row), row.problem.dtype, *given, *many])
