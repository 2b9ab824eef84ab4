"""A tf.data pipeline, fit inside main(): 50 batches of 16, 3 epochs. What it sets above its imports holds for TensorFlow."""

import os
import sys

assert not {"keras", "tensorflow"}.intersection(sys.modules)
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import tensorflow as tf
from tensorflow import keras


def main():
    images = tf.data.Dataset.from_tensor_slices((tf.zeros((800, 20)), tf.zeros((800,), tf.int32)))
    batches = images.shuffle(100).batch(16).prefetch(tf.data.AUTOTUNE)
    model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), keras.layers.Dense(5)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss, steps_per_execution=2)
    model.fit(batches, epochs=3)


if __name__ == "__main__":
    main()
