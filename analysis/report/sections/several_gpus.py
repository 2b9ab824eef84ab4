"""The section of several GPUs: copies pair by pair, sums by size and kernel, work on each alone and on all at once."""

from analysis.labels import width
from analysis.stats import of
from analysis.table import listed, table
from analysis.text import peers
from analysis.units import bytes_rate, digits, seconds, size
from kernels.problems import AllReduce, PeerCopy
from workloads.records import Measurement

TITLE = "Several GPUs: with each other, and all at once"


def section(measurements: "list[Measurement]") -> list[str]:
    """The sentences, then a table of each kind of rows that is there; nothing without any."""
    parts = [_copies(measurements), _sums(measurements), _at_once(measurements)]
    if not any(parts):
        return []
    return [*listed(peers.lines(measurements)), *(line for part in parts for line in part)]


def _copies(measurements: "list[Measurement]") -> list[str]:
    rows = [m for m in measurements if isinstance(m.problem, PeerCopy) and m.ok]
    if not rows:
        return []
    heads = "copy | kernel | waited for | +- | queued | rate"
    lines = []
    for m in rows:
        waited = of(m.on("host-latency"))
        rate = bytes_rate(peers.bandwidth(m).value) if m.problem.nbytes >= peers.LARGE else "-"
        lines.append(
            (
                peers.words(m.problem),
                m.variant,
                seconds(waited.value),
                width(waited),
                seconds(peers.queued(m).value),
                rate,
            )
        )
    return ["### Copies from GPU to GPU", "", *table(heads, lines, 2)]


def _sums(measurements: "list[Measurement]") -> list[str]:
    rows = [m for m in measurements if isinstance(m.problem, AllReduce) and m.ok]
    kernels = list(dict.fromkeys(m.kernel for m in rows))
    lines = []
    for p in dict.fromkeys(m.problem for m in rows):
        own = {m.kernel: m for m in rows if m.problem == p}
        took = [seconds(peers.queued(own[k]).value) if k in own else "-" for k in kernels]
        rate = bytes_rate(peers.bandwidth(own[peers.NCCL]).value) if peers.NCCL in own else "-"
        lines.append((p.dtype, p.form, size(p.nbytes), *took, rate))
    if not lines:
        return []
    heads = ("type", "form", "each GPU's array", *(k.rpartition("/")[2] for k in kernels), "NCCL's bus bandwidth")
    why = "A call's time among many queued ones; those of graphs without the host's part."
    return [f"### All-reduce over GPUs {rows[0].problem.gpus}", "", why, "", *table(heads, lines, 2)]


def _at_once(measurements: "list[Measurement]") -> list[str]:
    lines = []
    for alone, m, ratio in peers.slowdowns(measurements):
        took = [seconds(of(each.on("host-latency")).value) for each in (alone, m)]
        lines.append(
            (
                peers.words(alone.problem).removesuffix(" alone"),
                m.mode,
                m.device,
                *took,
                digits(ratio.value),
                f"{digits(ratio.low)} .. {digits(ratio.high)}",
            )
        )
    heads = "work | copies | GPU | alone | while all work | times | 95 % interval"
    return ["### The same work on every GPU, alone and all at once", "", *table(heads, lines, 3)] if lines else []
