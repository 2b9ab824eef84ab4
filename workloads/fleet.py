"""The suite on every node of a Ray cluster, into one run folder: a folder a node, in it a result file a workload.

Ray places the tasks, carries their rows and notices what died. Each node is one task that holds all its CPUs and GPUs while it
measures; within it GPUs take turns, and with `--device all` also work with each other and all at once. A node is told apart by
Ray's node id, a GPU by its UUID.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from workloads import fleet_cluster, fleet_lines, options, records, sweep
from workloads.fleet_cluster import Node
from workloads.fleet_lines import Began, Left, Line, Order, Planned, Took
from workloads.records import Measurement, Row, Run

LOST = "lost"  # the flag of a row that its node did not live to measure
_POLL_S = 1.0
_DEATH_KNOWN_S = 5.0
_SAID_EVERY_S = 10.0
_NOT_BEGUN = "did not begin (others hold its CPUs and GPUs, or it hangs) within"


class Part:
    """One node's side of the run: its folder, what it plans, what it has measured."""

    def __init__(self, node: Node, folder: pathlib.Path, dry_run: bool = False):
        self.node, self.folder, self.dry_run = node, folder / node.name, dry_run
        self.run: Run | None = None
        self.gpu_problem = self.lost = ""
        self.left: list[str] = []
        self.kept: dict[str, str] = {}
        self.done: dict[str, Measurement] = {}
        self.planned: dict[str, tuple[str, Row]] = {}
        self.heard = time.monotonic()
        self._writers: dict[str, records.Writer] = {}
        self._gpus: tuple[str, ...] = ()
        for file in sorted(self.folder.glob("*.jsonl")):
            runs, rows, _ = records.decode(file.read_bytes().splitlines())
            fine = [m for m in rows if m.status == "ok"]
            self.done |= {m.key: m for m in fine}
            self._gpus = tuple(g.uuid for g in runs[-1].machine.gpus) if runs else self._gpus
            if runs:
                self.kept[file.stem] = "".join(msgspec.json.encode(line).decode() + "\n" for line in (runs[-1], *fine))

    def take(self, line: Line) -> None:
        """Writes what the node said.

        Raises: Refused when its file cannot be written or was made by other devices.
        """
        self.heard = time.monotonic()
        if isinstance(line, Began):
            self.run, self.gpu_problem = line.run, line.gpu_problem
            here = tuple(g.uuid for g in line.run.machine.gpus)
            if self.kept and here != self._gpus:
                raise records.Refused(f"{self.folder} was measured on other GPUs; leave --resume out")
        elif isinstance(line, Planned):
            self.planned |= {row.key: (line.workload, row) for row in line.rows}
        elif isinstance(line, Took):
            self.done[line.measurement.key] = line.measurement
            self._writer(line.workload).append(line.measurement)
        else:
            self.left.append(f"{line.workload} left out: {line.reason}" if line.workload else line.reason)

    def _writer(self, workload: str) -> records.Writer:
        if workload not in self._writers:
            path = self.folder / f"{workload}.jsonl"
            assert self.run is not None
            self._writers[workload] = records.Writer(path, self.run, path.exists())
        return self._writers[workload]

    def lose(self, why: str) -> None:
        """Marks the rows that it did not live to measure: they have failed, and --resume measures them."""
        self.lost = why
        if self.dry_run:
            return
        for workload, row in [planned for key, planned in self.planned.items() if key not in self.done]:
            gone = Measurement(row.kernel, row.problem, row.settings, "failed", f"lost: {why}", flags=(LOST,))
            self.done[row.key] = gone
            self._writer(workload).append(gone)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def count(self, *statuses: str) -> int:
        return sum(m.status in statuses and LOST not in m.flags for m in self.done.values())

    @property
    def rows_lost(self) -> int:
        return sum(LOST in m.flags for m in self.done.values())

    @property
    def to_go(self) -> int:
        return sum(key not in self.done for key in self.planned)


def gather(
    ray,
    parts: list[Part],
    order: Callable[[Part], Order],
    limit_s: float,
    seen: Callable[[Part, Line], None] = lambda part, line: None,
    stopped: list[str] | None = None,
) -> None:
    """Runs every node's suite at once and writes what comes, until all have ended, died, or said nothing for `limit_s`, or
    something is in `stopped`."""
    task = ray.remote(fleet_cluster.measure_node)
    running = {}
    for part in parts:
        node, message = part.node, order(part)
        held = {"num_cpus": int(node.cpus), "num_gpus": int(node.gpus)}
        placed = task.options(
            num_returns="streaming",
            max_retries=0,
            scheduling_strategy=fleet_cluster.on(node),
            name=f"suite on {node.name}",
            **held,
        )
        running[placed.remote(fleet_lines.encode(message), int(node.cpus))] = part
        part.heard = time.monotonic()
    try:
        while running and not stopped:
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_S)
            for stream in ready:
                part = running[stream]
                try:
                    line = fleet_lines.decode(ray.get(next(stream)))
                    part.take(line)
                    seen(part, line)
                except StopIteration:
                    del running[stream]
                except records.Refused as refused:
                    part.left.append(str(refused))
                    ray.cancel(stream, force=True)
                    del running[stream]
                except (ray.exceptions.RayError, msgspec.DecodeError) as error:
                    part.lose(_why_lost(ray, part, error))
                    del running[stream]
            for stream, part in [*running.items()]:
                if time.monotonic() - part.heard > limit_s:
                    ray.cancel(stream, force=True)
                    silent = "said nothing for" if part.run else _NOT_BEGUN
                    part.lose(f"{part.node.name} {silent} {limit_s:.3g} s")
                    del running[stream]
    finally:
        for stream in running:
            ray.cancel(stream, force=True)
        for part in parts:
            part.close()


def _why_lost(ray, part: Part, error: Exception) -> str:
    """A dying node takes its suite with it, which may be told before its own death is known."""
    if isinstance(error, ray.exceptions.NodeDiedError):
        return f"{part.node.name} died"
    until = time.monotonic() + (_DEATH_KNOWN_S if fleet_cluster.KILLED in str(error) else 0.0)
    while any(n["NodeID"] == part.node.id and n["Alive"] for n in ray.nodes()):
        if time.monotonic() >= until:
            return f"{part.node.name}: {fleet_cluster.first_line(error)}"
        time.sleep(0.2)
    return f"{part.node.name} died"


def place(args: argparse.Namespace) -> pathlib.Path:
    """The run's folder: -o DIR, or a new one under reports/local/fleet (with --resume the newest there).

    Raises: Usage when there is something in it and it is not resumed, or nothing to resume.
    """
    from workloads.machine import now

    old = sorted(p for p in (sweep.LOCAL / "fleet").glob("*") if any(p.glob("*/*.jsonl")))
    if args.output:
        folder = pathlib.Path(args.output)
    elif not args.resume:
        return sweep.LOCAL / "fleet" / now().replace(":", "").replace("-", "")
    elif not old:
        raise options.Usage("no fleet's run to resume; start one", f"python -m workloads.suite --ray {args.ray}")
    else:
        folder = old[-1]
    if any(folder.glob("**/*.jsonl")) and not args.resume:
        raise records.Refused(f"{folder} has results; add --resume to finish them, or choose another folder with -o")
    return folder


def run(args: argparse.Namespace, command: str) -> int:
    """The body of `suite --ray`: every node's suite into one folder, then each device in a line; the exit code.

    Raises: Usage, Missing.
    """
    if args.format != "table":
        raise options.Usage(
            "--ray prints a table; its files are read by python -m analysis.fleet RUN --format json",
            f"python -m workloads.suite --ray {args.ray}",
        )
    if args.against or args.fail_on is not None:
        tip = (
            f"python -m analysis.fleet RUN{' --against ' + args.against if args.against else ''} --fail-on 'slower>3%'"
        )
        raise options.Usage("a fleet is compared device by device, after it was measured", tip)
    if args.save:
        from workloads import baselines

        baselines.require_free(args.save)
    folder = place(args)

    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    ray = fleet_cluster.connect(args.ray, note)
    try:
        return _run(ray, args, command, folder, note)
    finally:
        ray.shutdown()


def _run(ray, args: argparse.Namespace, command: str, folder: pathlib.Path, note: Callable[[str], None]) -> int:
    found = fleet_cluster.nodes(ray.nodes())
    asked = options.words(args.device)
    if args.require_gpu or (asked and "all" not in asked and "cpu" not in asked):
        for node in (n for n in found if not n.gpus):
            note(f"{node.name} left out: Ray counts no GPU on it")
        found = [n for n in found if n.gpus]
    for node in (n for n in found if not n.cpus):
        note(f"{node.name} left out: Ray counts no CPU on it to measure with")
    found = fleet_cluster.usable(ray, [n for n in found if n.cpus], note, args.ray_timeout)
    if len({node.name for node in found}) < len(found):
        note(
            "some nodes share a name: they are told apart by their node ids, which change when the cluster is started anew"
        )
    found = fleet_cluster.told_apart(found)
    if not found:
        raise options.Missing("no node of this cluster can run the suite", "ray status  # and each node's line above")
    parts = [Part(node, folder, args.dry_run) for node in found]
    flags = {**vars(args), "output": None, "resume": False, "quiet": True}
    said = time.monotonic()

    def seen(part: Part, line: Line) -> None:
        nonlocal said
        if isinstance(line, Began) and line.gpu_problem:
            note(f"{part.node.name}: no GPU ({line.gpu_problem}): its CPU is measured")
        elif isinstance(line, Left):
            note(f"{part.node.name}: {part.left[-1]}")
        elif isinstance(line, Took) and not args.quiet and (args.verbose or time.monotonic() - said > _SAID_EVERY_S):
            said = time.monotonic()
            note(
                f"[{len(part.done)}/{len(part.done) + part.to_go}] {part.node.name}: {sweep.name(line.measurement.row)}"
            )

    with _signals() as stopped:
        gather(ray, parts, lambda part: Order(flags, command, part.kept, args.dry_run), args.ray_timeout, seen, stopped)
    if args.dry_run:
        for part in parts:
            print(f"{part.node.name}: {len(part.planned)} rows" + (f"; {part.lost}" if part.lost else ""))
        return options.OK if any(part.planned for part in parts) else options.MISSING
    return _ended(args, command, folder, parts, stopped[0] if stopped else "")


@contextlib.contextmanager
def _signals() -> Iterator[list[str]]:
    """The names of SIGINT and SIGTERM as they come. Noted, not raised: what is raised inside Ray's own calls gets lost there."""
    noted: list[str] = []
    old = {
        s: signal.signal(s, lambda number, frame: noted.append(signal.Signals(number).name))
        for s in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield noted
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _ended(args: argparse.Namespace, command: str, folder: pathlib.Path, parts: list[Part], stopped: str) -> int:
    """Prints a line a node, what was lost, how to go on; the exit code."""
    head = ("node", "ok", "skipped", "failed", "lost", "to go", "GPUs")
    lines: list[tuple[str, ...]] = [head]
    for p in parts:
        gpus = len(p.run.machine.gpus) if p.run else 0
        counts = (p.count("ok"), p.count("skipped"), p.count("failed", "wrong"), p.rows_lost, p.to_go, gpus)
        lines.append((p.node.name, *map(str, counts)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip())
    for p in (p for p in parts if p.lost):
        print(f"lost: {p.lost}", file=sys.stderr)
    here = {p.node.name for p in parts}
    for name in sorted(p.name for p in folder.glob("*") if p.is_dir() and p.name not in here):
        print(f"{name} was measured before and is not among the nodes now", file=sys.stderr)
    if stopped or (args.stop_after and any(p.to_go for p in parts)) or any(p.lost for p in parts):
        base = sweep.command_without(command, "--resume")
        again = f"{base}{'' if args.output else f' -o {os.path.relpath(folder)}'} --resume"
        print(
            f"{'stopped by ' + stopped + '; ' if stopped else ''}finish with:\n  {options.typed(again)}",
            file=sys.stderr,
        )
    code = exit_code(parts, stopped)
    if code == options.MISSING:
        raise options.Missing("no node of this cluster measured anything; what each said is above", "ray status")
    if code in (options.OK, options.FAILED):
        from analysis import fleet_devices, fleet_judged, fleet_words

        for said in fleet_words.lines(fleet_judged.judge(fleet_devices.devices(folder), fleet_devices.saved())):
            print(said)
        if args.save:
            _save(args, folder)
        print(f"results: {os.path.relpath(folder)}")
        print(f"next:    {options.typed(f'python -m analysis.fleet {os.path.relpath(folder)}')}")
    return code


def _save(args: argparse.Namespace, folder: pathlib.Path) -> None:
    from workloads import baselines

    kept = baselines.save(args.save, records.files_of(folder), apart=True)
    if not args.quiet:
        print(f"saved as the baseline {args.save!r}: {os.path.relpath(kept)}", file=sys.stderr)


def exit_code(parts: list[Part], stopped: str = "") -> int:
    """130 or 143 after a signal, 3 when no node measured anything, 1 when rows failed or were lost, else 0."""
    if stopped:
        return options.INTERRUPTED if stopped == "SIGINT" else options.TERMINATED
    if not any(p.count("ok") for p in parts):
        return options.MISSING
    return options.FAILED if any(p.lost or p.count("failed", "wrong") for p in parts) else options.OK
