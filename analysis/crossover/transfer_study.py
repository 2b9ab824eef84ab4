"""The small-dataset study, the transfer half: seconds to copy the articles' data sets by batch, once per epoch and in one
piece, and the share of that which is call overhead, whatever the bytes.

Times are those of rows of `python -m workloads.transfer --study small-dataset`; in between, of the law fitted to them.
"""

from collections.abc import Iterable
from math import prod

import msgspec

from analysis import labels
from analysis.roofline import links
from analysis.stats import Estimate, group_by, median_of
from analysis.table import Table, parsed
from analysis.units import digits, percent, seconds, size
from kernels.problems.arrays import ITEM_BYTES
from workloads.records import Measurements

BATCHES = (1, 8, 32, 64, 256, 2048)
CALL_ALONE = 4  # bytes of a copy that costs nothing but its call
_TINY = 1024  # no more than this counts as the call alone


class DataSet(msgspec.Struct, frozen=True):
    """`samples` of `shape`, trained on in batches of `batch` for `epochs`, as the articles `seeds` have it (Keras's default
    batch and one epoch where they do not say). `one`: a sample in a word. `dtypes`: what they may be kept as, which the
    articles' own float64 is one of."""

    name: str
    seeds: tuple[str, ...]
    samples: int
    shape: tuple[int, ...]
    batch: int
    epochs: int
    one: str
    dtypes: tuple[str, ...]

    def nbytes(self, dtype: str, samples: int) -> int:
        """Bytes of so many samples, without their labels."""
        return samples * prod(self.shape) * ITEM_BYTES.get(dtype, 1)

    def batches(self) -> tuple[int, ...]:
        """Batch sizes to look at, up to all samples in one."""
        found = {b for b in (*BATCHES, self.batch) if b < self.samples}
        return (*sorted(found), self.samples)


# Sources: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009); Y. LeCun, C. Cortes, C. Burges, The MNIST
# Database (Fashion-MNIST, H. Xiao et al., 2017, is as large); two coordinates on a 200 x 200 grid; 316 MB in 50,000 training
# samples, which come to 1580 float32 values each; 222 frames at the input size of Inception V3.
_DATA = """
    CIFAR-10         | S0 S1a | 50000 | 32 32 3   | 32    | 10   | image   | float32 float64 uint8
    MNIST            | S2 S1b | 60000 | 28 28     | 32    | 5    | image   | float32 float64 uint8
    peaks            | S4     | 40000 | 2         | 40000 | 2000 | point   | float32 float64
    cross-validation | S3a    | 50000 | 1580      | 8     | 1    | sample  | float32
    video            | S3b    | 222   | 299 299 3 | 1     | 1    | frame   | float32 float64 uint8
"""
DATA = tuple(
    DataSet(
        name, tuple(of_.split()), int(n), tuple(map(int, shape.split())), int(b), int(e), one, tuple(dtypes.split())
    )
    for name, of_, n, shape, b, e, one, dtypes in parsed(_DATA)
)
# Ways of copying in words, by kernel and host memory.
WAYS = {
    ("transfer/cupy/array", "pageable"): "ndarray.set",
    ("transfer/cupy/array", "pinned"): "ndarray.set from pinned memory",
    ("transfer/cupy/asarray", "pageable"): "cp.asarray",
    ("transfer/cupy/staged", "pageable"): "our staged copy",
    ("transfer/tensorflow/constant", "pageable"): "tf.constant",
    ("transfer/tensorflow/dataset", "pageable"): "tf.data with prefetch_to_device",
}
_HEADS = (
    "data set | batch | bytes a call | calls an epoch | way | a call | an epoch | of it the calls | once for all, in one piece | "
    "training, batch by batch | times"
)
_SAID = {
    "batch": "{data} in float32 by {way}, an epoch: {ends}.",
    "type": "{data} {batches} as {dtype}: {epoch} an epoch, {times}x the float32 copies.",
}


class Cost(msgspec.Struct, frozen=True):
    """Seconds to copy a data set by one way in batches of `batch`.

    call: one batch. epoch: all of them, a smaller last one included. calls_alone: as many calls without bytes. whole: the set
    in one piece. how: measured, interpolated or extrapolated, the least certain of its times.
    """

    data: DataSet
    dtype: str
    batch: int
    way: str
    call: Estimate
    epoch: Estimate
    calls_alone: Estimate | None
    whole: Estimate | None
    how: str

    @property
    def calls(self) -> int:
        return -(-self.data.samples // self.batch)

    @property
    def batches(self) -> str:
        """`in batches of 32`, `one image at a time`, `in one piece`."""
        if self.calls == 1:
            return "in one piece"
        return f"one {self.data.one} at a time" if self.batch == 1 else f"in batches of {self.batch:,}"

    @property
    def calls_share(self) -> str:
        """`49.9 %`: the calls of an epoch; "" where a call alone was not timed."""
        return percent(min(1.0, self.calls_alone.value / self.epoch.value)) if self.calls_alone else ""


class Way:
    """One way of copying to the device: its rows by size, and the law between them."""

    def __init__(self, key: tuple[str, str], rows: Measurements, law: links.Link | None):
        self.name = WAYS.get(key) or f"{labels.short(key[0])} of {key[1]} memory"
        self._at = {m.problem.nbytes: median_of(m.on("host-latency")) for m in rows}
        self._law = law

    def seconds(self, nbytes: int) -> tuple[Estimate, str] | None:
        """(seconds of a call that is waited for, "measured", "interpolated" or "extrapolated"); None without row and law."""
        if nbytes in self._at:
            return self._at[nbytes], "measured"
        if self._law is None:
            return None
        return self._law.seconds(nbytes), "extrapolated" if self._law.extrapolates(nbytes) else "interpolated"

    def call_alone(self) -> Estimate | None:
        """Seconds of the smallest copy measured, where it is small enough to be the call's own."""
        least = min(self._at, default=_TINY + 1)
        return self._at[least] if least <= _TINY else None


def sizes() -> list[int]:
    """The byte counts that the study measures, each once: the call alone; every data set in float32 at its own batch (and
    the smaller one that ends an epoch), one sample, 32, 256 and all of it; all of it in its other types. Other batches are
    read off the law."""
    found = {CALL_ALONE}
    for data in DATA:
        batches = {data.batch, 1, 32, 256, data.samples, data.samples % data.batch} - {0}
        found |= {data.nbytes("float32", b) for b in batches if b <= data.samples}
        found |= {data.nbytes(dtype, data.samples) for dtype in data.dtypes}
    return sorted(found)


def ways(measurements: Measurements) -> list[Way]:
    """The ways of copying to the device that have rows: those of WAYS, or whatever there is where none of them was run."""
    copies = (m for m in measurements if m.problem.op == "transfer" and m.ok and m.on("host-latency"))
    rows = [m for m in copies if m.problem.direction == "h2d" and not m.problem.compute]
    fitted, groups = links.fits(rows), group_by(rows, lambda m: (m.kernel, m.problem.host_memory))
    keys = [key for key in WAYS if key in groups] or groups
    return [Way(key, groups[key], links.find(fitted, "h2d", key[1], key[0])) for key in keys]


def cost(way: Way, data: DataSet, dtype: str, batch: int) -> Cost | None:
    """The cost of copying the data set that way in batches of that size; None where its times are not known."""
    full, rest = divmod(data.samples, batch)
    one = way.seconds(data.nbytes(dtype, batch))
    last = way.seconds(data.nbytes(dtype, rest)) if rest else one
    whole = way.seconds(data.nbytes(dtype, data.samples))
    if one is None or last is None:
        return None
    epoch = one[0] * full + last[0] if rest else one[0] * full
    alone = way.call_alone()
    known = [k[1] for k in (one, last, whole) if k]
    how = next(word for word in ("extrapolated", "interpolated", "measured") if word in known)
    calls = full + bool(rest)
    return Cost(data, dtype, batch, way.name, one[0], epoch, alone * calls if alone else None, whole and whole[0], how)


def costs(measurements: Measurements) -> list[Cost]:
    """Every data set, type, batch size and way whose times are known."""
    found = ways(measurements)
    every = (cost(way, d, dtype, batch) for d in DATA for dtype in d.dtypes for batch in d.batches() for way in found)
    return [c for c in every if c]


def sentences(found: Iterable[Cost]) -> list[str]:
    """Sentences on the first way of copying: the smallest and largest batch in float32, and the other types at a data set's own
    batch against float32."""
    told: list[str] = []
    for d, every in group_by(found, lambda c: c.data).items():
        plain = [c for c in every if c.way == every[0].way]
        own = {c.dtype: c for c in plain if c.batch == d.batch}
        base = own.pop("float32", None)
        some = [c for c in plain if c.dtype == "float32" and c.calls_alone and c.calls > 1]
        some.sort(key=lambda c: c.batch)
        if len(some) > 1:
            ends = " and ".join(f"{seconds(c.epoch.value)} {c.batches}" for c in (some[0], some[-1]))
            told.append(_SAID["batch"].format(data=d.name, way=some[0].way, ends=ends))
        for c in own.values() if base else ():
            words = {"epoch": seconds(c.epoch.value), "times": digits(c.epoch.value / base.epoch.value)}
            told.append(_SAID["type"].format(data=d.name, batches=c.batches, dtype=c.dtype, **words))
    return told


def lines(measurements: Measurements) -> list[str | Table]:
    """The study: every data set at its own batch in float32 by every way, then sentences; empty without copies to the
    device."""
    found = costs(measurements)
    own = [c for c in found if (c.dtype, c.batch) == ("float32", c.data.batch)]
    return [Table(_HEADS, map(_cells, own), 12), "", *(f"- {s}" for s in sentences(found))] if own else []


def _cells(c: Cost) -> list[str]:
    nbytes = size(c.data.nbytes(c.dtype, c.batch))
    calls = [f"{c.batch:,}", nbytes, f"{c.calls:,}", c.way, seconds(c.call.value), seconds(c.epoch.value)]
    whole = seconds(c.whole.value) if c.whole else "-"
    every = f"{seconds(c.epoch.value * c.data.epochs)} ({c.data.epochs:,} epoch{'s' * (c.data.epochs > 1)})"
    return [c.data.name, *calls, c.calls_share or "-", whole, every, c.how]
