"""Seconds that a step takes to get its batch, and a fit its data set: a law for each way, type and device."""

# Rows of `python -m workloads.transfer --study feeding`: Keras's own step around next to no arithmetic.

from collections.abc import Iterable

import msgspec
import numpy as np

from analysis.stats import Estimate, Z, from_draws, group_by, least_squares, plus_minus
from analysis.training import costs
from kernels import networks
from kernels.problems import InputPipeline, Training
from workloads.records import Measurement, settings

COPIES = "transfer/cupy/array"
DTYPES = ("float32", "uint8", "float64")
# (samples of a batch, values of a sample). A law is fitted to the first and, in the bench, asked for the others.
SIZES = ((32, 784), (2048, 784), (32, 12288), (256, 12288), (2048, 3072))
HELD_OUT = ((128, 3072), (1024, 1568), (512, 6144))
SET_BYTES = 256 << 20  # of a data set in float32, in 16 to 64 batches
FEWEST = 4  # sizes for a law
_DRAWS = 200


def steps(batch: int, width: int) -> int:
    """Steps an epoch of a row of the study: the batches of its data set."""
    return min(64, max(16, SET_BYTES // (4 * batch * width)))


def tells(device: str, way: str, dtype: str) -> bool:
    """Whether that input pipeline is worth measuring on the device: a CPU has nowhere to copy ahead to, and types other than
    float32 matter only to ways that cast or copy in bulk."""
    return (device, way) != ("cpu", "prefetch") and (dtype == DTYPES[0] or way in ("numpy", "tf.data"))


class Law(msgspec.Struct, frozen=True):
    """seconds = call + samples * sample + bytes * byte, of a batch; `low` to `high` bytes were measured.

    error: the largest relative error, or the noise, of the sizes that it was fitted to.
    """

    device: str
    way: str
    dtype: str
    call: Estimate
    sample: Estimate
    byte: Estimate
    error: float
    low: int
    high: int

    def seconds(self, samples: float, nbytes: float) -> Estimate:
        """Seconds of so many samples that have so many bytes; the interval is the law's error."""
        value = self.call.value + samples * self.sample.value + nbytes * self.byte.value
        return plus_minus(value, value * self.error).at_least(0.0)

    def beyond_call(self, samples: float, nbytes: float) -> Estimate:
        """Seconds that a batch adds to a step, without the call, which every step has."""
        return (self.seconds(samples, nbytes) - self.call.value).at_least(0.0)

    @property
    def bandwidth(self) -> Estimate:
        """Bytes a second of a batch so large that its call and its samples do not count; infinite where bytes cost nothing."""
        return 1 / self.byte


class Share(msgspec.Struct, frozen=True):
    """A measured training and the seconds of its input pipeline; where work overlaps it, it takes less of the step."""

    training: Measurement
    cost: costs.TrainingCost
    feeding: Estimate

    @property
    def share(self) -> Estimate:
        """The share of a measured step that getting its batch takes."""
        return self.feeding / self.cost.step


def rows(measurements: Iterable[Measurement]) -> list[tuple[Measurement, Estimate]]:
    """(row, seconds of its step) of the study; rows whose epochs do not give it are left out."""
    found = ((m, step(m)) for m in measurements if isinstance(m.problem, InputPipeline))
    return [(m, seconds) for m, seconds in found if seconds]


def step(m: Measurement) -> Estimate | None:
    """Seconds of a step of a row; None where its epochs do not give it."""
    cost = costs.measured(m)
    return cost.step if cost and cost.step.value > 0 else None


def laws(measurements: Iterable[Measurement]) -> tuple[Law, ...]:
    """A Law for every device, way and type that has enough sizes."""
    groups = group_by(rows(measurements), lambda row: (row[0].device, row[0].variant, row[0].problem.dtype))
    return tuple(law for key, own in groups.items() if (law := _law(key, own)))


def _law(key: tuple[str, str, str], own: list[tuple[Measurement, Estimate]]) -> Law | None:
    """The law by least squares of the relative errors, noisy rows weighing less, no coefficient negative; None with too few
    sizes."""
    each = np.array([(1.0, m.problem.batch, m.problem.nbytes) for m, _ in own])
    if len(np.unique(each, axis=0)) < FEWEST:
        return None
    seconds, noise = np.array([(e.value, e.noise) for _, e in own]).T
    found = least_squares(each, seconds, noise)
    normal = np.random.default_rng(1).standard_normal((_DRAWS, len(own)))
    drawn = np.array([least_squares(each, t, noise) for t in seconds * np.exp(normal * noise / Z)])
    call, sample, byte = map(from_draws, found.tolist(), drawn.T)
    error = max(float(np.max(np.abs(each @ found / seconds - 1))), float(np.median(noise)))
    sizes = [m.problem.nbytes for m, _ in own]
    return Law(*key, call, sample, byte, error, min(sizes), max(sizes))


def find(laws: Iterable[Law], device: str, way: str, dtype: str = "float32") -> Law | None:
    """The law of that way and type; the resident way has one law for all types, as it copies nothing."""
    own = (x for x in laws if (x.device, x.way) == (device, way))
    return next((x for x in own if x.dtype == dtype or way == InputPipeline.RESIDENT), None)


def batch_seconds(
    laws: Iterable[Law], device: str, way: str, p: Training, network: networks.Network
) -> Estimate | None:
    """Seconds that a batch adds to a step by the law of its way, if there is one. A fit of NumPy arrays casts them first."""
    dtype = settings.fitted(p.dtype) if way == "numpy" else p.dtype
    law, batch = find(laws, device, way, dtype), min(p.batch, p.samples)
    return law.beyond_call(batch, batch * networks.sample_bytes(network, dtype)) if law else None


def copies(measurements: Iterable[Measurement], device: str) -> list[Measurement]:
    """CuPy's plain copies to that GPU, from pageable and pinned memory."""
    own = (m for m in measurements if (m.kernel, m.device) == (COPIES, device) and m.ok and m.on("host-latency"))
    return [m for m in own if m.problem.direction == "h2d" and m.problem.host_memory in ("pageable", "pinned")]


def shares(measurements: Iterable[Measurement]) -> list[Share]:
    """Each of Keras's fits of a known model with a measured step and a law for its input pipeline."""
    every, found = list(measurements), []
    fitted = laws(every)
    for m in (m for m in every if m.kernel == costs.FIT and m.process == "warm" and settings.ordinary(m)):
        network = networks.known(m.problem.model)
        added = network and batch_seconds(fitted, m.device, m.keras.residence, m.problem, network)
        cost = costs.measured(m, every) if added else None
        if added and cost and cost.step.value > 0:
            found.append(Share(m, cost, added))
    return found
