"""The articles' claims beside what was measured here, a sentence each."""

from collections.abc import Iterable

from analysis.explain.published import Comparison, comparisons
from analysis.stats import Estimate
from analysis.text import sentences as say
from analysis.text.training import way_word
from workloads.records import Measurement

NOT_MEASURED = "not measured"
_SIDES = {"cpu": "CPU", "gpu": "GPU"}


def compared(c: Comparison) -> str:
    """`GPU 3.4x faster (fit)`."""
    return f"{say.faster_by(c.cpu, c.gpu)} ({way_word(c.row)})" if c.cpu and c.gpu and c.row else NOT_MEASURED


def picked(found: Iterable[Comparison]) -> list[Comparison]:
    """One comparison a claim: a bare loop where the article trained by one, and the fastest GPU of these."""
    best: dict = {}
    for c in found:
        own = best.get((c.case.name, c.claim.samples))
        rank = (c.here is not None, c.is_loop == c.case.loop, -c.gpu.value if c.gpu else 0.0)
        if own is None or rank > own[0]:
            best[c.case.name, c.claim.samples] = (rank, c)
    return [c for _, c in best.values()]


def sentence(c: Comparison) -> str:
    """A claim and ours beside it."""
    return f"{say.title(c.case.model)}, {c.claim.samples:,} samples: published {c.claim.words}; here {compared(c)}."


def lines(measurements: Iterable[Measurement]) -> list[str]:
    """Every claim that rows have something to say about."""
    return [sentence(c) for c in picked(comparisons(measurements)) if c.here]


def gain_words(e: Estimate) -> str:
    """`9.1x [8.8, 9.4]`."""
    return f"{say.factor(e)} {say.interval(e)}" if e.low < e.high else say.factor(e)
