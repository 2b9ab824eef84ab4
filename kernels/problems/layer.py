"""One layer of a model, by itself: its forward pass or one of its gradients."""

from typing import ClassVar

from kernels.problems.fields import Base, check_counts, check_word


class LayerCall(Base, frozen=True, tag="layer"):
    """A layer on a batch, in one direction: `fprop` gives its output, `wgrad` the gradient of its weights, `dgrad` that of its
    input, `backward` both gradients at once, as a training step has them.

    A gradient takes what the forward pass saved. FLOPs and bytes are counted where the layer is traced.
    """

    #: Its path in the model, `base/conv1`; of a layer alone its class, `Conv2D` or `file.py:Class`.
    layer: str
    #: Its class.
    kind: str
    direction: str
    #: Samples.
    batch: int
    #: Shapes of a sample's inputs, `32x32x3`, with blanks between several and the type where it is not float32: `200:int32`.
    input: str
    #: The arguments of a layer alone, as JSON; "" of a model's.
    arguments: str = ""
    #: The model it belongs to; "" of a layer alone.
    model: str = ""
    #: Layers of the model that are equal to it, itself among them.
    count: int = 1
    flops: int = 0
    #: Bytes of the arrays that go in and come out, weights among them, each once.
    bytes_moved: int = 0
    #: Bytes that the layers and the optimizer of the model's step read and write on the way forward; 0 of a layer alone.
    step_bytes: int = 0
    #: The arithmetic that its products may be computed in.
    math: str = "float32"
    op: ClassVar[str] = "layer"
    DIRECTIONS: ClassVar[tuple] = ("fprop", "wgrad", "dgrad", "backward")
    #: Parts of a training step that are no layer, as `layer` names them.
    LOSS: ClassVar[str] = "(loss and metrics)"
    OPTIMIZER: ClassVar[str] = "(optimizer)"

    def __post_init__(self):
        check_word("direction", self.direction, self.DIRECTIONS)
        check_counts(batch=self.batch, count=self.count)

    @property
    def dtype(self) -> str:
        return "float32"

    @property
    def patience_s(self) -> float:
        """Seconds to wait for a row beyond any other's: its model is built and traced, and XLA compiles it twice."""
        return 30.0
