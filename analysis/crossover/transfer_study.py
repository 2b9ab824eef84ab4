"""The small-dataset study, the transfer half: seconds to copy the articles' data sets by batch, once per epoch and in one
piece, and the share of that which is call overhead, whatever the bytes.

Times are those of rows of `python -m workloads.transfer --study small-dataset`; at other sizes, of the line fitted to them,
seconds = latency + bytes / bandwidth (analysis.roofline.links).
"""

import itertools
from collections.abc import Iterable
from math import prod

import msgspec

from analysis import labels
from analysis.roofline import links
from analysis.stats import Estimate, group_by, median_of
from analysis.table import Table, parsed
from analysis.units import digits, percent, seconds, size
from kernels.problems.arrays import ITEM_BYTES
from workloads import terminal
from workloads.records import Measurements

BATCHES = (1, 8, 32, 64, 256, 2048)
CALL_ALONE = 4  # bytes of a copy that costs nothing but its call
_MOST_BYTES_ALONE = 1024  # a copy of at most so many bytes takes as long as one of 4


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """A data set of the articles, and how they train on it."""

    #: Its name.
    name: str
    #: The articles.
    seeds: tuple[str, ...]
    #: Training samples.
    samples: int
    #: Shape of a sample.
    shape: tuple[int, ...]
    #: Samples of a batch; Keras's default where the article does not say.
    batch: int
    #: Epochs; 1 where the article does not say.
    epochs: int
    #: What a sample is, in a word: image, point.
    one: str
    #: Types that its samples may be stored as, the articles' own among them.
    dtypes: tuple[str, ...]

    def nbytes(self, dtype: str, samples: int) -> int:
        """Bytes of so many samples stored as `dtype`, without their labels."""
        return samples * prod(self.shape) * ITEM_BYTES.get(dtype, 1)

    def batches(self) -> tuple[int, ...]:
        """The batch sizes of the study for this data set, smallest first; the last is all samples."""
        smaller = {batch for batch in (*BATCHES, self.batch) if batch < self.samples}
        return (*sorted(smaller), self.samples)


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


def _data_set(cells: list[str]) -> DataSet:
    """A data set from the cells of a row of _DATA, which are in the order of the record's fields."""
    field = dict(zip(DataSet.__struct_fields__, cells, strict=True))
    return DataSet(
        name=field["name"],
        seeds=tuple(field["seeds"].split()),
        samples=int(field["samples"]),
        shape=tuple(int(side) for side in field["shape"].split()),
        batch=int(field["batch"]),
        epochs=int(field["epochs"]),
        one=field["one"],
        dtypes=tuple(field["dtypes"].split()),
    )


DATA = tuple(_data_set(cells) for cells in parsed(_DATA))
# (kernel, kind of host memory) -> the method of copying in words.
METHODS = {
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
_TEMPLATES = {
    "batch": "{data} in float32 by {way}, an epoch: {ends}.",
    "type": "{data} {batches} as {dtype}: {epoch} an epoch, {times}x the float32 copies.",
}


class CopyCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds to copy a data set to the device by one method, batch by batch."""

    #: The data set.
    data: DataSet
    #: Type of its samples.
    dtype: str
    #: Samples of a batch.
    batch: int
    #: The method in words.
    method: str
    #: Copying one batch.
    call: Estimate
    #: Copying every batch once, a smaller last one included.
    epoch: Estimate
    #: As many calls without bytes; None where a call alone was not timed.
    calls_alone: Estimate | None
    #: The data set in one piece; None where its time is unknown.
    whole: Estimate | None
    #: measured, interpolated or extrapolated: the least certain origin of these times.
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
        """`49.9 %`: the share of an epoch's copies that the calls take, whatever the bytes; "" if a call alone was not timed."""
        return percent(min(1.0, self.calls_alone.value / self.epoch.value)) if self.calls_alone else ""


class CopyTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one copy to the device, which the host waits for."""

    seconds: Estimate
    #: measured, interpolated or extrapolated.
    origin: str


class CopyMethod:
    """One method of copying to the device: its measured seconds by size, and the line that was fitted to them."""

    def __init__(self, kernel: str, host_memory: str, rows: Measurements, line: links.Link | None):
        """kernel, host_memory: what copies, from pageable or pinned memory. rows: its rows. line: seconds by bytes, fitted to
        them; None where no line could be fitted."""
        self.name = METHODS.get((kernel, host_memory)) or f"{labels.short(kernel)} of {host_memory} memory"
        self._seconds_by_bytes = {m.problem.nbytes: median_of(m.on("host-latency")) for m in rows}
        self._line = line

    def time(self, nbytes: int) -> CopyTime | None:
        """The time of a copy of so many bytes, measured or by the line; None if neither is known."""
        if nbytes in self._seconds_by_bytes:
            return CopyTime(seconds=self._seconds_by_bytes[nbytes], origin="measured")
        if self._line is None:
            return None
        origin = "extrapolated" if self._line.extrapolates(nbytes) else "interpolated"
        return CopyTime(seconds=self._line.seconds(nbytes), origin=origin)

    def call_alone(self) -> Estimate | None:
        """Seconds of a call whatever its bytes: those of the smallest measured copy; None if that is no tiny one."""
        least_bytes = min(self._seconds_by_bytes, default=_MOST_BYTES_ALONE + 1)
        return self._seconds_by_bytes[least_bytes] if least_bytes <= _MOST_BYTES_ALONE else None


def sizes() -> list[int]:
    """The sizes in bytes of the copies that the study measures: a call alone; every data set in float32 at the article's batch
    (and the smaller one that ends an epoch), one sample, 32, 256 and all of it; all of it in its other types. Times of other
    batches are interpolated."""
    byte_counts = {CALL_ALONE}
    for data in DATA:
        last_batch = data.samples % data.batch
        for batch in (data.batch, 1, 32, 256, data.samples, last_batch):
            if 0 < batch <= data.samples:
                byte_counts.add(data.nbytes("float32", batch))
        for dtype in data.dtypes:
            byte_counts.add(data.nbytes(dtype, data.samples))
    return sorted(byte_counts)


def copy_methods(measurements: Measurements) -> list[CopyMethod]:
    """The measured methods of copying to the device: those of METHODS, or if none of them was measured, all others."""
    copies = (m for m in measurements if m.problem.op == "transfer" and m.ok and m.on("host-latency"))
    rows = [m for m in copies if m.problem.direction == "h2d" and not m.problem.compute]
    lines = links.fits(rows)
    groups = group_by(rows, lambda m: (m.kernel, m.problem.host_memory))
    keys = [key for key in METHODS if key in groups] or list(groups)
    methods = []
    for kernel, host_memory in keys:
        line = links.find(lines, "h2d", host_memory, kernel)
        methods.append(CopyMethod(kernel, host_memory, groups[kernel, host_memory], line))
    return methods


def cost(method: CopyMethod, data: DataSet, dtype: str, batch: int) -> CopyCost | None:
    """The cost of copying a data set, stored as `dtype`, by a method in batches of that many samples; None where the time of a
    batch is not known."""
    full_batches, samples_left = divmod(data.samples, batch)
    full = method.time(data.nbytes(dtype, batch))
    last = method.time(data.nbytes(dtype, samples_left)) if samples_left else full
    whole = method.time(data.nbytes(dtype, data.samples))
    if full is None or last is None:
        return None
    calls = full_batches
    epoch = full.seconds * full_batches
    if samples_left:
        calls += 1
        epoch = epoch + last.seconds
    alone = method.call_alone()
    origins = {time.origin for time in (full, last, whole) if time}
    least_certain = next(origin for origin in ("extrapolated", "interpolated", "measured") if origin in origins)
    return CopyCost(
        data=data,
        dtype=dtype,
        batch=batch,
        method=method.name,
        call=full.seconds,
        epoch=epoch,
        calls_alone=alone * calls if alone else None,
        whole=whole.seconds if whole else None,
        how=least_certain,
    )


def costs(measurements: Measurements) -> list[CopyCost]:
    """The cost of copying every data set in each of its types, by each method in each batch size, where the times are known."""
    methods = copy_methods(measurements)
    known = []
    for data in DATA:
        for dtype, batch in itertools.product(data.dtypes, data.batches()):
            for method in methods:
                copy_cost = cost(method, data, dtype, batch)
                if copy_cost is not None:
                    known.append(copy_cost)
    return known


def sentences(copy_costs: Iterable[CopyCost]) -> list[str]:
    """Sentences on each data set, copied by the first method: an epoch in the smallest and in the largest batch in float32, and
    an epoch in other types than float32 at the batch of the article."""
    lines: list[str] = []
    for data, group in group_by(copy_costs, lambda copy_cost: copy_cost.data).items():
        by_method = [copy_cost for copy_cost in group if copy_cost.method == group[0].method]
        lines += _batch_sentence(data, by_method)
        lines += _type_sentences(data, by_method)
    return lines


def _batch_sentence(data: DataSet, by_method: list[CopyCost]) -> list[str]:
    """A sentence on an epoch of copies in the smallest and in the largest batch, in float32; none with fewer than two batch
    sizes.

    by_method: the data set's costs by one method. One batch of all samples does not count.
    """
    several_calls = [c for c in by_method if c.dtype == "float32" and c.calls_alone and c.calls > 1]
    if len(several_calls) < 2:
        return []
    several_calls.sort(key=lambda c: c.batch)
    smallest, largest = several_calls[0], several_calls[-1]
    epochs = [f"{seconds(c.epoch.value)} {c.batches}" for c in (smallest, largest)]
    return [_TEMPLATES["batch"].format(data=data.name, way=smallest.method, ends=" and ".join(epochs))]


def _type_sentences(data: DataSet, by_method: list[CopyCost]) -> list[str]:
    """A sentence for each type but float32: an epoch of copies at the article's batch, as a multiple of that in float32.

    by_method: the data set's costs by one method.
    """
    by_type = {c.dtype: c for c in by_method if c.batch == data.batch}
    float32 = by_type.pop("float32", None)
    if float32 is None:
        return []
    lines = []
    for dtype, copy_cost in by_type.items():
        line = _TEMPLATES["type"].format(
            data=data.name,
            batches=copy_cost.batches,
            dtype=dtype,
            epoch=seconds(copy_cost.epoch.value),
            times=digits(copy_cost.epoch.value / float32.epoch.value),
        )
        lines.append(line)
    return lines


def study_table(copy_costs: Iterable[CopyCost]) -> Table:
    """A table of the costs in float32 at the articles' batches."""
    at_article_batch = [c for c in copy_costs if c.dtype == "float32" and c.batch == c.data.batch]
    return Table(_HEADS, map(_cells, at_article_batch), left=12)


def lines(measurements: Measurements) -> list[str | Table]:
    """The study as a table, then its sentences; empty without copies to the device."""
    copy_costs = costs(measurements)
    table = study_table(copy_costs)
    if not table.rows:
        return []
    return [table, "", *(terminal.Line(sentence, label="- ") for sentence in sentences(copy_costs))]


def _cells(copy_cost: CopyCost) -> list[str]:
    """The cells of a cost in a table with the columns _HEADS."""
    data = copy_cost.data
    epochs = "epoch" if data.epochs == 1 else "epochs"
    return [
        data.name,
        f"{copy_cost.batch:,}",
        size(data.nbytes(copy_cost.dtype, copy_cost.batch)),
        f"{copy_cost.calls:,}",
        copy_cost.method,
        seconds(copy_cost.call.value),
        seconds(copy_cost.epoch.value),
        copy_cost.calls_share or "-",
        seconds(copy_cost.whole.value) if copy_cost.whole else "-",
        f"{seconds(copy_cost.epoch.value * data.epochs)} ({data.epochs:,} {epochs})",
        copy_cost.how,
    ]
