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
    """All problems of an operation that share the `fixed` fields. varies: the size that differs (n, batch, channels, size).
    fields: its fields in the problem. The arithmetic is not part of a family."""

    op: str
    varies: str
    fields: tuple[str, ...]
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
    """(device, precision) -> n -> the fastest resident square matmul, on the clock that rooflines use."""
    found: dict = {}
    for math, sizes in rows_of(measurements, SQUARES).items():
        for n in sorted(sizes):
            timed = (m for m in sizes[n] if m.mode == "resident" and quick_seconds(m))
            # A GPU's row without a device clock holds launches too.
            best = best_by(timed, lambda m: m.device, lambda m: (m.on_gpu and m.on("device") is None, call_s(m)))
            for device, m in best.items():
                found.setdefault((device, math), {})[n] = m
    # Rows that lack a device clock where others have it are left out.
    return {key: {n: m for n, m in at.items() if m.on("device")} or at for key, at in found.items()}


def rows_of(measurements: Measurements, family: Family) -> Rows:
    """precision -> size -> the rows of one family that libraries ran by themselves, with warm caches."""
    return of_family(comparable(measurements, family.op), family)


def of_family(rows: Measurements, family: Family) -> Rows:
    """precision -> size -> the rows of one family among comparable rows."""
    return _by_size([m for m in rows if family.holds(m.problem)], family)


def conv_rows(rows: Measurements, least: Mapping[str, int] = LEAST) -> dict[Family, Rows]:
    """Family -> its convolutions among comparable rows, which differ in one size. A row may be in several. Families of channels
    have as many in as out, those of sizes square images. `least`: varying size -> number of sizes that make a family."""
    found: dict[Family, list[Measurement]] = {}
    for m in rows:
        for name in least:
            fields = CONV_FIELDS[name]
            if len({getattr(m.problem, field) for field in fields}) == 1:
                found.setdefault(Family("conv", name, fields, _fixed(m.problem, fields)), []).append(m)
    return _sweeps(found, least)


def dense_rows(rows: Measurements) -> dict[Family, Rows]:
    """Family -> products out of comparable rows that differ in a dense layer's batch alone: the rows of forward and dX, the inner
    dimension of dW. Also square products that are batched in a call, or have an epilogue, along n."""
    asked = [
        (name, of) for name in _BEYOND for of in sorted({getattr(m.problem, name) for m in rows} - {msgspec.UNSET})
    ]
    beyond = (msgspec.structs.replace(SQUARES, fixed=(("layout", "nn"), one)) for one in asked)
    squared = {family: own for family in beyond if (own := of_family(rows, family))}
    return _sweeps(group_by(rows, lambda m: batch_family(m.problem)), LEAST) | squared


def _fixed(problem: Problem, fields: tuple[str, ...]) -> tuple[tuple[str, str | int], ...]:
    """(name, value) of all fields but the arithmetic and those that vary; the output's type only if it differs from the
    operands'."""
    own = msgspec.structs.asdict(problem)
    left_out = {*fields, "dtype", "math"} | ({"out"} if own.get("out") == problem.dtype else set())
    return tuple((name, value) for name, value in own.items() if name not in left_out and value is not msgspec.UNSET)


def _by_size(rows: Measurements, family: Family) -> Rows:
    by_precision = group_by(rows, lambda m: precision_of(m.problem))
    return {name: group_by(own, lambda m: family.size(m.problem)) for name, own in by_precision.items()}


def _sweeps(found: dict[Family, list[Measurement]], least: Mapping[str, int]) -> dict[Family, Rows]:
    """The families with at least `least` sizes in one precision."""
    made = {family: _by_size(rows, family) for family, rows in found.items()}
    return {family: rows for family, rows in made.items() if max(map(len, rows.values())) >= least[family.varies]}
