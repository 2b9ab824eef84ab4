"""Where predictions come from: the rows of the CPU and of the GPU, and what predicts from them."""

import contextlib
import functools
from collections.abc import Callable
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

Predict = Callable[..., Prediction]  # (training, settings, kernel) -> prediction


class Predictor(Protocol):
    """What predicts a training from a profile."""

    def predict(
        self, training: Training, settings: Settings, profile: Profile, network: Network | None, *, kernel: str
    ) -> Prediction:
        """The cost of a training.

        Raises: Lacking where the profile has too few rows for it.
        """


class RowPredictor:
    """Predicts from a profile's rows."""

    def predict(
        self, training: Training, settings: Settings, profile: Profile, network: Network | None, *, kernel: str
    ) -> Prediction:
        """The cost of a training; see analysis.predict.prediction.predict."""
        return prediction.predict(training, settings, profile, network, kernel=kernel)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that an explanation is made from."""

    #: The rows of the CPU.
    cpu: Profile
    #: The rows of the GPU: the same profile, or a stored machine's; None without a GPU.
    gpu: Profile | None
    #: What predicts from them.
    predictor: Predictor = RowPredictor()

    @property
    def borrowed(self) -> Profile | None:
        """The GPU's profile where it is another machine's."""
        return None if self.gpu is self.cpu else self.gpu

    def profile(self, device: str) -> Profile:
        """The profile with the rows of a device."""
        return self.cpu if device == "cpu" or self.gpu is None else self.gpu


class TrainingPredictor(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """Predicts trainings of one request: each from the profile of its device; a stored GPU is driven by this machine's host."""

    #: The request.
    request: Request
    #: The rows.
    sources: Sources

    @functools.cached_property
    def _host_factor(self) -> Estimate | None:
        """Slowdown of this machine's host beside that of the stored GPU; None where that is not known."""
        stored = self.sources.borrowed
        return host_factor(self.sources.cpu, stored) if stored else None

    @functools.cached_property
    def _start_factor(self) -> Estimate | None:
        """The same of starting a process."""
        stored = self.sources.borrowed
        return start_factor(self.sources.cpu, stored) if stored else None

    def predict(self, training: Training, settings: Settings, kernel: str = what_if.FIT) -> Prediction:
        """The cost of a training.

        Raises: Lacking where the profile has too few rows for it.
        """
        predicted = self._from(self.sources.profile(settings.device), training, settings, kernel)
        stored = self.sources.borrowed
        if stored is None or self._host_factor is None:
            return predicted
        if settings.on_gpu:
            return rescaled(predicted, self._host_factor, self._start_factor)
        if predicted.unmeasured and kernel == what_if.FIT:
            with contextlib.suppress(Lacking):  # then what this machine's rows do not tell stays unknown
                on_stored_cpu = self._from(stored, training, settings, kernel)
                return completed(predicted, on_stored_cpu, self._host_factor, self._start_factor)
        return predicted

    def _from(self, profile: Profile, training: Training, settings: Settings, kernel: str) -> Prediction:
        network = self.request.network
        return self.sources.predictor.predict(training, settings, profile, network, kernel=kernel)
