"""Inside a worker: the layers of a model, or one by its class, with the work of each direction."""

import msgspec

from kernels.problems import LayerCall
from workloads.frameworks import tensors
from workloads.frameworks.layer_graphs import layer_row
from workloads.frameworks.layer_graphs.description import (
    CHANGE,
    LAYERS,
    RIGHT,
    WRONG,
    DescribedLayer,
    DescribedLayers,
    DirectionWork,
)
from workloads.frameworks.layer_graphs.direction_graph import NoGradient, direction_graph
from workloads.frameworks.layer_graphs.layer_use import LayerUse, WrongLayer
from workloads.frameworks.tracing.refusal import change_of
from workloads.frameworks.user_fit import weight_limit
from workloads.harness.dispatch import Broken, described
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row


def answer(row: Row, limits: Limits, seed: int) -> Measurement:
    """Describes all layers of the row's model, or the one layer of the row where it names no model; nothing is timed.

    The result's notes hold the DescribedLayers as JSON. Where a layer cannot be had it is `failed`, and its notes say what to
    change. limits: unused.
    """
    tensors.begin("cpu", threads=None)
    weight_limit.install()
    problem = row.problem
    try:
        if problem.model:
            parts = layer_row.parts_of_model(problem.model, problem.batch)
            layers = DescribedLayers(
                layers=tuple(_describe(use, seed) for use in parts.uses),
                sample_values=parts.sample_values,
            )
        else:
            layers = DescribedLayers(layers=(_describe(layer_row.use_of(problem), seed),))
    except Broken as error:
        notes = {CHANGE: change_of(error)}
        if isinstance(error, WrongLayer):
            notes |= {WRONG: error.wrong, RIGHT: error.right}
        return row.result("failed", str(error), cause=error.cause, notes=notes)
    return row.result("ok", notes={LAYERS: msgspec.json.encode(layers).decode()})


def _describe(use: LayerUse, seed: int) -> DescribedLayer:
    """A layer with the work of the forward pass and of each gradient that it has. A direction that cannot be traced is left out,
    and `failure` has the first error."""
    directions: list[DirectionWork] = []
    failure = ""
    for direction in LayerCall.DIRECTIONS:
        try:
            graph = direction_graph(use, direction, seed)
        except NoGradient:
            continue
        except Exception as error:
            failure = failure or described(error)
            continue
        directions.append(
            DirectionWork(
                direction=direction,
                flops=graph.flops,
                bytes_moved=graph.bytes_moved,
                product_flops=graph.product_flops,
            )
        )
    return DescribedLayer(
        path=use.path,
        kind=use.kind,
        input=use.input,
        count=use.count,
        directions=tuple(directions),
        failure=failure,
    )
