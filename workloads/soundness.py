"""What may stand in a result file: finite numbers on the way in, what can have been measured on the way out."""

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from workloads.results import Measurement

STATUSES = ("ok", "skipped", "failed", "wrong")
# Seconds of a call, numbers of any unit, counts: nothing that was measured comes near.
_LONGEST_S, _LARGEST, _MOST = 1e9, 1e30, 1 << 60


def finite(m: "Measurement") -> "Measurement":
    """The measurement as it may be stored: JSON has no NaN, so a row with one has failed, and says where it was."""
    groups = {"phases_s": m.phases_s.items(), "values": m.values.items(), "max_error": [("", m.max_error or 0.0)]}
    numbers: list[tuple[str, tuple[float, ...]]] = [
        (f"{group} {name}", (number,)) for group, pairs in groups.items() for name, number in pairs
    ]
    numbers += [(f"series {name}", series) for name, series in m.series.items()] + [
        (s.clock, s.seconds) for s in m.samples
    ]
    bad = next((where for where, several in numbers if not all(map(math.isfinite, several))), None)
    if bad is None:
        return m
    why = f"{bad.strip()} is not a finite number" + (f"; {m.reason}" if m.reason else "")
    return type(m)(m.kernel, m.problem, m.settings, "failed", why, flags=m.flags, at=m.at)


def sound(line) -> bool:
    """Whether a line, a Run or a Measurement, says something that can have been measured; what decodes and does not came from
    elsewhere."""
    if not hasattr(line, "kernel"):
        return bool(line.machine.key)
    kernel, samples = line.kernel.split("/"), line.samples
    counts = [
        line.settings.reuse,
        line.settings.threads or 1,
        *(x for x in msgspec.structs.astuple(line.problem) if type(x) is int),
    ]
    return (
        len(kernel) == 3
        and all(kernel)
        and line.status in STATUSES
        and min(counts[:2]) >= 1
        and max(counts) < _MOST
        and len({s.clock for s in samples}) == len(samples)
        and all(
            len(s.seconds) == len(s.block) > 0 and s.calls > 0 and min(s.seconds) > 0 and max(s.seconds) < _LONGEST_S
            for s in samples
        )
        and all(abs(x) < _LARGEST for x in (*line.phases_s.values(), *line.values.values()))
    )
