"""A script that fails before fit: a column of its data is not there."""

rows = {"x": [1, 2, 3]}
y = rows["y"]

import keras

model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(rows["x"], y)
