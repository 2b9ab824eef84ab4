"""A user's own Keras model: `file.py:function` or `package.module:function`, called in the worker, or a `.keras` file, read in
Keras's safe mode."""

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import units
from workloads.frameworks.data import LEVELS
from workloads.frameworks.tracing.refusal import Refusal
from workloads.harness.dispatch import Broken, described
from workloads.records import model_files, other_libraries
from workloads.records.settings import FOLDER

if TYPE_CHECKING:
    import keras

_LAMBDA = (
    " holds a Lambda layer, whose code a file may not bring along (Keras's safe mode): build the model in Python and "
    "name its function as package.module:function"
)
WORDS = 10  # whole numbers that a model of these is given where no layer says how many it knows
_FAILED_DOWNLOAD = "URL fetch failure"  # of keras.utils.get_file
_MAPPED = 64  # inputs that decide a target


def load(name: str, jit_compile: bool | str) -> "tuple[keras.Model, dict[str, str]]":
    """A user's model, compiled, with notes that say what was decided for the user.

    name: `file.py:function`, `package.module:function` or a .keras file. jit_compile: as Keras takes it; "auto" leaves a compiled
    model as it is. A model that is not compiled gets Adam and the loss that its last layer suggests.
    Raises: Broken with the reason where it cannot be loaded, built or compiled.
    """
    model = opened(name)
    require_one_input(model, name)
    notes = {}
    if not getattr(model, "compiled", False) or model.optimizer is None:
        loss = compile_with_adam(model, name, jit_compile)
        notes["compiled"] = f"compiled with adam and {loss}, as it came without"
    elif jit_compile != "auto":
        model.jit_compile = jit_compile
    return model, notes


def require_one_input(model: "keras.Model", name: str) -> None:
    """Raises Broken unless a model is built for one input and one output. name: the model's, for the error."""
    if not getattr(model, "built", False) or not getattr(model, "inputs", None):
        raise Broken(
            f"{name} gives a model whose input shape is not known: with x = keras.Input(shape), return keras.Model(x, model(x))"
        )
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise Broken(f"{name} has {_too_many(len(model.inputs), len(model.outputs))}")


def opened(name: str) -> "keras.Model":
    """A user's model as his function returns it or his .keras file holds it, compiled or not.

    name: `file.py:function`, `package.module:function` or a .keras file.
    Raises: Broken with the reason where there is none.
    """
    return _from_file(name) if name.endswith(".keras") else _from_function(name)


def compile_with_adam(model: "keras.Model", name: str, jit_compile: bool | str = "auto") -> str:
    """Compiles a model with Adam and the loss that its last layer suggests, and returns the name of that loss.

    name: the model's, for the error.
    Raises: Broken with the reason where it does not compile.
    """
    loss = _loss(model)
    try:
        model.compile("adam", loss, metrics=[] if loss == "mse" else ["accuracy"], jit_compile=jit_compile)
    except Exception as error:
        raise Broken(f"{name} does not compile: {described(error)}") from error
    return loss


def _too_many(inputs: int, outputs: int) -> str:
    """The end of a sentence about a model that has several inputs or outputs, and what to do about it."""
    counts = []
    changes = []
    if inputs > 1:
        counts.append(units.count(inputs, "input"))
        changes.append("join them into one array")
    if outputs > 1:
        counts.append(units.count(outputs, "output"))
        changes.append("return one output")
    return f"{' and '.join(counts)}, and this takes models of one input and one output: {', '.join(changes)}"


def _from_file(name: str) -> "keras.Model":
    """The model in a .keras file, looked for in the folder that the command was typed in. Keras's safe mode runs no code of it.

    Raises: Broken with the reason where it does not load.
    """
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


def called(name: str) -> Any:
    """Calls a user's function, `file.py:function` or `package.module:function`, and returns its result.

    Where the name is that of a Keras model and not of a function, the model is returned.
    Raises: Broken with the reason where there is no such function, or where it raises.
    """
    module, _, _ = name.partition(":")
    function = attribute(name)
    import keras

    try:
        return function if isinstance(function, keras.Model) else function(**_without_download(module, function))
    except Broken:
        raise
    except (Exception, SystemExit) as error:
        words = described(error)
        if _FAILED_DOWNLOAD in words:
            why = f"{name}() downloads its weights, which fails here: {words}"
            raise Refusal(why, change=f"build it with weights=None in {module}") from error
        raise Broken(f"{name}() fails: {words}") from error


def attribute(name: str) -> Any:
    """The user's function or class that is named by `file.py:name` or `package.module:name`; its module is imported.

    Raises: Broken with the reason where there is none.
    """
    module, _, function = name.partition(":")
    here = os.environ.get(FOLDER) or os.getcwd()
    try:
        value = getattr(_imported(module, here), function, None)
    except ModuleNotFoundError as error:
        if module.endswith(".py"):
            _refuse_other_library(module, other_libraries.library_imported(Path(here, module).expanduser()))
        raise Broken(f"there is no module {error.name} (looked in {here} and the installed packages)") from error
    except Broken:
        raise
    except (Exception, SystemExit) as error:
        raise Broken(f"importing {module} fails: {described(error)}") from error
    if not callable(value):
        raise Broken(f"{module} has no function {function}")
    return value


def _without_download(module: str, build: Callable) -> dict[str, None]:
    """The arguments by which a function of an installed package builds a model without downloading weights: `weights=None` where
    it would take those of ImageNet. {} for any other function, and for one in a user's file.

    The times of a model do not depend on its weights.
    """
    if module.endswith(".py"):
        return {}
    weights = inspect.signature(build).parameters.get("weights")
    return {"weights": None} if weights is not None and weights.default == "imagenet" else {}


def _from_function(name: str) -> "keras.Model":
    """The model that a user's function returns. name: `file.py:function` or `package.module:function`.

    Raises: Broken where it fails or returns no Keras model; Refusal where that is a model of another library.
    """
    import keras

    model = called(name)
    if not isinstance(model, keras.Model):
        if model is None:
            _, _, function = name.partition(":")
            raise Broken(f"{name}() returns nothing: end {function}() with `return model`")
        file, _, _ = name.partition(":")
        for base in type(model).__mro__:
            _refuse_other_library(file, other_libraries.library_name(base.__module__))
        raise Broken(f"{name}() returns {type(model).__name__}, not a keras.Model: return the model alone")
    return model


def _refuse_other_library(file: str, library: str) -> None:
    """Raises Refusal for a model of another library than Keras. library: its name; "" for a model that is of none. file: where
    the model is defined, for the error."""
    if library:
        raise Refusal(other_libraries.refusal(file, library), change=other_libraries.remedy(file))


def _imported(module: str, here: str) -> ModuleType:
    """Imports a user's module and returns it. module: its dotted name, or a file. Both are looked for in the folder `here` first.

    A file may import other files in its folder, which is put on sys.path.
    """
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


def _loss(model: "keras.Model") -> str:
    """The name of the loss that fits a model's last layer: a softmax gives probabilities of classes, a sigmoid one or several yes
    or no, anything else numbers."""
    last = getattr(getattr(model.layers[-1], "activation", None), "__name__", "linear")
    if last == "softmax":
        return "sparse_categorical_crossentropy"
    if last == "sigmoid":
        return "binary_crossentropy" if model.output_shape[-1] == 1 else "categorical_crossentropy"
    return "mse"


def shapes(model: "keras.Model") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of one sample and of the model's output for it, of a model with one input and one output.

    Raises: Broken where a side of these is not known.
    """
    shape = tuple(model.input_shape[1:])
    out = tuple(model.output_shape[1:])
    if None in shape or None in out:
        raise Broken(
            f"the model takes {model.input_shape} and gives {model.output_shape}: sizes beside the batch must be known"
        )
    return shape, out


def samples(model: "keras.Model", count: int, seed: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """`count` made-up samples and targets, (x, y), for a user's model with one input and one output.

    x: numbers in [0, 1] of this dtype (uint8: from 0 to 255), or whole numbers below the size of the model's embedding. y: in the
    form that the loss takes; a random linear function of some inputs gives the class or the number, so that it can be learned.
    Raises: Broken where a side of the model's input or output is not known.
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


def _vocabulary(model: "keras.Model") -> int:
    """How many whole numbers, from 0 on, the first Embedding layer of a model takes; 0 for a model without one."""
    for layer in model.layers:
        if getattr(layer, "input_dim", None):
            return int(layer.input_dim)
    return 0


def _targets(scores: np.ndarray, out: tuple[int, ...], loss: str) -> np.ndarray:
    """Targets in the form that a loss takes: classes for a sparse one, one-hot for a categorical one, else numbers.

    scores: a row for each sample, with a number for each class or each output. out: the shape of the model's output for a sample.
    loss: its name in Keras.
    """
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


def loss_name(model: "keras.Model") -> str:
    """The name of a compiled model's loss, in lower case: that of Keras, or of the user's function or class."""
    return name_of_loss(model.loss)


def name_of_loss(loss: Any) -> str:
    """The name of a loss in lower case. loss: as Keras's compile takes it: a name, an object or a function."""
    import keras

    with contextlib.suppress(TypeError, ValueError):  # a user's own loss has a name of its own
        loss = keras.losses.get(loss)
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__)).lower()
