"""A user's own Keras model: `file.py:function` or `package.module:function`, called in the worker, or a `.keras` file, read in
Keras's safe mode."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from analysis import units
from workloads.frameworks.data import LEVELS
from workloads.frameworks.tracing.refusal import Refusal
from workloads.harness.dispatch import Broken, described
from workloads.records import model_files, other_libraries
from workloads.records.settings import FOLDER

_LAMBDA = (
    " holds a Lambda layer, whose code a file may not bring along (Keras's safe mode): build the model in Python and "
    "name its function as package.module:function"
)
WORDS = 10  # whole numbers that a model of these is given where no layer says how many it knows
_FAILED_DOWNLOAD = "URL fetch failure"  # of keras.utils.get_file
_MAPPED = 64  # inputs that decide a target


def load(name: str, jit_compile: bool | str) -> tuple[Any, dict[str, str]]:
    """(the compiled model, what was decided for it). A compiled model stays as it is, except for `jit_compile` if a switch asks
    for it. Any other gets Adam and the loss that its last layer suggests.

    Raises: Broken with the reason when it cannot be loaded, built or compiled.
    """
    model = opened(name)
    require_one_input(model, name)
    about = {}
    if not getattr(model, "compiled", False) or model.optimizer is None:
        loss = compile_with_adam(model, name, jit_compile)
        about["compiled"] = f"compiled with adam and {loss}, as it came without"
    elif jit_compile != "auto":
        model.jit_compile = jit_compile
    return model, about


def require_one_input(model, name: str) -> None:
    """Raises Broken unless a model is built for one input and one output."""
    if not getattr(model, "built", False) or not getattr(model, "inputs", None):
        raise Broken(
            f"{name} gives a model whose input shape is not known: with x = keras.Input(shape), return keras.Model(x, model(x))"
        )
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise Broken(f"{name} has {_too_many(len(model.inputs), len(model.outputs))}")


def opened(name: str):
    """The model that a function returns or a file holds, as it comes.

    Raises: Broken with the reason when there is none.
    """
    return _from_file(name) if name.endswith(".keras") else _from_function(name)


def compile_with_adam(model, name: str, jit_compile: bool | str = "auto") -> str:
    """Compiles a model with Adam and the loss that its last layer suggests, and returns that loss.

    Raises: Broken with the reason when it does not compile.
    """
    loss = _loss(model)
    try:
        model.compile("adam", loss, metrics=[] if loss == "mse" else ["accuracy"], jit_compile=jit_compile)
    except Exception as error:
        raise Broken(f"{name} does not compile: {described(error)}") from error
    return loss


def _too_many(inputs: int, outputs: int) -> str:
    """The inputs and outputs of a model that has several of either, and what to do with them."""
    counts = []
    mending = []
    if inputs > 1:
        counts.append(units.count(inputs, "input"))
        mending.append("join them into one array")
    if outputs > 1:
        counts.append(units.count(outputs, "output"))
        mending.append("return one output")
    return f"{' and '.join(counts)}, and this takes models of one input and one output: {', '.join(mending)}"


def _from_file(name: str):
    import keras

    path = Path(os.environ.get(FOLDER, "")) / name
    why_missing = model_files.missing(str(path))
    if why_missing:
        raise Broken(why_missing)
    try:
        return keras.saving.load_model(path, safe_mode=True)
    except Exception as error:
        words = described(error)
        if "lambda" in words.lower():
            raise Broken(name + _LAMBDA) from error
        raise Broken(f"{name} is no Keras model that loads: {words}") from error


def called(name: str):
    """What a user's function, `file.py:function` or `package.module:function`, returns. A model's name gives the model.

    Raises: Broken with the reason when there is no such function, or when it fails.
    """
    module, _, _ = name.partition(":")
    build = attribute(name)
    import keras

    try:
        return build if isinstance(build, keras.Model) else build(**_without_download(module, build))
    except Broken:
        raise
    except (Exception, SystemExit) as error:
        words = described(error)
        if _FAILED_DOWNLOAD in words:
            why = f"{name}() downloads its weights, which fails here: {words}"
            raise Refusal(why, f"build it with weights=None in {module}") from error
        raise Broken(f"{name}() fails: {words}") from error


def attribute(name: str):
    """A user's function or class by `file.py:name` or `package.module:name`, not called.

    Raises: Broken with the reason when there is none.
    """
    module, _, function = name.partition(":")
    here = os.environ.get(FOLDER) or os.getcwd()
    try:
        build = getattr(_imported(module, here), function, None)
    except ModuleNotFoundError as error:
        if module.endswith(".py"):
            _refuse_other_library(module, other_libraries.library_imported(Path(here, module).expanduser()))
        raise Broken(f"there is no module {error.name} (looked in {here} and the installed packages)") from error
    except Broken:
        raise
    except (Exception, SystemExit) as error:
        raise Broken(f"importing {module} fails: {described(error)}") from error
    if not callable(build):
        raise Broken(f"{module} has no function {function}")
    return build


def _without_download(module: str, build: Callable) -> dict[str, None]:
    """The argument by which a model of an installed package is built without downloaded weights, on which no time depends."""
    if module.endswith(".py"):
        return {}
    weights = inspect.signature(build).parameters.get("weights")
    return {"weights": None} if weights is not None and weights.default == "imagenet" else {}


def _from_function(name: str):
    import keras

    model = called(name)
    if not isinstance(model, keras.Model):
        if model is None:
            _, _, function = name.partition(":")
            raise Broken(f"{name}() returns nothing: end {function}() with `return model`")
        for kind in type(model).__mro__:
            _refuse_other_library(name.partition(":")[0], other_libraries.library_name(kind.__module__))
        raise Broken(f"{name}() returns {type(model).__name__}, not a keras.Model: return the model alone")
    return model


def _refuse_other_library(file: str, library: str) -> None:
    """Raises Refusal for a model of a library; "" is Keras's."""
    if library:
        raise Refusal(other_libraries.refusal(file, library), other_libraries.remedy(file))


def _imported(module: str, here: str):
    """A module by its dotted name or its file, looked for in the folder `here`; a file may import what lies beside it."""
    file = Path(here, module).expanduser()
    folder = str(file.parent) if module.endswith(".py") else here
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not module.endswith(".py"):
        return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    imported = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[file.stem] = imported
    spec.loader.exec_module(imported)  # type: ignore[union-attr]
    return imported


def _loss(model) -> str:
    """The loss that fits the last layer: softmax gives classes, sigmoid a yes or no, anything else numbers."""
    last = getattr(getattr(model.layers[-1], "activation", None), "__name__", "linear")
    if last == "softmax":
        return "sparse_categorical_crossentropy"
    if last == "sigmoid":
        return "binary_crossentropy" if model.output_shape[-1] == 1 else "categorical_crossentropy"
    return "mse"


def shapes(model) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of a sample and of its answer, without the batch.

    Raises: Broken for sizes beside the batch that are not known.
    """
    shape = tuple(model.input_shape[1:])
    out = tuple(model.output_shape[1:])
    if None in shape or None in out:
        raise Broken(
            f"the model takes {model.input_shape} and gives {model.output_shape}: sizes beside the batch must be known"
        )
    return shape, out


def samples(model, count: int, seed: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """(x, y), made up. x: in [0, 1], of uint8 0..255, of other whole numbers below the vocabulary's size. y: in the form that
    the loss takes, and learnable: a random linear map of some inputs gives the class or the number.

    Raises: Broken for a shape that is not known (None beside the batch).
    """
    shape, out = shapes(model)
    rng = np.random.default_rng(seed)
    input_dtype = str(model.inputs[0].dtype)
    vocabulary = _vocabulary(model)
    if not vocabulary and "int" in input_dtype:
        vocabulary = WORDS
    if vocabulary:
        x = rng.integers(0, vocabulary, (count, *shape)).astype(input_dtype if "int" in input_dtype else dtype)
        mapped: np.ndarray = x.reshape(count, -1)[:, :_MAPPED] / vocabulary
    else:
        x = rng.random((count, *shape), dtype=np.float32)
        mapped = x.reshape(count, -1)[:, :_MAPPED] - 0.5
        x = np.rint(x * LEVELS).astype(np.uint8) if dtype == "uint8" else x.astype(dtype, copy=False)
    scores: np.ndarray = mapped @ rng.standard_normal((mapped.shape[1], out[-1] if out else 1))
    return x, _targets(scores, out, loss_name(model))


def _vocabulary(model) -> int:
    """How many whole numbers the first Embedding layer of a model knows; 0 without one."""
    for layer in model.layers:
        if getattr(layer, "input_dim", None):
            return int(layer.input_dim)
    return 0


def _targets(scores: np.ndarray, out: tuple[int, ...], loss: str) -> np.ndarray:
    """Targets in the form that a loss takes, of the shape `out` for each sample. scores: a row a sample."""
    count = len(scores)
    places = (1,) * (len(out) - 1)  # all places of a sample have the same target
    if "sparse" in loss:
        classes = scores.argmax(-1).reshape(count, *places)
        return np.broadcast_to(classes, (count, *out[:-1])).astype(np.int32)
    if "categorical" in loss:
        scores = np.eye(out[-1])[scores.argmax(-1)]
    elif "binary" in loss:
        scores = scores > 0
    return np.broadcast_to(scores.reshape(count, *places, *out[-1:]), (count, *out)).astype(np.float32)


def loss_name(model) -> str:
    """The loss of a compiled model by its name in Keras; of a function or class of the user's own, its own."""
    return name_of_loss(model.loss)


def name_of_loss(chosen) -> str:
    """A loss, given as Keras's compile takes it, by its name."""
    import keras

    try:
        loss = keras.losses.get(chosen)
    except (TypeError, ValueError):
        loss = chosen
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__)).lower()
