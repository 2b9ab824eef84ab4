"""A plain Keras script with a stopwatch, which workloads.training is held to: it shares no code with this project.

    python plain_keras.py MODEL BATCH SAMPLES EPOCHS SHORT

fits MODEL with all samples, then with SHORT batches of them, each twice, and prints two JSON lines: one when the first fit
has ended (a stopwatch around the process stops there), one with the seconds of every epoch.
"""

import json
import sys
import time


def strided_cnn(keras):
    made = []
    for filters in (32, 64, 128):
        made += [keras.layers.Conv2D(filters, 3, strides=2, padding="same")]
        made += [keras.layers.BatchNormalization(), keras.layers.Activation("relu")]
    last = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, activation="softmax")]
    return keras.Sequential([keras.Input((64, 64, 3)), *made, *last]), "adam", False


def cifar10_cnn(keras):
    la = keras.layers
    layers = [
        *(la.Conv2D(32, 3, padding="same", activation="relu"), la.MaxPooling2D(), la.Dropout(0.25)),
        *(la.Conv2D(64, 3, padding="same", activation="relu"), la.Conv2D(64, 3, activation="relu")),
        *(la.MaxPooling2D(), la.Dropout(0.25), la.Flatten(), la.Dense(512, activation="relu")),
        *(la.Dropout(0.2), la.Dense(10, activation="softmax")),
    ]
    return keras.Sequential([keras.Input((32, 32, 3)), *layers]), "adam", False


def cifar10_mlp(keras):
    la = keras.layers
    layers = [la.Flatten(), la.Dense(3000, activation="relu"), la.Dense(1000, activation="relu")]
    layers += [la.Dense(10, activation="sigmoid")]
    return keras.Sequential([keras.Input((32, 32, 3)), *layers]), "sgd", True


def mlp(keras):
    la = keras.layers
    layers = [la.Dense(500, activation="relu"), la.Dense(500, activation="relu"), la.Dense(10, activation="softmax")]
    return keras.Sequential([keras.Input((784,)), *layers]), "adam", False


MODELS = {"strided-cnn": strided_cnn, "cifar10-cnn": cifar10_cnn, "cifar10-mlp": cifar10_mlp, "mlp-784-500x2-10": mlp}


def main(name: str, batch: int, samples: int, epochs: int, short: int) -> None:
    started = time.perf_counter()
    import keras
    import numpy as np

    imported = time.perf_counter()

    class Ends(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.at = []

        def on_epoch_end(self, epoch, logs=None):
            self.at.append(time.perf_counter())

    def fit(count: int) -> list[float]:
        """Seconds of every epoch but the first."""
        ends = Ends()
        model.fit(x[:count], y[:count], batch_size=batch, epochs=epochs, verbose=0, callbacks=[ends])
        return [b - a for a, b in zip(ends.at, ends.at[1:], strict=False)]

    model, optimizer, one_hot = MODELS[name](keras)
    loss = "categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy"
    model.compile(optimizer, loss, metrics=["accuracy"])
    begin = time.perf_counter()
    rng = np.random.default_rng(1)
    x = rng.random((samples, *model.input_shape[1:]), dtype=np.float32)
    y = rng.integers(0, 10, samples)
    y = np.eye(10, dtype=np.float32)[y] if one_hot else y.astype(np.int32)
    made = time.perf_counter()
    epoch_s = fit(samples)
    parts = {"import": imported - started, "build": begin - imported, "fit": time.perf_counter() - made}
    print(json.dumps({"fitted": True}), flush=True)
    short_s = fit(short * batch)
    said = {"epoch_s": epoch_s + fit(samples), "short_s": short_s + fit(short * batch), "parts": parts}
    print(json.dumps({"data_s": made - begin, **said, "weights": model.count_params()}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
