"""The layers of a model that nothing here knows, and how much of a step's arithmetic they are."""

import msgspec

from analysis.units import join, percent
from kernels import networks
from kernels.networks import Network
from kernels.networks.layers import unknown


class UnknownShare(msgspec.Struct, frozen=True):
    """The layers that nothing here knows, in words, how many, and their share of a step's arithmetic and bytes, itself estimated
    from weights and outputs."""

    names: str
    layers: int
    arithmetic: float
    moved: float

    @property
    def most(self) -> bool:
        """Whether more than half of a step's arithmetic is of them, so that its time is a guess."""
        return self.arithmetic > 0.5

    @property
    def words(self) -> str:
        return (
            f"{self.names}: nothing here knows {'it' if self.layers == 1 else 'them'}; the share is estimated from "
            f"weights and outputs, about {percent(self.arithmetic)} of a step's arithmetic and {percent(self.moved)} of its "
            "bytes"
        )


def unknown_share(network: Network, batch: int) -> UnknownShare | None:
    """What of a step of so many samples is of unknown kinds; None of a network that is known throughout."""
    kinds = {layer.name: layer.kind for layer in unknown(network)}
    if not kinds:
        return None
    works = [w for w in networks.step(network, batch) if w.problem]
    own = [w for w in works if w.layer in kinds]
    shares = (
        sum(map(of, own)) / max(1, sum(map(of, works))) for of in (lambda w: w.flops, lambda w: w.problem.bytes_moved)
    )
    return UnknownShare(join(f"{name} ({kind})" for name, kind in kinds.items()), len(kinds), *shares)
