"""The training that an `explain` command asks about: an article's, a complaint's or a model's, with the changes of the flags."""

import sys
import time
from typing import Any

from msgspec.structs import replace

from analysis.explain.plan import AnyCase, ExplainPlan, TrainingChanges
from analysis.explain.request import Request
from analysis.predict import described_model
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from workloads import options
from workloads.records import settings

#: Samples of a step where neither a flag nor the data tell them: Keras's own.
USUAL_BATCH = 32
#: The types of inputs that rows are measured with; a step with others is taken as one with float32.
TRAINING_TYPES = ("float32", "float64", "uint8")


def requested(plan: ExplainPlan) -> Request | None:
    """The training of the case or the model; None for a complaint without a training.

    Raises: as model_request.
    """
    if plan.script:
        return script_request(plan)
    return case_request(plan.case, plan) if plan.case else model_request(plan)


def case_request(case: AnyCase, plan: ExplainPlan) -> Request | None:
    """The training of a case, and the sizes along which its winner changes; None for a complaint without a training."""
    if case.training is None:
        return None
    sweep: dict[str, Any] = {name: getattr(case, name) for name in ("varies", "sizes") if hasattr(case, name)}
    return Request(
        training=_changed(case.training, plan.changes),
        switches=plan.keras_options,
        validation=plan.validation,
        prices=plan.prices,
        **sweep,
    )


def model_request(plan: ExplainPlan) -> Request:
    """The training of a model by its name, or of a user's own model, which another process traces.

    Raises: options.Usage for an unknown model, and for samples that neither its data nor a flag tells; Missing for a model that
    cannot be built.
    """
    if plan.network is None and settings.is_user_model(plan.model):
        return _user_model_request(plan)
    network = plan.network or settings.network(plan.model, own=True)
    training = Training(plan.model, network.batch, network.samples, network.epochs)
    has_article = plan.network is None and plan.model in networks.NETWORKS
    return Request(
        training=_changed(training, plan.changes),
        network=plan.network,
        switches=_with_precision(plan.keras_options, network),
        validation=plan.validation,
        prices=plan.prices,
        assumed=() if has_article else _assumed(plan.changes),
    )


def _user_model_request(plan: ExplainPlan) -> Request:
    """The training of a user's own model, with the batch and the samples of its data where these tell them."""
    began = time.monotonic()
    request = described_model.ModelRequest(
        model=plan.model,
        batch=plan.changes.batch or USUAL_BATCH,
        data=plan.data,
        length=plan.length,
    )
    network = described_model.described(request, plan.time_limit_s)
    if plan.data and not network.samples and not plan.changes.samples:
        message = f"{plan.data}: its data do not tell how many samples an epoch has"
        raise options.Usage(message, right="--samples 50000")
    training = Training(plan.model, network.batch, plan.changes.samples or network.samples, network.epochs)
    keras_options = plan.keras_options
    if network.traced is not None:
        keras_options = settings.changed({"residence": network.traced.residence}) | keras_options
    from_data = ("batch", "samples") if plan.data else ()
    return Request(
        training=_changed(training, replace(plan.changes, batch=network.batch)),
        network=network,
        switches=_with_precision(keras_options, network),
        validation=plan.validation,
        prices=plan.prices,
        assumed=tuple(name for name in _assumed(plan.changes) if name not in from_data),
        starting_s=time.monotonic() - began,
    )


def script_request(plan: ExplainPlan) -> Request:
    """The training of a script, which another process runs up to its first fit.

    Raises: options.Usage for samples that neither the script nor a flag tells; the Usage or Missing of that process.
    """
    began = time.monotonic()
    described = described_model.described_script(plan.script, plan.script_arguments, plan.time_limit_s)
    fit = described.fit
    print(f"{fit.head}: the script ran as always up to here; nothing after it runs.", file=sys.stderr)
    samples = plan.changes.samples or fit.samples
    if samples is None:
        message = f"{fit.head}: its data do not tell how many samples an epoch has"
        raise options.Usage(message, right="--samples 50000")
    dtype = fit.dtype if fit.dtype in TRAINING_TYPES else "float32"
    training = Training(fit.script, fit.batch, samples, fit.epochs, dtype=dtype)
    keras_options = fit.keras_options | plan.keras_options
    return Request(
        training=_changed(training, plan.changes),
        network=described.network,
        switches=_with_precision(keras_options, described.network),
        validation=plan.validation or fit.validation or 0,
        prices=plan.prices,
        starting_s=time.monotonic() - began,
        script=fit,
    )


def _with_precision(keras_options: dict[str, str], network: Network) -> dict[str, str]:
    """The options with the precision that the model was built in, where the flags give no other."""
    return keras_options | settings.changed({"precision": network.precision, **keras_options})


def _assumed(changes: TrainingChanges) -> tuple[str, ...]:
    """The numbers of the training that no flag gives."""
    return tuple(name for name in ("batch", "samples", "epochs") if not getattr(changes, name))


def _changed(training: Training, changes: TrainingChanges) -> Training:
    """The training with the changes of the flags. All samples in one batch stay in one."""
    fields = changes.by_field
    if changes.samples and not changes.batch and training.batch >= training.samples:
        fields["batch"] = changes.samples
    return replace(training, **fields)
