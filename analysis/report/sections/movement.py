"""How fast bytes move: memory levels, host-device copies, the input pipeline, and the cost of calls without work."""

from analysis import labels
from analysis.blocks import Block, Paragraph, listed, tabled
from analysis.report.material import Material
from analysis.roofline import links, memory_levels, overheads
from analysis.table import Table
from analysis.text import input_pipeline
from analysis.units import bytes_rate, join, size


def memory_section(material: Material) -> list[Block]:
    """A table of the bandwidth of every memory level, a line a device, thread count, operation and level."""
    plateaus = memory_levels.plateaus(material.rows, material.analysis.machine)
    rows = []
    for plateau in sorted(plateaus, key=lambda p: (p.device, p.threads or 0, p.operation, p.from_bytes)):
        rows.append(
            (
                plateau.device,
                plateau.threads or "-",
                plateau.operation,
                plateau.name,
                bytes_rate(plateau.rate.value),
                labels.width(plateau.rate),
                f"{size(plateau.from_bytes)} to {size(plateau.to_bytes)}",
                plateau.points,
                join(plateau.kernels),
            )
        )
    heads = "device | threads | operation | level | bandwidth | ± | working sets | sizes | fastest there"
    return tabled(Table(heads, rows, left=4))


def copies_section(material: Material) -> list[Block]:
    """A table of the fits of copies between host and GPU, and a sentence on the share of the link's bandwidth that they reach."""
    laws = tabled(links.link_table(material.rows))
    sentence = links.pcie_sentence(material.rows)
    if laws and sentence:
        return [*laws, Paragraph(text=sentence)]
    return laws


def input_pipeline_section(material: Material) -> list[Block]:
    """The input pipeline: sentences that the page's answer does not have, then the fitted laws; [] without rows of the
    study."""
    sentences = material.summary.left("feeding")
    return [*listed(sentences), *tabled(input_pipeline.laws(material.rows))]


def launches_section(material: Material) -> list[Block]:
    """A table of the cost of calls without work, on every clock."""
    return tabled(overheads.table(overheads.constants(material.rows)))
