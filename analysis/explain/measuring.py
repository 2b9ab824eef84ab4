"""A child process that measures parts of an answer, and the budget of the seconds that its clocks may run."""

import contextlib
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import msgspec

from workloads.machine import processes
from workloads.records.messages import Doing, Done

GROWTH = 3  # times its budget that a measurement may take while it gets somewhere
_TICK_S = 1.0  # between two looks at the child
_ENDING_S = 15  # that a child may take to end after it was asked to


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a part was not measured."""

    #: The part, in words.
    part: str
    #: The reason, in words.
    reason: str
    #: The budget that would do, in seconds; 0 where more time does not help.
    budget_s: int = 0


class TimeBudget(msgspec.Struct, kw_only=True):
    """Seconds that the clocks of a child may run; imports, building a model and compilation do not count.

    A part that announces something new at least once in `seconds` gets somewhere: it may run GROWTH times as long.
    """

    #: The budget.
    seconds: float
    #: Seconds that clocks have run.
    spent: float = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left for a further part, when those before it got somewhere."""
        return max(0.0, GROWTH * self.seconds - self.spent)

    def is_over(self, silent_s: float) -> bool:
        """Whether a part is to be ended. silent_s: seconds since it last announced what it does."""
        return silent_s > self.seconds or self.spent > GROWTH * self.seconds

    def enough(self, needed_s: float) -> int:
        """A budget to propose for a part that this one was too small for: at least `needed_s` and GROWTH times this one,
        rounded up to a multiple of 100 s.
        """
        return math.ceil(max(GROWTH * self.seconds, needed_s) / 100) * 100


class Child:
    """`python -m workloads.serve`, started by the first part. It is ended with its workers by `close`, and on Ctrl-C."""

    def __init__(self, module: str = "workloads.serve"):
        self._module = module
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def measure(
        self, name: str, command: Sequence[str], budget: TimeBudget, say: Callable[[str, float], None]
    ) -> Failure | None:
        """Runs a measuring command in the child; None if it succeeds, else why it did not.

        Args:
            name: what is measured, in words.
            command: the arguments of `python -m`, with the folder for the rows.
            budget: its `spent` grows by the seconds that clocks run.
            say: called about once a second with what the child does and the seconds since it began that.
        """
        try:
            return self._measured(name, command, budget, say)
        except (BrokenPipeError, EOFError):
            reason = f"its process ended with {processes.ending(self._exit_code(), self._printed())}"
            self.close()
            return Failure(part=name, reason=reason)

    def _measured(
        self, name: str, command: Sequence[str], budget: TimeBudget, say: Callable[[str, float], None]
    ) -> Failure | None:
        """The same, while the child lives. A child that announces nothing new for too long while its clocks run is ended.

        Raises: EOFError or BrokenPipeError when the child is gone.
        """
        self._send(command)
        doing = Doing(words="starting")
        began = last = time.monotonic()
        while True:
            message = self._next_message()
            now = time.monotonic()
            if doing.timing:
                budget.spent += now - last
            last = now
            if isinstance(message, Done):
                reason = message.error.message if message.error else message.reason
                return Failure(part=name, reason=reason) if reason else None
            if isinstance(message, Doing):
                doing, began = message, now
            if doing.timing and budget.is_over(now - began):
                self.close()
                return _too_slow(name, budget, doing)
            say(_words(doing), now - began)

    def _send(self, command: Sequence[str]) -> None:
        """Sends a command as a line of JSON to the child, which is started first if there is none."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        self._process.stdin.flush()

    def _start(self) -> None:
        """Starts the child. Its messages come by stdout; what it and its libraries print to stderr goes to a temporary file."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._buffer = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            env=processes.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # a Ctrl-C reaches it from here, once
        )

    def _next_message(self) -> Doing | Done | None:
        """The child's next message, a line of JSON; None if none is complete within _TICK_S.

        Raises: EOFError when the child is gone.
        """
        assert self._process is not None and self._process.stdout is not None
        stdout = self._process.stdout.fileno()
        if b"\n" not in self._buffer and select.select([stdout], [], [], _TICK_S)[0]:
            received = os.read(stdout, 1 << 16)
            if not received:
                raise EOFError
            self._buffer += received
        if b"\n" not in self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return msgspec.json.decode(line, type=Doing | Done)

    def _exit_code(self) -> int:
        """The exit code of a child that is gone."""
        return self._process.wait() if self._process else 0

    def _printed(self) -> str:
        """The end of what the child and its libraries printed."""
        self._log.seek(0)
        return self._log.read()[-4000:].decode(errors="replace")

    def close(self) -> None:
        """Ends the child and its workers: it is asked to end, so that it stores what it has measured, and killed after
        _ENDING_S. The next part starts another. Does nothing without a child.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_S)
        processes.end_group(process)
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        self._log.close()


def _words(doing: Doing) -> str:
    """What the child does, with the seconds that it expects: `timing 3 epochs of 3 steps, about 14 s`."""
    return f"{doing.words}, about {doing.seconds:.0f} s" if doing.seconds >= 1 else doing.words


def _too_slow(name: str, budget: TimeBudget, doing: Doing) -> Failure:
    """The failure of a part that took longer than its budget. doing: what it did when it was ended."""
    reason = f"{_words(doing)}: longer than its budget of {budget.seconds:.0f} s"
    return Failure(part=name, reason=reason, budget_s=budget.enough(doing.seconds))
