"""The training step of a user's model, traced: built by Keras, traced at two batches, described as operations."""

import contextlib
from collections.abc import Iterable, Iterator

from kernels import networks
from kernels.networks.operations import TracedStep
from workloads.frameworks import models, user_model
from workloads.frameworks.tracing import step_inputs, straight_lines, walk
from workloads.frameworks.tracing.layer_scopes import LayerScopes
from workloads.frameworks.tracing.step_inputs import TAKE_DATA, StepInputs
from workloads.harness.dispatch import Broken, described

FIXED_BATCH = "the step does not trace at another batch: its numbers are those of this one"


def traced(name: str, batch: int, data: str = "", length: int = 0) -> TracedStep:
    """The operations of a model's training step on `batch` samples: of a network of the tables, else of a user's model.

    data: a function that gives the samples; without it they are made up, each open size `length` long.
    Raises: Broken with what to change where the model does not build, compile or trace.
    """
    network = networks.known(name)
    model = models.build(network) if network else user_model.opened(name)
    candidates: Iterable[StepInputs]
    if data:
        candidates = [step_inputs.from_data(data, batch)]
    else:
        candidates = step_inputs.synthetic(model, name, batch, length)
    _compile(model, name)
    return traced_model(model, name, candidates)


def _compile(model, name: str) -> None:
    """Compiles a model that came without, where its outputs say how.

    Raises: Broken for a model without known outputs, and for several.
    """
    if model.compiled:
        return
    outputs = getattr(model, "outputs", None) or []
    if len(outputs) != 1:
        reason = "whose outputs are not known" if not outputs else f"of {len(outputs)} outputs"
        raise Broken(f"{name} gives a model {reason} that is not compiled: compile it with its losses")
    user_model.compile_with_adam(model, name)


def traced_model(model, name: str, candidates: Iterable[StepInputs]) -> TracedStep:
    """The operations of a compiled model's training step, which takes the first of the candidates that it traces with.

    Raises: Broken with the error of the likeliest candidate where it traces with none.
    """
    import keras
    import tensorflow

    scopes = LayerScopes({optimizer.name for optimizer in _optimizers(model)})
    graph, inputs = _first_graph(model, name, candidates, scopes)
    nodes = walk.operations(graph)
    larger_batch = 2 * inputs.batch
    doubts = [inputs.assumed] if inputs.assumed else []
    try:
        larger = walk.operations(_graph(model, inputs.resized(larger_batch), scopes))
    except Exception:
        doubts.append(FIXED_BATCH)
        operations = straight_lines.operations_of_one_batch(nodes, inputs.batch, scopes)
    else:
        operations = straight_lines.operations(nodes, larger, (inputs.batch, larger_batch), scopes)
    return TracedStep(
        model=name,
        batch=inputs.batch,
        operations=tuple(operations),
        doubts=tuple(doubts),
        software={"tensorflow": tensorflow.__version__, "keras": keras.__version__},
    )


def _first_graph(model, name: str, candidates: Iterable[StepInputs], scopes: LayerScopes):
    """(the graph of the step, what it takes)."""
    first_error: Exception | None = None
    advice = ""
    for inputs in candidates:
        try:
            _build(model, inputs)
            return _graph(model, inputs, scopes), inputs
        except Exception as error:
            first_error = first_error or error
            advice = f"; {TAKE_DATA}" if inputs.assumed else ""
    assert first_error is not None
    raise Broken(f"{name}: its train_step does not trace: {described(first_error)}{advice}") from first_error


def _build(model, inputs: StepInputs) -> None:
    """Has Keras make what is not there yet: layers, metrics, losses and the optimizer's slots. A model whose `call` takes no
    batch, as a GAN, makes what it needs when it is traced."""
    import keras

    def symbolic(spec):
        return None if spec is None else keras.KerasTensor(spec.shape, spec.dtype.name)

    with contextlib.suppress(Exception):
        model._symbolic_build(data_batch=keras.tree.map_structure(symbolic, inputs.specs))


def _graph(model, inputs: StepInputs, scopes: LayerScopes):
    """The graph of `train_step`, as Keras's fit traces it: without AutoGraph."""
    import tensorflow

    @tensorflow.autograph.experimental.do_not_convert
    def step(data):
        return model.train_step(data)

    with scopes.recording(model):
        concrete = tensorflow.function(step).get_concrete_function(inputs.specs)
    return concrete.graph


def _optimizers(model) -> Iterator:
    """Every optimizer that the model has, under whatever name."""
    import keras

    for value in vars(model).values():
        if isinstance(value, keras.Optimizer):
            yield value
