"""How far from the hardware's limit: the measured ceilings, and the ladder of our own kernels under them."""

from analysis import labels
from analysis.blocks import Block, Paragraph, listed, tabled, titled
from analysis.crossover import ladder
from analysis.report.charts.roofline import products
from analysis.report.material import Material
from analysis.roofline.bounds import Roofs, pick, ridge
from analysis.table import Table
from analysis.units import count, digits, join, percent

CEILINGS = "device | roof | rate | ± | of the data sheet | ridge, FLOP per byte | measured by"


def section(of: Material) -> list[Block]:
    """The ceilings; nothing without a measured one or a matmul."""
    measured = ceilings(of.analysis.roofs)
    if not measured and not products(of.rows, of.analysis.roofs):
        return []
    found = Table(CEILINGS, measured, 2, "of the data sheet | ridge, FLOP per byte")
    blocks = tabled(found) or [Paragraph(text="No roof was measured.")]
    sheets = dict.fromkeys(roof.source for roof in of.analysis.roofs if not roof.measured)
    if sheets:
        words = f"Data-sheet peaks, dotted in the picture, are dense ones from: {join(sheets)}."
        blocks.append(Paragraph(text=words))
    return blocks


def ceilings(roofs: Roofs) -> list[tuple]:
    """The measured roofs under CEILINGS."""
    rows = []
    for r in (r for r in roofs if r.measured):
        threads = count(r.threads, "thread") if r.threads else ""
        name = ", ".join(filter(None, (r.label, threads, r.note)))
        alike = (s for s in roofs if not s.measured and (s.device, s.kind, s.name) == (r.device, r.kind, r.name))
        share = next((percent(r.rate.value / sheet.rate.value) for sheet in alike), "-")
        memory = pick(roofs, r.device, "memory", "", r.threads) if r.kind == "compute" else None
        corner = digits(ridge(r, memory)) if memory else "-"
        rows.append((r.device, name, r.speed, labels.width(r.rate), share, corner, r.source))
    return rows


def ladder_section(of: Material, op: str) -> list[Block]:
    """What each rung gained, by device, arithmetic and thread count; [] without teaching rungs. The chart has the numbers."""
    found = of.analysis.ladders[op]
    about = "Our own kernels, the simplest first, beside the fastest library there and under the measured peak."
    blocks: list[Block] = [Paragraph(text=about)] if found else []
    for one in found:
        blocks += titled(ladder.title(one), listed(ladder.sentences(one)))
    return blocks
