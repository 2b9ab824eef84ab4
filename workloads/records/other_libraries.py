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
    """The library that a module is of, such as `torch.nn`; "" of any other module."""
    return LIBRARIES.get(module.partition(".")[0], "")


def library_imported(path: Path) -> str:
    """The library that a Python file imports in place of Keras; "" where it imports Keras or none of these, or does not parse."""
    try:
        regular_files.require_source(path)
        tree = source_trees.parsed(path.read_bytes())
    except (regular_files.Unreadable, OSError, SyntaxError):
        return ""
    modules: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
    if any(module.partition(".")[0] in _KERAS for module in modules):
        return ""
    libraries = [library_name(module) for module in modules if library_name(module)]
    return libraries[0] if libraries else ""


def refusal(name: str, library: str) -> tuple[str, str]:
    """(why a file with a model or a training of another library cannot be explained, what to do)."""
    return f"{name} is of {library}, and only Keras models are explained", f"write the model with Keras in {name}"
