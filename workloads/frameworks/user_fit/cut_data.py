"""Inside a worker: the data of a user's fit, cut to some steps: arrays, a tf.data.Dataset, a PyDataset or a generator."""

import math
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.frameworks.tracing.fit_data import FitData
from workloads.frameworks.tracing.refusal import Refusal
from workloads.harness.dispatch import Broken

if TYPE_CHECKING:
    import keras

RATE_S = 3.0  # seconds that batches are taken for their rate
_RATE_STEPS = 1_000_000  # steps of the epoch that they are taken from, where the data do not end before
FitArguments = dict[str, Any]  # the arguments of a call of Keras's `fit` by their names


class CutData:
    """A user's data for `fit`, from which arguments of fits of any number of steps are made."""

    def __init__(self, call: FitArguments, data: FitData, batch: int):
        """call: the user's arguments of `fit`. data: what they tell. batch: samples of a batch.

        Raises: Refusal for another batch than that of data which come in batches.
        """
        self.call = call
        self.data = data
        self.batch = batch
        self._generator: SharedGenerator | None = None
        if isinstance(call["x"], types.GeneratorType):
            self._generator = SharedGenerator(call["x"])
        if data.rows is None and batch != data.batch:
            change = f"leave --batch {batch} out, or batch them so"
            raise Refusal(f"its data come in batches of {data.batch}", change=change)

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample with its targets and weights; at least 1."""
        import keras

        total = 0
        for spec in keras.tree.flatten(self.data.specs):
            if spec is not None and spec.dtype.size:
                total += math.prod(spec.shape) * spec.dtype.size
        return max(1, total // self.data.batch)

    def arguments(self, samples: int) -> FitArguments:
        """The arguments of a fit whose epochs have `samples` samples; of data that come in batches, as many whole batches as hold
        these.

        Raises: Broken for a generator that has ended, and for data of a kind that cannot be cut.
        """
        rest = {"class_weight": self.call["class_weight"]}
        if self.data.rows is not None:
            rest |= {"batch_size": self.batch, "shuffle": self.call["shuffle"]}
            return self._rows(samples) | rest
        steps = -(-samples // self.batch)
        x = self.call["x"]
        if self._generator is not None:
            self._generator.require_more()
            return {"x": self._generator.batches(), "steps_per_epoch": steps, "shuffle": False} | rest
        if self.data.residence == "tf.data":
            return self._dataset(steps) | rest | {"shuffle": False}
        if _is_py_dataset(x):
            if self.call["steps_per_epoch"]:
                return {"x": x, "steps_per_epoch": steps, "shuffle": self.call["shuffle"]} | rest
            return {"x": _cut_py_dataset(x, steps), "shuffle": self.call["shuffle"]} | rest
        raise Refusal(
            f"its data are a {type(x).__name__}, which cannot be cut to a few steps",
            change="give fit arrays, a tf.data.Dataset, a keras.utils.PyDataset or a generator",
        )

    def _rows(self, samples: int) -> FitArguments:
        """The arguments x, y and sample_weight with the first samples of arrays; where these have fewer, they are repeated."""
        import keras

        def cut(array: Any) -> Any:
            return None if array is None else first_rows(array, samples, self.data.rows or samples)

        parts = {name: self.call[name] for name in ("x", "y", "sample_weight")}
        return {name: keras.tree.map_structure(cut, part) for name, part in parts.items()}

    def _dataset(self, steps: int) -> FitArguments:
        """The arguments of a fit over a tf.data.Dataset whose epochs have `steps` batches.

        As in the user's fit, each epoch takes them from the beginning, or where that fit has steps_per_epoch, goes on where the
        last one ended.
        """
        dataset = self.call["x"]
        endless = self.data.batches is None or self.data.batches < steps
        if self.call["steps_per_epoch"]:
            return {"x": dataset.repeat(), "steps_per_epoch": steps}
        return {"x": (dataset.repeat() if endless else dataset).take(steps)}

    def seconds_of_a_batch(self) -> float:
        """Seconds that Keras's own data adapter takes to give a batch of these data, without any training."""
        from keras.src.trainers.data_adapters import get_data_adapter

        steps = self.data.batches or _RATE_STEPS
        if self.data.rows is not None:
            steps = -(-self.data.rows // self.batch)
        arguments = self.arguments(steps * self.batch)
        if self._generator is None and self.data.rows is None:
            arguments.pop("steps_per_epoch", None)
        adapter = get_data_adapter(**arguments)
        return seconds_of_a_batch(adapter.get_tf_dataset(), time.perf_counter)

    @property
    def error(self) -> Exception | None:
        """The error that the user's generator raised; None where it raised none, or the data are no generator."""
        return None if self._generator is None else self._generator.error

    def require_more(self) -> None:
        """Raises Refusal where the data are a generator that has ended."""
        if self._generator is not None:
            self._generator.require_more()


class SharedGenerator:
    """A user's generator of batches, from which several fits take one after the other: it cannot begin anew."""

    def __init__(self, generator: Iterator):
        """generator: the user's, which yields batches."""
        self._generator = generator
        self._lock = threading.Lock()  # TensorFlow's threads of an earlier fit may still ask for a batch
        self._taken = 0
        self._ended = False
        #: What it raised; None while it did not.
        self.error: Exception | None = None

    def batches(self) -> Iterator:
        """The batches that no fit has taken yet, as a generator for one more fit."""
        while True:
            with self._lock:
                try:
                    batch = next(self._generator)
                except StopIteration:
                    self._ended = True
                    return
                except Exception as error:  # TensorFlow's own error for it names neither its kind nor its line
                    self.error = error
                    raise
                self._taken += 1
            yield batch

    def require_more(self) -> None:
        """Raises Refusal where the user's generator has ended."""
        if self._ended:
            raise Refusal(
                f"its generator ends after {self._taken} batches", change="let it go on: while True around its loop"
            )


def fit_arguments(parts: tuple, batch: int) -> FitArguments:
    """The arguments of `fit` for data in `parts`: x, y and sample weights, the last ones optional; or one data set."""
    padded = (*parts, None, None)
    return {
        "x": padded[0],
        "y": padded[1],
        "sample_weight": padded[2],
        "batch_size": batch,
        "steps_per_epoch": None,
        "class_weight": None,
        "shuffle": True,
    }


def first_rows(array: Any, count: int, rows: int) -> Any:
    """The first `count` samples of an array that has `rows` of them; where it has fewer, they are repeated.

    array: of NumPy, a tensor, or a table of pandas.
    """
    if count > rows:
        indices = np.arange(count) % rows
        if hasattr(array, "numpy"):  # a tensor, which may be of texts
            import tensorflow

            return tensorflow.gather(array, indices)
        return np.take(np.asarray(array), indices, axis=0)
    return array.iloc[:count] if hasattr(array, "iloc") else array[:count]


def seconds_of_a_batch(batches: Iterable, clock: Callable[[], float]) -> float:
    """Mean seconds between batches, which are taken for RATE_S seconds or until they end.

    The first one, which may fill a buffer, counts only where it is the only one in that time. clock(): seconds now.
    Raises: Broken for data without a batch.
    """
    begin = clock()
    times: list[float] = []
    for _ in batches:
        times.append(clock())
        if times[-1] - begin > RATE_S:
            break
    if not times:
        raise Broken("its data give no batch")
    if len(times) == 1:
        return times[0] - begin
    return (times[-1] - times[0]) / (len(times) - 1)


def _is_py_dataset(x: Any) -> bool:
    import keras

    return isinstance(x, keras.utils.PyDataset)


def _cut_py_dataset(inner: "keras.utils.PyDataset", steps: int) -> "keras.utils.PyDataset":
    """A PyDataset of the first `steps` batches of another; where that has fewer, they are repeated."""
    import keras

    class CutDataset(keras.utils.PyDataset):
        def __init__(self) -> None:
            super().__init__(
                workers=inner.workers,
                use_multiprocessing=inner.use_multiprocessing,
                max_queue_size=inner.max_queue_size,
            )
            self._count = inner.num_batches or steps

        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> Any:
            return inner[index % self._count]

        def on_epoch_begin(self) -> None:
            inner.on_epoch_begin()

        def on_epoch_end(self) -> None:
            inner.on_epoch_end()

    return CutDataset()
