"""What a fit makes of its samples before its first epoch: seconds, from rows of that or of what it consists of."""

import math
from typing import TYPE_CHECKING

from analysis import sources
from analysis.curves import Point, curve
from analysis.estimate import Estimate, middle, within_factor

if TYPE_CHECKING:
    from analysis.profile import Profile

_GPU = "gpu:0"
_UNSURE = 1.5  # times: of what is put together from other copies
_TELLING = 4 << 20  # bytes: of fewer, making the set is most of it, and that is a fit's constant


def holding(of: "Profile", nbytes: int, device: str) -> Estimate | None:
    """Seconds that fit takes to make a tf.data set of so many bytes of samples in a NumPy array. They are copied into fresh
    memory; where TensorFlow sees a GPU, it makes the tensor there and the set, which is in host memory, copies it back. None
    where no row tells.

    Source: Keras's array_data_adapter (Dataset.from_tensors) and TensorFlow's _EagerConst, which places it on the GPU.
    """
    key = (sources.HOLDER, device)
    if key not in of.kept:
        rows = [
            m
            for m in of.measurements
            if m.kernel == sources.HOLDER
            and m.settings.device == device
            and m.status == "ok"
            and m.samples
            and m.problem.nbytes / 2 > _TELLING
        ]
        of.kept[key] = curve(
            (Point((math.log(m.problem.nbytes / 2),), middle(m.samples[0]), 0.0, m.problem.nbytes / 2) for m in rows),
            False,
        )
    if made := of.kept[key]:
        return made.seconds((math.log(nbytes),), 0.0, nbytes)
    there, plain = of.law(sources.CONSTANT, _GPU), of.law(sources.COPIERS[0], _GPU)
    back = next((law for kernel in sources.BACK if (law := of.law(kernel, _GPU, "d2h"))), None)
    if there is None or plain is None:
        return None
    value = there.seconds(nbytes).value
    if device == "cpu":
        value -= plain.seconds(nbytes).value
    elif back is None:
        return None
    else:
        value += back.seconds(nbytes).value
    return within_factor(value, _UNSURE) if value > 0 else None
