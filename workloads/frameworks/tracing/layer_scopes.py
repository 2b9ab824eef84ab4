"""Which layer an operation comes from: the name scopes that layers open while a step is traced."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kernels.networks.operations import Phase
from workloads.frameworks import description
from workloads.frameworks.tracing.graph_calls import GRADIENT_SCOPE

if TYPE_CHECKING:
    import keras


class LayerScopes:
    """Which layer of a model opened which name scope of a traced graph.

    Keras opens a scope several times, and TensorFlow numbers it each time: the scope `dense_1` may be of the layer `dense`.
    """

    def __init__(self, optimizers: set[str]):
        """optimizers: names of the model's optimizers, whose scopes begin with them."""
        #: Name scope -> the layer, by the names of the layers around it and its own: `base/conv1`.
        self.layers: dict[str, str] = {}
        #: The layers that Keras gives to cuDNN on a GPU.
        self._cudnn_layers: set[str] = set()
        self._optimizers = {re.compile(rf"{re.escape(name)}(_\d+)?") for name in optimizers}
        #: Names of the layers that are being called now, the outermost first.
        self._open: list[str] = []

    @contextlib.contextmanager
    def recording(self, model: "keras.Model") -> Iterator[None]:
        """A `with` block in which the scope of each layer of a built model is recorded when the layer is called.

        The `call` of each layer is replaced meanwhile. A layer that already has a `call` of its own as an attribute is left
        alone.
        """
        wrapped = [layer for layer in model._flatten_layers() if "call" not in vars(layer)]
        for layer in wrapped:
            layer.call = self._recording_call(layer, is_model=layer is model)
        try:
            yield
        finally:
            for layer in wrapped:
                del layer.call

    def _recording_call(self, layer: "keras.Layer", is_model: bool) -> Callable:
        """A function that does what the layer's `call` does and records the name scope that it is called in. is_model: whether it
        is the whole model, whose name is not part of its layers' paths."""
        call = layer.call

        @functools.wraps(call)
        def recording_call(*args: Any, **keywords: Any) -> Any:
            """Records the current name scope of TensorFlow as this layer's, then calls the layer."""
            import tensorflow

            name = "" if is_model else layer.name
            self._open.append(name)
            try:
                path = "/".join(part for part in self._open if part)
                self.layers[tensorflow.get_current_name_scope()] = path
                if description.has_cudnn_kernel(layer):
                    self._cudnn_layers.add(path)
                return call(*args, **keywords)
            finally:
                self._open.pop()

        return recording_call

    def layer(self, path: str) -> str:
        """The innermost layer that an operation of the graph belongs to, as `base/conv1`; "" where none does.

        path: names of the functions and scopes around the operation and its own, with `/` between them. The gradient of a layer
        belongs to the layer.
        """
        scope = path.removeprefix(f"{GRADIENT_SCOPE}/")
        while "/" in scope:
            scope = scope.rpartition("/")[0]
            if scope in self.layers:
                return self.layers[scope]
        return ""

    def in_cudnn(self, layer: str) -> bool:
        """Whether Keras gives a layer, or one around it, to cuDNN on a GPU. layer: its path, as `base/lstm`."""
        layer_and_parents = [layer, *map(str, PurePosixPath(layer).parents)]
        return not self._cudnn_layers.isdisjoint(layer_and_parents)

    def phase(self, path: str) -> Phase:
        """Whether an operation belongs to the forward pass, to the gradient or to the optimizer's update. path: as in `layer`."""
        parts = path.split("/")
        if any(name.fullmatch(parts[0]) for name in self._optimizers):
            return "update"
        return "gradient" if GRADIENT_SCOPE in parts else "forward"
