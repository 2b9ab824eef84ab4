"""Each device of a fleet against its own baseline and against the others like it, quantity by quantity.

Rates are compared: a device is `below` by 1 - baseline seconds / its seconds, over the rows of a quantity that both have.
"""

import math
import pathlib
import statistics
from collections.abc import Iterable

import msgspec

from analysis import noise, stats, units
from analysis.fleet.devices import Device, plain_key, quantity, readable, stored_baseline
from analysis.stats import Estimate
from analysis.table import named
from workloads.records import Measurement, Measurements

LEAST = 0.03  # a device that is below by less is healthy
FEWEST = 8  # devices of one model needed to judge each by their median
# Source: B. Iglewicz and D. Hoaglin, How to Detect and Handle Outliers (1993): a modified z-score above 3.5 is an outlier.
BEYOND = 3.5
_SIGMA = 1.4826  # standard deviation over median absolute deviation, of a normal distribution
_CLOCK = 0.03
Compared = tuple[str, int, Measurement, float]  # quantity, index of the device, row, median seconds of all devices
HEAD = named(
    "node | device | model | quantity | against | rows | below | low | high | least | beyond | flagged | cause"
)


class Deviation(msgspec.Struct, frozen=True):
    """How far a device is below `baseline` or `fleet` (against) in one quantity, over how many rows.

    below, least: shares; losses up to `least` are not claimed. beyond: the loss in robust standard deviations of the fleet (0
    against a baseline). cause: an observation that explains the loss, "" without one.
    """

    device: Device
    quantity: str
    against: str
    rows: int
    below: Estimate
    least: float
    beyond: float = 0.0
    cause: str = ""

    @property
    def flagged(self) -> bool:
        """Whether the whole interval lies above `least`, and against a fleet also beyond its spread (BEYOND)."""
        return self.below.low > self.least and (self.against == "baseline" or self.beyond > BEYOND)


class Judged(msgspec.Struct, frozen=True):
    """All devices of a run, their findings, and the devices that could not be judged, each with the reason."""

    devices: tuple[Device, ...]
    findings: tuple[Deviation, ...]
    unjudged: tuple[tuple[Device, str], ...]

    @property
    def flagged(self) -> tuple[Deviation, ...]:
        """The flagged findings, the largest loss first."""
        return tuple(sorted((f for f in self.findings if f.flagged), key=lambda f: -f.below.value))


def judge(found: tuple[Device, ...], known: Iterable[str | pathlib.Path], least: float = LEAST) -> Judged:
    """Compares each device with itself in the runs `known`, and with the others of its model where they are FEWEST or more."""
    findings: list[Deviation] = []
    unjudged: list[tuple[Device, str]] = []
    before, alike = readable(known), stats.group_by(found, lambda device: device.model)
    others = {model: across(same, least) for model, same in alike.items()}
    for device in found:
        baseline = stored_baseline(device, before)
        own = against_baseline(device, baseline, least) if baseline else []
        findings += own
        if not own and not any(f.device is device for f in others[device.model]):
            count = len(alike[device.model])
            few = f"fewer than {FEWEST} have a row in common with it"
            if count < FEWEST:
                few = f"{count} alike are fewer than {FEWEST}"
            reason = "no row in common with its baseline" if baseline else "no baseline"
            unjudged.append((device, f"{reason}, {few}"))
    return Judged(found, (*findings, *(f for each in others.values() for f in each)), tuple(unjudged))


def against_baseline(device: Device, baseline: Device, least: float = LEAST) -> list[Deviation]:
    """How far each quantity is below the device's own baseline."""
    before = {plain_key(m): m for m in baseline.rows.values()}
    pairs = ((before.get(plain_key(m)), m) for m in device.rows.values())
    both = [(old, new) for old, new in pairs if old and _comparable(old, new)]
    found = []
    for what, rows in stats.group_by(both, lambda pair: quantity(pair[0], baseline.machine)).items():
        if not what:
            continue
        ratios = [stats.verdict(stats.clock_of(old), stats.clock_of(new)).ratio for old, new in rows]
        cause = causes([old for old, _ in rows], [new for _, new in rows])
        claimed = _least(device, [new for _, new in rows], least)
        found.append(Deviation(device, what, "baseline", len(rows), below(ratios), claimed, cause=cause))
    return found


def _comparable(old: Measurement, new: Measurement) -> bool:
    """Whether both rows have the same clock and two samples or more; a single sample has no interval."""
    a, b = stats.clock_of(old), stats.clock_of(new)
    return a is not None and b is not None and a.clock == b.clock and min(len(a.seconds), len(b.seconds)) > 1


def below(ratios: list[Estimate]) -> Estimate:
    """The share by which rates are below, from ratios of seconds (new over old): medians of the rows' values, low and high
    ends. Rows may lose by different shares without noise: the cost of a busy SM depends on how a product divides into tiles."""
    value, low, high = (statistics.median(getattr(r, end) for r in ratios) for end in ("value", "low", "high"))
    return 1 - 1 / Estimate(value, low, high)


def _least(device: Device, rows: Measurements, least: float) -> float:
    """The smallest share that is claimed of a device. For a CPU at least the noise between its runs, which is above a GPU's."""
    if device.is_gpu:
        return least
    clocks = [(noise.side(m, clock.clock), stats.middle(clock)) for m in rows if (clock := stats.clock_of(m))]
    return max(least, statistics.median(noise.between_runs(device.machine, *one).share for one in clocks))


def across(alike: list[Device], least: float = LEAST) -> list[Deviation]:
    """How far each quantity of each device is below the median of those alike; [] for fewer than FEWEST."""
    if len(alike) < FEWEST:
        return []
    timed: list[tuple[str, int, Measurement]] = []
    for i, device in enumerate(alike):
        timed += [(plain_key(m), i, m) for m in device.rows.values() if _comparable(m, m)]
    compared: list[Compared] = []
    for rows in stats.group_by(timed, lambda one: one[0]).values():
        _, first, example = rows[0]
        if len(rows) >= FEWEST and (what := quantity(example, alike[first].machine)):
            middle = statistics.median(stats.call_s(m) for *_, m in rows)
            compared += [(what, i, m, middle) for _, i, m in rows]
    by_quantity = stats.group_by(compared, lambda one: one[0])
    return [f for what, rows in by_quantity.items() for f in _outside(alike, what, rows, least)]


def _outside(alike: list[Device], what: str, rows: list[Compared], least: float) -> list[Deviation]:
    """A finding a device: its loss against the median of the others in one quantity."""
    groups = stats.group_by(rows, lambda one: one[1])
    at = {
        i: statistics.median(math.log(stats.call_s(m) / middle) for *_, m, middle in own) for i, own in groups.items()
    }
    center = statistics.median(at.values())
    sigma = _SIGMA * statistics.median(abs(x - center) for x in at.values())
    everyone = [m for *_, m, _ in rows]
    found = []
    for i, own in groups.items():
        mine = [m for *_, m, _ in own]
        share = below([stats.median_of(stats.clock_of(m)) / (middle * math.exp(center)) for *_, m, middle in own])
        beyond = (at[i] - center) / sigma if sigma else math.inf if at[i] > center else 0.0
        claimed = _least(alike[i], mine, least)
        found.append(Deviation(alike[i], what, "fleet", len(own), share, claimed, beyond, causes(everyone, mine)))
    return found


_FLAGS = {
    "power-cap": "at its power limit",
    "thermal": "too hot",
    "other-tenant": "another process computes on it",
    "other-load": "other processes use its CPUs",
    "steal": "its hypervisor takes CPU time",
    "quota": "a CPU quota holds it back",
}


def causes(before: Measurements, now: Measurements) -> str:
    """Causes of a loss in words, seen on most rows now and not before: lower clock, slower PCIe link, flags; "" without any."""
    told = []
    gpu = now[0].settings.on_gpu
    clock = "gpu_clock_hz" if gpu else "cpu_clock_hz"
    old, new = _middle(before, clock), _middle(now, clock)
    if old and new and new < (1 - _CLOCK) * old:
        told.append(f"clock held at {units.metric(clock, new)} ({units.metric(clock, old)} otherwise)")
    links = [(_middle(of, "pcie_generation"), _middle(of, "pcie_width")) for of in (before, now)]
    if all(all(link) for link in links) and links[1] < links[0]:
        told.append(f"its PCIe link at generation {links[1][0]:.0f} x{links[1][1]:.0f}")
    for flag, words in _FLAGS.items():
        shares = [sum(flag in m.flags for m in of) / len(of) for of in (before, now)]
        if shares[1] >= 0.5 > shares[0]:
            told.append(words)
    return ", ".join(told)


def _middle(rows: Measurements, name: str) -> float | None:
    values = [m.values[name] for m in rows if name in m.values]
    return statistics.median(values) if values else None


def records(judged: Judged) -> list[dict]:
    """The findings as plain records in the columns of HEAD, by device."""
    made = []
    for f in judged.findings:
        known = msgspec.structs.asdict(f.device) | msgspec.structs.asdict(f) | msgspec.structs.asdict(f.below)
        known |= {"below": f.below.value, "device": f.device.device, "flagged": f.flagged}
        known["beyond"] = f.beyond if f.beyond < 1e300 else None
        made.append({head: known[head] for head in HEAD})
    return made
