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
from analysis.text.several_gpus import LARGE, between, library, lines, setting_name, training_lines
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
    """The section: sentences, then a table of copies, of all-reduces, and of the same work on all GPUs; [] without such rows."""
    parts = [_copies(measurements), _sums(measurements), _at_once(measurements)]
    if not any(parts):
        return []
    return [*listed(lines(measurements)), *itertools.chain.from_iterable(parts)]


def _copies(measurements: Measurements) -> list[Block]:
    """A table of copies from GPU to GPU, a line a pair, size and kernel. Small copies have no rate, as they are mostly
    latency.
    """
    rows = []
    for m in measurements:
        if not isinstance(m.problem, PeerCopy) or not m.ok:
            continue
        call = median_of(m.on("host-latency"))
        rate = bytes_rate(bandwidth(m).value) if m.problem.nbytes >= LARGE else "-"
        times = (seconds(call.value), labels.width(call), seconds(queued(m).value))
        rows.append((labels.problem(m.problem), m.variant, *times, rate))
    heads = "copy | kernel | waited for | ± | queued | rate"
    return titled("Copies from GPU to GPU", Table(heads, rows, left=2))


def _sums(measurements: Measurements) -> list[Block]:
    """A table of all-reduces, a line a type, form and size, a column a kernel."""
    rows = [m for m in measurements if isinstance(m.problem, AllReduce) and m.ok]
    if not rows:
        return []
    kernels = list(dict.fromkeys(m.kernel for m in rows))
    table_rows = []
    for problem, group in group_by(rows, lambda m: m.problem).items():
        by_kernel = {m.kernel: m for m in group}
        times = []
        for kernel in kernels:
            times.append(seconds(queued(by_kernel[kernel]).value) if kernel in by_kernel else "-")
        rate = bytes_rate(bandwidth(by_kernel[NCCL]).value) if NCCL in by_kernel else "-"
        table_rows.append((problem.dtype, problem.form, size(problem.nbytes), *times, rate))
    heads = ("type", "form", "each GPU's array", *map(labels.variant, kernels), "NCCL's bus bandwidth")
    why = "A call's time among many queued ones; those of graphs without the host's part."
    return titled(f"All-reduce over GPUs {rows[0].problem.gpus}", why, Table(heads, table_rows, left=2))


def _at_once(measurements: Measurements) -> list[Block]:
    """A table of how much slower the same work is on each GPU while all GPUs do it, a line a kind of work and GPU."""
    rows = []
    for alone, together, ratio in slowdowns(measurements):
        alone_s = median_of(alone.on("host-latency"))
        together_s = median_of(together.on("host-latency"))
        rows.append(
            (
                labels.work(alone.problem),
                together.mode,
                together.device,
                seconds(alone_s.value),
                seconds(together_s.value),
                digits(ratio.value),
                f"{digits(ratio.low)} .. {digits(ratio.high)}",
            )
        )
    heads = "work | copies | GPU | alone | while all work | times | 95 % interval"
    return titled("The same work on every GPU, alone and all at once", Table(heads, rows, left=3))


def trainings(measurements: Measurements) -> Table | None:
    """The table of trainings on several GPUs, each beside the same training on one; None without such rows."""
    cases = [case for case in data_parallel.cases(measurements) if case.several.on_gpu]
    if not cases:
        return None
    cases.sort(key=_model_setting_and_size)
    return Table((*_ALWAYS, *_OPTIONAL), map(_row, cases), left=2, optional=_OPTIONAL, least=_LEAST)


def _model_setting_and_size(case: DataParallelCase) -> tuple[object, ...]:
    """The key by which trainings are sorted: model, Keras's backend and compilation, batch, number of GPUs."""
    problem = case.several.problem
    return problem.model, setting_name(case.several), problem.batch, case.count


def training_section(measurements: Measurements) -> list[Block]:
    """The part of the page on trainings on several GPUs; nothing without such rows."""
    table = trainings(measurements)
    if table is None:
        return []
    return [*titled("What more GPUs buy", _ABOUT, table), *listed(training_lines(measurements))]


def _cell(to_words: Callable[[Any], str], value: Any) -> str:
    """A value in words; a dash for None, where nothing was measured."""
    return "-" if value is None else to_words(value)


def _row(case: DataParallelCase) -> tuple[str, ...]:
    """The cells of a training under _ALWAYS and _OPTIONAL."""
    several = case.several
    first_difference = data_parallel.loss_difference(case, data_parallel.FIRST)
    last_difference = data_parallel.loss_difference(case, None)
    return (
        networks.title(several.problem.model),
        library(several),
        str(case.count),
        f"{several.problem.batch:,}",
        f"{several.problem.batch // case.count:,}",
        labels.time(data_parallel.step(case.one) if case.one else None),
        labels.time(data_parallel.step(several)),
        _cell(between, case.gain),
        _cell(between, case.by_epoch),
        _cell(lambda gain: digits(gain.value), case.predicted_gain),
        _cell(change, case.off),
        _cell(lambda rate: f"{digits(rate.value)}x", case.scaled),
        labels.time(data_parallel.all_reduce(case)),
        _cell(bytes_rate, data_parallel.bus_bytes_per_s(case)),
        *_memory_cells(case),
        _cell(percent, first_difference),
        _cell(percent, last_difference),
    )


def _memory_cells(case: DataParallelCase) -> list[str]:
    """The cells of memory: bytes of a step's state, of its temporary arrays, and at the peak. Each has two cells: on one GPU
    alone, and on each of several.
    """
    states = []
    temporaries = []
    peaks = []
    for row in (case.one, case.several):
        memory = data_parallel.memory(row) if row else None
        state, temporary = memory or (None, None)
        states.append(_cell(size, state))
        temporaries.append(_cell(size, temporary))
        peaks.append(_cell(size, row.values.get("peak_memory_bytes") if row else None))
    return [*states, *temporaries, *peaks]
