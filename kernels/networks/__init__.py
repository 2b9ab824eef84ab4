"""Networks as tables of layers, and the work that a training step is made of. Imports the problems alone, and gives whole models'
problems their costs.
"""

from kernels.networks.layers import (
    Layer,
    Network,
    layer_weights,
    outputs,
    parameters,
    sample_bytes,
    trainable,
)
from kernels.networks.training_step import Work, inference, inference_flops, step, training_flops
from kernels.networks.zoo import NETWORKS, find, known, mlp, names
from kernels.problems import Training, model
from kernels.problems.arrays import ITEM_BYTES

_TITLES = {
    "cifar10-cnn": "CIFAR-10 CNN",
    "cifar10-mlp": "CIFAR-10 MLP",
    "fashion-mlp": "Fashion-MNIST MLP",
    "mnist-cnn": "MNIST CNN",
    "peaks": "Peaks MLP",
}


def title(model: str) -> str:
    """A model's name in a sentence: `CIFAR-10 CNN`; one that an article did not name, as it is typed."""
    return _TITLES.get(model, model)


class TableCosts:
    """What the models of the tables cost."""

    def footprint_bytes(self, training: Training) -> int:
        """Bytes that a training holds at least: the data set, and the weights four times (gradients, Adam's two moments). 0
        for a user's own model, of which nothing is known before it is built.

        Raises: ValueError for a name that is neither in the tables nor a user's own model's (a .keras file or
        `file.py:function`).
        """
        if training.model.endswith(".keras") or ":" in training.model:
            return 0
        network = find(training.model)
        samples = training.samples * sample_bytes(network, training.dtype)
        return samples + 4 * parameters(network) * ITEM_BYTES["float32"]

    def training_flops(self, name: str) -> int:
        network = known(name)
        return training_flops(network) if network else 0

    def inference_flops(self, name: str) -> int:
        network = known(name)
        return inference_flops(network) if network else 0


model.price(TableCosts())
