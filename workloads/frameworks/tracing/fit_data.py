"""Inside a worker: the data of a fit, from one batch that Keras's own data adapter gives."""

from typing import TYPE_CHECKING, Any

import msgspec

from workloads.frameworks.tracing.refusal import Refusal
from workloads.harness.dispatch import Broken, described

if TYPE_CHECKING:
    import tensorflow as tf
    from keras.src.trainers.data_adapters.data_adapter import DataAdapter

#: Keras's class of the data -> how a row names their place; any other class is a generator.
_RESIDENCES = {"ArrayDataAdapter": "numpy", "TFDatasetAdapter": "tf.data"}
#: Steps of a tf.data pipeline behind its batches that give as many batches as they take.
_ONE_FOR_ONE = ("_PrefetchDataset", "_ParallelMapDataset", "_MapDataset", "_OptionsDataset", "CacheDataset")


class FitData(msgspec.Struct, frozen=True, kw_only=True):
    """The shapes, types and numbers of the data that a call of `fit` trains on."""

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
    """What a call of Keras's `fit` with these data would train on. One batch is taken from them; of arrays, their first rows.

    parts: x, y and sample weights, the last ones optional; or one data set or generator. batch_size, steps (steps_per_epoch) and
    class_weight: as `fit` takes them.
    Raises: Broken for what Keras's fit does not take, and for data without a batch.
    """
    from keras.src.trainers.data_adapters import get_data_adapter

    if all(part is None for part in parts):
        raise Refusal("its data are None", change="end the function of --data with `return x, y`")
    try:
        adapter = get_data_adapter(*parts, batch_size=batch_size, steps_per_epoch=steps, class_weight=class_weight)
    except Refusal:  # by the time limit: it tells the user what to change
        raise
    except Exception as error:
        raise Broken(f"its data are nothing that Keras's fit takes: {described(error)}") from error
    rows = _rows(parts) if type(adapter).__name__ == "ArrayDataAdapter" else None
    if rows is not None:
        batch_size = int(adapter.batch_size)
        first_parts = _first_rows(parts, batch_size)
        first = _first_batch(get_data_adapter(*first_parts, batch_size=batch_size, class_weight=class_weight))
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


def _dtype(structure: Any) -> str:
    """The type of the first array in a nest of arrays or specs, by NumPy's name; float32 of a list without a type."""
    dtype = getattr(_leaves(structure)[0], "dtype", None)
    return str(getattr(dtype, "name", "float32"))


def _rows(parts: tuple) -> int:
    """The number of samples of arrays (x, y, sample weights)."""
    return int(_leaves(parts)[0].shape[0])


def _first_rows(parts: tuple, count: int) -> tuple:
    """The same arrays cut to their first `count` samples, so that Keras does not copy all of them, which may take minutes.

    Raises: Refusal for sparse tensors.
    """
    import keras
    import tensorflow

    def rows(array: Any) -> Any:
        """The first `count` rows of one array."""
        if array is None:
            return None
        if isinstance(array, tensorflow.SparseTensor):
            change = "give batches: tf.data.Dataset.from_tensor_slices((x, y)).batch(32)"
            raise Refusal("its data are sparse tensors, whose rows cannot be cut", change=change)
        return array.iloc[:count] if hasattr(array, "iloc") else array[:count]  # a table of pandas has iloc

    return tuple(keras.tree.map_structure(rows, parts))


def _first_batch(adapter: "DataAdapter") -> Any:
    """The first batch of data as `train_step` takes it: (x, y, sample weights) as tensors, or what a data set yields.

    Raises: Broken for data that give none, or one that Keras does not take.
    """
    try:
        first = next(iter(adapter.get_tf_dataset()), None)
    except Refusal:  # by the time limit: it tells the user what to change
        raise
    except Exception as error:
        raise Broken(f"its data give no batch that Keras's fit takes: {described(error)}") from error
    if first is None:
        raise Broken("its data give no batch")
    return first


def _specs(batch: Any) -> Any:
    """The TensorSpecs of a batch of tensors, in the batch's structure.

    Raises: Refusal for ragged tensors.
    """
    import keras
    import tensorflow

    def spec(tensor: "tf.Tensor | None") -> "tf.TypeSpec | None":
        """The spec of one tensor of the batch."""
        if isinstance(tensor, tensorflow.RaggedTensor):
            raise Refusal(
                "its data give ragged tensors, whose sizes differ by sample", change="pad them with to_tensor()"
            )
        return None if tensor is None else tensorflow.type_spec_from_value(tensor)

    return keras.tree.map_structure(spec, batch)


def _leaves(structure: Any) -> list:
    """The arrays or specs in lists, tuples and dictionaries of them, in their order and without None."""
    import keras

    return [leaf for leaf in keras.tree.flatten(structure) if leaf is not None]


def _batch_of(specs: Any) -> int:
    """Samples in a batch: the first side of its first array. specs: TensorSpecs of the batch, in its structure.

    Raises: Broken for a batch of single numbers.
    """
    for leaf in _leaves(specs):
        if leaf.shape.rank:
            return int(leaf.shape[0])
    raise Broken("its data give single numbers: a batch has an array of samples")


def _samples(data: Any, rows: int | None, batches: int | None, batch: int) -> int | None:
    """Samples of an epoch; None where the data do not tell.

    data: the x of `fit`. rows: samples of arrays; None of other data. batches: batches of an epoch; None where not known. batch:
    samples of a full batch; the last one of a tf.data pipeline counts with what it has.
    """
    if rows is not None:
        return rows
    if batches is None:
        return None
    return _samples_of_pipeline(data) or batches * batch


def _samples_of_pipeline(data: Any) -> int | None:
    """Samples of an epoch of a tf.data pipeline that ends with `.batch(n)`, or with steps behind it that change no sample.

    None of any other data, and where TensorFlow does not know the number.
    """
    while type(data).__name__ in _ONE_FOR_ONE:
        data = data._input_dataset
    if type(data).__name__ not in ("_BatchDataset", "_ParallelBatchDataset"):
        return None
    samples = int(data._input_dataset.cardinality())
    if samples <= 0:  # TensorFlow's -1 and -2: infinite, unknown
        return None
    drops_incomplete_batch = bool(data._drop_remainder.numpy())
    return samples - samples % int(data._batch_size) if drops_incomplete_batch else samples
