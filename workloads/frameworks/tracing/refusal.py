"""The error for a model or data that cannot be traced, with what their writer has to change."""

from workloads.harness.dispatch import Broken


class Refusal(Broken):
    """A model, or its data, cannot be traced."""

    def __init__(self, reason: str, change: str):
        super().__init__(reason)
        #: What to change, as an order: `leave run_eagerly=True out of compile`.
        self.change = change


def change_of(error: Exception) -> str:
    """What to change after an error; "" where it does not say."""
    return error.change if isinstance(error, Refusal) else ""
