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
from workloads.records.files import by_row, end_last_line, require_ours
from workloads.records.messages import ChildFailure, Doing, Done
from workloads.shared_flags import Measuring
from workloads.terminal import note

LOST = "lost"  # the flag of a row that its node did not live to measure
_POLL_S = 1.0
_DEATH_KNOWN_S = 5.0
_SAID_EVERY_S = 10.0
_UNKNOWN_EXIT = -1  # of a task that Ray lost: its node may be dying
_NOT_BEGUN = "did not begin (others hold its CPUs and GPUs, or it hangs) within"


class NodePlan(msgspec.Struct, frozen=True):
    """The rows that a node will measure, by result file. Rows that depend on measured results are not known yet."""

    run: Run
    rows: dict[str, list[Row]]


class Part:
    """One node's side of the run: the copy of its folder, its plan, and why its suite failed. `kept`: the files of an earlier
    run, whole lines."""

    def __init__(self, node: Node, folder: Path, dry_run: bool = False):
        self.node, self.folder, self.dry_run = node, folder / node.name, dry_run
        self.plan: NodePlan | None = None
        self.lost, self.heard = "", time.monotonic()
        self.failure: ChildFailure | None = None
        self.kept: dict[str, bytes] = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            lines = regular_files.lines(file)
            runs, rows, _ = by_row(lines)
            require_ours(file, lines, runs, rows)
            if not dry_run:
                end_last_line(file, lines)
            self.kept[file.name] = file.read_bytes()

    def take(self, name: str, text: bytes) -> None:
        """Appends the new text of a file of the node's folder to its copy.

        Raises: Refused when it cannot be written, or the earlier files are of other GPUs.
        """
        self.heard, path = time.monotonic(), self.folder / name
        if name == PLAN:
            self.plan = msgspec.json.decode(text, type=NodePlan)
            before = [run for old in self.kept.values() for run in records.decode(old.splitlines())[0]]
            if before and _uuids(before[-1]) != _uuids(self.plan.run):
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
        if self.plan and not self.dry_run:
            done = self.done()
            for name, rows in self.plan.rows.items():
                if gone := [row.result("failed", f"lost: {why}", flags=(LOST,)) for row in rows if row.key not in done]:
                    with records.Writer(self.folder / f"{name}.jsonl", self.plan.run, resume=True) as writer:
                        for m in gone:
                            writer.append(m)

    def done(self) -> dict[str, Measurement]:
        """The rows in its files, by key."""
        loaded = records.read_files(sorted(self.folder.glob("*.jsonl")))
        return {m.key: m for m in loaded.measurements}

    @property
    def planned(self) -> set[str]:
        return {row.key for rows in self.plan.rows.values() for row in rows} if self.plan else set()

    def tally(self) -> Counter[str]:
        """How many rows are ok, skipped, failed, lost and to go; how many GPUs there are."""
        done = self.done()
        counts = Counter("lost" if LOST in m.flags else m.status for m in done.values())
        counts["failed"] += counts.pop("wrong", 0)
        counts["to go"], counts["GPUs"] = len(self.planned - set(done)), len(_uuids(self.plan.run)) if self.plan else 0
        return +counts


def _uuids(run: Run) -> list[str]:
    return [gpu.uuid for gpu in run.machine.gpus]


def gather(
    ray, parts: list[Part], order: bytes, limit_s: float, seen: Callable[[Part, str | Doing], None], stopped: list[str]
) -> None:
    """Runs every node's suite at once and copies its folder as it grows, until all have ended, died, or said nothing for
    `limit_s`, or something is in `stopped`. `seen` gets each line that a suite prints, and what it does."""
    task, running = ray.remote(cluster.measure_node), {}
    for part in parts:
        node, cpus = part.node, int(part.node.cpus)
        held = {"num_cpus": cpus, "num_gpus": int(node.gpus), "scheduling_strategy": cluster.on(node)}
        placed = task.options(num_returns="streaming", max_retries=0, name=f"suite on {node.name}", **held)
        running[placed.remote(order, part.kept, cpus)] = part
        part.heard = time.monotonic()
    try:
        while running and not stopped:
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_S)
            for stream in ready:
                part = running[stream]
                try:
                    file, text = ray.get(next(stream))
                    part.take(file, text)
                    for line in _shown(part, file, text):
                        seen(part, line)
                    continue
                except StopIteration:
                    if part.failure:
                        part.lose(_why_lost(ray, part, part.failure))
                except records.Refused as refused:
                    seen(part, str(refused))
                    ray.cancel(stream, force=True)
                except ray.exceptions.RayError as error:
                    part.lose(_why_gone(ray, part, error))
                del running[stream]
            for stream, part in [*running.items()]:
                if time.monotonic() - part.heard > limit_s:
                    ray.cancel(stream, force=True)
                    silent = "said nothing for" if part.plan else _NOT_BEGUN
                    part.lose(f"{part.node.name} {silent} {limit_s:.3g} s")
                    del running[stream]
    finally:
        for stream in running:
            ray.cancel(stream, force=True)


def _shown(part: Part, file: str, text: bytes) -> Iterator[str | Doing]:
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


def _why_gone(ray, part: Part, error: Exception) -> str:
    """Why a node was lost whose task ended with one of Ray's errors."""
    if isinstance(error, ray.exceptions.NodeDiedError):
        return f"{part.node.name} died"
    return _why_lost(ray, part, ChildFailure(message=cluster.first_line(error), exit=_UNKNOWN_EXIT))


def _why_lost(ray, part: Part, failure: ChildFailure) -> str:
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
        return sweep.LOCAL / "fleet" / now().replace(":", "").replace("-", "")
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
    found = cluster.nodes(ray.nodes())
    named = measuring.devices
    if measuring.require_gpu or (named and "all" not in named and "cpu" not in named):
        for node in (n for n in found if not n.gpus):
            note(f"{node.name} left out: Ray counts no GPU on it")
        found = [n for n in found if n.gpus]
    for node in (n for n in found if not n.cpus):
        note(f"{node.name} left out: Ray counts no CPU on it to measure with")
    found = cluster.usable(ray, [n for n in found if n.cpus], note, limit_s)
    if len({node.name for node in found}) < len(found):
        note(
            "some nodes share a name: they are told apart by their node ids, which change when the cluster is started anew"
        )
    found = cluster.with_distinct_names(found)
    if not found:
        raise options.Missing("no node of this cluster can run the suite", "ray status  # and each node's line above")
    parts = [Part(node, folder, measuring.dry_run) for node in found]
    order = msgspec.json.encode(shlex.split(measuring.command)[3:]) + b"\n"
    said = time.monotonic()

    def seen(part: Part, line: str | Doing) -> None:
        nonlocal said
        if isinstance(line, Doing):
            if not measuring.verbose and time.monotonic() - said < _SAID_EVERY_S:
                return
            said = time.monotonic()
        words = line.words if isinstance(line, Doing) else line
        note(terminal.Line(words, label=f"{part.node.name}: "))

    stopped: list[str] = []  # what is raised inside Ray's own calls gets lost there
    with sweep.signals(stopped.append):
        gather(ray, parts, order, limit_s, seen, stopped)
    if measuring.dry_run:
        for part in parts:
            print(f"{part.node.name}: {len(part.planned)} rows" + (f"; {part.lost}" if part.lost else ""))
        return options.OK if any(part.planned for part in parts) else options.MISSING
    return _ended(measuring, folder, parts, stopped[0] if stopped else "")


def _ended(measuring: Measuring, folder: Path, parts: list[Part], stopped: str) -> int:
    """Prints a line per node, the rows that were lost, and how to go on. Gives the exit code."""
    head, tallies = ("ok", "skipped", "failed", "lost", "to go", "GPUs"), [p.tally() for p in parts]
    rows = [(p.node.name, *(str(t[word]) for word in head)) for p, t in zip(parts, tallies, strict=True)]
    print(*table.Table(("node", *head), rows).text(), sep="\n")
    for p in (p for p in parts if p.lost):
        note(terminal.Line(p.lost, label="lost: "))
    here = {p.node.name for p in parts}
    for name in sorted(p.name for p in folder.glob("*") if p.is_dir() and p.name not in here):
        note(f"{name} was measured before and is not among the nodes now")
    if stopped or (measuring.stop_after_s and any(tally["to go"] for tally in tallies)) or any(p.lost for p in parts):
        again = options.typed(session.resume_command(measuring.command, folder))
        note(f"{'stopped by ' + stopped + '; ' if stopped else ''}finish with:")
        note(terminal.Line(label="  ", command=again))
    code = exit_code(tallies, any(p.lost for p in parts), stopped)
    if code == options.MISSING:
        raise options.Missing("no node of this cluster measured anything; what each said is above", "ray status")
    if code in (options.OK, options.FAILED):
        from analysis.fleet import devices, judgment
        from analysis.text import machines as fleet

        for said in fleet.lines(judgment.judge(devices.devices(folder), devices.saved())):
            print(said)
        session.save(measuring.save, records.files_of(folder), quiet=measuring.quiet, by_folder=True)
        next_command = options.typed(f"python -m analysis.fleet {options.near(folder)}")
        results_line = terminal.Line(options.near(folder), label="results: ")
        terminal.show([results_line, terminal.Line(label="next:    ", command=next_command)])
    return code


def exit_code(tallies: list[Counter[str]], lost: bool, stopped: str) -> int:
    """130 or 143 after a signal, 3 when no node measured anything, 1 when rows failed or were lost, else 0."""
    if stopped:
        return options.SIGNALED[stopped]
    if not any(tally["ok"] for tally in tallies):
        return options.MISSING
    return options.FAILED if lost or any(tally["failed"] for tally in tallies) else options.OK
