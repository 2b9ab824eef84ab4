"""A layer's forward pass and each gradient as graphs of their own: pruned, with what the forward pass saved as their inputs."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kernels.networks.operations import DTYPE_BYTES
from workloads.frameworks.layer_graphs.layer_use import LayerUse
from workloads.frameworks.tracing import walk
from workloads.frameworks.tracing.graph_node import GraphNode
from workloads.frameworks.tracing.node_work import work

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.python.eager.wrap_function import WrappedFunction

#: They read an array's shape, not the array.
_SHAPES_ALONE = frozenset({"Shape", "ShapeN", "Size", "Rank"})
#: They set a variable to what they compute from it.
_ASSIGNMENTS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
#: In their gradient's graph they stay: on a CPU oneDNN hands it what they note of the maxima, without which it looks for them
#: again and is 3 to 4 times slower than in a step.
_NOTING = frozenset({"MaxPool"})
#: By how much the seeds of random gradients are larger than those of random inputs, so that no tensor equals another.
_GRADIENT_SEEDS = 100
#: They read an element of a list that a loop saved.
_LIST_READS = frozenset({"TensorListPopBack", "TensorListGetItem"})


class DirectionGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A layer in one direction: a function of tensors that are there."""

    #: function(*arguments): its results.
    function: Callable
    #: Eager tensors: the inputs and the weights, or the output's gradient and what the forward pass saved.
    arguments: tuple
    #: How many of these, the first ones, the step computes right before: inputs, or the output's gradient.
    fresh: int
    #: Bytes of the other arguments and of the results.
    copied_bytes: int
    #: How many tensors it gives.
    results: int
    #: FLOPs of its operations.
    flops: int
    #: Bytes that go in and come out, each array once.
    bytes_moved: int
    #: FLOPs of its matrix products and convolutions.
    product_flops: int
    #: Whether it draws random numbers, so that no two calls give the same.
    is_random: bool
    #: reference(): the same results from the layer's whole graph, forward pass included.
    reference: Callable


class NoGradient(Exception):
    """A layer has nothing to differentiate in a direction."""


def direction_graph(use: LayerUse, direction: str, seed: int) -> DirectionGraph:
    """The graph of a layer in one direction, with random inputs to call it with and the work that it does.

    direction: fprop (the forward pass), wgrad and dgrad (the gradients of weights and inputs), or backward (both gradients). The
    graph of a gradient takes what the forward pass saved as its inputs and does not run that pass. seed: of the inputs.
    Raises: NoGradient where the layer has no weights, or no input that needs a gradient.
    """
    trace = _Trace(use, direction)
    inputs = [_random(spec, seed + number, use.limit) for number, spec in enumerate(use.specs)]
    gradients = []
    for number, placeholder in enumerate(trace.output_gradients):
        gradients.append(_random(placeholder, seed + _GRADIENT_SEEDS + number, limit=2))
    if direction == "fprop":
        weights = trace.weights_read(use)
        fresh = list(inputs)
        feeds = [*trace.inputs, *weights]
        arguments = [*fresh, *_values(trace, weights, inputs)]
        fetches = [*trace.outputs, *trace.saved_tensors(), *trace.assignments]
    else:
        saved = trace.saved
        fresh = gradients
        feeds = [*trace.output_gradients, *saved]
        arguments = [*fresh, *_values(trace, saved, inputs)]
        fetches = trace.results
    function = _pruned(trace.wrapped, feeds, fetches)
    whole = trace.wrapped.prune([*trace.inputs, *trace.output_gradients], trace.results or trace.outputs)
    nodes = walk.operations(function.graph, _input_values(function, arguments))
    results = len(trace.results or trace.outputs)
    copied = [*arguments[len(fresh) :], *function.outputs]
    return DirectionGraph(
        function=function,
        arguments=tuple(arguments),
        fresh=len(fresh),
        copied_bytes=sum(map(_nbytes, copied)),
        results=len(function.outputs),
        flops=sum(work(node).flops * node.runs for node in nodes),
        bytes_moved=_bytes_moved(function, nodes, results),
        product_flops=sum(work(node).flops * node.runs for node in nodes if work(node).product is not None),
        is_random=_draws_random_numbers(walk.operations(trace.wrapped.graph)),
        reference=lambda: whole(*inputs, *gradients),
    )


def _pruned(
    wrapped: "WrappedFunction", feeds: "list[tf.Tensor]", fetches: "list[tf.Tensor | tf.Operation]"
) -> "WrappedFunction":
    """The part of a traced graph that computes `fetches` from `feeds`, as a function of these tensors.

    TensorFlow's `prune` leaves in what is computed before the feeds, though nothing takes it. Applied again, it finds inputs in
    place of the feeds, and nothing before them.
    """
    function = wrapped.prune(feeds, fetches)
    if not function.outputs:
        return function
    captured = {id(placeholder) for _, placeholder in function.graph.captures}
    inputs = [tensor for tensor in function.inputs if id(tensor) not in captured]
    some_are_computed = any(tensor.op.type != "Placeholder" for tensor in feeds)
    return function.prune(inputs, function.outputs) if inputs and some_are_computed else function


def _input_values(function: "WrappedFunction", arguments: "Sequence[tf.Tensor]") -> dict[str, Any]:
    """The values of the function's inputs that are single whole numbers, which may bound a loop, by the name of the
    placeholder."""
    values = {}
    for placeholder, argument in zip(function.inputs, arguments, strict=False):  # behind these inputs come variables
        if placeholder.dtype.is_integer and not placeholder.shape.rank:
            values[placeholder.op.name] = argument.numpy()
    return values


def _draws_random_numbers(nodes: Iterable[GraphNode]) -> bool:
    return any("Random" in node.type for node in nodes)


class _Trace:
    """The graph of a layer's call together with the gradients that a direction wants.

    Its attributes are tensors and operations of that graph; parts of it are cut out later.
    """

    def __init__(self, use: LayerUse, direction: str):
        """Raises NoGradient where the layer has no such gradient."""
        import tensorflow

        self._forward_names: set[str] = set()
        #: Tensors of the graph: inputs, outputs that are differentiated, gradients of these, results of the direction.
        self.inputs: tuple = ()
        self.outputs: list = []
        self.output_gradients: list = []
        self.results: list = []
        #: Tensors of the forward pass that the gradients are computed from, but for constants.
        self.saved: list = []
        #: Operations of the forward pass that set variables.
        self.assignments: list = []

        def forward_and_gradients(*tensors: "tf.Tensor") -> "list[tf.Tensor]":
            self._differentiate(use, direction, tensors)
            return self.outputs

        self.wrapped = tensorflow.compat.v1.wrap_function(forward_and_gradients, list(use.specs))

    def _differentiate(self, use: LayerUse, direction: str, tensors: "tuple[tf.Tensor, ...]") -> None:
        """Calls the layer, computes its gradients, and notes which tensors and operations are which. TensorFlow calls this once,
        while it traces. tensors: the placeholders of the layer's inputs."""
        import tensorflow

        sources = _sources(use, direction, tensors)
        with tensorflow.GradientTape(watch_accessed_variables=False) as tape:
            for source in sources:
                tape.watch(source)
            results = use.call(*tensors)
        graph = tensorflow.compat.v1.get_default_graph()
        forward = graph.get_operations()
        self.inputs = tensors
        self.assignments = [operation for operation in forward if operation.type in _ASSIGNMENTS]
        self.outputs = _tensors(results)
        floating = [tensor for tensor in self.outputs if tensor.dtype.is_floating]
        self._forward_names = {operation.name for operation in forward}
        output_gradients = [tensorflow.compat.v1.placeholder(t.dtype, t.shape) for t in floating]
        gradients = _gradients(tape, floating, sources, output_gradients, is_needed=direction != "fprop")
        self.saved = self._saved(gradients, output_gradients)
        if direction == "fprop":
            return
        self.output_gradients = output_gradients
        self.results = gradients
        if not gradients:
            raise NoGradient("no gradient reaches it")

    def saved_tensors(self) -> "list[tf.Tensor]":
        """What the forward pass of a training computes only for the gradients: neither its inputs and weights nor its outputs.

        A list of tensors that a loop saves cannot be an output of a function: its length is taken, which needs the whole list.
        """
        import tensorflow

        known = {tensor.name for tensor in (*self.inputs, *self.outputs)}
        tensors = []
        for tensor in self.saved:
            if tensor.name in known or tensor.op.type in ("ReadVariableOp", "Placeholder"):
                continue
            if tensor.dtype == tensorflow.variant:
                with self.wrapped.graph.as_default():
                    tensors.append(tensorflow.raw_ops.TensorListLength(input_handle=tensor))
            else:
                tensors.append(tensor)
        return tensors

    def weights_read(self, use: LayerUse) -> "list[tf.Tensor]":
        """The tensors that the forward pass reads its weights into. Weights that are read inside a loop are not among them."""
        handles = {id(weight.handle) for weight in use.weights}
        graph = self.wrapped.graph
        captured = {inside.op.name for outside, inside in graph.captures if id(outside) in handles}
        weights = []
        for operation in graph.get_operations():
            is_read = operation.type == "ReadVariableOp" and operation.inputs[0].op.name in captured
            if is_read:
                weights.append(operation.outputs[0])
        return weights

    def _saved(self, results: "list[tf.Tensor]", output_gradients: "list[tf.Tensor]") -> "list[tf.Tensor]":
        """The tensors of the forward pass that gradients are computed from, without constants.

        results: the gradients. output_gradients: what they are given besides, which is no tensor of the forward pass. An
        operation of _NOTING counts as part of the gradient: what it takes is among the tensors in its place.
        """
        saved: dict[str, Any] = {}
        gradients = {tensor.op.name for tensor in output_gradients}
        visited: set[str] = set()
        to_do = list(results)
        while to_do:
            tensor = to_do.pop()
            operation = tensor.op
            if operation.type == "Const" or operation.name in gradients:
                continue
            if operation.type in _NOTING:
                to_do += operation.inputs
            elif operation.name in self._forward_names or operation.type == "Placeholder":
                saved[tensor.name] = tensor
            elif operation.name not in visited:
                visited.add(operation.name)
                to_do += operation.inputs
        return list(saved.values())


def _gradients(
    tape: "tf.GradientTape", outputs: list, sources: list, output_gradients: list, *, is_needed: bool
) -> "list[tf.Tensor]":
    """The gradients of the outputs by those of the sources that they depend on. output_gradients: of a loss by each output.

    is_needed: whether to raise where an operation has no gradient; else there are none then.
    Raises: LookupError.
    """
    try:
        gradients = tape.gradient(outputs, sources, output_gradients)
    except LookupError:
        if is_needed:
            raise
        return []
    return _tensors([gradient for gradient in gradients if gradient is not None])


def _sources(use: LayerUse, direction: str, tensors: "Sequence[tf.Tensor]") -> "list[tf.Tensor | tf.Variable]":
    """The weights and inputs of a layer by which it is differentiated in a direction. tensors: its inputs.

    Raises: NoGradient where it has none.
    """
    inputs = [tensor for tensor, needed in zip(tensors, use.differentiable, strict=True) if needed]
    if direction in ("wgrad", "backward") and not use.weights:
        raise NoGradient("no weights to learn")
    if direction in ("dgrad", "backward") and not inputs:
        raise NoGradient("no input that needs a gradient")
    if direction == "wgrad":
        return list(use.weights)
    if direction == "dgrad":
        return inputs
    return [*use.weights, *inputs]


def _tensors(structure: Any) -> "list[tf.Tensor]":
    """The tensors in lists, tuples and dictionaries of them. A sparse gradient of an embedding has two: rows and their
    indices."""
    import tensorflow

    tensors = []
    for leaf in tensorflow.nest.flatten(structure, expand_composites=True):
        if tensorflow.is_tensor(leaf):
            tensors.append(leaf)
    return tensors


def _random(spec: "tf.TensorSpec | tf.Tensor", seed: int, limit: int) -> "tf.Tensor":
    """A random tensor of the type and shape of another: normally distributed numbers, or whole ones from 0 to below `limit`.
    Conditions are all true."""
    import tensorflow

    if spec.dtype.is_floating:
        return tensorflow.cast(tensorflow.random.stateless_normal(spec.shape, (seed, 0)), spec.dtype)
    if spec.dtype == tensorflow.bool:
        return tensorflow.ones(spec.shape, spec.dtype)
    whole = tensorflow.random.stateless_uniform(spec.shape, (seed, 0), 0, limit, tensorflow.int32)
    return tensorflow.cast(whole, spec.dtype)


def _values(trace: _Trace, saved: "list[tf.Tensor]", inputs: "list[tf.Tensor]") -> "list[tf.Tensor]":
    """The values that tensors of the traced graph have for these inputs, as eager tensors."""
    value_of = {tensor.name: value for tensor, value in zip(trace.inputs, inputs, strict=True)}
    computed = [tensor for tensor in saved if tensor.name not in value_of]
    if computed:
        values = trace.wrapped.prune(list(trace.inputs), computed)(*inputs)
        value_of |= dict(zip([tensor.name for tensor in computed], values, strict=True))
    return [value_of[tensor.name] for tensor in saved]


def _bytes_moved(function: "WrappedFunction", nodes: list[GraphNode], results: int) -> int:
    """Bytes that a call has to move at least: of inputs, of variables that are read or set, and of its first `results` outputs,
    each once. Of lists that a loop saved, the elements that are read count.

    Outputs behind the first ones are what a forward pass saves for the gradients; they could be computed again. nodes: the
    function's operations.
    """
    read = sum(_nbytes(tensor) for tensor in function.inputs if _is_read(tensor))
    written = sum(_nbytes(tensor) for tensor in function.outputs[:results])
    read += sum(_nbytes(variable) for variable in _variables(function))
    for node in nodes:
        if node.type in _ASSIGNMENTS:
            written += node.inputs[-1].nbytes * node.runs
        if node.type in _LIST_READS:
            read += node.outputs[-1].nbytes * node.runs
    return read + written


def _variables(function: "WrappedFunction") -> "list[tf.Variable]":
    """The variables that operations of a function read or set."""
    handles = {id(handle) for handle, placeholder in function.graph.captures if placeholder.consumers()}
    return [variable for variable in function.graph.variables if id(variable.handle) in handles]


def _is_read(tensor: "tf.Tensor") -> bool:
    """Whether an operation of the graph reads the numbers of an input, and not only its shape."""
    return any(operation.type not in _SHAPES_ALONE for operation in tensor.consumers())


def _nbytes(tensor: "tf.Tensor | tf.Variable") -> int:
    """Bytes of a tensor; sides that are not known count as 1."""
    sides = [side or 1 for side in tensor.shape.as_list()] if tensor.shape.rank is not None else []
    return math.prod(sides) * DTYPE_BYTES.get(tensor.dtype.base_dtype.name, 0)
