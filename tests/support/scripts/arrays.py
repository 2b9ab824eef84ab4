"""A functional CNN on arrays: 1,200 samples in batches of 48, 7 epochs; 200 samples for validation. Written to `after.txt` by
what comes after fit, which must not run."""

import argparse
import atexit

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=48)
flags = parser.parse_args()


def write(text):
    with open("after.txt", "a") as file:
        file.write(text)


atexit.register(write, "atexit")
x = np.zeros((1200, 8, 8, 3), "float64")
y = np.zeros(1200, "int32")
image = keras.Input((8, 8, 3))
hidden = keras.layers.Conv2D(4, 3, activation="relu")(image)
hidden = keras.layers.Flatten()(hidden)
model = keras.Model(image, keras.layers.Dense(10, activation="softmax")(hidden))
model.compile("adam", "sparse_categorical_crossentropy")
try:
    model.fit(x, y, batch_size=flags.batch, epochs=7, validation_data=(x[:200], y[:200]))
finally:
    write("finally")
