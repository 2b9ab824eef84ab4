"""Traced steps by hand: arrays, operations and the updates of optimizers."""

from analysis.predict import step_work
from kernels.networks.operations import Amount, Array, MatrixProduct, Operation, TracedStep

BATCH = 10


def array(*sides, dtype="float32"):
    """An array whose sides are numbers, or Amounts where they grow with the batch."""
    return Array(shape=tuple(side if isinstance(side, Amount) else Amount(side) for side in sides), dtype=dtype)


def samples(*sides, dtype="float32"):
    """An array of a batch."""
    return array(Amount(0, 1), *sides, dtype=dtype)


def operation(type_name, kind, read, written, **changes):
    """An operation that reads and writes these arrays; those of its bytes that grow with the batch do so evenly."""
    fields = {
        "type": type_name,
        "kind": kind,
        "layer": "layer",
        "phase": "forward",
        "inputs": tuple(read),
        "outputs": tuple(written),
        "flops": Amount(),
        "bytes_read": total_bytes(read),
        "bytes_written": total_bytes(written),
    }
    return Operation(**{**fields, **changes})


def total_bytes(arrays) -> Amount:
    fixed = per_sample = 0
    for one in arrays:
        nbytes = 4
        for side in one.shape:
            nbytes *= side.fixed or side.per_sample
        if any(side.per_sample for side in one.shape):
            per_sample += nbytes
        else:
            fixed += nbytes
    return Amount(fixed, per_sample)


def product(m, n, k, layout="nn", **changes):
    """C = A B; m, n, k may be Amounts."""
    m, n, k = (side if isinstance(side, Amount) else Amount(side) for side in (m, n, k))
    sides = MatrixProduct(m=m, n=n, k=k, layout=layout)
    flops = Amount(sides.flops(0), sides.flops(1) - sides.flops(0))
    arrays = [array(m, k), array(k, n)]
    return operation("MatMul", "matmul", arrays, [array(m, n)], product=sides, flops=flops, **changes)


def step(*operations, **changes):
    fields = {"model": "mine.py:build", "batch": BATCH, "operations": operations, "inputs": (samples(6),)}
    return TracedStep(**{**fields, **changes})


def problems(kernels):
    return [kernel.problem for kernel in kernels]


HIDDEN = samples(8)
CHAIN = step(
    product(Amount(0, 1), 8, 6, layer="a"),
    operation("BiasAdd", "element-wise", [HIDDEN, array(8)], [HIDDEN], layer="a"),
    operation("Relu", "element-wise", [HIDDEN], [HIDDEN], layer="a"),
    operation("Mul", "element-wise", [HIDDEN, HIDDEN], [HIDDEN], layer="b"),
    operation("Sum", "reduction", [HIDDEN], [samples()], layer="b"),
    operation("Neg", "element-wise", [samples()], [samples()], layer="c"),
    operation("ReluGrad", "element-wise", [HIDDEN, HIDDEN], [HIDDEN], layer="a", phase="gradient"),
    operation("BiasAddGrad", "reduction", [HIDDEN], [array(8)], layer="a", phase="gradient"),
    product(6, 8, Amount(0, 1), "tn", layer="a", phase="gradient"),
)


def update(type_name, *sides, kind="element-wise"):
    """A part of an optimizer's update of a variable; one that sets it writes behind a handle."""
    value = array(*sides)
    if "Assign" in type_name:
        nbytes = total_bytes([value])
        read = Amount(2 * nbytes.fixed)
        changes = {"bytes_read": read, "bytes_written": nbytes, "phase": "update", "layer": ""}
        return operation(type_name, kind, [value], [], **changes)
    return operation(type_name, kind, [value, value], [value], phase="update", layer="")


def adam(*sides):
    names = ["Sub", "AssignAddVariableOp", "Square", "AssignAddVariableOp", "Sqrt", "RealDiv", "AssignSubVariableOp"]
    return [update(name, *sides) for name in names]


class Rows:
    """A profile whose passes take a second a megabyte, and products a second each."""

    machine = None

    def __init__(self, monkeypatch):
        def seconds(profile, problem, device, execution):
            from analysis.predict.profile import Read
            from analysis.stats import exact

            return Read(seconds=exact(problem.bytes_moved / 1e6 if problem.op == "stream" else 1.0), source="rows")

        monkeypatch.setattr(step_work, "pass_seconds", seconds)
        monkeypatch.setattr(step_work, "product", seconds)
        monkeypatch.setattr(step_work, "bandwidth_beyond_caches", lambda profile, device, nbytes: None)
