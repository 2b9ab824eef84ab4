"""The devices of a fleet's run, each against its own baseline and against the others like it, quantity by quantity.

What is compared is rates: a device is `below` by 1 - baseline seconds / its seconds, over the rows of a quantity that both have.
"""

import contextlib
import math
import pathlib
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from analysis import estimate, roofs, spread
from analysis.estimate import Estimate
from workloads import baselines, results
from workloads.results import Loaded, Machine, Measurement

LEAST = 0.03  # a device that is below by less is as it should be
FEWEST = 8  # devices alike from which on they say what one should do
# Source: B. Iglewicz and D. Hoaglin, How to Detect and Handle Outliers (1993): a modified z-score above 3.5 is an outlier.
BEYOND = 3.5
_SIGMA = 1.4826  # times the median absolute deviation is the standard deviation of what is normal
_CLOCK = 0.03
_LONG_S, _LARGE_BYTES = 1e-4, 1 << 20  # shorter calls and smaller copies are mostly latency: another quantity
_BEYOND_CACHE = 4
LOST = "lost"


class Device(msgspec.Struct, frozen=True):
    """One device of one node: its rows that have a time, by key, and those that have none because they were lost or failed.

    node: the folder's name, "" where rows lie in the run's own folder. model: the product, for which devices are alike.
    """

    node: str
    device: str
    uuid: str
    model: str
    machine: Machine
    rows: dict[str, Measurement]
    broken: tuple[Measurement, ...]

    @property
    def is_gpu(self) -> bool:
        return roofs.is_gpu(self.device)


class Finding(msgspec.Struct, frozen=True):
    """How far a device is below in one quantity, with what it was compared with (`baseline` or `fleet`) and over how many rows.

    least: what is not claimed of it. beyond: how many of the fleet's robust standard deviations it is below (of a baseline 0).
    cause: what was seen that explains it.
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
        """Its whole interval lies beyond what may be claimed, and among others it lies beyond their spread."""
        return self.below.low > self.least and (self.against == "baseline" or self.beyond > BEYOND)


class Judged(msgspec.Struct, frozen=True):
    """Every device of a run, what was found of each, and the devices that nothing could be said of, with why."""

    devices: tuple[Device, ...]
    findings: tuple[Finding, ...]
    unjudged: tuple[tuple[Device, str], ...]

    @property
    def flagged(self) -> tuple[Finding, ...]:
        """The largest first."""
        return tuple(sorted((f for f in self.findings if f.flagged), key=lambda f: -f.below.value))


def devices(run: str | pathlib.Path) -> tuple[Device, ...]:
    """The devices of RUN: those of its own rows, or of each of its folders, which are a fleet's nodes.

    Raises: FileNotFoundError when it has no result file; ValueError when folders hold the same GPU: runs one after another.
    """
    files: dict[pathlib.Path, list[pathlib.Path]] = defaultdict(list)
    for file in results.files_of(run):
        files[file.parent].append(file)
    found: list[Device] = []
    for folder, own in sorted(files.items()):
        found += of_node(results.read(*own), folder.name if len(files) > 1 or _is_node(own) else "")
    for uuid in {d.uuid for d in found if d.uuid}:
        same = [d.node for d in found if d.uuid == uuid]
        if len(same) > 1:
            raise ValueError(f"{' and '.join(same)} hold the same GPU {uuid}: runs of one machine one after another")
    return tuple(found)


def _is_node(files: list[pathlib.Path]) -> bool:
    """Whether a lone folder is a fleet's only node."""
    return any(" --ray " in r.command for file in files for r in results.decode(file.read_bytes().splitlines()[:1])[0])


def of_node(loaded: Loaded, node: str) -> list[Device]:
    """The devices that a node's rows name, the CPU first."""
    if not loaded.runs:
        return []
    here = loaded.runs[-1].machine
    named: dict[str, list[Measurement]] = defaultdict(list)
    for m in loaded.measurements:
        named[m.settings.device].append(m)
    made = []
    for name, rows in sorted(named.items()):
        index = int(name[4:]) if name[4:].isdigit() else None
        gpu = here.gpus[index] if index is not None and index < len(here.gpus) else None
        timed = {m.key: m for m in rows if roofs.quick_seconds(m)}
        broken = tuple(m for m in rows if m.status in ("failed", "wrong"))
        model = gpu.name if gpu else f"{here.cpu}, {here.cores} cores"
        made.append(Device(node, name, gpu.uuid if gpu else "", model, here, timed, broken))
    return made


def quantity(m: Measurement, machine: Machine) -> str:
    """What a row tells of its device, in words; "" for what happens once in a process, which differs from time to time."""
    p, gpu, seconds = m.problem, roofs.is_gpu(m.settings.device), roofs.quick_seconds(m) or 0.0
    if m.settings.process == "fresh" or getattr(p, "once", False):
        return ""
    if p.op in ("matmul", "conv"):
        what = f"{p.math} {'products' if p.op == 'matmul' else 'convolutions'}"
        if m.settings.mode != "resident":
            return f"{what} with copies"
        return what if seconds >= _LONG_S else f"short {what}"
    if p.op == "stream":
        cache = _last_cache(m, machine)
        far = not cache or p.footprint_bytes >= _BEYOND_CACHE * cache
        return f"{('HBM' if gpu else 'memory') if far else 'cache'} {p.operation}"
    if p.op == "transfer":
        return f"{p.host_memory} {p.direction} copies" if p.nbytes >= _LARGE_BYTES else f"short {p.direction} copies"
    return {"peak": f"{getattr(p, 'math', '')} arithmetic", "launch": "launches"}.get(p.op, f"{p.op} steps")


def _last_cache(m: Measurement, machine: Machine) -> int:
    if not roofs.is_gpu(m.settings.device):
        return max(machine.caches_bytes.values(), default=0)
    index = int(m.settings.device.partition(":")[2] or 0)
    return machine.gpus[index].l2_bytes if index < len(machine.gpus) else 0


def plain_key(key: str, device: str) -> str:
    """A row's key whatever GPU of the node it ran on."""
    return key.replace(f'"device":"{device}"', '"device":"gpu"') if device.startswith("gpu") else key


def readable(runs: Iterable[str | pathlib.Path]) -> list[tuple[Device, ...]]:
    """The devices of each of these runs; those that are no fleet's, or empty, have none."""
    found = []
    for run in runs:
        with contextlib.suppress(FileNotFoundError, ValueError):
            found.append(devices(run))
    return found


def stored_baseline(device: Device, known: Iterable[tuple[Device, ...]]) -> Device | None:
    """The same device in the first of these that has it: a GPU by its UUID, a CPU by its node's name and its model."""

    def same(other: Device) -> bool:
        if device.uuid:
            return other.uuid == device.uuid
        return (other.model, other.node, other.device) == (device.model, device.node, device.device)

    return next((other for run in known for other in run if same(other)), None)


def saved() -> list[pathlib.Path]:
    """Every saved baseline, the newest first."""
    return sorted((baselines.folder(name) for name in baselines.names()), key=lambda p: -p.stat().st_mtime)


def judge(found: tuple[Device, ...], known: Iterable[str | pathlib.Path], least: float = LEAST) -> Judged:
    """Each device against itself in the runs `known` that have it, and from FEWEST alike on against each other."""
    findings: list[Finding] = []
    reasons: dict[int, list[str]] = defaultdict(list)
    before = readable(known)
    spreads = {key: spread.stored(key, (m for d in found if d.machine.key == key for m in d.rows.values()))
               for key in {d.machine.key for d in found}}  # fmt: skip
    for i, device in enumerate(found):
        baseline = stored_baseline(device, before)
        own = against_baseline(device, baseline, spreads[device.machine.key], least) if baseline else []
        if not own:
            reasons[i].append("no row in common with its baseline" if baseline else "no baseline")
        findings += own
    alike: dict[str, list[int]] = defaultdict(list)
    for i, device in enumerate(found):
        alike[device.model].append(i)
    for same in alike.values():
        fleet = across([found[i] for i in same], spreads[found[same[0]].machine.key], least)
        findings += fleet
        judged = {id(f.device) for f in fleet}
        for i in same:
            if id(found[i]) not in judged:
                reasons[i].append(f"{len(same)} alike are fewer than {FEWEST}" if len(same) < FEWEST else
                                  f"fewer than {FEWEST} have a row in common with it")  # fmt: skip
    either = {id(f.device) for f in findings}
    unjudged = tuple((d, ", ".join(reasons[i])) for i, d in enumerate(found) if id(d) not in either)
    return Judged(found, tuple(findings), unjudged)


def against_baseline(device: Device, baseline: Device, known: spread.Stored, least: float = LEAST) -> list[Finding]:
    """How far each quantity is below the device's own baseline."""
    before = {plain_key(key, baseline.device): m for key, m in baseline.rows.items()}
    pairs: dict[str, list[tuple[Measurement, Measurement]]] = defaultdict(list)
    for key, m in device.rows.items():
        old = before.get(plain_key(key, device.device))
        if old and (what := quantity(old, baseline.machine)) and _comparable(old, m):
            pairs[what].append((old, m))
    found = []
    for what, rows in pairs.items():
        ratios = [estimate.verdict(roofs.clock_of(old), roofs.clock_of(new)).ratio for old, new in rows]
        cause = causes([old for old, _ in rows], [new for _, new in rows])
        claimed = _least(device, [new for _, new in rows], known, least)
        found.append(Finding(device, what, "baseline", len(rows), below(ratios), claimed, cause=cause))
    return found


def _comparable(old: Measurement, new: Measurement) -> bool:
    """Of the same clock, and of more than one sample, which says nothing of how far off it is."""
    a, b = roofs.clock_of(old), roofs.clock_of(new)
    return bool(a and b) and a.clock == b.clock and min(len(a.seconds), len(b.seconds)) > 1


def below(ratios: list[Estimate]) -> Estimate:
    """The share by which rates are below, from rows' ratios of seconds (new over old): the middle row's. Its interval is no
    narrower than the middle row's own, and no narrower than the rows' differences make it."""
    over_rows = estimate.median([r.value for r in ratios])
    low = min(over_rows.low, statistics.median(r.low for r in ratios))
    high = max(over_rows.high, statistics.median(r.high for r in ratios))
    return Estimate(1 - 1 / over_rows.value, 1 - 1 / low, 1 - 1 / high)


def _least(device: Device, rows: Iterable[Measurement], known: spread.Stored, least: float) -> float:
    """A CPU's processes differ by more than a GPU's clock does: nothing below that is claimed of one."""
    if device.is_gpu:
        return least
    return max(least, statistics.median(known.of(m).limit for m in rows))


def across(alike: list[Device], known: spread.Stored, least: float = LEAST) -> list[Finding]:
    """How far each quantity of each device is below the median of those alike; [] for fewer than FEWEST."""
    if len(alike) < FEWEST:
        return []
    seconds: dict[str, dict[int, Measurement]] = defaultdict(dict)
    for i, device in enumerate(alike):
        for key, m in device.rows.items():
            if _comparable(m, m):
                seconds[plain_key(key, device.device)][i] = m
    groups: dict[str, dict[int, list[tuple[Measurement, float]]]] = defaultdict(lambda: defaultdict(list))
    for rows in seconds.values():
        if len(rows) < FEWEST:
            continue
        first = next(iter(rows))
        what = quantity(rows[first], alike[first].machine)
        middle = statistics.median(roofs.quick_seconds(m) or math.nan for m in rows.values())
        for i, m in rows.items():
            if what:
                groups[what][i].append((m, middle))
    return [f for what, rows in groups.items() for f in _outside(alike, what, rows, known, least)]


def _outside(alike: list[Device], what: str, rows: Mapping[int, list[tuple[Measurement, float]]], known: spread.Stored,
             least: float) -> list[Finding]:  # fmt: skip
    """Each device's place among the others in one quantity; `rows` are its own, each with the median seconds of all devices."""
    at = {i: statistics.median(math.log((roofs.quick_seconds(m) or middle) / middle) for m, middle in own)
          for i, own in rows.items()}  # fmt: skip
    center = statistics.median(at.values())
    sigma = _SIGMA * statistics.median(abs(x - center) for x in at.values())
    everyone = [m for own in rows.values() for m, _ in own]
    found = []
    for i, own in rows.items():
        mine = [m for m, _ in own]
        share = below([_ratio(m, middle * math.exp(center)) for m, middle in own])
        beyond = (at[i] - center) / sigma if sigma else math.inf if at[i] > center else 0.0
        claimed = _least(alike[i], mine, known, least)
        found.append(Finding(alike[i], what, "fleet", len(own), share, claimed, beyond, causes(everyone, mine)))
    return found


def _ratio(m: Measurement, reference: float) -> Estimate:
    return estimate.of(roofs.clock_of(m)).scaled(1 / reference)


_FLAGS = {"power-cap": "at its power limit", "thermal": "too hot", "other-tenant": "another process computes on it",
          "other-load": "other processes use its CPUs", "steal": "its hypervisor takes CPU time",
          "quota": "a CPU quota holds it back"}  # fmt: skip


def causes(before: list[Measurement], now: list[Measurement]) -> str:
    """What was seen of most rows now, and not before, that explains a loss; "" for nothing."""
    told = []
    gpu = roofs.is_gpu(now[0].settings.device)
    clock = "gpu_clock_hz" if gpu else "cpu_clock_hz"
    old, new = _middle(before, clock), _middle(now, clock)
    if old and new and new < (1 - _CLOCK) * old:
        told.append(f"clock held at {new / 1e9:.3g} GHz ({old / 1e9:.3g} otherwise)")
    links = [(_middle(of, "pcie_generation"), _middle(of, "pcie_width")) for of in (before, now)]
    if all(all(link) for link in links) and links[1] < links[0]:
        told.append(f"its PCIe link at generation {links[1][0]:.0f} x{links[1][1]:.0f}")
    for flag, words in _FLAGS.items():
        shares = [sum(flag in m.flags for m in of) / len(of) for of in (before, now)]
        if shares[1] >= 0.5 > shares[0]:
            told.append(words)
    return ", ".join(told)


def _middle(rows: list[Measurement], name: str) -> float | None:
    values = [m.values[name] for m in rows if name in m.values]
    return statistics.median(values) if values else None
