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
_SAID = {
    "refused": "No direct copies: {why}. Copies go through the host.",
    "pairs": "Copies of {size:size} from one to another of {gpus} GPUs reach {rates}.",
    "nccl": "All-reduce of {dtype} over {gpus} GPUs (NCCL): {rate:bytes/s} of bus bandwidth at {size:size}.",
    "ours": "Our one-shot kernel, recorded in CUDA graphs, {dtype}: {speed}.",
    "slower": "All {count} GPUs at once, {work} of {size}: slowdown {slower:factor} on {gpu}.",
    "same": "No contention while all {count} GPUs work: {work}. Each takes at most {most:factor} the time alone.",
    "wrong": "{model:title}, batch {batch:,}: the losses are NOT those of one GPU. Within {first} they differ by {apart:share}.",
    "reach": "{n} GPUs instead of one ({how}), {trainings} trainings: {least} becomes {slow:speed}, {most} {fast:speed}.",
}


def lines(rows: Measurements) -> list[str]:
    """Sentences on copies, on work on all GPUs at once, and on sums, in the order in which people ask."""
    return copy_lines(rows) + at_once_lines(rows) + sum_lines(rows)


def copy_lines(rows: Measurements) -> list[str]:
    """The bandwidth of the slowest and the fastest pair, or why there are no direct copies."""
    direct = [m for m in rows if isinstance(m.problem, PeerCopy) and m.variant == "direct"]
    told = [say(_SAID["refused"], why=why) for why in dict.fromkeys(m.reason for m in direct if m.status == "skipped")]
    large = [m for m in direct if m.ok and m.problem.ways == 1 and m.problem.nbytes >= LARGE]
    if large:
        most = max(m.problem.nbytes for m in large)
        rates = sorted(bandwidth(m).value for m in large if m.problem.nbytes == most)
        ends = " to ".join(dict.fromkeys(map(bytes_rate, (rates[0], rates[-1]))))
        told.append(say(_SAID["pairs"], size=most, rates=ends, gpus=len({m.problem.source for m in large})))
    return told


def sum_lines(rows: Measurements) -> list[str]:
    """NCCL's best bus bandwidth, type by type, and how our one-shot kernel compares at the smallest and largest size."""
    told = []
    for dtype in dict.fromkeys(m.problem.dtype for m in rows if isinstance(m.problem, AllReduce) and m.ok):
        if own := sums(rows, NCCL, dtype):
            best = max(own.values(), key=lambda m: bandwidth(m).value)
            words = {"gpus": len(best.problem.members), "rate": bandwidth(best), "size": best.problem.nbytes}
            told.append(say(_SAID["nccl"], dtype=dtype, **words))
        if ratios := speed_ups(rows, dtype):
            speed = join(f"{sentences.speed(ratios[n], 'NCCL')} at {size(n)}" for n in {min(ratios): 0, max(ratios): 0})
            told.append(say(_SAID["ours"], dtype=dtype, speed=speed))
    return told


def at_once_lines(rows: Measurements) -> list[str]:
    """A sentence for each work with contention, on the slowest GPU; then one sentence on all work without."""
    told, same = [], {}
    for m, slower in contention(rows):
        p = m.problem
        work = _WORK.get(p.operation, f"{p.math} products")
        if slower.low <= 1 + _SAME:
            same[work] = slower.high
        else:
            large = f"n = {p.size:,}" if p.operation == "matmul" else size(p.size)
            words = {"count": p.together, "size": large, "gpu": labels.numbered_gpu(m.device)}
            told.append(say(_SAID["slower"], work=work, slower=slower, **words))
    last = [say(_SAID["same"], count=p.together, work=join(same), most=max(same.values()))] if same else []
    return told + last


# ---------------------------------------------------------------- trainings


def training_lines(measurements: Measurements) -> list[str]:
    """Losses that differ from one GPU's; then the least and the largest speedup for each number of GPUs, most first."""
    found = [c for c in data_parallel.cases(measurements) if c.several.on_gpu]
    told = []
    for c in found:
        if (apart := data_parallel.loss_difference(c) or 0.0) > data_parallel.SAME_LOSS:
            steps = count(min(len(c.several.series["step_loss"]), data_parallel.FIRST), "step")
            p = c.several.problem
            told.append(say(_SAID["wrong"], model=p.model, batch=p.batch, first=steps, apart=apart))
    sure = [(c, gain) for c in found if (gain := c.gain) and not gain.low <= 1 <= gain.high]
    sure.sort(key=lambda one: (-one[0].count, one[1].value))
    for (n, how), own in group_by(sure, lambda one: (one[0].count, way(one[0].several))).items():
        if len(own) > 1:
            trained = [case.several.problem for case, _ in (own[0], own[-1])]
            least, most = (f"{networks.title(p.model)} at batch {p.batch:,}" for p in trained)
            words = {"least": least, "most": most, "slow": own[0][1], "fast": own[-1][1]}
            told.append(say(_SAID["reach"], n=n, how=how, trainings=len(own), **words))
    return told


def way(m: Measurement) -> str:
    """`Keras on JAX, jit on`: the setting that was in force, whatever was asked for."""
    return f"Keras on {library(m)}"


def library(m: Measurement) -> str:
    """`JAX, jit on`."""
    return f"{title(m.keras.keras_backend)}, jit {'on' if m.values.get('jit_compile') else 'off'}"


def between(e: Estimate) -> str:
    """`1.9x [1.8, 2.0]`; where the step may be as short as its noise, `at least 1.2x`."""
    finite = math.isfinite(e.high)
    return f"{numbers.factor(e)} {numbers.interval(e, 2)}" if finite else f"at least {numbers.factor(e.low)}"
