"""Sizes to measure next, so that each crossing lies between two neighboring sizes that differ by little."""

import itertools
import math
from collections.abc import Iterable

from analysis.crossover.answer import FINE, Answer


def refine(answer: Answer, sizes: Iterable[int] = ()) -> list[int]:
    """Sizes to add so that each crossing's bracket becomes <= 5 % wide; none inside a can't-tell band.

    Never a size that this form tried already, with or without a time. `sizes`: those measured for other forms, taken
    where one lies near the geometric mean. Call it again with the answer that they give; [] is the end.
    """
    untried = set(sizes) - set(answer.tried)
    added = set()
    for crossing in answer.crossings:
        if crossing.fine:
            continue
        bracket = [point for point in answer.points if crossing.below <= point.n <= crossing.above]
        for smaller, larger in itertools.pairwise(bracket):
            if larger.n / smaller.n > FINE and smaller.sign != larger.sign:
                n = _size_between(smaller.n, larger.n, untried)
                if n is not None and n not in answer.tried:
                    added.add(n)
    return sorted(added)


def _size_between(smaller: int, larger: int, known: set[int]) -> int | None:
    """The geometric mean, as a multiple of a power of two of at most a quarter of the gap; None if nothing fits.

    A known size in the middle third (in the logarithm) is as good.
    """
    mean = math.sqrt(smaller * larger)
    sixth = math.log(larger / smaller) / 6
    near = [n for n in known if abs(math.log(n / mean)) < sixth]
    if near:
        return min(near, key=lambda n: abs(math.log(n / mean)))
    most = max(1, min((larger - smaller) / 4, mean))
    step = 2 ** max(0, int(math.log2(most)))
    n = round(mean / step) * step
    return n if smaller < n < larger else None
