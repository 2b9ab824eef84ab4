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
    """An entry of sys.meta_path that changes TensorFlow and the modules of Keras's models right after they are imported."""

    def __init__(self, replacement: Callable[[Callable], Callable], model_imported: Callable[[], None]):
        #: Called when Keras's models were imported.
        self.model_imported = model_imported
        #: replacement(fit of Keras): the function that models get in its place.
        self.replacement = replacement
        #: Seconds that importing TensorFlow and Keras took.
        self.importing_s = 0.0
        #: The strategies that the script asked for, each taken as one device.
        self.strategies: list[str] = []
        self._is_importing = False

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Python calls this for each import. Of the modules that are changed, Python's usual spec with a loader that changes
        them; None of any other, which lets Python go on."""
        if fullname not in (*MODEL_MODULES, *_TIMED):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def imported(self, module: ModuleType) -> None:
        """Changes a module that has just been imported: `fit` of the models, or the strategies of TensorFlow."""
        if module.__name__ in MODEL_MODULES:
            module.Model.fit = self.replacement(module.Model.fit)
        if module.__name__ == MODEL_MODULES[0]:
            self.model_imported()
        if module.__name__ == "tensorflow":
            for name in STRATEGIES:
                setattr(module.distribute, name, self._one_device(module, name))

    def _one_device(self, tensorflow: Any, name: str) -> type:
        """A class to replace the strategy of this name: creating one gives TensorFlow's default strategy, that of one device, and
        its name is noted."""
        strategies = self.strategies

        class OneDevice(getattr(tensorflow.distribute, name)):  # type: ignore[misc]
            def __new__(cls, *positional: Any, **named: Any) -> Any:
                strategies.append(name)
                return tensorflow.distribute.get_strategy()

        return OneDevice

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """A `with` block whose seconds are added to importing_s, unless it is inside another such block: imports are nested."""
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
    """Python's loader of a module, which also times the import and tells the hook when it is done."""

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
    """Replaces `fit` of Keras's models when they are imported, from now on. replacement(fit of Keras): the function in its place.
    model_imported: called when Keras's models have been imported."""
    hook = FitHook(replacement, model_imported)
    sys.meta_path.insert(0, hook)
    return hook
