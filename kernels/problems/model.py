"""Whole models: training one, and asking it for answers. The layers of models are in kernels.networks."""

from typing import ClassVar, Protocol

from kernels.problems.arrays import ITEM_BYTES, UnknownName
from kernels.problems.fields import Base, check_counts


def check_dtype(name: str) -> None:
    """Raises ValueError for a type that samples are not stored as."""
    if name not in (*ITEM_BYTES, "uint8"):
        raise UnknownName("dtype", name, [*ITEM_BYTES, "uint8"])


class Costs(Protocol):
    """Costs of a model that a problem needs."""

    def footprint_bytes(self, training: "Training") -> int:
        """The least bytes that a training holds.

        Raises: ValueError for a model that is in no table.
        """

    def training_flops(self, model: str) -> int:
        """FLOPs of the products of one sample in a training step; 0 for a model that is in no table."""

    def inference_flops(self, model: str) -> int:
        """The same in inference."""


_costs: list[Costs] = []


def price(costs: Costs) -> None:
    """Gives the problems their models' costs; kernels.networks does so when it is imported."""
    _costs[:] = [costs]


def _priced() -> Costs:
    if not _costs:
        raise RuntimeError("import kernels.networks first: it knows what models cost")
    return _costs[0]


class Training(Base, frozen=True, tag="training"):
    """`epochs` passes of `fit` over `samples` samples in batches of `batch`, for the model of that name."""

    model: str
    batch: int
    samples: int
    epochs: int = 1
    dtype: str = "float32"
    op: ClassVar[str] = "training"

    def __post_init__(self):
        check_counts(batch=self.batch, samples=self.samples, epochs=self.epochs)
        check_dtype(self.dtype)

    @property
    def steps(self) -> int:
        """Optimizer steps in an epoch; the last one may hold a smaller batch."""
        return -(-self.samples // self.batch)

    @property
    def footprint_bytes(self) -> int:
        """Raises ValueError for a model that is not in kernels.networks."""
        return _priced().footprint_bytes(self)

    @property
    def patience_s(self) -> float:
        """Seconds to wait for a row beyond any other's: five fits at 4 ms a sample and 20 ms a step, twice what two busy
        cores took, or at 10 GFLOP/s where a network's products take longer."""
        sample_s = max(4e-3, _priced().training_flops(self.model) / 10e9)
        return 5 * self.epochs * (self.samples * sample_s + self.steps * 20e-3)


class Inference(Base, frozen=True, tag="inference"):
    """The answers of the model of that name to `batch` samples at a time."""

    model: str
    batch: int
    dtype: str = "float32"
    op: ClassVar[str] = "inference"

    def __post_init__(self):
        check_counts(batch=self.batch)
        check_dtype(self.dtype)

    @property
    def flops(self) -> int:
        """FLOPs of the products that answer a batch; 0 for a model that is not in kernels.networks."""
        return self.batch * _priced().inference_flops(self.model)

    @property
    def footprint_bytes(self) -> int:
        """Raises ValueError for a model that is not in kernels.networks."""
        return Training(self.model, self.batch, self.batch, dtype=self.dtype).footprint_bytes

    @property
    def patience_s(self) -> float:
        """Seconds to wait for a row beyond any other's: as for the training of so many samples."""
        return Training(self.model, self.batch, self.batch).patience_s
