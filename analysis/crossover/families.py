"""Families of problems that differ in one size alone, along which a crossover can be searched: square products in n,
convolutions in batch, channels or image size, the products of a dense layer in its batch.
"""

from collections.abc import Mapping

import msgspec

from analysis.stats import best_by, call_s, group_by, quick_seconds
from kernels import registry
from kernels.problems import Conv, Matmul, Problem
from kernels.problems.arrays import precision
from workloads.records import Measurement, Measurements, settings

# What varies -> the fields of the problem that are that size.
CONV_FIELDS = {"batch": ("n",), "channels": ("c_in", "c_out"), "size": ("h", "w")}
# the batch is summed over where the weights' gradient is made
_DENSE_FIELDS = {"nn": ("m",), "nt": ("m",), "tn": ("k",)}
_BEYOND = ("batch", "epilogue")  # fields of a product that is more than one plain product
# Sizes that make a family by themselves. Two layers of a network that differ in channels or image size alone are no sweep.
LEAST = {"batch": 2, "channels": 3, "size": 3}


class Family(msgspec.Struct, frozen=True):
    """All problems of an operation that differ in one size. The arithmetic is not part of a family."""

    #: The operation: matmul, conv, training, inference.
    op: str
    #: The size that varies: n, batch, channels, size.
    varies: str
    #: The fields of the problem that are that size.
    fields: tuple[str, ...]
    #: (name, value) of the fields that all its problems share.
    fixed: tuple[tuple[str, str | int], ...] = ()

    def at(self, size: int, math: str) -> Problem:
        """The problem of that size in that arithmetic.

        Raises: ValueError where there is none.
        """
        dtype, math = precision(math)
        make = {"matmul": Matmul, "conv": Conv}[self.op]
        return make(**dict(self.fixed), **dict.fromkeys(self.fields, size), dtype=dtype, math=math)

    def size(self, problem: Problem) -> int:
        return getattr(problem, self.fields[0])

    def holds(self, problem: Problem) -> bool:
        fixed = dict.fromkeys(_BEYOND, msgspec.UNSET) | dict(self.fixed)
        if problem.op != self.op or any(getattr(problem, field, fixed[field]) != fixed[field] for field in _BEYOND):
            return False
        first, *others = self.fields
        size = getattr(problem, first)
        if any(getattr(problem, field) != size for field in others):
            return False
        if not self.fixed:
            return problem.layout == "nn"
        out = problem.out == dict(self.fixed).get("out", problem.dtype)
        return out and all(getattr(problem, name) == value for name, value in self.fixed)

    @property
    def size_name(self) -> str:
        """The name of the varying size, as written before `= 32`."""
        return {"size": "image side"}.get(self.varies, self.varies)


MANY_IN_ONE = "conv/tensorflow/held"  # stands for no side: it times 50 convolutions in a call, no call of a program
SQUARES = Family("matmul", "n", ("m", "n", "k"))  # one at a time
Rows = dict[str, dict[int, list]]  # precision -> size -> rows


def batch_family(problem: Problem) -> Family:
    """The family of a convolution, or of a dense layer's product, in its batch."""
    fields = CONV_FIELDS["batch"] if problem.op == "conv" else _DENSE_FIELDS[problem.layout]
    return Family(problem.op, "batch", fields, _fixed(problem, fields))


def precision_of(problem: Problem) -> str:
    """The arithmetic, and the output's type where it is another than the operands'."""
    out = problem.out
    return problem.math if out == problem.dtype else f"{problem.math} to {out}"


def is_rung(m: Measurement) -> bool:
    """Whether the row's kernel runs only when asked for."""
    return "rung" in m.notes


def framework_of(m: Measurement) -> str:
    """The framework that ran a row's kernel (tensorflow); "" for a library that was called by itself."""
    backend = m.backend
    return backend if backend in registry.FRAMEWORKS else ""


def comparable(measurements: Measurements, op: str, framework: str = "", cache: str = "warm") -> "list[Measurement]":
    """The rows of an operation that may stand for a side of a crossover: those of one framework, or of none. Left out are
    teaching rungs, fresh processes, 50 convolutions in a call, and rows that do not run by themselves (settings.ordinary)."""
    wanted = (op, framework, cache, "warm")
    return [
        m
        for m in measurements
        if (m.problem.op, framework_of(m), m.settings.cache, m.process) == wanted
        and not is_rung(m)
        and m.kernel != MANY_IN_ONE
        and settings.ordinary(m)
    ]


def best_resident(measurements: Measurements) -> dict[tuple[str, str], dict[int, Measurement]]:
    """(device, precision) -> n -> the fastest resident square matmul, on the clock that rooflines use. Where some sizes have a
    device clock, those without are left out: they contain launches too."""
    best: dict[tuple[str, str], dict[int, Measurement]] = {}
    for math, sizes in rows_of(measurements, SQUARES).items():
        for n in sorted(sizes):
            timed = [m for m in sizes[n] if m.mode == "resident" and quick_seconds(m)]
            for device, row in best_by(timed, lambda m: m.device, _device_clock_first).items():
                best.setdefault((device, math), {})[n] = row
    for key, by_size in best.items():
        with_device_clock = {n: row for n, row in by_size.items() if row.on("device")}
        if with_device_clock:
            best[key] = with_device_clock
    return best


def _device_clock_first(m: Measurement) -> tuple[bool, float]:
    """Seconds of a call; a GPU's row without a device clock counts as slower than all with one."""
    return m.on_gpu and m.on("device") is None, call_s(m)


def rows_of(measurements: Measurements, family: Family) -> Rows:
    """precision -> size -> the rows of one family that libraries ran by themselves, with warm caches."""
    return rows_in_family(comparable(measurements, family.op), family)


def rows_in_family(rows: Measurements, family: Family) -> Rows:
    """precision -> size -> the rows of one family among comparable rows."""
    return _by_size([m for m in rows if family.holds(m.problem)], family)


def conv_rows(rows: Measurements, least: Mapping[str, int] = LEAST) -> dict[Family, Rows]:
    """Family -> its convolutions among comparable rows, which differ in one size. A row may be in several. Families of channels
    have as many in as out, those of sizes square images. `least`: varying size -> number of sizes that make a family."""
    by_family: dict[Family, list[Measurement]] = {}
    for m in rows:
        for varies in least:
            fields = CONV_FIELDS[varies]
            values = {getattr(m.problem, field) for field in fields}
            if len(values) == 1:
                family = Family("conv", varies, fields, _fixed(m.problem, fields))
                by_family.setdefault(family, []).append(m)
    return _sweeps(by_family, least)


def dense_rows(rows: Measurements) -> dict[Family, Rows]:
    """Family -> products out of comparable rows that differ in a dense layer's batch alone: the rows of forward and dX, the inner
    dimension of dW. Also square products that are batched in a call, or have an epilogue, along n."""
    sweeps = _sweeps(group_by(rows, lambda m: batch_family(m.problem)), LEAST)
    for field in _BEYOND:
        values = {getattr(m.problem, field) for m in rows} - {msgspec.UNSET}
        for value in sorted(values):
            family = msgspec.structs.replace(SQUARES, fixed=(("layout", "nn"), (field, value)))
            squares = rows_in_family(rows, family)
            if squares:
                sweeps[family] = squares
    return sweeps


def _fixed(problem: Problem, fields: tuple[str, ...]) -> tuple[tuple[str, str | int], ...]:
    """(name, value) of all fields but the arithmetic and those that vary; the output's type only if it differs from the
    operands'."""
    values = msgspec.structs.asdict(problem)
    left_out = {*fields, "dtype", "math"}
    if values.get("out") == problem.dtype:
        left_out.add("out")
    return tuple((name, value) for name, value in values.items() if name not in left_out and value is not msgspec.UNSET)


def _by_size(rows: Measurements, family: Family) -> Rows:
    """precision -> size -> rows."""
    by_precision = group_by(rows, lambda m: precision_of(m.problem))
    sizes = {}
    for precision_name, group in by_precision.items():
        sizes[precision_name] = group_by(group, lambda m: family.size(m.problem))
    return sizes


def _sweeps(by_family: dict[Family, list[Measurement]], least: Mapping[str, int]) -> dict[Family, Rows]:
    """The families with at least `least` sizes in one precision."""
    sweeps = {}
    for family, family_rows in by_family.items():
        rows = _by_size(family_rows, family)
        most_sizes = max(len(sizes) for sizes in rows.values())
        if most_sizes >= least[family.varies]:
            sweeps[family] = rows
    return sweeps
