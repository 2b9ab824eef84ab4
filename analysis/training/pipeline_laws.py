"""Seconds that a step waits for its batch and a fit for its data set: a law for each input pipeline, type and device."""

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
#: (samples of a batch, values of a sample) that a law is fitted to.
SIZES = ((32, 784), (2048, 784), (32, 12288), (256, 12288), (2048, 3072))
#: Sizes that the bench asks a law for, which is not fitted to them.
TEST_SIZES = ((128, 3072), (1024, 1568), (512, 6144))
#: Of a data set in float32, in 16 to 64 batches.
SET_BYTES = 256 << 20
#: Sizes for a law.
FEWEST = 4
_DRAWS = 200


def steps(batch: int, width: int) -> int:
    """Steps an epoch of a row of the study: the batches of its data set."""
    return min(64, max(16, SET_BYTES // (4 * batch * width)))


def tells(device: str, variant: str, dtype: str) -> bool:
    """Whether an input pipeline is worth measuring on the device: a CPU has nowhere to copy ahead to, and types other than
    float32 matter only to pipelines that cast or copy in bulk."""
    if device == "cpu" and variant == "prefetch":
        return False
    return dtype == DTYPES[0] or variant in ("numpy", "tf.data")


class Law(msgspec.Struct, frozen=True, kw_only=True):
    """seconds = call + samples * sample + bytes * byte, of a batch."""

    device: str
    #: The input pipeline: the variant of its rows.
    variant: str
    #: Type of the samples.
    dtype: str
    #: Seconds of a call.
    call: Estimate
    #: Seconds a sample.
    sample: Estimate
    #: Seconds a byte.
    byte: Estimate
    #: The largest relative error, or the noise, of the sizes that it was fitted to.
    error: float
    #: The fewest bytes of a batch that were measured.
    low: int
    #: The most.
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


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A measured training and its input pipeline."""

    training: Measurement
    cost: costs.TrainingCost
    #: Seconds of the input pipeline; where work overlaps it, it takes less of the step.
    pipeline_s: Estimate

    @property
    def share(self) -> Estimate:
        """The share of a measured step that getting its batch takes."""
        return self.pipeline_s / self.cost.step


def rows(measurements: Iterable[Measurement]) -> list[tuple[Measurement, Estimate]]:
    """(row, seconds of its step) of the study; rows whose epochs do not give it are left out."""
    pairs = []
    for row in measurements:
        if not isinstance(row.problem, InputPipeline):
            continue
        seconds = step(row)
        if seconds is not None:
            pairs.append((row, seconds))
    return pairs


def step(row: Measurement) -> Estimate | None:
    """Seconds of a step of a row; None where its epochs do not give it."""
    cost = costs.measured(row)
    return cost.step if cost and cost.step.value > 0 else None


def laws(measurements: Iterable[Measurement]) -> tuple[Law, ...]:
    """A law for every device, input pipeline and type that has enough sizes."""
    groups = group_by(rows(measurements), lambda pair: (pair[0].device, pair[0].variant, pair[0].problem.dtype))
    fitted = [_law(pairs) for pairs in groups.values()]
    return tuple(law for law in fitted if law is not None)


def _law(pairs: list[tuple[Measurement, Estimate]]) -> Law | None:
    """The law of rows of one device, input pipeline and type, by least squares of the relative errors: noisy rows weigh less, no
    coefficient is negative. None with too few sizes."""
    terms = np.array([(1.0, row.problem.batch, row.problem.nbytes) for row, _ in pairs])
    if len(np.unique(terms, axis=0)) < FEWEST:
        return None
    seconds = np.array([estimate.value for _, estimate in pairs])
    noise = np.array([estimate.noise for _, estimate in pairs])
    coefficients = least_squares(terms, seconds, noise)
    normal = np.random.default_rng(1).standard_normal((_DRAWS, len(pairs)))
    drawn_seconds = seconds * np.exp(normal * noise / Z)
    drawn = np.array([least_squares(terms, one, noise) for one in drawn_seconds])
    call, sample, byte = map(from_draws, coefficients.tolist(), drawn.T)
    largest_error = float(np.max(np.abs(terms @ coefficients / seconds - 1)))
    sizes = [row.problem.nbytes for row, _ in pairs]
    first = pairs[0][0]
    return Law(
        device=first.device,
        variant=first.variant,
        dtype=first.problem.dtype,
        call=call,
        sample=sample,
        byte=byte,
        error=max(largest_error, float(np.median(noise))),
        low=min(sizes),
        high=max(sizes),
    )


def find(laws: Iterable[Law], device: str, variant: str, dtype: str = "float32") -> Law | None:
    """The law of an input pipeline and type; resident samples have one law for all types, as nothing is copied."""
    for law in laws:
        if law.device != device or law.variant != variant:
            continue
        if law.dtype == dtype or variant == InputPipeline.RESIDENT:
            return law
    return None


def batch_seconds(
    laws: Iterable[Law], device: str, variant: str, training: Training, network: networks.Network
) -> Estimate | None:
    """Seconds that a batch adds to a step by the law of its input pipeline, if there is one. A fit of NumPy arrays casts them
    first."""
    dtype = settings.dtype_in_fit(training.dtype) if variant == "numpy" else training.dtype
    law = find(laws, device, variant, dtype)
    if law is None:
        return None
    batch = min(training.batch, training.samples)
    return law.beyond_call(batch, batch * networks.sample_bytes(network, dtype))


def copies(measurements: Iterable[Measurement], device: str) -> list[Measurement]:
    """CuPy's plain copies to a GPU, from pageable and pinned memory."""
    every = []
    for row in measurements:
        if row.kernel != COPIES or row.device != device or not row.ok or not row.on("host-latency"):
            continue
        if row.problem.direction == "h2d" and row.problem.host_memory in ("pageable", "pinned"):
            every.append(row)
    return every


def shares(measurements: Iterable[Measurement]) -> list[Share]:
    """Each of Keras's fits of a known model with a measured step and a law for its input pipeline."""
    measurements = list(measurements)
    fitted = laws(measurements)
    every = []
    for row in measurements:
        if row.kernel != costs.FIT or row.process != "warm" or not settings.ordinary(row):
            continue
        network = networks.known(row.problem.model)
        if network is None:
            continue
        pipeline_s = batch_seconds(fitted, row.device, row.keras.residence, row.problem, network=network)
        cost = costs.measured(row, measurements) if pipeline_s else None
        if pipeline_s and cost and cost.step.value > 0:
            every.append(Share(training=row, cost=cost, pipeline_s=pipeline_s))
    return every
