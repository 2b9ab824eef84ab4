"""What a user's training script passes to its first `fit`, as the child that runs the script tells its parent."""

import msgspec

from kernels.networks.layers import Network


class ScriptFit(msgspec.Struct, frozen=True, kw_only=True):
    """The first call of `fit` in a script."""

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

    @property
    def head(self) -> str:
        return f"{self.script}, fit at {self.place}"


class DescribedScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script's first fit and the layers of its model."""

    fit: ScriptFit
    network: Network
