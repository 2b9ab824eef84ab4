"""What several GPUs of a host do with each other, in words: links, sums over all of them, contention when all work at once."""

from collections.abc import Iterable

import msgspec

from analysis.crossover import crossover
from analysis.stats import Estimate, group_by, of, verdict
from analysis.text import crossings, sentences
from analysis.units import bytes_rate, join, size
from kernels.problems import AllReduce, AtOnce, Matmul, PeerCopy
from workloads.records import Measurement

NCCL, ONE_SHOT = "collective/cupy/nccl", "collective/cupy/one_shot"
GRAPH = "_graph"
_LAUNCHED = {GRAPH: "recorded in CUDA graphs", "": "each launched by the host"}
_SMALL = 256 << 10  # sums of at most this are what the one-shot kernel is for
_SAME = 0.02
LARGE = 1 << 20  # of smaller copies no bandwidth is told
ALIKE = 0.9  # of the fastest pair's bandwidth: pairs that all reach it are told together
_WORK = {"triad": "triads in device memory", "h2d": "copies from the host", "d2h": "copies to the host"}
_FORMS = (crossover.Form("resident"), crossover.Form("roundtrip-pinned"))
_SAID = {
    "refused": "No direct copies: {why}. Copies go through the host.",
    "pairs": "Copies of {size} from GPU to GPU reach {of}.",
    "slowest": "The slowest pair, {pair}, has {share} of the fastest pair's bandwidth.",
    "both": "Both ways at once: {rate}, {factor} one way.",
    "small": "A copy of {size} takes {of}.",
    "staged": "Through page-locked host memory: {rate}{slower}.",
    "sum": "All-reduce of {dtype} over {gpus} GPUs (NCCL): {rate} of bus bandwidth at {size}. "
    "From {half} on it has half of that.",
    "least": "An all-reduce of {size} takes {time}, queued.",
    "ours": "Our one-shot kernel, {how}, {dtype}: {of}.",
    "alone": "All {count} GPUs at once, {work}: no contention, at most {factor} the time alone.",
    "contention": "All {count} GPUs at once, {work}: {factor} slower than alone on {gpu} {span}.{rates}",
    "rates": " That is {rate} against {alone}.",
    "moves": "{what}: from n = {alone} alone, from n = {together} while all GPUs work. It {moves}.",
}


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
    """What is asked first, one of each: the copies, the sum, ours beside it, and contention."""
    rows = list(measurements)
    together = _at_once(rows)
    contended = [line for slower, line in together if slower] or [line for _, line in together[:1]]
    return [*copy_lines(rows)[:1], *sum_lines(rows)[:3:2], *contended]


def copy_lines(rows: "list[Measurement]") -> list[str]:
    """Bandwidths pair by pair, both ways at once, the smallest copy, and what going through the host costs."""
    copies = [m for m in rows if isinstance(m.problem, PeerCopy)]
    direct, staged = ([m for m in copies if m.ok and m.kernel.endswith(f"/{way}")] for way in ("direct", "staged"))
    refused = (m.reason for m in copies if m.variant == "direct" and m.status == "skipped")
    told = [_SAID["refused"].format(why=reason) for reason in dict.fromkeys(refused)]
    one_way = [m for m in direct if m.problem.ways == 1]
    large = _largest(one_way)
    told += _pairs(large) if large else []
    for both in _largest([m for m in direct if m.problem.ways == 2])[:1]:
        one = next((m for m in large if _pair(m) == _pair(both)), both)
        factor = sentences.factor(bandwidth(both).value / bandwidth(one).value)
        told.append(_SAID["both"].format(rate=bytes_rate(bandwidth(both).value), factor=factor))
    if small := [m for m in one_way if m.problem.nbytes == min(m.problem.nbytes for m in one_way) < LARGE]:
        waited = sorted((of(m.on("host-latency")) for m in small), key=lambda e: e.value)
        took = " to ".join(dict.fromkeys(sentences.time(e) for e in (waited[0], waited[-1])))
        told.append(_SAID["small"].format(size=size(small[0].problem.nbytes), of=took))
    for through in _largest(staged)[:1]:
        straight = next((m for m in large if m.problem == through.problem), None)
        times = straight and sentences.factor(bandwidth(straight).value / bandwidth(through).value)
        slower = f", {times} slower" if times else ""
        told.append(_SAID["staged"].format(rate=bytes_rate(bandwidth(through).value), slower=slower))
    return told


def _pairs(large: "list[Measurement]") -> list[str]:
    """The bandwidths of the pairs; of several that differ, the slowest."""
    slow, fast = (pick(large, key=lambda m: bandwidth(m).value) for pick in (min, max))
    ends = " to ".join(dict.fromkeys(bytes_rate(bandwidth(m).value) for m in (slow, fast)))
    many = len(large) > 1
    each = f"{ends} between any two of {len({g for m in large for g in _pair(m)})}" if many else ends
    told = [_SAID["pairs"].format(size=size(large[0].problem.nbytes), of=each)]
    if bandwidth(slow).high < ALIKE * bandwidth(fast).low:
        share = sentences.share(bandwidth(slow).value / bandwidth(fast).value)
        told.append(_SAID["slowest"].format(pair="gpu-{} to gpu-{}".format(*_pair(slow)), share=share))
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
        like = (m for m in done if m.kernel == NCCL and m.problem.dtype == dtype and m.problem.form == "out-of-place")
        if own := sorted(like, key=lambda m: m.problem.nbytes):
            best, least = max(own, key=lambda m: bandwidth(m).value), own[0]
            half = next(m for m in own if bandwidth(m).value >= bandwidth(best).value / 2)
            words = {"gpus": len(least.problem.gpus.split(",")), "rate": bytes_rate(bandwidth(best).value)}
            sizes = {"size": size(best.problem.nbytes), "half": size(half.problem.nbytes)}
            told.append(_SAID["sum"].format(dtype=dtype, **words, **sizes))
            told.append(_SAID["least"].format(size=size(least.problem.nbytes), time=sentences.time(queued(least))))
        for suffix, how in _LAUNCHED.items():
            if ratios := speed_ups(done, dtype, suffix):
                ends = dict([min(ratios.items()), max(ratios.items())])
                each = join(f"{sentences.speed(r, 'NCCL')} at {size(n)}" for n, r in ends.items())
                told.append(_SAID["ours"].format(how=how, dtype=dtype, of=each))
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
    """Each line with whether a GPU is slowed in it."""
    told = []
    worth = (
        (alone, m, ratio)
        for alone, m, ratio in slowdowns(rows)
        if m.problem.operation != "matmul" or (m.mode == "resident" and m.problem.size >= 2048)
    )
    for of_all in group_by(worth, lambda one: _work(one[1])[:4]).values():
        alone, m, worst = max(of_all, key=lambda each: each[2].value)
        p, slower = m.problem, worst.low > 1 + _SAME
        is_product = p.operation == "matmul"
        work = f"{p.math} products of n = {p.size:,}" if is_product else f"{_WORK[p.operation]} of {size(p.size)}"
        each = {"rate": bytes_rate(bandwidth(m).value), "alone": bytes_rate(bandwidth(alone).value)}
        words = {"span": sentences.interval(worst), "rates": "" if is_product else _SAID["rates"].format(**each)}
        factor = sentences.factor(worst if slower else worst.high, 3)
        said = _SAID["contention" if slower else "alone"]
        gpu = m.device.replace(":", "-")
        told.append((slower, said.format(count=p.together, work=work, factor=factor, gpu=gpu, **words)))
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
            found = crossover.crossovers([*cpus, *own], _FORMS)
            sides.append({a.form.mode: a for a in found if a.precision == "float32"})
        for mode in (form.mode for form in _FORMS):
            if all(mode in side for side in sides):
                told.append(_moved(device, *(side[mode] for side in sides)))
    return told


def _plain(m: "Measurement") -> "Measurement":
    """A row of a product as if no other GPU mattered."""
    return msgspec.structs.replace(m, problem=m.problem.inner)


def _moved(device: str, alone: crossover.Answer, together: crossover.Answer) -> str:
    what = f"{device.replace(':', '-')}, float32 products, {crossings.form_name(alone.form)}"
    if alone.kind == together.kind == "gpu-from":
        a, b = alone.crossings[0].at, together.crossings[0].at
        far = max(a.value, b.value) > crossover.FINE * min(a.value, b.value)
        moves = "moves" if far and (a.high < b.low or b.high < a.low) else "stays where it is"
        ends = {"alone": sentences.since(alone.crossings[0]), "together": sentences.since(together.crossings[0])}
        return _SAID["moves"].format(what=what, moves=moves, **ends)
    first, then = sentences.crossing(alone), sentences.crossing(together)
    if alone.kind == together.kind:
        return f"{what}, alone and while all GPUs work: {first}."
    return f"{what}: {first}. While all GPUs work {then}."
