"""Checks whether a timing can be true; a finding says what was seen, why it matters and what to type next."""

# What one row's numbers show is flagged when it is measured (`records.row_flags`, `harness.flags`); what takes other rows or
# roofs is seen when they are read.

import importlib.util
import math
import shlex
from collections.abc import Callable, Sequence

import msgspec

from analysis import labels, stats, table, units
from analysis.metrics import VALUES
from analysis.roofline import bounds
from analysis.roofline.roofs import Roofs, last_cache_bytes
from analysis.training import data_parallel
from analysis.units import count
from workloads import options, terminal
from workloads.machine.health import CheckResult
from workloads.records import Machine, Measurement, Measurements, row_flags

_FEW_FLOPS_A_BYTE = 4.0  # below this, memory decides on any machine, and cold must be slower than warm
_IN_CACHE = (1 / 16, 1 / 2)  # shares of the last cache in which a working set is warm for certain, and coldness shows


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings that a row is judged by. Each may be unknown."""

    #: The rows of its run.
    rows: Sequence[Measurement] = ()
    #: Their roofs.
    roofs: Roofs = ()
    #: The machine that they were measured on.
    machine: Machine | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be wrong with a row."""

    #: Its name, and the flag of rows that it was found in when they were measured.
    flag: str
    #: problem, if the number is not what it claims; warn, if it may be off.
    level: str
    #: What is wrong with a row that has the flag, with places for the row's values; "" of a check in _SYMPTOMS.
    symptom: str
    #: Why it matters.
    why: str
    #: What to type next; {command} stands for the one that measures such rows.
    fix: str

    def symptom_of(self, m: Measurement, context: Context) -> str:
        """What is wrong with a row, in words; "" if the check finds nothing. context: the row's run, roofs and machine."""
        if self.flag in _SYMPTOMS:
            return _SYMPTOMS[self.flag](m, context)
        if self.flag not in m.flags:
            return ""
        values = {key: units.metric(key, m.values.get(key, math.nan)) for key in VALUES}
        return self.symptom.format_map(values)


def _above(m: Measurement, context: Context) -> str:
    """The symptom of a row that is faster than the hardware allows, so that it must be an error; else ""."""
    if not bounds.is_above_roof(m, context.roofs, context.machine):
        return ""
    return _times_its_roof(m, context) or f"{units.seconds(stats.call_s(m))} a call, less than any hardware takes"


def _times_its_roof(m: Measurement, context: Context) -> str:
    """How far a row lies above the measured limit of its device (its roof): `1.31 times its roof, float32 compute`; "" of one
    below."""
    judged = bounds.quick_judge(m, context.roofs)
    if not (judged.flag and judged.fraction and judged.roof):
        return ""
    return f"{units.digits(judged.fraction.value)} times its roof, {judged.roof.name} {judged.roof.kind}"


def _lent(m: Measurement, context: Context) -> str:
    """The symptom of a row above its roof that may be right, as a virtual CPU gets more of its host at times; else ""."""
    if bounds.is_above_roof(m, context.roofs, context.machine):
        return ""
    return _times_its_roof(m, context)


def _not_cold(m: Measurement, context: Context) -> str:
    """The symptom of a row that was measured with cold caches but is no slower than with warm ones, although its arrays fit the
    last cache and memory decides its speed; else ""."""
    p, cold = m.problem, stats.quick_seconds(m)
    if m.settings.cache != "cold" or not cold or (p.flops or 0) > _FEW_FLOPS_A_BYTE * (p.bytes_moved or 0):
        return ""
    cache = last_cache_bytes(context.machine, m.device)
    low, high = _IN_CACHE
    if not cache or not low * cache <= p.footprint_bytes <= high * cache:
        return ""
    warm = _warm_seconds(m, context.rows)
    if warm is None or cold > 1.02 * warm:
        return ""
    fits = f"{units.size(p.footprint_bytes)} fit the last cache"
    return f"cold it takes {units.seconds(cold)}, warm {units.seconds(warm)}, though {fits}"


def _warm_seconds(cold: Measurement, rows: Sequence[Measurement]) -> float | None:
    """Seconds of the same row with warm caches; None without one. rows: where it is looked up."""
    settings = msgspec.structs.replace(cold.settings, cache="warm")
    for row in rows:
        if (row.kernel, row.problem, row.settings) == (cold.kernel, cold.problem, settings):
            seconds = stats.quick_seconds(row)
            if seconds:
                return seconds
    return None


# Flag, symptom (of those in _SYMPTOMS their function says it), why it matters and what to type next, where {command} is the one
# that measures rows like the first that has it.
_PROBLEMS = """
no-wait | | a GPU call returns before its work is done: without a wait only the launch is timed | \
    compute-sanitizer --tool synccheck python -m workloads.matmul --device gpu --sizes 4096
first-call | | the first call holds context, compilation and plan search: no later one pays | {command} --max-time 5
above-roof | | nothing is faster than the hardware: a unit, a count or the arithmetic is wrong | python -m analysis.roofline RUN
not-cold | | the caches were not emptied, so the memory was not measured | python -m workloads.matmul --cache warm cold
other-losses | | several GPUs that share a batch must learn what one learns from it | \
    python -m workloads.training --study data-parallel
constant-inputs | an input holds one value only | \
    constants switch fewer transistors and run up to 15 % faster than data does | {command} --seed 2
low-precision | errors far beyond the arithmetic that the row names | \
    TF32 or bfloat16 is on where float32 was asked for: fast, and another result | NVIDIA_TF32_OVERRIDE=0 CUPY_TF32=0 {command}
ran-on-cpu | | what ran on the CPU says nothing of the GPU | python -m workloads.doctor
foreign-kernels | `kernels` is not this checkout's | another package of that name was timed | python -m workloads.doctor
"""
_WARNINGS = """
lent-more | | this virtual CPU was lent more of its host than for the roof: fractions are off | python -m workloads.peak
power-cap | held back at {gpu_power_w} and {gpu_clock_hz} | \
    at its power limit a GPU lowers its clock: a cooler or shorter run is faster | nvidia-smi -q -d POWER,PERFORMANCE
thermal | too hot, at {gpu_clock_hz} | \
    a hot GPU lowers its clock | nvidia-smi -q -d TEMPERATURE
gpu-clock | the GPU's clock moved by more than 3 %, about {gpu_clock_hz} | \
    one visit to a row ran at another clock than the next | nvidia-smi -q -d CLOCK
cold-clocked | the GPU had not left its idle clock, at {gpu_clock_hz} | \
    at a low clock everything on the GPU is slower than it is in use | {command} --rigorous
hold-ended | the device began before the call was issued whole, within the 50 ms that it is held | \
    gaps of the host's are in the device's time | {command} --rigorous
other-tenant | another process computed on the GPU | \
    it shares its clock, memory and bandwidth | nvidia-smi
cpu-clock | the CPU's clock moved by more than 3 %, about {cpu_clock_hz} | \
    one visit to a row ran at another clock than the next | {command} --rigorous
steal | more than 3 % of the CPU time was stolen by the hypervisor at times | \
    the host is crowded: expect noise | {command} --rigorous
quota | a cgroup's CPU quota held it back for {throttled_s} | \
    the container may use less than its threads ask for | raise the container's CPU limit
other-load | other processes used more than 10 % of the CPUs at times | \
    they take time and cache from what is measured | {command} --wait-quiet
oversubscribed | more threads than CPUs that it may use | \
    threads that wait for each other's CPU measure the scheduler | {command} --threads 1
long-visit | | something held this machine up meanwhile, and the interval reaches that far | {command} --rigorous
slow-governor | the frequency governor saves power | \
    the clock lags behind the work: short kernels look slow | sudo cpupower frequency-set -g performance
few-threads | the library took fewer threads than the row says | \
    too few threads make the CPU look slow | python -m workloads.doctor
blas-variables | a variable that changes BLAS's blocks or kernels was set | \
    the rate is of that choice, not of the library | python -m workloads.doctor
lesser-kernels | NumPy's BLAS took its AVX2 kernels on a CPU with AVX-512 | \
    they make the CPU look up to twice as slow, and the GPU win too early | python -m workloads.doctor
"""
_SYMPTOMS: dict[str, Callable[[Measurement, Context], str]] = {
    "no-wait": lambda m, context: row_flags.no_wait(m),
    "first-call": lambda m, context: row_flags.first_call(m),
    "ran-on-cpu": lambda m, context: row_flags.ran_on_cpu(m),
    "above-roof": _above,
    "lent-more": _lent,
    "not-cold": _not_cold,
    "long-visit": lambda m, context: row_flags.long_visit(m),
    "other-losses": lambda m, context: (
        data_parallel.other_losses(m, context.rows) if m.problem.op == "training" else ""
    ),
}


def _checks(level: str, rows: str) -> list[Check]:
    """The checks of a table of lines `flag | symptom | why | fix`. level: problem or warn."""
    return [
        Check(flag=flag, level=level, symptom=symptom, why=why, fix=fix)
        for flag, symptom, why, fix in table.parsed(rows)
    ]


CHECKS = (*_checks("problem", _PROBLEMS), *_checks("warn", _WARNINGS))


def findings(rows: Measurements, roofs: Roofs, machine: Machine | None) -> list[CheckResult]:
    """A result for each check that finds something wrong in these rows: how many of them, and the first of them in words."""
    context = Context(rows=rows, roofs=roofs, machine=machine)
    results = []
    for check in CHECKS:
        symptoms = [(m, check.symptom_of(m, context)) for m in rows]
        wrong = [(m, symptom) for m, symptom in symptoms if symptom]
        if not wrong:
            continue
        first, symptom = wrong[0]
        where = labels.row(first)
        if len(wrong) > 1:
            where = f"{len(wrong)} of {len(rows)} rows, such as {where}"
        results.append(
            CheckResult(
                check=check.flag,
                level=check.level,
                state=f"{where}: {symptom}",
                why=check.why,
                fix=check.fix.format(command=command(first)),
            )
        )
    return results


def command(m: Measurement) -> str:
    """The command line that measures rows like this one: its workload, with its model."""
    workload = m.problem.op if importlib.util.find_spec(f"workloads.{m.problem.op}") else "matmul"
    model = m.problem.model
    return f"python -m workloads.{workload}" + (f" --model {shlex.quote(model)}" if model else "")


def lines(doubts: list[CheckResult], run: str, verbose: bool = False) -> list[str]:
    """Lines about doubtful rows, for the end of a sweep: one for each problem, and one that counts the warnings, with the command
    that explains them. With `verbose` each warning has its line too. run: the run's path."""
    lines: list[str] = []
    warnings = []
    for doubt in doubts:
        if doubt.level != "problem" and not verbose:
            warnings.append(doubt.check)
            continue
        why = f"; {doubt.why}" if verbose else ""
        about = f"doubtful ({doubt.check}): {doubt.state}{why}; try: "
        lines.append(terminal.Line(about, command=options.typed(doubt.fix)))
    if warnings:
        command = options.typed(f"python -m workloads.doctor {shlex.quote(run)}")
        lines.append(terminal.Line(f"{count(len(warnings), 'warning')} ({', '.join(warnings)}): ", command=command))
    return lines
