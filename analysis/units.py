"""Numbers as people read them: three significant digits and a unit; GB/s = 1e9 bytes a second."""

import math
from typing import TYPE_CHECKING

from analysis.metrics import VALUES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernels.problems import Problem

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def digits(value: float, most: int = 3) -> str:
    """A number with `most` significant digits and no exponent: 131, 24.1, 0.00123, 771000."""
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.{most - 1}e}")
    if rounded == 0:
        return "0"
    return f"{rounded:.{max(0, most - 1 - math.floor(math.log10(abs(rounded))))}f}"


def _rounded(value: float) -> float:
    """A number rounded to three significant digits."""
    return float(f"{value:.2e}")


def _trimmed(value: float) -> str:
    """Three significant digits without zeros at the end of decimal places: 131, 24, 0.00123."""
    rounded = _rounded(value)
    places = 0
    while round(rounded, places) != rounded:
        places += 1
    return f"{rounded:.{places}f}"


def _time_unit(value: float) -> tuple[float, str]:
    """(seconds, name) of the unit in which a time of so many seconds is written: (1e-3, "ms")."""
    return next(((s, u) for s, u in _TIMES if abs(_rounded(value)) >= s), _TIMES[-1]) if value else (1.0, "s")


def seconds(value: float) -> str:
    """A time in s, ms, µs or ns; with a minus where it is taken off."""
    size, unit = _time_unit(value)
    return f"{digits(value / size)} {unit}"


def _flops_unit(value: float) -> tuple[float, str]:
    """(FLOP/s, name) of the unit in which a rate of so many FLOP/s is written."""
    return (1e12, "TFLOP/s") if _rounded(value) >= 1e12 else (1e9, "GFLOP/s")


def flops_rate(value: float) -> str:
    """A rate of arithmetic in GFLOP/s, from 1e12 on in TFLOP/s."""
    size, unit = _flops_unit(value)
    return f"{digits(value / size)} {unit}"


def bytes_rate(value: float) -> str:
    """A bandwidth in GB/s (1e9)."""
    return f"{digits(value / 1e9)} GB/s"


def rate(problem: "Problem", seconds: float) -> str:
    """The rate of a call of so many seconds: FLOPs a second or bytes a second, whichever is usual for the problem; "-" if it
    counts neither."""
    work = getattr(problem, problem.rated)  # `rated` is "flops" or "bytes_moved"
    if not work:
        return "-"
    return flops_rate(work / seconds) if problem.rated == "flops" else bytes_rate(work / seconds)


def written(value: float, unit: str) -> str:
    """A number in one of the units of METRICS, as people read it: 1.41 GHz, 697 W, 24.0 ms. A ratio or a count has no unit."""
    if unit == "s":
        return seconds(value)
    if unit == "byte":
        return size(value)
    if unit == "FLOP/s":
        return flops_rate(value)
    if unit == "byte/s":
        return bytes_rate(value)
    if unit == "Hz":
        return f"{digits(value / 1e9)} GHz"
    if unit == "count":
        return f"{value:,.0f}"
    if unit in ("W", "J"):
        return f"{digits(value)} {unit}"
    return digits(value)


def tick(value: float, unit: str) -> str:
    """A number in one of the units of METRICS, as beside an axis: like `written`, but without zeros at the end of decimal
    places."""
    if unit == "count":
        return written(value, unit)
    units = {
        "s": _time_unit(value),
        "byte": _bytes_unit(value),
        "FLOP/s": _flops_unit(value),
        "byte/s": (1e9, "GB/s"),
        "Hz": (1e9, "GHz"),
    }
    size, name = units.get(unit, (1.0, unit if unit in ("W", "J") else ""))
    number = _trimmed(value / size)
    return f"{number} {name}" if name else number


def metric(key: str, value: float) -> str:
    """A number of a row's `values` by its key, with its unit: 1.41 GHz."""
    return written(value, VALUES[key].unit)


def percent(fraction: float) -> str:
    """A fraction in percent: 0.824 is `82.4 %`."""
    return "<0.01 %" if 0 < fraction < 1e-4 else f"{digits(100 * fraction)} %"


def change(fraction: float, places: int = 1) -> str:
    """A relative change with its sign: 0.07 is `+7.0 %`."""
    return f"{100 * fraction:+.{places}f} %"


def _bytes_unit(count: float) -> tuple[float, str]:
    """(bytes, name) of the unit in which so many bytes are written."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return 1024.0**power, unit
    return 1.0, "bytes"


def size(count: float) -> str:
    """So many bytes in the largest of KiB, MiB and GiB of which they are at least one."""
    nbytes, unit = _bytes_unit(count)
    return f"{count:.0f} bytes" if nbytes == 1 else f"{digits(count / nbytes)} {unit}"


def count(number: int, one: str, many: str = "") -> str:
    """A number and its noun: `2 rows`, `1 row`. many: the plural, if it is not `one` and an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def join(words: "Iterable[str]") -> str:
    """`a, b and c`; "" of nothing."""
    words = list(words)
    if not words:
        return ""
    *first, last = words
    return " and ".join(filter(None, (", ".join(first), last)))
