"""Says whether this machine is ready to measure: what was seen, why it matters, what to type next."""

import contextlib
import dataclasses
import json
import platform
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import table, units
from workloads import REPORTS, options, terminal
from workloads.machine import health, load
from workloads.machine.health import CheckResult

if TYPE_CHECKING:
    from workloads.records import Measurements
    from workloads.records.files import ResultFile

QUESTION = "Is this machine fit to be measured?"
EXAMPLES = "python -m workloads.doctor", "python -m workloads.doctor reports/nvidia-h200/suite"
LONG = """Checks what the measurements stand on: libraries and their threads, the GPU and why it is or is not used,
TensorFlow, memory, disk, what else keeps this machine busy, and whether a few timings are true. With RUN it asks that of stored
rows instead. --noise measures once what two runs of this machine differ by; comparisons of runs and crossovers of short sweeps
then count with it. Exit code 1 when something is broken; having no GPU is normal."""
FLAGS = """
--format {table,json} =table  what stdout gets (table)
--noise         make ten short sweeps and store what they differ by
--over S =900   seconds from the first of them to the last (900)
--stop-after S  begin no sweep later than this, exit 0, print how to resume
--resume        go on with the newest sweeps that are fewer than ten"""

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

    layer, threads, cores = facts.numba_layer(), facts.numba_threads(), facts.usable_cores()
    seen = f"{facts.version('numba')}, layer {layer or 'none'}, {threads} threads"
    openmp = "brew install libomp" if platform.system() == "Darwin" else "sudo apt install libgomp1"
    yield health.diagnosis(
        "numba",
        seen,
        (layer not in ("omp", "tbb"), "without OpenMP small parallel kernels lose half their speed", openmp),
        (threads < cores, f"fewer threads than the {cores} cores", "unset NUMBA_NUM_THREADS"),
        level="warn" if layer else "problem",
    )
    # A dispatcher that cannot keep its code has no cache path.
    kept = getattr(telemetry.compiled_chain().stats, "cache_path", None)
    seen = "compiled code is kept between runs" if kept else "no folder to keep compiled code in"
    anew = not kept, "every run compiles for seconds", "export NUMBA_CACHE_DIR=$HOME/.cache/numba"
    yield health.diagnosis("numba cache", seen, anew)


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
    looked = {
        "cpu-clock": ("clock", f"{clock}, off by more than 3 % at times", f"{clock}, steady"),
        "other-load": ("load", f"other processes use {values.get('other_load_fraction', 0):.0%} of the CPUs"),
        "steal": ("steal", f"{values.get('steal_fraction', 0):.0%} of the CPU time is stolen by the hypervisor"),
        "quota": ("quota", f"held back for {throttled} by a cgroup's CPU quota", "no CPU quota held this process back"),
    }
    for check in (check for check in checks.CHECKS if check.flag in looked):
        name, *seen = looked[check.flag]
        fix = check.fix.format(command="python -m workloads.matmul")
        symptom = seen[0]
        if check.flag == "other-load" and busy and not busy.quiet:
            symptom = busy.words
        up = check.flag in flags
        yield health.diagnosis(name, symptom if up else seen[-1], (up, check.why, fix))


def timings() -> Iterator[CheckResult]:
    """Times a few rows of every device in a worker, as a sweep does, and asks of each whether its timing is true."""
    from analysis import checks
    from analysis.analysis import Analysis
    from workloads.machine import facts
    from workloads.records import row_flags

    here = facts.describe()
    done = [row_flags.flagged(m) for m in trials(here)]
    found = Analysis.from_rows(done, here).doubts
    looked = f"{len(checks.CHECKS)} things looked for, {len(found)} seen"
    yield CheckResult("timings", "ok", f"{sum(m.ok for m in done)} rows timed, their answers right; {looked}")
    yield from broken(done, "what is measured with it would fail too", "make test")
    yield from found


def broken(rows: "Measurements", why: str, fix: str) -> Iterator[CheckResult]:
    """A problem for the rows that failed and one for those whose answer is wrong: their number, and the first of them."""
    from analysis import labels

    for status in ("failed", "wrong"):
        with_status = [m for m in rows if m.status == status]
        if with_status:
            first = with_status[0]
            some = f"{len(with_status)} of {len(rows)} rows, such as " if len(with_status) > 1 else ""
            yield CheckResult(status, "problem", f"{some}{labels.row(first)}: {first.reason}", why, fix)


def trials(here) -> list:
    """Measurements of a product and a pass over memory on each device, the pass warm and cold."""
    from kernels.problems import Matmul, Stream
    from workloads.harness.timing import Limits
    from workloads.harness.worker import Order, Worker, environment
    from workloads.records import Row, Settings

    cpu, half = Settings(threads=here.cores), max(here.caches_bytes.values(), default=1 << 22) // 4
    rows = [
        Row("matmul/numpy/blas", Matmul(512, 512, 512), cpu),
        Row("stream/numba/loop", Stream("triad", min(half, 1 << 26)), cpu),
    ]
    if here.gpus:
        gpu, triad = Settings("gpu:0"), Stream("triad", here.gpus[0].l2_bytes // 4)
        rows += [
            Row("matmul/cupy/cublas", Matmul(1024, 1024, 1024), gpu),
            *(Row("stream/cupy/wide", triad, s) for s in (gpu, Settings("gpu:0", cache="cold"))),
        ]
    done = []
    for device in dict.fromkeys(row.device for row in rows):
        own = [row for row in rows if row.device == device]
        with contextlib.closing(Worker(environment(own[0], here.uuids))) as worker:
            orders = (Order("measure", row, Limits(0.02, 10, 0.05, 0.25)) for row in own)
            done += [worker.ask(order, health.CHILD_LIMIT_S) for order in orders]
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
                found = list(check())
        except Exception as error:
            seen = f"the check itself failed: {type(error).__name__}: {error}"
            why = "what it looks at is broken or missing"
            found = [CheckResult(check.__name__, "problem", seen, why, "make test")]
        yield from found


_STYLES = {"ok": "good", "warn": "warning", "problem": "bad"}


def line(one: CheckResult) -> str:
    return f"{terminal.paint(f'{one.level:8}', _STYLES[one.level])} {one.check:13} {terminal.on_one_line(one.seen)}"


def verdict(found: list[CheckResult], of: str, fit: str) -> list[str]:
    """The verdict as lines: `of` (this machine is) `fit` (to be measured), or what disturbs it, with the command that mends
    it."""
    bad = {(one.why, one.fix): one for one in found if one.level != "ok"}.values()  # what is said twice counts once
    if not bad:
        return [terminal.paint(f"{of} {fit}.", "good")]
    broken = sum(one.level == "problem" for one in bad)
    counts = []
    if broken:
        counts.append(units.count(broken, "thing is", "things are") + " broken")
    if len(bad) > broken:
        counts.append(units.count(len(bad) - broken, "thing disturbs", "things disturb") + " measurements")
    now = next((one for one in bad if one.check == "load"), None)
    if broken:
        head = f"{of} not {fit}: {units.join(counts)}."
    elif now:
        head = f"Not now: {now.seen}."
    else:
        head = f"{of} {fit}, but: {units.join(counts)}."
    return [
        terminal.paint(head, "bad" if broken else "warning"),
        *(f"  {one.check:13}  {one.why}\n  {'':13}  mend it: {options.typed(one.fix)}" for one in bad),
    ]


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


def parser() -> options.Parser:
    made = options.parser("workloads.doctor", LONG, *EXAMPLES, question=QUESTION, needs="noise", flags=FLAGS)
    about = "result files, run folders or saved names to look at instead"
    made.add_argument("runs", nargs="*", metavar="RUN", help=about)
    return made


def stored(runs: Iterable[str]) -> Iterator[CheckResult]:
    """Findings of the checks on stored rows, machine by machine.

    Raises: Usage when there are none.
    """
    from analysis import checks
    from analysis.analysis import Analysis
    from workloads import records
    from workloads.records.files import MEASURE

    for loaded in records.by_machine(*runs).values():
        here = loaded.machine
        where = here.key if here else "a machine that no line names"
        said = f"{len(loaded.measurements)} rows of {where}, {len(checks.CHECKS)} things looked for in each"
        yield CheckResult("rows", "ok", said)
        command = checks.command(loaded.measurements[0]) if loaded.measurements else MEASURE
        yield from broken(loaded.measurements, "it has no time, or none that counts", command)
        yield from Analysis.from_loaded(loaded).doubts
        for file in loaded.damaged:
            yield bad_lines(file)


def bad_lines(file: "ResultFile") -> CheckResult:
    """The finding for a result file with lines that cannot be read: the command that made the file measures their rows anew."""
    from analysis import checks
    from workloads.records import command_lines
    from workloads.records.files import MEASURE

    lost = f"{units.count(file.bad_lines, 'line')} of {options.near(file.path)} cannot be read"
    mend = command_lines.resumed(file.runs[-1].command, options.near(file.path.parent)) if file.runs else ""
    if not mend:
        command = checks.command(file.measurements[0]) if file.measurements else MEASURE
        mend = f"{command} -o DIR"
    return CheckResult("bad lines", "warn", lost, "their rows are lost", mend)


def noise(plan: DoctorPlan) -> int:
    """Makes the missing sweeps of this machine, each in its own processes, and stores their differences, also when interrupted.
    Returns the exit code."""
    from workloads.harness import sweep
    from workloads.machine import facts

    here = facts.describe()
    unfinished = sorted(p for p in (sweep.LOCAL / here.key).glob("noise-*") if len(_swept(p)) < SWEEPS)
    if plan.resume and unfinished:
        folder = unfinished[-1]
    else:
        folder = sweep.LOCAL / here.key / f"noise-{facts.now().replace(':', '')}"
    begin, took_s, gap_s = time.monotonic(), 0.0, plan.over_s / (SWEEPS - 1)
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
        _keep(folder, here, plan.format)
    return options.OK


def _swept(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("[0-9]*") if p.suffix != ".part")


def _sweep(folder: Path, i: int, here) -> None:
    """One more sweep, under another name until it is whole. Raises: Stop when it fails."""
    part = folder / f"{i + 1:02}.part"
    shutil.rmtree(part, ignore_errors=True)
    threads = [str(t) for t in sorted({1, here.cores})]
    place = str(
        part.relative_to(REPORTS.parent)
    )  # it is stored with the rows, which say nothing of where the project lies
    command = [*NOISE_SWEEP, "cublas" if here.gpus else "operator", "--threads", *threads, "-o", place]
    REPORTS.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, cwd=REPORTS.parent)
    if ended.returncode != options.OK:
        raise options.Stop(f"a sweep ended with exit code {ended.returncode}", f"python -m {' '.join(command)}")
    part.rename(part.with_suffix(""))


def _keep(folder: Path, here, format_: str) -> None:
    """Stores and prints the differences between the sweeps so far, and how to go on if some are missing."""
    import msgspec

    from analysis import noise
    from workloads import records

    swept = _swept(folder)
    loaded = [records.read(f) for f in swept]
    begun = [datetime.fromisoformat(one.runs[0].started_at).timestamp() for one in loaded]
    shares = noise.shares(list(zip(begun, loaded, strict=True))) if len(swept) > 1 else ()
    if shares:
        kept = noise.Noise(
            here,
            loaded[-1].runs[0].started_at,
            max(begun) - min(begun),
            tuple(one.runs[0].started_at for one in loaded),
            shares,
        )
        place = noise.REPORTS / "local" / here.key / noise.FILE
        place.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))
        cells = [
            (s.side, f"from {units.seconds(10.0**s.decade)}", units.percent(s.share), str(s.pairs)) for s in shares
        ]
        if format_ == "json":
            print(msgspec.json.encode(shares).decode())
        else:
            print(*table.Table("clock | calls | two runs differ by at most | pairs", cells, 2).text(), sep="\n")
        rows = [m for one in loaded for m in one.measurements]
        if loud := sum(bool(noise.DISTURBED & {*m.flags}) for m in rows):
            terminal.note(f"other load disturbed {loud} of {len(rows)} rows: measure again on a quiet machine")
        terminal.note(f"stored: {options.near(place)}")
    if len(swept) < SWEEPS:
        again = options.typed("python -m workloads.doctor --noise --resume")
        terminal.note(f"{len(swept)} of {SWEEPS} sweeps are made; go on with:\n  {again}")


def carry_out(plan: DoctorPlan) -> int:
    """Prints each finding as it comes, then the verdict; the exit code."""
    if plan.noise:
        return noise(plan)
    findings = []
    for finding in stored(plan.runs) if plan.runs else run():
        findings.append(finding)
        if plan.format == "table":
            print(line(finding), flush=True)
    if plan.format == "json":
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    elif plan.runs:
        print("", *verdict(findings, "These rows are", "sound"), sep="\n")
    else:
        print("", *verdict(findings, "This machine is", "fit to be measured"), sep="\n")
    return options.FAILED if any(finding.level == "problem" for finding in findings) else options.OK


main = options.entry(parser, DoctorPlan.from_flags, carry_out)


if __name__ == "__main__":
    sys.exit(main())
