"""The environment of a child process; how it is ended with everything that it started, and with its parent; how it ended.
Standard library only."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from workloads import ROOT

MARK = "CROSSOVER_PROCESS"  # environment variable of a process that is ended with everything that it started
_ROUNDS = 20  # of looking for processes to end

_PR_SET_PDEATHSIG = 1  # prctl(2)
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
        for _ in range(_ROUNDS):  # one may start another meanwhile
            marked = _with_mark(mark)
            for pid in marked:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not marked:
                break


def _with_mark(mark: str) -> list[int]:
    """The processes that were started with this mark in their environment. None where there is no /proc."""
    entry = f"{MARK}={mark}".encode()
    pids = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            if entry in environ.read_bytes().split(b"\0"):
                pids.append(int(environ.parent.name))
    return pids


def end_with_parent() -> None:
    """Lets the leader of a group end with its group when its parent ends, also while it computes. On Linux.

    It is the end of the parent's thread that started it which counts.
    """
    leader = os.getpid()
    if sys.platform == "linux" and os.getpgrp() == leader:
        signal.signal(signal.SIGHUP, lambda number, frame: os.killpg(leader, signal.SIGKILL))
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)


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
