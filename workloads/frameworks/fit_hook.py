"""Replaces `fit` of Keras's models when a script imports Keras: what the script sets before that import still holds."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Modules that define the class whose `fit` all models inherit: of Keras 3, which tf.keras is too, and of Keras 2 as tf_keras.
MODEL_MODULES = ("keras.src.models.model", "tf_keras.src.engine.training")


class FitHook(importlib.abc.MetaPathFinder):
    """Finds the modules of Keras's models, and puts another `fit` into them after they ran."""

    def __init__(self, replacement: Callable[[Callable], Callable]):
        #: The new `fit`, from Keras's own.
        self.replacement = replacement

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in MODEL_MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.replacement)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, replacement: Callable[[Callable], Callable]):
        self.loader = loader
        self.replacement = replacement

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        module.Model.fit = self.replacement(module.Model.fit)


def install(replacement: Callable[[Callable], Callable]) -> None:
    """Lets models that are imported from now on have another `fit`."""
    sys.meta_path.insert(0, FitHook(replacement))
