"""Runs the suite on every node of a Ray cluster, into one run folder with a folder a node.

Ray places the tasks, carries the lines added to their folders, and notices which tasks died.
"""

# Each node is one task that holds all its CPUs and GPUs while it measures. Nodes are known by Ray's node id, GPUs by their UUID.

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from analysis import table
from workloads import options, records, session, terminal
from workloads.fleet import cluster
from workloads.fleet.cluster import LOG, MESSAGES, PLAN, Node
from workloads.harness import resuming, sweep
from workloads.hints import split_command
from workloads.records import Measurement, Row, Run, command_lines, regular_files
from workloads.records.damaged_lines import end_last_line
from workloads.records.messages import ChildFailure, Doing, Done
from workloads.records.writer import require_result_file
from workloads.shared_flags import Measuring
from workloads.terminal import note

if TYPE_CHECKING:
    from ray import ObjectRefGenerator

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
    """The suite's run on one node: its rows, copied into a folder of this machine as they are measured, and how it failed."""

    def __init__(self, node: Node, folder: Path, dry_run: bool = False):
        """folder: of the whole run; the node gets a folder in it. Files that it has from an earlier run are resumed.

        Raises: Refused for a file of another kind or version.
        """
        self.node = node
        self.folder = folder / node.name
        self.dry_run = dry_run
        #: The rows that it will measure; None before it has sent them.
        self.plan: NodePlan | None = None
        #: Why the node was lost; "" where it was not.
        self.lost = ""
        #: When it last sent anything, by time.monotonic.
        self.last_sign = time.monotonic()
        #: How its suite ended, if with an error.
        self.failure: ChildFailure | None = None
        #: Name -> content of its result files of an earlier run, whole lines.
        self.earlier: dict[str, bytes] = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            lines = regular_files.lines(file)
            require_result_file(file, lines, records.decode(lines))
            if not dry_run:
                end_last_line(file, lines)
            self.earlier[file.name] = file.read_bytes()

    def receive(self, name: str, text: bytes) -> None:
        """Takes in what a file on the node grew by: its plan, or lines that are added to the copy of a result file.

        name: of the file. text: whole lines.

        Raises: Refused when the copy cannot be written, or the files of the earlier run are of other GPUs.
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

    def mark_lost(self, why: str) -> None:
        """Writes the rows that the node planned and did not measure as failed, so that --resume measures them. why: what
        happened to the node."""
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
        """The rows in the copies of its result files, by key."""
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

    def counts(self) -> Counter[str]:
        """Numbers of its rows that are "ok", "skipped", "failed", "lost" and "to go", and of its "GPUs"."""
        done = self.done()
        counts = Counter("lost" if LOST in m.flags else m.status for m in done.values())
        counts["failed"] += counts.pop("wrong", 0)  # rows with a wrong result
        counts["to go"] = len(self.planned - set(done))
        counts["GPUs"] = len(_uuids(self.plan.run)) if self.plan else 0
        return +counts  # without zeros


#: Prints a line for the user: of a node, what its suite printed, or what it is measuring.
ShowLine = Callable[[NodeRun, str | Doing], None]


def _uuids(run: Run) -> list[str]:
    """The identifiers of the GPUs of a run's machine."""
    return [gpu.uuid for gpu in run.machine.gpus]


def measure_all(
    ray: ModuleType,
    node_runs: list[NodeRun],
    order: bytes,
    limit_s: float,
    *,
    show: ShowLine,
    stopped: list[str],
) -> None:
    """Runs the suite on all nodes at once and copies its rows as they are measured. It ends when each suite has ended, died, or
    sent nothing for `limit_s` seconds, or once `stopped` has the name of a signal.

    ray: the module, connected to the cluster. order: the words of the suite's command, a line of JSON. show: prints a line
    for the user.
    """
    running = {}  # the stream of a node's files -> its run
    for node_run in node_runs:
        running[_start(ray, node_run, order)] = node_run
        node_run.last_sign = time.monotonic()
    try:
        while running and not stopped:
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_S)
            for stream in ready:
                if not _receive_next(ray, stream, running[stream], show):
                    del running[stream]
            for stream, node_run in list(running.items()):
                if time.monotonic() - node_run.last_sign > limit_s:
                    ray.cancel(stream, force=True)
                    silent = "said nothing for" if node_run.plan else _NOT_BEGUN
                    node_run.mark_lost(f"{node_run.node.name} {silent} {limit_s:.3g} s")
                    del running[stream]
    finally:
        for stream in running:
            ray.cancel(stream, force=True)


def _start(ray: ModuleType, node_run: NodeRun, order: bytes) -> "ObjectRefGenerator":
    """Starts the suite on a node, as a task that has all its CPUs and GPUs. Returns Ray's stream of what cluster.measure_node
    yields there."""
    cpus = int(node_run.node.cpus)
    task = ray.remote(cluster.measure_node).options(
        num_returns="streaming",
        max_retries=0,
        name=f"suite on {node_run.node.name}",
        num_cpus=cpus,
        num_gpus=int(node_run.node.gpus),
        scheduling_strategy=cluster.on(node_run.node),
    )
    return task.remote(order, node_run.earlier, cpus)


def _receive_next(ray: ModuleType, stream: "ObjectRefGenerator", node_run: NodeRun, show: ShowLine) -> bool:
    """Takes in what a node sent next, and shows the lines in it that are for people. Returns False where its suite has ended
    or its node was lost."""
    try:
        file, text = ray.get(next(stream))
        node_run.receive(file, text)
        for line in _lines_to_show(node_run, file, text):
            show(node_run, line)
        return True
    except StopIteration:
        if node_run.failure:
            node_run.mark_lost(_why_lost(ray, node_run.node, node_run.failure))
    except records.Refused as refused:
        show(node_run, str(refused))
        ray.cancel(stream, force=True)
    except ray.exceptions.NodeDiedError:
        node_run.mark_lost(f"{node_run.node.name} died")
    except ray.exceptions.RayError as error:
        failure = ChildFailure(message=cluster.first_line(error), exit=_UNKNOWN_EXIT)
        node_run.mark_lost(_why_lost(ray, node_run.node, failure))
    return False


def _lines_to_show(node_run: NodeRun, file: str, text: bytes) -> Iterator[str | Doing]:
    """What is shown of the lines that a file on a node grew by: those of its log, what it is measuring, and why it measured
    nothing. An error in its last message is stored in `node_run.failure`."""
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
        node_run.failure = message.error
        if message.reason:
            yield message.reason


def _why_lost(ray: ModuleType, node: Node, failure: ChildFailure) -> str:
    """Why a node's suite was lost: the node died, or the suite alone failed. As a dying node takes its suite with it, and the
    end of the suite may be reported first, a suite that a signal ended is waited for: the node may be reported dead within
    seconds."""
    until = time.monotonic() + (_DEATH_KNOWN_S if failure.exit < 0 else 0.0)
    while any(entry["NodeID"] == node.id and entry["Alive"] for entry in ray.nodes()):
        if time.monotonic() >= until:
            return f"{node.name}: {failure.message}"
        time.sleep(0.2)
    return f"{node.name} died"


def run_folder(output: str, resume: bool) -> Path:
    """The folder of the run: `output`, or a new one under reports/local/fleet where that is "".

    Raises: Refused when it has results and `resume` is not set.
    """
    from workloads.machine.facts import now

    if not output:
        stamp = now().translate({ord(":"): None, ord("-"): None})
        return sweep.LOCAL / "fleet" / stamp
    folder = Path(output)
    if any(folder.glob("**/*.jsonl")) and not resume:
        raise records.Refused(f"{folder} has results; add --resume to finish them, or choose another folder with -o")
    return folder


def newest_run(command: str, same_rows: Callable[[list[str]], bool]) -> Path:
    """The newest folder of a cluster's run that measured the same rows as a command.

    command: as it was typed. same_rows: whether the suite's command with other words measures the same rows; it is called
    with the words of each stored run.

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
        tip=command_lines.without(command, {"--resume": 0}),
    )


def run(measuring: Measuring, where: str, limit_s: float) -> int:
    """Carries out `suite --ray`: measures the suite on every node of a cluster into one folder and prints a line for each device.
    Returns the exit code.

    where: the cluster, HOST:PORT or auto. limit_s: seconds after which a node that sends nothing is given up.

    Raises: Usage for flags that do not go with --ray; Missing where there is no cluster, or no node that can run the suite.
    """
    if measuring.format != "table":
        raise options.Usage(
            "--ray prints a table; its files are read by python -m analysis.fleet RUN --format json",
            tip=f"python -m workloads.suite --ray {where}",
        )
    if measuring.against or measuring.fail_on is not None:
        against = f" --against {measuring.against}" if measuring.against else ""
        tip = f"python -m analysis.fleet RUN{against} --fail-on 'slower>3%'"
        raise options.Usage("a fleet is compared device by device, after it was measured", tip=tip)
    if measuring.save:
        from workloads.records import baselines

        baselines.require_free(measuring.save)
    folder = run_folder(measuring.output, measuring.resume)
    ray = cluster.connect(where, note)
    try:
        return _run_on(ray, measuring, folder, limit_s)
    finally:
        ray.shutdown()


def _run_on(ray: ModuleType, measuring: Measuring, folder: Path, limit_s: float) -> int:
    """As `run`, on the cluster that the module `ray` is connected to, into this folder."""
    nodes = _usable_nodes(ray, measuring, limit_s)
    if not nodes:
        raise options.Missing(
            "no node of this cluster can run the suite", tip="ray status  # and each node's line above"
        )
    node_runs = [NodeRun(node, folder, measuring.dry_run) for node in nodes]
    order = msgspec.json.encode(split_command(measuring.command).words) + b"\n"
    last_progress = time.monotonic()

    def show(node_run: NodeRun, line: str | Doing) -> None:
        """Prints a line of a node; of what it is measuring one every _PROGRESS_EVERY_S seconds, or with --verbose all."""
        nonlocal last_progress
        if isinstance(line, Doing):
            if not measuring.verbose and time.monotonic() - last_progress < _PROGRESS_EVERY_S:
                return
            last_progress = time.monotonic()
            line = line.words
        note(terminal.Line(line, label=f"{node_run.node.name}: "))

    # The names of signals, which are looked at between Ray's calls: an exception that a handler raised inside one would be lost.
    stopped: list[str] = []
    with sweep.signals(stopped.append):
        measure_all(ray, node_runs, order, limit_s, show=show, stopped=stopped)
    if measuring.dry_run:
        for node_run in node_runs:
            why = f"; {node_run.lost}" if node_run.lost else ""
            print(f"{node_run.node.name}: {len(node_run.planned)} rows{why}")
        return options.OK if any(node_run.planned for node_run in node_runs) else options.MISSING
    return _sum_up(measuring, folder, node_runs, stopped_by=stopped[0] if stopped else "")


def _usable_nodes(ray: ModuleType, measuring: Measuring, limit_s: float) -> list[Node]:
    """The nodes that can run the suite, with distinct names. A line says why another node is left out."""
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


def _sum_up(measuring: Measuring, folder: Path, node_runs: list[NodeRun], *, stopped_by: str) -> int:
    """Prints how many rows each node measured, lost and has to go, and how to finish; then a line for each device. Returns
    the exit code.

    stopped_by: the signal that ended the run, such as SIGINT; "" for none.

    Raises: Missing where no node measured anything.
    """
    head = ("ok", "skipped", "failed", "lost", "to go", "GPUs")
    counts_by_node = [node_run.counts() for node_run in node_runs]
    rows = []
    for node_run, counts in zip(node_runs, counts_by_node, strict=True):
        rows.append((node_run.node.name, *(str(counts[column]) for column in head)))
    print(*table.Table(("node", *head), rows).text(), sep="\n")
    is_lost = any(node_run.lost for node_run in node_runs)
    for node_run in node_runs:
        if node_run.lost:
            note(terminal.Line(node_run.lost, label="lost: "))
    names = {node_run.node.name for node_run in node_runs}
    for path in sorted(folder.glob("*")):
        if path.is_dir() and path.name not in names:
            note(f"{path.name} was measured before and is not among the nodes now")
    has_rows_left = bool(measuring.stop_after_s) and any(counts["to go"] for counts in counts_by_node)
    if stopped_by or has_rows_left or is_lost:
        command = options.typed(session.resume_command(measuring.command, folder))
        note(f"stopped by {stopped_by}; finish with:" if stopped_by else "finish with:")
        note(terminal.Line(label="  ", command=command))
    code = exit_code(counts_by_node, is_lost=is_lost, stopped_by=stopped_by)
    if code == options.MISSING:
        raise options.Missing("no node of this cluster measured anything; what each said is above", tip="ray status")
    if code in (options.OK, options.FAILED):
        _print_devices(measuring, folder)
    return code


def _print_devices(measuring: Measuring, folder: Path) -> None:
    """Prints a line for each device of the run in a folder, saves the run as a baseline if --save was typed, and prints where the
    results are."""
    from analysis.fleet import devices, judgment
    from analysis.text import machines

    for line in machines.lines(judgment.judge(devices.devices(folder), devices.saved())):
        print(line)
    session.save(measuring.save, records.files_of(folder), quiet=measuring.quiet, by_folder=True)
    next_command = options.typed(f"python -m analysis.fleet {options.near(folder)}")
    results_line = terminal.Line(options.near(folder), label="results: ")
    terminal.show([results_line, terminal.Line(label="next:    ", command=next_command)])


def exit_code(counts_by_node: list[Counter[str]], *, is_lost: bool, stopped_by: str) -> int:
    """The exit code: 130 or 143 after a signal, 3 when no node measured anything, 1 when rows failed or were lost, else 0.

    counts_by_node: of each node what NodeRun.counts returns. is_lost: whether a node was lost. stopped_by: the signal or "".
    """
    if stopped_by:
        return options.SIGNALED[stopped_by]
    if not any(counts["ok"] for counts in counts_by_node):
        return options.MISSING
    has_failed = is_lost or any(counts["failed"] for counts in counts_by_node)
    return options.FAILED if has_failed else options.OK
