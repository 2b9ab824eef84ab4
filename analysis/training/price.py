"""What a job costs: money by an hour's price, joules by the power that rows of the same device had."""

import math
from collections.abc import Iterable

import msgspec

from analysis.stats import Estimate
from kernels.problems import Training
from workloads.records import Measurement

_POWERS = {"watts": "on average", "gpu_power_w": "at most"}  # value of a row -> how it was taken, the better first


class Cost(msgspec.Struct, frozen=True):
    """A job's money and joules, None where no price or power is known; `watts_from`: where the power comes from."""

    device: str
    money: Estimate | None
    joules: Estimate | None
    watts_from: str


def cost(
    training: "Training", job_s: Estimate, device: str, prices: dict[str, float], measurements: "Iterable[Measurement]"
) -> Cost:
    """The cost of a job of so many seconds; `prices`: cpu or gpu -> money an hour."""
    price = prices.get("cpu" if device == "cpu" else "gpu")
    watts, source = power(training, device, measurements)
    money = None if price is None else job_s * (price / 3600)
    return Cost(device, money, job_s * watts if watts else None, source)


def power(training: "Training", device: str, measurements: "Iterable[Measurement]") -> tuple[float | None, str]:
    """Watts of the device while it trained or answered, of this model's rows before others' and of the nearest batch, and which
    row they are of; None without one."""
    rows = [m for m in measurements if m.device == device and m.problem.model]
    for name, how in _POWERS.items():
        seen = [m for m in rows if name in m.values]
        if own := [m for m in seen if m.problem.model == training.model] or seen:
            best = min(own, key=lambda m: abs(math.log(m.problem.batch / training.batch)))
            return best.values[name], f"{best.problem.op} of {best.problem.model} at batch {best.problem.batch}, {how}"
    return None, ""
