"""How fast bytes move: memory levels, host-device copies, the input pipeline, and the cost of calls without work."""

from analysis import labels
from analysis.report.material import Material
from analysis.roofline import links, memory_levels, overheads
from analysis.table import Table, listed, shown
from analysis.text import input_pipeline
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
            memory_levels.plateaus(of.rows, of.analysis.machine),
            key=lambda p: (p.device, p.threads or 0, p.operation, p.from_bytes),
        )
    ]
    heads = "device | threads | operation | level | bandwidth | ± | working sets | sizes | fastest there"
    return Table(heads, rows, 4).md()


def copies_section(of: Material) -> list[str]:
    """The fitted laws of copies, and the share of the link's bandwidth that they reach."""
    found = shown(links.lines(of.rows), markdown=True)
    return [*found, ""] if found else []


def feeding_section(of: Material) -> list[str]:
    """The input pipeline: sentences that the page's answer does not have, then the fitted laws; [] without rows of the
    study."""
    return [*listed(of.summary.left("feeding")), *input_pipeline.laws(of.rows).md()]


def launches_section(of: Material) -> list[str]:
    """A table of the cost of calls without work, on every clock."""
    return overheads.table(overheads.constants(of.rows)).md()
