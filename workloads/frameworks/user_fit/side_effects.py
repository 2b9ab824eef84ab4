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
    """Notes which files this process opens for writing and how long its main thread sleeps, from now on until `effects` is
    called.

    time.sleep is replaced meanwhile. Python tells of opened files by an audit hook, which stays until the process ends.
    """

    def __init__(self) -> None:
        #: Paths of files that were opened for writing, in their order.
        self._paths: dict[str, None] = {}
        self._slept_s = 0.0
        self._is_noting = True
        self._sleep = time.sleep
        time.sleep = self._timed_sleep  # type: ignore[assignment]
        sys.addaudithook(self._note)

    def effects(self) -> SideEffects:
        """The files that the script has written and the seconds that it has slept. Nothing after this call is noted.

        Files that are not there any more are left out, as are those in caches (folders that begin with a dot) and in folders of
        the system.
        """
        self._is_noting = False
        time.sleep = self._sleep
        files = [Path(path).absolute() for path in self._paths]
        written = dict.fromkeys(str(file) for file in files if _is_written(file))
        return SideEffects(written=tuple(written), slept_s=self._slept_s)

    def _timed_sleep(self, seconds: float) -> None:
        """Sleeps, and counts the seconds where the main thread does: other threads do not hold the script up."""
        self._sleep(seconds)
        if self._is_noting and threading.current_thread() is threading.main_thread():
            self._slept_s += seconds

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python calls this for each audited event; the arguments of `open` are path, mode and flags."""
        if not self._is_noting or event != "open":
            return
        path = arguments[0]
        flags = arguments[2]
        if isinstance(path, str) and flags & _WRITES:
            self._paths[path] = None


def _is_written(file: Path) -> bool:
    """Whether a file that was opened for writing counts as an effect: it is there, the user's, and in no cache."""
    if not user_files.is_users(file):
        return False
    return not any(part[:1] == "." or part == "__pycache__" for part in file.parts)
