"""The ladder: our own kernels from three plain loops upward, beside the library and under the measured peak, and what each
rung changed. Ideas are those that rows store; every number is of rows."""

import itertools

import msgspec

from analysis.crossover.families import MANY_IN_ONE, is_rung
from analysis.crossover.layers import is_square
from analysis.labels import shape, short
from analysis.roofline.bounds import pick
from analysis.roofline.roofs import Roof, Roofs
from analysis.stats import MIN_EFFECT, Estimate, best_by, call_s, group_by, is_gpu, quick_seconds, seconds_of
from analysis.table import Table
from analysis.units import count, digits, flops_rate, join, percent
from kernels import registry
from kernels.problems import Problem
from workloads.records import Measurement, Measurements

_ONEDNN = "conv/tensorflow/"  # on the CPU oneDNN, which only a framework brings; but not its many in a call
_SHARED_OUT = {"matmul/numba/parallel": "numba/reordered"}  # rung that adds threads -> rung of the same loops
_BEYOND = 1.05  # of the peak: no kernel is faster
SHARES = "of the library | of the peak | over the best before | bytes a FLOP"
HEADS = f"rung | rate | {SHARES}"
_SAID = {
    "first": "{rung} starts with {rate} at {at}. {why}",
    "same": "{rung} can't be told from {before} at {at}. {why}",
    "slower": "{rung} is {times}x slower than {before} at {at}. {why}",
    "faster": "{rung} is {times}x faster than {before} at {at}. {why}",
    "pays": " It is {times}x faster than {before} at {at}.",
    "one thread": "On one thread nothing is shared out: its loops are those of {loops}.",
    "standing": "At {at} the fastest rung, {rung}, reaches {reached}.",
    "beyond": "More than its peak is a disturbance: measure both again.",
    "flagged": "It was flagged: {flags}.",
    "no row": "{rung} has no row at {at}: {reason}.",
    "oneDNN": "oneDNN, the CPU's library of convolutions, comes with TensorFlow and was not measured here.",
}


class Step(msgspec.Struct, frozen=True):
    """A rung at one problem: seconds, as a fraction of the library's and of the peak's speed, and the speedup over the fastest
    rung before it there (None without one). tiles: those it chose there; traffic: the bytes for a FLOP that they read of each
    level, in words. flags: what disturbed it or the library."""

    kernel: str
    problem: "Problem"
    seconds: "Estimate"
    of_library: "Estimate | None"
    of_peak: "Estimate | None"
    over_before: "Estimate | None"
    before: str = ""
    tiles: str = ""
    traffic: str = ""
    flags: tuple[str, ...] = ()


class Ladder(msgspec.Struct, frozen=True):
    """The rungs of one device, arithmetic and thread count (None: a GPU's), problem by problem, the smallest first.

    ideas: kernel -> its idea, the simplest first. library: problem -> the fastest library's row. skipped: a rung that has rows,
    a problem where it has none, and why.
    """

    op: str
    device: str
    math: str
    threads: int | None
    ideas: dict[str, str]
    steps: tuple[Step, ...]
    library: "dict[Problem, Measurement]"
    peak: Roof | None
    skipped: "tuple[tuple[str, Problem, str], ...]"

    @property
    def problems(self) -> "list[Problem]":
        return list(dict.fromkeys(step.problem for step in self.steps))

    def at(self, problem: Problem) -> list[Step]:
        return [step for step in self.steps if step.problem == problem]


def ladders(measurements: Measurements, roofs: Roofs, op: str = "matmul") -> list[Ladder]:
    """A ladder for each device, arithmetic and thread count of the devices that have teaching rungs. Ladders of a single rung
    are kept only where an arithmetic has no longer one."""
    warm = ("resident", "warm", "warm")
    rows = [m for m in measurements if m.problem.op == op and (m.mode, m.settings.cache, m.process) == warm]
    stored = {m.kernel: m.notes["idea"] for m in rows if "idea" in m.notes}
    ideas = {kernel: stored[kernel] for kernel in (*registry.ladder(op), *stored) if kernel in stored}
    taught = {m.device for m in rows if is_rung(m) and m.kernel in ideas and quick_seconds(m)}
    known = (m for m in rows if m.device in taught and (m.backend in registry.WRITTEN_HERE or _is_library(m)))
    groups = group_by(known, lambda m: (m.device, m.problem.math, m.threads))
    found = []
    for device, math, threads in sorted(groups, key=lambda of: (is_gpu(of[0]), of[1] != "float32", of[1], of[2] or 0)):
        peak = pick(roofs, device, "compute", math, threads)
        found.append(_ladder(ideas, (op, device, math, threads), groups[device, math, threads], peak))
    by_math = group_by((one for one in found if one.steps), lambda one: (one.device, one.math)).values()
    return [one for own in by_math for one in [x for x in own if len({s.kernel for s in x.steps}) > 1] or own]


def _is_library(m: Measurement) -> bool:
    onednn = m.kernel.startswith(_ONEDNN) and not m.on_gpu and m.kernel != MANY_IN_ONE
    return onednn or m.backend in registry.LIBRARIES


def _ladder(
    ideas: dict[str, str], where: tuple[str, str, str, int | None], rows: Measurements, peak: Roof | None
) -> Ladder:
    """`where`: operation, device, arithmetic and threads of all rows."""
    rungs = {(m.problem, m.kernel): m for m in rows if m.kernel in ideas}
    libraries = [m for m in rows if m.kernel not in ideas and quick_seconds(m) and _is_library(m)]
    library = best_by(libraries, lambda m: m.problem, call_s)
    steps: list[Step] = []
    problems = {problem for problem, _ in rungs}
    for problem in sorted(problems, key=lambda p: (p.flops, repr(p))):
        climbed = [rungs[problem, kernel] for kernel in ideas if (problem, kernel) in rungs]
        steps += _steps(climbed, library.get(problem), peak)
    kernels = {step.kernel for step in steps}
    without_row = [m for m in rungs.values() if m.kernel in kernels and not m.ok]
    skipped = tuple((m.kernel, m.problem, m.reason or m.status) for m in without_row)
    return Ladder(*where, ideas, tuple(steps), library, peak, skipped)


def _steps(rungs: list[Measurement], library: Measurement | None, peak: Roof | None) -> list[Step]:
    """The steps of one problem's rungs that have a time, the simplest first."""
    steps: list[Step] = []
    fastest: Step | None = None
    for m in rungs:
        seconds = seconds_of(m)
        if not seconds:
            continue
        step = _step(m, seconds, library, peak)
        if fastest:
            step = msgspec.structs.replace(step, over_before=fastest.seconds / seconds, before=fastest.kernel)
        steps.append(step)
        if fastest is None or seconds.value < fastest.seconds.value:
            fastest = step
    return steps


def _step(m: Measurement, seconds: Estimate, library: Measurement | None, peak: Roof | None) -> Step:
    """A rung beside the library and under the peak, with no rung before it."""
    library_s = seconds_of(library) if library else None
    flags = m.flags + (library.flags if library else ())
    return Step(
        kernel=m.kernel,
        problem=m.problem,
        seconds=seconds,
        of_library=library_s / seconds if library_s else None,
        of_peak=m.problem.flops / peak.rate / seconds if peak else None,
        over_before=None,
        tiles=m.notes.get("tiles", ""),
        traffic=m.notes.get("traffic", ""),
        flags=tuple(dict.fromkeys(flags)),
    )


def title(ladder: Ladder) -> str:
    """`cpu, 1 thread, float32`."""
    return ", ".join([ladder.device, *([count(ladder.threads, "thread")] if ladder.threads else []), ladder.math])


def problem_name(problem: Problem) -> str:
    """`n = 1,024`, or the shape."""
    return f"n = {problem.n:,}" if is_square(problem) else shape(problem)


def numbers(ladder: Ladder) -> list[tuple[str, ...]]:
    """The problem and the cells under HEADS of each rung at each problem, the library's last."""
    rows = []
    for problem in ladder.problems:
        rows += [(problem_name(problem), *row) for row in cells(ladder, problem)]
    return rows


def cells(ladder: Ladder, problem: Problem) -> list[tuple[str, ...]]:
    """The cells under HEADS of each rung at one problem, the library's last."""
    rows = [
        (
            short(s.kernel),
            flops_rate(problem.flops / s.seconds.value),
            *("-" if e is None else percent(e.value) for e in (s.of_library, s.of_peak)),
            f"{digits(s.over_before.value)}x" if s.over_before else "-",
            f"{digits(problem.bytes_moved / problem.flops)} memory, {s.traffic}" if s.traffic else "-",
        )
        for s in ladder.at(problem)
    ]
    if m := ladder.library.get(problem):
        rate = problem.flops / call_s(m)
        peak = percent(rate / ladder.peak.rate.value) if ladder.peak else "-"
        rows.append((f"library: {m.label}", flops_rate(rate), percent(1), peak, "-", "-"))
    return rows


def shown_problem(ladder: Ladder) -> Problem:
    """The largest problem that at most one rung is missing at, with a library's row if one of these has it: a small one hides an
    idea."""
    most = max(len(ladder.at(problem)) for problem in ladder.problems)
    nearly_all = [problem for problem in ladder.problems if len(ladder.at(problem)) >= most - 1]
    return max(nearly_all, key=lambda problem: (problem in ladder.library, problem.flops))


def telling(ladder: Ladder) -> list[Step]:
    """Each rung's most telling step: its largest problem with a rung before it, with a library if one of that magnitude has
    it."""
    by_rung = group_by(ladder.steps, lambda s: s.kernel)
    own = [by_rung[kernel] for kernel in ladder.ideas if kernel in by_rung]
    size = {p: (len(str(p.flops)), p in ladder.library, p.flops) for p in ladder.problems}  # a small one hides an idea
    return [max(steps, key=lambda s: (bool(s.over_before), size[s.problem])) for steps in own]


def sentences(ladder: Ladder) -> list[str]:
    """The gain of each rung over the best before it, with its idea; then the fastest rung beside library and peak."""
    steps = telling(ladder)
    told = [_gain(step, ladder) for step in steps]
    largest = sorted(ladder.problems, key=lambda p: (len(str(p.flops)), p in ladder.library))[-1]
    told += [standing(ladder, problem) for problem in dict.fromkeys((steps[-1].problem, largest))]
    told += [_SAID["no row"].format(rung=short(x), at=problem_name(p), reason=why) for x, p, why in ladder.skipped]
    onednn = any(m.kernel.startswith(_ONEDNN) for m in ladder.library.values())
    return told + [_SAID["oneDNN"]] * ((ladder.op, ladder.device) == ("conv", "cpu") and not onednn)


def _gain(step: Step, ladder: Ladder) -> str:
    """The gain of a rung over the best before it. For a slower rung also its largest gain over the one just before it."""
    gain, why = step.over_before, _idea(step, ladder)
    words = {"rung": short(step.kernel), "before": short(step.before), "why": why, "at": problem_name(step.problem)}
    if gain is None:
        return _SAID["first"].format(rate=flops_rate(step.problem.flops / step.seconds.value), **words)
    if gain.high >= 1 - MIN_EFFECT:
        return _SAID["faster" if gain.low > 1 + MIN_EFFECT else "same"].format(times=digits(gain.value), **words)
    pairs = ((a, b) for a, b in itertools.pairwise(ladder.steps) if (a.problem, step.kernel) == (b.problem, b.kernel))
    a, most = max(((a, a.seconds / b.seconds) for a, b in pairs), key=lambda pair: pair[1].value)
    pays = _SAID["pays"].format(times=digits(most.value), before=short(a.kernel), at=problem_name(a.problem))
    return _SAID["slower"].format(times=digits(1 / gain.value), **words) + pays * (most.low > 1 + MIN_EFFECT)


def _idea(step: Step, ladder: Ladder) -> str:
    """A rung's idea and its tiles here; for a rung that only shares loops among threads, on one thread, a note instead."""
    if ladder.threads == 1 and step.kernel in _SHARED_OUT:
        return _SAID["one thread"].format(loops=_SHARED_OUT[step.kernel])
    return ladder.ideas[step.kernel] + (f" Its tiles: {step.tiles}." if step.tiles else "")


def standing(ladder: Ladder, problem: Problem) -> str:
    """The fastest rung at a problem, as a share of the library and of the peak."""
    best = min(ladder.at(problem), key=lambda s: s.seconds.value)
    parts = [f"{percent(best.of_library.value)} of {ladder.library[problem].label}"] if best.of_library else []
    parts += [f"{percent(best.of_peak.value)} of the measured peak"] if best.of_peak else []
    reached = " and ".join(parts) or flops_rate(problem.flops / best.seconds.value)
    doubts = [_SAID["beyond"]] * bool(best.of_peak and best.of_peak.value > _BEYOND)
    doubts += [_SAID["flagged"].format(flags=join(best.flags))] * bool(best.flags)
    said = _SAID["standing"].format(at=problem_name(problem), rung=short(best.kernel), reached=reached)
    return " ".join([said, *doubts])


def lines(found: list[Ladder]) -> list[str]:
    out: list[str] = []
    for ladder in found:
        for problem in ladder.problems:
            out += ["", f"Ladder, {title(ladder)}, {problem_name(problem)}"]
            out += Table(HEADS, cells(ladder, problem), 1, SHARES).text()
        out += ["", *(f"- {line}" for line in sentences(ladder))]
    return out
