"""Data-parallel training: the same weights on several devices, a part of each batch on each, the gradients added up over all.

By keras.distribution.DataParallel on JAX or tf.distribute.MirroredStrategy on TensorFlow, in a worker.
"""

import abc
import contextlib
import dataclasses
import functools
import math
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.harness import timing
from workloads.harness.dispatch import Broken, described
from workloads.records import Row

if TYPE_CHECKING:
    import jax
    import keras
    import tensorflow as tf

STRATEGIES = {"jax": "DataParallel", "tensorflow": "MirroredStrategy"}  # Keras's backend -> its strategy
_LIBRARY_NAMES = {"jax": "JAX", "tensorflow": "TensorFlow"}
ITEM_BYTES = 4  # of a gradient: float32, whatever the policy computes in
SUMS = 16  # all-reduces in one call: so that what a call costs the host is little of it
#: Rounds in which the all-reduce is timed, and seconds from which no further one begins.
ROUNDS = 9
LONGEST_S = 0.5
_ELSEWHERE = "Trying to access resource"  # in TensorFlow's words for a weight on another device than its program
_STEP = "train_step"  # in the name of the program that XLA makes of a step


@dataclasses.dataclass(frozen=True, kw_only=True)
class FurtherResults:
    """Results of a training that are taken when its fits have been timed."""

    #: Values of the row's measurement.
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    #: Series of the row's measurement.
    series: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    #: Notes of the row's measurement.
    notes: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, other: "FurtherResults") -> None:
        """Puts the values, series and notes of another among these."""
        self.values.update(other.values)
        self.series.update(other.series)
        self.notes.update(other.notes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strategy:
    """The distribution of a row's training over devices."""

    #: Names of the devices in the library; () for one device.
    devices: tuple = ()
    #: Keras's DataParallel on JAX; else None.
    distribution: Any = None
    #: TensorFlow's MirroredStrategy; else None.
    mirrors: Any = None
    #: Values of the row's measurement.
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    #: Notes of the row's measurement.
    notes: dict[str, str] = dataclasses.field(default_factory=dict)

    def scope(self) -> contextlib.AbstractContextManager:
        """A `with` block in which a model is built, so that each of its weights is created on every device."""
        return contextlib.nullcontext() if self.mirrors is None else self.mirrors.scope()


ALONE = Strategy()


def strategy(row: Row) -> Strategy:
    """How a row's training is spread over devices: over `replicas` of them by the strategy that the row names, or over one.

    On JAX it applies to every model that is built from now on, and replaces the strategy of an earlier row.
    Raises: ValueError for a row that cannot be spread so; Broken where the library finds fewer devices.
    """
    name = row.experiment.strategy
    count = row.experiment.replicas
    problem = row.problem
    if row.library == "jax":
        import keras

        keras.distribution.set_distribution(None)
    if name == "none":
        if count > 1:
            raise ValueError(f"{count} replicas need a strategy: {', '.join(STRATEGIES.values())}")
        return ALONE
    if STRATEGIES.get(row.library) != name:
        raise ValueError(f"{name} is not of Keras on {row.library}; it has {STRATEGIES.get(row.library, 'none')}")
    if row.keras.gpu == "visible":
        raise ValueError("a training that is put on the CPU by hand is spread over nothing")
    if problem.batch % count or problem.samples % problem.batch:
        raise ValueError(
            f"{problem.samples} samples in batches of {problem.batch} do not divide among {count} devices: Keras's "
            f"strategies need whole batches, multiples of {count}"
        )
    devices = _devices(row)
    values = {"replicas": float(count), "replica_batch": problem.batch / count}
    if row.library == "jax":
        return _jax_strategy(devices, values)
    return _tensorflow_strategy(devices, values)


def _devices(row: Row) -> tuple[str, ...]:
    """The names, in the row's library, of as many devices as the row has replicas.

    Raises: Broken where the library finds fewer.
    """
    count = row.experiment.replicas
    if row.library == "jax":
        import keras

        devices = keras.distribution.list_devices(row.side.lower())
    else:
        import tensorflow

        number = len(tensorflow.config.list_logical_devices(row.side))
        devices = [f"/{row.side}:{i}" for i in range(number)]
    if len(devices) < count:
        names = ", ".join(map(str, devices)) or "none"
        raise Broken(f"{_LIBRARY_NAMES[row.library]} finds {len(devices)} of {count} devices: {names}")
    return tuple(devices[:count])


def _jax_strategy(devices: tuple[str, ...], values: dict[str, float]) -> Strategy:
    """Keras's DataParallel over these devices, which is set for every model from now on. values: of the row's measurement."""
    import keras

    distribution = keras.distribution.DataParallel(devices=list(devices))
    keras.distribution.set_distribution(distribution)
    notes = {"strategy": f"keras.distribution.{STRATEGIES['jax']}"}
    return Strategy(devices=devices, distribution=distribution, values=values, notes=notes)


def _tensorflow_strategy(devices: tuple[str, ...], values: dict[str, float]) -> Strategy:
    """TensorFlow's MirroredStrategy over these devices. values: of the row's measurement; its notes name the kind of all-reduce
    that TensorFlow has chosen."""
    import tensorflow

    mirrors = _mirrors(devices)
    sums = mirrors.extended._get_cross_device_ops(tensorflow.constant(0.0))  # no public way to it
    notes = {"strategy": f"tf.distribute.{STRATEGIES['tensorflow']}", "all-reduce": type(sums).__name__}
    return Strategy(devices=devices, mirrors=mirrors, values=values, notes=notes)


@functools.cache
def _mirrors(devices: tuple[str, ...]) -> "tf.distribute.MirroredStrategy":
    """The MirroredStrategy over these devices, the same for all rows of this process.

    A second one would number its all-reduces from the beginning again, and TensorFlow would mistake them for those of the first
    one, whose shapes differ.
    """
    import tensorflow

    return tensorflow.distribute.MirroredStrategy(devices)


def refused(row: Row, error: Exception) -> str:
    """Why a row asks for what its strategy cannot do, as a sentence, where an error of its training means that; else ""."""
    if row.experiment.strategy == "MirroredStrategy" and row.keras.jit_compile == "on" and _ELSEWHERE in str(error):
        return "XLA compiles no step of a MirroredStrategy: jit_compile=True finds the second replica's weights on another device"
    return ""


def require(model: "keras.Model", spread: Strategy) -> None:
    """Raises Broken unless every device of a strategy has the model's weights in its memory."""
    if not spread.devices:
        return
    value = model.trainable_variables[0].value
    is_jax_array = callable(getattr(value, "devices", None))
    number = len(value.devices()) if is_jax_array else len(value.values)
    if number != len(spread.devices):
        raise Broken(f"the model's weights are on {number} devices, not on {len(spread.devices)}")


# ---------------------------------------------------------------- the all-reduce


class SumsOverDevices(abc.ABC):
    """A function that does SUMS all-reduces one after another: each adds up an array over all devices.

    An all-reduce takes the result of the one before, scaled so that it stays small. Without `summing` it is scaled and not added
    up.
    """

    def __init__(self, spread: Strategy, numbers: int, summing: bool):
        """numbers: float32 numbers of the array on each device."""
        self.spread = spread
        self.numbers = numbers
        self.summing = summing

    @abc.abstractmethod
    def __call__(self) -> None:
        """Does all sums and waits for them."""


class JaxSums(SumsOverDevices):
    """The all-reduces of JAX, in one compiled program. The scale differs between devices, as XLA removes a sum of values that it
    knows to be equal."""

    def __init__(self, spread: Strategy, numbers: int, summing: bool):
        super().__init__(spread, numbers, summing)
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        mesh = spread.distribution.device_mesh.backend_mesh
        axis = spread.distribution.batch_dim_name
        count = len(spread.devices)

        def scaled_sum(_: int, values: "jax.Array") -> "jax.Array":
            """One all-reduce on each device; JAX calls it once, while it traces the loop."""
            scaled = values * (1.0 + 0.1 * jax.lax.axis_index(axis)) / count
            return jax.lax.psum(scaled, axis) if summing else scaled

        self._program = jax.jit(
            jax.shard_map(
                lambda values: jax.lax.fori_loop(0, SUMS, scaled_sum, values),
                mesh=mesh,
                in_specs=PartitionSpec(axis),
                out_specs=PartitionSpec(axis),
                check_vma=False,
            )
        )
        host = np.random.default_rng(1).standard_normal((count, numbers), np.float32)
        self._values = jax.device_put(host, NamedSharding(mesh, PartitionSpec(axis)))

    def __call__(self) -> None:
        self._program(self._values).block_until_ready()


class TensorFlowSums(SumsOverDevices):
    """The all-reduces of TensorFlow's MirroredStrategy, in one tf.function."""

    def __init__(self, spread: Strategy, numbers: int, summing: bool):
        super().__init__(spread, numbers, summing)
        import tensorflow as tf

        count = len(spread.devices)
        mirrors = spread.mirrors
        host = np.random.default_rng(1).standard_normal(numbers, np.float32)
        values = mirrors.experimental_distribute_values_from_function(lambda _: tf.constant(host))

        def replica(numbers: tf.Tensor) -> tf.Tensor:
            """What each device does: all all-reduces, and a sum of the last result that makes TensorFlow compute it."""
            context = tf.distribute.get_replica_context()
            for _ in range(SUMS):
                numbers = numbers * (1.0 / count)
                if summing:
                    numbers = context.all_reduce(tf.distribute.ReduceOp.SUM, numbers)
            return tf.reduce_sum(numbers)

        self._program = tf.function(lambda: mirrors.run(replica, (values,)))

    def __call__(self) -> None:
        for part in self.spread.mirrors.experimental_local_results(self._program()):
            part.numpy()


def all_reduce(library: str, spread: Strategy, parameters: int) -> FurtherResults:
    """Times the sum of one step's gradients over all devices of a strategy. No results for a single device.

    values: all_reduce_bytes, of the gradients on one device, and all_reduce_s, the median; series: all_reduce_s of every round.
    The seconds of a call that only scales are subtracted from those of one that also sums, and divided by the number of sums.
    library: jax or tensorflow. parameters: numbers that the model trains.
    """
    if len(spread.devices) < 2:
        return FurtherResults()
    sums_of_library = JaxSums if library == "jax" else TensorFlowSums
    summing = sums_of_library(spread, parameters, summing=True)
    scaling = sums_of_library(spread, parameters, summing=False)
    summing()
    scaling()
    sum_s: list[float] = []
    for _ in timing.rounds(timing.Limits(rounds=ROUNDS, max_time=LONGEST_S)):
        summing_s = timing.seconds(summing)
        scaling_s = timing.seconds(scaling)
        sum_s.append(timing.rounded(max(0.0, summing_s - scaling_s) / SUMS))
    values = {"all_reduce_bytes": float(ITEM_BYTES * parameters), "all_reduce_s": statistics.median(sum_s)}
    return FurtherResults(values=values, series={"all_reduce_s": tuple(sum_s)})


def further_results(row: Row, spread: Strategy, model: "keras.Model") -> FurtherResults:
    """The seconds of a step's all-reduce, and on JAX the memory that the step's program needs. Where one of them cannot be
    measured, nothing is raised and a note says why."""
    results = FurtherResults()
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    try:
        results.add(all_reduce(row.library, spread, parameters))
    except Exception as error:  # a library may raise anything here
        results.notes["no all-reduce"] = described(error)
    is_whole_batches = row.problem.samples % row.problem.batch == 0
    if row.library == "jax" and model.jit_compile and is_whole_batches:
        try:
            results.values.update(program_memory(row.device))
        except Exception as error:  # JAX promises no interface to its programs
            results.notes["no memory"] = described(error)
    return results


def program_memory(device: str) -> dict[str, float]:
    """Bytes that the newest program of a training step in JAX needs on each of its devices; {} where there is no such program.

    values: step_state_bytes (weights, the optimizer's variables, the device's part of a batch) and step_temporary_bytes
    (activations and gradients). device: `cpu`, or a GPU as `gpu:0`.
    """
    import jax

    platform = "cpu" if device == "cpu" else "gpu"
    client = jax.local_devices(backend=platform)[0].client
    for program in client.live_executables():  # the newest first
        if any(_STEP in module.name for module in program.hlo_modules()):
            memory = program.get_compiled_memory_stats()
            return {
                "step_state_bytes": float(memory.argument_size_in_bytes),
                "step_temporary_bytes": float(memory.temp_size_in_bytes),
            }
    return {}
