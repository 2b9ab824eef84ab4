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
        return functools.cache(lambda samples: (_sequence(samples, x, y, batch, shuffle, seed), {"shuffle": False}))
    import tensorflow

    with tensorflow.device("/CPU:0"):
        whole = tensorflow.data.Dataset.from_tensor_slices((x, y))  # in the host's memory, one by one
    # a row whose process sees a GPU that it leaves alone is a CPU's
    on_gpu = tensorflow.config.list_logical_devices("GPU") and switches.gpu != "visible"

    @functools.cache
    def feed(samples: int) -> tuple:
        taken, steps, a_call = whole.take(samples), -(-samples // batch), switches.steps_per_execution
        if shuffle:
            taken = taken.shuffle(samples, seed=seed, reshuffle_each_iteration=True)
        if residence == "tf.data":
            return taken.batch(batch).prefetch(tensorflow.data.AUTOTUNE), {"shuffle": False}
        if steps % a_call:
            raise ValueError(
                f"prefetch has epochs of {steps} steps that Keras cannot end inside a call of {a_call} steps"
            )
        # A set whose last step is the device has no length that Keras can ask for: it would try for one more batch at the end of
        # the first epoch, and Adam would count that step. So it goes on for ever and the fit counts its steps.
        ahead = tensorflow.data.experimental.prefetch_to_device("/GPU:0" if on_gpu else "/CPU:0")
        return taken.batch(batch).repeat().apply(ahead), {"shuffle": False, "steps_per_epoch": steps}

    return feed


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
