"""What rows of inference say: samples a second on both sides, what batching, copies and joules come to, and the crossovers."""

from collections.abc import Iterable

from analysis.crossover.crossover import Answer
from analysis.stats import Estimate, of
from analysis.text import crossings
from analysis.training.inference import (
    PREDICT,
    QUEUED,
    RESIDENT,
    ROUNDTRIP,
    SERVE,
    WAYS,
    Case,
    Way,
    cases,
    crossovers,
    side,
)
from analysis.units import digits, join, seconds
from workloads.records import Machine, Measurement

_WIDE = 0.1  # of a ratio: half an interval that is worth saying
_AS = {
    RESIDENT: "already on the device",
    QUEUED: "already on the device",
    ROUNDTRIP: "array to array",
    PREDICT: "model.predict",
}


def lines(measurements: "Iterable[Measurement]", machine: "Machine | None" = None) -> list[str]:
    """What the rows say: samples a second at the smallest and the largest batch that both sides answered (one side, where no
    batch has both), what batching brings, joules, requests in flight, and the crossovers in batch."""
    measurements = list(measurements)
    said = []
    for case, rows in cases(measurements).items():
        batches = sorted({m.problem.batch for m in rows if m.kernel != SERVE})
        both = [b for b in batches if any(side(rows, w, False, b) and side(rows, w, True, b) for w in WAYS)] or batches
        said += [line for batch in dict.fromkeys(both[:1] + both[-1:]) if (line := rate_sentence(case, rows, batch))]
        said += queued_sentences(case, rows, batches)
        said += batching_sentences(case, rows, batches) + energy_sentences(case, rows) + serving_sentences(case, rows)
    found = crossovers(measurements)
    said += [crossing_sentence(*one) for one in found]
    asked = [m for rows in cases(measurements).values() for m in rows]  # not a teacher's answers beside a student
    if asked and not found:
        said.append(crossings.no_gpu_sentence(asked, machine))
    return said


def rate_sentence(case: Case, rows: "Iterable[Measurement]", batch: int) -> str:
    """Samples a second at a batch on both sides, way by way; "" without a time."""
    told = []
    for way in WAYS:
        cpu, gpu = (side(rows, way, on_gpu, batch) for on_gpu in (False, True))
        if gpu and cpu:
            ratio = cpu[1] / gpu[1]
            more = "can't tell which is more" if ratio.low <= 1 <= ratio.high else _times(ratio)
            told.append(f"{way.words}, {_rate(cpu, batch)} on the CPU and {_rate(gpu, batch)} on the GPU ({more})")
        elif (one := gpu or cpu) and (gpu or way != QUEUED):  # the CPU queues nothing: it is RESIDENT's time again
            told.append(f"{way.words}, {_rate(one, batch)} on the {'GPU' if gpu else 'CPU'}")
    return f"{case.name} at batch {batch} answers, in samples a second: {'; '.join(told)}." if told else ""


def queued_sentences(case: Case, rows: "Iterable[Measurement]", batches: list[int]) -> list[str]:
    """The batches at which the GPU's queued calls took longer than those waited for one by one, beyond both intervals."""
    slower = []
    for batch in batches:
        queued, waited = (side(rows, way, True, batch) for way in (QUEUED, RESIDENT))
        if queued and waited and queued[1].low > waited[1].high:
            slower.append(f"{seconds(queued[1].value)} beside {seconds(waited[1].value)} at batch {batch}")
    why = "that is not the most the device can do, as one call at a time does more, but what disturbed those calls"
    return [f"{case.name}: calls queued took longer than calls waited for, {join(slower)}: {why}."] if slower else []


def _times(ratio: Estimate) -> str:
    """`3.20 times as many`, `2.12 times fewer`; with its interval where that is wide."""
    more = ratio if ratio.value >= 1 else 1 / ratio
    wide = f", {digits(more.low)}..{digits(more.high)}" if more.noise > _WIDE else ""
    return f"{digits(more.value)} times {'as many' if more is ratio else 'fewer'}{wide}"


def _rate(side: "tuple[Measurement, Estimate]", batch: int) -> str:
    return digits(batch / side[1].value)


def batching_sentences(case: Case, rows: "Iterable[Measurement]", batches: list[int]) -> list[str]:
    """How many times the samples a second grow from the smallest batch to the largest, for each device and, on the CPU, each
    setting of oneDNN: `Larger batches`."""
    if len(batches) < 2:
        return []
    told = []
    for gpu in (True, False):
        for onednn in (None,) if gpu else (None, "1", "0"):
            mine = [m for m in rows if gpu or m.settings.variables.get("TF_ENABLE_ONEDNN_OPTS") == onednn]
            fewest, most = (side(mine, ROUNDTRIP, gpu, batch) for batch in (batches[0], batches[-1]))
            if fewest and most:
                gain = fewest[1] / most[1] * (batches[-1] / batches[0])
                how = {None: "", "1": " with oneDNN", "0": " without oneDNN"}[onednn]
                same = gain.low <= 1 <= gain.high
                many = "neither more nor fewer for certain" if same else _times(gain)
                told.append(f"{many} on the {'GPU' if gpu else 'CPU'}{how}")
    if not told:
        return []
    return [
        f"{case.name}: from batch {batches[0]} to {batches[-1]} the samples a second, array to array, become {join(told)}."
    ]


def energy_sentences(case: Case, rows: "Iterable[Measurement]") -> list[str]:
    """Joules a sample at the smallest and the largest batch that have them, by device: in the way of answering that has most
    batches, the least where several rows have one, as ways differ more than batches do."""
    told, rows = [], list(rows)
    for gpu in (False, True):
        ways: dict[Way, dict[int, Measurement]] = {}
        for m in sorted(rows, key=lambda m: -m.values.get("joules_per_sample", 0.0)):
            way = next((w for w in WAYS if (w.kernel, w.mode) == (m.kernel, m.mode)), None)
            if way and "joules_per_sample" in m.values and m.on_gpu == gpu:
                ways.setdefault(way, {})[m.problem.batch] = m
        if not ways:
            continue
        way = min(ways, key=lambda w: (-len(ways[w]), WAYS.index(w)))
        metered, of_what = ways[way], next((m.notes.get("energy", "") for m in ways[way].values()), "")
        ends = sorted(metered)[:1] + sorted(metered)[1:][-1:]
        each = [
            f"{digits(metered[b].values['joules_per_sample'])} J on the {'GPU' if gpu else 'CPU'} at batch {b}"
            for b in ends
        ]
        told.append(f"{join(each)} ({', '.join(filter(None, (_AS[way], of_what)))})")
    return [f"{case.name}: a sample takes {join(told)}."] if told else []


def serving_sentences(case: Case, rows: "Iterable[Measurement]") -> list[str]:
    """Single requests, several in flight, beside one at a time and beside the largest batch."""
    said = []
    for gpu in (False, True):
        served: dict[int, tuple[float, float]] = {}
        for m in rows:
            if m.kernel == SERVE and m.on_gpu == gpu and m.ok and m.on("host-throughput"):
                flying = m.experiment.in_flight
                now = (m.problem.batch / of(m.on("host-throughput")).value, of(m.on("host-latency")).value)
                served[flying] = max(served.get(flying, now), now)
        if not served:
            continue
        best = max(served, key=lambda n: served[n][0])
        words = [
            f"{digits(served[n][0])} with {n} in flight (each waits {digits(1e3 * served[n][1])} ms)"
            for n in dict.fromkeys((min(served), best))
        ]
        largest = max((m.problem.batch for m in rows if side([m], ROUNDTRIP, gpu, m.problem.batch)), default=0)
        whole = side(rows, ROUNDTRIP, gpu, largest) if largest else None
        batched = f"; batches of {largest} give {_rate(whole, largest)}" if whole else ""
        where = "GPU" if gpu else "CPU"
        said.append(f"{case.name}, single requests on the {where}, in samples a second: {join(words)}{batched}.")
    return said


def crossing_sentence(case: Case, way: Way, answer: Answer) -> str:
    """`inception-v3, array to array by model.predict: the GPU wins from batch = 3 (2..4) (measured range 1..256).`"""
    told = crossings.verdict_words(answer) + crossings.range_words(answer)
    return f"{case.name}, {way.words}: {told}."
