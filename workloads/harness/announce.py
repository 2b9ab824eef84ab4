"""Announces what this process is doing, to whoever waits for it: a worker to its sweep, a sweep to its parent.

Each process has one place where its announcements go, by default nowhere.
"""

from collections.abc import Callable

from workloads.records.messages import Doing

_send: Callable[[Doing], None] | None = None


def send_to(send: Callable[[Doing], None] | None) -> None:
    """Chooses where this process's announcements go; None: nowhere."""
    global _send
    _send = send


def has_receiver() -> bool:
    """Whether anybody waits for this process's announcements."""
    return _send is not None


def passed_on(doing: Doing) -> None:
    """Sends the announcement of a worker on, as this process's."""
    if _send is not None:
        _send(doing)


def starting(words: str) -> None:
    """Announces work that comes before the clocks."""
    passed_on(Doing(words=words))


def timing(words: str, seconds: float = 0.0) -> None:
    """Announces that clocks run, for so many seconds if that is known."""
    passed_on(Doing(words=words, timing=True, seconds=seconds))
