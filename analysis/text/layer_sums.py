"""Layers in words: from which batch on the GPU wins, and a model's layers beside its training step."""

from analysis.numbers import share
from analysis.stats import Estimate
from analysis.table import Table
from analysis.text.budget import subject, where
from analysis.text.sentences import crossover, say
from analysis.training.layer_sum import LayerSum, crossovers, sums
from analysis.units import join
from workloads.records import Machine, Measurements

SENTENCES = {
    "step": "{training}, on {where}: a step takes {step:time}, {how}.",
    "explained": "Its layers and what is around them come to {explained:time}, {share} of that.",
    "less": "The rest, {rest:time}, is in no part.",
    "unexplained": "They do not explain the step: {rest:time} of it is in no part.",
    "untimed": "Not timed here: {names}.",
    "more": "The parts come to {over:time} more: in the step some run at the same time, or are fused.",
    "far more": "They do not explain the step: they come to {over:time} more. Some run at the same time in it, or are fused.",
    "missing": "Without a time: {names}.",
    "otherwise": "XLA has no row of {names}: theirs are op by op.",
}
_HOW = {True: "compiled by XLA", False: "op by op"}
LAYERS_MOST = 12  # layers in a table of a terminal; the others are summed up


def lines(measurements: Measurements, machine: Machine | None = None) -> list[str]:
    """Sentences on the batch from which the GPU wins a layer, then for each training the sum of its layers beside its step, as
    a table and sentences.
    """
    text: list[str] = []
    for layer in crossovers(measurements, machine):
        text += crossover(layer.answer, f"{layer.layer} {layer.direction}")
    for layer_sum in sums(measurements):
        if text:
            text.append("")
        text += sum_lines(layer_sum)
    return text


def sum_lines(one: LayerSum) -> list[str]:
    """The step, the table of its parts, and what they come to."""
    return [head(one), *table(one).text(), *sentences(one)]


def head(one: LayerSum) -> str:
    """The sentence above the table: the training, its device, its measured step, and whether that was compiled."""
    return say(
        SENTENCES["step"],
        training=subject(one.training),
        where=where(one.training),
        step=one.step,
        how=_HOW[one.is_compiled],
    )


def table(one: LayerSum) -> Table:
    """The table of one training: its layers by their time in a step, the longest first (LAYERS_MOST at most), then their sum,
    the parts of a step beside the layers, and the rest. Each has its share of the step.
    """
    rows = []
    ordered = sorted(one.layers, key=lambda layer: -layer.seconds.value)
    for layer in ordered[:LAYERS_MOST]:
        name = f"{layer.layer} x{layer.count}" if layer.count > 1 else layer.layer
        backward = _milliseconds(layer.backward * layer.count if layer.backward else None)
        rows.append(
            (name, layer.kind, _milliseconds(layer.forward * layer.count), backward, *_both(layer.seconds, one))
        )
    others = ordered[LAYERS_MOST:]
    if others:
        seconds = sum((layer.seconds for layer in others[1:]), others[0].seconds)
        rows.append((f"{len(others)} other layers", "", "", "", *_both(seconds, one)))
    rows.append(("all layers", "", "", "", *_both(one.layer_seconds, one)))
    for name, part in one.parts.items():
        rows.append((name, "", "", "", *(_both(part, one) if part else ("-", "-"))))
    rows.append(("layers and parts", "", "", "", *_both(one.explained, one)))
    remainder = "in no part" if one.remainder.value >= 0 else "overlap and fusion"
    rows.append((remainder, "", "", "", *_both(one.remainder, one)))
    return Table("part | kind | forward ms | backward ms | ms | of the step", rows, left=2, least="kind")


def _both(seconds: Estimate, one: LayerSum) -> tuple[str, str]:
    return _milliseconds(seconds), share(seconds.value / one.step.value)


def _milliseconds(seconds: Estimate | None) -> str:
    return f"{seconds.value * 1e3:.3g}" if seconds else "-"


def sentences(one: LayerSum) -> list[str]:
    """A paragraph under the table: the share of the step that layers and parts explain, by how much they miss it and why, and
    layers that were not timed.
    """
    explained = one.explained
    text = [say(SENTENCES["explained"], explained=explained, share=share(explained.value / one.step.value))]
    rest = one.remainder.value
    if rest >= 0:
        text.append(say(SENTENCES["less" if one.explains_step else "unexplained"], rest=rest))
    else:
        text.append(say(SENTENCES["more" if one.explains_step else "far more"], over=-rest))
    untimed = [name for name, part in one.parts.items() if part is None]
    if untimed and not one.explains_step:
        text.append(say(SENTENCES["untimed"], names=join(untimed)))
    if one.missing:
        text.append(say(SENTENCES["missing"], names=join(one.missing)))
    if one.otherwise and one.is_compiled:
        text.append(say(SENTENCES["otherwise"], names=join(one.otherwise)))
    return [" ".join(text)]
