"""What the page's calculator answers, which its JavaScript works out from the same tables."""

from collections.abc import Iterable, Mapping

from analysis.report.calculator import Looked, Tool, look_up


def call(tool: Tool, at: Iterable[float], way: str = "", uses: int = 1) -> dict[str, Looked]:
    """Seconds of one call on each side; with a way of copying, the GPU's share of a copy that is used so often."""
    at = list(at)
    found = {side: look_up(table, at) for side, table in tool.sides.items()}
    if way:
        copied = look_up(tool.copies[way], at)
        gpu = found["gpu"]
        found["gpu"] = Looked(gpu.seconds + copied.seconds / uses, gpu.extrapolated or copied.extrapolated)
    return found


def job(tool: Tool, batch: float, epochs: float) -> dict[str, Looked]:
    """Seconds of a whole job on each side: what happens once, and its epochs."""
    made = {}
    for side in tool.once:
        once, epoch = look_up(tool.once[side], [batch]), look_up(tool.epoch[side], [batch])
        made[side] = Looked(once.seconds + epochs * epoch.seconds, once.extrapolated or epoch.extrapolated)
    return made


def winner(found: Mapping[str, Looked]) -> str:
    """The side that takes less time; cpu or gpu."""
    return min(found, key=lambda side: found[side].seconds)
