"""Ends a child process with everything that it started, and a process with its parent. Standard library only."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_group(leader: subprocess.Popen) -> None:
    """Kills a process that was started with start_new_session, and its group: a user's function may have forked.

    The group is looked for even where its leader ended by itself.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()


def end_with_parent() -> None:
    """Lets the leader of a group end with its group when its parent ends, also while it computes. On Linux.

    It is the end of the parent's thread that started it which counts.
    """
    leader = os.getpid()
    if sys.platform == "linux" and os.getpgrp() == leader:
        signal.signal(signal.SIGHUP, lambda number, frame: os.killpg(leader, signal.SIGKILL))
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
