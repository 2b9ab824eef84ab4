"""What the host takes for a training's step: dispatch, issuing kernels or operations, copies, and the input pipeline."""

from collections.abc import Sequence

import msgspec

from analysis.predict.network_kernels import table_kernels
from analysis.predict.passes import operation_overhead
from analysis.predict.profile import (
    CALLS,
    COMPILED,
    JIT,
    OP_BY_OP,
    VARIANTS,
    Lacking,
    Profile,
    cached_in_profile,
    clock,
    constants_command,
)
from analysis.predict.step_kernels import step_kernel
from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.stats import NOTHING, Estimate, exact, plus_minus, total, within_factor
from analysis.training import pipeline_costs
from analysis.training.costs import FIT
from kernels import networks
from kernels.networks.layers import Layer, Network
from kernels.problems import Training
from workloads.records.switches import Keras

TENSORFLOW_LOOP = "training/tensorflow/loop"
_COPY_COMMAND = "python -m workloads.transfer --backends tensorflow --direction h2d"
_LABEL_BYTES = 8
#: The model of the launch rows' Keras step with almost no work.
_SMALL_MODEL = Network(
    name="tiny",
    seed="",
    input=(1,),
    classes=1,
    layers=(Layer("dense", "dense", 1),),
    optimizer="sgd",
    loss="mean_squared_error",
)


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """What a step issues beyond a step with almost no work."""

    #: Kernels of a compiled step, else operations of its graph.
    count: int
    #: What issuing them takes on the host.
    seconds: Estimate


class HostParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the host takes for a step, but for issuing its kernels."""

    #: A step with almost no work, without its copies.
    dispatch: Estimate
    #: Part -> seconds of the copies to a GPU, or of the input pipeline.
    copies: dict[str, Estimate]
    #: Whether a GPU's input pipeline is known by its measured law.
    has_pipeline: bool
    #: Part without rows -> what to measure.
    lacking: dict[str, Lacking]


def host_parts(
    training: Training,
    options: Keras,
    profile: Profile,
    network: Network,
    *,
    device: str,
    execution: str,
    kernel: str,
) -> HostParts:
    """The seconds that the host takes for a step: dispatch, copies to a GPU, and the input pipeline.

    kernel: what trains: Keras's fit (FIT), or a bare TensorFlow loop. options: the training's Keras options. execution: compiled
    or op by op.
    """
    lacking = {}
    dispatch = NOTHING
    try:
        dispatch = dispatch_of(profile, device, execution, kernel=kernel, steps_a_call=options.steps_per_execution)
    except Lacking as error:
        lacking["dispatch"] = error
    if device == "cpu":
        return HostParts(dispatch=dispatch, copies={}, has_pipeline=False, lacking=lacking)
    copies = {}
    try:
        copies = copies_of_batch(profile, network, min(training.batch, training.samples), options)
    except Lacking as error:
        lacking["transfer calls"] = error
    if kernel != FIT:
        return HostParts(dispatch=dispatch, copies=copies, has_pipeline=False, lacking=lacking)
    if copies:  # a Keras step with almost no work has their calls in it
        calls_s = min(copies["transfer calls"].value, dispatch.value)
        copies["transfer calls"] = exact(calls_s)
        dispatch = dispatch - calls_s
    pipeline = pipeline_costs.batch_seconds(
        _pipeline_costs(profile), device, options.residence, training, network=network
    )
    if pipeline is not None:  # which contains the bytes
        copies.pop("transfer bytes", None)
        copies["input pipeline"] = pipeline
    return HostParts(dispatch=dispatch, copies=copies, has_pipeline=pipeline is not None, lacking=lacking)


@cached_in_profile
def _pipeline_costs(profile: Profile) -> tuple[pipeline_costs.PipelineCost, ...]:
    """The costs of input pipelines that the profile's rows give."""
    return pipeline_costs.fits(profile.measurements)


def copies_of_batch(profile: Profile, network: Network, batch: int, options: Keras) -> dict[str, Estimate]:
    """Part -> seconds of copying a batch and its labels from pageable memory to a GPU: "transfer calls" (of empty copies) and
    "transfer bytes" (what the bytes add); {} for samples that are on the GPU already.

    Raises: Lacking without rows of copies.
    """
    if options.residence == "resident":
        return {}
    call = profile.copying(4, "gpu:0")
    if call is None:
        raise Lacking("no copies to the GPU", [_COPY_COMMAND])
    bytes_s = 0.0
    width_s = 0.0
    sizes = (batch * networks.sample_bytes(network), batch * _LABEL_BYTES)
    for nbytes in sizes:
        copy = profile.copying(nbytes, "gpu:0")
        if copy is not None:
            bytes_s += max(0.0, copy.value - call.value)
            width_s += copy.high - copy.low
    return {
        "transfer calls": call * len(sizes),
        "transfer bytes": plus_minus(bytes_s, width_s / 2).at_least(0.0),
    }


def dispatch_of(profile: Profile, device: str, execution: str, *, kernel: str = FIT, steps_a_call: int = 1) -> Estimate:
    """Seconds of starting a training step: a step of a model with almost no work in Keras, or a call of the compiled function in
    a bare TensorFlow loop. If Keras runs `steps_a_call` steps in one call, they share the overhead of Python and Keras.

    Raises: Lacking without such rows.
    """
    name = CALLS[VARIANTS[execution]]
    step = None
    if kernel == FIT:
        other = COMPILED if execution == OP_BY_OP else OP_BY_OP
        step = profile.step_floor(device, JIT[execution]) or profile.step_floor(device, JIT[other])
    elif kernel == TENSORFLOW_LOOP:  # which waits for a GPU at its end alone
        step = profile.constant(name, device, clock=clock(device))
    if step is None:
        raise Lacking(f"no step with almost no work on {device}", [constants_command(device)])
    if steps_a_call == 1:
        return step
    call = profile.constant(name, device)
    beyond_call = max(0.0, step.value - (call.value if call else 0.0))
    return step - beyond_call * (1 - 1 / steps_a_call)


def issued_beyond_small_step(kernels: Sequence[StepKernel], profile: Profile, device: str, execution: str) -> Issued:
    """The kernels (compiled) or operations (op by op) that a step issues beyond a step with almost no work, and the host's
    seconds for them."""
    if execution == COMPILED:
        return _issued_kernels(kernels, profile, device)
    return _issued_operations(kernels, profile, device)


def small_step_kernels(execution: str, device: str) -> list[StepKernel]:
    """The kernels of a Keras step with almost no work, which the dispatch already contains."""
    return table_kernels(networks.step(_SMALL_MODEL, 1), execution, device)


def _issued_kernels(kernels: Sequence[StepKernel], profile: Profile, device: str) -> Issued:
    """The kernels of a compiled step beyond the small step's, and the host's seconds to launch them. On a CPU they are calls
    inside one function and take no time."""
    small = small_step_kernels(COMPILED, device)
    count = step_kernel.launches(kernels) - step_kernel.launches(small)
    if device == "cpu":
        return Issued(count=count, seconds=NOTHING)
    launch = profile.constant("kernel-launch", device, clock="host-throughput")
    launch_s = launch.value if launch else 0.0
    launched = exact(launch_s * count).at_least(0.0)
    library_calls = _library_calls(kernels, small, profile, device=device, launch_s=launch_s)
    return Issued(count=count, seconds=total([launched, *library_calls]))


def _issued_operations(kernels: Sequence[StepKernel], profile: Profile, device: str) -> Issued:
    """The operations of a step that is not compiled beyond the small step's, and the host's seconds to issue them. An operation
    that launches no GPU kernel takes what it takes on a CPU."""
    small = small_step_kernels(OP_BY_OP, device)
    overhead = operation_overhead(profile, "cpu") or NOTHING
    on_host = exact(overhead.value)
    operation = on_host if device == "cpu" else launched_operation(profile, device)
    without_launch = [kernel for kernel in kernels if kernel.launches == 0]
    unlaunched = step_kernel.operations_outside_loops(without_launch)
    in_small_step = step_kernel.operations_outside_loops(small)
    launched = step_kernel.operations_outside_loops(kernels) - unlaunched - in_small_step
    in_loops = step_kernel.operations_in_loops(kernels)
    seconds = [(operation * launched).at_least(0.0), on_host * unlaunched]
    if device != "cpu":
        seconds += _library_calls(kernels, small, profile, device=device, launch_s=operation.value)
    loop_operation = operation
    if device == "cpu":
        loop_operation = _operation_in_loop_on_cpu(profile) or operation
    # In a loop on a GPU an operation costs what it costs outside, in cuDNN's too: with a launch alone three recurrent models were
    # predicted 1.3 to 1.8 times too short (reports/nvidia-h200/bench-example_models.md).
    in_loops_s = loop_operation.at_least(0.0) * in_loops
    return Issued(count=launched + in_loops, seconds=in_loops_s + total(seconds))


def _operation_in_loop_on_cpu(profile: Profile) -> Estimate | None:
    """Seconds of an operation in a loop on a CPU: of a further addition in a chain. None if it was not measured, or no longer
    than its noise."""
    operation = profile.constant("tf-op-in-function", "cpu")
    return operation if operation and operation.value > 0 else None


def _library_calls(
    kernels: Sequence[StepKernel], small: Sequence[StepKernel], profile: Profile, *, device: str, launch_s: float
) -> list[Estimate]:
    """Seconds that issuing the matrix products, and the convolutions, of a step takes beyond a launch each, as a library chooses
    and prepares its kernel. small: the kernels of the step with almost no work, which do not count."""
    seconds = []
    for op in ("matmul", "conv"):
        outside_loops = [kernel for kernel in kernels if kernel.part == op and kernel.times == 1]
        in_small_step = [kernel for kernel in small if kernel.part == op]
        calls = len(outside_loops) - len(in_small_step)
        call_s = profile.issuing(op, device) or 0.0
        seconds.append(exact(calls * max(0.0, call_s - launch_s)))
    return seconds


def launched_operation(profile: Profile, device: str) -> Estimate:
    """Seconds of issuing one more operation on a GPU in a graph that is not compiled.

    It was measured in two ways: by element-wise formulas with more and more operations, and by a chain with more and more
    additions. The formulas give the value, their difference from the chain the interval. If only one was measured, it counts;
    without either, an operation on the CPU.
    """
    by_formulas = operation_overhead(profile, device)
    in_a_chain = profile.constant("tf-op-in-function", device, clock=clock(device))
    if by_formulas is None or by_formulas.value <= 0:
        on_cpu = operation_overhead(profile, "cpu") or NOTHING
        return in_a_chain or exact(on_cpu.value)
    if in_a_chain is None or in_a_chain.value <= 0:
        return by_formulas
    ratio = by_formulas.value / in_a_chain.value
    return within_factor(by_formulas.value, max(ratio, 1 / ratio))
