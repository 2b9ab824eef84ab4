"""Runs scripts that train `build()` on the CPU: reads {name: path} as JSON, prints {name: facts} of each trained model."""

import json
import runpy
import sys

import keras
import numpy
import tensorflow as tf

SAMPLES, FEATURES = 70, 4


def build() -> keras.Model:
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])


def facts(path: str) -> dict:
    """What a script's model was compiled with and how it trained."""
    random = numpy.random.default_rng(0)
    x = random.random((SAMPLES, FEATURES), "float32")
    names = {"keras": keras, "numpy": numpy, "tf": tf, "build": build, "x": x, "y": x.sum(1, keepdims=True)}
    keras.config.set_dtype_policy("float32")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    names |= {"optimizer": keras.optimizers.Adam(0.01), "loss": keras.losses.MeanSquaredError()}
    after = runpy.run_path(path, init_globals=names)
    model = after["model"]
    data = after.get("x_gpu")
    return {
        "steps": int(model.optimizer.iterations),
        "loss": float(model.get_metrics_result()["loss"]),
        "steps_per_execution": model.steps_per_execution,
        "jit_compile": model.jit_compile,
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
        "computes_in": model.layers[-1].compute_dtype,
        "resident": None if data is None else [list(data.shape), data.device.rpartition("/")[2]],
        "element": list(after["data"].element_spec[0].shape) if "data" in after else None,
    }


if __name__ == "__main__":
    report = {name: facts(path) for name, path in json.load(sys.stdin).items()}
    print(json.dumps(report))
