"""Records of a TensorFlow graph's operations, their sizes as whole numbers of one batch. Imports no TensorFlow."""

import math

import msgspec

from kernels.networks.operations import DTYPE_BYTES


class GraphArray(msgspec.Struct, frozen=True, kw_only=True):
    """An array in a graph."""

    shape: tuple[int, ...]
    #: TensorFlow's name of its items' type.
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * DTYPE_BYTES.get(self.dtype, 0)


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a graph, entered functions and loops included."""

    #: Its names from the outermost graph inward, a function's or loop's first: `base/lstm/while/lstm_cell/MatMul`.
    path: str
    #: TensorFlow's name of what it does.
    type: str
    inputs: tuple[GraphArray, ...]
    outputs: tuple[GraphArray, ...]
    #: Its attributes that its work depends on: strides, padding, an einsum's equation.
    attributes: dict[str, str | int | tuple[int, ...]] = {}
    #: How often a step runs it.
    runs: int = 1
    #: What is not sure of that; "" if nothing.
    doubt: str = ""
