"""Several GPUs of one host in words: copies, sums and work on all at once, and their speedup of trainings."""

import math

from analysis import labels, numbers
from analysis.roofline.peers import NCCL, bandwidth, contention, speed_ups, sums
from analysis.stats import Estimate, group_by
from analysis.text import sentences
from analysis.text.sentences import say
from analysis.training import data_parallel
from analysis.units import bytes_rate, count, join, size
from kernels import networks
from kernels.problems import AllReduce, PeerCopy
from kernels.registry import title
from workloads.records import Measurement, Measurements

LARGE = 1 << 20  # bytes; smaller copies have no bandwidth, as they are mostly latency
_SAME = 0.02  # of the time alone: slower by less is no contention
_WORK = {"triad": "triads in device memory", "h2d": "copies from the host", "d2h": "copies to the host"}
_SENTENCES = {
    "refused": "No direct copies: {why}. Copies go through the host.",
    "pairs": "Copies of {size:size} from one to another of {gpus} GPUs reach {rates}.",
    "nccl": "All-reduce of {dtype} over {gpus} GPUs (NCCL): {rate:bytes/s} of bus bandwidth at {size:size}.",
    "ours": "Our one-shot kernel, recorded in CUDA graphs, {dtype}: {speed}.",
    "slower": "All {count} GPUs at once, {work} of {size}: slowdown {slower:factor} on {gpu}.",
    "same": "No contention while all {count} GPUs work: {work}. Each takes at most {most:factor} the time alone.",
    "wrong": "{model:title}, batch {batch:,}: the losses are NOT those of one GPU. "
    "Within {first} they differ by {difference:share}.",
    "reach": "{n} GPUs instead of one ({how}), {trainings} trainings: {least} becomes {slow:speed}, {most} {fast:speed}.",
}


def lines(rows: Measurements) -> list[str]:
    """Sentences on several GPUs of one host: copies between them, work on all at once, and all-reduces."""
    return copy_lines(rows) + at_once_lines(rows) + sum_lines(rows)


def copy_lines(rows: Measurements) -> list[str]:
    """Sentences on copies from GPU to GPU: the bandwidth of the slowest and the fastest pair at the largest size, and why there
    are no direct copies where the GPUs refuse them.
    """
    direct = [m for m in rows if isinstance(m.problem, PeerCopy) and m.variant == "direct"]
    refusals = dict.fromkeys(m.reason for m in direct if m.status == "skipped")
    sentences = [say(_SENTENCES["refused"], why=why) for why in refusals]
    large = [m for m in direct if m.ok and m.problem.ways == 1 and m.problem.nbytes >= LARGE]
    if large:
        most = max(m.problem.nbytes for m in large)
        bandwidths = sorted(bandwidth(m).value for m in large if m.problem.nbytes == most)
        slowest, fastest = bytes_rate(bandwidths[0]), bytes_rate(bandwidths[-1])
        rates = slowest if slowest == fastest else f"{slowest} to {fastest}"
        gpus = len({m.problem.source for m in large})
        sentences.append(say(_SENTENCES["pairs"], size=most, rates=rates, gpus=gpus))
    return sentences


def sum_lines(rows: Measurements) -> list[str]:
    """Sentences on all-reduces for each type: NCCL's best bus bandwidth, and the speed of our one-shot kernel against NCCL at the
    smallest and the largest size.
    """
    lines = []
    for dtype in dict.fromkeys(m.problem.dtype for m in rows if isinstance(m.problem, AllReduce) and m.ok):
        by_nccl = sums(rows, NCCL, dtype)
        if by_nccl:
            best = max(by_nccl.values(), key=lambda m: bandwidth(m).value)
            sentence = say(
                _SENTENCES["nccl"],
                dtype=dtype,
                gpus=len(best.problem.members),
                rate=bandwidth(best),
                size=best.problem.nbytes,
            )
            lines.append(sentence)
        ratios = speed_ups(rows, dtype)
        if ratios:
            sizes = dict.fromkeys((min(ratios), max(ratios)))
            speed = join(f"{sentences.speed(ratios[nbytes], 'NCCL')} at {size(nbytes)}" for nbytes in sizes)
            lines.append(say(_SENTENCES["ours"], dtype=dtype, speed=speed))
    return lines


def at_once_lines(rows: Measurements) -> list[str]:
    """A sentence for each kind of work that is slower while all GPUs work at once, on the GPU that is slowed down most; then one
    sentence on all kinds that are not.
    """
    lines = []
    without: dict[str, float] = {}
    gpus = 0
    for m, slowdown in contention(rows):
        problem = m.problem
        gpus = problem.together
        work = _WORK.get(problem.operation, f"{problem.math} products")
        if slowdown.low <= 1 + _SAME:
            without[work] = slowdown.high
            continue
        sentence = say(
            _SENTENCES["slower"],
            count=gpus,
            work=work,
            size=f"n = {problem.size:,}" if problem.operation == "matmul" else size(problem.size),
            slower=slowdown,
            gpu=labels.numbered_gpu(m.device),
        )
        lines.append(sentence)
    if without:
        lines.append(say(_SENTENCES["same"], count=gpus, work=join(without), most=max(without.values())))
    return lines


# ---------------------------------------------------------------- trainings


def training_lines(measurements: Measurements) -> list[str]:
    """Sentences on trainings on several GPUs: losses that differ from one GPU's, then the smallest and the largest speedup for
    each number of GPUs and setting, most GPUs first. Speedups that may be 1 do not count.
    """
    on_gpus = [case for case in data_parallel.cases(measurements) if case.several.on_gpu]
    lines = []
    for case in on_gpus:
        lines += _loss_lines(case)
    gains = []
    for case in on_gpus:
        gain = case.gain
        if gain and not gain.low <= 1 <= gain.high:
            gains.append((case, gain))
    gains.sort(key=lambda pair: (-pair[0].count, pair[1].value))
    by_setting = group_by(gains, lambda pair: (pair[0].count, setting_name(pair[0].several)))
    for (gpus, how), alike in by_setting.items():
        if len(alike) < 2:
            continue
        least, least_gain = alike[0]
        most, most_gain = alike[-1]
        sentence = say(
            _SENTENCES["reach"],
            n=gpus,
            how=how,
            trainings=len(alike),
            least=_training_name(least),
            slow=least_gain,
            most=_training_name(most),
            fast=most_gain,
        )
        lines.append(sentence)
    return lines


def _loss_lines(case: data_parallel.DataParallelCase) -> list[str]:
    """A sentence on losses that differ from those of one GPU; [] where they are the same."""
    difference = data_parallel.loss_difference(case) or 0.0
    if difference <= data_parallel.SAME_LOSS:
        return []
    compared = min(len(case.several.series["step_loss"]), data_parallel.FIRST)
    problem = case.several.problem
    sentence = say(
        _SENTENCES["wrong"],
        model=problem.model,
        batch=problem.batch,
        first=count(compared, "step"),
        difference=difference,
    )
    return [sentence]


def _training_name(case: data_parallel.DataParallelCase) -> str:
    problem = case.several.problem
    return f"{networks.title(problem.model)} at batch {problem.batch:,}"


def setting_name(m: Measurement) -> str:
    """`Keras on JAX, jit on`, as the row says that it ran; --jit auto leaves it to Keras."""
    return f"Keras on {library(m)}"


def library(m: Measurement) -> str:
    """`JAX, jit on`."""
    return f"{title(m.keras.keras_backend)}, jit {'on' if m.values.get('jit_compile') else 'off'}"


def between(e: Estimate) -> str:
    """A speedup with its interval: `1.9x [1.8, 2.0]`; `at least 1.2x` where its upper end is infinite, as a step may be no
    longer than noise.
    """
    finite = math.isfinite(e.high)
    return f"{numbers.factor(e)} {numbers.interval(e, 2)}" if finite else f"at least {numbers.factor(e.low)}"
