"""The sections of a page between the answer and the numbers: title, charts and blocks of each."""

import functools
from collections.abc import Callable

import msgspec

from analysis.blocks import Block
from analysis.crossover.layers import NOUNS
from analysis.report.layers import HEADINGS
from analysis.report.material import Material
from analysis.report.sections import (
    crossings,
    inference,
    layer_calls,
    layers,
    method,
    movement,
    roofline,
    several_gpus,
    step_budgets,
    training,
)
from analysis.text import input_pipeline


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section of the page. Its blocks are those of BLOCKS under its name."""

    #: Its address on the page.
    name: str
    #: Its heading.
    title: str
    #: Names of pictures.CHARTS, drawn above the blocks.
    charts: tuple[str, ...] = ()


def _trainings(run: Material) -> list[Block]:
    """The blocks on trainings: where a step's time goes, then who wins and why."""
    not_on_steps = run.summary.left("side by side") + run.summary.left("starts")
    budgets = step_budgets.section(run.analysis.budgets, run.rows, not_on_steps)
    return budgets + training.section(run)


def _crossings(run: Material) -> list[Block]:
    analysis = run.analysis
    return crossings.section(analysis.rows, analysis.crossovers, analysis.machine)


def _layers(op: str) -> Section:
    """The section of an operation's layers, with the chart of the same name."""
    name = f"{NOUNS[op]}s"
    return Section(name=name, title=HEADINGS[op], charts=(name,))


METHOD = Section(name="method", title="How it was measured")
SECTIONS = (
    Section(name="crossover", title="Where the GPU wins", charts=("crossover",)),
    Section(name="roofline", title="How far from the hardware's limit", charts=("roofline",)),
    Section(name="kernels", title="Kernels", charts=("rates",)),
    Section(name="ladder-matmul", title="From three loops to the library", charts=("ladder-matmul",)),
    Section(name="ladder-conv", title="From seven loops to the library", charts=("ladder-conv",)),
    _layers("conv"),
    _layers("matmul"),
    Section(name="memory", title="Memory: how fast at every level", charts=("memory",)),
    Section(name="transfers", title="Copies between host and GPU", charts=("transfers",)),
    Section(name="feeding", title=input_pipeline.TITLE, charts=("feeding",)),
    Section(name="launches", title="Launches and framework constants"),
    Section(name="several", title=several_gpus.TITLE),
    Section(name="training", title="Training with Keras", charts=("along", "budget", "break-even")),
    Section(name="small-data", title="Small data sets: is it the copying?", charts=("small-dataset",)),
    Section(name="layer-calls", title="Layers by themselves"),
    Section(name="inference", title="Inference: a model's answers, batch by batch"),
)
#: Name of a section -> the function that makes its blocks for a run, none where the run has no such rows. A section that has
#: only charts is not here.
BLOCKS: dict[str, Callable[[Material], list[Block]]] = {
    "method": lambda run: method.how_section(run.analysis.loaded),
    "crossover": _crossings,
    "roofline": roofline.section,
    "ladder-matmul": lambda run: roofline.ladder_section(run, "matmul"),
    "ladder-conv": lambda run: roofline.ladder_section(run, "conv"),
    "convolutions": lambda run: layers.section(run.layers["conv"]),
    "products": lambda run: layers.section(run.layers["matmul"]),
    "memory": movement.memory_section,
    "transfers": movement.copies_section,
    "feeding": movement.input_pipeline_section,
    "launches": movement.launches_section,
    "several": lambda run: several_gpus.section(run.rows),
    "training": _trainings,
    "small-data": training.small_section,
    "layer-calls": layer_calls.section,
    "inference": lambda run: inference.section(run.rows, run.summary.left("inference")),
}


@functools.cache
def blocks(section: Section, run: Material) -> list[Block]:
    """The section's blocks for the run, worked out once."""
    if section.name not in BLOCKS:
        return []
    return BLOCKS[section.name](run)
