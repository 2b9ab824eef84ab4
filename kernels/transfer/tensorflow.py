"""Copies between host and GPU as TensorFlow makes them of pageable memory: one tensor, a tf.data pipeline."""

import numpy as np

from kernels.problems import Transfer
from kernels.registry import TimedCall, kernel

DEVICES = ("gpu",)  # on the CPU there is no link: a tensor may share NumPy's memory
_MOST_SAMPLES = 128


def _gpu(problem: Transfer) -> str:
    """TensorFlow's name of the current device, a GPU, which the caller has chosen by tensorflow.device around the bind.

    Raises: ValueError on a CPU, where nothing is copied, and for other copies than host to device from pageable memory.
    """
    import tensorflow

    if (problem.direction, problem.host_memory, problem.compute) != ("h2d", "pageable", ""):
        raise ValueError("this TensorFlow copy is a plain h2d copy of pageable memory")
    device = tensorflow.zeros(1).device
    if "GPU" not in device:
        raise ValueError(
            "there is no link to copy over: TensorFlow's tensors and NumPy's arrays lie in the same memory"
        )
    return device


@kernel(allocates=True, waits=True)
def constant(problem: Transfer, data: np.ndarray) -> TimedCall:
    """tf.constant under the device: a tensor of the array's bytes, fresh memory each call, waited for by TensorFlow.

    data: `problem.nbytes` bytes in host memory, a NumPy array.
    """
    import tensorflow

    device = _gpu(problem)

    def run():
        with tensorflow.device(device):
            return tensorflow.constant(data)

    return run


@kernel(allocates=True)
def dataset(problem: Transfer, data: np.ndarray) -> TimedCall:
    """The next batch of a tf.data pipeline that cuts an array into samples, batches them and prefetches to the GPU.

    data: `problem.nbytes` bytes in host memory, a NumPy array; they are cut into as many equal samples as divide them, 128 at
    most.
    """
    import tensorflow

    device = _gpu(problem)
    samples = max(n for n in range(1, _MOST_SAMPLES + 1) if problem.nbytes % n == 0)
    with tensorflow.device("/CPU:0"):
        dataset = tensorflow.data.Dataset.from_tensor_slices(data.reshape(samples, -1)).batch(samples).repeat()
    batches = iter(dataset.apply(tensorflow.data.experimental.prefetch_to_device(device)))
    return lambda: (next(batches),)  # a tuple, whose parts are compared as plain bytes
