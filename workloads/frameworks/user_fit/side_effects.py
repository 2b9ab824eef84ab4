"""Inside the process of a script: which files it writes and how long it sleeps before its `fit`."""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from workloads.frameworks.tracing import user_files
from workloads.records.script_fit import SideEffects

_WRITES = os.O_WRONLY | os.O_RDWR


class SideEffectsHook:
    """Notes what the script does from now on until `effects` is read."""

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}
        self._slept_s = 0.0
        self._is_noting = True
        self._sleep = time.sleep
        time.sleep = self._timed_sleep  # type: ignore[assignment]
        sys.addaudithook(self._note)

    def effects(self) -> SideEffects:
        """What the script has done so far; nothing after this is noted. Files that are gone again are left out, as are those of
        caches and of temporary folders."""
        self._is_noting = False
        time.sleep = self._sleep
        files = [Path(path).absolute() for path in self._paths]
        written = dict.fromkeys(str(file) for file in files if _is_written(file))
        return SideEffects(written=tuple(written), slept_s=self._slept_s)

    def _timed_sleep(self, seconds: float) -> None:
        self._sleep(seconds)
        if self._is_noting and threading.current_thread() is threading.main_thread():
            self._slept_s += seconds

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_noting or event != "open" or not isinstance(arguments[0], str):
            return
        if arguments[2] & _WRITES:
            self._paths[arguments[0]] = None


def _is_written(file: Path) -> bool:
    if not user_files.is_users(file):
        return False
    return not any(part[:1] == "." or part == "__pycache__" for part in file.parts)
