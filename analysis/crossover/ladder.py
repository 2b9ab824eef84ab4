"""The ladder: our own kernels that teach, from three plain loops upward, each a rung that adds one idea. Their speed is compared
with the rung before, the fastest library and the measured peak."""

import itertools

import msgspec

from analysis.crossover.families import MANY_IN_ONE, is_rung
from analysis.crossover.layers import is_square
from analysis.labels import shape, short
from analysis.roofline.bounds import measured_roof
from analysis.roofline.roofs import Roof, Roofs
from analysis.stats import MIN_EFFECT, Estimate, best_by, call_s, group_by, quick_seconds, seconds_of
from analysis.table import Table
from analysis.units import count, digits, flops_rate, join, percent
from kernels import registry
from kernels.problems import Problem
from workloads import terminal
from workloads.records import Measurement, Measurements

# Kernel whose only idea is to share loops among threads -> the kernel with the same loops on one thread.
_THREADED = {"matmul/numba/parallel": "numba/reordered"}
# A share of the peak above which a measurement must have been disturbed: no kernel is faster than the hardware.
_MOST_PEAK_SHARE = 1.05
SHARES = "of the library | of the peak | over the best before | bytes a FLOP"
HEADS = f"rung | rate | {SHARES}"
_TEMPLATES = {
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


class RungStep(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of a rung (one of the kernels that teach) at one problem."""

    #: Name of its kernel.
    kernel: str
    #: The problem.
    problem: Problem
    #: Seconds of a call.
    seconds: Estimate
    #: Its speed as a fraction of the library's; None without a library.
    library_share: Estimate | None
    #: Its speed as a fraction of the peak; None without a peak.
    peak_share: Estimate | None
    #: Speedup over the fastest rung before it at this problem; None without one.
    over_before: Estimate | None
    #: Kernel of that rung.
    before: str = ""
    #: The tiles that it chose, in words.
    tiles: str = ""
    #: Bytes for a FLOP that these tiles read of each memory level, in words.
    traffic: str = ""
    #: What disturbed its row or the library's.
    flags: tuple[str, ...] = ()


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """The measured kernels that teach (rungs), on one device in one arithmetic with one number of threads."""

    #: The operation: matmul or conv.
    op: str
    #: cpu, gpu:0, ...
    device: str
    #: The arithmetic.
    math: str
    #: Threads of the CPU; None on a GPU.
    threads: int | None
    #: Kernel -> its idea, the simplest first.
    ideas: dict[str, str]
    #: Every rung at every problem where it has a time: problem by problem, the smallest first, in the order of `ideas`.
    steps: tuple[RungStep, ...]
    #: Problem -> the fastest library's row.
    library: dict[Problem, Measurement]
    #: The measured peak of the device in that arithmetic.
    peak: Roof | None
    #: A rung that has rows, a problem where it has none, and why.
    skipped: tuple[tuple[str, Problem, str], ...]

    @property
    def problems(self) -> "list[Problem]":
        return list(dict.fromkeys(step.problem for step in self.steps))

    @property
    def rungs(self) -> int:
        """Number of rungs that have a time."""
        return len({step.kernel for step in self.steps})

    def at(self, problem: Problem) -> list[RungStep]:
        return [step for step in self.steps if step.problem == problem]


def ladders(measurements: Measurements, roofs: Roofs, op: str = "matmul") -> list[Ladder]:
    """The measured kernels that teach an operation ("matmul" or "conv"): a Ladder for each device, arithmetic and number of
    threads. One with a single kernel is left out if the same arithmetic has longer ones.

    roofs: the measured peaks of the devices.
    """
    warm = ("resident", "warm", "warm")
    rows = [m for m in measurements if m.problem.op == op and (m.mode, m.settings.cache, m.process) == warm]
    stored_ideas = {m.kernel: m.notes["idea"] for m in rows if "idea" in m.notes}
    in_order = dict.fromkeys((*registry.ladder(op), *stored_ideas))
    ideas = {kernel: stored_ideas[kernel] for kernel in in_order if kernel in stored_ideas}
    devices = {m.device for m in rows if is_rung(m) and m.kernel in ideas and quick_seconds(m)}
    compared = [m for m in rows if m.device in devices and (m.backend in registry.WRITTEN_HERE or _is_library(m))]
    by_math: dict[tuple[str, str], list[Ladder]] = {}
    for group in sorted(group_by(compared, _ladder_key).values(), key=_ladder_order):
        ladder = _ladder(ideas, group, roofs)
        if ladder.steps:
            by_math.setdefault((ladder.device, ladder.math), []).append(ladder)
    chosen = []
    for alternatives in by_math.values():
        longer = [ladder for ladder in alternatives if ladder.rungs > 1]
        chosen += longer or alternatives
    return chosen


def _ladder_key(m: Measurement) -> tuple[str, str, int | None]:
    """(device, arithmetic, threads): rows that share it are compared in one ladder."""
    return m.device, m.problem.math, m.threads


def _ladder_order(rows: list[Measurement]) -> tuple:
    """Sort key of a ladder's rows: CPUs first, float32 first, few threads first."""
    m = rows[0]
    return m.on_gpu, m.problem.math != "float32", m.problem.math, m.threads or 0


def _is_onednn(m: Measurement) -> bool:
    """Whether a row is a single convolution by oneDNN, the CPU's library of convolutions, which TensorFlow calls."""
    is_framework = m.problem.op == "conv" and m.backend == "tensorflow"
    return is_framework and not m.on_gpu and m.kernel != MANY_IN_ONE


def _is_library(m: Measurement) -> bool:
    """Whether a row was computed by a vendor's or public library, not by a kernel written here."""
    return _is_onednn(m) or m.backend in registry.LIBRARIES


def _ladder(ideas: dict[str, str], rows: list[Measurement], roofs: Roofs) -> Ladder:
    """The ladder of rows that all have one device, arithmetic and number of threads.

    ideas: kernel that teaches -> its idea, the simplest first.
    """
    device, math, threads = _ladder_key(rows[0])
    peak = measured_roof(roofs, device, "compute", math, threads=threads)
    rungs = {(m.problem, m.kernel): m for m in rows if m.kernel in ideas}
    libraries = [m for m in rows if m.kernel not in ideas and quick_seconds(m) and _is_library(m)]
    library = best_by(libraries, lambda m: m.problem, call_s)
    steps: list[RungStep] = []
    problems = {problem for problem, _ in rungs}
    for problem in sorted(problems, key=lambda problem: (problem.flops, repr(problem))):
        simplest_first = [rungs[problem, kernel] for kernel in ideas if (problem, kernel) in rungs]
        steps += _steps(simplest_first, library.get(problem), peak)
    kernels = {step.kernel for step in steps}
    without_row = [m for m in rungs.values() if m.kernel in kernels and not m.ok]
    return Ladder(
        op=rows[0].problem.op,
        device=device,
        math=math,
        threads=threads,
        ideas=ideas,
        steps=tuple(steps),
        library=library,
        peak=peak,
        skipped=tuple((m.kernel, m.problem, m.reason or m.status) for m in without_row),
    )


def _steps(rungs: list[Measurement], library: Measurement | None, peak: Roof | None) -> list[RungStep]:
    """The speeds at one problem of the kernels that teach, each with its speedup over the fastest simpler one.

    rungs: a row of each kernel, the simplest first; those without a time are skipped. library: the fastest library's row.
    """
    steps: list[RungStep] = []
    fastest: RungStep | None = None
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


def _step(m: Measurement, seconds: Estimate, library: Measurement | None, peak: Roof | None) -> RungStep:
    """The speed of one kernel as shares of the fastest library's and of the peak, as if no kernel came before it.

    seconds: of a call of the kernel, from its row `m`.
    """
    library_s = seconds_of(library) if library else None
    flags = m.flags + (library.flags if library else ())
    return RungStep(
        kernel=m.kernel,
        problem=m.problem,
        seconds=seconds,
        library_share=library_s / seconds if library_s else None,
        peak_share=m.problem.flops / peak.rate / seconds if peak else None,
        over_before=None,
        tiles=m.notes.get("tiles", ""),
        traffic=m.notes.get("traffic", ""),
        flags=tuple(dict.fromkeys(flags)),
    )


def title(ladder: Ladder) -> str:
    """`cpu, 1 thread, float32`."""
    words = [ladder.device]
    if ladder.threads:
        words.append(count(ladder.threads, "thread"))
    return ", ".join([*words, ladder.math])


def problem_name(problem: Problem) -> str:
    """`n = 1,024`, or the shape."""
    return f"n = {problem.n:,}" if is_square(problem) else shape(problem)


def numbers(ladder: Ladder) -> list[tuple[str, ...]]:
    """Table rows for all problems: the problem's name, then the cells under HEADS of each kernel, the library's last."""
    rows = []
    for problem in ladder.problems:
        rows += [(problem_name(problem), *row) for row in cells(ladder, problem)]
    return rows


def cells(ladder: Ladder, problem: Problem) -> list[tuple[str, ...]]:
    """Table rows for one problem: the cells under HEADS of each kernel that teaches, then of the fastest library."""
    rows = [_rung_cells(step) for step in ladder.at(problem)]
    library = ladder.library.get(problem)
    if library is not None:
        rate = problem.flops / call_s(library)
        peak_share = percent(rate / ladder.peak.rate.value) if ladder.peak else "-"
        rows.append((f"library: {library.label}", flops_rate(rate), percent(1), peak_share, "-", "-"))
    return rows


def _rung_cells(step: RungStep) -> tuple[str, ...]:
    """The cells of a kernel in a table with the columns HEADS (name, rate, share of the library, share of the peak, speedup over
    the best before, bytes for a FLOP); `-` where there is no number. Bytes for a FLOP are those of memory, then those that the
    kernel's tiles read of each cache, in words."""
    problem = step.problem
    speedup = f"{digits(step.over_before.value)}x" if step.over_before else "-"
    traffic = "-"
    if step.traffic:
        traffic = f"{digits(problem.bytes_moved / problem.flops)} memory, {step.traffic}"
    return (
        short(step.kernel),
        flops_rate(problem.flops / step.seconds.value),
        _share(step.library_share),
        _share(step.peak_share),
        speedup,
        traffic,
    )


def _share(fraction: Estimate | None) -> str:
    return "-" if fraction is None else percent(fraction.value)


def shown_problem(ladder: Ladder) -> Problem:
    """The problem that best shows what the kernels' ideas gain: the largest at which at most one of them was not measured, if
    possible one with a library's row. Small problems hide an idea."""
    most = max(len(ladder.at(problem)) for problem in ladder.problems)
    nearly_all = [problem for problem in ladder.problems if len(ladder.at(problem)) >= most - 1]
    return max(nearly_all, key=lambda problem: (problem in ladder.library, problem.flops))


def clearest_steps(ladder: Ladder) -> list[RungStep]:
    """For each kernel that teaches, its speed at the problem that shows its idea best, the simplest kernel first."""
    by_kernel = group_by(ladder.steps, lambda step: step.kernel)

    def clarity(step: RungStep) -> tuple:
        """Sort key: a problem with a simpler kernel to compare with, then a large one, as small problems hide an idea; of one
        magnitude, one with a library's row."""
        return (
            step.over_before is not None,
            _magnitude(step.problem),
            step.problem in ladder.library,
            step.problem.flops,
        )

    return [max(by_kernel[kernel], key=clarity) for kernel in ladder.ideas if kernel in by_kernel]


def _magnitude(problem: Problem) -> int:
    """Number of decimal digits of the problem's FLOPs."""
    return len(str(problem.flops))


def sentences(ladder: Ladder) -> list[str]:
    """Sentences on a ladder: for each kernel its speedup over the fastest simpler one and its idea; the fastest kernel as a share
    of the library and of the peak; and the kernels that have no row at some problem."""
    steps = clearest_steps(ladder)
    lines = [_gain_sentence(step, ladder) for step in steps]
    by_size = sorted(ladder.problems, key=lambda problem: (_magnitude(problem), problem in ladder.library))
    for problem in dict.fromkeys((steps[-1].problem, by_size[-1])):
        lines.append(best_sentence(ladder, problem))
    for kernel, problem, reason in ladder.skipped:
        lines.append(_TEMPLATES["no row"].format(rung=short(kernel), at=problem_name(problem), reason=reason))
    has_onednn = any(_is_onednn(m) for m in ladder.library.values())
    if ladder.op == "conv" and ladder.device == "cpu" and not has_onednn:
        lines.append(_TEMPLATES["oneDNN"])
    return lines


def _gain_sentence(step: RungStep, ladder: Ladder) -> str:
    """A sentence on how much faster a kernel is than the fastest simpler one, and its idea. If it is slower, a second sentence
    has its largest speedup over the kernel just before it, at the problem where that is."""
    gain = step.over_before
    words = {
        "rung": short(step.kernel),
        "before": short(step.before),
        "why": _idea_words(step, ladder),
        "at": problem_name(step.problem),
    }
    if gain is None:
        return _TEMPLATES["first"].format(rate=flops_rate(step.problem.flops / step.seconds.value), **words)
    if gain.low > 1 + MIN_EFFECT:
        return _TEMPLATES["faster"].format(times=digits(gain.value), **words)
    if gain.high >= 1 - MIN_EFFECT:
        return _TEMPLATES["same"].format(**words)
    slower = _TEMPLATES["slower"].format(times=digits(1 / gain.value), **words)
    before, most = _largest_gain(step.kernel, ladder)
    if most.low <= 1 + MIN_EFFECT:
        return slower
    pays = _TEMPLATES["pays"].format(
        times=digits(most.value), before=short(before.kernel), at=problem_name(before.problem)
    )
    return slower + pays


def _largest_gain(kernel: str, ladder: Ladder) -> tuple[RungStep, Estimate]:
    """(speed of the next simpler kernel, speedup of `kernel` over it), at the problem where that speedup is largest."""
    gains = []
    for before, step in itertools.pairwise(ladder.steps):
        if step.kernel == kernel and step.problem == before.problem:
            gains.append((before, before.seconds / step.seconds))
    return max(gains, key=lambda pair: pair[1].value)


def _idea_words(step: RungStep, ladder: Ladder) -> str:
    """A kernel's idea and the tile sizes that it chose; for a kernel whose only idea is threads, measured on one thread, a note
    that nothing was shared out."""
    if ladder.threads == 1 and step.kernel in _THREADED:
        return _TEMPLATES["one thread"].format(loops=_THREADED[step.kernel])
    return ladder.ideas[step.kernel] + (f" Its tiles: {step.tiles}." if step.tiles else "")


def best_sentence(ladder: Ladder, problem: Problem) -> str:
    """Sentences on the fastest of the kernels that teach at a problem, as a share of the library's speed and of the peak, and on
    what makes its measurement doubtful."""
    best = min(ladder.at(problem), key=lambda step: step.seconds.value)
    shares = []
    if best.library_share:
        shares.append(f"{percent(best.library_share.value)} of {ladder.library[problem].label}")
    if best.peak_share:
        shares.append(f"{percent(best.peak_share.value)} of the measured peak")
    reached = " and ".join(shares) or flops_rate(problem.flops / best.seconds.value)
    lines = [_TEMPLATES["standing"].format(at=problem_name(problem), rung=short(best.kernel), reached=reached)]
    if best.peak_share and best.peak_share.value > _MOST_PEAK_SHARE:
        lines.append(_TEMPLATES["beyond"])
    if best.flags:
        lines.append(_TEMPLATES["flagged"].format(flags=join(best.flags)))
    return " ".join(lines)


def lines(ladders: list[Ladder]) -> list[str]:
    """Terminal lines: a table for each ladder and problem, and the sentences of each ladder after its tables."""
    lines: list[str] = []
    for ladder in ladders:
        for problem in ladder.problems:
            lines += ["", f"Ladder, {title(ladder)}, {problem_name(problem)}"]
            lines += Table(HEADS, cells(ladder, problem), optional=SHARES).text()
        lines.append("")
        lines += [terminal.Line(sentence, label="- ") for sentence in sentences(ladder)]
    return lines
