"""Models as users bring them, good and bad; called in the suite's TensorFlow process by their names."""

import os

import keras
import numpy as np

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


def texts():
    text = keras.Input((1,), dtype="string")
    return _compiled(text, keras.layers.Hashing(num_bins=4, output_mode="one_hot")(text))


def words_of_a_vocabulary():
    word = keras.Input((1,), dtype="string")
    layer = keras.layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")
    return _compiled(word, layer(word))


def _compiled(taken, hidden):
    model = keras.Model(taken, dense(1)(hidden))
    model.compile("sgd", "mse")
    return model


class OwnStep(keras.Model):
    """Its step takes no targets, and gives no loss by that name."""

    def train_step(self, data):
        import tensorflow

        x = data[0] if isinstance(data, tuple) else data
        with tensorflow.GradientTape() as tape:
            size = tensorflow.reduce_mean(tensorflow.square(self(x, training=True)))
        self.optimizer.apply(tape.gradient(size, self.trainable_variables), self.trainable_variables)
        return {"size": size}


def own_step():
    taken = keras.Input((2,))
    model = OwnStep(taken, dense(3)(taken))
    model.compile("sgd")
    return model


def _batch_of_two(count):
    return (np.zeros((count, 2), "float32"), np.zeros((count, 2), "float32")), np.zeros((count, 1), "float32")


def arrays_of_two():
    return _batch_of_two(10)


def dataset_of_two():
    import tensorflow

    return tensorflow.data.Dataset.from_tensor_slices(_batch_of_two(12)).batch(4)


def dataset_of_three():
    import tensorflow

    return tensorflow.data.Dataset.from_tensor_slices(_batch_of_two(12)).batch(3)


def py_dataset_of_two():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return _batch_of_two(4)

    return Batches()


def endless_of_two():
    while True:
        yield _batch_of_two(4)


def short_of_two():
    for _ in range(3):
        yield _batch_of_two(4)


def fails_in_the_middle():
    for _ in range(2):
        yield _batch_of_two(4)
    raise ValueError("no third batch")
