"""A generator that fails after some batches."""

import keras
import numpy as np


def batches():
    for _ in range(6):
        yield np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
    raise ValueError("no third batch")


model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(batches(), steps_per_epoch=10, epochs=4)
