"""A training to explain, and its settings on each device."""

import msgspec

from analysis.predict.unknown_layers import UnknownShare, unknown_share
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from workloads.records import Settings, settings
from workloads.records.script_fit import ScriptFit

GPU = "gpu:0"


class Request(msgspec.Struct, frozen=True):
    """A training to explain."""

    #: The model with its batch, samples and epochs.
    training: Training
    #: A user's own model, with the operations of its traced step; None of one that has a name.
    network: Network | None = None
    #: Keras options by the names that rows give them.
    switches: dict[str, str] = {}
    #: Samples evaluated after each epoch.
    validation: int = 0
    #: Device (cpu, gpu) -> money an hour.
    prices: dict[str, float] = {}
    #: A size of the model along which a crossover is wanted beside the batch's: width, depth; "" for none.
    varies: str = ""
    #: The sizes at which that crossover is predicted first.
    sizes: tuple[int, ...] = ()
    #: Which of batch, samples and epochs were assumed, as no flag and no data gave them.
    assumed: tuple[str, ...] = ()
    #: Seconds that building the model just took, TensorFlow's import among them.
    starting_s: float = 0.0
    #: The first fit of the script that this is, with its own numbers; None of other trainings.
    script: ScriptFit | None = None

    @property
    def model(self) -> Network:
        """The layers of the model that is trained."""
        return self.network or networks.find(self.training.model)

    @property
    def without_operations(self) -> "Request":
        """The same request without the operations of its traced step: there are thousands, and JSON output leaves them out."""
        network = self.network
        if network is None or network.traced is None:
            return self
        step = msgspec.structs.replace(network.traced, operations=())
        return msgspec.structs.replace(self, network=msgspec.structs.replace(network, traced=step))

    @property
    def untraced(self) -> str:
        """Why the step is not traced, so that only a measurement tells its time; "" of a traced one."""
        step = self.model.traced
        return step.untraced if step is not None else ""

    @property
    def unknown_share(self) -> UnknownShare | None:
        """The share of a step in layers of unknown kinds; None if all are known."""
        return unknown_share(self.model, min(self.training.batch, self.training.samples))

    @property
    def is_mostly_unknown(self) -> bool:
        """Whether a predicted time would be a guess: most of the arithmetic is in layers of unknown kinds, or none is known."""
        if self.untraced:
            return True
        return self.unknown_share is not None and self.unknown_share.most


def settings_of(request: Request, device: str) -> Settings:
    """The settings of the training on a device (cpu, gpu:0). On the CPU TF32 and reduced precision are left out, and samples that
    are prefetched to the GPU come from the same tf.data set without it.
    """
    switches = {"data": "synthetic", **request.switches}
    if device == "cpu":
        if switches.get("residence") == "prefetch":
            switches["residence"] = "tf.data"
        switches = {name: text for name, text in switches.items() if name not in ("tf32", "precision")}
    return Settings(device, switches=settings.without_defaults(switches))
