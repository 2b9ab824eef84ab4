"""How fast bytes move: the pictures and sections of memory levels, host-device copies, and what calls cost before any work."""

from typing import TYPE_CHECKING

from analysis import labels
from analysis.roofline import links, memory_levels, overheads
from analysis.table import listed, shown, table
from analysis.text import feeding
from analysis.units import bytes_rate, join, size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.report.material import Material
    from workloads.records import Measurement

_ORDER = ("triad", "copy", "add", "scale", "read")
_APART = ("asarray", "staged", "dataset")


def shown_curves(measurements: "Iterable[Measurement]") -> "dict[memory_levels.Key, memory_levels.Curve]":
    """One operation a device, with one thread and with most: the triad where it has as many sizes as the others."""
    found = {
        key: curve
        for key, curve in memory_levels.curves(measurements).items()
        if len(curve) >= memory_levels.LEAST_SIZES
    }
    made = {}
    for device in dict.fromkeys(key[0] for key in found):
        counts = sorted({key[1] or 0 for key in found if key[0] == device})
        for threads in dict.fromkeys((counts[0], counts[-1])):
            here = [key for key in found if (key[0], key[1] or 0) == (device, threads)]
            best = min(here, key=lambda key: (-len(found[key]), _ORDER.index(key[2])))
            made[best] = found[best]
    return made


def where_words(device: str, shown: "Iterable[memory_levels.Key]") -> str:
    gpus = {key[0] for key in shown if key[0].startswith("gpu")}
    return "GPU" if gpus == {device} else device.upper().replace(":", " ")


def telling(laws: list[links.Link]) -> list[links.Link]:
    """One law for each way that behaves differently: of each direction and memory the fastest, registered and write-combined
    memory only where none is pinned, and apart from them what people write (asarray) and our staged copy."""
    made: dict[tuple, links.Link] = {}
    pinned = {x.direction for x in laws if x.host_memory == "pinned"}
    for law in laws:
        if law.host_memory in ("registered", "write-combined") and law.direction in pinned:
            continue
        variant = law.kernel.rpartition("/")[2]
        made.setdefault(
            (law.direction, law.host_memory, variant if variant in _APART else law.kernel.split("/")[1]), law
        )
    return list(made.values())


def way_words(law: links.Link) -> str:
    return " ".join(filter(None, (law.direction, law.host_memory, law.kernel.partition("/")[2].replace("cupy/", ""))))


def memory_section(of: "Material") -> list[str]:
    """The levels found with their bandwidth."""
    if not shown_curves(of.rows):
        return []
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
    return table(heads, rows, 4) if rows else []


def copies_section(of: "Material") -> list[str]:
    """The laws of copying, and what of the link they reach."""
    if not any(m.problem.op == "transfer" for m in of.rows):
        return []
    return [*shown(links.lines(of.rows), markdown=True), ""]


def feeding_section(of: "Material") -> list[str]:
    """What it takes to feed a training: the answer and the laws; empty without rows of the study."""
    found = feeding.laws(of.rows)
    return [*listed(feeding.sentences(of.rows)), *(found.md() if found.rows else [])]


def launches_section(of: "Material") -> list[str]:
    """What calls cost before any work, on every clock."""
    if not any(m.problem.op == "launch" for m in of.rows):
        return []
    return overheads.table(overheads.constants(of.rows)).md()
