"""Charts of bytes: bandwidth by working set, and copies between host and device with their fitted laws."""

from analysis.report.charts.chart import Axis, Chart, Trace, View, line, marks, rounded
from analysis.report.material import Material
from analysis.report.sections import movement
from analysis.roofline import links, memory_levels
from analysis.table import Table
from analysis.units import bytes_rate, count, join, percent, seconds, size


def memory(of: Material) -> list[Chart]:
    """Bandwidth against working set, a line a device and thread count; none without enough sizes."""
    shown = movement.shown_curves(of.rows)
    if not shown:
        return []
    traces, rows = [], []
    for i, ((device, threads, operation), curve) in enumerate(shown.items()):
        where = movement.where_words(device, shown) + (f", {count(threads, 'thread')}" if threads else "")
        says = [f"{where}, {operation} over {size(p.nbytes)}: {bytes_rate(p.rate.value)}" for p in curve]
        traces.append(line(f"{where}, {operation}", [(p.nbytes, p.rate) for p in curve], says=says, **marks(i)))
        rows += [
            (where, operation, size(p.nbytes), bytes_rate(p.rate.value), p.kernel.partition("/")[2]) for p in curve
        ]
    levels = {}  # (device, name) -> that of most threads
    for p in sorted(memory_levels.plateaus(of.rows, of.machine), key=lambda p: p.threads or 0):
        if (p.device, p.threads, p.operation) in shown:
            at, words = ([p.from_bytes, p.to_bytes], [rounded(p.rate.value)] * 2), bytes_rate(p.rate.value)
            says, label = [f"{p.name}: {words}"] * 2, f"{p.name} {words}"
            levels[movement.where_words(p.device, shown), p.name] = label
            traces.append(Trace(p.name, *at, "ink", dash="dot", legend=False, says=says, label=label))
    told = (
        join(f"{where} {label}" for (where, _), label in levels.items()) or "No level of memory showed as a flat part"
    )
    view = View("", Axis("working set", "bytes"), Axis("bandwidth", "rate"), traces, f"{told}.")
    heads = "device | operation | working set | bandwidth | fastest there"
    return [Chart("memory", "Memory: bandwidth by working set", [view], Table(heads, rows, 2), "memory.svg")]


def copies(of: Material) -> list[Chart]:
    """Seconds of a copy against its bytes: points measured, lines the fitted laws; none without laws."""
    traces, rows = [], []
    laws = movement.telling(links.laws_of(of.rows))
    if not laws:
        return []
    for i, law in enumerate(laws):
        way, seen, how = movement.way_words(law), links.errors(law, of.rows), marks(i)
        sizes = [rounded(nbytes) for nbytes, *_ in seen]
        says = [
            f"{way}, {size(n)}: {seconds(t)} measured, {seconds(fit)} by the law ({percent(e)} off)"
            for n, fit, t, e in seen
        ]
        times, fits = [rounded(t) for _, _, t, _ in seen], [rounded(fit) for _, fit, _, _ in seen]
        color, marker, dash = how.values()
        traces += [
            Trace(way, sizes, times, color, marker, line=False, says=says, hollow=True),
            Trace(f"{way}, law", sizes, fits, color, dash=dash, says=says, legend=False),
        ]
        rows += [(way, size(n), seconds(t), seconds(fit), percent(e)) for n, fit, t, e in seen]
    fastest = f"{movement.way_words(laws[0])}: {bytes_rate(laws[0].bandwidth.value)}"
    told = f"Of {count(len(laws), 'way')} to copy the fastest is {fastest}."
    view = View("", Axis("bytes of a copy", "bytes"), Axis("time of a copy", "seconds"), traces, told)
    heads = "way | bytes | measured | by the law | off by"
    return [Chart("transfers", "Copies between host and GPU", [view], Table(heads, rows), "transfers.svg")]
