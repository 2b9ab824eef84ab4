"""What a user's training script passes to its `fit`, as the child that runs the script tells its parent, and what that child is
ordered to do."""

import msgspec
from msgspec.structs import replace

from kernels.networks.layers import Network
from workloads.records.rows import Row
from workloads.shared_flags import Limits


class SideEffects(msgspec.Struct, frozen=True, kw_only=True):
    """What a script did before its `fit` besides computing."""

    #: Files that it wrote.
    written: tuple[str, ...] = ()
    #: Seconds that it slept.
    slept_s: float = 0.0
    #: Lines that it printed.
    printed: int = 0


class ScriptFit(msgspec.Struct, frozen=True, kw_only=True):
    """A call of `fit` in a script: the first one, or the one that was named."""

    #: The script as it was typed.
    script: str
    #: Where the call stands in it: `line 41`, `cell 3, line 2`.
    place: str
    #: Inputs of the model.
    inputs: int
    #: Samples of a step.
    batch: int
    #: Samples of an epoch, without those for validation; None where the data do not tell.
    samples: int | None
    epochs: int
    #: Whether a callback may end it before the last epoch.
    stops_early: bool
    #: Samples evaluated after each epoch; None where the data do not tell.
    validation: int | None
    #: Type of the inputs, by NumPy's name.
    dtype: str
    #: Keras options that are not the default, by the names that rows give them: residence, jit_compile, steps_per_execution.
    keras_options: dict[str, str]
    #: Where its other calls of `fit` stand, as --fit takes them: `60`, of a notebook `3.2`.
    other_fits: tuple[str, ...] = ()
    #: The strategy over several devices that the script asks for, and that is taken as one device; "" for none.
    strategy: str = ""
    #: What it did before that call.
    effects: SideEffects = SideEffects()

    @property
    def head(self) -> str:
        return f"{self.script}, fit at {self.place}"


class DescribedScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script's fit and the layers of its model."""

    fit: ScriptFit
    network: Network

    def from_files(self, source: str) -> "DescribedScript":
        """The same with the hash of the files that it is from."""
        assert self.network.traced is not None
        traced = replace(self.network.traced, source=source)
        return replace(self, network=replace(self.network, traced=traced))

    def with_effects(self, effects: SideEffects) -> "DescribedScript":
        """The same with what the script did before its fit."""
        return replace(self, fit=replace(self.fit, effects=effects))


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How a fit is timed."""

    row: Row
    limits: Limits


class ScriptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a script does."""

    #: The script as it was typed; of a module its name.
    script: str
    #: Its file; "" of a module.
    path: str
    #: Where its fit stands, as --fit takes it; "" for the first.
    fit: str
    #: How its fit is timed; None where it is only described.
    timing: Timing | None = None
