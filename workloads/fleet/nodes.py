"""Runs the suite on every node of a Ray cluster, into one run folder with a folder a node.

Ray places the tasks, carries the lines added to their folders, and notices which tasks died.
"""

# Each node is one task that holds all its CPUs and GPUs while it measures. Nodes are known by Ray's node id, GPUs by their UUID.

import contextlib
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from analysis import table
from workloads import options, records, session, terminal
from workloads.fleet import cluster
from workloads.fleet.cluster import LOG, MESSAGES, PLAN, Node
from workloads.harness import resuming, sweep
from workloads.records import Measurement, Row, Run, command_lines, regular_files
from workloads.records.damaged_lines import end_last_line
from workloads.records.messages import ChildFailure, Doing, Done
from workloads.records.writer import require_result_file
from workloads.shared_flags import Measuring
from workloads.terminal import note

LOST = "lost"  # the flag of a row that its node did not live to measure
_POLL_S = 1.0
_DEATH_KNOWN_S = 5.0
_PROGRESS_EVERY_S = 10.0
_UNKNOWN_EXIT = -1  # of a task that Ray lost: its node may be dying
_NOT_BEGUN = "did not begin (others hold its CPUs and GPUs, or it hangs) within"


class NodePlan(msgspec.Struct, frozen=True):
    """The rows that a node will measure. Rows that depend on measured results are not known yet."""

    #: The run that its suite began.
    run: Run
    #: Result file -> its rows.
    rows: dict[str, list[Row]]


class NodeRun:
    """One node's side of the run: the copy of its folder, its plan, and why its suite failed."""

    def __init__(self, node: Node, folder: Path, dry_run: bool = False):
        self.node = node
        self.folder = folder / node.name
        self.dry_run = dry_run
        self.plan: NodePlan | None = None
        #: Why the node was lost; "" where it was not.
        self.lost = ""
        #: When it last sent anything.
        self.last_sign = time.monotonic()
        self.failure: ChildFailure | None = None
        #: The files of an earlier run, whole lines.
        self.earlier: dict[str, bytes] = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            lines = regular_files.lines(file)
            require_result_file(file, lines, records.decode(lines))
            if not dry_run:
                end_last_line(file, lines)
            self.earlier[file.name] = file.read_bytes()

    def take(self, name: str, text: bytes) -> None:
        """Appends the new text of a file of the node's folder to its copy.

        Raises: Refused when it cannot be written, or the earlier files are of other GPUs.
        """
        self.last_sign = time.monotonic()
        path = self.folder / name
        if name == PLAN:
            self.plan = msgspec.json.decode(text, type=NodePlan)
            earlier_runs: list[Run] = []
            for lines in self.earlier.values():
                earlier_runs += records.decode(lines.splitlines()).runs
            if earlier_runs and _uuids(earlier_runs[-1]) != _uuids(self.plan.run):
                raise records.Refused(f"{self.folder} was measured on other GPUs; leave --resume out")
        elif name not in (LOG, MESSAGES):
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as copy:
                    copy.write(text)
            except OSError as error:
                raise records.Refused(f"cannot write {path}: {error.strerror}") from error

    def lose(self, why: str) -> None:
        """Marks as failed the rows that the node did not live to measure; --resume measures them."""
        self.lost = why
        if self.plan is None or self.dry_run:
            return
        done = self.done()
        for name, rows in self.plan.rows.items():
            missing = [row for row in rows if row.key not in done]
            if not missing:
                continue
            with records.Writer(self.folder / f"{name}.jsonl", self.plan.run, resume=True) as writer:
                for row in missing:
                    writer.append(row.result("failed", f"lost: {why}", flags=(LOST,)))

    def done(self) -> dict[str, Measurement]:
        """The rows in its files, by key."""
        loaded = records.read_files(sorted(self.folder.glob("*.jsonl")))
        return {m.key: m for m in loaded.measurements}

    @property
    def planned(self) -> set[str]:
        """The keys of the rows that it will measure."""
        keys: set[str] = set()
        if self.plan is not None:
            for rows in self.plan.rows.values():
                keys.update(row.key for row in rows)
        return keys

    def tally(self) -> Counter[str]:
        """How many rows are ok, skipped, failed, lost and to go; how many GPUs there are."""
        done = self.done()
        counts = Counter("lost" if LOST in m.flags else m.status for m in done.values())
        counts["failed"] += counts.pop("wrong", 0)
        counts["to go"] = len(self.planned - set(done))
        counts["GPUs"] = len(_uuids(self.plan.run)) if self.plan else 0
        return +counts


def _uuids(run: Run) -> list[str]:
    return [gpu.uuid for gpu in run.machine.gpus]


def gather(
    ray,
    parts: list[NodeRun],
    order: bytes,
    limit_s: float,
    *,
    show: Callable[[NodeRun, str | Doing], None],
    stopped: list[str],
) -> None:
    """Runs every node's suite at once and copies its folder as it grows, until all have ended, died, or said nothing for
    `limit_s`, or something is in `stopped`. `show` gets each line that a suite prints, and what it does."""
    running = {}
    for part in parts:
        running[_started(ray, part, order)] = part
        part.last_sign = time.monotonic()
    try:
        while running and not stopped:
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_S)
            for stream in ready:
                if not _take_next(ray, stream, running[stream], show):
                    del running[stream]
            for stream, part in list(running.items()):
                if time.monotonic() - part.last_sign > limit_s:
                    ray.cancel(stream, force=True)
                    silent = "said nothing for" if part.plan else _NOT_BEGUN
                    part.lose(f"{part.node.name} {silent} {limit_s:.3g} s")
                    del running[stream]
    finally:
        for stream in running:
            ray.cancel(stream, force=True)


def _started(ray, part: NodeRun, order: bytes):
    """The stream of a node's suite, which is one task that holds all its CPUs and GPUs."""
    cpus = int(part.node.cpus)
    task = ray.remote(cluster.measure_node).options(
        num_returns="streaming",
        max_retries=0,
        name=f"suite on {part.node.name}",
        num_cpus=cpus,
        num_gpus=int(part.node.gpus),
        scheduling_strategy=cluster.on(part.node),
    )
    return task.remote(order, part.earlier, cpus)


def _take_next(ray, stream, part: NodeRun, show: Callable[[NodeRun, str | Doing], None]) -> bool:
    """Takes what a node sent next; False where its suite has ended."""
    try:
        file, text = ray.get(next(stream))
        part.take(file, text)
        for line in _shown(part, file, text):
            show(part, line)
        return True
    except StopIteration:
        if part.failure:
            part.lose(_why_lost(ray, part, part.failure))
    except records.Refused as refused:
        show(part, str(refused))
        ray.cancel(stream, force=True)
    except ray.exceptions.RayError as error:
        part.lose(_why_gone(ray, part, error))
    return False


def _shown(part: NodeRun, file: str, text: bytes) -> Iterator[str | Doing]:
    """The new lines of a log or of messages that are shown; a failure is kept in its part."""
    if file == LOG:
        yield from text.decode(errors="replace").splitlines()
    if file != MESSAGES:
        return
    for line in text.splitlines():
        message = msgspec.json.decode(line, type=Doing | Done)
        if isinstance(message, Doing):
            if message.visit:
                yield message
            continue
        part.failure = message.error
        if message.reason:
            yield message.reason


def _why_gone(ray, part: NodeRun, error: Exception) -> str:
    """Why a node was lost whose task ended with one of Ray's errors."""
    if isinstance(error, ray.exceptions.NodeDiedError):
        return f"{part.node.name} died"
    return _why_lost(ray, part, ChildFailure(message=cluster.first_line(error), exit=_UNKNOWN_EXIT))


def _why_lost(ray, part: NodeRun, failure: ChildFailure) -> str:
    """Why a node was lost. A dying node takes its suite with it, and the suite's end may be reported before the node's."""
    until = time.monotonic() + (_DEATH_KNOWN_S if failure.exit < 0 else 0.0)
    while any(n["NodeID"] == part.node.id and n["Alive"] for n in ray.nodes()):
        if time.monotonic() >= until:
            return f"{part.node.name}: {failure.message}"
        time.sleep(0.2)
    return f"{part.node.name} died"


def place(output: str, resume: bool) -> Path:
    """The run's folder: `output`, else a new one under reports/local/fleet.

    Raises: Usage when there is something in it and it is not resumed.
    """
    from workloads.machine.facts import now

    if not output:
        digits_of_now = now().translate({ord(":"): None, ord("-"): None})
        return sweep.LOCAL / "fleet" / digits_of_now
    folder = Path(output)
    if any(folder.glob("**/*.jsonl")) and not resume:
        raise records.Refused(f"{folder} has results; add --resume to finish them, or choose another folder with -o")
    return folder


def newest_run(command: str, same_rows: Callable[[list[str]], bool]) -> Path:
    """The newest folder of a fleet's run whose command asked for the same rows as this one: `same_rows` tells by its words.

    Raises: Usage when there is none.
    """
    folders = sorted(p for p in (sweep.LOCAL / "fleet").glob("*") if any(p.glob("*/*.jsonl")))
    for folder in reversed(folders):
        for stored in resuming.commands(folder, "*/*.jsonl"):
            words = command_lines.arguments(stored, "workloads.suite")
            if words is None:
                continue
            with contextlib.suppress(options.Stop):  # another version's flags
                if same_rows(words):
                    return folder
    raise options.Usage(
        "nothing to resume: no fleet's run was asked for these rows; name its folder with -o, or start one",
        command_lines.without(command, {"--resume": 0}),
    )


def run(measuring: Measuring, where: str, limit_s: float) -> int:
    """The body of `suite --ray`: the suite of every node of the cluster there into one folder, then each device in a line; the
    exit code. limit_s: after so many seconds a node that says nothing is given up.

    Raises: Usage, Missing.
    """
    if measuring.format != "table":
        raise options.Usage(
            "--ray prints a table; its files are read by python -m analysis.fleet RUN --format json",
            f"python -m workloads.suite --ray {where}",
        )
    if measuring.against or measuring.fail_on is not None:
        against = f" --against {measuring.against}" if measuring.against else ""
        tip = f"python -m analysis.fleet RUN{against} --fail-on 'slower>3%'"
        raise options.Usage("a fleet is compared device by device, after it was measured", tip)
    if measuring.save:
        from workloads.records import baselines

        baselines.require_free(measuring.save)
    folder = place(measuring.output, measuring.resume)
    ray = cluster.connect(where, note)
    try:
        return _run(ray, measuring, folder, limit_s)
    finally:
        ray.shutdown()


def _run(ray, measuring: Measuring, folder: Path, limit_s: float) -> int:
    nodes = _measurable(ray, measuring, limit_s)
    if not nodes:
        raise options.Missing("no node of this cluster can run the suite", "ray status  # and each node's line above")
    parts = [NodeRun(node, folder, measuring.dry_run) for node in nodes]
    order = msgspec.json.encode(shlex.split(measuring.command)[3:]) + b"\n"
    last_progress = time.monotonic()

    def show(part: NodeRun, line: str | Doing) -> None:
        nonlocal last_progress
        if isinstance(line, Doing):
            if not measuring.verbose and time.monotonic() - last_progress < _PROGRESS_EVERY_S:
                return
            last_progress = time.monotonic()
            line = line.words
        note(terminal.Line(line, label=f"{part.node.name}: "))

    stopped: list[str] = []  # what is raised inside Ray's own calls gets lost there
    with sweep.signals(stopped.append):
        gather(ray, parts, order, limit_s, show=show, stopped=stopped)
    if measuring.dry_run:
        for part in parts:
            why = f"; {part.lost}" if part.lost else ""
            print(f"{part.node.name}: {len(part.planned)} rows{why}")
        return options.OK if any(part.planned for part in parts) else options.MISSING
    return _ended(measuring, folder, parts, stopped[0] if stopped else "")


def _measurable(ray, measuring: Measuring, limit_s: float) -> list[Node]:
    """The nodes that can run the suite, each with a name of its own. A line says why each other node is left out."""
    named = measuring.devices
    needs_gpu = measuring.require_gpu or (named and "all" not in named and "cpu" not in named)
    able = []
    for node in cluster.nodes(ray.nodes()):
        if needs_gpu and not node.gpus:
            note(f"{node.name} left out: Ray counts no GPU on it")
        elif not node.cpus:
            note(f"{node.name} left out: Ray counts no CPU on it to measure with")
        else:
            able.append(node)
    nodes = cluster.usable(ray, able, note, limit_s)
    if len({node.name for node in nodes}) < len(nodes):
        note(
            "some nodes share a name: they are told apart by their node ids, which change when the cluster is started anew"
        )
    return cluster.with_distinct_names(nodes)


def _ended(measuring: Measuring, folder: Path, parts: list[NodeRun], stopped: str) -> int:
    """Prints a line per node, the rows that were lost, and how to go on. Gives the exit code."""
    head = ("ok", "skipped", "failed", "lost", "to go", "GPUs")
    tallies = [part.tally() for part in parts]
    rows = []
    for part, tally in zip(parts, tallies, strict=True):
        rows.append((part.node.name, *(str(tally[word]) for word in head)))
    print(*table.Table(("node", *head), rows).text(), sep="\n")
    is_lost = any(part.lost for part in parts)
    for part in parts:
        if part.lost:
            note(terminal.Line(part.lost, label="lost: "))
    here = {part.node.name for part in parts}
    for path in sorted(folder.glob("*")):
        if path.is_dir() and path.name not in here:
            note(f"{path.name} was measured before and is not among the nodes now")
    has_rows_left = bool(measuring.stop_after_s) and any(tally["to go"] for tally in tallies)
    if stopped or has_rows_left or is_lost:
        again = options.typed(session.resume_command(measuring.command, folder))
        note(f"stopped by {stopped}; finish with:" if stopped else "finish with:")
        note(terminal.Line(label="  ", command=again))
    code = exit_code(tallies, is_lost, stopped)
    if code == options.MISSING:
        raise options.Missing("no node of this cluster measured anything; what each said is above", "ray status")
    if code in (options.OK, options.FAILED):
        _sum_up(measuring, folder)
    return code


def _sum_up(measuring: Measuring, folder: Path) -> None:
    """Prints each device in a line, keeps a baseline where one was named, and says where the results are."""
    from analysis.fleet import devices, judgment
    from analysis.text import machines

    for line in machines.lines(judgment.judge(devices.devices(folder), devices.saved())):
        print(line)
    session.save(measuring.save, records.files_of(folder), quiet=measuring.quiet, by_folder=True)
    next_command = options.typed(f"python -m analysis.fleet {options.near(folder)}")
    results_line = terminal.Line(options.near(folder), label="results: ")
    terminal.show([results_line, terminal.Line(label="next:    ", command=next_command)])


def exit_code(tallies: list[Counter[str]], lost: bool, stopped: str) -> int:
    """130 or 143 after a signal, 3 when no node measured anything, 1 when rows failed or were lost, else 0."""
    if stopped:
        return options.SIGNALED[stopped]
    if not any(tally["ok"] for tally in tallies):
        return options.MISSING
    return options.FAILED if lost or any(tally["failed"] for tally in tallies) else options.OK
