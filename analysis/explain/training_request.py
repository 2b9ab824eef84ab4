"""What an `explain` command can ask about: an article's or a complaint's training, a model's, or that of a script."""

import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from analysis.explain.request import Request
from analysis.predict import described_model
from analysis.units import count, join, seconds
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from workloads import options
from workloads.records import script_files, settings
from workloads.records.published_cases import ArticleTraining, Complaint, Question
from workloads.records.script_fit import ScriptFit, SideEffects

#: Samples of a step where neither a flag nor the data tell them: Keras's own.
USUAL_BATCH = 32
#: Of what a script did before its fit: files that are named, and the shortest sleep that is said.
_MOST_FILES = 3
_LEAST_SLEEP_S = 0.1
#: The types of inputs that rows are measured with; a step with others is taken as one with float32.
TRAINING_TYPES = ("float32", "float64", "uint8")


class TrainingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags say of the training; None or empty where they say nothing."""

    #: Samples of a step.
    batch: int | None = None
    #: Samples of an epoch.
    samples: int | None = None
    #: Epochs.
    epochs: int | None = None
    #: Type of the inputs: float32, float64, uint8.
    dtype: str | None = None
    #: Keras options by the names that rows give them: residence, jit_compile, tf32, precision, steps_per_execution.
    keras_options: dict[str, str] = {}
    #: Samples evaluated after each epoch.
    validation: int | None = None
    #: Money of an hour of the machine, by device: cpu, gpu.
    prices: dict[str, float] = {}

    @property
    def assumed(self) -> tuple[str, ...]:
        """The numbers of the training that no flag gives."""
        return tuple(name for name in ("batch", "samples", "epochs") if not getattr(self, name))

    def changed(self, training: Training) -> Training:
        """A training with the numbers and the type that the flags give. Where one batch holds all samples, it does so with
        another number of samples too, unless a flag gives the batch.
        """
        fields = {"batch": self.batch, "samples": self.samples, "epochs": self.epochs, "dtype": self.dtype}
        chosen = {name: value for name, value in fields.items() if value}
        is_one_batch = training.batch >= training.samples
        if is_one_batch and self.samples and not self.batch:
            chosen["batch"] = self.samples
        return replace(training, **chosen)

    def with_precision(self, keras_options: dict[str, str], network: Network) -> dict[str, str]:
        """All Keras options of a model: those that it comes with, replaced by those of the flags. Without a precision among
        them it is the one in which the model was built.
        """
        every = keras_options | self.keras_options
        return every | settings.without_defaults({"precision": network.precision, **every})


class EveryCase(msgspec.Struct, frozen=True):
    """All articles and complaints."""


class PublishedCase(msgspec.Struct, frozen=True, kw_only=True):
    """An article's system, a complaint or a question."""

    case: ArticleTraining | Complaint | Question

    def request(self, chosen: TrainingOptions) -> Request | None:
        """Its training, and for a complaint the sizes along which the winner changes; None for a complaint without a training."""
        if self.case.training is None:
            return None
        sweep: dict[str, Any] = {}
        if isinstance(self.case, Complaint):
            sweep = {"varies": self.case.varies, "sizes": self.case.sizes}
        return Request(
            training=chosen.changed(self.case.training),
            switches=chosen.keras_options,
            validation=chosen.validation or 0,
            prices=chosen.prices,
            **sweep,
        )


class NamedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that comes with the project."""

    #: Its name in kernels.networks, such as cifar10-cnn.
    name: str

    def request(self, chosen: TrainingOptions) -> Request:
        """Its training. What no flag gives is assumed, but not for a model that an article trained: its numbers are the
        article's.

        Raises: options.Usage for an unknown model.
        """
        network = settings.network(self.name, or_user_model=True)
        has_article = self.name in networks.NETWORKS
        return Request(
            training=chosen.changed(Training(self.name, network.batch, network.samples, network.epochs)),
            switches=chosen.with_precision({}, network),
            validation=chosen.validation or 0,
            prices=chosen.prices,
            assumed=() if has_article else chosen.assumed,
        )


class UserModel(msgspec.Struct, frozen=True, kw_only=True):
    """A user's own model, which another process traces."""

    #: file.py:function or file.keras.
    name: str
    #: file.py:function that gives the data of the model; "" to make them up.
    data: str
    #: The length of the model's open sizes; 0 where none is given.
    length: int
    #: Seconds that building it may take.
    time_limit_s: float

    def request(self, chosen: TrainingOptions) -> Request:
        """Its training, with the batch and the samples of its data where these tell them.

        Raises: options.Usage for samples that neither its data nor a flag tells; Missing for a model that cannot be built.
        """
        began = time.monotonic()
        model_request = described_model.ModelRequest(
            model=self.name,
            batch=chosen.batch or USUAL_BATCH,
            data=self.data,
            length=self.length,
        )
        network = described_model.described(model_request, self.time_limit_s)
        if self.data and not network.samples and not chosen.samples:
            message = f"{self.data}: its data do not tell how many samples an epoch has"
            raise options.Usage(message, right="--samples 50000")
        training = Training(self.name, network.batch, chosen.samples or network.samples, network.epochs)
        keras_options = {}
        if network.traced is not None:
            keras_options = settings.without_defaults({"residence": network.traced.residence})
        if self.data:
            keras_options["data"] = self.data
        if self.length:
            keras_options["length"] = str(self.length)
        from_data = ("batch", "samples") if self.data else ()
        return Request(
            training=replace(chosen, batch=network.batch).changed(training),
            network=network,
            switches=chosen.with_precision(keras_options, network),
            validation=chosen.validation or 0,
            prices=chosen.prices,
            assumed=tuple(name for name in chosen.assumed if name not in from_data),
            starting_s=time.monotonic() - began,
        )


class DescribedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of a notebook, whose layers are read already."""

    #: Its name, for sentences only.
    name: str
    #: Its layers and the operations of a training step.
    network: Network

    def request(self, chosen: TrainingOptions) -> Request:
        """Its training. What no flag gives is assumed."""
        network = self.network
        return Request(
            training=chosen.changed(Training(self.name, network.batch, network.samples, network.epochs)),
            network=network,
            switches=chosen.with_precision({}, network),
            validation=chosen.validation or 0,
            prices=chosen.prices,
            assumed=chosen.assumed,
        )


class TrainingScript(msgspec.Struct, frozen=True, kw_only=True):
    """A training script, which another process runs up to its first fit."""

    #: train.py or train.ipynb.
    name: str
    #: The arguments that it is run with.
    arguments: tuple[str, ...]
    #: Seconds that it may take up to its fit.
    time_limit_s: float
    #: Where its fit stands, as --fit takes it; "" for the first.
    fit: str = ""

    def request(self, chosen: TrainingOptions) -> Request:
        """The training that its fit would run. Says on stderr what was run of the script.

        Raises: options.Usage for samples that neither the script nor a flag tells; the Usage or Missing of the process that
            runs the script.
        """
        began = time.monotonic()
        described = described_model.described_script(self.name, self.arguments, self.time_limit_s, self.fit)
        fit = described.fit
        for line in _about_fit(fit, is_named=bool(self.fit)):
            print(line, file=sys.stderr)
        samples = chosen.samples or fit.samples
        if samples is None:
            message = f"{fit.head}: its data do not tell how many samples an epoch has"
            raise options.Usage(message, right="--samples 50000")
        number = script_files.fit_number(fit.place)
        training = script_files.ScriptTraining(script=fit.script, fit=number, arguments=self.arguments)
        dtype = fit.dtype if fit.dtype in TRAINING_TYPES else "float32"
        return Request(
            training=chosen.changed(Training(training.name, fit.batch, samples, fit.epochs, dtype=dtype)),
            network=described.network,
            switches=chosen.with_precision({**fit.keras_options, "data": "script"}, described.network),
            validation=chosen.validation or fit.validation or 0,
            prices=chosen.prices,
            starting_s=time.monotonic() - began,
            script=fit,
        )


def _about_fit(fit: ScriptFit, *, is_named: bool) -> list[str]:
    """Sentences for stderr: how far a script ran, its side effects, its other calls of fit, and a distribution strategy, which is
    ignored. is_named: whether --fit named this fit, so that those before it ran for one step each.
    """
    lines = [f"{fit.head}: the script ran as always up to here; nothing after it runs."]
    if is_named:
        lines = [f"{fit.head}: the script ran up to here, each fit before for one step; nothing after it runs."]
    effects = _effects(fit.effects)
    if effects:
        lines.append(f"Before that fit it {effects}.")
    if fit.other_fits:
        lines.append(f"It calls fit at {', '.join(fit.other_fits)} too: --fit {fit.other_fits[0]} explains that one.")
    if fit.strategy:
        lines.append(f"{fit.strategy} is taken as one device: the answer is for one replica with the whole batch.")
    return lines


def _effects(effects: SideEffects) -> str:
    """What a script did before its fit, in words: `printed 3 lines, slept 2 s and wrote data.csv`; "" for nothing."""
    parts = []
    if effects.printed:
        parts.append(f"printed {count(effects.printed, 'line')}")
    if effects.slept_s >= _LEAST_SLEEP_S:
        parts.append(f"slept {seconds(effects.slept_s)}")
    if effects.written:
        names = [options.near(Path(file)) for file in effects.written[:_MOST_FILES]]
        if len(effects.written) > _MOST_FILES:
            names.append(f"{len(effects.written) - _MOST_FILES} more")
        parts.append(f"wrote {join(names)}")
    return join(parts)


Subject = PublishedCase | NamedModel | UserModel | DescribedModel | TrainingScript
