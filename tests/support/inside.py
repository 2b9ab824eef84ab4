"""What is asserted inside the suite's one TensorFlow process, and inside one of Keras on JAX: each function here is asked
for as a user's own model would be, and a failed assertion comes back as the reason of its row."""

import dataclasses
import functools
import gc
from unittest import mock

import keras
import msgspec
import numpy as np

from kernels import networks
from kernels.problems import InputPipeline, Training
from workloads.frameworks import data, data_parallel, input_pipeline, input_pipeline_row, trainers
from workloads.harness.timing import Limits
from workloads.records import Row, Settings, settings

SAMPLES, BATCH, STEPS = 10, 4, 3  # two whole batches and a smaller one
AGREE = 2e-5  # relative: float32 sums in another order, over some steps
MLP = networks.find("mlp-6-8x1-3")
PEAKS = networks.find("peaks")
BUILT: list = []
built = trainers.built


def made(function):
    """The function as a user's model: its assertions run once, then comes a model of one weight."""
    once = functools.cache(function)

    def build():
        once()
        return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])

    return build


@made
def light():
    """What TensorFlow's import left behind is no garbage: each row would look through all of it again."""
    gc.collect()
    gc.freeze()


def same_weights(order):
    """trainers.built with first weights that are the same in every library: Glorot's, of a generator of the order's seed. BUILT
    keeps the model."""
    of, rng = built(order), np.random.default_rng(order.seed)
    first = [
        rng.uniform(-1, 1, w.shape) * np.sqrt(6 / sum(w.shape)) if w.ndim == 2 else w for w in of.model.get_weights()
    ]
    of.model.set_weights(first)
    BUILT.append(of.model)
    of = dataclasses.replace(of, first_values=trainers.values_of_variables(of.model))
    of.restore()
    return of


def trainer(kernel, network=MLP, shuffle="off", rate=0.0, **chosen):
    """The Trainer of a kernel for SAMPLES samples, its first weights those of same_weights, whatever the library."""
    if rate:
        network = msgspec.structs.replace(network, learning_rate=rate)
    row = Row(kernel, Training(network.name, BATCH, SAMPLES), Settings(switches={"shuffle": shuffle, **chosen}))
    every = settings.checked_keras(row)
    x, y = data.load("synthetic", network, SAMPLES, 1, targets=every.targets)
    with mock.patch.object(trainers, "built", same_weights):
        return trainers.make_trainer(trainers.Task(row=row, network=network, x=x, y=y, seed=1, phases={}))


def close(found, wanted, within=AGREE):
    assert np.allclose(found, wanted, rtol=within, atol=0), f"{np.asarray(found)} and not {np.asarray(wanted)}"


def batches(residence, shuffle):
    """(sizes, the samples' numbers) of two epochs as the residence gives them."""
    x = np.arange(SAMPLES + 2, dtype=np.float32)[:, None]
    given = Settings(switches={"residence": residence, "shuffle": shuffle})
    chosen = settings.checked_keras(Row("training/keras/fit", Training("peaks", BATCH, SAMPLES), given))
    how = input_pipeline.pipeline(chosen, x, x[:, 0], BATCH, seed=1).fit_arguments(SAMPLES)
    found = how.pop("x")
    if residence == "generator":
        assert len(found) == STEPS and how == {"shuffle": False}
        epochs = []
        for _ in range(2):
            found.on_epoch_begin()
            epochs += [found[i] for i in range(STEPS)]
    else:
        assert how.get("steps_per_epoch", int(found.cardinality())) == STEPS
        epochs = [batch for again in range(1 if "steps_per_epoch" in how else 2) for batch in found.take(2 * STEPS)]
    for inputs, targets in epochs:
        assert np.array_equal(np.asarray(inputs)[:, 0], np.asarray(targets))
    numbers = np.concatenate([np.asarray(targets) for _, targets in epochs])
    return [len(inputs) for inputs, _ in epochs], numbers.reshape(2, SAMPLES)


@made
def order_and_sizes():
    for residence in ("tf.data", "prefetch", "generator"):
        sizes, numbers = batches(residence, "off")
        assert sizes == [4, 4, 2, 4, 4, 2], (residence, sizes)
        assert np.array_equal(numbers, [np.arange(SAMPLES)] * 2), (residence, numbers)
        sizes, numbers = batches(residence, "on")
        assert sizes == [4, 4, 2, 4, 4, 2], (residence, sizes)
        assert np.array_equal(np.sort(numbers), [np.arange(SAMPLES)] * 2), (residence, numbers)
        for other in (numbers[1], np.arange(SAMPLES)):
            assert not np.array_equal(numbers[0], other), residence


@made
def fits_of_every_residence():
    """The same losses, and as many steps of the optimizer: a step tried on no batch would count in Adam."""
    wanted = None
    for residence in input_pipeline.RESIDENCES:
        fit = trainer("training/keras/fit", residence=residence).fit
        losses, steps = fit(SAMPLES, 2).losses, int(BUILT[-1].optimizer.iterations)
        assert steps == 2 * STEPS, (residence, steps)
        wanted = wanted or losses
        close(losses, wanted)


@made
def batches_of_the_feeding_study_arrive_whole():
    """Every way's, in whatever type; one with another value in it is wrong."""
    asked, real = Limits(max_time=0.01), input_pipeline.pipeline

    def one_more(chosen, x, *rest, **keywords):
        return real(chosen, x + np.ones((), x.dtype), *rest, **keywords)

    for way, dtype in zip(InputPipeline.WAYS, ("float64", "uint8", "float32", "uint8", "float64"), strict=True):
        row = Row(f"feeding/keras/{way}", InputPipeline(2, 16, 4, dtype), Settings())
        m = input_pipeline_row.measure(row, asked, 1)
        assert (m.status, m.samples[0].calls) == ("ok", 4), (way, m.reason)
    with mock.patch.object(input_pipeline, "pipeline", one_more):
        broken = input_pipeline_row.measure(row, asked, 1)
    assert broken.status == "wrong" and "arrived wrong: the loss is" in broken.reason, broken


FORMS = ((SAMPLES, 3), (2 * BATCH, 1), (BATCH, 1))


@functools.cache
def keras_losses(network, rate=0.0):
    """The losses of model.fit, each of FORMS from the first weights. As a pipeline it is traced once for all of them."""
    library = keras.backend.backend()
    how = {"residence": "tf.data"} if library == "tensorflow" else {"keras_backend": library}
    fit = trainer("training/keras/fit", network, rate=rate, **how)
    return tuple((fit.restore(), fit.fit(*form))[1] for form in FORMS)


def agree(loop, network=MLP):
    """Losses of fits, again after restoring, of a part, and step by step, are those of model.fit."""
    assert loop.wrong == ""
    wanted = keras_losses(network)
    for (samples, epochs), of in zip(FORMS, wanted, strict=True):
        loop.restore()
        found = loop.fit(samples, epochs, stamped=True)
        close(found.losses, of.losses)
        assert len(found.epochs_s) == epochs and min(found.epochs_s) > 0
        if found.accuracies:
            close(found.accuracies, of.accuracies)
    loop.restore()
    first, second = loop.step_losses(2)
    close([first, (first + second) / 2], [wanted[2].losses[0], wanted[1].losses[0]])


@made
def resident_is_keras():
    loop = trainer("training/keras/resident")
    agree(loop)
    assert len(loop.fit(SAMPLES, 2).accuracies) == 2


@made
def tensorflow_loop_is_keras():
    for residence in ("resident", "fed"):
        agree(trainer("training/tensorflow/loop", residence=residence))


@made
def compiled_loops_are_keras():
    for kernel in ("training/keras/resident", "training/tensorflow/loop"):
        loop = trainer(kernel, jit_compile="on")
        close(loop.fit(SAMPLES, 3).losses, keras_losses(MLP)[0].losses)
        assert loop.values["jit_compile"] == 1
        mixed = trainer(kernel, jit_compile="on", shuffle="on").fit(BATCH, 1)  # one batch: its order changes nothing
        close(mixed.losses, keras_losses(MLP)[2].losses)
        assert len(trainer(kernel, jit_compile="on", shuffle="on").fit(SAMPLES, 2).losses) == 2


@made
def float64_targets():
    """The loss is a float64 number then, no rounded float32."""
    of_float64_targets(trainer("training/tensorflow/loop", PEAKS, residence="fed", targets="float64"))


def of_float64_targets(loop):
    agree(loop, PEAKS)
    loop.restore()
    (loss,) = loop.step_losses(1)
    assert loss != float(np.float32(loss)), loss
    close(loss, 1.55439845076, 1e-6)  # in any library


@made
def shuffled_epochs_use_every_sample_once():
    for kernel in ("training/keras/resident", "training/tensorflow/loop"):
        every_sample_once(kernel)


def every_sample_once(kernel):
    """Where weights stand still the mean over an epoch's samples is the same in any order, and of no other samples."""
    whole, part, first = keras_losses(MLP, 1e-30)  # first: of the batch that is first in order
    loop = trainer(kernel, shuffle="on", rate=1e-30, residence="resident")
    close(loop.fit(SAMPLES, 3).losses, whole.losses)
    close(loop.fit(2 * BATCH, 1).losses, part.losses)
    assert not np.isclose(loop.step_losses(2)[0], first.losses[0], rtol=AGREE), kernel


JAX_LOOP = "training/jax/keras_loop"
# What JAX's loop gave when its layers, losses and optimizers were written by hand (rows of training/jax/loop), each of FORMS.
BY_HAND = {
    MLP: ((1.0481517314910889, 1.0407490491867066, 1.0349295377731322), (1.051419734954834,), (1.0049340724945068,)),
    PEAKS: ((5.2222394943237305, 4.009101843833923, 3.1356041193008424), (1.5929172039031982,), (1.5543984174728394,)),
}


@made
def jax_loop_is_keras_and_what_it_was():
    for network, residence in ((MLP, "resident"), (MLP, "fed"), (PEAKS, "resident")):
        loop = trainer(JAX_LOOP, network, residence=residence)
        agree(loop, network)
        for form, losses in zip(FORMS, BY_HAND[network], strict=True):
            loop.restore()
            close(loop.fit(*form).losses, losses)


@made
def jax_loop_with_float64_targets():
    of_float64_targets(trainer(JAX_LOOP, PEAKS, targets="float64"))


@made
def jax_loop_uses_every_sample_once():
    every_sample_once(JAX_LOOP)


def regularized():
    layers = keras.layers
    wide = layers.Dense(8, "relu", kernel_regularizer="l2", activity_regularizer="l2")
    model = keras.Sequential([keras.Input((6,)), wide, layers.BatchNormalization(), layers.Dense(1)])
    model.compile("adam", "mse")
    return model


@made
def jax_loop_trains_whatever_keras_does():
    """A user's own model with regularizers, and state that is no weight."""
    x, y = np.random.default_rng(1).normal(size=(SAMPLES, 6)).astype("f4"), np.ones((SAMPLES, 1), "f4")
    found = []
    for kernel, given in (("training/keras/fit", {"keras_backend": "jax"}), (JAX_LOOP, {})):
        problem = Training("tests.support.inside:regularized", BATCH, SAMPLES)
        row = Row(kernel, problem, Settings(switches={"shuffle": "off"} | given))
        loop = trainers.make_trainer(trainers.Task(row=row, network=None, x=x, y=y, seed=1, phases={}))
        found.append(loop.fit(SAMPLES, 3).losses)
    close(*found)


def listed(network, batch):
    """Kernel -> how many of it XLA lists for a compiled train step: dot, convolution, fusion (without those that only lay data
    out anew)."""
    import re
    from collections import Counter

    import tensorflow as tf

    from workloads.frameworks import models

    x, y = data.load("synthetic", network, batch, 1)
    model = models.build(network, True)
    model.optimizer.build(model.trainable_variables)
    step = tf.function(lambda x, y: model.train_step((x, y)), jit_compile=True)
    text = step.experimental_get_compiler_ir(tf.constant(x), tf.constant(y))(stage="optimized_hlo")
    entry = text[text.index("ENTRY") :]
    lines = re.findall(r"%(\S+) = .*? ([a-z][\w-]*)\(", entry)
    return Counter(op for name, op in lines if not re.search("transpose_copy|copy_fusion|bitcast_fusion", name))


def fused_as_listed(network, off):
    """Products exactly as many as XLA lists; fusions up to `off` more or fewer."""
    from analysis.predict.step_kernels import fusion, step_kernel

    kernels = fusion.compiled(networks.step(network, BATCH))
    products = sum(k.part in ("matmul", "conv") for k in kernels)
    found = listed(network, BATCH)
    assert products == found["dot"] + found["convolution"], (products, found)
    others = step_kernel.launches(kernels) - products
    assert abs(others - found["fusion"]) <= off, (network.name, network.optimizer, others, found)


@made
def fusion_of_dense_layers():
    fused_as_listed(networks.find("mlp-20-16x3-5"), 3)  # Adam's; LeNet's are SGD's


@made
def fusion_of_convolutions():
    fused_as_listed(networks.find("lenet"), 6)


def run_as_counted(network, off):
    """The operations of TensorFlow's own graph of a train step, optimized, up to `off` of them; none of what ours says is inside
    a product stands by itself."""
    import tensorflow as tf

    from analysis.predict.step_kernels import fusion, step_kernel
    from kernels.tensorflow import calls
    from workloads.frameworks import models

    x, y = data.load("synthetic", network, BATCH, 1)
    model = models.build(network, False)
    model.optimizer.build(model.trainable_variables)
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False)
    found = calls.ran(lambda: step(tf.constant(x), tf.constant(y)))
    kernels = fusion.op_by_op(networks.step(network, BATCH), "cpu")
    told = sum(n for name, n in found.items() if name not in ("_Arg", "_Retval", "NoOp", "Const"))
    assert abs(step_kernel.operations_outside_loops(kernels) - told) <= off, (
        network.name,
        step_kernel.operations_outside_loops(kernels),
        told,
        found,
    )
    assert found["BiasAdd"] == 0 == found["Relu"], found
    summed = sum(k.name.endswith(" bias_grad") for k in kernels)
    assert found["BiasAddGrad"] == summed, found


@made
def operations_as_tensorflow_runs_them():
    run_as_counted(networks.find("mlp-20-16x3-5"), 8)
    run_as_counted(networks.find("lenet"), 8)
    run_as_counted(networks.find("mnist-cnn"), 8)


@made
def loops_and_attention_as_tensorflow_runs_them():
    """The operations of the optimized graph, each loop's once; what is around a loop is not counted."""
    import tensorflow as tf

    from analysis.predict.step_kernels import fusion
    from kernels.tensorflow import calls
    from workloads.frameworks import description

    of, start = keras.layers, keras.Input((12, 6))
    rows = of.Dense(8)(start)
    heads = of.LayerNormalization()(of.MultiHeadAttention(2, 4)(rows, rows))
    for last in (of.LSTM(5)(rows), of.GRU(5)(rows), of.GlobalAveragePooling1D()(heads)):
        model = keras.Model(start, of.Dense(3, "softmax")(last))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
        model.optimizer.build(model.trainable_variables)
        step = tf.function(lambda x, y, model=model: model.train_step((x, y)), autograph=False)
        found = calls.ran(lambda step=step: step(tf.zeros((BATCH, 12, 6)), tf.zeros(BATCH, tf.int32)))
        told = sum(n for name, n in found.items() if name not in ("_Arg", "_Retval", "NoOp", "Const", "Enter", "Exit"))
        network = description.network(model, "own")
        layers = tuple(msgspec.structs.replace(layer, fused=False) for layer in network.layers)
        works = networks.step(msgspec.structs.replace(network, layers=layers), BATCH)
        counted = sum(k.operations for k in fusion.op_by_op(works, "cpu"))
        assert abs(counted / told - 1) < 0.12, (counted, told, found)


def mirrored(count, jit="off", of=MLP):
    """(row, Trainer) of a small model on so many parts of the CPU, 0: on the CPU as it is."""
    over = {"strategy": "MirroredStrategy", "replicas": str(count)} if count else {}
    given = Settings(switches={"dropout": "off", "shuffle": "off", "jit_compile": jit, **over})
    row = Row("training/keras/fit", Training(of.name, BATCH, STEPS * BATCH), given)
    x, y = data.load("synthetic", of, STEPS * BATCH, 1)
    return row, trainers.KerasFit(trainers.Task(row=row, network=of, x=x, y=y, seed=1, phases={}))


@made
def mirrored_replicas_learn_what_one_learns():
    (_, one), (_, several) = mirrored(0), mirrored(2)
    first = one.step_losses(STEPS)
    close(several.step_losses(STEPS), first)
    assert len(set(first)) == STEPS
    several.restore()
    close(several.step_losses(STEPS), first)  # from the first weights again
    assert (several.values["replicas"], several.values["jit_compile"]) == (2.0, 0.0)
    assert several.notes["strategy"] == "tf.distribute.MirroredStrategy"
    found = several.further_results()
    assert found.notes == {} and found.values["all_reduce_bytes"] == 4 * (6 * 8 + 8 + 8 * 3 + 3)
    assert found.values["all_reduce_s"] >= 0
    assert one.further_results() == data_parallel.FurtherResults()


@made
def a_second_mirrored_model_of_other_shapes_trains_in_the_same_process():
    wide = networks.find("mlp-6-20x2-3")
    (_, one), (_, several) = mirrored(0, of=wide), mirrored(2, of=wide)
    close(several.step_losses(STEPS), one.step_losses(STEPS))


@made
def xla_compiles_no_mirrored_step():
    row, jitted = mirrored(2, "on")
    found = []
    try:
        jitted.fit(BATCH, 1)
    except Exception as error:
        found.append(error)
    assert found, "it was compiled"
    assert data_parallel.refused(row, *found).startswith("XLA compiles no step of a MirroredStrategy"), found
    assert data_parallel.refused(mirrored(2)[0], *found) == ""
