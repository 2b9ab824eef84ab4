"""The layers of a model that nothing here knows, and their share of a training step."""

import msgspec

from analysis.stats import group_by
from analysis.units import join, percent
from kernels import networks
from kernels.networks import Network
from kernels.networks.layers import unknown


class UnknownShare(msgspec.Struct, frozen=True, kw_only=True):
    """The layers of unknown kinds and their share of a step, by weights and outputs."""

    #: The layers, in words.
    names: str
    #: Share of the step's FLOPs.
    arithmetic: float
    #: Share of the bytes that the step moves.
    moved: float

    @property
    def most(self) -> bool:
        """Whether unknown layers are more than half of a step's arithmetic, so that its time is a guess."""
        return self.arithmetic > 0.5

    @property
    def words(self) -> str:
        share = f"about {percent(self.arithmetic)} of a step's arithmetic and {percent(self.moved)} of its bytes"
        return f"{self.names}: nothing here knows them; estimated from weights and outputs, {share}"


def unknown_share(network: Network, batch: int) -> UnknownShare | None:
    """The layers of a network whose kind is unknown here, and their estimated share of a step with `batch` samples; None if all
    kinds are known."""
    layers = unknown(network)
    if not layers:
        return None
    names = {layer.name for layer in layers}
    flops = moved = 0
    unknown_flops = unknown_moved = 0
    for work in networks.step(network, batch):
        if work.problem is None:
            continue
        flops += work.flops
        moved += work.problem.bytes_moved
        if work.layer in names:
            unknown_flops += work.flops
            unknown_moved += work.problem.bytes_moved
    kinds = group_by(layers, lambda layer: layer.kind)
    return UnknownShare(
        names=join(_named(same_kind, kind) for kind, same_kind in kinds.items()),
        arithmetic=unknown_flops / max(1, flops),
        moved=unknown_moved / max(1, moved),
    )


def _named(layers: list, kind: str) -> str:
    """`conv1 (Conv9D)`, or `3 Conv9D layers`."""
    return f"{layers[0].name} ({kind})" if len(layers) == 1 else f"{len(layers)} {kind} layers"
