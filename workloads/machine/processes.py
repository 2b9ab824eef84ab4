"""The environment of a child process; how it is ended with everything that it started, and with its parent; how it ended.
Standard library only."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from workloads import ROOT

MARK = "CROSSOVER_PROCESS"  # environment variable of a process that is ended with everything that it started
_ROUNDS = 20  # of looking for processes to end
_MOST_FILES = 1024  # a worker has a few when it begins

_LONGEST = 300  # letters of a line that a process printed


def environment() -> dict[str, str]:
    """The environment of a child that finds the packages of this project, in whatever folder it is started."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def new_mark() -> str:
    """A value of the variable MARK for one process; whatever that process starts inherits it."""
    return uuid.uuid4().hex


def end_group(leader: subprocess.Popen, mark: str = "") -> None:
    """Kills a process that was started with start_new_session, and its group: a user's function may have forked. With the
    process's `mark` it also kills, on Linux, what has left the group.

    The group is looked for even where its leader ended by itself.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
    if mark:
        _end_marked(mark)


def _end_marked(mark: str) -> None:
    """Kills the processes that have this mark, but for the one that asks."""
    for _ in range(_ROUNDS):  # one may start another meanwhile
        marked = [pid for pid in _with_mark(mark) if pid != os.getpid()]
        for pid in marked:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return


def _with_mark(mark: str) -> list[int]:
    """The processes that were started with this mark in their environment. None where there is no /proc."""
    entry = f"{MARK}={mark}".encode()
    pids = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            if entry in environ.read_bytes().split(b"\0"):
                pids.append(int(environ.parent.name))
    return pids


def end_with_parent(pipe: int) -> None:
    """Lets this process and all that it starts end when its parent closes its end of a pipe, as when the parent is killed. On
    Linux, where this process has a mark.

    A process of its own waits for that: a call that holds the interpreter lets no handler of a signal run.
    """
    mark = os.environ.get(MARK, "")
    if sys.platform != "linux" or not mark or os.fork():
        return
    os.setsid()
    os.closerange(3, pipe)
    os.closerange(pipe + 1, _MOST_FILES)
    hang_up = select.poll()
    hang_up.register(pipe, 0)
    hang_up.poll()
    _end_marked(mark)
    os._exit(0)


def ending(code: int, printed: str) -> str:
    """How a process ended that gave no answer, with the last line that it printed: `signal SIGSEGV`, `exit code 1: no memory`."""
    how = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return f"{how}: {lines[-1][:_LONGEST]}" if lines else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the numbers between SIGRTMIN and SIGRTMAX
        return str(number)
