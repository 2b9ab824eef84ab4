"""The suite on one node of a fleet: takes one order on stdin and gives Lines on stdout as rows finish. It runs in a process of
its own, so that nothing the fleet's engine sets or loads in its workers reaches what is measured."""

import os
import pathlib
import sys
import tempfile
import threading
import time

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


def _measure(order, folder: pathlib.Path, send) -> None:
    """Sends what this node is, what it will measure, and each row; rows of an earlier run are not measured again."""
    import argparse

    from workloads import fleet_lines, machine, suite, sweep

    args = argparse.Namespace(**order.flags)
    try:
        run = sweep.header(args, order.command)
        send(fleet_lines.Began(run, "" if run.machine.gpus else machine.gpu_problem()))
        args.device = args.device or ["all"]
        wanted = suite.on_each_gpu(suite.chosen(args, bool(run.machine.gpus)), len(run.machine.gpus))
        parts = [(name, suite.arguments(args, name, flags, folder, None)) for name, flags in wanted]
        parts = [(name, made) for name, made in parts if _planned(name, made, run.machine, send)]
        if order.dry_run:
            return
        known = set(_taken_up(order.kept, folder))
        begin = time.monotonic()
        for name, made in parts:
            if args.stop_after is not None:
                made.stop_after = args.stop_after - (time.monotonic() - begin)
                if made.stop_after <= 0:
                    return
            made.resume = (folder / f"{name}.jsonl").exists()
            _part(name, made, order.command, run, known, send)
    except options.Stop as stop:
        send(fleet_lines.Left("", str(stop)))


def _planned(name: str, made, here, send) -> bool:
    """Whether a part has rows here; they are sent, so that they can be marked should this node be lost."""
    import importlib

    from workloads import fleet_lines

    try:
        send(fleet_lines.Planned(name, tuple(importlib.import_module(f"workloads.{name}").rows(made, here))))
    except options.Missing as missing:
        send(fleet_lines.Left(name, str(missing)))
        return False
    return True


def _taken_up(kept: dict[str, str], folder: pathlib.Path):
    """Writes the rows of an earlier run where the sweep looks for them; their keys."""
    from workloads import results

    for workload, text in kept.items():
        (folder / f"{workload}.jsonl").write_text(text)
        yield from (m.key for m in results.decode(text.encode().splitlines())[1])


def _part(name: str, made, command: str, run, known: set[str], send) -> None:
    """One workload of the suite, its rows sent as they finish."""
    import importlib

    from workloads import fleet_lines

    def shown(m) -> None:
        if m.key not in known:
            known.add(m.key)
            send(fleet_lines.Took(name, m))

    try:
        importlib.import_module(f"workloads.{name}").measure(made, command, shown, run)
    except options.Missing as missing:  # TensorFlow, say: the rest of the suite still has its answer
        send(fleet_lines.Left(name, str(missing)))


if __name__ == "__main__":
    sys.exit(main())
