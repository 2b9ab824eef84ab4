"""What --resume goes on with: the newest run with the same rows in its plan, and of its file the visits that were made alike."""

import contextlib
import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from analysis import units
from workloads import options, terminal
from workloads.machine import clock
from workloads.records import Measurement, Method, Row, Run, command_lines
from workloads.records.reading import result_file
from workloads.records.result_lines import RowLines
from workloads.records.rows import VISITS_AT
from workloads.shared_flags import Limits

#: Variables by which libraries choose their threads and where these run.
THREAD_VARIABLES = (
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)


def method(limits: Limits, process_per_visit: bool) -> Method:
    """How rows are timed in this process, as a run stores it: rows that were timed otherwise are not joined with its own.

    process_per_visit: whether each round of visits has processes of its own (--rigorous).
    """
    by_name = dataclasses.asdict(limits)
    del by_name["rounds"]  # more visits of the same kind
    return Method(
        process_per_visit=process_per_visit,
        limits=by_name,
        thread_variables={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    )


def differences(before: Run | None, now: Run) -> str:
    """How rows of two runs were timed differently, in words: `seed 1, now 2; numpy 2.4.6, now 2.5.0`; "" if alike."""
    if before is None or before.method is None or now.method is None:
        return "an unknown one"
    old = _described(before, before.method)
    new = _described(now, now.method)
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return "; ".join(f"{name} {old.get(name, 'none')}, now {new.get(name, 'none')}" for name in changed)


def _described(run: Run, method: Method) -> dict[str, str]:
    """Name -> value, of all that must be alike in two visits to be of one row: limits, seed, variables, software."""
    limits = {name: str(limit) for name, limit in method.limits.items()}
    chosen = {"seed": str(run.seed), "process_per_visit": str(method.process_per_visit)}
    return {**chosen, **limits, **method.thread_variables, **run.software}


def continued(
    rows_before: dict[str, RowLines], rows: Iterable[Row], run: Run, file: Path
) -> dict[str, list[Measurement]]:
    """Key of a row -> its lines in a result file, for the rows that a resumed run need not measure again from the start.

    These are rows that are ok. A row with a line for each visit must also have been timed as this run does it; a row that was
    timed in one go stays in any case. Both are said on stderr, with the number of rows.

    rows_before: key of a row -> its lines in the file. rows: what the run plans. file: its path, for the messages.
    """
    planned = {row.key for row in rows}
    lines: dict[str, list[Measurement]] = {}
    anew: Counter[str] = Counter()
    staying: Counter[str] = Counter()
    for key, before in rows_before.items():
        if not before.lines[-1].ok:
            continue
        otherwise = differences(before.run, run)
        is_visit = before.lines[-1].visit > 0
        if otherwise and key in planned:
            counter = anew if is_visit else staying
            counter[otherwise] += 1
        if is_visit and otherwise:
            continue
        lines[key] = before.lines
    for otherwise, count in anew.items():
        terminal.note(f"{file}: {units.count(count, 'row')} timed by another method ({otherwise}), measured anew")
    for otherwise, count in staying.items():
        terminal.note(
            f"{file}: {units.count(count, 'row')} measured in one go by another method ({otherwise}), not again"
        )
    return lines


def continue_clock(stored: Iterable[list[Measurement]]) -> None:
    """Moves this process's clock forward, if it is behind, so that visits to come end later than the stored visits of each
    row."""
    for visits in stored:
        for visit in visits:
            times_s = visit.series.get(VISITS_AT) or (0.0,)
            clock.not_before(max(times_s))


def newest_run(
    folder: Path, command: str, rows: Iterable[Row], *, module: str, rows_of: Callable[[list[str]], Iterable[Row]]
) -> Path:
    """The folder of the newest run of a machine that has all these rows in its plan, by the commands in its result files.

    folder: of the machine; its runs are subfolders named by their time. command: what was typed, for the error. module: of the
    command, such as workloads.matmul. rows_of: called with the arguments of another command of the module; gives its rows.
    Raises: Usage when there is none.
    """
    wanted = {row.key for row in rows}
    runs = sorted({file.parent for file in folder.glob("*/*.jsonl")}, reverse=True)
    for candidate in runs:
        planned: set[str] = set()
        for stored in commands(candidate):
            arguments = command_lines.arguments(stored, module)
            if arguments is None:
                continue
            with contextlib.suppress(options.Stop):  # it named what this machine no longer has
                planned.update(row.key for row in rows_of(arguments))
        if wanted <= planned:
            return candidate
    newest = f"; the newest, {runs[0]}, is of another plan" if runs else ""
    raise options.Usage(
        f"nothing to resume: no run under {folder} has these rows in its plan{newest}; name a run with -o",
        command_lines.without(command, {"--resume": 0}),
    )


def commands(folder: Path, pattern: str = "*.jsonl") -> set[str]:
    """The command lines that wrote the result files in a folder; files that cannot be read are left out."""
    written_by: set[str] = set()
    for path in folder.glob(pattern):
        with contextlib.suppress(options.Usage):
            written_by |= {run.command for run in result_file(path).runs}
    return written_by
