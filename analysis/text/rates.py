"""Sentences on rows and rates: how fast, how near the roof, compute-bound or memory-bound, and what went wrong."""

from collections import Counter

from analysis import labels, numbers
from analysis.crossover.families import best_resident, precision_of
from analysis.roofline.bounds import ABOVE, judge, pick, quick_judge, ridge
from analysis.roofline.roofs import Roofs, describe
from analysis.stats import best_by, call_s, group_by
from analysis.text.sentences import say
from analysis.units import count, join
from workloads.records import Machine, Measurement, Measurements

_NAMED = 3  # of anything in a sentence
_LIMITED = 0.5  # share of a roof from which the roof counts as the limit of a row
_SAID = {
    "rate": "The {side} reaches {rate:flops/s} in {precision} at n = {n:,}, {of}.",
    "bound": "At n = {n:,} a product does {intensity:number} FLOP a byte; this CPU's ridge point is {corner:number}. {verdict}.",
    "failed": "{rows} failed: {named}.",
    "wrong": "{rows} gave a wrong answer: {named}.",
    "above": "{rows} above the roof, which is impossible: {named}.",
}
_BOUND = {
    "compute": "It is compute-bound",
    "neither": "It could be compute-bound, but reaches {share:share} of that arithmetic: neither is the limit",
    "cached": "It would be memory-bound, but its {bytes:size} fit a cache",
}
_ROOFS = {  # by the kinds that are said together
    "memory compute": "Measured roofs of {device}: {of}.",
    "launch": "Empty calls of {device}: {of}.",
    "link": "Large pinned copies of {device}: {of}.",
}
_BETWEEN = {"memory": "from", "compute": "in", "launch": "a", "link": "for"}  # a roof's rate and its name


def machine_words(machine: Machine) -> str:
    gpus = Counter(g.name for g in machine.gpus).items()
    return ", ".join(
        (machine.cpu, count(machine.cores, "core"), *(f"{n} x {gpu}" if n > 1 else gpu for gpu, n in gpus))
    )


def device_name(device: str) -> str:
    """`the CPU`, `the GPU`, `GPU 1`."""
    name = labels.device(device)
    return f"the {name}" if name in ("CPU", "GPU") else name


# ---------------------------------------------------------------- products


def _largest(measurements: Measurements, device: str) -> list[Measurement]:
    """The device's fastest product at its largest n: of float32 where it was measured, else of the first precision."""
    paths = {math: path for (on, math), path in best_resident(measurements).items() if on == device}
    return [path[max(path)] for path in [paths.get("float32"), *paths.values()] if path][:1]


def rate_sentences(measurements: Measurements, roofs: Roofs) -> list[str]:
    """The best rate of each device at its largest n, with its part of the roof."""
    told = []
    for m in (m for device in ("cpu", "gpu:0") for m in _largest(measurements, device)):
        judged, rate = judge(m, roofs), m.problem.flops / call_s(m)
        of = judged.note
        if judged.fraction and judged.roof:
            threads = count(judged.roof.threads, "thread") if judged.roof.threads else ""
            roof = ", ".join(filter(None, (judged.roof.label, threads, judged.roof.note)))
            of = f"{numbers.share(judged.fraction.value)} of its measured roof ({roof})"
            of += ", as the CPU was slower while that was measured" * (judged.fraction.value > 1 and not m.on_gpu)
        told.append(say(_SAID["rate"], side=m.side, rate=rate, precision=precision_of(m.problem), n=m.problem.n, of=of))
    return told


def bound_sentences(measurements: Measurements, roofs: Roofs) -> list[str]:
    """Whether the largest CPU matmul is compute-bound or memory-bound: arithmetic intensity against the ridge point."""
    told = []
    for m in _largest(measurements, "cpu"):
        p, memory = m.problem, pick(roofs, "cpu", "memory", "", m.threads)
        compute = pick(roofs, "cpu", "compute", p.math, m.threads)
        if compute and memory:
            intensity, corner = p.flops / p.bytes_moved, ridge(compute, memory)
            share = p.flops / call_s(m) / compute.rate.value
            which = "cached" if intensity < corner else "compute" if share >= _LIMITED else "neither"
            verdict = say(_BOUND[which], share=share, bytes=p.footprint_bytes)
            told.append(say(_SAID["bound"], n=p.n, verdict=verdict, intensity=intensity, corner=corner))
    return told


# ---------------------------------------------------------------- roofs


def roof_sentences(roofs: Roofs) -> list[str]:
    """The measured roofs, a sentence a device: memory and the arithmetic of the first precisions, launches, the link."""
    told = []
    order = sorted(roofs, key=lambda r: (r.device, r.kind == "compute", r.name != "float32", -r.rate.value))
    for kinds, template in _ROOFS.items():
        there = (r for r in order if r.measured and r.kind in kinds.split())
        for device, own in group_by(there, lambda r: r.device).items():
            best = [*best_by(own, lambda r: r.name, lambda r: -r.rate.value).values()][:_NAMED]
            of = join(f"{r.speed} {_BETWEEN[r.kind]} {r.name}" for r in best)
            told.append(say(template, device=device_name(device), of=of))
    return told


# ---------------------------------------------------------------- what went wrong


def trouble_sentence(rows: Measurements, roofs: Roofs, machine: Machine | None) -> str:
    """Failed rows, wrong answers and impossible rates, a sentence each; "" when there are none.

    A virtual CPU is lent more or less of its host from minute to minute, so its rows may pass a roof measured in a
    leaner one: that is no error, and their flag says it.
    """
    said = []
    kinds = {status: [m for m in rows if m.status == status] for status in ("failed", "wrong")}
    sure = (m for m in rows if m.on_gpu or not (machine and machine.virtual))
    kinds["above"] = [m for m in sure if ABOVE in m.flags or quick_judge(m, roofs).flag]
    for kind, own in kinds.items():
        for first in own[:1]:
            why = f" ({first.reason})" * bool(first.reason and kind != "above")
            more = f" and {len(own) - 1} more" * (len(own) > 1)
            said.append(say(_SAID[kind], rows=count(len(own), "row"), named=describe(first) + why + more))
    return " ".join(said)
