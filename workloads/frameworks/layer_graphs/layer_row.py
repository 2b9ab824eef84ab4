"""Inside a worker: one direction of a layer, from its graph to a Measurement: checked, chained, timed by a slope."""

import dataclasses
import functools
import gc
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from kernels import networks
from kernels.problems import LayerCall
from workloads.frameworks import tensors
from workloads.frameworks.layer_graphs import chain, step_parts
from workloads.frameworks.layer_graphs.direction_graph import DirectionGraph, NoGradient, direction_graph
from workloads.frameworks.layer_graphs.inputs import parsed_shapes
from workloads.frameworks.layer_graphs.layer_use import LayerUse, layer_by_itself, open_model, uses_of_model
from workloads.harness import cache_state, telemetry, timing
from workloads.harness.dispatch import Broken, CannotDo
from workloads.harness.timing import Limits
from workloads.machine import cpu, gpu
from workloads.records import Measurement, Row, Samples, settings

if TYPE_CHECKING:
    import tensorflow as tf

#: The largest difference from the whole graph's results that is allowed, as a share of their largest number.
_BOUNDS = {"float32": 1e-3, "tf32": 5e-2}


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Times a layer of a Keras model in one direction: its forward pass or a gradient.

    The samples of the clock `host-latency` are seconds of a call, by the difference between a long and a short chain of calls.
    Before, the results of the direction's graph are compared with those of the layer's whole graph, and a chain that XLA does not
    compile must have all operations of all calls. values: chain_s, what a call costs in a chain with almost no work;
    chain_copies, how many copies of its weights and saved activations the calls take in turn. seed: of the inputs.
    Raises: ValueError for options that do not go together; registry.NotInstalled; Broken; CannotDo.
    """
    settings.checked_keras(row)
    phases = tensors.begin(row.device, row.threads)
    device, wait = tensors.start(row.device, row.threads)
    _use_tf32(row)
    jit = row.keras.jit_compile == "on"
    with tensors.on(device):
        with tensors.timed(phases, "build"):
            graph = _graph(row.problem, seed, device)
        error = None if graph.is_random else _error(graph)
        bound = _BOUNDS["tf32" if _may_use_tf32(row) else "float32"]
        if error is not None and not error <= bound:
            reason = f"its results are {error:.3g} of their largest off those of the whole graph, more than {bound}"
            return row.result("wrong", reason, phases_s=phases, check="bound")
        if not jit:
            chain.require_all_calls(graph.function, graph.arguments, chain.SHORT)
        watch = telemetry.watch(row.device, framework=True)
        timed = _Timed(jit=jit, wait=wait, limits=limits)
        count = copies(row, graph)
        arguments = chain.copied(graph.arguments, fresh=graph.fresh, copies=count)
        samples = timed.samples(graph.function, arguments, watch.before_block)
        watched, flags = watch.readings()
        counts = len(graph.arguments), graph.results
        values = watched | {"chain_s": _chain_s(counts, timed, device), "chain_copies": float(count)}
    gc.collect()
    return row.result(
        "ok",
        samples=(samples,),
        flags=flags,
        phases_s=phases,
        values=values,
        notes=tensors.software_notes(row),
        check="bound" if error is not None else "",
        max_error=error,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Timed:
    """How chains of calls are timed in this process. Equal ones are the same key of a cache."""

    #: Whether XLA compiles them.
    jit: bool
    #: The function that returns when the device has done all work; None on a CPU.
    wait: Callable | None
    #: How long a row is timed.
    limits: Limits

    def samples(self, function: Callable, copies: Sequence[Sequence], before: Callable) -> Samples:
        """Seconds of a call of a function, by chains of calls that take the copies of its arguments in turn.

        The CPU's caches are emptied before each chain where there is more than one copy. before: called before each visit.
        """
        clock = self._cold_clock if len(copies) > 1 else self._clock
        return chain.timed(function, copies, jit=self.jit, clock=clock, limits=self.limits, before=before)

    def _clock(self, run: Callable) -> timing.Take:
        """The clock of a chain: a function that gives the seconds of n runs."""
        return timing.throughput(run, self.wait) if self.wait else timing.host(run)

    def _cold_clock(self, run: Callable) -> timing.Take:
        """A clock that empties the CPU's caches before each run of the chain, outside the time."""
        return timing.latency_after(run, cache_state.cpu_flush(cpu.affinity()), self.wait)


def copies(row: Row, graph: DirectionGraph) -> int:
    """How many copies of weights, saved activations and results the calls of a chain take in turn.

    In a training step other layers run between two calls of this one, and push its data out of the caches. The copies together
    have the bytes that such a step moves, at most twice those of the last-level caches. 1 where the caches hold all that a step
    moves, on a GPU, and in a chain that XLA compiles.
    """
    cached = cache_state.last_cache_bytes(cpu.affinity())
    is_warm = row.problem.step_bytes <= cached
    if is_warm or not cached or row.on_gpu or row.keras.jit_compile == "on" or not graph.copied_bytes:
        return 1
    passed = min(row.problem.step_bytes, 2 * cached)
    return min(chain.MOST_COPIES, math.ceil(passed / graph.copied_bytes))


@functools.cache
def _chain_s(counts: tuple[int, int], timed: _Timed, device: str) -> float:
    """Seconds that a call in a chain takes whose results are additions of single numbers: what the chain itself costs.

    counts: (inputs, results) of the call. device: the scope that this is called in, so that each has an entry of its own in the
    cache. 0 where the seconds are lost in noise.
    """
    import tensorflow

    inputs, results = counts
    numbers = tuple(tensorflow.constant(float(number)) for number in range(max(1, inputs)))

    def additions(*numbers: "tf.Tensor") -> "list[tf.Tensor]":
        return [numbers[0] + float(number) for number in range(results)]

    function = tensorflow.function(additions, autograph=False).get_concrete_function(*numbers)
    try:
        samples = timed.samples(function, [numbers], lambda: None)
    except Broken:
        return 0.0
    return float(np.median(samples.seconds))


def _use_tf32(row: Row) -> None:
    """Allows or forbids TF32 arithmetic on a GPU in this process, as the row's option tf32 says."""
    import tensorflow

    tensorflow.config.experimental.enable_tensor_float_32_execution(row.keras.tf32 == "on")


def _may_use_tf32(row: Row) -> bool:
    """Whether the row's products may be computed in TF32: it is allowed, and the GPU has it."""
    return row.on_gpu and row.keras.tf32 == "on" and not gpu.lacks(row.device, "tf32")


def _error(graph: DirectionGraph) -> float:
    """The largest difference of the results of a direction's graph from those of the layer's whole graph, as a share of the
    largest number of the result."""
    results = [tensors.on_host(value) for value in chain.flat(graph.function(*graph.arguments))]
    expected = [tensors.on_host(value) for value in chain.flat(graph.reference())]
    largest = 0.0
    for result, reference in zip(results, expected, strict=False):
        if not result.size or not np.issubdtype(reference.dtype, np.floating):
            continue
        scale = max(float(np.abs(reference).max()), 1e-30)
        largest = max(largest, float(np.abs(result - reference).max()) / scale)
    return largest


@functools.lru_cache(maxsize=2)
def _graph(problem: LayerCall, seed: int, device: str) -> DirectionGraph:
    """The graph of a layer in the problem's direction, with its inputs on the device whose scope this is called in.

    device: so that each device has an entry of its own in the cache.
    Raises: CannotDo for a direction that the layer does not have.
    """
    try:
        return direction_graph(use_of(problem), problem.direction, seed)
    except NoGradient as error:
        raise CannotDo(str(error)) from error


def use_of(problem: LayerCall) -> LayerUse:
    """The layer that a problem names: one built by itself from its class, or a layer of a model.

    Raises: Broken for a model that has no such layer.
    """
    if not problem.model:
        return layer_by_itself(problem.layer, problem.arguments, parsed_shapes(problem.input), problem.batch)
    for use in parts_of_model(problem.model, problem.batch).uses:
        if use.path == problem.layer:
            return use
    raise Broken(f"{problem.model} calls no layer {problem.layer!r} in its training step")


class StepParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a model's training step."""

    #: Its layers, its loss with its metrics, its optimizer.
    uses: tuple[LayerUse, ...]
    #: Numbers in a sample's inputs.
    sample_values: int


@functools.lru_cache(maxsize=1)
def parts_of_model(model: str, batch: int) -> StepParts:
    """The layers, the loss and the optimizer of a model's training step on `batch` samples. model: the name of a network or of a
    user's model.

    Raises: Broken with what to change where the model does not build or trace.
    """
    opened_model = open_model(model, networks.known(model), batch)
    return StepParts(
        uses=(*uses_of_model(opened_model), *step_parts.loss_and_optimizer(opened_model)),
        sample_values=step_parts.sample_values(opened_model.inputs),
    )
