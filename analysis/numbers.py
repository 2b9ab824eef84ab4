"""Numbers as sentences have them: of two or three digits, no more than their interval leaves."""

import math

from analysis.stats import Estimate, exact

_SPANS = ((86400.0, "days"), (3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def decimals(e: Estimate, most: int = 3) -> int:
    """The number of decimal places that a value is written with: down to the first digit of half its interval, but at least two
    and at most `most` significant digits. Negative: it is rounded to tens, hundreds ..."""
    if not e.value or not math.isfinite(e.value):
        return 0
    first = math.floor(math.log10(abs(float(f"{e.value:.{most - 1}e}"))))
    half = (e.high - e.low) / 2
    fewest = 1 - first
    if not math.isfinite(half):
        return fewest
    by_interval = -math.floor(math.log10(half)) if half else most
    return max(fewest, min(most - 1 - first, by_interval))


def rounded(value: float, places: int) -> str:
    """A number with so many decimal places and commas between thousands: `1,240`, `0.31`; negative places round to tens, hundreds
    ..."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    return f"{round(value, places) + 0.0:,.{max(0, places)}f}"


def number(e: Estimate | float, most: int = 3) -> str:
    """A value with no more digits than its interval leaves certain, `most` significant ones at most."""
    e = exact(e)
    return rounded(e.value, decimals(e, most))


def interval(e: Estimate, most: int = 3, space: str = " ") -> str:
    """`[17, 35]`: both ends with the decimal places that the value has. space: between the ends."""
    places = decimals(e, most)
    return f"[{rounded(e.low, places)},{space}{rounded(e.high, places)}]"


def _unit(seconds: float) -> tuple[float, str]:
    """(seconds, name) of the unit in which a time of so many seconds is written: (1e-3, "ms"). Minutes and weeks are not used."""
    about = abs(float(f"{seconds:.2e}"))
    if not about:
        return 1.0, "s"
    for size, unit in _SPANS:
        least = 2 * size if size > 1 else size  # `48 h`, not `2 days`
        if about >= least:
            return size, unit
    return _SPANS[-1]


def time(e: Estimate | float, with_interval: bool = False, space: str = " ") -> str:
    """A time: `21 s`; with_interval `21 s [17, 35]`; `at most 35 s` if it may be 0. space: between a number and its unit, and
    within the interval."""
    most = exact(e).high
    size, unit = _unit(exact(e).value or most)
    e = exact(e) / size
    if float(f"{e.low:.{max(0, decimals(e))}f}") <= 0 < most:
        size, unit = _unit(most)
        return f"at most {number(most / size, most=2)} {unit}"
    if with_interval and rounded(e.low, decimals(e)) != rounded(e.high, decimals(e)):
        return f"{number(e)}{space}{unit} {interval(e, space=space)}"
    return f"{number(e)} {unit}"


def timed(e: Estimate, space: str = " ") -> str:
    """A time with its interval, `21 s [17, 35]`; `at most 35 s` if it may be 0."""
    return time(e, with_interval=True, space=space)


def less_than(e: Estimate) -> float | None:
    """The upper end of a time that may be 0 and is at most half of that end, so that only "less than" it can be said; None for
    others."""
    return max(0.0, e.high) if e.low < 0 and e.value <= e.high / 2 else None


def factor(e: Estimate | float) -> str:
    """`3.2x`."""
    return f"{number(e, most=2)}x"


def gain(e: Estimate) -> str:
    """`3.2x [2.9, 3.4]`."""
    return f"{factor(e)} {interval(e)}" if e.low < e.high else factor(e)


def share(fraction: float) -> str:
    """`72 %`."""
    return f"{number(100 * fraction, most=2)} %"
