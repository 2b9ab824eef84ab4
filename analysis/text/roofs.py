"""Roofs, and the part of them that a row reaches, in words."""

from analysis.roofline.bounds import NO_CACHE_ROOF, Judged, Roof
from analysis.units import bytes_rate, flops_rate, percent, seconds

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
