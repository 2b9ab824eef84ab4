"""Says whether this machine is ready to measure: its state, why a fault matters, what to type next."""

import contextlib
import dataclasses
import json
import platform
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import table, units
from workloads import REPORTS, options, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser
from workloads.machine import health, load
from workloads.machine.health import CheckResult, Fault

if TYPE_CHECKING:
    from analysis.noise import NoiseShare
    from workloads.records import Machine, Measurement, Measurements
    from workloads.records.reading import ResultFile

QUESTION = "Is this machine fit to be measured?"
EXAMPLES = "python -m workloads.doctor", "python -m workloads.doctor reports/nvidia-h200/suite"
LONG = """Checks what the measurements stand on: libraries and their threads, the GPU and why it is or is not used,
TensorFlow, memory, disk, what else keeps this machine busy, and whether a few timings are true. With RUN it asks that of stored
rows instead. --noise measures once what two runs of this machine differ by; comparisons of runs and crossovers of short sweeps
then count with it. Exit code 1 when something is broken; having no GPU is normal."""

EXAMPLE_SUITE = "python -m workloads.suite --quick"
_WATCH_S, _LOOKS = 0.6, 8
SWEEPS = 10
_USUAL_CACHE_BYTES = 4 << 20  # of a CPU that does not say how large its last cache is
_MOST_TRIAD_BYTES = 64 << 20
# A small crossover: both sides, calls of a microsecond to a tenth of a second.
NOISE_SWEEP = [
    *("workloads.matmul", "-q", "--sizes", "32:2048:x2", "--min-time", "0.03", "--max-noise", "1"),
    *("--modes", "resident", "roundtrip", "roundtrip-pinned", "--variants", "blas"),
]


def numba() -> Iterator[CheckResult]:
    """Checks Numba's threading layer, its number of threads, and whether compiled code can be kept between runs."""
    from workloads.harness import telemetry
    from workloads.machine import facts

    layer = facts.numba_layer()
    threads = facts.numba_threads()
    cores = facts.usable_cores()
    state = f"{facts.version('numba')}, layer {layer or 'none'}, {threads} threads"
    openmp = "brew install libomp" if platform.system() == "Darwin" else "sudo apt install libgomp1"
    yield health.diagnosis(
        "numba",
        state,
        [
            Fault(
                exists=layer not in ("omp", "tbb"),
                why="without OpenMP small parallel kernels lose half their speed",
                fix=openmp,
            ),
            Fault(exists=threads < cores, why=f"fewer threads than the {cores} cores", fix="unset NUMBA_NUM_THREADS"),
        ],
        level="warn" if layer else "problem",
    )
    # A function that Numba compiled and cannot keep has no cache path.
    cache_path = getattr(telemetry.compiled_chain().stats, "cache_path", None)
    state = "compiled code is kept between runs" if cache_path else "no folder to keep compiled code in"
    no_cache = Fault(
        exists=not cache_path,
        why="every run compiles for seconds",
        fix="export NUMBA_CACHE_DIR=$HOME/.cache/numba",
    )
    yield health.diagnosis("numba cache", state, [no_cache])


def quiet() -> Iterator[CheckResult]:
    """Checks for _WATCH_S seconds, in which nothing is measured, what disturbs the CPU: changes of the clock, time taken by the
    hypervisor or a quota, other processes."""
    from workloads.harness import telemetry

    watch = telemetry.watch("cpu")
    for _ in range(_LOOKS):
        time.sleep(_WATCH_S / _LOOKS)
        watch.before_block()
    values, flags = watch.readings()
    busy = load.look(_WATCH_S) if "other-load" in flags else None
    return cpu_results(values, flags, busy)


def cpu_results(
    values: dict[str, float], flags: tuple[str, ...], busy: load.Load | None = None
) -> Iterator[CheckResult]:
    """The results of the checks of the CPU: clock, load, steal, quota.

    values: what was read, such as cpu_clock_hz, throttled_s and steal_fraction. flags: the doubts that this raises, such as
    other-load. busy: the load a moment later, which names the busiest program; None where it was not looked for.
    """
    from analysis import checks

    clock = units.metric("cpu_clock_hz", values["cpu_clock_hz"])
    throttled = units.metric("throttled_s", values.get("throttled_s", 0))
    load_words = f"other processes use {values.get('other_load_fraction', 0):.0%} of the CPUs"
    steal_words = f"{values.get('steal_fraction', 0):.0%} of the CPU time is stolen by the hypervisor"
    # flag -> (the check's name, the state where the flag is raised, the state where it is not)
    words = {
        "cpu-clock": ("clock", f"{clock}, off by more than 3 % at times", f"{clock}, steady"),
        "other-load": ("load", busy.words if busy and not busy.quiet else load_words, load_words),
        "steal": ("steal", steal_words, steal_words),
        "quota": ("quota", f"held back for {throttled} by a cgroup's CPU quota", "no CPU quota held this process back"),
    }
    for check in checks.CHECKS:
        if check.flag not in words:
            continue
        name, raised_state, normal_state = iter(words[check.flag])
        is_raised = check.flag in flags
        fix = check.fix.format(command="python -m workloads.matmul")
        fault = Fault(exists=is_raised, why=check.why, fix=fix)
        yield health.diagnosis(name, raised_state if is_raised else normal_state, [fault])


def timings() -> Iterator[CheckResult]:
    """Times a few rows of every device in a worker, as a sweep does, and checks whether their times are true."""
    from analysis import checks
    from analysis.analysis import Analysis
    from workloads.machine import facts
    from workloads.records import row_flags

    machine = facts.describe()
    done = [row_flags.flagged(m) for m in trials(machine)]  # with the flags of what is doubtful of a single row
    doubts = Analysis.from_rows(done, machine).doubts
    count = sum(m.ok for m in done)
    state = f"{count} rows timed, their answers right; {len(checks.CHECKS)} things looked for, {len(doubts)} seen"
    yield CheckResult(check="timings", level="ok", state=state)
    yield from broken(done, why="what is measured with it would fail too", fix="make test")
    yield from doubts


def broken(rows: "Measurements", *, why: str, fix: str) -> Iterator[CheckResult]:
    """A problem for the rows that failed, and another for those whose results are wrong: how many, and the first of them.

    why: what such a row means. fix: the command to type.
    """
    from analysis import labels

    for status in ("failed", "wrong"):
        with_status = [m for m in rows if m.status == status]
        if with_status:
            first = with_status[0]
            count = f"{len(with_status)} of {len(rows)} rows, such as " if len(with_status) > 1 else ""
            state = f"{count}{labels.row(first)}: {first.reason}"
            yield CheckResult(check=status, level="problem", state=state, why=why, fix=fix)


def trials(here: "Machine") -> "list[Measurement]":
    """Times a matrix product and an operation on arrays in memory on the CPU and the first GPU, there with warm and cold caches.

    here: this machine.
    """
    from kernels.problems import Matmul, Stream
    from workloads.harness.timing import Limits
    from workloads.harness.worker import Order, Worker, environment
    from workloads.records import Row, Settings

    # Arrays of a quarter of the last cache stay in it.
    cache_bytes = max(here.caches_bytes.values(), default=_USUAL_CACHE_BYTES)
    cpu = Settings(threads=here.cores)
    cpu_product = Matmul(m=512, n=512, k=512)
    cpu_triad = Stream(operation="triad", nbytes=min(cache_bytes // 4, _MOST_TRIAD_BYTES))
    rows = [
        Row(kernel="matmul/numpy/blas", problem=cpu_product, settings=cpu),
        Row(kernel="stream/numba/loop", problem=cpu_triad, settings=cpu),
    ]
    if here.gpus:
        gpu = Settings(device="gpu:0")
        cold_gpu = Settings(device="gpu:0", cache="cold")
        gpu_product = Matmul(m=1024, n=1024, k=1024)
        gpu_triad = Stream(operation="triad", nbytes=here.gpus[0].l2_bytes // 4)
        rows += [
            Row(kernel="matmul/cupy/cublas", problem=gpu_product, settings=gpu),
            Row(kernel="stream/cupy/wide", problem=gpu_triad, settings=gpu),
            Row(kernel="stream/cupy/wide", problem=gpu_triad, settings=cold_gpu),
        ]
    limits = Limits(visit_s=0.02, rounds=10, max_noise=0.05, max_time=0.25)
    done = []
    for device in dict.fromkeys(row.device for row in rows):
        device_rows = [row for row in rows if row.device == device]
        with contextlib.closing(Worker(environment(device_rows[0], here.uuids))) as worker:
            for row in device_rows:
                order = Order(verb="measure", row=row, limits=limits)
                done.append(worker.ask(order, health.CHILD_LIMIT_S))
    return done


CHECKS: tuple[Callable[[], Iterator[CheckResult]], ...] = (
    health.python,
    health.packages,
    health.dependencies,
    health.blas,
    numba,
    health.gpu,
    health.cupy,
    health.tensorflow,
    health.disk,
    health.memory,
    health.governor,
    quiet,
    timings,
)


def run(checks: tuple[Callable[[], Iterator[CheckResult]], ...] | None = None) -> Iterator[CheckResult]:
    """The results of all checks, each as it comes. A check that raises is a problem, and the others go on. Takes 10 to 20 s.

    checks: in place of CHECKS.
    """
    for check in CHECKS if checks is None else checks:
        try:
            with terminal.doing(f"looking at {check.__name__}"):
                results = list(check())
        except Exception as error:
            state = f"the check itself failed: {type(error).__name__}: {error}"
            why = "what it looks at is broken or missing"
            name = check.__name__
            results = [CheckResult(check=name, level="problem", state=state, why=why, fix="make test")]
        yield from results


_STYLES = {"ok": "good", "warn": "warning", "problem": "bad"}


def line(result: CheckResult) -> str:
    """A line on the terminal for a result: its level (ok, warn, problem), the check's name and the state in words."""
    level = terminal.paint(f"{result.level:8}", _STYLES[result.level])
    return terminal.Line(terminal.on_one_line(result.state), label=f"{level} {result.check:13} ")


def verdict(results: list[CheckResult], subject: str, fit: str) -> list[str]:
    """The lines of the verdict: that all is well, or what is broken or disturbs measurements, each with the command that
    mends it.

    subject, fit: the parts of its first sentence, such as `This machine is` and `fit to be measured`.
    """
    by_fault = {(result.why, result.fix): result for result in results if result.level != "ok"}
    bad = by_fault.values()  # of results with the same fault the last one
    if not bad:
        return [terminal.paint(f"{subject} {fit}.", "good")]
    broken_count = sum(result.level == "problem" for result in bad)
    disturbing_count = len(bad) - broken_count
    counts = []
    if broken_count:
        counts.append(units.count(broken_count, "thing is", "things are") + " broken")
    if disturbing_count:
        counts.append(units.count(disturbing_count, "thing disturbs", "things disturb") + " measurements")
    other_programs = next((result for result in bad if result.check == "load"), None)
    if broken_count:
        head = f"{subject} not {fit}: {units.join(counts)}."
    elif other_programs:
        head = f"Not now: {other_programs.state}."
    else:
        head = f"{subject} {fit}, but: {units.join(counts)}."
    lines = [terminal.paint(head, "bad" if broken_count else "warning")]
    for result in bad:
        lines.append(terminal.Line(result.why, label=f"  {result.check:13}  "))
        lines.append(terminal.Line(label=f"  {'':13}  mend it: ", command=options.typed(result.fix)))
    return lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorPlan:
    """What to look at, and what is done with it."""

    #: Result files, run folders or saved names to look at instead of this machine.
    runs: tuple[str, ...]
    #: Whether to measure what two runs of this machine differ by.
    noise: bool
    #: Seconds from the first sweep of that to the last.
    over_s: float
    #: Seconds after which no sweep begins; None for no limit.
    stop_after_s: float | None
    #: Whether to go on with the newest sweeps that are fewer than ten.
    resume: bool
    #: What stdout gets: table or json.
    format: str

    @classmethod
    def from_flags(cls, flags: Namespace) -> "DoctorPlan":
        """The plan of the typed flags."""
        return cls(
            runs=tuple(flags.runs),
            noise=flags.noise,
            over_s=flags.over,
            stop_after_s=flags.stop_after,
            resume=flags.resume,
            format=flags.format,
        )


def parser() -> CommandParser:
    """The command line of python -m workloads.doctor."""
    command_parser = CommandParser(
        module="workloads.doctor",
        description=LONG,
        examples=EXAMPLES,
        question=QUESTION,
        brief_flags=("--noise",),
    )
    command_parser.add_argument("--format", choices=("table", "json"), default="table", help="what stdout gets (table)")
    command_parser.add_argument(
        "--noise", action="store_true", help="make ten short sweeps and store what they differ by"
    )
    command_parser.add_argument(
        "--over",
        metavar="S",
        type=options.positive,
        default="900",
        help="seconds from the first of them to the last (900)",
    )
    command_parser.add_argument(
        "--stop-after",
        metavar="S",
        type=options.positive,
        help="begin no sweep later than this, exit 0, print how to resume",
    )
    command_parser.add_argument(
        "--resume", action="store_true", help="go on with the newest sweeps that are fewer than ten"
    )
    runs_help = "result files, run folders or saved names to look at instead"
    command_parser.add_argument("runs", nargs="*", metavar="RUN", help=runs_help)
    return command_parser


def stored(runs: Iterable[str]) -> Iterator[CheckResult]:
    """The results of the checks of stored rows, machine by machine: how many there are, failed ones, doubtful ones, damaged
    files.

    runs: result files, run folders or saved names.

    Raises: Usage when there are no rows.
    """
    from analysis import checks
    from analysis.analysis import Analysis
    from workloads import records
    from workloads.records.run_files import EXAMPLE_COMMAND

    for loaded in records.by_machine(*runs).values():
        here = loaded.machine
        where = here.key if here else "a machine that no line names"
        state = f"{len(loaded.measurements)} rows of {where}, {len(checks.CHECKS)} things looked for in each"
        yield CheckResult(check="rows", level="ok", state=state)
        command = checks.command(loaded.measurements[0]) if loaded.measurements else EXAMPLE_COMMAND
        yield from broken(loaded.measurements, why="it has no time, or none that counts", fix=command)
        yield from Analysis.from_loaded(loaded).doubts
        for file in loaded.damaged:
            yield bad_lines(file)


def bad_lines(file: "ResultFile") -> CheckResult:
    """The result for a file with lines that cannot be read. Its fix is the command that wrote the file, with --resume: it
    measures the lost rows again."""
    from analysis import checks
    from workloads.records import command_lines
    from workloads.records.run_files import EXAMPLE_COMMAND

    state = f"{units.count(file.bad_lines, 'line')} of {options.near(file.path)} cannot be read"
    fix = command_lines.resumed(file.runs[-1].command, options.near(file.path.parent)) if file.runs else ""
    if not fix:
        command = checks.command(file.measurements[0]) if file.measurements else EXAMPLE_COMMAND
        fix = f"{command} -o DIR"
    return CheckResult(check="bad lines", level="warn", state=state, why="their rows are lost", fix=fix)


def noise(plan: DoctorPlan) -> int:
    """Measures what two runs of this machine differ by: makes SWEEPS sweeps, or those that are missing, evenly over `over_s`,
    each in new processes. Their differences are stored, also when it is interrupted. Returns the exit code."""
    from workloads.machine import facts

    here = facts.describe()
    folder = _noise_folder(here, resume=plan.resume)
    begin = time.monotonic()
    sweep_s = 0.0  # what the last sweep took
    gap_s = plan.over_s / (SWEEPS - 1)
    done = len(_complete_sweeps(folder))
    try:
        for i in range(done, SWEEPS):
            wait_s = max(0.0, begin + (i - done) * gap_s - time.monotonic())
            end_s = time.monotonic() + wait_s + sweep_s - begin
            if plan.stop_after_s and end_s > plan.stop_after_s:
                break
            left_s = wait_s + (SWEEPS - 1 - i) * max(gap_s, sweep_s) + sweep_s
            terminal.note(f"[{i + 1}/{SWEEPS}] begins in {wait_s:.0f} s; about {left_s / 60:.0f} min to go")
            time.sleep(wait_s)
            started = time.monotonic()
            _sweep(folder, i, here)
            sweep_s = time.monotonic() - started
    finally:
        _store_differences(folder, here, plan.format)
    return options.OK


def _noise_folder(here: "Machine", *, resume: bool) -> Path:
    """The folder of the sweeps: a new one, or with `resume` this machine's newest one that lacks sweeps."""
    from workloads.harness import sweep
    from workloads.machine import facts

    folders = sorted((sweep.LOCAL / here.key).glob("noise-*"))
    incomplete = [folder for folder in folders if len(_complete_sweeps(folder)) < SWEEPS]
    if resume and incomplete:
        return incomplete[-1]
    stamp = "".join(character for character in facts.now() if character != ":")
    return sweep.LOCAL / here.key / f"noise-{stamp}"


def _complete_sweeps(folder: Path) -> list[Path]:
    """The folders of the complete sweeps, the earliest first."""
    return sorted(path for path in folder.glob("[0-9]*") if path.suffix != ".part")


def _sweep(folder: Path, i: int, here: "Machine") -> None:
    """Makes the sweep number i, counted from 0, into a folder of its own inside this one.

    Raises: Stop when it fails.
    """
    part = folder / f"{i + 1:02}.part"  # renamed once it is complete
    shutil.rmtree(part, ignore_errors=True)
    threads = [str(count) for count in sorted({1, here.cores})]
    # The command is stored with the rows, which do not say where the project lies.
    place = str(part.relative_to(REPORTS.parent))
    command = [*NOISE_SWEEP, "cublas" if here.gpus else "operator", "--threads", *threads, "-o", place]
    REPORTS.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, cwd=REPORTS.parent)
    if ended.returncode != options.OK:
        raise options.Stop(f"a sweep ended with exit code {ended.returncode}", tip=f"python -m {' '.join(command)}")
    part.rename(part.with_suffix(""))


def _store_differences(folder: Path, here: "Machine", format_: str) -> None:
    """Stores and prints what the complete sweeps in a folder differ by, and how to go on if some are missing.

    format_: what stdout gets, table or json.
    """
    import msgspec

    from analysis import noise
    from workloads import records

    sweeps = _complete_sweeps(folder)
    loaded = [records.read(sweep) for sweep in sweeps]
    begun = [datetime.fromisoformat(one.runs[0].started_at).timestamp() for one in loaded]
    shares = noise.shares(list(zip(begun, loaded, strict=True))) if len(sweeps) > 1 else ()
    if shares:
        machine_noise = noise.Noise(
            machine=here,
            taken_at=loaded[-1].runs[0].started_at,
            span_s=max(begun) - min(begun),
            sweeps=tuple(one.runs[0].started_at for one in loaded),
            shares=shares,
        )
        place = noise.REPORTS / "local" / here.key / noise.FILE
        place.write_bytes(msgspec.json.format(msgspec.json.encode(machine_noise), indent=1))
        if format_ == "json":
            print(msgspec.json.encode(shares).decode())
        else:
            _print_shares(shares)
        rows: list[Measurement] = []
        for one in loaded:
            rows += one.measurements
        disturbed = [m for m in rows if noise.DISTURBED & {*m.flags}]
        if disturbed:
            terminal.note(
                f"other load disturbed {len(disturbed)} of {len(rows)} rows: measure again on a quiet machine"
            )
        terminal.note(terminal.Line(options.near(place), label="stored: "))
    if len(sweeps) < SWEEPS:
        command = options.typed("python -m workloads.doctor --noise --resume")
        terminal.note(f"{len(sweeps)} of {SWEEPS} sweeps are made; go on with:")
        terminal.note(terminal.Line(label="  ", command=command))


def _print_shares(shares: "Sequence[NoiseShare]") -> None:
    """Prints the table of the largest differences between two runs, by clock and by how long a call takes."""
    cells = []
    for share in shares:
        shortest_call = units.seconds(10.0**share.decade)  # of the calls between two powers of ten
        cells.append((share.side, f"from {shortest_call}", units.percent(share.share), str(share.pairs)))
    for text in table.Table("clock | calls | two runs differ by at most | pairs", cells, 2).text():
        print(text)


def carry_out(plan: DoctorPlan) -> int:
    """Prints the result of each check as it comes, then the verdict. Returns the exit code: FAILED where something is broken."""
    if plan.noise:
        return noise(plan)
    findings = []
    for finding in stored(plan.runs) if plan.runs else run():
        findings.append(finding)
        if plan.format == "table":
            terminal.show([line(finding)])
    if plan.format == "json":
        print(json.dumps([finding.as_json() for finding in findings], indent=1))
    elif plan.runs:
        terminal.show(["", *verdict(findings, "These rows are", "sound")])
    else:
        terminal.show(["", *verdict(findings, "This machine is", "fit to be measured")])
    return options.FAILED if any(finding.level == "problem" for finding in findings) else options.OK


main = running.main_function(parser, make_plan=DoctorPlan.from_flags, carry_out=carry_out)


if __name__ == "__main__":
    sys.exit(main())
