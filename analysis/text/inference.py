"""Inference in words: the batch from which the GPU wins, samples a second, the gains of batching and of requests in flight."""

from analysis import numbers
from analysis.crossover.crossover import Answer
from analysis.stats import median_of
from analysis.text import crossings, sentences
from analysis.text.sentences import say
from analysis.training.inference import ROUNDTRIP, SERVE, Case, Way, cases, crossovers, side
from analysis.units import join
from workloads.records import Machine, Measurements

_ONEDNN = {None: "", "1": " with oneDNN", "0": " without oneDNN"}
_SIDES = {False: "CPU", True: "GPU"}
_SAID = {
    "largest": "Batch {batch}: {gpu:number} samples/s on the GPU, {cpu:number} on the CPU, {who}.",
    "batching": "{case}, array to array: from batch {first} to {last} the samples/s become {gains}.",
    "served": "{case}, single requests on the {side}: {rates}.",
}


def lines(measurements: Measurements, machine: Machine | None = None) -> list[str]:
    """Sentences: the crossovers along the batch with samples a second at the largest batch, the gain of batching, and requests
    in flight."""
    found, each = crossovers(measurements), cases(measurements)
    told = [_crossover(*one) for one in found]
    for case, rows in each.items():
        told += batching_sentences(case, rows) + serving_sentences(case, rows)
    if each and not found:  # not a teacher's answers beside a student
        told.append(crossings.no_gpu_sentence([m for rows in each.values() for m in rows], machine))
    return told


def _crossover(case: Case, way: Way, a: Answer) -> str:
    """The winner by batch, then samples a second at the largest batch that ran on both devices."""
    p = a.points[-1]
    cpu, gpu = p.cpu.seconds, p.gpu.seconds
    largest = say(_SAID["largest"], batch=p.n, gpu=p.n / gpu, cpu=p.n / cpu, who=sentences.faster_by(cpu, gpu))
    return " ".join([*sentences.crossover(a, f"{case.name}, {way.words}"), largest])


def batching_sentences(case: Case, rows: Measurements) -> list[str]:
    """The gain in samples a second from the smallest batch to the largest, for each device; on the CPU for each setting of
    oneDNN."""
    batches = [m.problem.batch for m in rows if m.kernel != SERVE]
    told, first, last = [], min(batches, default=1), max(batches, default=1)
    for gpu, onednn in ((True, None), *((False, setting) for setting in _ONEDNN)):
        mine = [m for m in rows if gpu or m.settings.variables.get("TF_ENABLE_ONEDNN_OPTS") == onednn]
        fewest, most = (side(mine, ROUNDTRIP, gpu, batch) for batch in (first, last))
        if fewest and most and first < last:
            gain = fewest[1] / most[1] * (last / first)
            many = "no more for certain" if gain.low <= 1 <= gain.high else numbers.factor(gain)
            told.append(f"{many} on the {_SIDES[gpu]}{_ONEDNN[onednn]}")
    return [say(_SAID["batching"], case=case.name, gains=join(told), first=first, last=last)] if told else []


def serving_sentences(case: Case, rows: Measurements) -> list[str]:
    """Single requests in samples a second: with the fewest in flight, and with the number that is fastest."""
    told = []
    for gpu, where in _SIDES.items():
        own = [m for m in rows if m.kernel == SERVE and m.on_gpu == gpu and m.ok and m.on("host-throughput")]
        served = sorted(
            (m.experiment.in_flight, m.problem.batch / median_of(m.on("host-throughput")).value) for m in own
        )
        if served:
            ends = dict.fromkeys((served[0], max(served, key=lambda one: one[1])))
            rates = join(f"{numbers.number(rate)} samples/s with {n} in flight" for n, rate in ends)
            told.append(say(_SAID["served"], case=case.name, side=where, rates=rates))
    return told
