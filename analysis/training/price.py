"""Money and joules of a whole training: by an hour's price, and by the power measured in rows of the same device."""

import math
from collections.abc import Iterable

import msgspec

from analysis.stats import Estimate
from kernels.problems import Training
from workloads.records import Measurement

_POWERS = ("watts", "gpu_power_w")  # values of a row, on average and at most


class Cost(msgspec.Struct, frozen=True):
    """Money and joules of a whole training, None where no price or power is known."""

    device: str
    money: Estimate | None
    joules: Estimate | None


def cost(
    training: "Training", job_s: Estimate, device: str, prices: dict[str, float], measurements: "Iterable[Measurement]"
) -> Cost:
    """The cost of a whole training of `job_s` seconds; `prices`: cpu or gpu -> money an hour."""
    price = prices.get("cpu" if device == "cpu" else "gpu")
    watts = power(training, device, measurements)
    return Cost(device, None if price is None else job_s * (price / 3600), job_s * watts if watts else None)


def power(training: "Training", device: str, measurements: "Iterable[Measurement]") -> float | None:
    """Watts of the device while it trained or answered, of this model's rows before others' and of the nearest batch; None
    without one."""
    rows = [m for m in measurements if m.device == device and m.problem.model]
    for name in _POWERS:
        seen = [m for m in rows if name in m.values]
        if own := [m for m in seen if m.problem.model == training.model] or seen:
            return min(own, key=lambda m: abs(math.log(m.problem.batch / training.batch))).values[name]
    return None
