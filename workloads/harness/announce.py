"""Announces what this process is doing: a worker process to the sweep that waits for it, a sweep to its parent process.

A process has one receiver of its announcements, by default none.
"""

from collections.abc import Callable

from workloads.records.messages import Doing

_send: Callable[[Doing], None] | None = None


def send_to(send: Callable[[Doing], None] | None) -> None:
    """Chooses the function that is called with each announcement of this process; None: announcements go nowhere."""
    global _send
    _send = send


def has_receiver() -> bool:
    """Whether this process's announcements go anywhere."""
    return _send is not None


def pass_on(doing: Doing) -> None:
    """Sends an announcement to the receiver that `send_to` chose, also one that came from a worker process."""
    if _send is not None:
        _send(doing)


def starting(words: str) -> None:
    """Announces work that is not timed, in words: `compiling`."""
    pass_on(Doing(words=words))


def timing(words: str, seconds: float = 0.0) -> None:
    """Announces in words that clocks run. seconds: how long they will; 0 where that is not known."""
    pass_on(Doing(words=words, timing=True, seconds=seconds))
