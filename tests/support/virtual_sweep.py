"""Sweeps by the real scheduler and the real visits on a clock that only moves when a call is timed, under noise that is known."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from analysis import noise
from kernels.problems import Matmul
from workloads.harness import rounds, timing
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row, Settings

CALL_S = 0.0075  # a sample is one call
# a visit also takes this, to be asked for and to find quiet; the first to bind and to check
BESIDE_S, FIRST_S = 0.05, 0.3
_WHITE = 0.003  # of every sample, whatever else moves it
_STEP_S = 0.005
Level = Callable[[float], float]  # seconds on the clock -> what a call's time is multiplied by


def _held(dice, values: np.ndarray, hold_s: float) -> Level:
    return lambda at: values[int(at / hold_s) % len(values)]


def independent(dice) -> Level:
    return lambda at: math.exp(dice.normal(0, 0.02))


def blocks(dice) -> Level:
    """A level of its own for every visit."""
    state = [-1.0, 1.0]

    def level(at: float) -> float:
        if at - state[0] > 2 * CALL_S:
            state[1] = math.exp(dice.normal(0, 0.02))
        state[0] = at
        return state[1]

    return level


def pareto(dice) -> Level:
    return lambda at: 1 + 0.02 * dice.pareto(1.5)


def levels(hold_s: float):
    return lambda dice: _held(dice, np.exp(dice.normal(0, 0.03, 4096)), hold_s)


def two_modes(dice) -> Level:
    return _held(dice, np.where(dice.random(4096) < 0.35, 1.05, 1.0), 0.5)


def wandering(tau_s: float):
    """An Ornstein-Uhlenbeck process of 3 %."""

    def made(dice) -> Level:
        from scipy.signal import lfilter

        keeps = math.exp(-_STEP_S / tau_s)
        steps = dice.normal(0, 0.03 * math.sqrt(1 - keeps**2), 60_000)
        steps[0] = dice.normal(0, 0.03)
        return _held(dice, np.exp(lfilter([1.0], [1.0, -keeps], steps)), _STEP_S)

    return made


def switching(dwell_s: float):
    """Two levels, 3 % above and 3 % below, each of which lasts `dwell_s` on average."""

    def made(dice) -> Level:
        level, values = 0.03 * dice.choice([-1, 1]), np.empty(60_000)
        begin = 0
        while begin < len(values):
            end = begin + max(1, round(dice.exponential(dwell_s) / _STEP_S))
            values[begin:end] = level
            begin, level = end, -level
        return _held(dice, np.exp(values), _STEP_S)

    return made


def drift(dice) -> Level:
    return lambda at: 1 + 0.025 * at


# name -> (how it is made, the true factor; None: its mean over the sweep)
NOISES: dict[str, tuple[Callable, float | None]] = {
    "independent": (independent, 1.0),
    "blocks": (blocks, 1.0),
    "Pareto": (pareto, 1 + 0.02 * (2 ** (1 / 1.5) - 1)),
    **{f"levels of {s:g} s": (levels(s), 1.0) for s in (0.2, 0.5, 1.0)},
    "two modes": (two_modes, 1 + 0.736 * _WHITE),  # 0.5 / 0.65 of the lower mode
    **{f"OU, tau {s:g} s": (wandering(s), 1.0) for s in (0.05, 0.3, 1.0, 5.0)},
    "drift 2.5 %/s": (drift, None),
}


#: Noise as slow as a run and slower, all of 3 %; the level of all runs is 1.
SLOW: dict[str, Callable] = {
    **{f"OU, tau {s:g} s": wandering(s) for s in (1, 5, 20, 60)},
    **{f"two modes of {s:g} s": switching(s) for s in (2, 10)},
}


def plan(rows: int) -> list[Row]:
    ways = [(variant, threads) for variant in ("blas", "operator") for threads in (1, 2)][: max(1, min(4, rows))]
    sizes = range(8, 8 + math.ceil(rows / len(ways)))
    return [Row(f"matmul/numpy/{v}", Matmul(n, n, n), Settings(threads=t)) for n in sizes for v, t in ways][:rows]


def visited(rows: list[Row], levels: dict[str, Level], limits: Limits, dice) -> list[Measurement]:
    """The rows after all of their visits, each sample multiplied by its device's level at that moment."""
    now = [0.0]
    around = rounds.Rounds(rows, limits, int(dice.integers(1 << 30)), {})

    def sleep(seconds: float) -> None:
        now[0] += seconds

    for to_make in around.visits(lambda done: [], lambda: now[0], sleep):
        row, number = to_make.row, to_make.round
        level = levels[row.device]

        def take(calls: int, level: Level = level) -> float:
            seconds = CALL_S * level(now[0]) * (1 + dice.normal(0, _WHITE))
            now[0] += calls * CALL_S
            return calls * seconds

        now[0] += BESIDE_S + FIRST_S * (number == 1)
        samples = timing.visit(take, limits, "host-latency", CALL_S)
        around.add(row.result("ok", samples=(samples,), series={"visit_at_s": (now[0],)}, visit=number))
    return around.measurements


def sweep(rows: int, name: str, limits: Limits, seed: int) -> tuple[list[Measurement], float]:
    """(the rows as they are in the end, the seconds that a call truly takes) of one sweep."""
    made, factor = NOISES[name]
    dice = np.random.default_rng(seed)
    measured = visited(plan(rows), {"cpu": made(dice)}, limits, dice)
    if factor is None:
        end = max(m.series["visit_at_s"][-1] for m in measured)
        factor = 1 + 0.025 * end / 2
    return measured, CALL_S * factor


def slow_sweep(rows: list[Row], name: str, limits: Limits, seed: int) -> tuple[list[Measurement], dict[str, Level]]:
    """(the rows of one sweep, the level of each device) under a noise of SLOW. Devices have levels of their own."""
    dice = np.random.default_rng(seed)
    devices = dict.fromkeys(row.device for row in rows)
    levels = {device: SLOW[name](dice) for device in devices}
    return visited(rows, levels, limits, dice), levels


def shares(name: str, limits: Limits, seed: int, runs: int) -> noise.NoiseShare:
    """What doctor --noise stores of a machine with this noise of SLOW: from so many runs of ten rows, far apart."""
    sweeps = []
    for i in range(runs):
        measured, _ = slow_sweep(plan(10), name, limits, seed + i)
        sweeps.append((300.0 * i, SimpleNamespace(measurements=measured)))
    return noise.shares(sweeps)[0]
