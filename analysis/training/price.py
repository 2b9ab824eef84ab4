"""Money and joules of a whole training: by an hour's price, and by the power measured in rows of the same device."""

import math
from collections.abc import Iterable

import msgspec

from analysis.stats import Estimate
from kernels.problems import Training
from workloads.records import Measurement

# Values of a row: watts on average, and at most.
_POWERS = ("watts", "gpu_power_w")


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Money and joules of a whole training."""

    device: str
    #: None where no price is known.
    money: Estimate | None
    #: None where no power is known.
    joules: Estimate | None


def cost(
    training: Training, whole_s: Estimate, device: str, prices: dict[str, float], measurements: Iterable[Measurement]
) -> Cost:
    """The money and energy of a whole training that takes `whole_s` seconds.

    prices: "cpu" or "gpu" -> money an hour. measurements: rows from which the device's power is taken.
    """
    price = prices.get("cpu" if device == "cpu" else "gpu")
    watts = power(training, device, measurements)
    return Cost(
        device=device,
        money=None if price is None else whole_s * (price / 3600),
        joules=whole_s * watts if watts else None,
    )


def power(training: Training, device: str, measurements: Iterable[Measurement]) -> float | None:
    """Watts of a device while it trained or answered, from the row of the most similar batch: one of the same model if there is
    any, else of any model. Average power counts before the highest. None without a row that has power."""
    rows = [row for row in measurements if row.device == device and row.problem.model]
    for name in _POWERS:
        with_power = [row for row in rows if name in row.values]
        same_model = [row for row in with_power if row.problem.model == training.model]
        candidates = same_model or with_power
        if candidates:
            nearest = min(candidates, key=lambda row: abs(math.log(row.problem.batch / training.batch)))
            return nearest.values[name]
    return None
