"""What it takes to get a batch into a training step, in words: how quick each way is, what limits it, its share of a step."""

from collections.abc import Iterable

from analysis.stats import Estimate, exact, is_gpu, of
from analysis.table import Table
from analysis.text.sentences import counted, time, title
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


def side(device: str) -> str:
    return "GPU" if is_gpu(device) else "CPU"


def batch(m: Measurement) -> str:
    """`256 samples of 12,288 values, 12 MiB`."""
    return f"{m.problem.batch:,} samples of {m.problem.width:,} values, {size(m.problem.nbytes)}"


def samples_of(nbytes: float, dtype: str) -> float:
    """CIFAR-10 images that have so many bytes."""
    return nbytes / (IMAGE * ITEM_BYTES.get(dtype, 1))


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
    devices = sorted({law.device for law in fitted}, reverse=True)
    shares = feeding.shares(rows)
    said = [line for device in devices for line in _device(fitted, rows, device)]
    top = sorted(shares, key=lambda s: -s.share.value)[:MOST]
    return small_sentences(shares, rows) + said + [share_sentence(s) for s in top]


def view_sentence(fitted: Iterable[Law], device: str, dtype: str) -> str:
    """How quick the ways of a view are, the quickest first."""
    own = [law for law in fitted if (law.device, law.dtype) == (device, dtype) and law.way != Feeding.RESIDENT]
    ranked = sorted(own, key=lambda law: law.seconds(*_images(law.dtype)).value)
    told = [f"{time(law.seconds(*_images(law.dtype)).value)} {_BROUGHT[law.way]}" for law in ranked]
    return f"{BATCH:,} {dtype} CIFAR-10 images take a step {', '.join(told)} ({side(device)})." if told else ""


def _images(dtype: str) -> tuple[int, int]:
    """(samples, bytes) of a batch of CIFAR-10 images."""
    return BATCH, BATCH * IMAGE * ITEM_BYTES.get(dtype, 1)


def _device(fitted: tuple[Law, ...], rows: list[Measurement], device: str) -> list[str]:
    """The plainest way on a device, the copies beside it, the quickest way, and the plainest with a byte a value."""
    if not (law := feeding.find(fitted, device, "numpy")):
        return []
    samples, nbytes = _images(law.dtype)
    plain = feeding.beyond_resident(fitted, law, samples, nbytes)
    said = [
        f"{side(device)}: {BATCH:,} CIFAR-10 images from NumPy arrays add {time(plain)} to a step: {_rate(nbytes, plain)}."
    ]
    said += [_limit(nbytes, plain, rows, device)] if is_gpu(device) else []
    ways = [
        x for x in fitted if (x.device, x.dtype) == (device, law.dtype) and x.way not in ("numpy", Feeding.RESIDENT)
    ]
    each = [(feeding.beyond_resident(fitted, x, samples, nbytes), x.way) for x in ways]
    best, way = min(each, key=lambda e: e[0].value, default=(plain, "numpy"))
    if best.high < plain.low:
        said.append(f"{side(device)}: quickest {_BROUGHT[way]}, {time(best)}.")
    if byte := feeding.find(fitted, device, "numpy", "uint8"):
        small = feeding.beyond_resident(fitted, byte, *_images("uint8"))
        said.append(f"{side(device)}: kept as uint8 they add {time(small)}.")
    return [line for line in said if line]


def _rate(nbytes: int, seconds: Estimate) -> str:
    return f"{bytes_rate(nbytes / seconds.value)}" if seconds.value else "nothing that shows"


def _limit(nbytes: int, plain: Estimate, rows: list[Measurement], device: str) -> str:
    """CuPy's copies of about as many bytes, and whether the link is what limits."""
    found: dict[str, Measurement] = {}
    for m in feeding.copies(rows, device):
        near = found.get(m.problem.host_memory)
        if near is None or abs(m.problem.nbytes - nbytes) < abs(near.problem.nbytes - nbytes):
            found[m.problem.host_memory] = m
    rates = {memory: m.problem.nbytes / of(m.on("host-latency")).value for memory, m in found.items()}
    if not rates or not plain.value:
        return ""
    told = " and ".join(f"{bytes_rate(rate)} from {memory} memory" for memory, rate in rates.items())
    free = min(rates.values()) * plain.value / nbytes > FASTER
    why = "so the link is not what limits" if free else "so the copy from such memory is what limits"
    return f"CuPy copies as many bytes at {told}, {why}."


def share_sentence(s: Share) -> str:
    """`CIFAR-10 CNN, batch 2,048: feeding is at most 31 % of a step of 11.6 ms on the GPU.`"""
    p = s.training.problem
    what = f"{title(p.model)}, {counted(p.batch, 'batch')}"
    step = f"a step of {time(s.cost.step)} on the {side(s.training.device)}"
    return f"{what}: feeding is at most {percent(min(1.0, s.share.value))} of {step}."


def small_sentences(shares: list[Share], rows: list[Measurement]) -> list[str]:
    """Where the time goes of the GPU's training with fewest samples: what it is that a small data set does not outlast."""
    known = [
        s
        for s in shares
        if s.training.on_gpu and s.cost.start and s.training.problem.samples >= s.training.problem.batch
    ]
    if not known:
        return []
    s = min(known, key=lambda s: s.training.problem.samples)
    p = s.training.problem
    parts = costs.parts(s.cost, p.epochs, p.steps)
    whole = costs.whole_training(s.cost, p.epochs, p.steps).value
    once = (parts["start-up"] + parts["build and compile"]).value
    fed = min((s.feeding * (p.epochs * p.steps)).value, whole - once)
    took = f"{title(p.model)}, {counted(p.samples, 'samples')}, {counted(p.epochs, 'epochs')}: {time(exact(whole))} on the GPU"
    return [
        f"{took}, of which start-up and compilation are {percent(once / whole)} and feeding the batches {percent(fed / whole)}.",
        *(
            ["A small data set does not outlast the start; copies are not why it gains nothing."]
            if 2 * fed < once
            else []
        ),
    ]
