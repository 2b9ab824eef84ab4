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
    """The environment variables for a child process that has to import the packages of this project, whatever folder it is
    started in."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def new_mark() -> str:
    """A new value for the environment variable MARK of one process. Whatever that process starts inherits it, and is found by
    it."""
    return uuid.uuid4().hex


def end_group(leader: subprocess.Popen, mark: str = "") -> None:
    """Kills a process and what it has started, also where the process itself has ended already.

    leader: the process, started with start_new_session, so that its group has its number. mark: its value of MARK, if it has one;
    then on Linux processes that have left the group are killed too.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
    if mark:
        _end_marked(mark)


def _end_marked(mark: str) -> None:
    """Kills the processes that were started with this value of MARK, but not this process."""
    for _ in range(_ROUNDS):  # one may start another meanwhile
        marked = [pid for pid in _pids_with_mark(mark) if pid != os.getpid()]
        for pid in marked:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return


def _pids_with_mark(mark: str) -> list[int]:
    """The numbers of the processes that were started with this value of MARK in their environment; [] where there is no /proc."""
    entry = f"{MARK}={mark}".encode()
    pids = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            if entry in environ.read_bytes().split(b"\0"):
                pids.append(int(environ.parent.name))
    return pids


def end_with_parent(pipe: int) -> None:
    """Makes this process and all that it starts end when its parent closes its end of a pipe, as it does when it is killed.

    Only on Linux, and if the environment has MARK. A forked process waits for the pipe and then kills: a signal handler in this
    process would not run during a call that holds the interpreter.

    pipe: file descriptor of this process's end.
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
    """How a process ended that gave no answer, in words: `signal SIGSEGV`, `exit code 1: no memory`.

    code: its exit code; negative: the number of the signal that ended it. printed: its output, of which the last line is shown.
    """
    how = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return f"{how}: {lines[-1][:_LONGEST]}" if lines else how


def _signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL; its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the numbers between SIGRTMIN and SIGRTMAX
        return str(number)
