"""Convolutions, and products of dense layers and other shapes: the rows and answers that sections and charts are made of."""

import msgspec

from analysis import labels
from analysis.crossover import layers, network_steps
from analysis.crossover.answer import Answer
from analysis.crossover.crossover import layer_crossovers
from analysis.crossover.families import batch_family
from analysis.crossover.forms import LATENCY
from analysis.crossover.network_steps import Total
from analysis.roofline.bounds import Roofs
from analysis.text import answers
from kernels.problems import Problem
from workloads.records import Loaded, Measurement, settings

#: Operation -> the heading of its section.
HEADINGS = {"conv": "Convolutions", "matmul": "Products of dense layers and other shapes"}
#: Layout of a product -> the direction of the dense layer's step that it is.
_DIRECTIONS = {"nn": "fprop", "nt": "dgrad", "tn": "wgrad"}


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, answers, names, roofs and totals of one operation, for its sections and pictures."""

    #: "conv" or "matmul".
    op: str
    #: The rows of the operation.
    rows: tuple[Measurement, ...] = ()
    #: Their crossovers.
    answers: tuple[Answer, ...] = ()
    #: Problem -> the name of the network's layer that it is.
    names: dict[Problem, str] = {}
    #: The roofs of the machine.
    roofs: Roofs = ()
    #: (network, the summed times of its layers in one step).
    totals: tuple[tuple[str, Total], ...] = ()
    #: Who wins the networks' steps, in sentences.
    won: tuple[str, ...] = ()

    @property
    def drawn(self) -> list[str]:
        """The sizes along which a chart shows who wins."""
        return list(dict.fromkeys(a.family.varies for a in self.answers if a.points and a.form == LATENCY))

    @property
    def heads(self) -> tuple[str, str]:
        """The column heads over the cells of `which`."""
        return layers.NOUNS[self.op], "in its"

    def which(self, a: Answer) -> tuple[str, str]:
        """The cells that name the layer of an answer, and the size that varies."""
        return self.family_label(a), a.family.size_name

    def label(self, problem: Problem) -> str:
        """The layer and direction of a problem: `conv2 wgrad`; a layer without a name by its shape. The batch is not in it."""
        name = self.names.get(problem)
        words = name or self.shape(problem)
        return f"{words} {self.direction(problem)}" if name or problem.op == "conv" else words

    def direction(self, problem: Problem) -> str:
        """fprop, dgrad or wgrad; "" for a product that is none of a dense layer's step."""
        return problem.direction or _DIRECTIONS.get(problem.layout, "")

    def shape(self, problem: Problem) -> str:
        """The sizes of a problem in words, with the letter N in the place of the batch, and what is unusual about it."""
        if problem.op == "matmul" and (problem.count > 1 or problem.epilogue):
            return labels.product(problem)
        fields = msgspec.structs.asdict(problem) | dict.fromkeys(batch_family(problem).fields, "N")
        if problem.op == "conv":
            image = labels.one_image(fields)
            how = labels.unusual(fields) if problem.pad == "same" else labels.how(fields)
            return f"{image} ({', '.join(how)})" if how else image
        sizes = f"{fields['m']}x{fields['n']}x{fields['k']}"
        return sizes if problem.layout == "nn" else f"{sizes} {problem.layout}"

    def family_label(self, a: Answer) -> str:
        """The label of the problems that an answer compares: that of their layer where only the batch varies, else their sizes
        with a letter for the one that varies.
        """
        if a.family.varies == "batch":
            for m in self.rows:
                if a.family.holds(m.problem):
                    return self.label(m.problem)
        return answers.family_name(a.family)


def select(loaded: Loaded, op: str, roofs: Roofs) -> Layers:
    """The layers of an operation (conv, matmul) among result files, with their crossovers. Without rows where only plain square
    products were measured, which have a section of their own.
    """
    rows = tuple(m for m in loaded.measurements if m.problem.op == op and settings.ordinary(m))
    if op == "matmul" and all(map(_is_square_of_library, rows)):
        return Layers(op=op, roofs=roofs)
    totals: list[tuple[str, Total]] = []
    for model, works in network_steps.steps(rows, op):
        totals += [(model, total) for total in network_steps.totals(works, rows, op)]
    return Layers(
        op=op,
        rows=rows,
        answers=tuple(layer_crossovers(rows, op, machine=loaded.machine)),
        names=network_steps.names(rows, op),
        roofs=roofs,
        totals=tuple(totals),
        won=tuple(answers.steps(rows, op, loaded.machine)),
    )


def _is_square_of_library(m: Measurement) -> bool:
    """Whether a row belongs to the section of square products: it is one, not called by a framework, with warm caches."""
    return layers.is_square(m.problem) and not layers.framework_of(m) and m.settings.cache == "warm"
