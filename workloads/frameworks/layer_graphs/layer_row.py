"""Inside a worker: one direction of a layer, from its graph to a Measurement: checked, chained, timed by a slope."""

import dataclasses
import functools
import gc
import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from kernels import networks
from kernels.problems import LayerCall
from workloads.frameworks import tensors
from workloads.frameworks.layer_graphs import chain, step_parts
from workloads.frameworks.layer_graphs.direction_graph import DirectionGraph, NoGradient, direction_graph
from workloads.frameworks.layer_graphs.inputs import several
from workloads.frameworks.layer_graphs.layer_use import LayerUse, alone, opened, uses_of_model
from workloads.harness import cache_state, telemetry, timing
from workloads.harness.dispatch import Broken, CannotDo
from workloads.harness.timing import Limits
from workloads.machine import cpu, gpu
from workloads.records import Measurement, Row, Samples, settings

#: The largest difference from the whole graph's results that is allowed, as a share of their largest number.
_BOUNDS = {"float32": 1e-3, "tf32": 5e-2}


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Times a direction of a layer: `host-latency` samples are seconds of a call in a chain, by the slope between two chains.

    values: chain_s, what a call of the chain costs with almost no work in it; chain_copies, how many copies of its weights, saved
    activations and results the calls take turns with. check: the results of its graph against those of
    the layer's whole graph; exact numbers of operations in the chain that is not compiled by XLA.
    Raises: ValueError for what cannot be run so; registry.NotInstalled; Broken; CannotDo.
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
    """How chains are timed in this process."""

    #: Whether XLA compiles them.
    jit: bool
    #: The call that waits for the device; None on a CPU.
    wait: Callable | None
    limits: Limits

    def samples(self, function: Callable, copies: Sequence[Sequence], before: Callable) -> Samples:
        """The samples of a call of a function in a chain. The caches are emptied before a chain of several copies of its
        arguments."""
        clock = self._cold_clock if len(copies) > 1 else self._clock
        return chain.timed(function, copies, jit=self.jit, clock=clock, limits=self.limits, before=before)

    def _clock(self, run: Callable) -> timing.Take:
        return timing.throughput(run, self.wait) if self.wait else timing.host(run)

    def _cold_clock(self, run: Callable) -> timing.Take:
        return timing.latency_after(run, cache_state.cpu_flush(cpu.affinity()), self.wait)


def copies(row: Row, graph: DirectionGraph) -> int:
    """How many copies the calls of a chain take turns with: they have the bytes that a step passes through between two calls of
    the layer, at most twice those of the last caches. 1 where these hold all of a step, on a GPU, and of what XLA compiles."""
    cached = cache_state.last_cache_bytes(cpu.affinity())
    is_warm = row.problem.step_bytes <= cached
    if is_warm or not cached or row.on_gpu or row.keras.jit_compile == "on" or not graph.copied_bytes:
        return 1
    passed = min(row.problem.step_bytes, 2 * cached)
    return min(chain.MOST_COPIES, math.ceil(passed / graph.copied_bytes))


@functools.cache
def _chain_s(counts: tuple[int, int], timed: _Timed, device: str) -> float:
    """Seconds that a call of the chain costs by itself on a device, of so many inputs and results: those of additions of single
    numbers. 0 where they are lost in noise."""
    import tensorflow

    inputs, results = counts
    numbers = tuple(tensorflow.constant(float(place)) for place in range(max(1, inputs)))

    def additions(*numbers):
        return [numbers[0] + float(place) for place in range(results)]

    function = tensorflow.function(additions, autograph=False).get_concrete_function(*numbers)
    try:
        samples = timed.samples(function, [numbers], lambda: None)
    except Broken:
        return 0.0
    return float(np.median(samples.seconds))


def _use_tf32(row: Row) -> None:
    import tensorflow

    tensorflow.config.experimental.enable_tensor_float_32_execution(row.keras.tf32 == "on")


def _may_use_tf32(row: Row) -> bool:
    return row.on_gpu and row.keras.tf32 == "on" and not gpu.lacks(row.device, "tf32")


def _error(graph: DirectionGraph) -> float:
    """The largest difference of a graph's results from the reference, as a share of the reference's largest number."""
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
    """The graph of a row.

    Raises: CannotDo for a direction that the layer does not have.
    """
    try:
        return direction_graph(use_of(problem), problem.direction, seed)
    except NoGradient as error:
        raise CannotDo(str(error)) from error


def use_of(problem: LayerCall) -> LayerUse:
    """The layer of a problem.

    Raises: Broken for a model that has no such layer.
    """
    if not problem.model:
        return alone(problem.layer, problem.arguments, several(problem.input), problem.batch)
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
    """The parts of the training step of a model by its name.

    Raises: Broken with what to change.
    """
    opened_model = opened(model, networks.known(model), batch)
    return StepParts(
        uses=(*uses_of_model(opened_model), *step_parts.loss_and_optimizer(opened_model)),
        sample_values=step_parts.sample_values(opened_model.inputs),
    )
