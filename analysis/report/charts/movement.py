"""Charts of bytes: bandwidth by working set, and copies between host and device with their fitted laws."""

from collections.abc import Iterable

from analysis import labels
from analysis.report.charts.chart import Axis, Chart, Trace, View, line, marks, rounded
from analysis.report.material import Material
from analysis.roofline import links, memory_levels
from analysis.stats import group_by, is_gpu
from analysis.table import Table
from analysis.units import bytes_rate, count, join, percent, seconds, size
from workloads.records import Measurements

#: Operations, the first drawn where several have as many sizes.
_ORDER = ("triad", "copy", "add", "scale", "read")
#: Ways of copying that are drawn although they share a library with others.
_ALSO_DRAWN = ("asarray", "staged", "dataset")
Curves = dict[memory_levels.Key, memory_levels.Curve]


def memory(material: Material) -> list[Chart]:
    """The chart of memory: bandwidth against the bytes that are worked on, a line a device and thread count; [] without curves of
    enough sizes.
    """
    curves = _shown_curves(material.rows)
    if not curves:
        return []
    traces = []
    rows = []
    for i, (key, curve) in enumerate(curves.items()):
        name = _where(key.device, curves)
        if key.threads:
            name += f", {count(key.threads, 'thread')}"
        says = []
        for point in curve:
            rate = bytes_rate(point.rate.value)
            says.append(f"{name}, {key.operation} over {size(point.nbytes)}: {rate}")
            rows.append((name, key.operation, size(point.nbytes), rate, labels.short(point.kernel)))
        points = [(point.nbytes, point.rate) for point in curve]
        traces.append(line(f"{name}, {key.operation}", points, says=says, **marks(i)))
    plateaus = _shown_plateaus(material, curves)
    traces += [_plateau_trace(plateau) for plateau in plateaus]
    view = View(
        label="",
        x=Axis(title="working set", unit="byte"),
        y=Axis(title="bandwidth", unit="byte/s"),
        traces=traces,
        says=_levels_sentence(plateaus, curves),
    )
    return [
        Chart(
            name="memory",
            title="Memory: bandwidth by working set",
            views=[view],
            numbers=Table("device | operation | working set | bandwidth | fastest there", rows, left=2),
            picture="memory.svg",
        )
    ]


def _shown_plateaus(material: Material, curves: Curves) -> list[memory_levels.Plateau]:
    """The levels of memory on the drawn curves, by rising thread count."""
    shown = []
    for plateau in memory_levels.plateaus(material.rows, material.analysis.machine):
        key = memory_levels.Key(device=plateau.device, threads=plateau.threads, operation=plateau.operation)
        if key in curves:
            shown.append(plateau)
    return sorted(shown, key=lambda plateau: plateau.threads or 0)


def _plateau_label(plateau: memory_levels.Plateau) -> str:
    return f"{plateau.name} {bytes_rate(plateau.rate.value)}"


def _plateau_trace(plateau: memory_levels.Plateau) -> Trace:
    """The measured bandwidth of a cache or memory as a horizontal line over the working sets that it holds."""
    rate = rounded(plateau.rate.value)
    words = f"{plateau.name}: {bytes_rate(plateau.rate.value)}"
    return Trace(
        name=plateau.name,
        x=[plateau.from_bytes, plateau.to_bytes],
        y=[rate, rate],
        color="ink",
        dash="dot",
        says=[words, words],
        legend=False,
        label=_plateau_label(plateau),
    )


def _levels_sentence(plateaus: list[memory_levels.Plateau], curves: Curves) -> str:
    """A sentence on the bandwidth of every cache and memory of every device; of several thread counts the highest."""
    rates = {}
    for plateau in plateaus:
        device = _where(plateau.device, curves)
        rates[device, plateau.name] = f"{device} {_plateau_label(plateau)} ({plateau.operation})"
    if not rates:
        return "No level of memory showed as a flat part."
    return f"{join(rates.values())}."


def copies(material: Material) -> list[Chart]:
    """The chart of copies between host and GPU: measured seconds against bytes as points, and fitted as lines; [] without
    fits.
    """
    laws = _drawn_laws(links.host_links(material.rows))
    if not laws:
        return []
    traces = []
    rows = []
    for i, law in enumerate(laws):
        name = _law_name(law)
        errors = links.errors(law, material.rows)
        traces += _law_traces(name, errors, i)
        for nbytes, fitted, measured, error in errors:
            rows.append((name, size(nbytes), seconds(measured), seconds(fitted), percent(error)))
    fastest = {law.direction: f"{_law_name(law)} {bytes_rate(law.bandwidth.value)}" for law in reversed(laws)}
    view = View(
        label="",
        x=Axis(title="bytes of a copy", unit="byte"),
        y=Axis(title="time of a copy", unit="s"),
        traces=traces,
        says=f"The fastest to copy: {join(fastest.values())}.",
    )
    return [
        Chart(
            name="transfers",
            title="Copies between host and GPU",
            views=[view],
            numbers=Table("way | bytes | measured | by the law | off by", rows),
            picture="transfers.svg",
        )
    ]


def _law_traces(name: str, errors: list[tuple[int, float, float, float]], number: int) -> list[Trace]:
    """The measured points of one kind of copy, and the line of its fit.

    errors: (bytes, fitted seconds, measured seconds, relative error) for each size. number: which kind, from 0; it gives the
    color.
    """
    look = marks(number)
    sizes = []
    measured_times = []
    fitted_times = []
    says = []
    for nbytes, fitted, measured, error in errors:
        sizes.append(rounded(nbytes))
        measured_times.append(rounded(measured))
        fitted_times.append(rounded(fitted))
        times = f"{seconds(measured)} measured, {seconds(fitted)} by the law ({percent(error)} off)"
        says.append(f"{name}, {size(nbytes)}: {times}")
    points = Trace(
        name=name,
        x=sizes,
        y=measured_times,
        color=look["color"],
        marker=look["marker"],
        line=False,
        says=says,
        hollow=True,
    )
    fit = Trace(
        name=f"{name}, law",
        x=sizes,
        y=fitted_times,
        color=look["color"],
        dash=look["dash"],
        says=says,
        legend=False,
    )
    return [points, fit]


def _shown_curves(measurements: Measurements) -> Curves:
    """The curves to draw: for each device that of one thread and that of most threads. Of several operations the one with most
    sizes, and among these the first of _ORDER.
    """
    long_curves = {}
    for key, curve in memory_levels.curves(measurements).items():
        if len(curve) >= memory_levels.LEAST_SIZES:
            long_curves[key] = curve
    shown = {}
    for keys in group_by(long_curves, lambda key: key.device).values():
        by_threads = group_by(keys, lambda key: key.threads or 0)
        for threads in dict.fromkeys((min(by_threads), max(by_threads))):
            best = min(by_threads[threads], key=lambda key: (-len(long_curves[key]), _ORDER.index(key.operation)))
            shown[best] = long_curves[best]
    return shown


def _where(device: str, shown: Iterable[memory_levels.Key]) -> str:
    """The device in words; its number is left out where it is the only GPU."""
    gpus = {key.device for key in shown if is_gpu(key.device)}
    return "GPU" if gpus == {device} else labels.numbered(device)


def _drawn_laws(laws: list[links.Link]) -> list[links.Link]:
    """The fits to draw: of each direction, kind of host memory and library the first, which is the fastest. Registered and
    write-combined memory is left out where pinned memory was measured. The copies of _ALSO_DRAWN are drawn besides.
    """
    drawn: dict[tuple, links.Link] = {}
    pinned = {law.direction for law in laws if law.host_memory == "pinned"}
    for law in laws:
        if law.host_memory in ("registered", "write-combined") and law.direction in pinned:
            continue
        variant = labels.variant(law.kernel)
        kind = variant if variant in _ALSO_DRAWN else labels.backend(law.kernel)
        drawn.setdefault((law.direction, law.host_memory, kind), law)
    return list(drawn.values())


def _law_name(law: links.Link) -> str:
    """Direction, host memory and kernel of a copy in words: `h2d pinned memcpy_async`."""
    is_cupy = labels.backend(law.kernel) == "cupy"
    kernel = labels.variant(law.kernel) if is_cupy else labels.short(law.kernel)
    return " ".join(filter(None, (law.direction, law.host_memory, kernel)))
