"""Which layer an operation comes from: the name scopes that layers open while a step is traced."""

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from kernels.networks.operations import Phase
from workloads.frameworks import description
from workloads.frameworks.tracing.graph_calls import GRADIENT_SCOPE


class LayerScopes:
    """Name scope -> the layer that opened it, by the names of the layers around it and its own: `base/conv1`.

    Keras opens a scope several times, and TensorFlow numbers it each time: the scope `dense_1` may be of the layer `dense`.
    """

    def __init__(self, optimizers: set[str]):
        self.layers: dict[str, str] = {}
        #: The layers that Keras gives to cuDNN on a GPU.
        self._cudnn_layers: set[str] = set()
        self._optimizers = {re.compile(rf"{re.escape(name)}(_\d+)?") for name in optimizers}
        self._open: list[str] = []

    @contextlib.contextmanager
    def recording(self, model) -> Iterator[None]:
        """Records the scopes of all layers of a built model while it is traced."""
        wrapped = [layer for layer in model._flatten_layers() if "call" not in vars(layer)]
        for layer in wrapped:
            layer.call = self._recorded(layer, is_model=layer is model)
        try:
            yield
        finally:
            for layer in wrapped:
                del layer.call

    def _recorded(self, layer, is_model: bool):
        call = layer.call

        @functools.wraps(call)
        def recorded(*args, **keywords):
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

        return recorded

    def layer(self, path: str) -> str:
        """The innermost layer whose scope an operation's path lies in; "" of none."""
        scope = path.removeprefix(f"{GRADIENT_SCOPE}/")
        while "/" in scope:
            scope = scope.rpartition("/")[0]
            if scope in self.layers:
                return self.layers[scope]
        return ""

    def in_cudnn(self, layer: str) -> bool:
        """Whether a layer, or one around it, is given to cuDNN on a GPU."""
        around = [layer, *map(str, PurePosixPath(layer).parents)]
        return not self._cudnn_layers.isdisjoint(around)

    def phase(self, path: str) -> Phase:
        """Whether an operation belongs to the forward pass, to its gradient or to the optimizer's update."""
        parts = path.split("/")
        if any(name.fullmatch(parts[0]) for name in self._optimizers):
            return "update"
        return "gradient" if GRADIENT_SCOPE in parts else "forward"
