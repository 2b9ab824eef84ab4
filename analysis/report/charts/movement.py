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

_ORDER = ("triad", "copy", "add", "scale", "read")
_APART = ("asarray", "staged", "dataset")


def memory(of: Material) -> list[Chart]:
    """Bandwidth against working set, a line a device and thread count; none without enough sizes."""
    shown = _shown_curves(of.rows)
    if not shown:
        return []
    traces, rows = [], []
    for i, (key, curve) in enumerate(shown.items()):
        operation = key.operation
        where = _where(key.device, shown) + (f", {count(key.threads, 'thread')}" if key.threads else "")
        says = [f"{where}, {operation} over {size(p.nbytes)}: {bytes_rate(p.rate.value)}" for p in curve]
        traces.append(line(f"{where}, {operation}", [(p.nbytes, p.rate) for p in curve], says=says, **marks(i)))
        rows += [(where, operation, size(p.nbytes), bytes_rate(p.rate.value), labels.short(p.kernel)) for p in curve]
    levels = {}  # (device, name) -> that of most threads
    for p in sorted(memory_levels.plateaus(of.rows, of.analysis.machine), key=lambda p: p.threads or 0):
        if memory_levels.Key(device=p.device, threads=p.threads, operation=p.operation) in shown:
            at, words = ([p.from_bytes, p.to_bytes], [rounded(p.rate.value)] * 2), bytes_rate(p.rate.value)
            says, label = [f"{p.name}: {words}"] * 2, f"{p.name} {words}"
            levels[_where(p.device, shown), p.name] = f"{label} ({p.operation})"
            traces.append(
                Trace(name=p.name, x=at[0], y=at[1], color="ink", dash="dot", legend=False, says=says, label=label)
            )
    told = join(f"{where} {label}" for (where, _), label in levels.items())
    said = f"{told or 'No level of memory showed as a flat part'}."
    view = View(
        label="",
        x=Axis(title="working set", unit="byte"),
        y=Axis(title="bandwidth", unit="byte/s"),
        traces=traces,
        says=said,
    )
    heads = "device | operation | working set | bandwidth | fastest there"
    return [
        Chart(
            name="memory",
            title="Memory: bandwidth by working set",
            views=[view],
            numbers=Table(heads, rows, 2),
            picture="memory.svg",
        )
    ]


def copies(of: Material) -> list[Chart]:
    """Seconds of a copy against its bytes: points measured, lines the fitted laws; none without laws."""
    traces, rows = [], []
    laws = _telling(links.laws_of(of.rows))
    if not laws:
        return []
    for i, law in enumerate(laws):
        way, seen, how = _way(law), links.errors(law, of.rows), marks(i)
        sizes = [rounded(nbytes) for nbytes, *_ in seen]
        says = [
            f"{way}, {size(n)}: {seconds(t)} measured, {seconds(fit)} by the law ({percent(e)} off)"
            for n, fit, t, e in seen
        ]
        times, fits = [rounded(t) for _, _, t, _ in seen], [rounded(fit) for _, fit, _, _ in seen]
        color, marker, dash = how.values()
        traces += [
            Trace(name=way, x=sizes, y=times, color=color, marker=marker, line=False, says=says, hollow=True),
            Trace(name=f"{way}, law", x=sizes, y=fits, color=color, dash=dash, says=says, legend=False),
        ]
        rows += [(way, size(n), seconds(t), seconds(fit), percent(e)) for n, fit, t, e in seen]
    fastest = {law.direction: f"{_way(law)} {bytes_rate(law.bandwidth.value)}" for law in reversed(laws)}
    told = f"The fastest to copy: {join(fastest.values())}."
    view = View(
        label="",
        x=Axis(title="bytes of a copy", unit="byte"),
        y=Axis(title="time of a copy", unit="s"),
        traces=traces,
        says=told,
    )
    heads = "way | bytes | measured | by the law | off by"
    return [
        Chart(
            name="transfers",
            title="Copies between host and GPU",
            views=[view],
            numbers=Table(heads, rows),
            picture="transfers.svg",
        )
    ]


def _shown_curves(measurements: Measurements) -> dict[memory_levels.Key, memory_levels.Curve]:
    """One operation a device, with one thread and with most: the triad where it has as many sizes as the others."""
    every, least = memory_levels.curves(measurements), memory_levels.LEAST_SIZES
    found = {key: curve for key, curve in every.items() if len(curve) >= least}
    made = {}
    for keys in group_by(found, lambda key: key.device).values():
        by_threads = group_by(keys, lambda key: key.threads or 0)
        for threads in dict.fromkeys((min(by_threads), max(by_threads))):
            best = min(by_threads[threads], key=lambda key: (-len(found[key]), _ORDER.index(key.operation)))
            made[best] = found[best]
    return made


def _where(device: str, shown: Iterable[memory_levels.Key]) -> str:
    """The device in words; its number is left out where it is the only GPU."""
    gpus = {key.device for key in shown if is_gpu(key.device)}
    return "GPU" if gpus == {device} else labels.numbered(device)


def _telling(laws: list[links.Link]) -> list[links.Link]:
    """One law for each way of copying that behaves differently. Of each direction and memory the fastest; registered and
    write-combined memory only if none is pinned. Also what people write (asarray) and our staged copy."""
    made: dict[tuple, links.Link] = {}
    pinned = {x.direction for x in laws if x.host_memory == "pinned"}
    for law in laws:
        if law.host_memory in ("registered", "write-combined") and law.direction in pinned:
            continue
        variant = labels.variant(law.kernel)
        kind = variant if variant in _APART else labels.backend(law.kernel)
        made.setdefault((law.direction, law.host_memory, kind), law)
    return list(made.values())


def _way(law: links.Link) -> str:
    is_cupy = labels.backend(law.kernel) == "cupy"
    kernel = labels.variant(law.kernel) if is_cupy else labels.short(law.kernel)
    return " ".join(filter(None, (law.direction, law.host_memory, kernel)))
