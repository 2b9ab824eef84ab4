"""Convolutions, and products of dense layers and other shapes: their sections of the page."""

import msgspec

from analysis import labels
from analysis.crossover import layers, network_steps
from analysis.crossover.crossover import LATENCY, Answer, layer_crossovers
from analysis.crossover.families import batch_family
from analysis.crossover.network_steps import Total
from analysis.crossover.time_split import why
from analysis.report.sections import crossings
from analysis.roofline.bounds import Roof
from analysis.table import Table, listed, named, table, titled
from analysis.text import answers
from analysis.units import digits, flops_rate, percent, seconds
from kernels.problems import Problem
from workloads.records import Loaded, Measurement, settings

# op -> heading, one problem, the pictures' names begin with.
SECTIONS = {
    "conv": ("Convolutions", "convolution", "convolutions"),
    "matmul": ("Products of dense layers and other shapes", "product", "products"),
}
_MOST_SAID = 8
_TIMES = "slowdown, median"


class Layers(msgspec.Struct, frozen=True):
    """What the sections and pictures of an operation are made of."""

    op: str
    rows: "tuple[Measurement, ...]"
    answers: tuple[Answer, ...]
    names: "dict[Problem, str]"
    roofs: tuple[Roof, ...]
    totals: tuple[tuple[str, Total], ...] = ()
    won: tuple[str, ...] = ()  # who wins the networks' steps, in sentences

    @property
    def drawn(self) -> list[str]:
        """The sizes along which a chart shows who wins."""
        return list(dict.fromkeys(a.family.varies for a in self.answers if a.points and a.form == LATENCY))

    @property
    def heads(self) -> tuple[str, str]:
        """Over what `which` says of an answer."""
        return SECTIONS[self.op][1], "in its"

    def which(self, a: Answer) -> tuple[str, str]:
        return self.family_label(a), a.family.size_name

    def label(self, problem: "Problem") -> str:
        """`conv2 wgrad`, without a name the shape; the batch is said elsewhere."""
        name = self.names.get(problem)
        words = name or self.shape(problem)
        return f"{words} {self.direction(problem)}" if name or problem.op == "conv" else words

    def direction(self, problem: "Problem") -> str:
        return problem.direction or _DIRECTIONS.get(problem.layout, "")

    def shape(self, problem: "Problem") -> str:
        """The shape with N in the place of the batch."""
        if problem.op == "matmul" and problem.count > 1:
            return labels.product(problem)
        of = {f: getattr(problem, f) for f in problem.__struct_fields__}
        of |= dict.fromkeys(batch_family(problem).fields, "N")
        if problem.op == "conv":
            how = labels.how(of).removesuffix("pad same").rstrip(", ")
            return labels.image(of).removeprefix("Nx") + (f" ({how})" if how else "")
        return f"{of['m']}x{of['n']}x{of['k']}" + (f" {problem.layout}" if problem.layout != "nn" else "")

    def family_label(self, a: Answer) -> str:
        """The same of a family: with its layer's name where it varies in the batch alone."""
        held = (m.problem for m in self.rows if a.family.varies == "batch" and a.family.holds(m.problem))
        problem = next(held, None)
        return self.label(problem) if problem else answers.family_name(a.family)


_DIRECTIONS = {"nn": "fprop", "nt": "dgrad", "tn": "wgrad"}


def select(loaded: "Loaded", op: str, roofs: tuple[Roof, ...]) -> Layers:
    """The rows of an operation that have no section of their own, and what they answer; without rows both are empty."""
    rows = tuple(m for m in loaded.measurements if m.problem.op == op and settings.ordinary(m))
    own = (m for m in rows if not layers.is_square(m.problem) or layers.framework_of(m) or m.settings.cache != "warm")
    if op == "matmul" and not any(own):
        return Layers(op, (), (), {}, roofs)
    told = tuple(layer_crossovers(rows, op, machine=loaded.machine))
    works = network_steps.steps(loaded.runs, rows, op)
    sums = tuple((model, total) for model, found_ in works for total in network_steps.totals(found_, rows, op))
    won = tuple(answers.steps(loaded.runs, rows, op, loaded.machine))
    return Layers(op, rows, told, network_steps.names(loaded.runs, rows), roofs, sums, won)


def section(of: Layers) -> list[str]:
    """Where the GPU wins, what frameworks, caches and precisions change."""
    if not of.rows:
        return []
    told = layers.rate_sentences(of.rows, of.op, of.roofs)
    lines = [*listed(told), *_totals_table(of)]
    return [*lines, *_crossings(of), *_comparisons(of)]


def _totals_table(of: Layers) -> list[str]:
    """Who wins the steps, and what all layers of one come to, a line a network, batch and precision."""
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
    heads = (*named(f"network | precision | batch | directions | {SECTIONS[of.op][1]}s | GFLOP"), *measured)
    says = "All of them in one step, each as often as it occurs: the fastest kernel each, one call at a time."
    return [*listed(of.won), *([says, "", *table(heads, rows, 2, measured)] if rows else [])]


def _crossings(of: Layers) -> list[str]:
    """The answers: the first sentences, all of them in a table, and where the GPU's time goes."""
    told = crossings.answered(of.answers)
    if not told:
        return ["The GPU has no rows of these, so there is no crossover.", ""] if of.answers else []
    lines = [f"### {SECTIONS[of.op][0]}: where the GPU wins", ""]
    first = [a for a in told if a.form == LATENCY and a.precision == told[0].precision]
    lines += listed([*answers.summaries(told), *map(answers.sentence, first if len(first) <= _MOST_SAID else ())]) or [
        ""
    ]
    left = [a for a in told if a.family.varies not in of.drawn]
    parts = crossings.details(told, of.heads, of.which, lambda a: why(of.rows, a) if a.form == LATENCY else ())
    return lines + (crossings.wins(left, of.heads, of.which).md() if left else []) + parts


def _comparisons(of: Layers) -> list[str]:
    """Tables of ratios: a framework beside the best library, cold beside warm, precision and alignment."""
    heading, one, _ = SECTIONS[of.op]
    lines: list[str] = []
    heads = f"device | precision | by | at | {one}s | {_TIMES} | least | most"
    for title, says, compared in (
        (
            "what a framework's way costs",
            f"Slowdown of a {one} beside the best library's call.",
            [c for c in layers.against_library(of.rows, of.op) if c[0].settings.cache == "warm"],
        ),
        (
            "cold beside warm",
            "Slowdown of a call from cold caches.",
            layers.cold_and_warm(of.rows, of.op),
        ),
    ):
        rows = [
            (device, math, kernel.partition("/")[2], size, s.problems, *map(digits, (s.median, s.least, s.most)))
            for (device, _, math, kernel, _, size), s in layers.by_size(compared).items()
        ]
        lines += titled(f"{heading}: {title}", says, Table(heads, rows, 4))
    arithmetic = layers.arithmetic(of.rows, of.op, of.roofs)
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
        for a in arithmetic
    ]
    if len(rows) < 2:
        return lines
    sizes, shares = "channels" if of.op == "conv" else "sizes", "of the roof | speedup over float32"
    heads = f"device | backend | precision | {sizes} | {one}s | rate, the middle | the best | {shares}"
    says = (
        f"Each {one} at the largest batch that all precisions of its backend were measured at: the middle and the best. "
        "float32 is without TF32, tf32 with it."
    )
    return lines + titled(f"{heading}: precision and alignment", says, Table(heads, rows, 4, shares))
