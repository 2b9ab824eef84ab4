"""The input pipeline in words: how fast each way brings a batch into a step, what limits it, and its share of a step."""

from collections.abc import Iterable

from analysis import labels
from analysis.numbers import time
from analysis.stats import best_by, exact, median_of
from analysis.table import Table
from analysis.text.sentences import counted, say
from analysis.training import costs, feeding
from analysis.training.feeding import Law
from analysis.units import bytes_rate, percent, size
from kernels import networks
from kernels.problems import InputPipeline
from kernels.problems.arrays import ITEM_BYTES
from workloads.records import Measurements

TITLE = "Input pipeline: how a batch gets into a step"
CHART = "A step with next to no arithmetic, by the bytes of its batch"
UNKNOWN = "{side}: how quick NumPy batches come can't be told from so few sizes: measure all of them."
BATCH = 2048
_FASTER = 1.5  # copies this many times faster than the batches mean that the link is not the limit
_MOST, _KNOWN = 3, 0.5  # shares told, and the noise of the steps that they are shares of
_SAID = {
    "view": "A step of {batch:,} {dtype} CIFAR-10 images and next to no arithmetic takes, by the laws, {ways} ({side}).",
    "plain": "{side}: {batch:,} CIFAR-10 images from NumPy arrays add {plain:time} to a step: {rate:bytes/s}.",
    "link": "CuPy copies as many bytes at {rates}, so {why} what limits.",
    "share": "{model:title}, {batch}: the input pipeline is at most {share:share} of a step of {step:time} on the {side}.",
    "small": "{model:title}, {batch}, {samples}, {epochs}: {whole:time} on the GPU, of which start-up and compilation are "
    "{once:share} and the input pipeline {most}{fed:share}.",
    "start": "A small data set does not outlast the start; copies are not why it gains nothing.",
}


def image_bytes(dtype: str) -> int:
    """Bytes of a CIFAR-10 image."""
    return 32 * 32 * 3 * ITEM_BYTES.get(dtype, 1)


def laws(measurements: Measurements) -> Table:
    rows = [
        (
            labels.device(law.device),
            law.way,
            law.dtype if law.way != InputPipeline.RESIDENT else "any",
            time(law.call),
            time(law.sample) if law.sample.high else "-",
            bytes_rate(law.bandwidth.value) if law.byte.low else "-",
            percent(round(law.error, 3)),
            f"{size(law.low)} to {size(law.high)}",
        )
        for law in feeding.laws(measurements)
    ]
    return Table("device | way | samples as | a call | a sample | bandwidth | within | sizes", rows, 3)


def lines(rows: Measurements) -> list[str | Table]:
    """The sentences and the laws; empty without rows of the study."""
    found, said = laws(rows), sentences(rows)
    return [*said, "", found] if found.rows else [*said]


def sentences(rows: Measurements) -> list[str]:
    """Sentences: how fast batches arrive on each device, what limits them, their largest shares of steps known within half."""
    fitted, shares, told = feeding.laws(rows), feeding.shares(rows), []
    for device in sorted({m.device for m, _ in feeding.rows(rows)}, reverse=True):
        told += _device(fitted, rows, device)
    for s in sorted((s for s in shares if s.cost.step.noise < _KNOWN), key=lambda s: -s.share.value)[:_MOST]:
        p = s.training.problem
        words = {"batch": counted(p.batch, "batch"), "share": min(1.0, s.share.value), "side": s.training.side}
        told.append(say(_SAID["share"], model=p.model, step=s.cost.step, **words))
    return told


def view_sentence(fitted: Iterable[Law], device: str, dtype: str) -> str:
    """The seconds that a step of BATCH images takes in each way of one device and type, the fastest first; "" without laws."""
    own = [law for law in fitted if (law.device, law.dtype) == (device, dtype) and law.way != InputPipeline.RESIDENT]
    ranked = sorted((law.seconds(BATCH, BATCH * image_bytes(dtype)).value, law.way) for law in own)
    ways = ", ".join(f"{time(seconds)} by {way}" for seconds, way in ranked)
    return say(_SAID["view"], batch=BATCH, dtype=dtype, ways=ways, side=labels.device(device)) if ways else ""


def _device(fitted: tuple[Law, ...], rows: Measurements, device: str) -> list[str]:
    """Sentences: the time that NumPy arrays add to a step on a device, and whether a copy of the same bytes explains it."""
    law, nbytes = feeding.find(fitted, device, "numpy"), BATCH * image_bytes("float32")
    if law is None:
        return [say(UNKNOWN, side=labels.device(device))]
    plain = law.beyond_call(BATCH, nbytes)
    if not plain.value:
        return []
    rate = nbytes / plain.value
    told = [say(_SAID["plain"], side=labels.device(device), batch=BATCH, plain=plain, rate=rate)]
    copies = feeding.copies(rows, device)
    near = best_by(copies, lambda m: m.problem.host_memory, lambda m: abs(m.problem.nbytes - nbytes))
    rates = {memory: m.problem.nbytes / median_of(m.on("host-latency")).value for memory, m in near.items()}
    if rates:
        words = " and ".join(f"{bytes_rate(each)} from {memory}" for memory, each in rates.items()) + " memory"
        why = "the link is not" if min(rates.values()) > _FASTER * rate else "the copy from such memory is"
        told.append(say(_SAID["link"], rates=words, why=why))
    return told


def small_sentences(rows: Measurements) -> list[str]:
    """Sentences on the parts of the GPU training with fewest samples, at the model's own batch if possible; [] without one."""
    known = [(s, s.training.problem) for s in feeding.shares(rows) if s.training.on_gpu and s.cost.start]
    known = [(s, p) for s, p in known if p.samples >= p.batch]
    if not known:
        return []
    s, p = min(known, key=lambda one: (one[1].batch != networks.find(one[1].model).batch, one[1].samples))
    parts = costs.parts(s.cost, p.epochs, p.steps)
    whole = costs.whole_training(s.cost, p.epochs, p.steps).value
    once = (parts["start-up"] + parts["build and compile"]).value
    each = s.feeding * (p.epochs * p.steps)
    taken = each.value if each.low > 0 else each.high
    fed = min(taken, whole - once)
    words = {"batch": counted(p.batch, "batch"), "samples": counted(p.samples, "samples"), "whole": exact(whole)}
    words |= {"epochs": counted(p.epochs, "epochs"), "most": "at most " * (fed < taken or each.low <= 0)}
    told = say(_SAID["small"], model=p.model, once=once / whole, fed=fed / whole, **words)
    return [told, *[_SAID["start"]] * (2 * fed < once)]
