"""Rows timed at several moments: one line a visit in a result file, one Measurement on reading."""

import statistics
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from analysis import units
from workloads.records.rows import VISITS_AT, Fits, Measurement, Samples

SHORT_S = 30.0  # visits within so many seconds are of one moment of the host only


def joined(
    parts: Iterable[Samples], reason: str = "", blocks: Iterable[int] | None = None, *, is_by_process: bool = False
) -> Samples:
    """Samples of one clock from several processes, visits or blocks. Each part becomes a block.

    blocks: the numbers of the blocks, rising; None: 0, 1, 2, ...
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
        stop_reason=reason,
        is_by_process=is_by_process,
    )


def merged(parts: Sequence[Measurement], *, is_by_process: bool = True) -> Measurement:
    """One measurement of a row from several parts, each a process or a visit; the first part that is not ok, if there is one.

    Each part is a block, so intervals are over visits (numbered by their round) or processes. Values are the median of the
    parts', flags those of any. Phases, once a process, become series (`import_s`). Fits keep the number of their process. Of
    all other fields the newest value counts.
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
    values = _listed(part.values for part in parts)
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
    """The samples of the parts, those of each clock joined."""
    by_clock: dict[str, dict[int, Samples]] = {}
    for number, part in enumerate(parts):
        block = part.visit - 1 if part.visit else number
        for samples in part.samples:
            by_clock.setdefault(samples.clock, {})[block] = samples
    names = ("process", "processes") if is_by_process else ("visit", "visits")
    reason = units.count(len(parts), *names)
    every = []
    for blocks in by_clock.values():
        every.append(joined(blocks.values(), reason, blocks, is_by_process=is_by_process))
    return tuple(every)


def _series(parts: Sequence[Measurement]) -> dict[str, tuple[float, ...]]:
    """The newest of each series, phases of several parts as series, and the end of every visit."""
    series: dict[str, tuple[float, ...]] = {}
    visit_times_s: list[float] = []
    for part in parts:
        series |= part.series
        visit_times_s += part.series.get(VISITS_AT, ())
    for name, seconds in _listed(part.phases_s for part in parts).items():
        if len(seconds) > 1:
            series[f"{name}_s"] = tuple(seconds)
    if VISITS_AT in series:
        series[VISITS_AT] = tuple(visit_times_s)
    return series


def together(visits: Sequence[Measurement]) -> Measurement:
    """One Measurement from the lines of a row: a whole one, or its visits in their order."""
    if not visits[-1].visit:
        return visits[-1]
    is_by_process = False
    for visit in visits:
        is_by_process = is_by_process or any(samples.is_by_process for samples in visit.samples)
    return merged(visits, is_by_process=is_by_process)


def span(m: Measurement) -> str:
    """The seconds within which a row was visited, for a table: ` within 3 s`; "" from SHORT_S on and without visits."""
    return f" within {max(m.span_s, 1):.0f} s" if m.span_s is not None and m.span_s < SHORT_S else ""


def _listed(parts: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    """Name -> its values in all parts that have it."""
    by_name: dict[str, list[float]] = {}
    for part in parts:
        for name, value in part.items():
            by_name.setdefault(name, []).append(value)
    return by_name
