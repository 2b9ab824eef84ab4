"""The ladder: our own kernels from three plain loops upward, beside the library and under the measured peak, and what each
rung changed. Ideas are those that rows store, before them the registry's; every number is of rows."""

from collections.abc import Iterable

import msgspec

from analysis import labels
from analysis.crossover.families import is_rung
from analysis.crossover.layers import is_square
from analysis.roofline.bounds import Roof, pick, roofs
from analysis.stats import Estimate, best_by, call_s, group_by, is_gpu, quick_seconds, seconds_of
from analysis.table import Table
from analysis.units import count, digits, flops_rate, join, percent
from kernels import registry
from kernels.problems import Problem
from workloads.records import Machine, Measurement

_ONEDNN = "conv/tensorflow/"  # on the CPU oneDNN, which only a framework brings; but not its many in a call
_SHARES = {"matmul/numba/parallel": "numba/reordered"}  # rungs whose gain is more threads -> whose loops they have
# channels that lie on 16 bytes in two-byte types; seconds in which larger tiles stay half empty
_EIGHTS, _BRIEF_S = (8, 1e-4)
_BEYOND = 1.05  # of the peak: no kernel is faster
SHARES = "of the library | of the peak | over the one before"
HEADS = f"rung | rate | {SHARES}"


class Step(msgspec.Struct, frozen=True):
    """A rung at one problem: seconds, as a fraction of the library's and of the peak's speed, and the speedup over the rung
    before it there (None without one). tiles: those it chose there. flags: what disturbed it or the library."""

    kernel: str
    problem: "Problem"
    seconds: "Estimate"
    of_library: "Estimate | None"
    of_peak: "Estimate | None"
    over_before: "Estimate | None"
    before: str = ""
    tiles: str = ""
    flags: tuple[str, ...] = ()


class Ladder(msgspec.Struct, frozen=True):
    """The rungs of one device, arithmetic and thread count (None: a GPU's), problem by problem, the smallest first.

    ideas: kernel -> its idea, the simplest first. library: problem -> the fastest library's row. missing: kernel -> why it has
    no row here. skipped: a rung that has rows, a problem where it has none, and why.
    """

    op: str
    device: str
    math: str
    threads: int | None
    ideas: dict[str, str]
    steps: tuple[Step, ...]
    library: "dict[Problem, Measurement]"
    peak: Roof | None
    missing: dict[str, str]
    skipped: "tuple[tuple[str, Problem, str], ...]" = ()

    @property
    def problems(self) -> "list[Problem]":
        return list(dict.fromkeys(step.problem for step in self.steps))

    def at(self, problem: "Problem") -> list[Step]:
        return [step for step in self.steps if step.problem == problem]


def ladders(
    measurements: "Iterable[Measurement]", machine: "Machine | None" = None, op: str = "matmul"
) -> list[Ladder]:
    """A ladder for each device, arithmetic and thread count, on those devices where a teaching rung was measured: those of two
    rungs and more, and where an arithmetic has none such, those of one."""
    every = list(measurements)
    rows = [
        m for m in every if m.problem.op == op and (m.mode, m.settings.cache, m.process) == ("resident", "warm", "warm")
    ]
    ideas = registry.ideas(op) | {m.kernel: m.notes["idea"] for m in rows if "idea" in m.notes}
    taught = {m.device for m in rows if is_rung(m) and m.kernel in ideas and quick_seconds(m)}
    if not taught:
        return []
    ceilings = roofs(every, machine)
    known = (m for m in rows if m.device in taught and (m.backend in registry.OWN or _is_library(m)))
    groups = group_by(known, lambda m: (m.device, m.problem.math, m.threads))
    ordered = sorted(
        groups.items(), key=lambda item: (is_gpu(item[0][0]), item[0][1] != "float32", item[0][1], item[0][2] or 0)
    )
    found = [_ladder(ideas, (op, device, math, threads), group, ceilings) for (device, math, threads), group in ordered]
    found = [ladder for ladder in found if ladder.steps]
    whole = {(one.device, one.math) for one in found if _is_whole(one)}
    return [one for one in found if _is_whole(one) or (one.device, one.math) not in whole]


def _is_whole(ladder: Ladder) -> bool:
    return len({step.kernel for step in ladder.steps}) > 1


def _is_library(m: "Measurement") -> bool:
    onednn = m.kernel.startswith(_ONEDNN) and not m.on_gpu and m.variant != "held"
    return onednn or m.backend in registry.LIBRARIES


def _ladder(ideas, where, rows, ceilings) -> Ladder:
    op, device, math, threads = where
    own = {(m.problem, m.kernel): m for m in rows if m.kernel in ideas}
    theirs = (m for m in rows if m.kernel not in ideas and quick_seconds(m) and _is_library(m))
    library = best_by(theirs, lambda m: m.problem, call_s)
    peak = pick(ceilings, device, "compute", math, threads)
    steps: list[Step] = []
    for problem in sorted({problem for problem, _ in own}, key=lambda p: (p.flops, repr(p))):
        before: Step | None = None
        for kernel in ideas:
            m = own.get((problem, kernel))
            if m is None or (seconds := seconds_of(m)) is None:
                continue
            beside, roof = library.get(problem), problem.flops / peak.rate if peak else None
            its = seconds_of(beside) if beside else None
            made = Step(
                kernel,
                problem,
                seconds,
                its / seconds if its else None,
                roof / seconds if roof else None,
                before.seconds / seconds if before else None,
                before.kernel if before else "",
                m.notes.get("tiles", ""),
                tuple(dict.fromkeys((*m.flags, *(beside.flags if beside else ())))),
            )
            steps.append(made)
            before = made
    there = {step.kernel for step in steps}
    missing = {m.kernel: m.reason or m.status for m in own.values() if m.kernel not in there}
    placed = {(step.problem, step.kernel) for step in steps}
    skipped = tuple(
        (m.kernel, m.problem, m.reason or m.status) for at, m in own.items() if at not in placed and m.kernel in there
    )
    return Ladder(op, device, math, threads, ideas, tuple(steps), library, peak, missing, skipped)


def title(ladder: Ladder) -> str:
    """`cpu, 1 thread, float32`."""
    return ", ".join(
        filter(None, (ladder.device, (ladder.threads and count(ladder.threads, "thread")) or "", ladder.math))
    )


def problem_name(problem: "Problem") -> str:
    """`n = 1024`, or the shape."""
    return f"n = {problem.n}" if is_square(problem) else labels.shape(problem)


def cells(ladder: Ladder, problem: "Problem") -> list[tuple[str, ...]]:
    """The lines of a table under HEADS at one problem, the library's last."""
    rows = [
        (
            _short(s.kernel),
            flops_rate(problem.flops / s.seconds.value),
            *("-" if e is None else percent(e.value) for e in (s.of_library, s.of_peak)),
            f"{digits(s.over_before.value)}x" if s.over_before else "-",
        )
        for s in ladder.at(problem)
    ]
    if m := ladder.library.get(problem):
        rate = problem.flops / call_s(m)
        peak = percent(rate / ladder.peak.rate.value) if ladder.peak else "-"
        rows.append((f"library: {_short(m.kernel)}", flops_rate(rate), percent(1), peak, "-"))
    return rows


def deciding(ladder: Ladder) -> "Problem":
    """The largest of the problems at which most rungs were measured: there they are compared in words."""
    return max(ladder.problems, key=lambda p: (len(ladder.at(p)), p.flops))


def sentences(ladder: Ladder) -> list[str]:
    """What each rung gained over the one before, and by what; then where the fastest stands, and who is missing."""
    at = deciding(ladder)
    steps = ladder.at(at)
    lines = [f"{_short(s.kernel)} {_gain(s)}. {_idea(s, ladder)}" for s in steps]
    fallen = [s for s in ladder.steps if s.problem != at and s.over_before and s.over_before.high < 1]
    lines += [_fallen(own) for own in group_by(fallen, lambda s: (s.kernel, _why(s))).values()]
    largest = ladder.problems[-1]
    lines += [_standing(ladder, problem) for problem in dict.fromkeys((at, largest))]
    lines += [
        f"{_short(kernel)} has no row at {problem_name(problem)}: {reason}."
        for kernel, problem, reason in ladder.skipped
    ]
    elsewhere = {s.kernel for s in ladder.steps} - {s.kernel for s in steps} - {kernel for kernel, *_ in ladder.skipped}
    if is_gpu(ladder.device) and any(s.of_library for s in ladder.steps):
        lines.append(f"`make bench NAME={ladder.op}_cuda` measures the last rungs and the library in turns.")
    if (
        ladder.op == "conv"
        and ladder.device == "cpu"
        and not any(m.kernel.startswith(_ONEDNN) for m in ladder.library.values())
    ):
        lines.append("oneDNN, the CPU's library of convolutions, comes with TensorFlow and was not measured here.")
    lines += [
        f"{_short(kernel)} was not measured at {problem_name(at)}." for kernel in ladder.ideas if kernel in elsewhere
    ]
    return lines + [f"{_short(kernel)} is missing: {reason}." for kernel, reason in ladder.missing.items()]


def _gain(step: Step) -> str:
    if step.over_before is None:
        return f"starts with {flops_rate(step.problem.flops / step.seconds.value)} at {problem_name(step.problem)}"
    gain, before = step.over_before, _short(step.before)
    if gain.low <= 1 <= gain.high:
        return f"can't be told from {before}"
    if gain.high < 1:
        return f"is {digits(1 / gain.value)}x slower than {before}"
    return f"is {digits(gain.value)}x faster than {before}"


def _idea(step: Step, ladder: Ladder) -> str:
    """A rung's idea, and the tiles it took here; of one that shares loops out, what is left of it on one thread."""
    if ladder.threads == 1 and step.kernel in _SHARES:
        return f"On one thread nothing is shared out: its loops are those of {_SHARES[step.kernel]}."
    return ladder.ideas[step.kernel] + (f" The tiles chosen here: {step.tiles}." if step.tiles else "")


def _fallen(steps: list[Step]) -> str:
    """Where a rung is slower than the one before it for one reason: said, as each is told for what it gains."""
    worst = max(steps, key=lambda s: 1 / s.over_before.value if s.over_before else 0.0)
    where = f"at {len(steps)} sizes, most at" if len(steps) > 1 else "at"
    reason = _why(worst)
    return (
        f"{_short(worst.kernel)} {_gain(worst)} {where} {problem_name(worst.problem)}. {reason[0].upper()}{reason[1:]}."
    )


def _why(step: Step) -> str:
    """What may make a rung slower than a simpler one, as far as the problem shows it; no row says so."""
    if step.kernel in _SHARES:
        return "Likely because threads cost more than they share"
    channels = getattr(step.problem, "c_in", _EIGHTS)
    if channels % _EIGHTS and step.kernel.split("/")[1] == "cuda":
        return f"Likely because images with {channels} channels are filled up with zeros"
    if step.seconds.value < _BRIEF_S:
        return "Likely because so small a problem leaves its larger tiles half empty"
    return "Likely because setting it up takes longer than it saves at this shape"


def _standing(ladder: Ladder, problem: "Problem") -> str:
    best = min(ladder.at(problem), key=lambda s: s.seconds.value)
    parts = [
        f"{_share(best.of_library)} of {_short(ladder.library[problem].kernel)}" if best.of_library else "",
        f"{_share(best.of_peak)} of the measured peak" if best.of_peak else "",
    ]
    reached = " and ".join(filter(None, parts)) or flops_rate(problem.flops / best.seconds.value)
    said = f"At {problem_name(problem)} the fastest rung, {_short(best.kernel)}, reaches {reached}."
    if best.of_peak and best.of_peak.value > _BEYOND:
        said += " More than its peak is a disturbance: measure both again."
    return said + (f" It was flagged: {join(best.flags)}." if best.flags else "")


def _share(e: "Estimate") -> str:
    """A fraction in percent."""
    return percent(e.value)


def _short(kernel: str) -> str:
    return kernel.partition("/")[2]


def lines(found: list[Ladder]) -> list[str]:
    """The ladders as text for a terminal."""
    out: list[str] = []
    for ladder in found:
        for problem in ladder.problems:
            out += ["", f"Ladder, {title(ladder)}, {problem_name(problem)}"]
            out += Table(HEADS, cells(ladder, problem)).text()
        out += ["", *(f"- {line}" for line in sentences(ladder))]
    return out
