"""How fast bytes move: the pictures and sections of memory levels, host-device copies, and what calls cost before any work."""

from typing import TYPE_CHECKING

from analysis import table as cells
from analysis.crossover import transfer_study
from analysis.report.pictures.style import (
    BLUE,
    COLORS,
    DASHES,
    GREEN,
    MARKERS,
    ORANGE,
    PURPLE,
    RED,
    label_right,
    note,
    picture,
    shaded,
    unit_axis,
)
from analysis.roofline import data_sheets, links, memory_levels, overheads
from analysis.roofline.bounds import Roof
from analysis.table import image, listed, table, text
from analysis.text import rates as facts
from analysis.units import bytes_rate, count, percent, seconds, size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure

    from workloads.records import Machine, Measurement

_ORDER = ("triad", "copy", "add", "scale", "read")
_GPU_COLORS, _CPU_COLORS = (RED, ORANGE), (BLUE, GREEN, PURPLE)
_MOST_LINES = 12
_APART = ("asarray", "staged", "dataset")
_COPIES = "Copies that are waited for: measured points, fitted lines"
SMALL = "### What small data sets cost to copy"
_AROUND = tuple((right, up) for up in (13, -13, 26, -26) for right in (0, 12, -12))


def shown_curves(measurements: "Iterable[Measurement]") -> "dict[memory_levels.Key, memory_levels.Curve]":
    """One operation a device, with one thread and with most: the triad where it has as many sizes as the others."""
    found = {
        key: curve
        for key, curve in memory_levels.curves(measurements).items()
        if len(curve) >= memory_levels.LEAST_SIZES
    }
    made = {}
    for device in dict.fromkeys(key[0] for key in found):
        counts = sorted({key[1] or 0 for key in found if key[0] == device})
        for threads in dict.fromkeys((counts[0], counts[-1])):
            here = [key for key in found if (key[0], key[1] or 0) == (device, threads)]
            best = min(here, key=lambda key: (-len(found[key]), _ORDER.index(key[2])))
            made[best] = found[best]
    return made


def memory(measurements: "Iterable[Measurement]", machine: "Machine | None" = None) -> "Figure":
    """Bandwidth against working set, the plateaus drawn thick and named."""
    measurements = list(measurements)
    shown, found = shown_curves(measurements), memory_levels.plateaus(measurements, machine)
    with picture("Memory bandwidth: its levels", "working set", "GB/s", (8.0, 6.4), 0.72, 0.13) as (made, axes):
        labels, named = [], []
        for i, ((device, threads, operation), curve) in enumerate(shown.items()):
            gpu = device.startswith("gpu")
            color = (_GPU_COLORS if gpu else _CPU_COLORS)[i % (2 if gpu else 3)]
            x, y = [p.nbytes for p in curve], [p.rate for p in curve]
            shaded(axes, x, y, color, 0.2, marker=MARKERS[i % len(MARKERS)], ms=4, lw=1.2, zorder=3)
            where = where_words(device, shown) + (f", {count(threads, 'thread')}" if threads else "")
            labels.append((y[-1].value, f"{where}, {operation}", color))
            for p in (p for p in found if (p.device, p.threads, p.operation) == (device, threads, operation)):
                axes.plot(
                    [p.from_bytes, p.to_bytes], [p.rate.value] * 2, color=color, lw=9, alpha=0.28, solid_capstyle="butt"
                )
                named.append((p, color))
        if labels:
            # one torn interval must not flatten the rest
            rates = [p.rate.value for curve in shown.values() for p in curve]
            axes.set_ylim(min(rates) / 1.8, max(rates) * 2)
        unit_axis(axes, bytes_rate)
        _bytes_axis(axes, [p.nbytes for curve in shown.values() for p in curve], 3)
        label_right(axes, labels, 9)
        for p, color in named:
            at = ((p.from_bytes * p.to_bytes) ** 0.5, p.rate.value)
            note(axes, f"{p.name} {bytes_rate(p.rate.value)}", at, color, _AROUND)
    return made


def where_words(device: str, shown: "Iterable[memory_levels.Key]") -> str:
    gpus = {key[0] for key in shown if key[0].startswith("gpu")}
    return "GPU" if gpus == {device} else device.upper().replace(":", " ")


def _bytes_axis(axes, sizes: "Iterable[int]", pad: float = 1.3) -> None:
    """Powers of two as sizes with their unit, as many as there is room for."""
    from matplotlib.ticker import FixedLocator, NullLocator

    sizes = sorted(sizes)
    if not sizes:
        return
    first, last = max(0, (sizes[0] - 1).bit_length()), (sizes[-1]).bit_length()
    step = max(1, -(-(last - first) // 6))
    axes.xaxis.set_major_locator(FixedLocator([2.0**p for p in range(first, last + 1, step)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda n, _: size(n).replace(".00", "").replace(".0 ", " "))
    axes.set_xlim(sizes[0] / pad, sizes[-1] * 1.3)


def transfers(measurements: "Iterable[Measurement]") -> "Figure":
    """Seconds of a copy against its bytes, a color a way: points measured, lines the fitted laws."""
    measurements = list(measurements)
    with picture(_COPIES, "bytes of a copy", "seconds", (8.0, 6.4), 0.66, 0.13) as (made, axes):
        labels, every = [], []
        for i, law in enumerate(telling(laws_of(measurements))[:_MOST_LINES]):
            seen, color = links.errors(law, measurements), COLORS[i % len(COLORS)]
            sizes = [nbytes for nbytes, *_ in seen]
            every += sizes
            marker = MARKERS[i % len(MARKERS)]
            axes.plot(sizes, [t for _, _, t, _ in seen], color=color, marker=marker, ms=4, ls="", mfc="white", zorder=3)
            axes.plot(sizes, [t for _, t, _, _ in seen], color=color, lw=1.2, dashes=DASHES[i // len(COLORS)])
            labels.append((seen[-1][1], way_words(law), color))
        unit_axis(axes, seconds)
        _bytes_axis(axes, every)
        label_right(axes, labels, 9)
    return made


def laws_of(measurements: "list[Measurement]") -> list[links.Link]:
    """The laws of what a program waits for, the fastest first."""
    found = [x for x in links.fits(measurements) if x.clock == "host-latency"]
    return sorted(found, key=lambda x: -x.bandwidth.value)


def telling(laws: list[links.Link]) -> list[links.Link]:
    """One law for each way that behaves differently: of each direction and memory the fastest, registered and write-combined
    memory only where none is pinned, and apart from them what people write (asarray) and our staged copy."""
    made: dict[tuple, links.Link] = {}
    pinned = {x.direction for x in laws if x.host_memory == "pinned"}
    for law in laws:
        if law.host_memory in ("registered", "write-combined") and law.direction in pinned:
            continue
        variant = law.kernel.rpartition("/")[2]
        made.setdefault(
            (law.direction, law.host_memory, variant if variant in _APART else law.kernel.split("/")[1]), law
        )
    return list(made.values())


def way_words(law: links.Link) -> str:
    return " ".join(filter(None, (law.direction, law.host_memory, law.kernel.partition("/")[2].replace("cupy/", ""))))


def has_memory(measurements: "Iterable[Measurement]") -> bool:
    return bool(shown_curves(measurements))


def has_copies(measurements: "Iterable[Measurement]") -> bool:
    """Whether there is a law of copies to draw."""
    return any(m.problem.op == "transfer" for m in measurements) and bool(laws_of(list(measurements)))


def memory_section(measurements: "list[Measurement]", machine: "Machine | None", roofs: tuple[Roof, ...]) -> list[str]:
    """The levels found with their bandwidth, and those looked for in vain; what stands for a memory without a plateau."""
    if not has_memory(measurements):
        return []
    rows = [
        (
            p.device,
            p.threads or "-",
            p.operation,
            p.name,
            bytes_rate(p.rate.value),
            cells.width(p.rate),
            f"{size(p.from_bytes)} to {size(p.to_bytes)}",
            p.points,
            p.source.partition(",")[0],
        )
        for p in sorted(
            memory_levels.plateaus(measurements, machine),
            key=lambda p: (p.device, p.threads or 0, p.operation, p.from_bytes),
        )
    ]
    heads = ("device", "threads", "operation", "level", "bandwidth", "+-", "working sets", "sizes", "fastest there")
    lost = listed([*memory_levels.missing(measurements, machine), *facts.unflat_sentences(roofs)])
    return [
        "## Memory: how fast at every level",
        "",
        *image("memory.svg", "Bandwidth against working set, with the levels that it shows."),
        *listed(facts.level_sentences(measurements, machine)),
        *(table(heads, rows, 4) if rows or not lost else []),
        *lost,
    ]


def copies_section(measurements: "list[Measurement]", roofs: tuple[Roof, ...]) -> list[str]:
    """The laws of copying, what of the link they reach, and what the articles' data sets cost."""
    if not any(m.problem.op == "transfer" for m in measurements):
        return []
    says = "Time of copies between host and device against their bytes, with the fitted laws."
    seen = links.pcie(measurements)
    rate = data_sheets.pcie_bytes_per_s(*seen) if seen else None
    rows = [
        (
            law.direction,
            law.host_memory or "-",
            law.kernel.partition("/")[2],
            seconds(max(0.0, law.latency.value)),
            bytes_rate(law.bandwidth.value),
            cells.width(law.bandwidth),
            size(law.half_bytes.value) if law.half_bytes else "-",
            percent(law.bandwidth.value / rate) if rate and law.direction != "d2d" else "-",
        )
        for law in laws_of(measurements)
    ]
    heads = ("way", "host memory", "by", "latency", "bandwidth", "+-", "half of it from", "of the PCIe link")
    about = []
    if seen:
        at_most = f", at most {bytes_rate(rate)} each way" if rate else ""
        about = [f"The link ran at PCIe generation {seen[0]} with {count(seen[1], 'lane')} while copying{at_most}.", ""]
    learned = transfer_study.lines(measurements)
    return [
        "## Host-device copies",
        "",
        *(image("transfers.svg", says) if has_copies(measurements) else []),
        *listed(facts.link_sentences(roofs)),
        *table(heads, rows, 3),
        *about,
        *([SMALL, "", *learned, ""] if learned else []),
    ]


def launches_section(measurements: "list[Measurement]", roofs: tuple[Roof, ...]) -> list[str]:
    """What calls cost before any work, on every clock."""
    if not any(m.problem.op == "launch" for m in measurements):
        return []
    found = overheads.constants(measurements)
    rows = [
        (
            c.name,
            c.device,
            c.clock,
            c.threads or "-",
            c.jit or "-",
            seconds(max(0.0, c.seconds.value)),
            cells.width(c.seconds) if c.seconds.value > 0 else "-",
            c.source,
        )
        for c in found
    ]
    heads = ("constant", "device", "clock", "threads", "jit_compile", "a time", "+-", "from")
    listed = [f"- {text(s)}" for s in facts.launch_sentences(roofs)]
    listed += [("  - " if line.startswith(" ") else "- ") + text(line) for line in overheads.lines(found)]
    return ["## Launches and framework constants", "", *listed, *([""] if listed else []), *table(heads, rows, 5)]
