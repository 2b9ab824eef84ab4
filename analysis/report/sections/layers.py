"""Convolutions, and products of dense layers and other shapes: their sections of the page."""

from analysis.blocks import Block, Heading, Paragraph, listed, tabled, titled
from analysis.crossover import layers
from analysis.crossover.answer import Answer
from analysis.crossover.families import rows_of
from analysis.crossover.forms import LATENCY
from analysis.crossover.layers import NOUNS
from analysis.crossover.time_split import Why, why
from analysis.labels import short
from analysis.report.charts.crossover import answered, wins
from analysis.report.layers import HEADINGS, Layers
from analysis.report.sections import crossings
from analysis.table import Table, named
from analysis.text import answers
from analysis.units import digits, flops_rate, percent, seconds

#: Sentences on single crossovers, at most; more of them are only in the table.
_MOST_SENTENCES = 8
#: The head of the column of slowdowns.
_TIMES = "slowdown, median"


def section(operation: Layers) -> list[Block]:
    """The section on the layers of an operation: rates, their sum in a step, where the GPU wins, and what frameworks, cold
    caches and precisions cost or gain; [] without rows.
    """
    if not operation.rows:
        return []
    sentences = [*layers.rate_sentences(operation.rows, operation.op, operation.roofs), *operation.won]
    return [
        *listed(sentences),
        *_totals_table(operation),
        *_crossings(operation),
        *_framework_slowdowns(operation),
        *_cold_slowdowns(operation),
        *_arithmetic(operation),
    ]


def _totals_table(operation: Layers) -> list[Block]:
    """A table of the summed times of all layers of a network's step on each device, a line a network, batch and precision; []
    without a sum.
    """
    totals = [(model, total) for model, total in operation.totals if total.seconds]
    if not totals:
        return []
    all_sides: set[str] = set()
    for _, total in totals:
        all_sides.update(total.seconds)
    others = sorted(all_sides - {"CPU", "GPU"})
    rows = []
    for model, total in totals:
        cells = [model, total.math, total.batch, " ".join(total.directions), total.works, digits(total.flops / 1e9)]
        for side in ("CPU", "GPU", *others):
            cells.append(seconds(total.seconds[side]) if side in total.seconds else "-")
        rows.append(cells)
    measured = ("CPU", "GPU, resident", *others)
    heads = (*named(f"network | precision | batch | directions | {NOUNS[operation.op]}s | GFLOP"), *measured)
    says = "All of them in one step, each as often as it occurs: the fastest kernel each, one call at a time."
    return [Paragraph(text=says), *tabled(Table(heads, rows, left=2, optional=measured))]


def _crossings(operation: Layers) -> list[Block]:
    """Where the GPU wins: sentences, then a table of the answers that no chart shows, sizes that were not measured, and where the
    GPU's time goes.
    """
    if not operation.answers:
        return []
    two_sided = answered(operation.answers)
    if not two_sided:
        return [Paragraph(text="The GPU has no rows of these, so there is no crossover.")]
    sentences = answers.summaries(two_sided)
    first = [a for a in two_sided if a.form == LATENCY and a.precision == two_sided[0].precision]
    if len(first) <= _MOST_SENTENCES:
        sentences = [*sentences, *map(answers.sentence, first)]
    not_drawn = [a for a in two_sided if a.family.varies not in operation.drawn]

    def whys(a: Answer) -> tuple[Why, ...]:
        return why(rows_of(operation.rows, a.family), a) if a.form == LATENCY else ()

    return [
        Heading(text=f"{HEADINGS[operation.op]}: where the GPU wins"),
        *listed(sentences),
        *tabled(wins(not_drawn, operation.heads, operation.which)),
        *listed(crossings.gaps(two_sided, operation.which)),
        *crossings.details(two_sided, whys, operation.heads, operation.which),
    ]


def _framework_slowdowns(operation: Layers) -> list[Block]:
    """A table of how much slower a framework's call is than the fastest library's, with warm caches."""
    compared = layers.against_library(operation.rows, operation.op)
    spreads = layers.by_size(pair for pair in compared if pair[0].settings.cache == "warm")
    says = f"Slowdown of a {NOUNS[operation.op]} beside the best library's call."
    title = f"{HEADINGS[operation.op]}: what a framework's way costs"
    return titled(title, says, _slowdown_table(operation.op, spreads))


def _cold_slowdowns(operation: Layers) -> list[Block]:
    """A table of how much slower calls with cold caches are than with warm ones."""
    spreads = layers.by_size(layers.cold_and_warm(operation.rows, operation.op))
    title = f"{HEADINGS[operation.op]}: cold beside warm"
    return titled(title, "Slowdown of a call from cold caches.", _slowdown_table(operation.op, spreads))


def _slowdown_table(op: str, spreads: dict[tuple, layers.Spread]) -> Table:
    """A table of slowdowns. spreads: (device, ..., precision, kernel, ..., size), as layers.by_size has them -> the median,
    smallest and largest slowdown of its problems.
    """
    heads = f"device | precision | by | at | {NOUNS[op]}s | {_TIMES} | least | most"
    rows = []
    for (device, _, math, kernel, _, size), slowdown in spreads.items():
        slowdowns = map(digits, (slowdown.median, slowdown.least, slowdown.most))
        rows.append((device, math, short(kernel), size, slowdown.problems, *slowdowns))
    return Table(heads, rows, left=4)


def _arithmetic(operation: Layers) -> list[Block]:
    """A table of the rates of each backend by precision and by the multiple of which all sizes are; [] for fewer than two
    lines.
    """
    rows = []
    for rates in layers.arithmetic(operation.rows, operation.op, operation.roofs):
        share = rates.share.words(percent) if rates.share else "-"
        speedup = rates.speedup.words() if rates.speedup else "-"
        rows.append(
            (
                rates.device,
                rates.backend,
                rates.math,
                layers.aligned(rates.alignment),
                rates.rate.problems,
                flops_rate(rates.rate.median),
                flops_rate(rates.rate.most),
                share,
                speedup,
            )
        )
    if len(rows) < 2:
        return []
    noun = NOUNS[operation.op]
    sizes = "channels" if operation.op == "conv" else "sizes"
    shares = "of the roof | speedup over float32"
    heads = f"device | backend | precision | {sizes} | {noun}s | rate, median | best | {shares}"
    says = (
        f"Each {noun} at the largest batch that all precisions of its backend were measured at. "
        "float32 is without TF32, tf32 with it."
    )
    title = f"{HEADINGS[operation.op]}: precision and alignment"
    return titled(title, says, Table(heads, rows, left=4, optional=shares))
