"""Data-parallel training: the same weights on several devices, a part of each batch on each, the gradients added up over all.

By keras.distribution.DataParallel on JAX or tf.distribute.MirroredStrategy on TensorFlow, in a worker.
"""

import contextlib
import dataclasses
import functools
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from workloads.harness import timing
from workloads.harness.dispatch import Broken, described
from workloads.records import Row

STRATEGIES = {"jax": "DataParallel", "tensorflow": "MirroredStrategy"}  # Keras's backend -> its strategy
ITEM_BYTES = 4  # of a gradient: float32, whatever the policy computes in
SUMS = 16  # all-reduces in one call: so that what a call costs the host is little of it
ROUNDS, LONGEST_S = 9, 0.5
_ELSEWHERE = "Trying to access resource"  # in TensorFlow's words for a weight on another device than its program
_STEP = "train_step"  # in the name of the program that XLA makes of a step


@dataclasses.dataclass(frozen=True)
class Strategy:
    """The distribution of a row's training over devices. scope(): the context in which variables are created and set. devices:
    their names in the library. own: the library's strategy; None on one device."""

    scope: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    devices: tuple = ()
    own: Any = None
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    notes: dict[str, str] = dataclasses.field(default_factory=dict)


ALONE = Strategy()


def strategy(row: Row) -> Strategy:
    """The strategy of a row. It applies to every model built from now on and replaces that of the row before.

    Raises: ValueError for a row that cannot be spread so; Broken where its devices are not all there.
    """
    name, count, library, problem = row.experiment.strategy, row.experiment.replicas, row.library, row.problem
    if library == "jax":
        import keras

        keras.distribution.set_distribution(None)
    if name == "none":
        if count > 1:
            raise ValueError(f"{count} replicas need a strategy: {', '.join(STRATEGIES.values())}")
        return ALONE
    if STRATEGIES.get(library) != name:
        raise ValueError(f"{name} is not of Keras on {library}; it has {STRATEGIES.get(library, 'none')}")
    if row.keras.gpu == "visible":
        raise ValueError("a training that is put on the CPU by hand is spread over nothing")
    if problem.batch % count or problem.samples % problem.batch:
        raise ValueError(
            f"{problem.samples} samples in batches of {problem.batch} do not divide among {count} devices: Keras's "
            f"strategies need whole batches, multiples of {count}"
        )
    return _spread(row, name)


def _spread(row: Row, name: str) -> Strategy:
    count, batch, side = row.experiment.replicas, row.problem.batch, row.side
    if row.library == "jax":
        import keras

        there = keras.distribution.list_devices(side.lower())
    else:
        import tensorflow

        there = [f"/{side}:{i}" for i in range(len(tensorflow.config.list_logical_devices(side)))]
    devices, values = tuple(there[:count]), {"replicas": float(count), "replica_batch": batch / count}
    if len(there) < count:
        finder = {"jax": "JAX", "tensorflow": "TensorFlow"}[row.library]
        raise Broken(f"{finder} finds {len(there)} of {count} devices: {', '.join(map(str, there)) or 'none'}")
    if row.library == "jax":
        own = keras.distribution.DataParallel(devices=list(devices))
        keras.distribution.set_distribution(own)
        return Strategy(contextlib.nullcontext, devices, own, values, {"strategy": f"keras.distribution.{name}"})
    own = _mirrors(devices)
    sums = type(own.extended._get_cross_device_ops(tensorflow.constant(0.0))).__name__  # no public way to it
    return Strategy(own.scope, devices, own, values, {"strategy": f"tf.distribute.{name}", "all-reduce": sums})


@functools.cache
def _mirrors(devices: tuple[str, ...]):
    """The one MirroredStrategy of a process over those devices. A second one would number its all-reduces from the beginning
    again. TensorFlow would mistake them for the first one's, whose shapes differ."""
    import tensorflow

    return tensorflow.distribute.MirroredStrategy(devices)


def refused(row: Row, error: Exception) -> str:
    """Why a strategy cannot do what its row asks, if that is what the error means; else ""."""
    if row.experiment.strategy == "MirroredStrategy" and row.keras.jit_compile == "on" and _ELSEWHERE in str(error):
        return "XLA compiles no step of a MirroredStrategy: jit_compile=True finds the second replica's weights on another device"
    return ""


def require(model, spread: Strategy) -> None:
    """Raises Broken unless every device of a strategy holds the model's weights."""
    if spread.own is None:
        return
    value = model.trainable_variables[0].value
    held = len(value.devices()) if callable(getattr(value, "devices", None)) else len(value.values)
    if held != len(spread.devices):
        raise Broken(f"the model's weights are on {held} devices, not on {len(spread.devices)}")


def all_reduce(library: str, spread: Strategy, parameters: int) -> dict:
    """Seconds of the sum of a step's gradients over the replicas: values all_reduce_bytes (of one replica's gradients) and
    all_reduce_s, series all_reduce_s with every round. Nothing for one replica.

    A call does SUMS of them one after another, each of the last one's result, scaled so that it stays small; a call that scales
    alone is taken off, and what remains is shared among them.
    """
    count = len(spread.devices)
    if count < 2:
        return {}
    make = _jax_sums if library == "jax" else _tensorflow_sums
    calls = [make(spread, parameters, summing) for summing in (True, False)]
    for call in calls:
        call()
    taken: list[float] = []
    for _ in timing.rounds(timing.Limits(rounds=ROUNDS, max_time=LONGEST_S)):
        whole, scaling = map(timing.seconds, calls)
        taken.append(timing.rounded(max(0.0, whole - scaling) / SUMS))
    return {
        "values": {"all_reduce_bytes": float(ITEM_BYTES * parameters), "all_reduce_s": statistics.median(taken)},
        "series": {"all_reduce_s": tuple(taken)},
    }


def _jax_sums(spread: Strategy, numbers: int, summing: bool) -> Callable[[], None]:
    """A call that sums float32 numbers over the devices SUMS times. The scale differs between devices, as XLA removes a sum of
    values that it knows to be equal."""
    import jax
    from jax.sharding import PartitionSpec

    mesh, axis = spread.own.device_mesh.backend_mesh, spread.own.batch_dim_name
    count = len(spread.devices)

    def body(_, values):
        own = values * (1.0 + 0.1 * jax.lax.axis_index(axis)) / count
        return jax.lax.psum(own, axis) if summing else own

    whole = jax.shard_map(
        lambda v: jax.lax.fori_loop(0, SUMS, body, v),
        mesh=mesh,
        in_specs=PartitionSpec(axis),
        out_specs=PartitionSpec(axis),
        check_vma=False,
    )
    program = jax.jit(whole)
    host = np.random.default_rng(1).standard_normal((count, numbers), np.float32)
    values = jax.device_put(host, jax.sharding.NamedSharding(mesh, PartitionSpec(axis)))
    return lambda: program(values).block_until_ready()


def _tensorflow_sums(spread: Strategy, numbers: int, summing: bool) -> Callable[[], None]:
    """A call that sums float32 numbers over the devices SUMS times by the strategy's own all-reduce."""
    import tensorflow as tf

    count = len(spread.devices)
    host = np.random.default_rng(1).standard_normal(numbers, np.float32)
    values = spread.own.experimental_distribute_values_from_function(lambda _: tf.constant(host))

    def replica(own):
        here = tf.distribute.get_replica_context()
        for _ in range(SUMS):
            own = own * (1.0 / count)
            own = here.all_reduce(tf.distribute.ReduceOp.SUM, own) if summing else own
        return tf.reduce_sum(own)

    program = tf.function(lambda: spread.own.run(replica, (values,)))

    def call() -> None:
        for part in spread.own.experimental_local_results(program()):
            part.numpy()

    return call


def also(row: Row, spread: Strategy, model) -> dict[str, dict]:
    """Further results of a fit, taken when all else has been timed: values and series of `all_reduce`, and the memory of JAX's
    program. If one cannot be had, a note says why, and the training stands without it."""
    jit = row.library == "jax" and model.jit_compile and row.problem.samples % row.problem.batch == 0
    parameters = sum(math.prod(v.shape) for v in model.trainable_variables)
    asked: dict[str, Callable[[], dict]] = {"no all-reduce": lambda: all_reduce(row.library, spread, parameters)}
    asked |= {"no memory": lambda: {"values": program_memory(row.device)}} if jit else {}
    found: dict[str, dict] = {"values": {}, "series": {}, "notes": {}}
    for lacking, ask in asked.items():
        try:
            for group, told in ask().items():
                found[group] |= told
        except Exception as error:  # a library may raise anything here, and JAX promises no interface to its programs
            found["notes"][lacking] = described(error)
    return found


def program_memory(device: str) -> dict[str, float]:
    """Bytes that JAX's newest program of a training step needs on each of its devices: step_state_bytes (weights, optimizer's
    slots and the device's part of a batch) and step_temporary_bytes (activations and gradients). Nothing where no such program is
    alive."""
    import jax

    client = jax.local_devices(backend="cpu" if device == "cpu" else "gpu")[0].client
    for program in client.live_executables():  # the newest first
        if any(_STEP in module.name for module in program.hlo_modules()):
            told = program.get_compiled_memory_stats()
            return {
                "step_state_bytes": float(told.argument_size_in_bytes),
                "step_temporary_bytes": float(told.temp_size_in_bytes),
            }
    return {}
