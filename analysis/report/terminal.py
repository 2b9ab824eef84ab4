"""The roofline as tables on a terminal."""

from collections.abc import Iterable

from analysis.report.charts.choose import best_resident
from analysis.roofline.bounds import NO_CACHE_ROOF, Judged, Roof, describe, is_above, judge
from analysis.stats import quick_seconds
from analysis.units import bytes_rate, digits, flops_rate, percent, seconds
from workloads.records import Measurement

_WIDTH = 120
CACHED_MARK = "*"
CACHED_WORDS = "its working set fits a cache, whose roof was not measured: only the compute roof counts"


def fraction_words(judged: Judged) -> str:
    """`82.1 %`, marked where no memory roof was known to hold; `-` without a roof."""
    if judged.fraction is None:
        return "-"
    return percent(judged.fraction.value) + (f" {CACHED_MARK}" if judged.note == NO_CACHE_ROOF else "")


def roof_name(roof: Roof) -> str:
    """`float32`, `DRAM bandwidth`, `link h2d`, `launch: waited call`."""
    words = {"compute": roof.name, "link": f"link {roof.name}", "launch": f"launch: {roof.name}"}
    return words.get(roof.kind, f"{roof.name} bandwidth")


def roof_rate(roof: Roof) -> str:
    """The rate in its unit; of a launch, the time of a call."""
    if roof.kind == "launch":
        return f"{seconds(1 / roof.rate.value)} a call"
    return (flops_rate if roof.kind == "compute" else bytes_rate)(roof.rate.value)


def print_roofline(measurements: "Iterable[Measurement]", roofs: tuple[Roof, ...]) -> None:
    """Prints the ceilings, then the fastest square matmul of each device, precision and size under them."""
    from rich.console import Console

    measurements = list(measurements)
    console = Console(highlight=False)
    if not console.is_terminal:  # a file or a pipe has no width of its own
        console = Console(highlight=False, width=_WIDTH)
    if roofs:
        console.print(_ceilings(roofs))
    if best_resident(measurements):
        console.print(_rows(measurements, roofs))
        console.print(f"{CACHED_MARK} {CACHED_WORDS}", markup=False)
    for m in measurements:
        if is_above(m, roofs):
            console.print(f"above its roof: {describe(m)}", markup=False)


def _table(title: str, *heads: str):
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, head in enumerate(heads):
        made.add_column(head, justify="left" if i < 2 or head == "source" else "right", overflow="fold")
    return made


def _ceilings(roofs: tuple[Roof, ...]):
    made = _table("Ceilings", "device", "of", "threads", "rate", "+-%", "source")
    for r in roofs:
        note = f"{r.note}: " if r.note and r.measured else ""
        made.add_row(
            r.device,
            roof_name(r),
            str(r.threads or "-"),
            roof_rate(r),
            f"{100 * r.rate.noise:.1f}" if r.measured else "-",
            note + r.source,
        )
    return made


def _rows(measurements, roofs):
    heads = ("device", "precision", "n", "kernel", "FLOP/byte", "rate", "of its roof", "the roof", "")
    made = _table("\nSquare matmuls, data resident", *heads)
    for (device, precision), path in best_resident(measurements).items():
        for n, m in path.items():
            judged, p = judge(m, roofs), m.problem
            made.add_row(
                device,
                precision,
                str(n),
                m.label,
                digits(p.flops / p.bytes_moved),
                flops_rate(p.flops / quick_seconds(m)),
                fraction_words(judged),
                roof_name(judged.roof) if judged.roof else "-",
                judged.flag,
            )
    return made
