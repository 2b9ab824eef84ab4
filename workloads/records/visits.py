"""Joins the visits of a row (what it got in one round of a sweep, a line each in a result file) to one Measurement."""

import statistics
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from analysis import units
from workloads.records.rows import VISITS_AT, Fits, Measurement, Samples

SHORT_S = 30.0  # visits within so many seconds are of one moment of the host only


def joined(
    parts: Iterable[Samples], stop_reason: str = "", blocks: Iterable[int] | None = None, *, is_by_process: bool = False
) -> Samples:
    """Samples of one clock from several visits or processes. Each part becomes a block: intervals are over blocks.

    blocks: the number of each part's block, rising; None: 0, 1, 2, ... Blocks whose numbers are skipped are empty.
    stop_reason: why sampling ended, in words. is_by_process: whether each part was timed in another process.
    """
    parts = list(parts)
    numbers = list(range(len(parts)) if blocks is None else blocks)
    seconds: list[float] = []
    block_sizes = [0] * (numbers[-1] + 1)
    for number, part in zip(numbers, parts, strict=True):
        seconds += part.seconds
        block_sizes[number] = len(part.seconds)
    return Samples(
        clock=parts[0].clock,
        seconds=tuple(seconds),
        calls=parts[0].calls,
        block_sizes=tuple(block_sizes),
        stop_reason=stop_reason,
        is_by_process=is_by_process,
    )


def merged(parts: Sequence[Measurement], *, is_by_process: bool = True) -> Measurement:
    """One measurement of a row from the measurements of its parts, in their order; if a part is not ok, the first such part.

    Each part's samples become a block. A value is the median over the parts; a flag of any part is a flag of the row. Phases,
    seconds of what happens once in a process, become series (`import_s`) if several parts have them. Of other fields the newest
    counts.

    is_by_process: whether the parts are processes; else they are visits, whose blocks are numbered by their round.
    """
    for part in parts:
        if not part.ok:
            return replace(part, visit=0)
    fits: list[Fits] = []
    flags: list[str] = []
    notes: dict[str, str] = {}
    phases_s: dict[str, float] = {}
    check = ""
    max_error = None
    for number, part in enumerate(parts):
        fits += [replace(fit, process=number) for fit in part.fits]
        flags += part.flags
        notes |= part.notes
        check = part.check or check
        phases_s |= part.phases_s
        max_error = part.max_error if part.max_error is not None else max_error
    values = _values_by_name(part.values for part in parts)
    return replace(
        parts[-1],
        fits=tuple(fits),
        samples=_joined_by_clock(parts, is_by_process),
        phases_s=phases_s,
        values={name: statistics.median(numbers) for name, numbers in values.items()},
        series=_series(parts),
        flags=tuple(dict.fromkeys(flags)),
        check=check,
        max_error=max_error,
        notes=notes,
        visit=0,
    )


def _joined_by_clock(parts: Sequence[Measurement], is_by_process: bool) -> tuple[Samples, ...]:
    """The samples of the parts, joined for each clock; a part is the block of its round, else of its place among the parts."""
    by_clock: dict[str, dict[int, Samples]] = {}  # clock -> block -> samples
    for number, part in enumerate(parts):
        block = part.visit - 1 if part.visit else number
        for samples in part.samples:
            by_clock.setdefault(samples.clock, {})[block] = samples
    if is_by_process:
        stop_reason = units.count(len(parts), "process", "processes")
    else:
        stop_reason = units.count(len(parts), "visit", "visits")
    every: list[Samples] = []
    for by_block in by_clock.values():
        every.append(joined(by_block.values(), stop_reason, blocks=by_block.keys(), is_by_process=is_by_process))
    return tuple(every)


def _series(parts: Sequence[Measurement]) -> dict[str, tuple[float, ...]]:
    """Name -> numbers: the newest part's of each series; for a phase such as `import` that several parts have, `import_s` with a
    number of each; the ends of all visits."""
    series: dict[str, tuple[float, ...]] = {}
    visit_times_s: list[float] = []
    for part in parts:
        series |= part.series
        visit_times_s += part.series.get(VISITS_AT, ())
    for name, seconds in _values_by_name(part.phases_s for part in parts).items():
        if len(seconds) > 1:
            series[f"{name}_s"] = tuple(seconds)
    if VISITS_AT in series:
        series[VISITS_AT] = tuple(visit_times_s)
    return series


def together(visits: Sequence[Measurement]) -> Measurement:
    """One Measurement from the lines of a row in a result file: its visits in the order of their rounds, joined, or the last
    line, where that is of the row as a whole."""
    if not visits[-1].visit:
        return visits[-1]
    is_by_process = False
    for visit in visits:
        is_by_process = is_by_process or any(samples.is_by_process for samples in visit.samples)
    return merged(visits, is_by_process=is_by_process)


def span(m: Measurement) -> str:
    """How few seconds lie between a row's first and last visit, for a table: ` within 3 s`; "" where they are at least SHORT_S,
    and for a row without visits."""
    if m.span_s is None or m.span_s >= SHORT_S:
        return ""
    return f" within {max(m.span_s, 1):.0f} s"


def _values_by_name(parts: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    """Name -> its values in all parts that have it."""
    by_name: dict[str, list[float]] = {}
    for part in parts:
        for name, value in part.items():
            by_name.setdefault(name, []).append(value)
    return by_name
