"""What rows of inference say: from which batch the GPU wins, samples a second, what batching and requests in flight bring."""

from collections.abc import Iterable

from analysis.stats import Estimate, of
from analysis.text import crossings, sentences
from analysis.text.sentences import say
from analysis.training.inference import QUEUED, RESIDENT, ROUNDTRIP, SERVE, WAYS, Case, cases, crossovers, side
from analysis.units import join
from workloads.records import Machine, Measurement

_ONEDNN = {"": "", "1": " with oneDNN", "0": " without oneDNN"}
_SIDES = {False: "CPU", True: "GPU"}
_SAID = {
    "both": "{case}, batch {batch}, {way}: {gpu:number} samples/s on the GPU, {cpu:number} on the CPU, {who}.",
    "one": "{case}, batch {batch}, {way}: {rate:number} samples/s on the {side}.",
    "queued": "{case}: queued calls took longer than calls waited for, {queued:time} against {waited:time} at batch {batch}"
    "{more}. Something disturbed them.",
    "batching": "{case}, array to array: from batch {first} to {last} the samples/s become {of}.",
    "served": "{case}, single requests on the {side}: {of}{batched}.",
}


def lines(measurements: Iterable[Measurement], machine: Machine | None = None) -> list[str]:
    """What the rows say: the crossovers in batch, samples a second at the largest batch that both sides answered (one side, where
    no batch has both), what batching brings, requests in flight."""
    measurements = list(measurements)
    found, each = crossovers(measurements), cases(measurements)
    told = [" ".join(sentences.crossover(a, f"{case.name}, {way.words}")) for case, way, a in found]
    for case, rows in each.items():
        batches = sorted({m.problem.batch for m in rows if m.kernel != SERVE})
        both = [b for b in batches if any(side(rows, w, False, b) and side(rows, w, True, b) for w in WAYS)] or batches
        told += rate_sentences(case, rows, both[-1]) if both else []
        told += queued_sentences(case, rows, batches) + batching_sentences(case, rows, batches)
        told += serving_sentences(case, rows)
    if each and not found:  # not a teacher's answers beside a student
        told.append(crossings.no_gpu_sentence([m for rows in each.values() for m in rows], machine))
    return told


def rate_sentences(case: Case, rows: Iterable[Measurement], batch: int) -> list[str]:
    """Samples a second at a batch on both sides, a sentence a way."""
    told = []
    for way in WAYS:
        times = {gpu: found[1] for gpu in (False, True) if (found := side(rows, way, gpu, batch))}
        rates = {gpu: batch / time for gpu, time in times.items()}
        words = {"case": case.name, "batch": batch, "way": way.words}
        if len(times) == 2:
            who = sentences.faster_by(times[False], times[True])
            told.append(say(_SAID["both"], gpu=rates[True], cpu=rates[False], who=who, **words))
        elif times and (True in times or way != QUEUED):  # the CPU queues nothing: it is RESIDENT's time again
            ((gpu, rate),) = rates.items()
            told.append(say(_SAID["one"], rate=rate, side=_SIDES[gpu], **words))
    return told


def queued_sentences(case: Case, rows: Iterable[Measurement], batches: list[int]) -> list[str]:
    """The batches at which the GPU's queued calls took longer than those waited for one by one, beyond both intervals."""
    slower: list[tuple[int, Estimate, Estimate]] = []
    for batch in batches:
        queued, waited = (side(rows, way, True, batch) for way in (QUEUED, RESIDENT))
        if queued and waited and queued[1].low > waited[1].high:
            slower.append((batch, queued[1], waited[1]))
    more = f" and at {len(slower) - 1} more" if len(slower) > 1 else ""
    first = [dict(zip(("batch", "queued", "waited"), one, strict=True)) for one in slower[:1]]
    return [say(_SAID["queued"], case=case.name, more=more, **words) for words in first]


def batching_sentences(case: Case, rows: Iterable[Measurement], batches: list[int]) -> list[str]:
    """How the samples a second grow from the smallest batch to the largest, for each device and, on the CPU, each setting of
    oneDNN."""
    told = []
    for gpu, onednn in ((True, ""), (False, ""), (False, "1"), (False, "0")) if len(batches) > 1 else ():
        mine = [m for m in rows if gpu or m.settings.variables.get("TF_ENABLE_ONEDNN_OPTS", "") == onednn]
        fewest, most = (side(mine, ROUNDTRIP, gpu, batch) for batch in (batches[0], batches[-1]))
        if fewest and most:
            gain = fewest[1] / most[1] * (batches[-1] / batches[0])
            many = "no more for certain" if gain.low <= 1 <= gain.high else sentences.factor(gain)
            told.append(f"{many} on the {_SIDES[gpu]}{_ONEDNN[onednn]}")
    ends = {"first": batches[0], "last": batches[-1]} if told else {}
    return [say(_SAID["batching"], case=case.name, of=join(told), **ends)] if told else []


def serving_sentences(case: Case, rows: Iterable[Measurement]) -> list[str]:
    """Single requests, several in flight, beside one at a time and beside the largest batch."""
    told = []
    for gpu, where in _SIDES.items():
        served: dict[int, float] = {}
        for m in rows:
            if m.kernel == SERVE and m.on_gpu == gpu and m.ok and m.on("host-throughput"):
                flying, rate = m.experiment.in_flight, m.problem.batch / of(m.on("host-throughput")).value
                served[flying] = max(served.get(flying, rate), rate)
        if served:
            ends = dict.fromkeys((min(served), max(served, key=served.__getitem__)))
            words = join(f"{sentences.number(served[n])} samples/s with {n} in flight" for n in ends)
            whole = [(b, found[1]) for b in {m.problem.batch for m in rows} if (found := side(rows, ROUNDTRIP, gpu, b))]
            batched = "".join(
                f"; batches of {b} give {sentences.number(b / time)}" for b, time in [max(whole)] if whole
            )
            told.append(say(_SAID["served"], case=case.name, side=where, of=words, batched=batched))
    return told
