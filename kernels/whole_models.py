"""Problems of whole models: training one, and asking it for answers. What they are made of is in kernels.networks."""

from typing import ClassVar

import msgspec

from kernels.checked import check_counts


class Training(msgspec.Struct, frozen=True, tag="training"):
    """`epochs` passes of `fit` over `samples` samples in batches of `batch`, for the model of that name."""

    model: str
    batch: int
    samples: int
    epochs: int = 1
    dtype: str = "float32"
    op: ClassVar[str] = "training"

    def __post_init__(self):
        check_counts(batch=self.batch, samples=self.samples, epochs=self.epochs)

    @property
    def steps(self) -> int:
        """Optimizer steps in an epoch; the last one may hold a smaller batch."""
        return -(-self.samples // self.batch)

    @property
    def footprint_bytes(self) -> int:
        """Raises ValueError for a model that is not in kernels.networks."""
        from kernels import networks  # the tables are made of the problems here

        return networks.footprint_bytes(self)

    @property
    def patience_s(self) -> float:
        """Seconds to wait for a row beyond any other's: five fits at 4 ms a sample and 20 ms a step, twice what two
        busy cores took, or at 10 GFLOP/s where a network's products take longer."""
        from kernels import networks

        network = networks.known(self.model)
        sample_s = max(4e-3, networks.training_flops(network) / 10e9) if network else 4e-3
        return 5 * self.epochs * (self.samples * sample_s + self.steps * 20e-3)


class Inference(msgspec.Struct, frozen=True, tag="inference"):
    """The answers of the model of that name to `batch` samples at a time."""

    model: str
    batch: int
    dtype: str = "float32"
    op: ClassVar[str] = "inference"

    def __post_init__(self):
        check_counts(batch=self.batch)

    @property
    def flops(self) -> int:
        """FLOPs of the products that answer a batch; 0 for a model that is not in kernels.networks."""
        from kernels import networks

        network = networks.known(self.model)
        return self.batch * networks.inference_flops(network) if network else 0

    @property
    def footprint_bytes(self) -> int:
        """Raises ValueError for a model that is not in kernels.networks."""
        return Training(self.model, self.batch, self.batch, dtype=self.dtype).footprint_bytes

    @property
    def patience_s(self) -> float:
        """Seconds to wait for a row beyond any other's: as for the training of so many samples."""
        return Training(self.model, self.batch, self.batch).patience_s
