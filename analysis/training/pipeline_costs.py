"""Seconds that a step waits for its batch: a linear model of samples and bytes, for each input pipeline, type and device."""

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
#: Types of samples; all pipelines are measured with the first.
DTYPES = ("float32", "uint8", "float64")
#: (samples of a batch, values of a sample) that a model is fitted to.
SIZES = ((32, 784), (2048, 784), (32, 12288), (256, 12288), (2048, 3072))
#: Sizes at which the bench checks a model, which is not fitted to them.
TEST_SIZES = ((128, 3072), (1024, 1568), (512, 6144))
#: Bytes of a data set of the study in float32, in 16 to 64 batches.
SET_BYTES = 256 << 20
_FEWEST_BATCHES, _MOST_BATCHES = 16, 64
_FLOAT32_BYTES = 4
#: Sizes that a fit takes.
FEWEST = 4
_DRAWS = 200


def steps(batch: int, width: int) -> int:
    """Steps of an epoch of the study: the batches of a data set of about SET_BYTES, whose samples have `width` float32 values."""
    batch_bytes = _FLOAT32_BYTES * batch * width
    return min(_MOST_BATCHES, max(_FEWEST_BATCHES, SET_BYTES // batch_bytes))


def is_worth_measuring(device: str, pipeline: str, dtype: str) -> bool:
    """Whether the study measures an input pipeline (numpy, tf.data, prefetch ...) with samples of a type on a device. A CPU has
    nowhere to copy ahead to, and types other than float32 matter only to pipelines that cast or copy in bulk."""
    if device == "cpu" and pipeline == "prefetch":
        return False
    return dtype == DTYPES[0] or pipeline in ("numpy", "tf.data")


class PipelineCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a step that does nothing but take its batch: call + samples * sample + bytes * byte."""

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
        """Seconds of a step with a batch of so many samples and bytes; the interval is the error of the fit."""
        value = self.call.value + samples * self.sample.value + nbytes * self.byte.value
        return plus_minus(value, value * self.error).at_least(0.0)

    def beyond_call(self, samples: float, nbytes: float) -> Estimate:
        """Seconds that getting its batch adds to a step, without the call, which every step has."""
        return (self.seconds(samples, nbytes) - self.call.value).at_least(0.0)

    @property
    def bandwidth(self) -> Estimate:
        """Bytes a second of a batch so large that its call and its samples do not count; infinite where bytes cost nothing."""
        return 1 / self.byte


class PipelineShare(msgspec.Struct, frozen=True, kw_only=True):
    """A measured training and the time of its input pipeline."""

    training: Measurement
    cost: costs.TrainingCost
    #: Seconds of the input pipeline; where work overlaps it, it takes less of the step.
    pipeline_s: Estimate

    @property
    def share(self) -> Estimate:
        """The share of a measured step that getting its batch takes."""
        return self.pipeline_s / self.cost.step


def timed_rows(measurements: Iterable[Measurement]) -> list[tuple[Measurement, Estimate]]:
    """(row, seconds of its step) of the study of input pipelines; rows whose epochs do not give a step are left out."""
    rows = []
    for row in measurements:
        if not isinstance(row.problem, InputPipeline):
            continue
        seconds = step_seconds(row)
        if seconds is not None:
            rows.append((row, seconds))
    return rows


def step_seconds(row: Measurement) -> Estimate | None:
    """Seconds of a step of a row of the study; None if its epochs do not give it."""
    cost = costs.measured(row)
    return cost.step if cost and cost.step.value > 0 else None


def fits(measurements: Iterable[Measurement]) -> tuple[PipelineCost, ...]:
    """The seconds of a step by samples and bytes, fitted for every device, input pipeline and type that has enough sizes."""
    groups = group_by(timed_rows(measurements), lambda pair: (pair[0].device, pair[0].variant, pair[0].problem.dtype))
    fitted = [_fit(rows) for rows in groups.values()]
    return tuple(cost for cost in fitted if cost is not None)


def _fit(rows: list[tuple[Measurement, Estimate]]) -> PipelineCost | None:
    """The linear model of the seconds of a step, from (row, seconds of its step) of one device, input pipeline and type, by least
    squares of the relative errors. No coefficient is negative. None with fewer than FEWEST sizes."""
    terms = np.array([(1.0, row.problem.batch, row.problem.nbytes) for row, _ in rows])
    if len(np.unique(terms, axis=0)) < FEWEST:
        return None
    seconds = np.array([estimate.value for _, estimate in rows])
    noise = np.array([estimate.noise for _, estimate in rows])
    coefficients = least_squares(terms, seconds, noise)
    normal = np.random.default_rng(1).standard_normal((_DRAWS, len(rows)))
    drawn_seconds = seconds * np.exp(normal * noise / Z)
    drawn = np.array([least_squares(terms, one_draw, noise) for one_draw in drawn_seconds])
    call, sample, byte = map(from_draws, coefficients.tolist(), drawn.T)
    largest_error = float(np.max(np.abs(terms @ coefficients / seconds - 1)))
    batch_bytes = [row.problem.nbytes for row, _ in rows]
    first, _ = rows[0]
    return PipelineCost(
        device=first.device,
        variant=first.variant,
        dtype=first.problem.dtype,
        call=call,
        sample=sample,
        byte=byte,
        error=max(largest_error, float(np.median(noise))),
        low=min(batch_bytes),
        high=max(batch_bytes),
    )


def find(
    pipeline_costs: Iterable[PipelineCost], device: str, pipeline: str, dtype: str = "float32"
) -> PipelineCost | None:
    """The fitted cost of an input pipeline with samples of a type on a device; None without one. Samples that are resident on the
    device have one cost for all types, as nothing is copied."""
    for cost in pipeline_costs:
        if cost.device != device or cost.variant != pipeline:
            continue
        if cost.dtype == dtype or pipeline == InputPipeline.RESIDENT:
            return cost
    return None


def batch_seconds(
    pipeline_costs: Iterable[PipelineCost],
    device: str,
    pipeline: str,
    training: Training,
    network: networks.Network,
) -> Estimate | None:
    """Seconds that getting its batch adds to a step of a training by an input pipeline; None if its cost is not known. Keras's
    fit of NumPy arrays casts them first, so there the type that it casts to counts."""
    dtype = settings.dtype_in_fit(training.dtype) if pipeline == "numpy" else training.dtype
    cost = find(pipeline_costs, device, pipeline, dtype)
    if cost is None:
        return None
    batch = min(training.batch, training.samples)
    return cost.beyond_call(batch, batch * networks.sample_bytes(network, dtype))


def copies(measurements: Iterable[Measurement], device: str) -> list[Measurement]:
    """The rows of CuPy's plain copies (ndarray.set) to a GPU, from pageable and pinned memory."""
    every = []
    for row in measurements:
        if row.kernel != COPIES or row.device != device or not row.ok or not row.on("host-latency"):
            continue
        if row.problem.direction == "h2d" and row.problem.host_memory in ("pageable", "pinned"):
            every.append(row)
    return every


def shares(measurements: Iterable[Measurement]) -> list[PipelineShare]:
    """The share of the input pipeline in the step of each measured training by Keras's fit, if the model and the cost of its
    pipeline are known."""
    measurements = list(measurements)
    fitted = fits(measurements)
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
            every.append(PipelineShare(training=row, cost=cost, pipeline_s=pipeline_s))
    return every
