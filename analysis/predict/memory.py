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
FEWEST = 3  # measured peaks from which a count is set right
# arrays that an optimizer keeps beside each weight; 2 of Adam and its like
_SLOTS = {"sgd": 0, "rmsprop": 1, "adagrad": 1}
# Inputs that leave the data set on the host: reports/nvidia-h200/training-residence, mnist-cnn of 50,000 samples (150 MiB) takes
# 30 MiB of the GPU by tf.data, 178 MiB by fit on arrays.
_ON_HOST = ("tf.data", "generator", "prefetch")
_VIEWS = ("flatten", "reshape")
_ITEM = ITEM_BYTES["float32"]
# Times the batch's count: a compiler may keep fewer of the activations, and convolutions take workspaces that nobody counts.
_BATCH = within_factor(1.0, 2)


class Memory(msgspec.Struct, frozen=True):
    """Bytes that a training holds on a device at its peak; `capacity` of the device, None where it is not known; the
    `largest_batch` that fits into it; `copied` of the data set, which Keras's fit copies to a GPU."""

    device: str
    peak: Estimate
    capacity: int | None
    largest_batch: Estimate | None
    copied: int = 0

    @property
    def too_big(self) -> bool:
        """Whether even the lower end of the peak exceeds the device's capacity."""
        return bool(self.capacity and self.peak.low > self.capacity)


def fixed_bytes(network: "Network") -> int:
    """Bytes that do not grow with the batch: weights, their gradients and the optimizer's arrays."""
    learned = networks.trainable(network)
    return _ITEM * (networks.parameters(network) + learned * (1 + _SLOTS.get(network.optimizer, 2)))


def batch_bytes(network: "Network", dtype: str = "float32") -> int:
    """Bytes a sample of a batch: its input, the outputs that the backward pass needs, and two gradients as large as the
    largest."""
    if network.traced is not None:
        written, largest = network.traced.forward_bytes()
        return networks.sample_bytes(network, dtype) + written + 2 * largest
    every = [
        math.prod(shape)
        for layer, shape in zip(network.layers, networks.outputs(network), strict=True)
        if layer.kind not in _VIEWS
    ]
    return networks.sample_bytes(network, dtype) + _ITEM * (sum(every) + 2 * max(every))


def held_bytes(network: "Network", training: "Training", device: str, residence: str = "") -> int:
    """Bytes of the data set while it is fitted: Keras's copy of the NumPy arrays on the training's own device, and on the CPU
    the arrays themselves; none on a GPU where the `residence` of the data is the host."""
    if device != "cpu" and residence in _ON_HOST:
        return 0
    whole = training.samples * networks.sample_bytes(network, settings.fitted(training.dtype))
    return whole + (training.samples * networks.sample_bytes(network, training.dtype) if device == "cpu" else 0)


def counted(network: "Network", training: "Training", device: str) -> float:
    """Bytes by counting: weights, gradients and optimizer's arrays, the data set, and the batch."""
    batch = min(training.batch, training.samples) * batch_bytes(network, training.dtype)
    return float(fixed_bytes(network) + held_bytes(network, training, device) + batch)


def memory(
    network: "Network",
    training: "Training",
    device: str,
    measurements: "Iterable[Measurement]" = (),
    machine: "Machine | None" = None,
    residence: str = "",
) -> Memory:
    """The peak of a training on a device and the largest batch that fits.

    The count is corrected by measured peaks of Keras's fits on the same device: what these hold beyond their own count is the
    libraries'.
    """
    seen = _beyond(measurements, device)
    libraries = covering(statistics.median(seen), *seen) if len(seen) >= FEWEST else NOTHING
    each = _BATCH * batch_bytes(network, training.dtype)
    data_set = held_bytes(network, training, device, residence)
    copied = data_set if device != "cpu" and not residence else 0
    least = libraries + fixed_bytes(network) + data_set
    peak = (least + each * min(training.batch, training.samples)).at_least(0.0)
    whose = machine if machine is None or device == "cpu" else machine.gpu(device)
    if whose is None:
        return Memory(device=device, peak=peak, capacity=None, largest_batch=None, copied=copied)
    largest_batch = (whose.memory_bytes - least) / each
    return Memory(device=device, peak=peak, capacity=whose.memory_bytes, largest_batch=largest_batch, copied=copied)


def _beyond(measurements: "Iterable[Measurement]", device: str) -> list[float]:
    """Bytes by which measured peaks of Keras's fits of known networks on a device exceed their count."""
    own = (m for m in measurements if (m.kernel, m.device) == (FIT, device) and "residence" not in m.settings.switches)
    return [
        m.values[PEAK] - counted(network, m.problem, device)
        for m in own
        if PEAK in m.values and (network := networks.known(m.problem.model))
    ]
