"""The training step of a user's model, traced: built by Keras, traced at two batches, described as operations."""

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from kernels import networks
from kernels.networks import Network, operations
from kernels.networks.operations import Amount, Array, TracedStep
from workloads.frameworks import description, models, user_model
from workloads.frameworks.tracing import step_inputs, straight_lines, user_files, walk
from workloads.frameworks.tracing.fit_data import FitData
from workloads.frameworks.tracing.layer_scopes import LayerScopes
from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.tracing.step_inputs import TAKE_DATA, StepInputs
from workloads.harness.dispatch import Broken, described

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from tensorflow.python.framework.func_graph import FuncGraph

RUNS_EAGERLY = "it is compiled with run_eagerly=True"
FIXED_BATCH = "the step does not trace at another batch: its numbers are those of this one"


class NotTraced(Broken):
    """A model's own `train_step` does not trace."""

    def __init__(self, reason: str, inputs: StepInputs):
        super().__init__(reason)
        #: What the step takes.
        self.inputs = inputs


def traced(name: str, batch: int, data: str = "", length: int = 0) -> Network:
    """The Network of a model, with the operations of its training step on `batch` samples.

    name: a network of kernels.networks, else a user's model: `file.py:function`, `package.module:function` or a .keras file.
    data: the user's function that returns the samples, by the same kind of name. Without it the samples are made up, and each
    side that the model leaves open (None in its input shape) is `length` long.
    Raises: Broken with what to change where the model does not build, compile or trace.
    """
    network = networks.known(name)  # None for a user's model
    model = models.build(network) if network else user_model.opened(name)
    require_tensorflow()
    candidates: Iterable[StepInputs]
    numbers: FitData | None = None
    if data:
        inputs, numbers, _ = step_inputs.from_data(data, batch)
        candidates = [inputs]
    else:
        candidates = step_inputs.synthetic(model, name, batch, length)
    chosen_for_user = compile_where_it_is_not(model, name)
    step = traced_model(model, name, candidates)
    if network:
        return msgspec.structs.replace(network, layers=(), traced=step)
    step = msgspec.structs.replace(step, source=user_files.hash_of_modules(name, data))
    if numbers is not None:
        step = msgspec.structs.replace(step, residence=numbers.residence)
    described = network_of(model, name, step)
    if numbers is not None:
        described = msgspec.structs.replace(described, samples=numbers.samples or 0)
    return msgspec.structs.replace(described, compiled_for_user=chosen_for_user)


def require_tensorflow() -> None:
    """Raises Refusal where a model's file chooses another backend of Keras."""
    chosen = os.environ.get("KERAS_BACKEND", "tensorflow")
    if chosen != "tensorflow":
        raise Refusal(f"Keras is to run on {chosen} (KERAS_BACKEND)", change="set KERAS_BACKEND=tensorflow")


def require_graph_execution(model: "keras.Model") -> None:
    """Raises Refusal for a model whose step runs as Python, operation by operation, and never as a graph."""
    if getattr(model, "run_eagerly", False):
        raise Refusal("the model is compiled with run_eagerly=True", change="leave run_eagerly=True out of compile")


def require_vocabularies(model: "keras.Model") -> None:
    """Raises Refusal where a layer that looks words up, as TextVectorization does, has an empty vocabulary."""
    for layer in model._flatten_layers():
        if not hasattr(layer, "get_vocabulary") or layer.get_vocabulary(include_special_tokens=False):
            continue
        name = type(layer).__name__
        raise Refusal(
            f"its {name} {layer.name!r} has no vocabulary", change="call its adapt(texts), or give it a vocabulary"
        )


def network_of(model: "keras.Model", name: str, step: TracedStep) -> Network:
    """The Network that describes a user's compiled model by its traced step and by no list of layers. Its seed and
    number of classes, which only networks of articles have, say nothing."""
    optimizer = next(_optimizers(model), None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # mixed_float16 wraps it to scale the loss
    policies = {layer.dtype_policy.name for layer in model._flatten_layers() if hasattr(layer, "dtype_policy")}
    input_shape: tuple[int, ...] = ()
    if step.inputs:
        input_shape = operations.sizes(step.inputs[0].shape, batch=1)[1:]  # without the batch
    return Network(
        name=name,
        seed="",
        input=input_shape,
        classes=1,
        layers=(),
        optimizer=type(optimizer).__name__.lower() if optimizer is not None else "",
        loss=_loss_name(model),
        batch=step.batch,
        precision=max((policy for policy in policies if "mixed_" in policy), default="float32"),
        traced=step,
    )


def _loss_name(model: "keras.Model") -> str:
    """The name of the loss that a model is compiled with, for sentences."""
    loss = getattr(model, "loss", None)
    if loss is None:
        return "a loss of its own"
    if isinstance(loss, dict | list | tuple):
        return "several losses"
    return user_model.name_of_loss(loss)


def compile_where_it_is_not(model: "keras.Model", name: str) -> bool:
    """Compiles a model that its writer has not compiled, with Adam and a loss that fits its one output. Returns whether it did.

    name: the model's, for the error.
    Raises: Refusal for a model that is not compiled and whose outputs are several or not known.
    """
    if model.compiled:
        return False
    outputs = getattr(model, "outputs", None) or []
    if len(outputs) != 1:
        reason = "whose outputs are not known" if not outputs else f"of {len(outputs)} outputs"
        losses = ["mse"] * max(1, len(outputs))
        raise Refusal(
            f"{name} gives a model {reason} that is not compiled",
            change=f"compile it with its own losses, as model.compile('adam', {losses})",
        )
    user_model.compile_with_adam(model, name)
    return True


def traced_model(model: "keras.Model", name: str, candidates: Iterable[StepInputs]) -> TracedStep:
    """The operations of a compiled model's training step.

    It is traced at the batch of its inputs and at twice that batch, so that every size and all work are known at any batch. A
    step that runs as Python, or that is the user's own and does not trace, has no operations but the reason why.
    candidates: what the step may take, the likeliest first; the first is taken that the step traces with.
    Raises: Broken with the error of the likeliest candidate where a step of Keras's own traces with none.
    """
    import keras
    import tensorflow

    require_vocabularies(model)
    if getattr(model, "run_eagerly", False):
        inputs = next(iter(candidates))
        inputs.require_sizes(name)
        build(model, inputs)
        return _untraced(model, name, inputs, RUNS_EAGERLY)
    scopes = LayerScopes(optimizers={optimizer.name for optimizer in _optimizers(model)})
    try:
        graph, inputs = _first_graph(model, name, candidates, scopes)
    except NotTraced as error:
        return _untraced(model, name, error.inputs, str(error))
    nodes = walk.operations(graph)
    larger_batch = 2 * inputs.batch
    doubts = [inputs.assumed] if inputs.assumed else []
    try:
        larger = walk.operations(_graph(model, inputs.resized(larger_batch), scopes))
    except Exception:
        doubts.append(FIXED_BATCH)
        described = straight_lines.operations_of_one_batch(nodes, inputs.batch, scopes)
    else:
        described = straight_lines.operations(nodes, larger, (inputs.batch, larger_batch), scopes)
    return TracedStep(
        model=name,
        batch=inputs.batch,
        operations=tuple(described),
        inputs=_input_arrays(inputs),
        targets=_target_arrays(inputs),
        xla=description.supports_xla(model),
        weights=sum(_elements(variable) for variable in model.weights),
        trainable_weights=sum(_elements(variable) for variable in model.trainable_weights),
        doubts=tuple(doubts),
        tensorflow=tensorflow.__version__,
        keras=keras.__version__,
    )


def _untraced(model: "keras.Model", name: str, inputs: StepInputs, reason: str) -> TracedStep:
    """A step without operations. reason: why it has none, as a sentence."""
    return TracedStep(
        model=name,
        batch=inputs.batch,
        operations=(),
        inputs=_input_arrays(inputs),
        targets=_target_arrays(inputs),
        weights=sum(_elements(variable) for variable in model.weights),
        trainable_weights=sum(_elements(variable) for variable in model.trainable_weights),
        untraced=reason,
    )


def _elements(variable: "keras.Variable") -> int:
    return math.prod(variable.shape)


def _input_arrays(inputs: StepInputs) -> tuple[Array, ...]:
    """The arrays that the model takes in a step: x of (x, y, sample weights), or all where the step takes no tuple."""
    parts = inputs.specs
    return _arrays(parts[0] if isinstance(parts, tuple) else parts, inputs.batch)


def _target_arrays(inputs: StepInputs) -> tuple[Array, ...]:
    """The arrays that a step takes besides the model's inputs: y and the sample weights of (x, y, sample weights)."""
    parts = inputs.specs
    return _arrays(parts[1:], inputs.batch) if isinstance(parts, tuple) else ()


def _arrays(specs: Any, batch: int) -> tuple[Array, ...]:
    """The arrays of a nest of TensorSpecs: a spec, or lists, tuples and dictionaries of them.

    An array whose first side is `batch` grows with the batch: that side is one a sample.
    """
    import keras

    arrays = []
    for spec in keras.tree.flatten(specs):
        if spec is None:
            continue
        sides = [side or 1 for side in spec.shape]
        shape = tuple(Amount(side) for side in sides)
        if sides and sides[0] == batch:
            shape = (Amount(fixed=0, per_sample=1), *shape[1:])
        arrays.append(Array(shape=shape, dtype=spec.dtype.name))
    return tuple(arrays)


def _first_graph(
    model: "keras.Model", name: str, candidates: Iterable[StepInputs], scopes: LayerScopes
) -> tuple["FuncGraph", StepInputs]:
    """The graph of the training step with the first of the candidates that it traces with, and that candidate.

    scopes: gets the name scope of each layer while the step is traced.
    Raises: NotTraced where the model's own `train_step` traces with none of them; Broken where Keras's does not.
    """
    first_error: Exception | None = None
    advice = ""
    for inputs in candidates:
        inputs.require_sizes(name)
        try:
            build(model, inputs)
            return _graph(model, inputs, scopes), inputs
        except Exception as error:
            first_error = first_error or error
            advice = f"; {TAKE_DATA}" if inputs.assumed else ""
    assert first_error is not None
    if isinstance(first_error, Refusal):
        raise first_error
    if not advice:
        step_inputs.require_matching(model, inputs, name)
    if _trains_by_user_step(model):
        raise NotTraced(f"its train_step does not trace: {described(first_error).rstrip('.')}", inputs=inputs)
    raise Broken(
        f"{name}: its train_step does not trace: {described(first_error).rstrip('.')}{advice}"
    ) from first_error


def _trains_by_user_step(model: "keras.Model") -> bool:
    """Whether the model's class has a `train_step` of its own."""
    import keras

    return type(model).train_step is not keras.Model.train_step


def build(model: "keras.Model", inputs: StepInputs) -> None:
    """Has Keras create what a model lacks before its first step: weights of layers, metrics, losses, the optimizer's variables.

    Where Keras cannot, nothing is raised: a model whose `call` takes no batch, as a GAN's, creates these when it is traced.
    Raises: Refusal for weights that do not fit into memory.
    """
    import keras

    def symbolic(spec: "tf.TensorSpec | None") -> "keras.KerasTensor | None":
        return None if spec is None else keras.KerasTensor(spec.shape, spec.dtype.name)

    with _only_refusals():
        model._symbolic_build(data_batch=keras.tree.map_structure(symbolic, inputs.specs))


@contextlib.contextmanager
def _only_refusals() -> Iterator[None]:
    """A `with` block that lets a Refusal through, which tells the user what to change, and ignores any other error raised
    inside."""
    try:
        yield
    except Refusal:
        raise
    except Exception:
        return


def _graph(model: "keras.Model", inputs: StepInputs, scopes: LayerScopes) -> "FuncGraph":
    """The graph of the model's `train_step`, traced as Keras's fit does it: without AutoGraph.

    scopes: gets the name scope of each layer meanwhile.
    """
    import tensorflow

    @tensorflow.autograph.experimental.do_not_convert
    def step(data: Any) -> dict[str, "tf.Tensor"]:
        return model.train_step(data)

    with scopes.recording(model):
        concrete = tensorflow.function(step).get_concrete_function(inputs.specs)
    return concrete.graph


def _optimizers(model: "keras.Model") -> "Iterator[keras.Optimizer]":
    """The optimizers that are attributes of a model: one by `compile`, or several under names of the user's."""
    import keras

    for value in vars(model).values():
        if isinstance(value, keras.Optimizer):
            yield value
