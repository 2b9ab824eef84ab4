"""Operands of whole numbers, whose products are exact."""

import numpy as np

RNG = np.random.default_rng(7)


def whole(shape, dtype="float32") -> np.ndarray:
    return RNG.choice([-2, -1, 1, 2], shape).astype(dtype)
