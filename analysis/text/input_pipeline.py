"""The input pipeline in words: how fast each way brings a batch into a step, what limits it, and its share of a step."""

from collections.abc import Iterable

from analysis import labels
from analysis.numbers import time
from analysis.stats import best_by, exact, median_of
from analysis.table import Table
from analysis.text.sentences import counted, say
from analysis.training import costs, pipeline_costs
from analysis.training.pipeline_costs import PipelineCost, PipelineShare
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
_MOST = 3  # shares in sentences
_KNOWN = 0.5  # steps noisier than this have no share
_SENTENCES = {
    "view": "A step of {batch:,} {dtype} CIFAR-10 images and next to no arithmetic takes, by the laws, {ways} ({side}).",
    "plain": "{side}: {batch:,} CIFAR-10 images from NumPy arrays add {plain:time} to a step: {rate:bytes/s}.",
    "link": "CuPy copies as many bytes at {rates}, so {why} what limits.",
    "share": "{model:title}, {batch}: the input pipeline is at most {share:share} of a step of {step:time} on the {side}.",
    "small": "{model:title}, {batch}, {samples}, {epochs}: {whole:time} on the GPU, of which start-up and compilation are "
    "{once:share} and the input pipeline {most}{pipeline:share}.",
    "start": "A small data set does not outlast the start; copies are not why it gains nothing.",
}


def image_bytes(dtype: str) -> int:
    """Bytes of a CIFAR-10 image."""
    return 32 * 32 * 3 * ITEM_BYTES.get(dtype, 1)


def laws(measurements: Measurements) -> Table:
    """A table of what each way of bringing a batch into a step costs, a line a device, way and type of samples: seconds a call, a
    sample and a byte, as fitted.
    """
    rows = [_law_cells(law) for law in pipeline_costs.fits(measurements)]
    return Table("device | way | samples as | a call | a sample | bandwidth | within | sizes", rows, left=3)


def _law_cells(law: PipelineCost) -> tuple[str, ...]:
    """The cells of a law, in the order of the table's heads."""
    dtype = "any" if law.variant == InputPipeline.RESIDENT else law.dtype
    bandwidth = bytes_rate(law.bandwidth.value) if law.byte.low else "-"
    return (
        labels.device(law.device),
        law.variant,
        dtype,
        time(law.call),
        time(law.sample) if law.sample.high else "-",
        bandwidth,
        percent(round(law.error, 3)),
        f"{size(law.low)} to {size(law.high)}",
    )


def lines(rows: Measurements) -> list[str | Table]:
    """The sentences and the laws; empty without rows of the study."""
    table = laws(rows)
    if not table.rows:
        return [*sentences(rows)]
    return [*sentences(rows), "", table]


def sentences(rows: Measurements) -> list[str]:
    """Sentences on the input pipeline: how fast batches arrive on each device, what limits them, and the trainings in whose
    steps it has the largest shares; steps that are too noisy (_KNOWN) do not count.
    """
    fitted = pipeline_costs.fits(rows)
    sentences = []
    for device in sorted({m.device for m, _ in pipeline_costs.timed_rows(rows)}, reverse=True):
        sentences += _device(fitted, rows, device)
    known = [share for share in pipeline_costs.shares(rows) if share.cost.step.noise < _KNOWN]
    known.sort(key=lambda share: -share.share.value)
    for share in known[:_MOST]:
        problem = share.training.problem
        sentence = say(
            _SENTENCES["share"],
            model=problem.model,
            batch=counted(problem.batch, "batch"),
            share=min(1.0, share.share.value),
            step=share.cost.step,
            side=share.training.side,
        )
        sentences.append(sentence)
    return sentences


def view_sentence(fitted: Iterable[PipelineCost], device: str, dtype: str) -> str:
    """A sentence on the seconds of a step with BATCH images by each way of bringing them, the fastest first, for one device and
    type of samples; "" without fits.
    """
    ranked = []
    for law in fitted:
        if (law.device, law.dtype) == (device, dtype) and law.variant != InputPipeline.RESIDENT:
            ranked.append((law.seconds(BATCH, BATCH * image_bytes(dtype)).value, law.variant))
    if not ranked:
        return ""
    ways = ", ".join(f"{time(seconds)} by {name}" for seconds, name in sorted(ranked))
    return say(_SENTENCES["view"], batch=BATCH, dtype=dtype, ways=ways, side=labels.device(device))


def _device(fitted: tuple[PipelineCost, ...], rows: Measurements, device: str) -> list[str]:
    """Sentences on one device: the time that BATCH images from NumPy arrays add to a step, and whether a bare copy of as many
    bytes explains it. fitted: the fits of all devices; rows: where the copies are looked up.
    """
    nbytes = BATCH * image_bytes("float32")
    law = pipeline_costs.find(fitted, device, "numpy")
    if law is None:
        return [say(UNKNOWN, side=labels.device(device))]
    plain = law.beyond_call(BATCH, nbytes)
    if not plain.value:
        return []
    rate = nbytes / plain.value
    sentences = [say(_SENTENCES["plain"], side=labels.device(device), batch=BATCH, plain=plain, rate=rate)]
    copies = pipeline_costs.copies(rows, device)
    nearest = best_by(copies, lambda m: m.problem.host_memory, lambda m: abs(m.problem.nbytes - nbytes))
    copy_rates = {}
    for memory, m in nearest.items():
        copy_rates[memory] = m.problem.nbytes / median_of(m.on("host-latency")).value
    if copy_rates:
        rates = " and ".join(f"{bytes_rate(copy_rate)} from {memory}" for memory, copy_rate in copy_rates.items())
        link_is_faster = min(copy_rates.values()) > _FASTER * rate
        why = "the link is not" if link_is_faster else "the copy from such memory is"
        sentences.append(say(_SENTENCES["link"], rates=f"{rates} memory", why=why))
    return sentences


def small_sentences(rows: Measurements) -> list[str]:
    """One or two sentences on where the time of the GPU's training with the fewest samples goes; [] without one. Trainings at
    the batch that the model's article used come first.
    """
    shares = []
    for share in pipeline_costs.shares(rows):
        problem = share.training.problem
        if share.training.on_gpu and share.cost.start and problem.samples >= problem.batch:
            shares.append(share)
    if not shares:
        return []
    share = min(shares, key=_size_rank)
    problem = share.training.problem
    parts = costs.parts(share.cost, problem.epochs, problem.steps)
    whole = costs.whole_training(share.cost, problem.epochs, problem.steps).value
    once = (parts["start-up"] + parts["build and compile"]).value
    added = share.pipeline_s * (problem.epochs * problem.steps)
    value = added.value if added.low > 0 else added.high
    pipeline = min(value, whole - once)
    is_bound = pipeline < value or added.low <= 0
    sentence = say(
        _SENTENCES["small"],
        model=problem.model,
        batch=counted(problem.batch, "batch"),
        samples=counted(problem.samples, "samples"),
        epochs=counted(problem.epochs, "epochs"),
        whole=exact(whole),
        once=once / whole,
        most="at most " if is_bound else "",
        pipeline=pipeline / whole,
    )
    if 2 * pipeline < once:
        return [sentence, _SENTENCES["start"]]
    return [sentence]


def _size_rank(share: PipelineShare) -> tuple[bool, int]:
    """The order of trainings: those at the model's own batch first, then by their samples."""
    problem = share.training.problem
    return problem.batch != networks.find(problem.model).batch, problem.samples
