"""What TensorFlow and XLA make of one operation of a table's network: operations of the graph, arrays and kernels."""

import msgspec

from kernels.problems import Stream


class OperationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one operation of Keras's step."""

    #: Operations of the graph when it is not compiled, reads of variables among them.
    operations: int = 1
    #: Those of them that its row has, as written in kernels.stream.tensorflow: on whole arrays, and Adam's reads of 4 variables.
    formula: int = 1
    #: Arrays read and written if each of those is a pass of its own.
    arrays: int = 0
    #: Kernels that XLA makes of it.
    kernels: int = 1


# Source: TensorFlow's optimized graphs of Keras 3's steps, counted in tests/analysis/predict/step_kernels/test_fusion.py. Adam
# works out its step size for each variable anew. A loop's are those of a time step of an LSTM or GRU, 8 fewer in a first layer,
# 8 more in later ones.
_COUNTS = {
    "dropout": OperationCounts(operations=12, formula=6, arrays=9),
    "dropout_grad": OperationCounts(operations=2),
    "batchnorm": OperationCounts(operations=20, formula=12, arrays=14),
    "batchnorm_grad": OperationCounts(operations=25, arrays=24),
    "adam": OperationCounts(operations=28, formula=16, arrays=30),
    "sgd": OperationCounts(operations=4, formula=2, arrays=5),
    "loss": OperationCounts(operations=12, kernels=4),
    "loss_grad": OperationCounts(operations=11, kernels=3),
    "accuracy": OperationCounts(operations=18, kernels=5),
    "loop": OperationCounts(operations=93),
    "loop_grad": OperationCounts(operations=93),
}
_ONE = OperationCounts()


def counts(operation: str) -> OperationCounts:
    """The counts of an operation, `adam` or `dropout_grad`; one of each for what is not in the table."""
    return _COUNTS.get(operation, _ONE)


def unfused_traffic(operation: str) -> float:
    """How many times the bytes a pass moves when each operation of its formula reads and writes its arrays, compared with one
    fused kernel; at least 1."""
    weights = Stream.WEIGHTS[operation]
    return max(1.0, counts(operation).arrays / (weights.read + weights.written))
