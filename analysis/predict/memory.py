"""The memory that a training takes at its peak, and the largest batch that fits: counted from the layers, then corrected by
the peaks of trainings measured on the same device."""

import math
import statistics
from collections.abc import Iterable

import msgspec

from analysis.stats import NOTHING, Estimate, covering, within_factor
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from kernels.problems.arrays import ITEM_BYTES
from workloads.records import Machine, Measurement, settings

PEAK = "peak_memory_bytes"
FIT = "training/keras/fit"
#: Measured peaks from which a count is corrected.
FEWEST = 3
#: Arrays that an optimizer keeps for each weight; 2 of Adam and its like.
_OPTIMIZER_ARRAYS = {"sgd": 0, "rmsprop": 1, "adagrad": 1}
# Inputs that leave the data set on the host: reports/nvidia-h200/training-residence, mnist-cnn of 50,000 samples (150 MiB) takes
# 30 MiB of the GPU by tf.data, 178 MiB by fit on arrays.
_ON_HOST = ("tf.data", "generator", "prefetch")
_VIEWS = ("flatten", "reshape")
_ITEM = ITEM_BYTES["float32"]
#: Of the bytes that grow with the batch: a compiler may keep fewer activations, and workspaces of convolutions are not counted.
_BATCH_ERROR = within_factor(1.0, 2)


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a training takes on a device at its peak."""

    device: str
    peak: Estimate
    #: Bytes of the device; None where that is not known.
    capacity: int | None = None
    #: The largest batch that fits into the device.
    largest_batch: Estimate | None = None
    #: Bytes of the data set, which Keras's fit copies to a GPU.
    copied: int = 0

    @property
    def too_big(self) -> bool:
        """Whether even the lower end of the peak exceeds the device's capacity."""
        return bool(self.capacity and self.peak.low > self.capacity)


def fixed_bytes(network: Network) -> int:
    """Bytes that do not grow with the batch: weights, their gradients, and the optimizer's state."""
    optimizer_arrays = _OPTIMIZER_ARRAYS.get(network.optimizer, 2)
    trained_items = networks.trainable(network) * (1 + optimizer_arrays)
    return _ITEM * (networks.parameters(network) + trained_items)


def batch_bytes(network: Network, dtype: str = "float32") -> int:
    """Bytes that each sample of a batch takes: its input, the layers' outputs, which the backward pass reads again, and two
    gradients of the size of the largest output. dtype: of the inputs."""
    input_bytes = networks.sample_bytes(network, dtype)
    if network.traced is not None:
        written, largest = network.traced.forward_bytes()
        return input_bytes + written + 2 * largest
    outputs = []
    for layer, shape in zip(network.layers, networks.outputs(network), strict=True):
        if layer.kind not in _VIEWS:
            outputs.append(math.prod(shape))
    return input_bytes + _ITEM * (sum(outputs) + 2 * max(outputs))


def data_set_bytes(network: Network, training: Training, device: str, residence: str = "") -> int:
    """Bytes of the data set on the training's device: the copy that Keras's fit makes, and on the CPU also the user's own arrays.
    0 on a GPU if the `residence` of the samples (tf.data, generator, prefetch) leaves them on the host."""
    if device != "cpu" and residence in _ON_HOST:
        return 0
    copy = training.samples * networks.sample_bytes(network, settings.dtype_in_fit(training.dtype))
    if device != "cpu":
        return copy
    arrays = training.samples * networks.sample_bytes(network, training.dtype)
    return copy + arrays


def counted_bytes(network: Network, training: Training, device: str) -> float:
    """Bytes of a training at its peak by counting alone: weights, gradients, optimizer, data set and batch."""
    batch = min(training.batch, training.samples) * batch_bytes(network, training.dtype)
    return float(fixed_bytes(network) + data_set_bytes(network, training, device) + batch)


def memory(
    network: Network,
    training: Training,
    device: str,
    *,
    measurements: Iterable[Measurement] = (),
    machine: Machine | None = None,
    residence: str = "",
) -> Memory:
    """The peak memory of a training on a device, and the largest batch that fits.

    Counting leaves out what libraries take. That is learned from `measurements` of Keras's fits on the same device: the median of
    their measured peaks less their counts, if there are FEWEST. machine: gives the device's capacity. residence: where the
    samples are, "" as in Keras's fit.
    """
    beyond_counts = _bytes_beyond_counts(measurements, device)
    libraries = NOTHING
    if len(beyond_counts) >= FEWEST:
        libraries = covering(statistics.median(beyond_counts), *beyond_counts)
    sample = _BATCH_ERROR * batch_bytes(network, training.dtype)
    data_set = data_set_bytes(network, training, device, residence)
    copied = data_set if device != "cpu" and not residence else 0
    without_batch = libraries + fixed_bytes(network) + data_set
    peak = (without_batch + sample * min(training.batch, training.samples)).at_least(0.0)
    owner = machine if machine is None or device == "cpu" else machine.gpu(device)
    if owner is None:
        return Memory(device=device, peak=peak, copied=copied)
    return Memory(
        device=device,
        peak=peak,
        capacity=owner.memory_bytes,
        largest_batch=(owner.memory_bytes - without_batch) / sample,
        copied=copied,
    )


def _bytes_beyond_counts(measurements: Iterable[Measurement], device: str) -> list[float]:
    """For each measured peak of Keras's fits of known networks on a device: the peak less its count, in bytes."""
    beyond = []
    for measurement in measurements:
        if (measurement.kernel, measurement.device) != (FIT, device) or PEAK not in measurement.values:
            continue
        network = networks.known(measurement.problem.model)
        if network is None or "residence" in measurement.settings.switches:
            continue
        beyond.append(measurement.values[PEAK] - counted_bytes(network, measurement.problem, device))
    return beyond
