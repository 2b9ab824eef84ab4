"""What rows of inference say: samples a second on both sides, what batching, copies and joules come to, and the crossovers."""

from collections.abc import Iterable

from analysis.crossover.crossover import Answer
from analysis.stats import Estimate, of
from analysis.text import crossings, sentences
from analysis.training.inference import QUEUED, RESIDENT, ROUNDTRIP, SERVE, WAYS, Case, Way, cases, crossovers, side
from analysis.units import join
from workloads.records import Machine, Measurement

_ONEDNN = {None: "", "1": " with oneDNN", "0": " without oneDNN"}
_SIDES = {False: "CPU", True: "GPU"}
_SAID = {
    "both": "{case}, batch {batch}, {way}: {gpu} samples/s on the GPU, {cpu} on the CPU, {who}.",
    "one": "{case}, batch {batch}, {way}: {rate} samples/s on the {side}.",
    "queued": "{case}: queued calls took longer than calls waited for, {of}. Something disturbed them.",
    "batching": "{case}, array to array: from batch {first} to {last} the samples/s become {of}.",
    "joules": "{case}, {way}: a sample takes {of}.",
    "served": "{case}, single requests on the {side}: {of} samples/s{batched}.",
}


def lines(measurements: "Iterable[Measurement]", machine: "Machine | None" = None) -> list[str]:
    """What the rows say: the crossovers in batch, samples a second at the smallest and the largest batch that both sides answered
    (one side, where no batch has both), what batching brings, joules, requests in flight."""
    measurements = list(measurements)
    found, each = crossovers(measurements), cases(measurements)
    said = [crossing_sentence(*one) for one in found]
    for case, rows in each.items():
        batches = sorted({m.problem.batch for m in rows if m.kernel != SERVE})
        both = [b for b in batches if any(side(rows, w, False, b) and side(rows, w, True, b) for w in WAYS)] or batches
        said += [line for batch in dict.fromkeys(both[:1] + both[-1:]) for line in rate_sentences(case, rows, batch)]
        said += queued_sentences(case, rows, batches)
        said += batching_sentences(case, rows, batches) + energy_sentences(case, rows) + serving_sentences(case, rows)
    if each and not found:  # not a teacher's answers beside a student
        said.append(crossings.no_gpu_sentence([m for rows in each.values() for m in rows], machine))
    return said


def rate_sentences(case: Case, rows: "Iterable[Measurement]", batch: int) -> list[str]:
    """Samples a second at a batch on both sides, a sentence a way."""
    said = []
    for way in WAYS:
        cpu, gpu = (side(rows, way, on_gpu, batch) for on_gpu in (False, True))
        words = {"case": case.name, "batch": batch, "way": way.words}
        if gpu and cpu:
            who = sentences.faster_by(cpu[1], gpu[1])
            said.append(_SAID["both"].format(gpu=_rate(gpu, batch), cpu=_rate(cpu, batch), who=who, **words))
        elif (one := gpu or cpu) and (gpu or way != QUEUED):  # the CPU queues nothing: it is RESIDENT's time again
            said.append(_SAID["one"].format(rate=_rate(one, batch), side=_SIDES[bool(gpu)], **words))
    return said


def queued_sentences(case: Case, rows: "Iterable[Measurement]", batches: list[int]) -> list[str]:
    """The batches at which the GPU's queued calls took longer than those waited for one by one, beyond both intervals."""
    slower = []
    for batch in batches:
        queued, waited = (side(rows, way, True, batch) for way in (QUEUED, RESIDENT))
        if queued and waited and queued[1].low > waited[1].high:
            times = " against ".join(sentences.time(e) for e in (queued[1], waited[1]))
            slower.append(f"{times} at batch {batch}")
    more = f" and at {len(slower) - 1} more" if len(slower) > 1 else ""
    return [_SAID["queued"].format(case=case.name, of=slower[0] + more)] if slower else []


def _rate(side: "tuple[Measurement, Estimate]", batch: int) -> str:
    return sentences.number(batch / side[1])


def batching_sentences(case: Case, rows: "Iterable[Measurement]", batches: list[int]) -> list[str]:
    """How the samples a second grow from the smallest batch to the largest, for each device and, on the CPU, each setting of
    oneDNN."""
    told = []
    for gpu, onednn in ((True, None), (False, None), (False, "1"), (False, "0")) if len(batches) > 1 else ():
        mine = [m for m in rows if gpu or m.settings.variables.get("TF_ENABLE_ONEDNN_OPTS") == onednn]
        fewest, most = (side(mine, ROUNDTRIP, gpu, batch) for batch in (batches[0], batches[-1]))
        if fewest and most:
            gain = fewest[1] / most[1] * (batches[-1] / batches[0])
            many = "no more for certain" if gain.low <= 1 <= gain.high else f"{sentences.factor(gain)}"
            told.append(f"{many} on the {_SIDES[gpu]}{_ONEDNN[onednn]}")
    words = {"case": case.name, "first": batches[0], "last": batches[-1]} if told else {}
    return [_SAID["batching"].format(of=join(told), **words)] if told else []


def energy_sentences(case: Case, rows: "Iterable[Measurement]") -> list[str]:
    """Joules a sample at the smallest and the largest batch that have them, by device: in the way of answering that has most
    batches, the least where several rows have one, as ways differ more than batches do."""
    told, rows = [], list(rows)
    for gpu, where in _SIDES.items():
        ways: dict[Way, dict[int, Measurement]] = {}
        for m in sorted(rows, key=lambda m: -m.values.get("joules_per_sample", 0.0)):
            way = next((w for w in WAYS if (w.kernel, w.mode) == (m.kernel, m.mode)), None)
            if way and "joules_per_sample" in m.values and m.on_gpu == gpu:
                ways.setdefault(way, {})[m.problem.batch] = m
        if not ways:
            continue
        way = min(ways, key=lambda w: (-len(ways[w]), WAYS.index(w)))
        metered = ways[way]
        ends = dict.fromkeys((min(metered), max(metered)))
        each = [f"{sentences.number(metered[b].values['joules_per_sample'])} J at batch {b}" for b in ends]
        how = f"{way.words} on the {where}"
        told.append(_SAID["joules"].format(case=case.name, way=how, of=join(each)))
    return told


def serving_sentences(case: Case, rows: "Iterable[Measurement]") -> list[str]:
    """Single requests, several in flight, beside one at a time and beside the largest batch."""
    said = []
    for gpu, where in _SIDES.items():
        served: dict[int, float] = {}
        for m in rows:
            if m.kernel == SERVE and m.on_gpu == gpu and m.ok and m.on("host-throughput"):
                flying, now = m.experiment.in_flight, m.problem.batch / of(m.on("host-throughput")).value
                served[flying] = max(served.get(flying, now), now)
        if not served:
            continue
        ends = dict.fromkeys((min(served), max(served, key=lambda n: served[n])))
        words = [f"{sentences.number(served[n])} with {n} in flight" for n in ends]
        largest = max((m.problem.batch for m in rows if side([m], ROUNDTRIP, gpu, m.problem.batch)), default=0)
        whole = side(rows, ROUNDTRIP, gpu, largest) if largest else None
        batched = f"; batches of {largest} give {_rate(whole, largest)}" if whole else ""
        said.append(_SAID["served"].format(case=case.name, side=where, of=join(words), batched=batched))
    return said


def crossing_sentence(case: Case, way: Way, answer: Answer) -> str:
    """`inception-v3, model.predict: the GPU wins from batch 4. Between 2 and 4 it can't be told.`"""
    return " ".join(sentences.crossover(answer, f"{case.name}, {way.words}"))
