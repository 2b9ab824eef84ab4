"""Sizes to measure next, so that each crossing lies between two neighboring sizes that differ by little."""

import itertools
import math
from collections.abc import Iterable

from analysis.crossover.answer import FINE, Answer


def refine(answer: Answer, sizes: Iterable[int] = ()) -> list[int]:
    """Sizes to measure next: one between each two neighboring sizes that differ by more than FINE (5 %) and in their winner.

    A size at which the winner cannot be told stays as it is, and none is tried twice. `sizes`: sizes that were measured in other
    forms of call, which are preferred if they lie near the geometric mean. Call it again with the answer that includes them
    until it returns [].
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
    """A size near the geometric mean of two sizes: a `known` one in the middle third between them (in the logarithm), else the
    mean rounded to a multiple of a power of two that is at most a quarter of the gap. None if nothing fits."""
    mean = math.sqrt(smaller * larger)
    sixth_of_gap = math.log(larger / smaller) / 6
    near = [n for n in known if abs(math.log(n / mean)) < sixth_of_gap]
    if near:
        return min(near, key=lambda n: abs(math.log(n / mean)))
    largest_step = max(1, min((larger - smaller) / 4, mean))
    step = 2 ** max(0, int(math.log2(largest_step)))
    n = round(mean / step) * step
    return n if smaller < n < larger else None
