"""The rows that an explanation is made from, and the predictions from them."""

import contextlib
import functools
from typing import Protocol

import msgspec

from analysis.explain.request import Request
from analysis.predict import prediction, what_if
from analysis.predict.borrowed_gpu import completed, host_factor, rescaled, start_factor
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Lacking, Profile
from analysis.stats import Estimate
from kernels.networks import Network
from kernels.problems import Training
from workloads.records import Settings


class Predictor(Protocol):
    """Predicts a training from the rows of one machine. Tests replace it by formulas that can be worked out by hand."""

    def predict(
        self, training: Training, settings: Settings, profile: Profile, network: Network | None, *, kernel: str
    ) -> Prediction:
        """The cost of a training on the device of its settings. network: the layers of a user's own model, None of one that has a
        name; kernel: what trains, such as training/keras/fit.

        Raises: Lacking where the profile has too few rows for it.
        """


class RowPredictor:
    """The predictor that is used: analysis.predict.prediction."""

    def predict(
        self, training: Training, settings: Settings, profile: Profile, network: Network | None, *, kernel: str
    ) -> Prediction:
        """The cost of a training; see analysis.predict.prediction.predict."""
        return prediction.predict(training, settings, profile, network, kernel=kernel)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that an explanation is made from."""

    #: The rows of the CPU.
    cpu: Profile
    #: The rows of the GPU: the same object as `cpu` where one machine has both, else the profile of another machine, whose GPU is
    #: borrowed; None without a GPU.
    gpu: Profile | None
    #: What predicts from these rows.
    predictor: Predictor = RowPredictor()

    @property
    def borrowed(self) -> Profile | None:
        """The profile of the GPU where it is another machine's; None where it is this one's, or there is no GPU."""
        return None if self.gpu is self.cpu else self.gpu

    def profile(self, device: str) -> Profile:
        """The profile with the rows of a device: cpu or gpu:0."""
        return self.cpu if device == "cpu" or self.gpu is None else self.gpu


class TrainingPredictor(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """Predicts variants of one model's training, each from the rows of its device.

    Rows of a borrowed GPU were measured with another machine's CPU. Their times are scaled to the CPU of this machine.
    """

    #: The training that is explained; only its model's layers are read here.
    request: Request
    #: The rows.
    sources: Sources

    @functools.cached_property
    def _host_factor(self) -> Estimate | None:
        """Framework overhead on this machine's CPU over that on the CPU beside the borrowed GPU; None where that is not known, or
        no GPU is borrowed.
        """
        stored = self.sources.borrowed
        return host_factor(self.sources.cpu, stored) if stored else None

    @functools.cached_property
    def _start_factor(self) -> Estimate | None:
        """The same ratio for the seconds of starting a process and importing the framework."""
        stored = self.sources.borrowed
        return start_factor(self.sources.cpu, stored) if stored else None

    def predict(self, training: Training, settings: Settings, kernel: str = what_if.FIT) -> Prediction:
        """The cost of a training on the device of its settings. kernel: what trains, such as training/keras/fit.

        On a borrowed GPU the host's seconds are scaled to this machine. On this machine's CPU, parts that its rows do not have
        are those of the borrowed GPU's machine, scaled likewise.

        Raises: Lacking where the profile has too few rows for it.
        """
        predicted = self._by_rows_of(self.sources.profile(settings.device), training, settings, kernel)
        stored = self.sources.borrowed
        if stored is None or self._host_factor is None:
            return predicted
        if settings.on_gpu:
            return rescaled(predicted, self._host_factor, self._start_factor)
        if predicted.unmeasured and kernel == what_if.FIT:
            with contextlib.suppress(Lacking):  # what neither machine's rows tell stays unknown
                on_stored_cpu = self._by_rows_of(stored, training, settings, kernel)
                return completed(predicted, on_stored_cpu, self._host_factor, self._start_factor)
        return predicted

    def _by_rows_of(self, profile: Profile, training: Training, settings: Settings, kernel: str) -> Prediction:
        network = self.request.network
        return self.sources.predictor.predict(training, settings, profile, network, kernel=kernel)
