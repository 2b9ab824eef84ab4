"""What several GPUs of a host do with each other, in words: their links, sums over all of them, and whether they hold each
other up when all do the same at once."""

from collections.abc import Iterable

import msgspec

from analysis.crossover import crossover
from analysis.stats import Estimate, group_by, of, verdict
from analysis.text import crossings
from analysis.units import around, bytes_rate, count, digits, join, percent, seconds, size
from kernels.problems import AllReduce, AtOnce, Matmul, PeerCopy
from workloads.records import Measurement

NCCL, ONE_SHOT = "collective/cupy/nccl", "collective/cupy/one_shot"
GRAPH = "_graph"
_LAUNCHED = {GRAPH: "recorded in CUDA graphs, so without the host's part", "": "each call launched by the host"}
_SMALL = 256 << 10  # sums of at most this are what the one-shot kernel is for
_SAME = 0.02
LARGE = 1 << 20  # of smaller copies no bandwidth is told
ALIKE = 0.9  # of the fastest pair's bandwidth: pairs that all reach it are told together
_WORK = {
    "matmul": "products",
    "triad": "triads in device memory",
    "h2d": "copies from the host",
    "d2h": "copies to the host",
}
_FORMS = (crossover.Form("resident"), crossover.Form("roundtrip-pinned"))


def queued(m: "Measurement") -> Estimate:
    """Seconds of one of many calls that nobody waits for in between: what nccl-tests times too."""
    return of(m.on("host-throughput") or m.samples[0])


def bandwidth(m: "Measurement") -> Estimate:
    """Bytes a second of a copy or triad, and of a sum the bus bandwidth, 2 (n - 1) / n of its bytes over its seconds."""
    return m.problem.bytes_moved / queued(m)


def rate(m: "Measurement") -> Estimate | None:
    """The bandwidth; None where bytes are not what is counted."""
    return bandwidth(m) if m.problem.rated == "bytes_moved" else None


def words(p: PeerCopy | AllReduce | AtOnce) -> str:
    """What such a row did, in a few words: `gpu-0 -> gpu-1 256 MiB`."""
    if isinstance(p, PeerCopy):
        return f"gpu-{p.source} {'<->' if p.ways == 2 else '->'} gpu-{p.target} {size(p.nbytes)}"
    if isinstance(p, AllReduce):
        return f"{p.form} {p.dtype} {size(p.nbytes)} over {p.gpus}"
    what = f"{p.math} product of side {p.size}" if p.operation == "matmul" else f"{p.operation} of {size(p.size)}"
    return f"{what} while {p.gpus} work" if p.together > 1 else f"{what} alone"


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """Everything to be said."""
    rows = list(measurements)
    return copy_lines(rows) + sum_lines(rows) + at_once_lines(rows) + crossover_lines(rows)


def story(measurements: "Iterable[Measurement]") -> list[str]:
    """What is asked first, one of each: the copies, the sum, ours beside it, and what GPUs hold each other up in."""
    rows = list(measurements)
    together = _at_once(rows)
    held_up = [line for slower, line in together if slower] or [line for _, line in together[:1]]
    return [*copy_lines(rows)[:1], *sum_lines(rows)[:2], *held_up]


def copy_lines(rows: "list[Measurement]") -> list[str]:
    """Bandwidths pair by pair, both ways at once, the smallest copy, and what going through the host costs."""
    done = [m for m in rows if isinstance(m.problem, PeerCopy) and m.ok]
    refused = [m for m in rows if isinstance(m.problem, PeerCopy) and m.variant == "direct" and m.status == "skipped"]
    told = [
        f"No direct copies: {reason}; what is copied goes through the host."
        for reason in dict.fromkeys(m.reason for m in refused)
    ]
    direct, staged = ([m for m in done if m.kernel.endswith(f"/{way}")] for way in ("direct", "staged"))
    one_way = [m for m in direct if m.problem.ways == 1]
    large = _largest(one_way)
    if large:
        slow, fast = (pick(large, key=lambda m: bandwidth(m).value) for pick in (min, max))
        apart = bandwidth(slow).high < ALIKE * bandwidth(fast).low
        if len(large) > 2 and not apart:
            ends = " to ".join(dict.fromkeys(bytes_rate(bandwidth(m).value) for m in (slow, fast)))
            each = f"{ends} between any two of {len({g for m in large for g in _pair(m)})}"
        else:
            each = join(
                f"gpu-{m.problem.source} to gpu-{m.problem.target} {bytes_rate(bandwidth(m).value)}" for m in large[:8]
            )
            each += f", and {count(len(large) - 8, 'more pair')}" if len(large) > 8 else ""
        told.append(f"Copies of {size(large[0].problem.nbytes)} straight from GPU to GPU: {each}.")
        if apart:
            told.append(
                f"The slowest pair, gpu-{slow.problem.source} to gpu-{slow.problem.target}, has "
                f"{percent(bandwidth(slow).value / bandwidth(fast).value)} of the fastest's."
            )
    for both in _largest([m for m in direct if m.problem.ways == 2])[:1]:
        one = next((m for m in large if _pair(m) == _pair(both)), None)
        times = f", {digits(bandwidth(both).value / bandwidth(one).value)} times one way" if one else ""
        told.append(f"Both ways at once: {bytes_rate(bandwidth(both).value)}{times}.")
    small = [m for m in one_way if m.problem.nbytes == min(m.problem.nbytes for m in one_way) < LARGE]
    if small:
        waited = sorted(of(m.on("host-latency")).value for m in small)
        took = " to ".join(dict.fromkeys(seconds(s) for s in (waited[0], waited[-1])))
        pairs = f", over {len(small)} pairs" if len(small) > 1 else ""
        told.append(f"A copy of {size(small[0].problem.nbytes)} that is waited for takes {took}{pairs}.")
    for through in _largest(staged)[:1]:
        straight = next((m for m in large if m.problem == through.problem), None)
        times = f", {digits(bandwidth(straight).value / bandwidth(through).value)} times slower" if straight else ""
        told.append(f"Through page-locked host memory: {bytes_rate(bandwidth(through).value)}{times}.")
    return told


def _pair(m: "Measurement") -> tuple[int, int]:
    return m.problem.source, m.problem.target


def _largest(rows: "list[Measurement]") -> "list[Measurement]":
    most = max((m.problem.nbytes for m in rows), default=0)
    return [m for m in rows if m.problem.nbytes == most >= LARGE]


def sum_lines(rows: "list[Measurement]") -> list[str]:
    """NCCL's bus bandwidth and what its smallest sum takes, type by type; then how our one-shot kernel compares."""
    done = [m for m in rows if isinstance(m.problem, AllReduce) and m.ok]
    told = []
    for dtype in dict.fromkeys(m.problem.dtype for m in done):
        own = sorted(
            (m for m in done if m.kernel == NCCL and m.problem.dtype == dtype and m.problem.form == "out-of-place"),
            key=lambda m: m.problem.nbytes,
        )
        if own:
            best, least = max(own, key=lambda m: bandwidth(m).value), own[0]
            half = next(m for m in own if bandwidth(m).value >= bandwidth(best).value / 2)
            told.append(
                f"All-reduce of {dtype} over GPUs {join(least.problem.gpus.split(','))} through NCCL: "
                f"{bytes_rate(bandwidth(best).value)} of bus bandwidth at {size(best.problem.nbytes)}, half of that "
                f"from {size(half.problem.nbytes)} on; {size(least.problem.nbytes)} take "
                f"{seconds(queued(least).value)} queued."
            )
        for suffix, how in _LAUNCHED.items():
            if ratios := speed_ups(done, dtype, suffix):
                words = join(f"{around(r)} at {size(n)}" for n, r in ratios.items())
                told.append(f"Our one-shot kernel is so many times as fast as NCCL, {dtype}, {how}: {words}.")
    return told


def speed_ups(done: "Iterable[Measurement]", dtype: str, suffix: str = "") -> dict[int, Estimate]:
    """bytes -> how many times as many sums the one-shot kernel makes as NCCL, both launched alike and queued, out of place, up to
    256 KiB."""
    found: dict[str, dict[int, Measurement]] = {}
    for m in done:
        if m.problem.dtype == dtype and m.problem.form == "out-of-place" and m.problem.nbytes <= _SMALL:
            found.setdefault(m.kernel, {})[m.problem.nbytes] = m
    ours, theirs = found.get(ONE_SHOT + suffix, {}), found.get(NCCL + suffix, {})
    return {n: queued(theirs[n]) / queued(ours[n]) for n in sorted(ours.keys() & theirs.keys())}


def slowdowns(rows: "Iterable[Measurement]") -> "list[tuple[Measurement, Measurement, Estimate]]":
    """(alone, while all work, how many times as long a call takes then) of each GPU's work, by rounds, which took turns."""
    done = [m for m in rows if isinstance(m.problem, AtOnce) and m.ok]
    alone = {_work(m): m for m in done if m.problem.together == 1}
    return [
        (alone[_work(m)], m, verdict(alone[_work(m)].on("host-latency"), m.on("host-latency"), paired=True).ratio)
        for m in done
        if m.problem.together > 1 and _work(m) in alone
    ]


def _work(m: "Measurement") -> tuple:
    p, s = m.problem, m.settings
    return (m.kernel, p.operation, p.size, p.math, s.device, s.mode)


def at_once_lines(rows: "Iterable[Measurement]") -> list[str]:
    """For each work on the GPUs themselves, and on their links to the host, how much longer it takes when all are at it."""
    return [line for _, line in _at_once(rows)]


def _at_once(rows: "Iterable[Measurement]") -> list[tuple[bool, str]]:
    """Each line with whether a GPU is held up in it."""
    told = []
    worth = (
        (alone, m, ratio)
        for alone, m, ratio in slowdowns(rows)
        if m.problem.operation != "matmul" or (m.mode == "resident" and m.problem.size >= 2048)
    )
    for of_all in group_by(worth, lambda one: _work(one[1])[:4]).values():
        alone, m, worst = max(of_all, key=lambda each: each[2].value)
        p, gpu = m.problem, m.device.replace(":", "-")
        what = (
            f"{p.math} products of side {p.size}"
            if p.operation == "matmul"
            else f"{_WORK[p.operation]} of {size(p.size)}"
        )
        rates = (
            ""
            if p.operation == "matmul"
            else f": {bytes_rate(bandwidth(m).value)} against {bytes_rate(bandwidth(alone).value)}"
        )
        slower = worst.low > 1 + _SAME
        if not slower:
            how = f"as fast as alone (at most {around(worst)} times as long, {gpu})"
        else:
            how = f"a call takes {around(worst)} times as long as alone on {gpu}, the one most held up{rates}"
        told.append((slower, f"All {p.together} GPUs at once with {what}: {how}."))
    return told


def crossover_lines(rows: "Iterable[Measurement]") -> list[str]:
    """From which size each GPU wins over the CPU alone, and while all GPUs work: whether the crossover moves."""
    rows = list(rows)
    cpus = [m for m in rows if isinstance(m.problem, Matmul) and not m.on_gpu]
    work = [m for m in rows if isinstance(m.problem, AtOnce) and m.problem.operation == "matmul" and m.ok]
    told = []
    for device in sorted({m.device for m in work}) if cpus else ():
        sides = []
        for together in (False, True):
            own = [_plain(m) for m in work if m.device == device and (m.problem.together > 1) == together]
            sides.append(
                {a.form.mode: a for a in crossover.crossovers([*cpus, *own], _FORMS) if a.precision == "float32"}
            )
        for mode in (form.mode for form in _FORMS):
            if all(mode in side for side in sides):
                told.append(_moved(device, *(side[mode] for side in sides)))
    return told


def _plain(m: "Measurement") -> "Measurement":
    """A row of a product as if no other GPU mattered."""
    return msgspec.structs.replace(m, problem=m.problem.inner)


def _moved(device: str, alone: crossover.Answer, together: crossover.Answer) -> str:
    what = f"{device.replace(':', '-')} against the CPU in float32 products ({crossings.form_name(alone.form)})"
    first, then = crossings.verdict_words(alone), crossings.verdict_words(together)
    if alone.kind == together.kind == "gpu-from":
        a, b = alone.crossings[0].at, together.crossings[0].at
        far = max(a.value, b.value) > crossover.FINE * min(a.value, b.value)
        apart = "it moves" if far and (a.high < b.low or b.high < a.low) else "it stays where it is"
        return f"{what}: wins from n = {around(a)} alone and from n = {around(b)} while all GPUs work: {apart}."
    if alone.kind == together.kind:
        return f"{what}, alone and while all GPUs work: {first}."
    return f"{what} alone: {first}; while all GPUs work: {then}."
