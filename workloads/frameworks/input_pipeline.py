"""How samples reach model.fit: as NumPy arrays, as a tf.data pipeline, prefetched to the device, or in batches from Python."""

import functools
from collections.abc import Callable

import numpy as np

from workloads.records.switches import Keras

RESIDENCES = ("numpy", "tf.data", "prefetch", "generator")


def feeder(switches: Keras, x: np.ndarray, y: np.ndarray, batch: int, seed: int) -> Callable[[int], tuple]:
    """feed(samples) gives (data, keywords): what `model.fit(data, **keywords)` takes for the first `samples` samples.

    All residences give the same batches, a smaller one last, in the same order where `shuffle` is off; shuffled, each mixes
    the whole set anew every epoch, as Keras does with arrays. What is made once stays: a pipeline holds its own copy of the
    samples, and every fit's batches have the same type, so that nothing is traced again for a fit of another length.
    Raises: ValueError for a residence that is not model.fit's, or that Keras's backend cannot have.
    """
    residence, shuffle = switches.residence, switches.shuffle == "on"
    if residence not in RESIDENCES:
        raise ValueError(f"model.fit takes its samples from {', '.join(RESIDENCES)}, not {residence}")
    if residence in ("tf.data", "prefetch") and switches.keras_backend != "tensorflow":
        raise ValueError(f"{residence} is TensorFlow's way, and Keras runs on {switches.keras_backend}")
    if residence == "numpy":
        return lambda samples: (x[:samples], {"y": y[:samples], "batch_size": batch, "shuffle": shuffle})
    if residence == "generator":
        sequence = functools.cache(lambda samples: _sequence(samples, x, y, batch, shuffle, seed))
        return lambda samples: (sequence(samples), {"shuffle": False})
    whole = _slices(x, y)
    if residence == "tf.data":
        pipeline = functools.cache(lambda samples: _pipeline(samples, whole, batch, shuffle, seed))
        return lambda samples: (pipeline(samples), {"shuffle": False})
    device, a_call = _device(switches), switches.steps_per_execution
    prefetched = functools.cache(lambda samples: _prefetched(samples, whole, batch, shuffle, seed, device))

    def feed(samples: int) -> tuple:
        steps = -(-samples // batch)
        if steps % a_call:
            raise ValueError(
                f"prefetch has epochs of {steps} steps that Keras cannot end inside a call of {a_call} steps"
            )
        return prefetched(samples), {"shuffle": False, "steps_per_epoch": steps}

    return feed


def _slices(x: np.ndarray, y: np.ndarray):
    """The samples as a tf.data set in host memory, one by one."""
    import tensorflow

    with tensorflow.device("/CPU:0"):
        return tensorflow.data.Dataset.from_tensor_slices((x, y))


def _device(switches: Keras) -> str:
    """TensorFlow's name of the device that is trained on; a row whose process sees a GPU that it leaves alone is a CPU's."""
    import tensorflow

    gpus = tensorflow.config.list_logical_devices("GPU")
    return "/GPU:0" if gpus and switches.gpu != "visible" else "/CPU:0"


def _batches(samples: int, whole, batch: int, shuffle: bool, seed: int):
    taken = whole.take(samples)
    return (taken.shuffle(samples, seed=seed, reshuffle_each_iteration=True) if shuffle else taken).batch(batch)


def _pipeline(samples: int, whole, batch: int, shuffle: bool, seed: int):
    """Samples mixed, in batches, prefetched on the host."""
    import tensorflow

    return _batches(samples, whole, batch, shuffle, seed).prefetch(tensorflow.data.AUTOTUNE)


def _prefetched(samples: int, whole, batch: int, shuffle: bool, seed: int, device: str):
    """The same with the device as the last step. Such a set has no length that Keras can ask for: it would try for one more
    batch at the end of the first epoch, and Adam would count that step. So it goes on for ever and the fit counts its steps."""
    import tensorflow

    endless = _batches(samples, whole, batch, shuffle, seed).repeat()
    return endless.apply(tensorflow.data.experimental.prefetch_to_device(device))


def _sequence(samples: int, x: np.ndarray, y: np.ndarray, batch: int, shuffle: bool, seed: int):
    """A keras PyDataset, the generator that Keras can count: Python cuts each batch out of the arrays."""
    import keras

    class Batches(keras.utils.PyDataset):
        def __init__(self):
            super().__init__()
            self._rng = np.random.default_rng(seed)
            self._order = np.arange(samples)

        def __len__(self) -> int:
            return -(-samples // batch)

        def __getitem__(self, index: int):
            cut = slice(index * batch, min((index + 1) * batch, samples))
            return (x[self._order[cut]], y[self._order[cut]]) if shuffle else (x[cut], y[cut])

        def on_epoch_begin(self):
            if shuffle:
                self._order = self._rng.permutation(samples)

    return Batches()
