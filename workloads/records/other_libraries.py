"""Libraries that train models and are not Keras, by what a user's file imports: nothing of it is run."""

import ast
from pathlib import Path

from workloads.records import regular_files, source_trees

# The first part of a module's name -> the library, as people call it.
LIBRARIES = {
    "torch": "PyTorch",
    "torchvision": "PyTorch",
    "lightning": "PyTorch",
    "pytorch_lightning": "PyTorch",
    "fastai": "PyTorch",
    "timm": "PyTorch",
    "torchaudio": "PyTorch",
    "ultralytics": "PyTorch",
    "diffusers": "PyTorch",
    "sentence_transformers": "PyTorch",
    "transformers": "Transformers",
    "jax": "JAX",
    "flax": "JAX",
    "haiku": "JAX",
    "equinox": "JAX",
    "sklearn": "scikit-learn",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "paddle": "PaddlePaddle",
    "mxnet": "MXNet",
}
_KERAS = {"keras", "tensorflow", "tf_keras"}


def library_name(module: str) -> str:
    """The library in LIBRARIES that a module such as `torch.nn` belongs to, as people call it; "" for any other module."""
    return LIBRARIES.get(module.partition(".")[0], "")


def library_imported(path: Path) -> str:
    """The library in LIBRARIES that a Python file imports in place of Keras, as people call it; the file is not run.

    "" where it imports Keras, imports none of these libraries, or does not parse.
    """
    try:
        regular_files.require_source(path)
        tree = source_trees.parsed(path.read_bytes())
    except (regular_files.Unreadable, OSError, SyntaxError):
        return ""
    modules: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
    if any(module.partition(".")[0] in _KERAS for module in modules):
        return ""
    for module in modules:
        if library_name(module):
            return library_name(module)
    return ""


def refusal(name: str, library: str) -> str:
    """Why the model or training script of this name, which is written with another library than Keras, cannot be explained."""
    return f"{name} is of {library}, and only Keras models are explained"


def remedy(name: str) -> str:
    """What to do with a file that has a model of another library."""
    return f"write the model with Keras in {name}"
