"""The input pipeline: batches on their way from a data set in host memory into a training step."""

from typing import ClassVar

from kernels.problems.arrays import ITEM_BYTES
from kernels.problems.fields import Base, check_counts
from kernels.problems.model import check_dtype


class InputPipeline(Base, frozen=True, tag="feeding"):
    """A batch of `batch` samples of `width` values each, out of a data set of `steps` batches."""

    batch: int
    width: int
    steps: int
    dtype: str = "float32"
    op: ClassVar[str] = "feeding"
    #: The samples are on the device already.
    RESIDENT: ClassVar[str] = "resident"
    #: The variants of its kernels: where the samples live and how they come.
    WAYS: ClassVar[tuple] = ("numpy", "tf.data", "generator", "prefetch", RESIDENT)
    LEAST_WIDTH: ClassVar[int] = 8  # values that the step looks at

    def __post_init__(self):
        check_counts(batch=self.batch, width=self.width, steps=self.steps)
        check_dtype(self.dtype)
        if self.width < self.LEAST_WIDTH:
            raise ValueError(f"a sample has {self.LEAST_WIDTH} values at least, not {self.width}")

    @property
    def samples(self) -> int:
        """Samples of the data set."""
        return self.batch * self.steps

    @property
    def nbytes(self) -> int:
        """Bytes of a batch."""
        return self.batch * self.width * ITEM_BYTES.get(self.dtype, 1)

    @property
    def footprint_bytes(self) -> int:
        """Bytes of the data set."""
        return self.steps * self.nbytes
