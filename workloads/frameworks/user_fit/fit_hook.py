"""Replaces `fit` of Keras's models when a script imports Keras, and times that import. What it sets before still holds."""

import contextlib
import importlib.abc
import importlib.machinery
import sys
import time
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Modules that define the class whose `fit` all models inherit: of Keras 3, which tf.keras is too, and of Keras 2 as tf_keras.
MODEL_MODULES = ("keras.src.models.model", "tf_keras.src.engine.training")
#: Strategies that spread a batch over several devices.
STRATEGIES = ("MirroredStrategy", "MultiWorkerMirroredStrategy")
_TIMED = ("tensorflow", "keras")


class FitHook(importlib.abc.MetaPathFinder):
    """Finds TensorFlow and the modules of Keras's models, and changes them after they ran."""

    def __init__(self, replacement: Callable[[Callable], Callable], model_imported: Callable[[], None]):
        #: Called when Keras's models were imported.
        self.model_imported = model_imported
        #: The new `fit`, from Keras's own.
        self.replacement = replacement
        #: Seconds that importing TensorFlow and Keras took.
        self.importing_s = 0.0
        #: The strategies that the script asked for, each taken as one device.
        self.strategies: list[str] = []
        self._is_importing = False

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in (*MODEL_MODULES, *_TIMED):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def imported(self, module: ModuleType) -> None:
        """Changes a module that was just run."""
        if module.__name__ in MODEL_MODULES:
            module.Model.fit = self.replacement(module.Model.fit)
        if module.__name__ == MODEL_MODULES[0]:
            self.model_imported()
        if module.__name__ == "tensorflow":
            for name in STRATEGIES:
                setattr(module.distribute, name, self._one_device(module, name))

    def _one_device(self, tensorflow: Any, name: str) -> type:
        """A class in place of a strategy's, whose objects are the usual strategy, that of one device."""
        strategies = self.strategies

        class OneDevice(getattr(tensorflow.distribute, name)):  # type: ignore[misc]
            def __new__(cls, *positional: Any, **named: Any) -> Any:
                strategies.append(name)
                return tensorflow.distribute.get_strategy()

        return OneDevice

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Counts the seconds of an import that is inside no other one."""
        if self._is_importing:
            yield
            return
        self._is_importing = True
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.importing_s += time.perf_counter() - begin
            self._is_importing = False


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, hook: FitHook):
        self.loader = loader
        self.hook = hook

    def __getattr__(self, name: str) -> Any:
        """What else a loader has, such as its readers of resources."""
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with self.hook.timed():
            self.loader.exec_module(module)
        self.hook.imported(module)


def install(replacement: Callable[[Callable], Callable], model_imported: Callable[[], None]) -> FitHook:
    """Lets models that are imported from now on have another `fit`. model_imported: called when Keras's are."""
    hook = FitHook(replacement, model_imported)
    sys.meta_path.insert(0, hook)
    return hook
