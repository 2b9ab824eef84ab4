"""Convolutions, and products of dense layers and other shapes: the rows and answers that sections and charts are made of."""

import msgspec

from analysis import labels
from analysis.crossover import layers, network_steps
from analysis.crossover.crossover import LATENCY, Answer, layer_crossovers
from analysis.crossover.families import batch_family
from analysis.crossover.network_steps import Total
from analysis.roofline.bounds import Roofs
from analysis.text import answers
from kernels.problems import Problem
from workloads.records import Loaded, Measurement, settings

HEADINGS = {"conv": "Convolutions", "matmul": "Products of dense layers and other shapes"}  # by operation
_DIRECTIONS = {"nn": "fprop", "nt": "dgrad", "tn": "wgrad"}


class Layers(msgspec.Struct, frozen=True):
    """Rows, answers, names, roofs and totals of one operation, for its sections and pictures."""

    op: str
    rows: tuple[Measurement, ...]
    answers: tuple[Answer, ...]
    names: dict[Problem, str]
    roofs: Roofs
    totals: tuple[tuple[str, Total], ...] = ()
    won: tuple[str, ...] = ()  # who wins the networks' steps, in sentences

    @property
    def drawn(self) -> list[str]:
        """The sizes along which a chart shows who wins."""
        return list(dict.fromkeys(a.family.varies for a in self.answers if a.points and a.form == LATENCY))

    @property
    def heads(self) -> tuple[str, str]:
        """The column heads over the cells of `which`."""
        return layers.NOUNS[self.op], "in its"

    def which(self, a: Answer) -> tuple[str, str]:
        return self.family_label(a), a.family.size_name

    def label(self, problem: Problem) -> str:
        """`conv2 wgrad`, without a name the shape; the batch is said elsewhere."""
        name = self.names.get(problem)
        words = name or self.shape(problem)
        return f"{words} {self.direction(problem)}" if name or problem.op == "conv" else words

    def direction(self, problem: Problem) -> str:
        return problem.direction or _DIRECTIONS.get(problem.layout, "")

    def shape(self, problem: Problem) -> str:
        """The shape with N in the place of the batch."""
        if problem.op == "matmul" and (problem.count > 1 or problem.epilogue):
            return labels.product(problem)
        of = msgspec.structs.asdict(problem) | dict.fromkeys(batch_family(problem).fields, "N")
        if problem.op == "conv":
            how = labels.unusual(of) if problem.pad == "same" else labels.how(of)
            return labels.one_image(of) + (f" ({', '.join(how)})" if how else "")
        return f"{of['m']}x{of['n']}x{of['k']}" + (f" {problem.layout}" if problem.layout != "nn" else "")

    def family_label(self, a: Answer) -> str:
        """The label of a family; with its layer's name where only the batch varies."""
        held = (m.problem for m in self.rows if a.family.varies == "batch" and a.family.holds(m.problem))
        problem = next(held, None)
        return self.label(problem) if problem else answers.family_name(a.family)


def select(loaded: Loaded, op: str, roofs: Roofs) -> Layers:
    """The rows of an operation without a section of their own, with their answers; both empty without such rows."""
    rows = tuple(m for m in loaded.measurements if m.problem.op == op and settings.ordinary(m))
    own = (m for m in rows if not layers.is_square(m.problem) or layers.framework_of(m) or m.settings.cache != "warm")
    if op == "matmul" and not any(own):
        return Layers(op, (), (), {}, roofs)
    told = tuple(layer_crossovers(rows, op, machine=loaded.machine))
    works = network_steps.steps(rows, op)
    sums = tuple((model, total) for model, found_ in works for total in network_steps.totals(found_, rows, op))
    won = tuple(answers.steps(rows, op, loaded.machine))
    return Layers(op, rows, told, network_steps.names(rows, op), roofs, sums, won)
