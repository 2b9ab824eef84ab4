"""Models as users bring them, good and bad; called in the suite's TensorFlow process by their names."""

import os

import keras

dense = keras.layers.Dense


def sequential(*layers, shape=(8,), **keywords):
    return keras.Sequential([keras.Input(shape, **keywords), *layers])


def classes():
    return sequential(dense(16, "relu"), dense(3, "softmax"))


def compiled():
    model = sequential(dense(1, "sigmoid"))
    model.compile(keras.optimizers.SGD(0.5), keras.losses.BinaryCrossentropy(), metrics=["accuracy"])
    return model


def words():
    return sequential(keras.layers.Embedding(50, 4), keras.layers.Flatten(), dense(2), shape=(6,), dtype="int32")


def two_inputs():
    one, two = keras.Input((2,)), keras.Input((2,))
    return keras.Model([one, two], dense(1)(keras.layers.Concatenate()([one, two])))


def unbuilt():
    return keras.Sequential([dense(3)])


def any_length():
    return sequential(keras.layers.GlobalAveragePooling1D(), dense(3), shape=(None, 4))


def nothing_to_take():
    return sequential(dense(1, name="out"), shape=(0,))


def layers_that_do_not_match():
    return sequential(keras.layers.Reshape((3, 3)))


def no_such_loss():
    model = sequential(dense(3))
    model.compile("adam", "mean_absurd_error")
    return model


def a_loss_of_another_shape():
    model = sequential(dense(3))
    model.compile("adam", lambda wanted, given: given - wanted[:, :2])
    return model


def no_model():
    pass


def saved():
    """Also saves models beside Keras's own files: as it is, and with a Lambda layer."""
    model, folder = compiled(), os.environ["KERAS_HOME"]
    model.save(f"{folder}/plain.keras")
    sequential(keras.layers.Lambda(lambda x: 2 * x), dense(1)).save(f"{folder}/with_lambda.keras")
    return model


def strange():
    """A frozen nested model, a recurrent layer, a class of the user's own, and one layer used twice."""

    class Mine(keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), name="scale")

        def call(self, x):
            return x * self.scale

    of = keras.layers
    conv = of.Conv2D(4, 3, activation="relu", name="conv")
    base = keras.Sequential([conv, of.BatchNormalization(name="bn"), of.MaxPooling2D(name="pool")], name="base")
    base.trainable = False
    again = keras.layers.Dense(5, name="again")
    start = keras.Input((10, 10, 2))
    x = keras.layers.Reshape((16, 4), name="rows")(base(start))
    x = Mine(name="mine")(keras.layers.LSTM(5, name="lstm")(x))
    x = keras.layers.Add(name="sum")([again(x), again(again(x))])
    return keras.Model(start, keras.layers.Dense(3, "softmax", name="classes")(x))
