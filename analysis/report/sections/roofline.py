"""How far from the hardware's limit: the measured ceilings, and the ladder of our own kernels under them."""

from analysis import labels
from analysis.blocks import Block, Paragraph, listed, tabled, titled
from analysis.crossover import ladder
from analysis.report.charts.roofline import products
from analysis.report.material import Material
from analysis.roofline.bounds import Roofs, measured_roof, ridge
from analysis.roofline.roofs import Roof
from analysis.table import Table
from analysis.units import count, digits, join, percent

CEILINGS = "device | roof | rate | ± | of the data sheet | ridge, FLOP per byte | measured by"


def section(material: Material) -> list[Block]:
    """The table of roofs; [] without a measured roof and without square products."""
    roofs = material.analysis.roofs
    rows = ceilings(roofs)
    if not rows and not products(material.rows, roofs):
        return []
    table = Table(CEILINGS, rows, left=2, optional="of the data sheet | ridge, FLOP per byte")
    blocks = tabled(table) or [Paragraph(text="No roof was measured.")]
    sheets = dict.fromkeys(roof.source for roof in roofs if not roof.measured)
    if sheets:
        words = f"Data-sheet peaks, dotted in the picture, are dense ones from: {join(sheets)}."
        blocks.append(Paragraph(text=words))
    return blocks


def ceilings(roofs: Roofs) -> list[tuple[str, ...]]:
    """The cells under CEILINGS of the measured roofs."""
    rows: list[tuple[str, ...]] = []
    for roof in roofs:
        if not roof.measured:
            continue
        threads = count(roof.threads, "thread") if roof.threads else ""
        name = ", ".join(filter(None, (roof.label, threads, roof.note)))
        share = _share_of_data_sheet(roof, roofs)
        rows.append((roof.device, name, roof.speed, labels.width(roof.rate), share, _ridge(roof, roofs), roof.source))
    return rows


def _share_of_data_sheet(roof: Roof, roofs: Roofs) -> str:
    """The share that a measured roof reaches of the data sheet's; a dash where the sheet has none."""
    for sheet in roofs:
        if not sheet.measured and (sheet.device, sheet.kind, sheet.name) == (roof.device, roof.kind, roof.name):
            return percent(roof.rate.value / sheet.rate.value)
    return "-"


def _ridge(roof: Roof, roofs: Roofs) -> str:
    """The intensity at which a peak meets the device's memory roof; a dash for a roof that is no peak."""
    if roof.kind != "compute":
        return "-"
    memory = measured_roof(roofs, roof.device, "memory", threads=roof.threads)
    return digits(ridge(roof, memory)) if memory else "-"


def ladder_section(material: Material, op: str) -> list[Block]:
    """Sentences on what each of our kernels for an operation gains over the simpler one before it, for each device, arithmetic
    and thread count; [] where none was measured. Its numbers are in the chart.
    """
    ladders = material.analysis.ladders[op]
    if not ladders:
        return []
    about = "Our own kernels, the simplest first, beside the fastest library there and under the measured peak."
    blocks: list[Block] = [Paragraph(text=about)]
    for rungs in ladders:
        blocks += titled(ladder.title(rungs), listed(ladder.sentences(rungs)))
    return blocks
