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
# Layout of a dense layer's product -> its size that is the batch: k in the gradient of the weights (tn), which sums over it.
_DENSE_FIELDS = {"nn": ("m",), "nt": ("m",), "tn": ("k",)}
# Fields of a product that are set only where a call does more than one plain product.
_BEYOND_ONE_PRODUCT = ("batch", "epilogue")
# What varies -> how many sizes must have been measured, so that two layers of a network that happen to differ in channels or
# image size alone are no family.
LEAST = {"batch": 2, "channels": 3, "size": 3}


class Family(msgspec.Struct, frozen=True):
    """All problems of an operation that differ in one size, along which a crossover is searched: n x n products for all n, or a
    convolution for all batches. Their arithmetic may differ."""

    #: The operation: matmul, conv, training, inference.
    op: str
    #: The size that varies: n, batch, channels, size.
    varies: str
    #: The fields of the problem that are that size.
    fields: tuple[str, ...]
    #: (name, value) of the fields that all its problems share.
    fixed: tuple[tuple[str, str | int], ...] = ()

    def at(self, size: int, math: str) -> Problem:
        """The problem of that size in an arithmetic such as float32 or tf32.

        Raises: ValueError where there is none.
        """
        dtype, math = precision(math)
        problem_class = {"matmul": Matmul, "conv": Conv}[self.op]
        return problem_class(**dict(self.fixed), **dict.fromkeys(self.fields, size), dtype=dtype, math=math)

    def size(self, problem: Problem) -> int:
        """The varying size of one of the family's problems."""
        return getattr(problem, self.fields[0])

    def holds(self, problem: Problem) -> bool:
        """Whether a problem belongs to the family."""
        fixed = dict.fromkeys(_BEYOND_ONE_PRODUCT, msgspec.UNSET) | dict(self.fixed)
        if problem.op != self.op:
            return False
        if any(getattr(problem, field, fixed[field]) != fixed[field] for field in _BEYOND_ONE_PRODUCT):
            return False
        sizes = {getattr(problem, field) for field in self.fields}
        if len(sizes) > 1:
            return False
        if not self.fixed:  # square products, whose operands are both stored row by row
            return problem.layout == "nn"
        has_same_out = problem.out == dict(self.fixed).get("out", problem.dtype)
        return has_same_out and all(getattr(problem, name) == value for name, value in self.fixed)

    @property
    def size_name(self) -> str:
        """The name of the varying size, as written before `= 32`."""
        return {"size": "image side"}.get(self.varies, self.varies)


# A kernel that takes no part in crossovers: it times 50 convolutions in a call, as no program calls them.
MANY_IN_ONE = "conv/tensorflow/held"
# Products of n x n matrices, one a call.
SQUARES = Family("matmul", "n", ("m", "n", "k"))
#: size -> the measurements of that size.
RowsBySize = dict[int, list[Measurement]]
#: precision -> size -> measurements.
RowsByPrecision = dict[str, RowsBySize]


def batch_family(problem: Problem) -> Family:
    """The family of a convolution, or of a dense layer's product, in its batch."""
    fields = CONV_FIELDS["batch"] if problem.op == "conv" else _DENSE_FIELDS[problem.layout]
    return Family(problem.op, "batch", fields, _fixed(problem, fields))


def precision_of(problem: Problem) -> str:
    """The arithmetic and, if it is not the operands' type, the output's type: `float32`, `bfloat16 to float32`."""
    out = problem.out
    return problem.math if out == problem.dtype else f"{problem.math} to {out}"


def is_rung(m: Measurement) -> bool:
    """Whether the row's kernel is one of those that teach an optimization and take no part in comparisons."""
    return "rung" in m.notes


def framework_of(m: Measurement) -> str:
    """The framework that ran a row's kernel (tensorflow); "" for a library that was called by itself."""
    backend = m.backend
    return backend if backend in registry.FRAMEWORKS else ""


def comparable(measurements: Measurements, op: str, framework: str = "", cache: str = "warm") -> "list[Measurement]":
    """The rows of an operation that may be compared with each other to find a crossover: run by one framework, or if it is "" by
    libraries called directly, with caches in one state (warm or cold). Left out are teaching kernels, calls in fresh processes,
    the kernel of 50 convolutions in a call, and work beside other work (settings.ordinary)."""
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
    """(device, precision) -> n -> the fastest product of n x n matrices that are on the device already. If a GPU's own clock
    timed some sizes, the others are left out: the host's clock includes the launch."""
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
    """Sort key: seconds of a call, but a GPU's row without samples of the device clock comes after all others."""
    return m.on_gpu and m.on("device") is None, call_s(m)


def rows_of(measurements: Measurements, family: Family) -> RowsByPrecision:
    """precision -> size -> the rows of one family that libraries ran with warm caches, without a framework."""
    return rows_in_family(comparable(measurements, family.op), family)


def rows_in_family(rows: Measurements, family: Family) -> RowsByPrecision:
    """precision -> size -> those of the rows whose problems are in the family."""
    return _by_size([m for m in rows if family.holds(m.problem)], family)


def conv_rows(rows: Measurements, least: Mapping[str, int] = LEAST) -> dict[Family, RowsByPrecision]:
    """The convolutions sorted into families, which differ in batch, channels or image size alone: family -> precision -> size ->
    rows. A row may be in several families.

    Where channels vary there are as many input as output channels; where the image size varies, images are square. `least`: what
    varies (batch, channels, size) -> the least number of sizes that make a family.
    """
    by_family: dict[Family, list[Measurement]] = {}
    for m in rows:
        for varies in least:
            fields = CONV_FIELDS[varies]
            values = {getattr(m.problem, field) for field in fields}
            if len(values) == 1:
                family = Family("conv", varies, fields, _fixed(m.problem, fields))
                by_family.setdefault(family, []).append(m)
    return _with_enough_sizes(by_family, least)


def dense_rows(rows: Measurements) -> dict[Family, RowsByPrecision]:
    """The matrix products sorted into families: family -> precision -> size -> rows. Products of dense layers differ in the
    batch, which is m in the forward pass and in the gradient of the inputs, and k in the gradient of the weights. Square products
    that are batched in one call, or have an epilogue, differ in n."""
    families = _with_enough_sizes(group_by(rows, lambda m: batch_family(m.problem)), LEAST)
    for field in _BEYOND_ONE_PRODUCT:
        values = {getattr(m.problem, field) for m in rows} - {msgspec.UNSET}
        for value in sorted(values):
            family = msgspec.structs.replace(SQUARES, fixed=(("layout", "nn"), (field, value)))
            squares = rows_in_family(rows, family)
            if squares:
                families[family] = squares
    return families


def _fixed(problem: Problem, varying: tuple[str, ...]) -> tuple[tuple[str, str | int], ...]:
    """(name, value) of the fields that all problems of a family share: without the `varying` ones, those of the arithmetic, and
    an output type that is just the operands'."""
    values = msgspec.structs.asdict(problem)
    left_out = {*varying, "dtype", "math"}
    if values.get("out") == problem.dtype:
        left_out.add("out")
    return tuple((name, value) for name, value in values.items() if name not in left_out and value is not msgspec.UNSET)


def _by_size(rows: Measurements, family: Family) -> RowsByPrecision:
    """precision -> size -> rows."""
    by_precision = group_by(rows, lambda m: precision_of(m.problem))
    sizes = {}
    for precision_name, group in by_precision.items():
        sizes[precision_name] = group_by(group, lambda m: family.size(m.problem))
    return sizes


def _with_enough_sizes(
    by_family: dict[Family, list[Measurement]], least: Mapping[str, int]
) -> dict[Family, RowsByPrecision]:
    """The families that have at least `least` sizes (by what varies) in some precision: family -> precision -> size -> rows."""
    enough = {}
    for family, family_rows in by_family.items():
        rows_by_precision = _by_size(family_rows, family)
        most_sizes = max(len(rows_by_size) for rows_by_size in rows_by_precision.values())
        if most_sizes >= least[family.varies]:
            enough[family] = rows_by_precision
    return enough
