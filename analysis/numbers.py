"""Numbers as sentences have them: of two or three digits, no more than their interval leaves."""

import math

from analysis.stats import Estimate, exact

_SPANS = ((86400.0, "days"), (3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def decimals(e: Estimate, most: int = 3) -> int:
    """Decimal places of a value, to the first digit of half its interval: two to `most` significant digits. Negative: tens."""
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
    """A number with so many decimal places, thousands apart: `1,240`, `0.31`; negative places round to tens."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    return f"{round(value, places) + 0.0:,.{max(0, places)}f}"


def number(e: Estimate | float, most: int = 3) -> str:
    """A number with the digits that its interval leaves."""
    e = exact(e)
    return rounded(e.value, decimals(e, most))


def interval(e: Estimate, most: int = 3, space: str = " ") -> str:
    """`[17, 35]`, with the places of its value."""
    places = decimals(e, most)
    return f"[{rounded(e.low, places)},{space}{rounded(e.high, places)}]"


def _unit(seconds: float) -> tuple[float, str]:
    """(its seconds, its name) of the unit in which a time is written."""
    about = abs(float(f"{seconds:.2e}"))
    if not about:
        return 1.0, "s"
    for size, unit in _SPANS:
        least = 2 * size if size > 1 else size  # `48 h`, not `2 days`
        if about >= least:
            return size, unit
    return _SPANS[-1]


def time(e: Estimate | float, with_interval: bool = False, space: str = " ") -> str:
    """`21 s`; `with_interval` `21 s [17, 35]`; a time that may be none: `at most 35 s`. `space`: between a number and its unit,
    and within the interval."""
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
    """`21 s [17, 35]`; `at most 35 s` where the interval reaches down to nothing."""
    return time(e, with_interval=True, space=space)


def less_than(e: Estimate) -> float | None:
    """The upper end of an interval that holds 0, if the value is at most half of it: the part is less than that. Else None."""
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
