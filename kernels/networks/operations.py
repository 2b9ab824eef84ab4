"""Operation: what a training step is made of, as its trace has it. Sizes, FLOPs and bytes are straight lines of the batch."""

import math
from typing import Literal

import msgspec

from kernels.networks import flops
from kernels.problems import Conv, Matmul
from kernels.problems.arrays import ITEM_BYTES

Kind = Literal[
    "matmul",
    "conv",
    "fft",
    "reduction",
    "pooling",
    "normalization",
    "gather",
    "scatter",
    "element-wise",
    "movement",
    "view",
    "host",
    "other",
]
Phase = Literal["forward", "gradient", "update"]
#: Bytes of an item by TensorFlow's name of its type. Handles and lists of tensors count nothing: the operations that read what is
#: behind them do.
DTYPE_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
#: The operand of a product that is stored transposed: `nn` neither, `nt` B, `tn` A.
Layout = Literal["nn", "nt", "tn"]
#: A convolution's direction: the output from the images, the images' gradient, or the filters' gradient.
Direction = Literal["fprop", "dgrad", "wgrad"]


class Amount(msgspec.Struct, frozen=True, array_like=True):
    """A number that grows with the batch: fixed + per_sample x batch."""

    #: What does not depend on the batch.
    fixed: int = 0
    #: What one more sample adds.
    per_sample: int = 0

    def at(self, batch: int) -> int:
        """The number for a batch."""
        return self.fixed + self.per_sample * batch


Shape = tuple[Amount, ...]


def sizes(shape: Shape, batch: int) -> tuple[int, ...]:
    """The shape for a batch."""
    return tuple(side.at(batch) for side in shape)


class Array(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An array that an operation reads or writes."""

    #: Its sides; () of a single number.
    shape: Shape
    #: The type of its items, by TensorFlow's name: `float32`, `int64`, `resource`.
    dtype: str


class MatrixProduct(msgspec.Struct, frozen=True, kw_only=True, tag="matmul"):
    """C = A B for `count` pairs of matrices, A of m x k and B of k x n."""

    #: Rows of A and C.
    m: Amount
    #: Columns of B and C.
    n: Amount
    #: Columns of A, rows of B.
    k: Amount
    #: Products in one call.
    count: Amount = Amount(1)
    layout: Layout = "nn"

    def flops(self, batch: int) -> int:
        """FLOPs of all `count` products."""
        return flops.matrix_product(self.m.at(batch), self.n.at(batch), self.k.at(batch), self.count.at(batch))

    def problem(self, batch: int, dtype: str, arithmetic: str = "") -> Matmul | None:
        """The matmul problem whose measured rows give this product's time; None where a side is 0 or no kernel multiplies the
        type.

        arithmetic: such as `tf32`; "" for the type's default.
        """
        sides = sizes((self.m, self.n, self.k, self.count), batch)
        if min(sides) < 1 or dtype not in ITEM_BYTES:
            return None
        return Matmul(
            m=self.m.at(batch),
            n=self.n.at(batch),
            k=self.k.at(batch),
            dtype=dtype,
            math=arithmetic,
            layout=self.layout,
            batch=self.count.at(batch),
        )


class Convolution(msgspec.Struct, frozen=True, kw_only=True, tag="conv"):
    """A convolution in 1 to 3 dimensions, or one of its gradients. A one-dimensional one is of images that are a line high, as
    TensorFlow has it."""

    #: `dgrad` is a transposed convolution's forward pass too.
    direction: Direction
    #: Images of the batch.
    images: Amount
    #: Sides of an image, without its channels.
    image: Shape
    #: Sides of the output, without its filters; of a gradient, of the output that it belongs to.
    positions: Shape
    #: Channels of an image, all groups together.
    channels: int
    #: Filters of all groups together.
    filters: int
    #: Sides of the window, in taps.
    window: tuple[int, ...]
    #: Steps of the window along each side.
    strides: tuple[int, ...]
    #: Steps between the taps along each side.
    dilations: tuple[int, ...]
    #: Groups of channels, each with filters of its own: all channels of a depthwise convolution.
    groups: int = 1
    #: `same`, `valid`, or `explicit`.
    padding: str = "valid"
    #: Where the channels are: `NHWC`, `NCHW`, `NDHWC` or `NCDHW`.
    layout: str = "NHWC"

    def flops(self, batch: int) -> int:
        """FLOPs for a batch, the same in each direction."""
        return flops.convolution(
            images=self.images.at(batch),
            positions=sizes(self.positions, batch),
            window=self.window,
            channels=self.channels // self.groups,
            filters=self.filters,
        )

    def problem(self, batch: int, dtype: str, arithmetic: str = "") -> Conv | None:
        """The convolution problem whose measured rows give this one's time; None where no kernel measures such a one: three
        dimensions, dilated windows, two strides, padding that is neither `same` nor `valid`, an empty batch, a type that no
        kernel multiplies.

        arithmetic: such as `tf32`; "" for the type's default.
        """
        plain = len(self.window) == 2 and set(self.dilations) == {1} and len(set(self.strides)) == 1
        images = self.images.at(batch)
        if not plain or self.padding == "explicit" or images < 1 or dtype not in ITEM_BYTES:
            return None
        height, width = sizes(self.image, batch)
        return Conv(
            n=images,
            h=height,
            w=width,
            c_in=self.channels,
            c_out=self.filters,
            r=self.window[0],
            s=self.window[1],
            stride=self.strides[0],
            pad=self.padding,
            groups=self.groups,
            layout=self.layout,
            direction=self.direction,
            dtype=dtype,
            math=arithmetic,
        )


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of a training step, which may run several times in it. FLOPs and bytes are of one run."""

    #: TensorFlow's name of it: `Conv2DBackpropFilter`.
    type: str
    #: What prices it.
    kind: Kind
    #: The layer it comes from, by its name scope: `base/conv1`; "" of what belongs to no layer, such as the loss.
    layer: str
    phase: Phase
    #: The arrays it reads and writes.
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    flops: Amount
    #: Bytes that it must at least read: of a gather the rows that it takes, not the table.
    bytes_read: Amount
    bytes_written: Amount
    #: How often a step runs it: 1, or the time steps of the loop that it is in.
    runs: Amount = Amount(1)
    #: Sides of a matrix product or convolution; None of any other.
    product: MatrixProduct | Convolution | None = None
    #: Whether sizes, FLOPs, bytes and runs are straight lines of the batch. If not, all are those of the traced batch.
    scales: bool = True
    #: What is not sure of it: a loop whose end depends on the data; "" if nothing.
    doubt: str = ""
    #: Whether it belongs to a layer that Keras gives to cuDNN as a whole on a GPU: an LSTM or a GRU as it comes.
    in_cudnn: bool = False

    @property
    def dtype(self) -> str:
        """The type that it computes in: its result's, or its first array's where it gives none."""
        arrays = self.outputs or self.inputs
        return arrays[0].dtype if arrays else ""

    def step_flops(self, batch: int) -> int:
        """FLOPs of all its runs in a step."""
        return self.flops.at(batch) * self.runs.at(batch)

    def step_bytes(self, batch: int) -> int:
        """Bytes read and written by all its runs in a step."""
        return (self.bytes_read.at(batch) + self.bytes_written.at(batch)) * self.runs.at(batch)

    def problem(self, batch: int, arithmetic: str = "") -> Matmul | Conv | None:
        """The problem whose measured rows price one run; None of what its bytes or its kind's rows price."""
        if self.product is None:
            return None
        return self.product.problem(batch, self.dtype, arithmetic)


class TracedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of a model's training step."""

    #: The model, as the command names it.
    model: str
    #: The batch that was traced.
    batch: int
    operations: tuple[Operation, ...]
    #: The arrays of a batch without its targets.
    inputs: tuple[Array, ...] = ()
    #: The arrays of its targets and of their weights.
    targets: tuple[Array, ...] = ()
    #: How the samples reach the fit: numpy, tf.data, generator.
    residence: str = "numpy"
    #: Whether Keras has XLA compile it where there is a GPU: no with layers that XLA lacks, as a random rotation or cuDNN's LSTM.
    xla: bool = True
    #: Weights, and how many of them an optimizer changes.
    weights: int = 0
    trainable_weights: int = 0
    #: What was assumed or is not sure of the whole: made-up targets, a batch that cannot change.
    doubts: tuple[str, ...] = ()
    #: Versions of the libraries that traced it.
    tensorflow: str = ""
    keras: str = ""
    #: Hash of the user's files that it was traced from; "" of a model that has a name.
    source: str = ""
    #: Why TensorFlow does not trace it: it has no operations, and only a measurement tells its time. "" of a traced step.
    untraced: str = ""

    @property
    def fixed_share(self) -> float:
        """Share of the bytes that a step moves whose operations do not scale with the batch: their numbers are known at the
        traced batch alone."""
        fixed = total = 0
        for operation in self.operations:
            nbytes = operation.step_bytes(self.batch)
            total += nbytes
            if not operation.scales:
                fixed += nbytes
        return fixed / max(1, total)

    def step_flops(self, batch: int) -> int:
        """FLOPs of a step."""
        return sum(operation.step_flops(batch) for operation in self.operations)

    def product_flops(self, forward: bool = False) -> int:
        """FLOPs of the matrix products and convolutions of a step for each sample, at the traced batch; forward: of the
        forward pass alone."""
        total = 0
        for operation in self.operations:
            if operation.product is not None and (operation.phase == "forward" or not forward):
                total += operation.step_flops(self.batch)
        return total // self.batch

    def sample_bytes(self, dtype: str) -> int:
        """Bytes of one sample whose floating-point numbers are of the type `dtype`, with its targets but for single labels."""
        targets = [array for array in self.targets if math.prod(sizes(array.shape, 1)) > 1]
        total = 0
        for array in (*self.inputs, *targets):
            item_type = dtype if array.dtype == "float32" else array.dtype
            total += math.prod(sizes(array.shape, 1)) * DTYPE_BYTES.get(item_type, 0)
        return total

    def forward_bytes(self) -> tuple[int, int]:
        """(bytes that the forward pass writes, bytes of the largest array among them) for each sample, at the traced batch."""
        written = [
            operation.bytes_written.at(self.batch) * operation.runs.at(self.batch)
            for operation in self.operations
            if operation.phase == "forward"
        ]
        return sum(written) // self.batch, max(written, default=0) // self.batch
