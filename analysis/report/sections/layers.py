"""Convolutions, and products of dense layers and other shapes: their sections of the page."""

from analysis.blocks import Block, Heading, Paragraph, listed, tabled, titled
from analysis.crossover import layers
from analysis.crossover.crossover import LATENCY, Answer
from analysis.crossover.families import rows_of
from analysis.crossover.layers import NOUNS
from analysis.crossover.time_split import Why, why
from analysis.labels import short
from analysis.report.charts.crossover import answered, wins
from analysis.report.layers import HEADINGS, Layers
from analysis.report.sections import crossings
from analysis.table import Table, named
from analysis.text import answers
from analysis.units import digits, flops_rate, percent, seconds

_MOST_SAID = 8
_TIMES = "slowdown, median"


def section(of: Layers) -> list[Block]:
    """The section: where the GPU wins, and the effect of frameworks, cold caches and precisions; [] without rows."""
    if not of.rows:
        return []
    sentences = [*layers.rate_sentences(of.rows, of.op, of.roofs), *of.won]
    return [*listed(sentences), *_totals_table(of), *_crossings(of), *_ratios(of), *_arithmetic(of)]


def _totals_table(of: Layers) -> list[Block]:
    """The summed times of a step's layers, a line a network, batch and precision."""
    sides = sorted({side for _, total in of.totals for side in total.seconds} - {"CPU", "GPU"})
    rows = [
        (
            model,
            total.math,
            total.batch,
            " ".join(total.directions),
            total.works,
            digits(total.flops / 1e9),
            *(seconds(total.seconds[side]) if side in total.seconds else "-" for side in ("CPU", "GPU", *sides)),
        )
        for model, total in of.totals
        if total.seconds
    ]
    measured = ("CPU", "GPU, resident", *sides)
    heads = (*named(f"network | precision | batch | directions | {NOUNS[of.op]}s | GFLOP"), *measured)
    says = "All of them in one step, each as often as it occurs: the fastest kernel each, one call at a time."
    return [Paragraph(text=says), *tabled(Table(heads, rows, 2, measured))] if rows else []


def _crossings(of: Layers) -> list[Block]:
    """The answers: the first sentences, all of them in a table, and where the GPU's time goes."""
    told = answered(of.answers)
    if not told:
        return [Paragraph(text="The GPU has no rows of these, so there is no crossover.")] if of.answers else []
    blocks: list[Block] = [Heading(text=f"{HEADINGS[of.op]}: where the GPU wins")]
    first = [a for a in told if a.form == LATENCY and a.precision == told[0].precision]
    each = first if len(first) <= _MOST_SAID else ()
    blocks += listed([*answers.summaries(told), *map(answers.sentence, each)])

    def whys(a: Answer) -> tuple[Why, ...]:
        return why(rows_of(of.rows, a.family), a) if a.form == LATENCY else ()

    left = [a for a in told if a.family.varies not in of.drawn]
    blocks += tabled(wins(left, of.heads, of.which))
    blocks += listed(crossings.gaps(told, of.which))
    return blocks + crossings.details(told, whys, of.heads, of.which)


def _ratios(of: Layers) -> list[Block]:
    """Tables of slowdowns: a framework beside the best library, cold beside warm."""
    one = NOUNS[of.op]
    framework = [c for c in layers.against_library(of.rows, of.op) if c[0].settings.cache == "warm"]
    beside = f"Slowdown of a {one} beside the best library's call.", framework
    cold = "Slowdown of a call from cold caches.", layers.cold_and_warm(of.rows, of.op)
    heads = f"device | precision | by | at | {one}s | {_TIMES} | least | most"
    blocks: list[Block] = []
    for title, (says, compared) in (("what a framework's way costs", beside), ("cold beside warm", cold)):
        rows = [
            (device, math, short(kernel), size, s.problems, *map(digits, (s.median, s.least, s.most)))
            for (device, _, math, kernel, _, size), s in layers.by_size(compared).items()
        ]
        blocks += titled(f"{HEADINGS[of.op]}: {title}", says, Table(heads, rows, 4))
    return blocks


def _arithmetic(of: Layers) -> list[Block]:
    """A table of each backend's rate by precision and alignment; [] for fewer than two lines."""
    rows = [
        (
            a.device,
            a.backend,
            a.math,
            layers.aligned(a.alignment),
            a.rate.problems,
            flops_rate(a.rate.median),
            flops_rate(a.rate.most),
            a.share.words(percent) if a.share else "-",
            a.speedup.words() if a.speedup else "-",
        )
        for a in layers.arithmetic(of.rows, of.op, of.roofs)
    ]
    if len(rows) < 2:
        return []
    one, shares = NOUNS[of.op], "of the roof | speedup over float32"
    sizes = "channels" if of.op == "conv" else "sizes"
    heads = f"device | backend | precision | {sizes} | {one}s | rate, median | best | {shares}"
    says = (
        f"Each {one} at the largest batch that all precisions of its backend were measured at. "
        "float32 is without TF32, tf32 with it."
    )
    return titled(f"{HEADINGS[of.op]}: precision and alignment", says, Table(heads, rows, 4, shares))
