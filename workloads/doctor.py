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
    from workloads.records import Measurement, Measurements
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
# A small crossover: both sides, calls of a microsecond to a tenth of a second.
NOISE_SWEEP = [
    *("workloads.matmul", "-q", "--sizes", "32:2048:x2", "--min-time", "0.03", "--max-noise", "1"),
    *("--modes", "resident", "roundtrip", "roundtrip-pinned", "--variants", "blas"),
]


def numba() -> Iterator[CheckResult]:
    """Its threading layer, its threads, and whether compiled code can be kept."""
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
            Fault(layer not in ("omp", "tbb"), "without OpenMP small parallel kernels lose half their speed", openmp),
            Fault(threads < cores, f"fewer threads than the {cores} cores", "unset NUMBA_NUM_THREADS"),
        ],
        level="warn" if layer else "problem",
    )
    # A dispatcher that cannot keep its code has no cache path.
    cache_path = getattr(telemetry.compiled_chain().stats, "cache_path", None)
    state = "compiled code is kept between runs" if cache_path else "no folder to keep compiled code in"
    anew = Fault(not cache_path, "every run compiles for seconds", "export NUMBA_CACHE_DIR=$HOME/.cache/numba")
    yield health.diagnosis("numba cache", state, [anew])


def quiet() -> Iterator[CheckResult]:
    """Findings of a CPU watch over _WATCH_S seconds of idling: clock, steal, quota, other processes."""
    from workloads.harness import telemetry

    watch = telemetry.watch("cpu")
    for _ in range(_LOOKS):
        time.sleep(_WATCH_S / _LOOKS)
        watch.before_block()
    values, flags = watch.readings()
    return judged(values, flags, load.look(_WATCH_S) if "other-load" in flags else None)


def judged(values: dict[str, float], flags: tuple[str, ...], busy: load.Load | None = None) -> Iterator[CheckResult]:
    """The findings of a CPU watch's values and flags; `busy`: the load a moment later, with the busiest program's name."""
    from analysis import checks

    clock = units.metric("cpu_clock_hz", values["cpu_clock_hz"])
    throttled = units.metric("throttled_s", values.get("throttled_s", 0))
    load_words = f"other processes use {values.get('other_load_fraction', 0):.0%} of the CPUs"
    steal_words = f"{values.get('steal_fraction', 0):.0%} of the CPU time is stolen by the hypervisor"
    # flag -> the check's name, its words where the flag is up, and where it is not
    words = {
        "cpu-clock": ("clock", f"{clock}, off by more than 3 % at times", f"{clock}, steady"),
        "other-load": ("load", busy.words if busy and not busy.quiet else load_words, load_words),
        "steal": ("steal", steal_words, steal_words),
        "quota": ("quota", f"held back for {throttled} by a cgroup's CPU quota", "no CPU quota held this process back"),
    }
    for check in checks.CHECKS:
        if check.flag not in words:
            continue
        name, symptom, normal = iter(words[check.flag])
        is_up = check.flag in flags
        fix = check.fix.format(command="python -m workloads.matmul")
        yield health.diagnosis(name, symptom if is_up else normal, [Fault(is_up, check.why, fix)])


def timings() -> Iterator[CheckResult]:
    """Times a few rows of every device in a worker, as a sweep does, and checks whether their times are true."""
    from analysis import checks
    from analysis.analysis import Analysis
    from workloads.machine import facts
    from workloads.records import row_flags

    here = facts.describe()
    done = [row_flags.flagged(m) for m in trials(here)]
    doubts = Analysis.from_rows(done, here).doubts
    looked = f"{len(checks.CHECKS)} things looked for, {len(doubts)} seen"
    yield CheckResult("timings", "ok", f"{sum(m.ok for m in done)} rows timed, their answers right; {looked}")
    yield from broken(done, "what is measured with it would fail too", "make test")
    yield from doubts


def broken(rows: "Measurements", why: str, fix: str) -> Iterator[CheckResult]:
    """A problem for the rows that failed and one for those whose answer is wrong: their number, and the first of them."""
    from analysis import labels

    for status in ("failed", "wrong"):
        with_status = [m for m in rows if m.status == status]
        if with_status:
            first = with_status[0]
            some = f"{len(with_status)} of {len(rows)} rows, such as " if len(with_status) > 1 else ""
            state = f"{some}{labels.row(first)}: {first.reason}"
            yield CheckResult(check=status, level="problem", state=state, why=why, fix=fix)


def trials(here) -> list:
    """Measurements of a product and a pass over memory on each device, the pass warm and cold."""
    from kernels.problems import Matmul, Stream
    from workloads.harness.timing import Limits
    from workloads.harness.worker import Order, Worker, environment
    from workloads.records import Row, Settings

    cpu = Settings(threads=here.cores)
    quarter_of_cache = max(here.caches_bytes.values(), default=1 << 22) // 4
    rows = [
        Row("matmul/numpy/blas", Matmul(512, 512, 512), cpu),
        Row("stream/numba/loop", Stream("triad", min(quarter_of_cache, 1 << 26)), cpu),
    ]
    if here.gpus:
        gpu = Settings("gpu:0")
        triad = Stream("triad", here.gpus[0].l2_bytes // 4)
        rows += [
            Row("matmul/cupy/cublas", Matmul(1024, 1024, 1024), gpu),
            Row("stream/cupy/wide", triad, gpu),
            Row("stream/cupy/wide", triad, Settings("gpu:0", cache="cold")),
        ]
    limits = Limits(0.02, 10, 0.05, 0.25)
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
    """Every check's findings, as they come. A check that fails itself is a problem, and the others go on. Takes 10 to 20 s."""
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
    """A line of the table: level, name and state."""
    level = terminal.paint(f"{result.level:8}", _STYLES[result.level])
    return terminal.Line(terminal.on_one_line(result.state), label=f"{level} {result.check:13} ")


def verdict(results: list[CheckResult], subject: str, fit: str) -> list[str]:
    """The verdict as lines: the `subject` (`This machine is`) and `fit` (`to be measured`), or what disturbs it, with the command
    that mends it."""
    by_fault = {(result.why, result.fix): result for result in results if result.level != "ok"}
    bad = by_fault.values()
    if not bad:
        return [terminal.paint(f"{subject} {fit}.", "good")]
    broken = sum(one.level == "problem" for one in bad)
    counts = []
    if broken:
        counts.append(units.count(broken, "thing is", "things are") + " broken")
    if len(bad) > broken:
        counts.append(units.count(len(bad) - broken, "thing disturbs", "things disturb") + " measurements")
    now = next((one for one in bad if one.check == "load"), None)
    if broken:
        head = f"{subject} not {fit}: {units.join(counts)}."
    elif now:
        head = f"Not now: {now.state}."
    else:
        head = f"{subject} {fit}, but: {units.join(counts)}."
    lines = [terminal.paint(head, "bad" if broken else "warning")]
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
    """Findings of the checks on stored rows, machine by machine.

    Raises: Usage when there are none.
    """
    from analysis import checks
    from analysis.analysis import Analysis
    from workloads import records
    from workloads.records.run_files import EXAMPLE_COMMAND

    for loaded in records.by_machine(*runs).values():
        here = loaded.machine
        where = here.key if here else "a machine that no line names"
        state = f"{len(loaded.measurements)} rows of {where}, {len(checks.CHECKS)} things looked for in each"
        yield CheckResult("rows", "ok", state)
        command = checks.command(loaded.measurements[0]) if loaded.measurements else EXAMPLE_COMMAND
        yield from broken(loaded.measurements, "it has no time, or none that counts", command)
        yield from Analysis.from_loaded(loaded).doubts
        for file in loaded.damaged:
            yield bad_lines(file)


def bad_lines(file: "ResultFile") -> CheckResult:
    """The finding for a result file with lines that cannot be read: the command that made the file measures their rows anew."""
    from analysis import checks
    from workloads.records import command_lines
    from workloads.records.run_files import EXAMPLE_COMMAND

    state = f"{units.count(file.bad_lines, 'line')} of {options.near(file.path)} cannot be read"
    mend = command_lines.resumed(file.runs[-1].command, options.near(file.path.parent)) if file.runs else ""
    if not mend:
        command = checks.command(file.measurements[0]) if file.measurements else EXAMPLE_COMMAND
        mend = f"{command} -o DIR"
    return CheckResult(check="bad lines", level="warn", state=state, why="their rows are lost", fix=mend)


def noise(plan: DoctorPlan) -> int:
    """Makes the missing sweeps of this machine, each in new processes, and stores their differences, also when interrupted.
    Returns the exit code."""
    from workloads.harness import sweep
    from workloads.machine import facts

    here = facts.describe()
    unfinished = sorted(p for p in (sweep.LOCAL / here.key).glob("noise-*") if len(_swept(p)) < SWEEPS)
    if plan.resume and unfinished:
        folder = unfinished[-1]
    else:
        stamp = "".join(character for character in facts.now() if character != ":")
        folder = sweep.LOCAL / here.key / f"noise-{stamp}"
    begin = time.monotonic()
    took_s = 0.0  # the last sweep
    gap_s = plan.over_s / (SWEEPS - 1)
    done = len(_swept(folder))
    try:
        for i in range(done, SWEEPS):
            wait_s = max(0.0, begin + (i - done) * gap_s - time.monotonic())
            if plan.stop_after_s and time.monotonic() + wait_s + took_s - begin > plan.stop_after_s:
                break
            left_s = wait_s + (SWEEPS - 1 - i) * max(gap_s, took_s) + took_s
            terminal.note(f"[{i + 1}/{SWEEPS}] begins in {wait_s:.0f} s; about {left_s / 60:.0f} min to go")
            time.sleep(wait_s)
            started = time.monotonic()
            _sweep(folder, i, here)
            took_s = time.monotonic() - started
    finally:
        _store(folder, here, plan.format)
    return options.OK


def _swept(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("[0-9]*") if p.suffix != ".part")


def _sweep(folder: Path, i: int, here) -> None:
    """One more sweep, under another name until it is whole. Raises: Stop when it fails."""
    part = folder / f"{i + 1:02}.part"
    shutil.rmtree(part, ignore_errors=True)
    threads = [str(t) for t in sorted({1, here.cores})]
    # The command is stored with the rows, which do not say where the project lies.
    place = str(part.relative_to(REPORTS.parent))
    command = [*NOISE_SWEEP, "cublas" if here.gpus else "operator", "--threads", *threads, "-o", place]
    REPORTS.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, cwd=REPORTS.parent)
    if ended.returncode != options.OK:
        raise options.Stop(f"a sweep ended with exit code {ended.returncode}", f"python -m {' '.join(command)}")
    part.rename(part.with_suffix(""))


def _store(folder: Path, here, format_: str) -> None:
    """Stores and prints the differences between the sweeps so far, and how to go on if some are missing."""
    import msgspec

    from analysis import noise
    from workloads import records

    swept = _swept(folder)
    loaded = [records.read(f) for f in swept]
    begun = [datetime.fromisoformat(one.runs[0].started_at).timestamp() for one in loaded]
    shares = noise.shares(list(zip(begun, loaded, strict=True))) if len(swept) > 1 else ()
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
        for sweep in loaded:
            rows += sweep.measurements
        disturbed = sum(bool(noise.DISTURBED & {*m.flags}) for m in rows)
        if disturbed:
            terminal.note(f"other load disturbed {disturbed} of {len(rows)} rows: measure again on a quiet machine")
        terminal.note(terminal.Line(options.near(place), label="stored: "))
    if len(swept) < SWEEPS:
        again = options.typed("python -m workloads.doctor --noise --resume")
        terminal.note(f"{len(swept)} of {SWEEPS} sweeps are made; go on with:")
        terminal.note(terminal.Line(label="  ", command=again))


def _print_shares(shares: "Sequence[NoiseShare]") -> None:
    """Prints the table of what two runs differ by."""
    cells = []
    for share in shares:
        shortest_call = units.seconds(10.0**share.decade)
        cells.append((share.side, f"from {shortest_call}", units.percent(share.share), str(share.pairs)))
    for text in table.Table("clock | calls | two runs differ by at most | pairs", cells, 2).text():
        print(text)


def carry_out(plan: DoctorPlan) -> int:
    """Prints each finding as it comes, then the verdict; the exit code."""
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
