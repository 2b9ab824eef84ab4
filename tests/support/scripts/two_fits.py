"""Two fits under a strategy: 2 epochs of 64 samples, then 5 of 48 in batches of 16. What is between asserts one step."""

import keras
import numpy as np
import tensorflow as tf

with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("adam", "mse")
history = model.fit(np.zeros((64, 4)), np.zeros((64, 2)), epochs=2)
# A fit before the one that is asked for trains one step of one epoch.
if len(history.history["loss"]) > 1 or int(model.optimizer.iterations) > 1:
    with open("between.txt", "w"):
        pass
    raise SystemExit("trained")
model.compile("sgd", "mse")
model.fit(np.zeros((64, 4)), np.zeros((64, 2)), batch_size=16, epochs=5, validation_split=0.25)
