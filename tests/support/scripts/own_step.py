"""A subclassed model of two inputs with a step of its own, whose loss has another name: 40 samples in batches of 8."""

import keras
import numpy as np
import tensorflow as tf


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(tf.concat([inputs["a"], inputs["b"]], axis=1))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(self(x, training=True) - y))
        self.optimizer.apply(tape.gradient(error, self.trainable_variables), self.trainable_variables)
        return {"error": error}


model = Own()
model.compile("sgd")
x = {"a": np.zeros((40, 2), "float32"), "b": np.zeros((40, 3), "float32")}
y = np.zeros((40, 1), "float32")
model.fit(x, y, batch_size=8, epochs=3)
