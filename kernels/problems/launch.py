"""The cost of a call itself: almost no data, nearly no work."""

from typing import ClassVar

import numpy as np

from kernels.problems.arrays import random_array
from kernels.problems.fields import Base, check_counts, check_word


class Launch(Base, frozen=True, tag="launch"):
    """`count` times the same call on almost no data: the cost of a call before any work.

    call: `empty` (nothing is computed), `elementwise` (x + 1 on 256 float32 values, each call on the result of the one before),
    `matmul` (16 x 16 float32), `copy` (4 bytes to the device); of a Keras model with almost no work `step` (one fit of so many
    steps), `epoch` (one fit of so many epochs of a step), `predict` (one call, so many batches of a sample) and
    `train_on_batch`; and what happens once in a process: `import`, `device_start`, `compile`.
    """

    call: str
    count: int = 1
    op: ClassVar[str] = "launch"
    CALLS: ClassVar[tuple] = (
        "empty",
        "elementwise",
        "matmul",
        "copy",
        "step",
        "epoch",
        "predict",
        "train_on_batch",
        "import",
        "device_start",
        "compile",
    )
    ONCE: ClassVar[tuple] = ("import", "device_start", "compile")
    VALUES: ClassVar[int] = 256
    SIDE: ClassVar[int] = 16

    def __post_init__(self):
        check_word("call", self.call, self.CALLS)
        check_counts(count=self.count)
        if self.once and self.count != 1:
            raise ValueError(f"{self.call} happens once in a process")

    @property
    def once(self) -> bool:
        """Whether it happens once in a process, so that each sample needs a fresh one."""
        return self.call in self.ONCE

    @property
    def dtype(self) -> str:
        return "float32"

    @property
    def footprint_bytes(self) -> int:
        return 4 * self.VALUES * 2

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        """The operands of the call: one float32 array, two for `matmul`; none where the call brings its own.

        seed: of the random values. whole_numbers: -2 to 2, for exact results.
        """
        if self.call == "elementwise":
            return (random_array((self.VALUES,), "float32", seed, whole_numbers),)
        if self.call == "matmul":
            return tuple(random_array((self.SIDE, self.SIDE), "float32", seed + i, whole_numbers) for i in range(2))
        values = {"copy": 1, "predict": self.count}.get(self.call)
        return (random_array((values,), "float32", seed, whole_numbers),) if values else ()

    def expected(self, *inputs: np.ndarray) -> np.ndarray:
        """x + count for `elementwise`, the product for `matmul`, the values for `copy` and `predict` (a model of weight 1 and
        shift 0), the optimizer's steps for calls that train; nothing for `empty`."""
        match self.call:
            case "elementwise":
                return inputs[0] + np.float32(self.count)
            case "matmul":
                return (inputs[0].astype(np.int64) @ inputs[1].astype(np.int64)).astype(np.float32)
            case "copy" | "predict":
                return inputs[0]
            case "step" | "epoch" | "train_on_batch":
                return np.array([self.count], np.int64)
            case _:
                return np.empty(0)
