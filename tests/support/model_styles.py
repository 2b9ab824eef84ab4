"""Models in the styles in which people write them, all built and compiled from scratch: `model_styles.py:lstm`."""

import keras
from keras import layers


def mlp():
    model = keras.Sequential()
    model.add(keras.Input((784,)))
    model.add(layers.Dense(512, activation="relu"))
    model.add(layers.Dropout(0.2))
    model.add(layers.Dense(10, activation="softmax"))
    return model


def deep_mlp():
    hidden = [layers.Dense(256, activation="relu") for _ in range(12)]
    model = keras.Sequential([keras.Input((100,)), *hidden, layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model


def wide_mlp():
    inputs = keras.Input((1024,))
    x = layers.Dense(4096, activation="relu")(inputs)
    x = layers.Dense(4096, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(100, activation="softmax")(x))


def cnn():
    convolutions = [
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
    ]
    head = [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10, activation="softmax")]
    model = keras.Sequential([keras.Input((28, 28, 1)), *convolutions, *head])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def batch_norm_cnn():
    x = inputs = keras.Input((32, 32, 3))
    for filters in (32, 64, 128):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.BatchNormalization()(x)
            x = layers.Activation("relu")(x)
        x = layers.MaxPooling2D()(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


def residual():
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(inputs)
    for _ in range(4):
        shortcut = x
        x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
        x = layers.Conv2D(32, 3, padding="same")(x)
        x = layers.ReLU()(layers.Add()([x, shortcut]))
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, layers.Dense(10)(x))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def separable():
    blocks = []
    for filters in (64, 128, 256):
        blocks += [layers.SeparableConv2D(filters, 3, padding="same", activation="relu"), layers.MaxPooling2D()]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(5, activation="softmax")]
    return keras.Sequential([keras.Input((64, 64, 3)), *blocks, *head])


def mobilenet():
    return keras.applications.MobileNetV2(weights=None, input_shape=(96, 96, 3), classes=10)


def lstm():
    model = keras.Sequential([keras.Input((50, 8)), layers.LSTM(64), layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    return model


def gru_on_words():
    model = keras.Sequential(
        [
            keras.Input((100,), dtype="int32"),
            layers.Embedding(10_000, 64),
            layers.GRU(64),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return model


def conv1d_on_words():
    inputs = keras.Input((200,), dtype="int32")
    x = layers.Embedding(20_000, 64)(inputs)
    x = layers.Conv1D(128, 5, activation="relu")(x)
    x = layers.GlobalMaxPooling1D()(x)
    x = layers.Dense(64, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


def autoencoder():
    inputs = keras.Input((784,))
    encoded = layers.Dense(128, activation="relu")(inputs)
    encoded = layers.Dense(32, activation="relu")(encoded)
    decoded = layers.Dense(128, activation="relu")(encoded)
    model = keras.Model(inputs, layers.Dense(784, activation="sigmoid")(decoded))
    model.compile(optimizer="adam", loss="binary_crossentropy")
    return model
