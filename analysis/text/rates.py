"""Sentences on rows and rates: how fast, how near the roof, compute-bound or memory-bound, and what went wrong."""

from collections import Counter

from analysis import labels, numbers
from analysis.crossover.families import best_resident, precision_of
from analysis.roofline.bounds import ABOVE, is_above_roof, judge, measured_roof, ridge
from analysis.roofline.roofs import Roofs, describe
from analysis.stats import best_by, call_s, group_by
from analysis.text.sentences import say
from analysis.units import count, join
from workloads.records import Machine, Measurement, Measurements

_NAMED = 3  # of anything in a sentence
_LIMITED = 0.5  # share of a roof from which the roof counts as the limit of a row
_SENTENCES = {
    "rate": "The {side} reaches {rate:flops/s} in {precision} at n = {n:,}, {share}.",
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
_ROOFS = {  # by the kinds that share a sentence
    "memory compute": "Measured roofs of {device}: {rates}.",
    "launch": "Empty calls of {device}: {rates}.",
    "link": "Large pinned copies of {device}: {rates}.",
}
_BETWEEN = {"memory": "from", "compute": "in", "launch": "a", "link": "for"}  # a roof's rate and its name


def machine_words(machine: Machine) -> str:
    """The CPU, its cores, and the GPUs: `AMD EPYC, 64 cores, 2 x NVIDIA H200`."""
    words = [machine.cpu, count(machine.cores, "core")]
    for gpu, number in Counter(gpu.name for gpu in machine.gpus).items():
        words.append(f"{number} x {gpu}" if number > 1 else gpu)
    return ", ".join(words)


def device_name(device: str) -> str:
    """`the CPU`, `the GPU`, `GPU 1`."""
    name = labels.device(device)
    return f"the {name}" if name in ("CPU", "GPU") else name


# ---------------------------------------------------------------- products


def _largest(measurements: Measurements, device: str) -> list[Measurement]:
    """The fastest square product of a device at its largest n, in float32 where that was measured, else in the first precision;
    [] if there is none.
    """
    by_precision = {}
    for (row_device, precision), by_size in best_resident(measurements).items():
        if row_device == device and by_size:
            by_precision[precision] = by_size[max(by_size)]
    if "float32" in by_precision:
        return [by_precision["float32"]]
    return list(by_precision.values())[:1]


def largest_products(measurements: Measurements) -> list[Measurement]:
    """The fastest square product of the CPU and of the GPU, each at its largest n."""
    return [*_largest(measurements, "cpu"), *_largest(measurements, "gpu:0")]


def rate_sentences(measurements: Measurements, roofs: Roofs) -> list[str]:
    """The best rate of each device at its largest n, with its part of the roof."""
    return [rate_sentence(m, roofs) for m in largest_products(measurements)]


def rate_sentence(m: Measurement, roofs: Roofs) -> str:
    """A sentence on the rate of a product, and the share of its measured roof that it reaches."""
    judged = judge(m, roofs)
    share = judged.note
    if judged.fraction and judged.roof:
        threads = count(judged.roof.threads, "thread") if judged.roof.threads else ""
        roof = ", ".join(filter(None, (judged.roof.label, threads, judged.roof.note)))
        share = f"{numbers.share(judged.fraction.value)} of its measured roof ({roof})"
        if judged.fraction.value > 1 and not m.on_gpu:
            share += ", as the CPU was slower while that was measured"
    return say(
        _SENTENCES["rate"],
        side=m.side,
        rate=m.problem.flops / call_s(m),
        precision=precision_of(m.problem),
        n=m.problem.n,
        share=share,
    )


def bound_sentences(measurements: Measurements, roofs: Roofs) -> list[str]:
    """A sentence on what limits the CPU's largest product, by its FLOP per byte against the ridge point of the roofs: arithmetic,
    memory, or neither; [] without these roofs.
    """
    sentences = []
    for m in _largest(measurements, "cpu"):
        problem = m.problem
        memory = measured_roof(roofs, "cpu", "memory", threads=m.threads)
        compute = measured_roof(roofs, "cpu", "compute", problem.math, threads=m.threads)
        if not compute or not memory:
            continue
        intensity = problem.flops / problem.bytes_moved
        corner = ridge(compute, memory)
        share = problem.flops / call_s(m) / compute.rate.value
        if intensity < corner:
            bound = "cached"
        elif share >= _LIMITED:
            bound = "compute"
        else:
            bound = "neither"
        verdict = say(_BOUND[bound], share=share, bytes=problem.footprint_bytes)
        sentence = say(_SENTENCES["bound"], n=problem.n, verdict=verdict, intensity=intensity, corner=corner)
        sentences.append(sentence)
    return sentences


# ---------------------------------------------------------------- roofs


def roof_sentences(roofs: Roofs) -> list[str]:
    """The measured roofs, a sentence a kind and device: memory and arithmetic, empty calls, copies over the link. Each names the
    _NAMED fastest at most, float32 before other precisions.
    """
    sentences = []
    order = sorted(roofs, key=lambda r: (r.device, r.kind == "compute", r.name != "float32", -r.rate.value))
    for kinds, template in _ROOFS.items():
        measured = [roof for roof in order if roof.measured and roof.kind in kinds.split()]
        for device, device_roofs in group_by(measured, lambda roof: roof.device).items():
            fastest = best_by(device_roofs, lambda roof: roof.name, lambda roof: -roof.rate.value)
            named = list(fastest.values())[:_NAMED]
            rates = join(f"{roof.speed} {_BETWEEN[roof.kind]} {roof.name}" for roof in named)
            sentences.append(say(template, device=device_name(device), rates=rates))
    return sentences


# ---------------------------------------------------------------- what went wrong


def trouble_sentence(rows: Measurements, roofs: Roofs, machine: Machine | None) -> str:
    """Failed rows, wrong answers and impossible rates, a sentence each; "" when there are none.

    A virtual CPU gets more or less of its host's time from minute to minute, so a row may pass a roof that was measured when it
    got less. That is no error; the row's flag says it.
    """
    is_virtual = machine is not None and machine.virtual
    by_kind: dict[str, list[Measurement]] = {"failed": [], "wrong": [], "above": []}
    for m in rows:
        if m.status in by_kind:
            by_kind[m.status].append(m)
        is_flagged = ABOVE in m.flags and (m.on_gpu or not is_virtual)
        if is_flagged or is_above_roof(m, roofs, machine):
            by_kind["above"].append(m)
    sentences = []
    for kind, troubled in by_kind.items():
        if not troubled:
            continue
        first = troubled[0]
        named = describe(first)
        if first.reason and kind != "above":
            named += f" ({first.reason})"
        if len(troubled) > 1:
            named += f" and {len(troubled) - 1} more"
        sentences.append(say(_SENTENCES[kind], rows=count(len(troubled), "row"), named=named))
    return " ".join(sentences)
