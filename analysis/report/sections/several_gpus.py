"""Several GPUs on the page: copies pair by pair, sums by size and kernel, work on each alone and on all at once, trainings."""

import itertools
from collections.abc import Callable
from typing import Any

from analysis import labels
from analysis.blocks import Block, listed, titled
from analysis.metrics import VALUES
from analysis.roofline.peers import NCCL, bandwidth, queued, slowdowns
from analysis.stats import group_by, median_of
from analysis.table import Table
from analysis.text import several_gpus as words
from analysis.training import data_parallel
from analysis.training.data_parallel import DataParallelCase
from analysis.units import bytes_rate, change, digits, percent, seconds, size
from kernels import networks
from kernels.problems import AllReduce, PeerCopy
from workloads.records import Measurements

TITLE = "Several GPUs: with each other, and all at once"
_ALWAYS = ("training", "Keras on", "GPUs", "batch in all", "a GPU", "step on one", "step on all")
_SUM = VALUES["all_reduce_s"].name
_STATE = VALUES["step_state_bytes"].name
_TEMPORARY = VALUES["step_temporary_bytes"].name
_PEAK = VALUES["peak_memory_bytes"].name
#: Columns that are left out where no row tells; of a narrow terminal those of _LEAST are lost, the first of these first.
_GAINS = ("speedup", "by short epochs", "predicted")
_DETAILS = (
    *("off", "samples a second at the same batch a GPU", _SUM, "bus bandwidth"),
    *(f"{_STATE}, one GPU", f"{_STATE}, each", f"{_TEMPORARY}, one GPU", f"{_TEMPORARY}, each"),
    *(f"{_PEAK}, one GPU", f"{_PEAK}, each", "losses differ by", "at the end by"),
)
_OPTIONAL = (*_GAINS, *_DETAILS)
_LEAST = (*reversed(_DETAILS), "a GPU", "by short epochs", "predicted")
_ABOUT = (
    "A step on one GPU with the same batch in all, and on all GPUs, each with its part; the jit setting is the same on "
    "both sides. By short epochs: with all that a warm epoch of as many steps as were measured costs. Predicted: one GPU's "
    "step with a part of the batch and the all-reduce of the gradients, at least the input pipeline of all GPUs. Losses "
    f"differ: in the first {data_parallel.FIRST} steps, where only rounding should, and at the end, to which that grows. A dash "
    "where no row tells."
)


def section(measurements: Measurements) -> list[Block]:
    """The sentences, then a table of each kind of rows that is there; nothing without any."""
    parts = [_copies(measurements), _sums(measurements), _at_once(measurements)]
    if not any(parts):
        return []
    return [*listed(words.lines(measurements)), *itertools.chain.from_iterable(parts)]


def _copies(measurements: Measurements) -> list[Block]:
    rows = []
    for m in measurements:
        if isinstance(m.problem, PeerCopy) and m.ok:
            waited, large = median_of(m.on("host-latency")), m.problem.nbytes >= words.LARGE
            times = seconds(waited.value), labels.width(waited), seconds(queued(m).value)
            rate = bytes_rate(bandwidth(m).value) if large else "-"
            rows.append((labels.problem(m.problem), m.variant, *times, rate))
    heads = "copy | kernel | waited for | ± | queued | rate"
    return titled("Copies from GPU to GPU", Table(heads, rows, 2))


def _sums(measurements: Measurements) -> list[Block]:
    rows = [m for m in measurements if isinstance(m.problem, AllReduce) and m.ok]
    kernels = list(dict.fromkeys(m.kernel for m in rows))
    lines = []
    for p, group in group_by(rows, lambda m: m.problem).items():
        own = {m.kernel: m for m in group}
        took = [seconds(queued(own[k]).value) if k in own else "-" for k in kernels]
        rate = bytes_rate(bandwidth(own[NCCL]).value) if NCCL in own else "-"
        lines.append((p.dtype, p.form, size(p.nbytes), *took, rate))
    heads = ("type", "form", "each GPU's array", *map(labels.variant, kernels), "NCCL's bus bandwidth")
    why = "A call's time among many queued ones; those of graphs without the host's part."
    return titled(f"All-reduce over GPUs {rows[0].problem.gpus if rows else ''}", why, Table(heads, lines, 2))


def _at_once(measurements: Measurements) -> list[Block]:
    lines = []
    for alone, m, ratio in slowdowns(measurements):
        took = [seconds(median_of(each.on("host-latency")).value) for each in (alone, m)]
        span = f"{digits(ratio.low)} .. {digits(ratio.high)}"
        lines.append((labels.work(alone.problem), m.mode, m.device, *took, digits(ratio.value), span))
    heads = "work | copies | GPU | alone | while all work | times | 95 % interval"
    return titled("The same work on every GPU, alone and all at once", Table(heads, lines, 3))


def trainings(measurements: Measurements) -> Table | None:
    """A line a training on several GPUs beside one; None without such rows."""
    found = [c for c in data_parallel.cases(measurements) if c.several.on_gpu]
    found.sort(key=lambda c: (c.several.problem.model, words.setting_name(c.several), c.several.problem.batch, c.count))
    return Table((*_ALWAYS, *_OPTIONAL), map(_row, found), 2, _OPTIONAL, _LEAST) if found else None


def training_section(measurements: Measurements) -> list[Block]:
    """The part of the page on trainings on several GPUs; nothing without such rows."""
    found = trainings(measurements)
    return titled("What more GPUs buy", _ABOUT, found) + listed(words.training_lines(measurements)) if found else []


def _told(to_words: Callable[[Any], str], value: Any) -> str:
    """A value in words; a dash for None, where nothing was measured."""
    return "-" if value is None else to_words(value)


def _row(case: DataParallelCase) -> tuple[str, ...]:
    m = case.several
    memory = [x and data_parallel.memory(x) for x in (case.one, m)]
    peaks = [_told(size, x and x.values.get("peak_memory_bytes")) for x in (case.one, m)]
    return (
        networks.title(m.problem.model),
        words.library(m),
        str(case.count),
        f"{m.problem.batch:,}",
        f"{m.problem.batch // case.count:,}",
        labels.time(data_parallel.step(case.one) if case.one else None),
        labels.time(data_parallel.step(m)),
        _told(words.between, case.gain),
        _told(words.between, case.by_epoch),
        _told(lambda e: digits(e.value), case.predicted_gain),
        _told(change, case.off),
        _told(lambda e: f"{digits(e.value)}x", case.scaled),
        labels.time(data_parallel.all_reduce(case)),
        _told(bytes_rate, data_parallel.bus_bytes_per_s(case)),
        *(_told(size, found and found[i]) for i in (0, 1) for found in memory),
        *peaks,
        *(_told(percent, data_parallel.loss_difference(case, steps)) for steps in (data_parallel.FIRST, None)),
    )
