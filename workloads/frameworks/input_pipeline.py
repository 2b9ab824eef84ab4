"""How samples reach model.fit: as NumPy arrays, as a tf.data pipeline, prefetched to the device, or in batches from Python."""

import abc
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.records.switches import Keras

if TYPE_CHECKING:
    import keras

RESIDENCES = ("numpy", "tf.data", "prefetch", "generator")


class Pipeline(abc.ABC):
    """Batches for model.fit.

    All pipelines give the same batches, a smaller one last, in the same order where `shuffle` is off; shuffled, each mixes the
    whole set anew every epoch, as Keras does with arrays.
    """

    def __init__(self, options: Keras, x: np.ndarray, y: np.ndarray, batch: int, *, seed: int):
        """x, y: all samples and their targets. batch: samples of a batch. seed: of the order in which samples are shuffled."""
        self.options = options
        self.x = x
        self.y = y
        self.batch = batch
        self.seed = seed
        self.is_shuffled = options.shuffle == "on"

    @abc.abstractmethod
    def fit_arguments(self, samples: int) -> dict[str, Any]:
        """The arguments of model.fit, but for epochs and callbacks, that train on the first `samples` samples."""


def pipeline(options: Keras, x: np.ndarray, y: np.ndarray, batch: int, *, seed: int) -> Pipeline:
    """The pipeline from the place that `options.residence` names: numpy, tf.data, prefetch or generator.

    Raises: ValueError for another residence, and for one that Keras's backend does not have.
    """
    residence = options.residence
    if residence not in RESIDENCES:
        raise ValueError(f"model.fit takes its samples from {', '.join(RESIDENCES)}, not {residence}")
    if residence in ("tf.data", "prefetch") and options.keras_backend != "tensorflow":
        raise ValueError(f"{residence} is TensorFlow's way, and Keras runs on {options.keras_backend}")
    if residence == "numpy":
        return ArrayPipeline(options, x, y, batch, seed=seed)
    if residence == "generator":
        return GeneratorPipeline(options, x, y, batch, seed=seed)
    return DatasetPipeline(options, x, y, batch, seed=seed)


class ArrayPipeline(Pipeline):
    """NumPy arrays, which Keras cuts into batches."""

    def fit_arguments(self, samples: int) -> dict[str, Any]:
        return {
            "x": self.x[:samples],
            "y": self.y[:samples],
            "batch_size": self.batch,
            "shuffle": self.is_shuffled,
        }


class GeneratorPipeline(Pipeline):
    """Python cuts each batch out of the arrays. A generator is made once for each number of samples."""

    def __init__(self, *arguments: Any, **keywords: Any):
        super().__init__(*arguments, **keywords)
        #: Number of samples of an epoch -> their generator.
        self._generators: dict[int, keras.utils.PyDataset] = {}

    def fit_arguments(self, samples: int) -> dict[str, Any]:
        if samples not in self._generators:
            self._generators[samples] = _batches_class()(self, samples)
        return {"x": self._generators[samples], "shuffle": False}


@functools.cache
def _batches_class() -> type:
    """The class of generators, a keras.utils.PyDataset, of which Keras asks for the number of batches and for each by its
    index."""
    import keras

    class Batches(keras.utils.PyDataset):
        def __init__(self, pipeline: Pipeline, samples: int):
            """samples: how many of the pipeline's first samples an epoch has."""
            super().__init__()
            self._pipeline = pipeline
            self._samples = samples
            self._random = np.random.default_rng(pipeline.seed)
            self._order = np.arange(samples)

        def __len__(self) -> int:
            return -(-self._samples // self._pipeline.batch)

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            """The batch (x, y) of this number, cut out of the arrays; the last one may be smaller."""
            pipeline = self._pipeline
            begin = index * pipeline.batch
            part: Any = slice(begin, min(begin + pipeline.batch, self._samples))
            if pipeline.is_shuffled:
                part = self._order[part]
            return pipeline.x[part], pipeline.y[part]

        def on_epoch_begin(self) -> None:
            if self._pipeline.is_shuffled:
                self._order = self._random.permutation(self._samples)

    return Batches


class DatasetPipeline(Pipeline):
    """A tf.data pipeline, or one that is prefetched to the device.

    It holds its own copy of the samples. A pipeline is made once for each number of samples, and every fit's batches have the
    same type, so that nothing is traced again for a fit of another length.
    """

    def __init__(self, *arguments: Any, **keywords: Any):
        super().__init__(*arguments, **keywords)
        import tensorflow

        with tensorflow.device("/CPU:0"):  # the samples stay in the host's memory
            self._every_sample = tensorflow.data.Dataset.from_tensor_slices((self.x, self.y))
        # With the option gpu=visible the process sees a GPU, but trains on the CPU.
        sees_gpu = bool(tensorflow.config.list_logical_devices("GPU"))
        self._device = "/GPU:0" if sees_gpu and self.options.gpu != "visible" else "/CPU:0"
        #: Number of samples of an epoch -> the arguments of model.fit.
        self._arguments: dict[int, dict[str, Any]] = {}

    def fit_arguments(self, samples: int) -> dict[str, Any]:
        if samples not in self._arguments:
            self._arguments[samples] = self._new_arguments(samples)
        return self._arguments[samples]

    def _new_arguments(self, samples: int) -> dict[str, Any]:
        """The arguments of model.fit with a new pipeline over the first `samples` samples.

        Raises: ValueError where a prefetched epoch would end within the steps that Keras runs in one call.
        """
        import tensorflow

        dataset = self._every_sample.take(samples)
        if self.is_shuffled:
            dataset = dataset.shuffle(samples, seed=self.seed, reshuffle_each_iteration=True)
        dataset = dataset.batch(self.batch)
        if self.options.residence == "tf.data":
            return {"x": dataset.prefetch(tensorflow.data.AUTOTUNE), "shuffle": False}
        steps = -(-samples // self.batch)
        steps_a_call = self.options.steps_per_execution
        if steps % steps_a_call:
            raise ValueError(
                f"prefetch has epochs of {steps} steps that Keras cannot end inside a call of {steps_a_call} steps"
            )
        # A set whose last step is the device has no length that Keras can ask for: it would try for one more batch at the end of
        # the first epoch, and Adam would count that step. So it goes on for ever and the fit counts its steps.
        to_device = tensorflow.data.experimental.prefetch_to_device(self._device)
        return {"x": dataset.repeat().apply(to_device), "shuffle": False, "steps_per_epoch": steps}
