"""The suite on one node of a fleet: takes one order on stdin and gives Lines on stdout as rows finish. It runs in a process of
its own, so that nothing the fleet's engine sets or loads in its workers reaches what is measured."""

import argparse
import importlib
import os
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from workloads import options


def main() -> int:
    """Reads the order, measures its suite, ends; at once when whoever started it is gone."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever prints goes to the log
    from workloads import fleet_lines

    order = fleet_lines.order(sys.stdin.buffer.readline())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="crossover-") as folder:
        _measure(order, pathlib.Path(folder), lambda line: out.write(fleet_lines.encode(line)))
    return options.OK


def _leave_with_parent() -> None:
    """Our end of stdin closes however the parent ended; our workers then see the same and end too."""
    while os.read(0, 1 << 16):  # not sys.stdin: a thread that waits in it does not let the process end
        pass
    os._exit(options.TERMINATED)


class Part(NamedTuple):
    """One result file: what it is called, the rows known before, and who measures them with which flags."""

    file: str
    rows: Callable
    measure: Callable
    flags: argparse.Namespace


def parts(args: argparse.Namespace, here, folder: pathlib.Path) -> list[Part]:
    """The suite's files on this node. Every GPU alone, unless --device says otherwise; what several of them do with each other
    and to each other where it says all.

    Raises: Usage for a workload that is not among them.
    """
    from workloads import at_once, suite

    gpus = len(here.gpus)
    together = gpus > 1 and "all" in (options.words(args.device) or [])
    args.device = args.device or ["all"]
    found = []
    for name, flags in suite.on_each_gpu(suite.chosen(args, gpus > 0, together), gpus):
        module, own = importlib.import_module(f"workloads.{name}"), suite.arguments(args, name, flags, folder, None)
        found.append(Part(name, module.rows, module.measure, own))
        if name == "peers":
            found.append(
                Part("at-once", lambda a, m, of=module.gpus: at_once.rows(of(a, m)), module.measure_at_once, own)
            )
    return found


def _measure(order, folder: pathlib.Path, send) -> None:
    """Sends what this node is, what it will measure, and each row; rows of an earlier run are not measured again."""
    from workloads import fleet_lines, machine, sweep

    args = argparse.Namespace(**order.flags)
    try:
        run = sweep.header(args, order.command)
        send(fleet_lines.Began(run, "" if run.machine.gpus else machine.gpu_problem()))
        wanted = [part for part in parts(args, run.machine, folder) if _planned(part, run.machine, send)]
        if order.dry_run:
            return
        known = set(_taken_up(order.kept, folder))
        begin = time.monotonic()
        for part in wanted:
            if args.stop_after is not None:
                part.flags.stop_after = args.stop_after - (time.monotonic() - begin)
                if part.flags.stop_after <= 0:
                    return
            part.flags.resume = (folder / f"{part.file}.jsonl").exists()
            _rows(part, order.command, run, known, send)
    except options.Stop as stop:
        send(fleet_lines.Left("", str(stop)))


def _planned(part: Part, here, send) -> bool:
    """Whether a part has rows here; they are sent, so that they can be marked should this node be lost."""
    from workloads import fleet_lines

    try:
        send(fleet_lines.Planned(part.file, tuple(part.rows(part.flags, here))))
    except options.Missing as missing:
        send(fleet_lines.Left(part.file, str(missing)))
        return False
    return True


def _taken_up(kept: dict[str, str], folder: pathlib.Path):
    """Writes the rows of an earlier run where the sweep looks for them; their keys."""
    from workloads import records

    for workload, text in kept.items():
        (folder / f"{workload}.jsonl").write_text(text)
        yield from (m.key for m in records.decode(text.encode().splitlines())[1])


def _rows(part: Part, command: str, run, known: set[str], send) -> None:
    """The rows of one file, sent as they finish."""
    from workloads import fleet_lines

    def shown(m) -> None:
        if m.key not in known:
            known.add(m.key)
            send(fleet_lines.Took(part.file, m))

    try:
        part.measure(part.flags, command, shown, run)
    except options.Missing as missing:  # TensorFlow, say: the rest of the suite still has its answer
        send(fleet_lines.Left(part.file, str(missing)))


if __name__ == "__main__":
    sys.exit(main())
