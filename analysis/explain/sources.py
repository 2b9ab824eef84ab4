"""Where predictions come from: the rows of the CPU and of the GPU, and what predicts from them."""

import contextlib
from collections.abc import Callable

import msgspec

from analysis.explain.request import Request
from analysis.predict import what_if
from analysis.predict.borrowed_gpu import completed, host_factor, rescaled, start_factor
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Lacking, Profile
from kernels.problems import Training
from workloads.records import Settings

Predict = Callable[..., Prediction]  # (training, settings, kernel) -> prediction


class Sources(msgspec.Struct, frozen=True):
    """The rows that an explanation is made from."""

    #: The rows of the CPU.
    cpu: Profile
    #: The rows of the GPU: the same profile, or a stored machine's; None without a GPU.
    gpu: Profile | None
    #: The function that predicts a training from a profile.
    predict: Callable

    @property
    def borrowed(self) -> Profile | None:
        """The GPU's profile where it is another machine's."""
        return None if self.gpu is self.cpu else self.gpu

    def profile(self, device: str) -> Profile:
        """The profile with the rows of a device."""
        return self.cpu if device == "cpu" or self.gpu is None else self.gpu


def predictor(request: Request, sources: Sources) -> Predict:
    """predict(training, settings, kernel): from the profile of the settings' device, a stored GPU driven by this machine's
    host."""
    stored = sources.borrowed
    factor = host_factor(sources.cpu, stored) if stored else None
    start = start_factor(sources.cpu, stored) if stored else None

    def predict(training: Training, settings: Settings, kernel: str = what_if.FIT) -> Prediction:
        profile = sources.profile(settings.device)
        prediction = sources.predict(training, settings, profile, request.network, kernel=kernel)
        if factor is None:
            return prediction
        if settings.on_gpu:
            return rescaled(prediction, factor, start)
        if prediction.unmeasured and kernel == what_if.FIT:
            with contextlib.suppress(Lacking):  # then what this machine's rows do not tell stays unknown
                on_stored_cpu = sources.predict(training, settings, stored, request.network, kernel=kernel)
                return completed(prediction, on_stored_cpu, factor, start)
        return prediction

    return predict
