"""The small-dataset study, the transfer half: what copying the articles' data sets costs per batch, once per epoch and once
for all, and how much of that is the cost of the calls, whatever their bytes.

Times are those of rows of `python -m workloads.transfer --study small-dataset`; in between, of the law fitted to them.
"""

from collections.abc import Iterable
from math import prod

import msgspec

from analysis import table as cells
from analysis.roofline import links
from analysis.stats import Estimate, of
from analysis.units import digits, percent, seconds, size
from workloads.records import Measurement

ITEM_BYTES = {"float64": 8, "float32": 4, "uint8": 1}
BATCHES = (1, 8, 32, 64, 256, 2048)
CALL_ALONE = 4  # bytes of a copy that costs nothing but its call
_TINY = 1024  # no more than this counts as the call alone


class DataSet(msgspec.Struct, frozen=True):
    """`samples` of `shape`, trained on in batches of `batch` for `epochs`, as the articles `seeds` have it (Keras's default
    batch and one epoch where they do not say). `what`: its samples in words. `dtypes`: what they may be kept as, which the
    articles' own float64 is one of."""

    name: str
    seeds: tuple[str, ...]
    samples: int
    shape: tuple[int, ...]
    batch: int
    epochs: int
    what: str
    source: str
    dtypes: tuple[str, ...] = ("float32", "float64", "uint8")

    def nbytes(self, dtype: str, samples: int) -> int:
        """Bytes of so many samples, without their labels."""
        return samples * prod(self.shape) * ITEM_BYTES[dtype]

    def batches(self) -> tuple[int, ...]:
        """Batch sizes to look at, up to all samples in one."""
        found = {b for b in (*BATCHES, self.batch) if b < self.samples}
        return (*sorted(found), self.samples)


DATA = (
    DataSet(
        "CIFAR-10",
        ("S0", "S1a"),
        50_000,
        (32, 32, 3),
        32,
        10,
        "images",
        "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009)",
    ),
    DataSet(
        "MNIST",
        ("S2", "S1b"),
        60_000,
        (28, 28),
        32,
        5,
        "images",
        "Y. LeCun, C. Cortes, C. Burges, The MNIST Database; Fashion-MNIST (H. Xiao et al., 2017) is as large",
    ),
    DataSet(
        "peaks",
        ("S4",),
        40_000,
        (2,),
        40_000,
        2000,
        "points",
        "two coordinates on a 200 x 200 grid",
        ("float32", "float64"),
    ),
    DataSet(
        "cross-validation",
        ("S3a",),
        50_000,
        (1580,),
        8,
        1,
        "samples",
        "316 MB in 50,000 training samples, which come to 1580 float32 values each",
        ("float32",),
    ),
    DataSet("video", ("S3b",), 222, (299, 299, 3), 1, 1, "frames", "222 frames at the input size of Inception V3"),
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


class Cost(msgspec.Struct, frozen=True):
    """What copying a data set costs by one way in batches of `batch`, in seconds.

    call: one batch. epoch: all of them, the last smaller one counted. calls_alone: as many calls without bytes. whole: the
    set in one piece. how: measured, interpolated or extrapolated, the weakest of what went in.
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
    def nbytes(self) -> int:
        return self.data.nbytes(self.dtype, self.batch)

    @property
    def training(self) -> Estimate:
        """All epochs of the article, batch by batch."""
        return self.epoch * self.data.epochs


class Way:
    """One way of copying to the device: its rows by size, and the law between them."""

    def __init__(self, key: tuple[str, str], rows: "list[Measurement]", law: links.Link | None):
        self.name = WAYS.get(key) or f"{key[0].partition('/')[2]} of {key[1]} memory"
        self._at = {m.problem.nbytes: of(m.on("host-latency")) for m in rows}
        self._law = law

    def seconds(self, nbytes: int) -> tuple[Estimate, str] | None:
        """(seconds of a call that is waited for, how they are known); None where neither row nor law tells."""
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
        found |= {data.nbytes("float32", b) for b in {data.batch, 1, 32, 256, data.samples} if b <= data.samples}
        found |= {data.nbytes(dtype, data.samples) for dtype in data.dtypes}
        if rest := data.samples % data.batch:
            found.add(data.nbytes("float32", rest))
    return sorted(found)


def ways(measurements: "Iterable[Measurement]") -> list[Way]:
    """The ways of copying to the device that have rows: those of WAYS, or whatever there is where none of them was run."""
    rows = [
        m
        for m in measurements
        if m.problem.op == "transfer"
        and m.problem.direction == "h2d"
        and m.ok
        and not m.problem.compute
        and m.on("host-latency")
    ]
    fitted = links.fits(rows)
    found: dict[tuple[str, str], list] = {key: [] for key in WAYS}
    for m in rows:
        found.setdefault((m.kernel, m.problem.host_memory), []).append(m)
    named = any(found[key] for key in WAYS)
    return [
        Way(key, group, links.find(fitted, "h2d", key[1], key[0]))
        for key, group in found.items()
        if group and (key in WAYS or not named)
    ]


def cost(way: Way, data: DataSet, dtype: str, batch: int) -> Cost | None:
    """What the data set costs by that way in batches of that size; None where its times are not known."""
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


def costs(measurements: "Iterable[Measurement]", data: tuple[DataSet, ...] = DATA) -> tuple[Cost, ...]:
    """Every data set, type, batch size and way whose times are known."""
    found = ways(measurements)
    every = (cost(way, d, dtype, batch) for d in data for dtype in d.dtypes for batch in d.batches() for way in found)
    return tuple(c for c in every if c)


def sentence(c: Cost) -> str:
    """`60,000 float32 MNIST images in batches of 32 by ndarray.set: copies take 41 ms an epoch, 68 % of it the calls. ...`"""
    what = f"{c.data.samples:,} {c.dtype} {c.data.name} {c.data.what}"
    told = f"{what} {_batches(c)} by {c.way}: copies take {seconds(c.epoch.value)} an epoch"
    if c.calls_alone:
        share = percent(min(1.0, c.calls_alone.value / c.epoch.value))
        told += f", {share} of it the call{'s' * (c.calls > 1)}"
    whole = f" In one piece they take {seconds(c.whole.value)}." if c.whole and c.calls > 1 else ""
    return f"{told}.{whole}{_how(c)}"


def _batches(c: Cost) -> str:
    """`in batches of 32`, `one image at a time`, `in one piece`."""
    if c.calls == 1:
        return "in one piece"
    return f"one {c.data.what.removesuffix('s')} at a time" if c.batch == 1 else f"in batches of {c.batch:,}"


def _how(c: Cost) -> str:
    where = {"interpolated": "between", "extrapolated": "beyond"}
    return f" {c.how.capitalize()} {where[c.how]} the sizes measured." if c.how in where else ""


def _ways_sentence(group: list[Cost]) -> list[str]:
    """The fastest way and the slowest."""
    if len(group) < 2:
        return []
    first, last = (pick(group, key=lambda c: c.epoch.value) for pick in (min, max))
    name = f"{first.data.name} {_batches(first)}"
    fast, slow = (seconds(c.epoch.value) for c in (first, last))
    return [f"{name}: {fast} an epoch by {first.way}, the fastest; {slow} by {last.way}."]


def _type_sentence(group: list[Cost]) -> list[str]:
    """What the type of the input does to an epoch, against float32."""
    base = next((c for c in group if c.dtype == "float32"), None)
    if base is None:
        return []
    return [
        f"{c.data.name} {_batches(c)} as {c.dtype}: {seconds(c.epoch.value)} an epoch, "
        f"{digits(c.epoch.value / base.epoch.value)}x the float32 copies."
        for c in group
        if c.dtype != "float32"
    ]


def _batch_sentence(group: list[Cost]) -> list[str]:
    """What the batch size does to an epoch: the smallest and the largest batch."""
    some = sorted((c for c in group if c.calls_alone and c.calls > 1), key=lambda c: c.batch)
    if len(some) < 2:
        return []
    ends = [f"{seconds(c.epoch.value)} {_batches(c)}" for c in (some[0], some[-1])]
    return [f"{some[0].data.name} in {some[0].dtype} by {some[0].way}, an epoch: {' and '.join(ends)}."]


def sentences(measurements: "Iterable[Measurement]", data: tuple[DataSet, ...] = DATA) -> list[str]:
    """What the study found: each data set at its own batch by the plainest way, then the ways, the batch sizes and the types."""
    every = costs(measurements, data)
    said: list[str] = []
    for d in data:
        own = [c for c in every if c.data == d]
        if not own:
            continue
        plain = [c for c in own if c.way == own[0].way]
        said += [sentence(c) for c in plain if (c.dtype, c.batch) == ("float32", d.batch)]
        said += _ways_sentence([c for c in own if (c.dtype, c.batch) == ("float32", d.batch)])
        said += _batch_sentence([c for c in plain if c.dtype == "float32"])
        said += _type_sentence([c for c in plain if c.batch == d.batch])
    return said


def table(measurements: "Iterable[Measurement]", data: tuple[DataSet, ...] = DATA) -> list[str]:
    """Every data set at its own batch in float32 by every way, as the lines of a Markdown table; empty without rows."""
    own = [c for c in costs(measurements, data) if (c.dtype, c.batch) == ("float32", c.data.batch)]
    if not own:
        return []
    return cells.table(_HEADS, map(_cells, own), 12)


_HEADS = (
    "data set | batch | bytes a call | calls an epoch | way | a call | an epoch | of it the calls | an epoch in one piece | "
    "training, batch by batch | once for all | times"
)


def _cells(c: Cost) -> list[str]:
    whole = seconds(c.whole.value) if c.whole else "-"
    share = percent(min(1.0, c.calls_alone.value / c.epoch.value)) if c.calls_alone else "-"
    epochs = f"{seconds(c.training.value)} ({c.data.epochs:,} epoch{'s' * (c.data.epochs != 1)})"
    return [
        c.data.name,
        f"{c.batch:,}",
        size(c.nbytes),
        f"{c.calls:,}",
        c.way,
        seconds(c.call.value),
        seconds(c.epoch.value),
        share,
        whole,
        epochs,
        whole,
        c.how,
    ]


def lines(measurements: "Iterable[Measurement]", data: tuple[DataSet, ...] = DATA) -> list[str]:
    """The study as Markdown: a table, then sentences; empty without copies to the device."""
    rows = list(measurements)
    made = table(rows, data)
    return [*made, *(f"- {s}" for s in sentences(rows, data))] if made else []
