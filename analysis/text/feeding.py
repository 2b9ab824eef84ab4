"""What it takes to get a batch into a training step, in words: how quick each way is, what limits it, its share of a step."""

from collections.abc import Iterable

from analysis.stats import exact, is_gpu, of
from analysis.table import Table
from analysis.text.sentences import NAMES, counted, say, time
from analysis.training import costs, feeding
from analysis.training.feeding import Law, Share
from analysis.units import bytes_rate, percent, size
from kernels.problems import Feeding
from kernels.problems.arrays import ITEM_BYTES
from workloads.records import Measurement

TITLE = "Feeding a training: how a batch gets into a step"
CHART = "A step with next to no arithmetic, by the bytes of its batch"
HEADS = "device | way | samples as | a call | a sample | bandwidth | within | sizes"
NOT_KNOWN = (
    "How quick batches come can't be told: too few sizes, or noisier than 25 %. Run it again with nothing beside it."
)
IMAGE = 32 * 32 * 3  # values of a CIFAR-10 image
BATCH = 2048
FASTER = 1.5  # times: from which on copies are quicker than the way that the batches come
MOST = 3  # shares told
_BROUGHT = {
    "numpy": "from NumPy arrays",
    "tf.data": "from tf.data",
    "generator": "from a generator",
    "prefetch": "prefetched to the device",
    Feeding.RESIDENT: "resident on the device",
}
_SAID = {
    "view": "{batch:,} {dtype} CIFAR-10 images take a step {ways} ({side}).",
    "plain": "{side}: {batch:,} CIFAR-10 images from NumPy arrays add {plain:time} to a step: {rate}.",
    "link": "CuPy copies as many bytes at {rates}, so {why} what limits.",
    "best": "{side}: quickest {way}, {best:time}.",
    "uint8": "{side}: kept as uint8 they add {small:time}.",
    "share": "{model:title}, {batch}: feeding is at most {share:share} of a step of {step:time} on the {side}.",
    "small": "{model:title}, {samples}, {epochs}: {whole:time} on the GPU, of which start-up and compilation are {once:share} "
    "and feeding the batches {fed:share}.",
    "start": "A small data set does not outlast the start; copies are not why it gains nothing.",
}


def side(device: str) -> str:
    """`GPU`, `CPU`; another than the first one as it is typed."""
    return NAMES.get(device, device)


def batch(m: Measurement) -> str:
    """`256 samples of 12,288 values, 12 MiB`."""
    return f"{m.problem.batch:,} samples of {m.problem.width:,} values, {size(m.problem.nbytes)}"


def samples_of(nbytes: float, dtype: str) -> float:
    """CIFAR-10 images that have so many bytes."""
    return nbytes / (IMAGE * ITEM_BYTES.get(dtype, 1))


def _images(dtype: str) -> tuple[int, int]:
    """(samples, bytes) of a batch of CIFAR-10 images."""
    return BATCH, BATCH * IMAGE * ITEM_BYTES.get(dtype, 1)


def cells(measurements: Iterable[Measurement]) -> list[tuple[str, ...]]:
    """The laws under HEADS."""
    return [
        (
            side(law.device),
            law.way,
            law.dtype if law.way != Feeding.RESIDENT else "any",
            time(law.call),
            time(law.sample) if law.sample.high else "-",
            bytes_rate(law.bandwidth.value) if law.byte.value else "-",
            percent(round(law.error, 3)),
            f"{size(law.low)} to {size(law.high)}",
        )
        for law in feeding.laws(measurements)
    ]


def lines(measurements: Iterable[Measurement]) -> list[str]:
    """The sentences and the laws for a terminal; empty without rows of the study."""
    rows = list(measurements)
    found = cells(rows)
    return sentences(rows) + (["", *Table(HEADS, found, 3).text()] if found else [])


def sentences(measurements: Iterable[Measurement]) -> list[str]:
    """Small data sets; how quick batches come on each device and what limits them; what share of measured steps they are."""
    rows = list(measurements)
    fitted = feeding.laws(rows)
    if not fitted and feeding.rows(rows):
        return [NOT_KNOWN]
    shares = feeding.shares(rows)
    by_device = (_device(fitted, rows, device) for device in sorted({law.device for law in fitted}, reverse=True))
    top = sorted(shares, key=lambda s: -s.share.value)[:MOST]
    return small_sentences(shares) + [line for told in by_device for line in told] + [*map(_share, top)]


def view_sentence(fitted: Iterable[Law], device: str, dtype: str) -> str:
    """How quick the ways of a view are, the quickest first."""
    own = [law for law in fitted if (law.device, law.dtype) == (device, dtype) and law.way != Feeding.RESIDENT]
    ranked = sorted((law.seconds(*_images(dtype)).value, law.way) for law in own)
    ways = ", ".join(f"{time(seconds)} {_BROUGHT[way]}" for seconds, way in ranked)
    return say(_SAID["view"], batch=BATCH, dtype=dtype, ways=ways, side=side(device)) if ways else ""


def _device(fitted: tuple[Law, ...], rows: list[Measurement], device: str) -> list[str]:
    """The plainest way on a device, the copies beside it, the quickest way, and the plainest with a byte a value."""
    if not (law := feeding.find(fitted, device, "numpy")):
        return []
    samples, nbytes = _images(law.dtype)
    adds = {
        x.way: feeding.beyond_resident(fitted, x, samples, nbytes)
        for x in fitted
        if (x.device, x.dtype) == (device, law.dtype) and x.way != Feeding.RESIDENT
    }
    plain, best = adds["numpy"], min(adds, key=lambda way: adds[way].value)
    name, rate = side(device), bytes_rate(nbytes / plain.value) if plain.value else "nothing that shows"
    told = [say(_SAID["plain"], side=name, batch=BATCH, plain=plain, rate=rate)]
    copies = _copies(rows, device, nbytes) if is_gpu(device) and plain.value else {}
    if copies:
        rates = " and ".join(f"{bytes_rate(rate)} from {memory} memory" for memory, rate in copies.items())
        free = min(copies.values()) * plain.value / nbytes > FASTER
        why = "the link is not" if free else "the copy from such memory is"
        told.append(say(_SAID["link"], rates=rates, why=why))
    if adds[best].high < plain.low:
        told.append(say(_SAID["best"], side=name, way=_BROUGHT[best], best=adds[best]))
    if byte := feeding.find(fitted, device, "numpy", "uint8"):
        small = feeding.beyond_resident(fitted, byte, *_images("uint8"))
        told.append(say(_SAID["uint8"], side=name, small=small))
    return told


def _copies(rows: list[Measurement], device: str, nbytes: int) -> dict[str, float]:
    """Host memory -> bytes a second of CuPy's copy of about as many bytes."""
    found: dict[str, Measurement] = {}
    for m in sorted(feeding.copies(rows, device), key=lambda m: abs(m.problem.nbytes - nbytes)):
        found.setdefault(m.problem.host_memory, m)
    return {memory: m.problem.nbytes / of(m.on("host-latency")).value for memory, m in found.items()}


def _share(s: Share) -> str:
    p = s.training.problem
    words = {"batch": counted(p.batch, "batch"), "share": min(1.0, s.share.value), "side": s.training.side}
    return say(_SAID["share"], model=p.model, step=s.cost.step, **words)


def small_sentences(shares: list[Share]) -> list[str]:
    """Where the time goes of the GPU's training with fewest samples: what it is that a small data set does not outlast."""
    known = [s for s in shares if s.training.on_gpu and s.cost.start]
    known = [s for s in known if s.training.problem.samples >= s.training.problem.batch]
    if not known:
        return []
    s = min(known, key=lambda s: s.training.problem.samples)
    p = s.training.problem
    parts = costs.parts(s.cost, p.epochs, p.steps)
    whole = costs.whole_training(s.cost, p.epochs, p.steps).value
    once = (parts["start-up"] + parts["build and compile"]).value
    fed = min((s.feeding * (p.epochs * p.steps)).value, whole - once)
    words = {"samples": counted(p.samples, "samples"), "epochs": counted(p.epochs, "epochs"), "whole": exact(whole)}
    told = say(_SAID["small"], model=p.model, once=once / whole, fed=fed / whole, **words)
    return [told, *[_SAID["start"]] * (2 * fed < once)]
