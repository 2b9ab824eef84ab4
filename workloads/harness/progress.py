"""The display of a sweep while it runs: its progress, and its rows in the order planned."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

from workloads import terminal
from workloads.harness import announce, rounds
from workloads.harness.plan import name
from workloads.records import Measurement, Row
from workloads.records.messages import Doing

_LINE_EVERY_S = 10.0  # between two lines of progress


class InOrder:
    """Shows the rows of a sweep as they are complete, in the order planned. Rows that are timed in one go have an order of their
    own, as they are all measured before the others."""

    def __init__(self, schedule: rounds.Rounds, shown: Callable[[Measurement], None]):
        """shown: called once with each row to show."""
        self._schedule = schedule
        self._shown = shown
        self._shown_keys: set[str] = set()

    def complete_rows(self) -> None:
        """Shows the rows that will have no further visit, up to the first one that will."""
        is_blocked = {
            True: False,
            False: False,
        }  # whether rows are timed in one go -> whether one of them is incomplete
        for key, row in self._schedule.rows.items():
            is_whole = rounds.is_whole(row)
            if key in self._shown_keys or is_blocked[is_whole]:
                continue
            if self._schedule.measurement(key) and self._schedule.settled(key):
                self._show(key)
            else:
                is_blocked[is_whole] = True

    def rest(self) -> None:
        """Shows every row that was not shown and has any samples, complete or not."""
        for key in self._schedule.rows:
            if key not in self._shown_keys and self._schedule.measurement(key):
                self._show(key)

    def _show(self, key: str) -> None:
        measurement = self._schedule.measurement(key)
        assert measurement is not None
        self._shown_keys.add(key)
        self._shown(measurement)


@contextlib.contextmanager
def progress(quiet: bool, verbose: bool) -> Iterator[Callable[[Row, int], None]]:
    """Shows on stderr how many visits are made and how much time is left, while the `with` block runs.

    The block gets a function to call when a visit begins, with the visit's row and the number of visits still to go, this one
    included. On a terminal it moves a bar; elsewhere it prints a line every ten seconds, or with `verbose` for each visit. If a
    parent process waits for announcements, it gets the line in place of stderr. quiet: nothing is shown.
    """
    if quiet:
        yield lambda row, to_go: None
    elif terminal.redraws(sys.stderr):
        with _bar() as begin_visit:
            yield begin_visit
    else:
        yield _Lines(verbose).begin_visit


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[Row, int], None]]:
    """A progress bar on stderr's terminal, which also says what a worker does before its clocks run. The block gets the function
    that moves it, as `progress` describes it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    what = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = (MofNCompleteColumn(), TimeRemainingColumn(), BarColumn(10), what)
    on_terminal = sys.stdout.isatty()  # else rows would go to the bar's stream, not into the pipe
    shown = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=on_terminal, expand=True)
    with terminal.drawing(sys.stderr), shown as bar:
        task = bar.add_task("visits")
        begun = 0

        def begin_visit(row: Row, to_go: int) -> None:
            nonlocal begun
            bar.update(task, completed=begun, total=begun + to_go, description=terminal.printable(name(row)))
            begun += 1

        def describe(doing: Doing) -> None:
            if not doing.timing:
                bar.update(task, description=terminal.printable(doing.words))

        announce.send_to(describe)
        try:
            yield begin_visit
        finally:
            announce.send_to(None)


class _Lines:
    """Progress in plain lines, on stderr or as announcements to the parent process."""

    def __init__(self, verbose: bool):
        """verbose: whether each visit gets a line."""
        self._verbose = verbose
        self._visits = 0
        self._begin = time.monotonic()
        self._last_line_at = -math.inf

    def begin_visit(self, row: Row, to_go: int) -> None:
        """Prints a line for the visit that begins, if the last line is _LINE_EVERY_S old. to_go: visits to come with this one."""
        now = time.monotonic()
        if self._verbose or now - self._last_line_at > _LINE_EVERY_S:
            left = ""
            if self._visits > to_go / 10:  # the first visits compile
                left_s = (now - self._begin) / self._visits * to_go
                left = f", about {left_s:.0f} s left"
            number = self._visits + 1
            words = f"[visit {number} of {self._visits + to_go}{left}] {name(row)}"
            if announce.has_receiver():
                announce.pass_on(Doing(words=words, timing=True, visit=number))
            else:
                terminal.note(words)
            self._last_line_at = now
        self._visits += 1
