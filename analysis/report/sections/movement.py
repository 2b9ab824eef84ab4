"""How fast bytes move: memory levels, host-device copies, the input pipeline, and the cost of calls without work."""

from analysis import labels
from analysis.blocks import Block, Paragraph, listed, tabled
from analysis.report.material import Material
from analysis.roofline import links, memory_levels, overheads
from analysis.table import Table
from analysis.text import input_pipeline
from analysis.units import bytes_rate, join, size


def memory_section(of: Material) -> list[Block]:
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
    return tabled(Table(heads, rows, 4))


def copies_section(of: Material) -> list[Block]:
    """The fitted laws of copies, and the share of the link's bandwidth that they reach."""
    laws = tabled(links.law_table(of.rows))
    sentence = links.pcie_sentence(of.rows)
    return [*laws, Paragraph(text=sentence)] if laws and sentence else laws


def feeding_section(of: Material) -> list[Block]:
    """The input pipeline: sentences that the page's answer does not have, then the fitted laws; [] without rows of the
    study."""
    return [*listed(of.summary.left("feeding")), *tabled(input_pipeline.laws(of.rows))]


def launches_section(of: Material) -> list[Block]:
    """A table of the cost of calls without work, on every clock."""
    return tabled(overheads.table(overheads.constants(of.rows)))
