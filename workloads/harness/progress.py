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


class InOrder:
    """Shows rows as they are complete: whole ones and visited ones each in the order planned."""

    def __init__(self, around: rounds.Rounds, shown: Callable[[Measurement], None]):
        self._around = around
        self._shown = shown
        self._shown_keys: set[str] = set()

    def ready(self, every: bool = False) -> None:
        """Shows complete rows up to the first incomplete one; in the end `every` row that has any samples."""
        behind = set[bool]()
        for key, row in self._around.rows.items():
            whole = rounds.is_whole(row)
            if key in self._shown_keys or whole in behind:
                continue
            m = self._around.measurement(key)
            if m and (every or self._around.settled(key)):
                self._shown_keys.add(key)
                self._shown(m)
            elif not every:
                behind.add(whole)


@contextlib.contextmanager
def progress(quiet: bool, verbose: bool) -> Iterator[Callable[[Row, int], None]]:
    """A function to call when a visit begins, with the number still to go. It shows how many are done and the time left: as a
    bar on a terminal, which also says what a worker does before its clocks run, else in plain lines now and then, which a
    parent gets as announcements."""
    visits = 0
    begin = time.monotonic()
    last_note = -math.inf
    if quiet:
        yield lambda row, to_go: None
    elif terminal.redraws(sys.stderr):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        what = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
        columns = (MofNCompleteColumn(), TimeRemainingColumn(), BarColumn(10), what)
        on_terminal = sys.stdout.isatty()  # else rows would go to the bar's stream, not into the pipe
        shown = Progress(
            *columns, console=Console(stderr=True), transient=True, redirect_stdout=on_terminal, expand=True
        )
        with terminal.drawing(sys.stderr), shown as bar:
            task = bar.add_task("visits")

            def moved(row: Row, to_go: int) -> None:
                nonlocal visits
                bar.update(task, completed=visits, total=visits + to_go, description=terminal.printable(name(row)))
                visits += 1

            def before_its_clocks(doing: Doing) -> None:
                if not doing.timing:
                    bar.update(task, description=terminal.printable(doing.words))

            announce.send_to(before_its_clocks)
            try:
                yield moved
            finally:
                announce.send_to(None)
    else:

        def plain(row: Row, to_go: int) -> None:
            nonlocal visits, last_note
            now = time.monotonic()
            if verbose or now - last_note > 10:
                left = ""
                if visits > to_go / 10:  # the first visits compile
                    left = f", about {(now - begin) / visits * to_go:.0f} s left"
                words = f"[visit {visits + 1} of {visits + to_go}{left}] {name(row)}"
                if announce.has_receiver():
                    announce.passed_on(Doing(words=words, timing=True, visit=visits + 1))
                else:
                    terminal.note(words)
                last_note = now
            visits += 1

        yield plain
