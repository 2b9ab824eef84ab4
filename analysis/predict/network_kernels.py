"""The kernels that execute a network's training step under its options: of its traced step where there is one, else of its
table of layers.
"""

from collections.abc import Sequence

import msgspec

from analysis.predict.profile import COMPILED
from analysis.predict.step_kernels import fusion, traced_fusion, traced_op_by_op
from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.predict.step_kernels.traced_kernel import StepPrecision
from kernels import networks
from kernels.networks import Network, Work
from kernels.problems import Stream
from workloads.records import Machine
from workloads.records.switches import Keras

#: What an optimizer without a stream problem is priced as.
_PRICED_OPTIMIZER = "adam"


class StepArithmetic(msgspec.Struct, frozen=True, kw_only=True):
    """What a step's products compute in."""

    #: Type of the products; float32 where the machine's GPUs lack the chosen one.
    dtype: str
    #: Whether products of float32 may use TF32.
    tf32: bool
    #: What is priced as something else, in words.
    substitutions: tuple[str, ...] = ()


def step_kernels(
    network: Network, batch: int, options: Keras, *, device: str, execution: str, machine: Machine | None = None
) -> tuple[list[StepKernel], list[str]]:
    """(the kernels of a training step of a network at a batch, on a device, compiled or op by op; what is priced as something
    else, in words). They come from the network's traced step if it has one, else from its table of layers. machine: None for
    any."""
    arithmetic = step_arithmetic(options, device, machine)
    if network.traced is None:
        works, substitutions = _table_works(network, batch, options, device=device, arithmetic=arithmetic)
        return table_kernels(works, execution, device), [*arithmetic.substitutions, *substitutions]
    replaces_float32 = arithmetic.dtype != "float32" and network.precision == "float32"
    precision = StepPrecision(
        dtype=arithmetic.dtype if replaces_float32 else "",
        math="tf32" if arithmetic.tf32 else "",
    )
    if execution == COMPILED:
        kernels = traced_fusion.compiled(network.traced, batch, precision, device)
    else:
        kernels = traced_op_by_op.op_by_op(network.traced, batch, precision, device)
    return kernels, list(arithmetic.substitutions)


def step_arithmetic(options: Keras, device: str, machine: Machine | None = None) -> StepArithmetic:
    """The type and arithmetic of a step's products by the Keras options. Where the machine's GPUs lack the chosen type, float32
    takes its place. machine: None for any."""
    dtype = options.precision.removeprefix("mixed_")
    if device == "cpu":
        return StepArithmetic(dtype=dtype, tf32=False)
    allows_tf32 = options.tf32 == "on"
    if machine is None:
        return StepArithmetic(dtype=dtype, tf32=allows_tf32)
    tf32 = allows_tf32 and not machine.lacks("tf32")
    reason = machine.lacks(dtype)
    if reason:
        return StepArithmetic(dtype="float32", tf32=tf32, substitutions=(f"{reason}: priced as float32",))
    return StepArithmetic(dtype=dtype, tf32=tf32)


def _table_works(
    network: Network, batch: int, options: Keras, *, device: str, arithmetic: StepArithmetic
) -> tuple[list[Work], list[str]]:
    """(the operations of a step of a network that is known by its layers; what is priced as something else, in words)."""
    substitutions = []
    if network.optimizer not in Stream.WEIGHTS:
        substitutions.append(f"the optimizer {network.optimizer}, priced as {_PRICED_OPTIMIZER}")
        network = msgspec.structs.replace(network, optimizer=_PRICED_OPTIMIZER)
    if device == "cpu":
        network = _without_cudnn(network)
    uses_tf32 = arithmetic.tf32 and arithmetic.dtype == "float32"
    works = networks.step(network, batch, arithmetic.dtype, "tf32" if uses_tf32 else "")
    idle_dropouts = set()
    for layer in network.layers:
        if layer.kind == "dropout" and (options.dropout == "off" or not layer.rate):
            idle_dropouts.add(layer.name)
    return [work for work in works if work.layer not in idle_dropouts], substitutions


def _without_cudnn(network: Network) -> Network:
    """The network as a CPU runs it: its recurrent layers are loops over time steps, not one call of cuDNN."""
    layers = [msgspec.structs.replace(layer, fused=False) if layer.fused else layer for layer in network.layers]
    return msgspec.structs.replace(network, layers=tuple(layers))


def table_kernels(works: Sequence[Work], execution: str, device: str) -> list[StepKernel]:
    """The kernels that execute these operations of a step, compiled by XLA or op by op. works: of a network known by its
    layers."""
    if execution == COMPILED:
        return fusion.compiled(works, device)
    return fusion.op_by_op(works, device)
