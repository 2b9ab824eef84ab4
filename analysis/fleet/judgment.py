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
HEAD = named(
    "node | device | model | quantity | against | rows | below | low | high | least | beyond | flagged | cause"
)


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """How far a device is below its baseline or the devices like it in one quantity."""

    #: The device.
    device: Device
    #: The quantity in words: `HBM read`.
    quantity: str
    #: What it is compared with: `baseline` or `fleet`.
    against: str
    #: How many rows of the quantity are compared.
    rows: int
    #: The share by which its rates are below.
    below: Estimate
    #: Losses up to this share are not claimed.
    least: float
    #: The loss in robust standard deviations of the fleet; 0 against a baseline.
    beyond: float = 0.0
    #: What was observed and explains the loss; "" without anything.
    cause: str = ""

    @property
    def flagged(self) -> bool:
        """Whether the whole interval lies above `least`, and against a fleet also beyond its spread (BEYOND)."""
        return self.below.low > self.least and (self.against == "baseline" or self.beyond > BEYOND)


class FleetJudgment(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of a run, each judged in every quantity."""

    #: The devices.
    devices: tuple[Device, ...]
    #: What was compared of them.
    findings: tuple[Deviation, ...]
    #: The devices that could not be judged, each with the reason.
    unjudged: tuple[tuple[Device, str], ...]

    @property
    def flagged(self) -> tuple[Deviation, ...]:
        """The flagged findings, the largest loss first."""
        return tuple(sorted((f for f in self.findings if f.flagged), key=lambda f: -f.below.value))


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of one device, whose twins FEWEST devices or more have."""

    #: Place of the device among those alike.
    device: int
    #: The row.
    row: Measurement
    #: Median seconds of all devices in this row.
    median: float

    @property
    def log_ratio(self) -> float:
        """Logarithm of the device's seconds over the median."""
        return math.log(stats.call_s(self.row) / self.median)


def judge(devices: tuple[Device, ...], baselines: Iterable[str | pathlib.Path], least: float = LEAST) -> FleetJudgment:
    """Compares each device with itself in the first of the runs `baselines` that has it, and with the others of its model where
    there are FEWEST of these or more. least: losses up to this share are not claimed: 0.03 is 3 %.
    """
    findings: list[Deviation] = []
    unjudged: list[tuple[Device, str]] = []
    earlier_runs = readable(baselines)
    alike = stats.group_by(devices, lambda device: device.model)
    against_others = {model: across(same, least) for model, same in alike.items()}
    for device in devices:
        baseline = stored_baseline(device, earlier_runs)
        against_itself = against_baseline(device, baseline, least) if baseline else []
        findings += against_itself
        has_others = any(f.device is device for f in against_others[device.model])
        if not against_itself and not has_others:
            reason = "no row in common with its baseline" if baseline else "no baseline"
            unjudged.append((device, f"{reason}, {_too_few(len(alike[device.model]))}"))
    for deviations in against_others.values():
        findings += deviations
    return FleetJudgment(devices=devices, findings=tuple(findings), unjudged=tuple(unjudged))


def _too_few(count: int) -> str:
    """Why devices of which there are `count` alike are not judged by their median."""
    if count < FEWEST:
        return f"{count} alike are fewer than {FEWEST}"
    return f"fewer than {FEWEST} have a row in common with it"


def against_baseline(device: Device, baseline: Device, least: float = LEAST) -> list[Deviation]:
    """How far a device is below its baseline, quantity by quantity, over the rows that both have. baseline: the same device in an
    earlier run.
    """
    before = {plain_key(m): m for m in baseline.rows.values()}
    pairs = []
    for new in device.rows.values():
        old = before.get(plain_key(new))
        if old and _comparable(old, new):
            pairs.append((old, new))
    deviations = []
    for what, rows in stats.group_by(pairs, lambda pair: quantity(pair[0], baseline.machine)).items():
        if not what:
            continue
        old_rows = [old for old, _ in rows]
        new_rows = [new for _, new in rows]
        ratios = [_ratio(old, new) for old, new in rows]
        deviation = Deviation(
            device=device,
            quantity=what,
            against="baseline",
            rows=len(rows),
            below=below(ratios),
            least=_least(device, new_rows, least),
            cause=causes(old_rows, new_rows),
        )
        deviations.append(deviation)
    return deviations


def _ratio(old: Measurement, new: Measurement) -> Estimate:
    """The seconds of a call in the new row over those in the old row, on their common clock."""
    old_samples, new_samples = stats.clock_of(old), stats.clock_of(new)
    assert old_samples is not None and new_samples is not None
    return stats.verdict(old_samples, new_samples).ratio


def _comparable(old: Measurement, new: Measurement) -> bool:
    """Whether both rows have the same clock and two samples or more; a single sample has no interval."""
    a, b = stats.clock_of(old), stats.clock_of(new)
    return a is not None and b is not None and a.clock == b.clock and min(len(a.seconds), len(b.seconds)) > 1


def below(ratios: list[Estimate]) -> Estimate:
    """The share by which rates have fallen, from ratios of seconds (new over old), one a row. Value and ends of the interval
    are the medians of the rows': rows may lose by different shares without any noise, as the cost of a busy multiprocessor
    depends on how a product divides into tiles.
    """
    value = statistics.median(ratio.value for ratio in ratios)
    low = statistics.median(ratio.low for ratio in ratios)
    high = statistics.median(ratio.high for ratio in ratios)
    return 1 - 1 / Estimate(value, low, high)


def _least(device: Device, rows: Measurements, least: float) -> float:
    """The smallest loss that is claimed of a device: `least`, for a CPU at least the noise between two runs, which is larger
    than a GPU's.
    """
    if device.is_gpu:
        return least
    shares = []
    for m in rows:
        samples = stats.clock_of(m)
        if samples:
            clock = noise.side(m, samples.clock)
            shares.append(noise.between_runs(device.machine, clock, stats.quick_median(samples)).share)
    return max(least, statistics.median(shares))


def across(alike: list[Device], least: float = LEAST) -> list[Deviation]:
    """How far each device of one model is below the median of all of them, quantity by quantity; [] for fewer than FEWEST
    devices.
    """
    if len(alike) < FEWEST:
        return []
    deviations = []
    for what, rows in _rows_by_quantity(alike).items():
        deviations += _outside(alike, what, rows, least)
    return deviations


def _rows_by_quantity(alike: list[Device]) -> dict[str, list[FleetRow]]:
    """Quantity in words -> the rows that measure it and that FEWEST devices or more have. alike: devices of one model."""
    by_key: dict[str, list[tuple[int, Measurement]]] = {}
    for place, device in enumerate(alike):
        for m in device.rows.values():
            if _comparable(m, m):
                by_key.setdefault(plain_key(m), []).append((place, m))
    by_quantity: dict[str, list[FleetRow]] = {}
    for rows in by_key.values():
        first, example = rows[0]
        what = quantity(example, alike[first].machine)
        if len(rows) < FEWEST or not what:
            continue
        median = statistics.median(stats.call_s(m) for _, m in rows)
        fleet_rows = [FleetRow(device=place, row=m, median=median) for place, m in rows]
        by_quantity.setdefault(what, []).extend(fleet_rows)
    return by_quantity


def _outside(alike: list[Device], what: str, rows: list[FleetRow], least: float) -> list[Deviation]:
    """The loss of each device in one quantity, against the median of all devices.

    Args:
        alike: the devices of one model.
        what: the quantity in words.
        rows: all rows of that quantity; their `device` is the place in `alike`.
        least: losses up to this share are not claimed.
    """
    by_device = stats.group_by(rows, lambda row: row.device)
    losses = {}
    for device, device_rows in by_device.items():
        losses[device] = statistics.median(row.log_ratio for row in device_rows)
    center = statistics.median(losses.values())
    sigma = _SIGMA * statistics.median(abs(loss - center) for loss in losses.values())
    everyone = [row.row for row in rows]
    deviations = []
    for device, device_rows in by_device.items():
        measurements = [row.row for row in device_rows]
        ratios = [stats.median_of(stats.clock_of(row.row)) / (row.median * math.exp(center)) for row in device_rows]
        deviation = Deviation(
            device=alike[device],
            quantity=what,
            against="fleet",
            rows=len(device_rows),
            below=below(ratios),
            least=_least(alike[device], measurements, least),
            beyond=_beyond(losses[device] - center, sigma),
            cause=causes(everyone, measurements),
        )
        deviations.append(deviation)
    return deviations


def _beyond(loss: float, sigma: float) -> float:
    """A loss in standard deviations; infinite for any loss where the fleet has no spread."""
    if sigma:
        return loss / sigma
    return math.inf if loss > 0 else 0.0


_FLAGS = {
    "power-cap": "at its power limit",
    "thermal": "too hot",
    "other-tenant": "another process computes on it",
    "other-load": "other processes use its CPUs",
    "steal": "its hypervisor takes CPU time",
    "quota": "a CPU quota holds it back",
}


def causes(before: Measurements, now: Measurements) -> str:
    """Observed causes of a loss in words: a lower clock, a slower PCIe link, and flags that half of the rows have now and fewer
    had before; "" without any.

    Args:
        before: rows of the baseline, or of all devices.
        now: rows of the device.
    """
    words = []
    clock = "gpu_clock_hz" if now[0].settings.on_gpu else "cpu_clock_hz"
    old_clock, new_clock = _median_value(before, clock), _median_value(now, clock)
    if old_clock and new_clock and new_clock < (1 - _CLOCK) * old_clock:
        words.append(f"clock held at {units.metric(clock, new_clock)} ({units.metric(clock, old_clock)} otherwise)")
    old_link, new_link = _pcie_link(before), _pcie_link(now)
    if old_link and new_link and new_link < old_link:
        generation, width = new_link
        words.append(f"its PCIe link at generation {generation:.0f} x{width:.0f}")
    for flag, cause in _FLAGS.items():
        if _share_with(flag, now) >= 0.5 > _share_with(flag, before):
            words.append(cause)
    return ", ".join(words)


def _median_value(rows: Measurements, name: str) -> float | None:
    """The median of the value of that name in these rows, such as gpu_clock_hz; None where no row has it."""
    values = [m.values[name] for m in rows if name in m.values]
    return statistics.median(values) if values else None


def _pcie_link(rows: Measurements) -> tuple[float, float] | None:
    """(generation, lanes) of the PCIe link, medians; None where no row tells them."""
    generation, width = _median_value(rows, "pcie_generation"), _median_value(rows, "pcie_width")
    return (generation, width) if generation and width else None


def _share_with(flag: str, rows: Measurements) -> float:
    """The share of the rows that have a flag."""
    return sum(flag in m.flags for m in rows) / len(rows)


def records(judgment: FleetJudgment) -> list[dict[str, object]]:
    """The findings for csv and json, by the columns of HEAD. An infinite number of standard deviations is None."""
    records = []
    for finding in judgment.findings:
        values = msgspec.structs.asdict(finding.device)
        values |= msgspec.structs.asdict(finding) | msgspec.structs.asdict(finding.below)
        values["below"] = finding.below.value
        values["device"] = finding.device.device
        values["flagged"] = finding.flagged
        values["beyond"] = finding.beyond if math.isfinite(finding.beyond) else None
        records.append({head: values[head] for head in HEAD})
    return records
