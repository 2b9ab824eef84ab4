"""A module of a package: 64 samples, as many epochs as its argument says."""

import sys

import keras

from .data import x, y

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, epochs=int(sys.argv[2]))
