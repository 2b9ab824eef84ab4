"""How fast bytes move: memory levels, host-device copies, what feeds a training, and what calls cost before any work."""

from analysis import labels
from analysis.report.material import Material
from analysis.roofline import links, memory_levels, overheads
from analysis.table import Table, listed, shown
from analysis.text import feeding
from analysis.units import bytes_rate, join, size


def memory_section(of: Material) -> list[str]:
    rows = [
        (
            p.device,
            p.threads or "-",
            p.operation,
            p.name,
            bytes_rate(p.rate.value),
            labels.width(p.rate),
            f"{size(p.from_bytes)} to {size(p.to_bytes)}",
            p.points,
            join(p.kernels),
        )
        for p in sorted(
            memory_levels.plateaus(of.rows, of.machine),
            key=lambda p: (p.device, p.threads or 0, p.operation, p.from_bytes),
        )
    ]
    heads = "device | threads | operation | level | bandwidth | ± | working sets | sizes | fastest there"
    return Table(heads, rows, 4).md()


def copies_section(of: Material) -> list[str]:
    """The laws of copying, and what of the link they reach."""
    found = shown(links.lines(of.rows), markdown=True)
    return [*found, ""] if found else []


def feeding_section(of: Material) -> list[str]:
    """What it takes to feed a training: what the page's answer has not said already, and the laws; empty without rows of the
    study."""
    told = listed(said for said in feeding.sentences(of.rows) if said not in of.said)
    return [*told, *feeding.laws(of.rows).md()]


def launches_section(of: Material) -> list[str]:
    """What calls cost before any work, on every clock."""
    return overheads.table(overheads.constants(of.rows)).md()
