"""Inside a worker: the data of a fit, from one batch that Keras's own data adapter gives."""

from typing import Any

import msgspec

from workloads.frameworks.tracing.refusal import Refusal
from workloads.harness.dispatch import Broken, described

_RESIDENCES = {"ArrayDataAdapter": "numpy", "TFDatasetAdapter": "tf.data"}
#: Steps of a tf.data pipeline behind its batches that give as many batches as they take.
_ONE_FOR_ONE = ("_PrefetchDataset", "_ParallelMapDataset", "_MapDataset", "_OptionsDataset", "CacheDataset")


class FitData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a fit."""

    #: Specs of the tensors of one batch, in the structure that `train_step` takes: (x, y, sample weights), or what a set yields.
    specs: Any
    #: Samples of a batch.
    batch: int
    #: Samples, of arrays; None for data that come in batches.
    rows: int | None
    #: Batches of an epoch; None where the data do not tell.
    batches: int | None
    #: Samples of an epoch; None where the data do not tell.
    samples: int | None
    #: Type of the first input, by NumPy's name.
    dtype: str
    #: How the samples reach the fit: numpy, tf.data, generator.
    residence: str


def fit_data(parts: tuple, batch_size: int | None, steps: int | None = None, class_weight: Any = None) -> FitData:
    """The data that `fit` gets as x, y and sample weights; one batch is taken, of arrays their first rows.

    Raises: Broken for what Keras's fit does not take, and for data without a batch.
    """
    from keras.src.trainers.data_adapters import get_data_adapter

    if all(part is None for part in parts):
        raise Refusal("its data are None", "end the function of --data with `return x, y`")
    try:
        adapter = get_data_adapter(*parts, batch_size=batch_size, steps_per_epoch=steps, class_weight=class_weight)
    except Refusal:
        raise
    except Exception as error:
        raise Broken(f"its data are nothing that Keras's fit takes: {described(error)}") from error
    rows = _rows(parts) if type(adapter).__name__ == "ArrayDataAdapter" else None
    if rows is not None:
        batch_size = int(adapter.batch_size)
        few = _first_rows(parts, batch_size)
        first = _first_batch(get_data_adapter(*few, batch_size=batch_size, class_weight=class_weight))
    else:
        first = _first_batch(adapter)
    specs = _specs(first)
    batch = _batch_of(specs)
    batches = adapter.num_batches
    return FitData(
        specs=specs,
        batch=batch if rows is None else min(int(batch_size or batch), rows),
        rows=rows,
        batches=batches,
        samples=_samples(parts[0], rows, batches, batch),
        dtype=_dtype(specs if rows is None else parts),
        residence=_RESIDENCES.get(type(adapter).__name__, "generator"),
    )


def _dtype(structure) -> str:
    """The type of the first array, by NumPy's name."""
    return str(getattr(getattr(_leaves(structure)[0], "dtype", None), "name", "float32"))


def _rows(parts: tuple) -> int:
    return int(_leaves(parts)[0].shape[0])


def _first_rows(parts: tuple, count: int) -> tuple:
    """The first samples of arrays: a copy of all of them may take minutes.

    Raises: Refusal for sparse tensors.
    """
    import keras
    import tensorflow

    def rows(array):
        if array is None:
            return None
        if isinstance(array, tensorflow.SparseTensor):
            change = "give batches: tf.data.Dataset.from_tensor_slices((x, y)).batch(32)"
            raise Refusal("its data are sparse tensors, whose rows cannot be cut", change)
        return array.iloc[:count] if hasattr(array, "iloc") else array[:count]

    return tuple(keras.tree.map_structure(rows, parts))


def _first_batch(adapter):
    """Raises: Broken for data that give none."""
    try:
        first = next(iter(adapter.get_tf_dataset()), None)
    except Refusal:
        raise
    except Exception as error:
        raise Broken(f"its data give no batch that Keras's fit takes: {described(error)}") from error
    if first is None:
        raise Broken("its data give no batch")
    return first


def _specs(batch):
    """Raises: Broken for ragged tensors."""
    import keras
    import tensorflow

    def spec(tensor):
        if isinstance(tensor, tensorflow.RaggedTensor):
            raise Refusal("its data give ragged tensors, whose sizes differ by sample", "pad them with to_tensor()")
        return None if tensor is None else tensorflow.type_spec_from_value(tensor)

    return keras.tree.map_structure(spec, batch)


def _leaves(structure) -> list:
    import keras

    return [leaf for leaf in keras.tree.flatten(structure) if leaf is not None]


def _batch_of(specs) -> int:
    """Samples in a batch: the first side of its first array.

    Raises: Broken for single numbers.
    """
    for leaf in _leaves(specs):
        if leaf.shape.rank:
            return int(leaf.shape[0])
    raise Broken("its data give single numbers: a batch has an array of samples")


def _samples(source: Any, rows: int | None, batches: int | None, batch: int) -> int | None:
    """Samples of an epoch. An incomplete last batch counts as it is where the data tell."""
    if rows is not None:
        return rows
    if batches is None:
        return None
    return _samples_behind_batches(source) or batches * batch


def _samples_behind_batches(source: Any) -> int | None:
    """Samples that a tf.data pipeline makes its batches of; None where that does not show."""
    while type(source).__name__ in _ONE_FOR_ONE:
        source = source._input_dataset
    if type(source).__name__ not in ("_BatchDataset", "_ParallelBatchDataset"):
        return None
    samples = int(source._input_dataset.cardinality())
    dropped = bool(source._drop_remainder.numpy())
    if samples <= 0:
        return None
    return samples - samples % int(source._batch_size) if dropped else samples
