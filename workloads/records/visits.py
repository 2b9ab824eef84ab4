"""Rows timed at several moments: one line a visit in a result file, one Measurement on reading."""

import statistics
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from analysis import units
from workloads.records.rows import VISITS_AT, Measurement, Samples

SHORT_S = 30.0  # visits within so many seconds saw the host at one moment only


def joined(
    parts: Iterable[Samples], reason: str = "", blocks: Iterable[int] | None = None, *, is_by_process: bool = False
) -> Samples:
    """Samples of one clock from several processes, visits or blocks, each a block of its own, numbered from 0 or as given:
    numbers rise."""
    parts = list(parts)
    numbers = list(range(len(parts)) if blocks is None else blocks)
    seconds = tuple(s for part in parts for s in part.seconds)
    block_sizes = [0] * (numbers[-1] + 1)
    for number, part in zip(numbers, parts, strict=True):
        block_sizes[number] = len(part.seconds)
    return Samples(
        clock=parts[0].clock,
        seconds=seconds,
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
    bad = next((m for m in parts if not m.ok), None)
    if bad:
        return replace(bad, visit=0)
    names = ("process", "processes") if is_by_process else ("visit", "visits")
    reason = units.count(len(parts), *names)
    clocks = dict.fromkeys(s.clock for m in parts for s in m.samples)
    taken = {c: {m.visit - 1 if m.visit else i: s for i, m in enumerate(parts) if (s := m.on(c))} for c in clocks}
    phases, values = (_listed(getattr(m, name) for m in parts) for name in ("phases_s", "values"))
    series = {name: seconds for m in parts for name, seconds in m.series.items()}
    series |= {f"{name}_s": tuple(own) for name, own in phases.items() if len(own) > 1}
    if VISITS_AT in series:
        series[VISITS_AT] = tuple(at for m in parts for at in m.series.get(VISITS_AT, ()))
    fits = []
    for number, m in enumerate(parts):
        fits += [replace(of_process, process=number) for of_process in m.fits]
    return replace(
        parts[-1],
        fits=tuple(fits),
        samples=tuple(joined(own.values(), reason, own, is_by_process=is_by_process) for own in taken.values()),
        phases_s={name: own[-1] for name, own in phases.items()},
        values={name: statistics.median(own) for name, own in values.items()},
        series=series,
        flags=tuple(dict.fromkeys(flag for m in parts for flag in m.flags)),
        check=next((m.check for m in reversed(parts) if m.check), ""),
        max_error=next((m.max_error for m in reversed(parts) if m.max_error is not None), None),
        notes={name: text for m in parts for name, text in m.notes.items()},
        visit=0,
    )


def together(visits: Sequence[Measurement]) -> Measurement:
    """One Measurement from the lines of a row: a whole one, or its visits in the order they were made."""
    if not visits[-1].visit:
        return visits[-1]
    by_process = [any(samples.is_by_process for samples in m.samples) for m in visits]
    return merged(visits, is_by_process=any(by_process))


def span(m: Measurement) -> str:
    """The seconds within which a row's visits were made, for a table: ` within 3 s`; "" from SHORT_S on and without visits."""
    return f" within {max(m.span_s, 1):.0f} s" if m.span_s is not None and m.span_s < SHORT_S else ""


def _listed(parts: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    """Name -> its values in all parts that have it."""
    found: dict[str, list[float]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, []).append(value)
    return found
