"""Inference in words: the batch from which the GPU wins, samples a second, the gains of batching and of requests in flight."""

from analysis import numbers
from analysis.crossover.answer import Answer
from analysis.stats import median_of
from analysis.text import crossings, sentences
from analysis.text.sentences import say
from analysis.training.inference import ROUNDTRIP, SERVE, CallForm, InferenceCase, cases, crossovers, fastest_calls
from analysis.units import join
from workloads.records import Machine, Measurement, Measurements

_ONEDNN = {None: "", "1": " with oneDNN", "0": " without oneDNN"}
_SENTENCES = {
    "largest": "Batch {batch}: {gpu:number} samples/s on the GPU, {cpu:number} on the CPU, {who}.",
    "batching": "{case}, array to array: from batch {first} to {last} the samples/s become {gains}.",
    "served": "{case}, single requests on the {side}: {rates}.",
}


def lines(measurements: Measurements, machine: Machine | None = None) -> list[str]:
    """Sentences on a model's answers: from which batch the GPU wins, with samples a second at the largest batch; the gain of
    batching; single requests, of which several may be in flight. [] without such rows.
    """
    rows_by_case = cases(measurements)
    answers = crossovers(measurements)
    lines = [_crossover(case, method, answer) for case, method, answer in answers]
    every: list[Measurement] = []
    for case, rows in rows_by_case.items():
        lines += batching_sentences(case, rows) + serving_sentences(case, rows)
        every += rows
    if rows_by_case and not answers:  # not a teacher's answers beside a student
        lines.append(crossings.no_gpu_sentence(every, machine))
    return lines


def _crossover(case: InferenceCase, method: CallForm, a: Answer) -> str:
    """Sentences: who wins at which batch, then samples a second at the largest batch that ran on both devices. method: how a
    batch is answered, such as by model.predict.
    """
    point = a.points[-1]
    cpu, gpu = point.cpu.seconds, point.gpu.seconds
    largest = say(
        _SENTENCES["largest"],
        batch=point.n,
        gpu=point.n / gpu,
        cpu=point.n / cpu,
        who=sentences.faster_by(cpu, gpu),
    )
    return " ".join([*sentences.crossover(a, f"{case.name}, {method.words}"), largest])


def batching_sentences(case: InferenceCase, rows: Measurements) -> list[str]:
    """A sentence on the gain in samples a second from the smallest batch to the largest, on the GPU and on the CPU (for each
    setting of oneDNN); [] without rows of both.
    """
    batches = [m.problem.batch for m in rows if m.kernel != SERVE]
    if not batches:
        return []
    first, last = min(batches), max(batches)
    gains = _batching_gain(rows, first, last, on_gpu=True, where="GPU")
    for setting, words in _ONEDNN.items():
        with_setting = [m for m in rows if m.settings.variables.get("TF_ENABLE_ONEDNN_OPTS") == setting]
        gains += _batching_gain(with_setting, first, last, on_gpu=False, where=f"CPU{words}")
    if not gains:
        return []
    return [say(_SENTENCES["batching"], case=case.name, gains=join(gains), first=first, last=last)]


def _batching_gain(rows: Measurements, first: int, last: int, *, on_gpu: bool, where: str) -> list[str]:
    """`9.1x on the GPU`: samples a second at the last batch over those at the first; [] without rows of both."""
    if first == last:
        return []
    at_first = fastest_calls(rows, ROUNDTRIP, gpu=on_gpu, batch=first)
    at_last = fastest_calls(rows, ROUNDTRIP, gpu=on_gpu, batch=last)
    if not at_first or not at_last:
        return []
    gain = at_first[1] / at_last[1] * (last / first)
    words = "no more for certain" if gain.low <= 1 <= gain.high else numbers.factor(gain)
    return [f"{words} on the {where}"]


def serving_sentences(case: InferenceCase, rows: Measurements) -> list[str]:
    """A sentence for each device on single requests: samples a second with the fewest in flight, and with the number that is
    fastest.
    """
    lines = []
    for on_gpu, device in ((False, "CPU"), (True, "GPU")):
        served = []
        for m in rows:
            samples = m.on("host-throughput")
            if m.kernel == SERVE and m.on_gpu == on_gpu and m.ok and samples:
                served.append((m.experiment.in_flight, m.problem.batch / median_of(samples).value))
        if not served:
            continue
        served.sort()
        fastest = max(served, key=lambda pair: pair[1])
        shown = dict.fromkeys((served[0], fastest))
        rates = join(f"{numbers.number(rate)} samples/s with {in_flight} in flight" for in_flight, rate in shown)
        lines.append(say(_SENTENCES["served"], case=case.name, side=device, rates=rates))
    return lines
