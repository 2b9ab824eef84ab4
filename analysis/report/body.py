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


class Section(msgspec.Struct, frozen=True):
    """name: its address on the page. make: the blocks of one run, nothing where it has no such rows.
    charts: names of pictures.CHARTS."""

    name: str
    title: str
    make: Callable[[Material], list[Block]] = lambda of: []
    charts: tuple[str, ...] = ()


def _trainings(of: Material) -> list[Block]:
    not_on_steps = of.summary.left("side by side") + of.summary.left("starts")
    budgets = step_budgets.section(of.analysis.budgets, of.rows, not_on_steps)
    return budgets + training.section(of)


def _inference(run: Material) -> list[Block]:
    return inference.section(run.rows, run.summary.left("inference"))


def _crossings(of: Material) -> list[Block]:
    analysis = of.analysis
    return crossings.section(analysis.rows, analysis.crossovers, analysis.machine)


def _layers(op: str) -> Section:
    stem = f"{NOUNS[op]}s"
    return Section(stem, HEADINGS[op], lambda of: layers.section(of.layers[op]), (stem,))


METHOD = Section("method", "How it was measured", lambda of: method.how_section(of.analysis.loaded))
SECTIONS = (
    Section("crossover", "Where the GPU wins", _crossings, ("crossover",)),
    Section("roofline", "How far from the hardware's limit", roofline.section, ("roofline",)),
    Section("kernels", "Kernels", charts=("rates",)),
    Section(
        "ladder-matmul",
        "From three loops to the library",
        lambda run: roofline.ladder_section(run, "matmul"),
        ("ladder-matmul",),
    ),
    Section(
        "ladder-conv",
        "From seven loops to the library",
        lambda run: roofline.ladder_section(run, "conv"),
        ("ladder-conv",),
    ),
    *map(_layers, HEADINGS),
    Section("memory", "Memory: how fast at every level", movement.memory_section, ("memory",)),
    Section("transfers", "Copies between host and GPU", movement.copies_section, ("transfers",)),
    Section("feeding", input_pipeline.TITLE, movement.input_pipeline_section, ("feeding",)),
    Section("launches", "Launches and framework constants", movement.launches_section),
    Section("several", several_gpus.TITLE, lambda of: several_gpus.section(of.rows)),
    Section("training", "Training with Keras", _trainings, ("along", "budget", "break-even")),
    Section("small-data", "Small data sets: is it the copying?", training.small_section, ("small-dataset",)),
    Section("layer-calls", "Layers by themselves", layer_calls.section),
    Section("inference", "Inference: a model's answers, batch by batch", _inference),
)


@functools.cache
def blocks(of: Section, run: Material) -> list[Block]:
    """The section's blocks for the run, made once."""
    return of.make(run)
