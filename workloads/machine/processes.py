"""Ends a child process with everything that it started. Standard library only."""

import contextlib
import os
import signal
import subprocess


def end_group(leader: subprocess.Popen) -> None:
    """Kills a process that was started with start_new_session, and its group: a user's function may have forked.

    The group is looked for even where its leader ended by itself.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
