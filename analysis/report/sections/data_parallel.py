"""Trainings on several GPUs, on the page: a line a training beside one GPU, and the sentences."""

from collections.abc import Iterable

from analysis.table import listed, table
from analysis.text import data_parallel as data_parallel_words
from analysis.training import data_parallel
from analysis.training.data_parallel import Case
from analysis.units import bytes_rate, digits, percent, seconds, size
from workloads.records import Measurement

_ALWAYS = "training | how | GPUs | batch in all | a GPU | step on one | step on all"
_OPTIONAL = (
    "speedup | by short epochs | predicted | off | samples a second at the same batch a GPU | all-reduce | "
    "bus bandwidth | weights and optimizer, each | activations, one GPU | activations, each | losses differ by"
)
_ABOUT = (
    "A step on one GPU with the same batch in all, and on all GPUs, each with its part; the jit setting is the same on "
    "both sides. By short epochs: with all that a warm epoch of as many steps as were measured costs. Predicted: one GPU's "
    "step with a part of the batch and the all-reduce of the gradients, at least what feeding all GPUs takes; a dash where "
    "no row tells one of them."
)


def section(measurements: "Iterable[Measurement]") -> list[str]:
    """The part of the page on several GPUs; nothing without such rows."""
    every = list(measurements)
    found = [c for c in data_parallel.cases(every) if c.several.settings.on_gpu]
    if not found:
        return []
    said = listed(data_parallel_words.lines(every)) or [""]
    rows = [row(c) for c in sorted(found, key=lambda c: (c.several.problem.model, c.several.problem.batch, c.count))]
    return ["### What more GPUs buy", "", _ABOUT, "", *table(f"{_ALWAYS} | {_OPTIONAL}", rows, 2, _OPTIONAL), *said]


def row(case: Case) -> tuple[str, ...]:
    """The cells of a case under these heads; a dash for what no row tells."""
    m, one = case.several, case.one
    reduced, bandwidth = data_parallel.all_reduce(case), data_parallel.bus_bytes_per_s(case)
    apart = data_parallel.loss_difference(case)
    held, alone = data_parallel.memory(m), one and data_parallel.memory(one)
    return (
        data_parallel_words.name(case),
        data_parallel_words.way(m),
        str(case.count),
        f"{m.problem.batch:,}",
        f"{m.problem.batch // case.count:,}",
        seconds(data_parallel.step(one).value) if one else "-",
        seconds(data_parallel.step(m).value),
        data_parallel_words.between(case.gain) if case.gain else "-",
        data_parallel_words.between(case.by_epoch) if case.by_epoch else "-",
        digits(case.predicted_gain.value) if case.predicted_gain else "-",
        f"{'+' if case.off > 0 else '-'}{percent(abs(case.off))}" if case.off is not None else "-",
        f"{digits(case.scaled.value)}x" if case.scaled else "-",
        seconds(reduced.value) if reduced else "-",
        bytes_rate(bandwidth) if bandwidth else "-",
        size(held[0]) if held else "-",
        size(alone[1]) if alone else "-",
        size(held[1]) if held else "-",
        percent(apart) if apart is not None else "-",
    )
