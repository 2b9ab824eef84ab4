"""The training that an `explain` command asks about: an article's, a complaint's or a model's, with the changes of the flags."""

import time
from typing import Any

from msgspec.structs import replace

from analysis.explain.explanation import Request
from analysis.explain.plan import AnyCase, ExplainPlan, TrainingChanges
from analysis.predict import described_model
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from workloads.records import settings


def requested(plan: ExplainPlan) -> Request | None:
    """The training of the case or the model; None for a complaint without a training.

    Raises: as model_request.
    """
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
    """The training of a model by its name, or of a user's own model, whose layers another process describes.

    Raises: options.Usage for an unknown model; Missing for a model that cannot be built.
    """
    user_model = plan.network
    starting_s = 0.0
    if user_model is None and settings.is_user_model(plan.model):
        began = time.monotonic()
        user_model = described_model.described(plan.model, plan.time_limit_s)
        starting_s = time.monotonic() - began
    network = user_model or settings.network(plan.model, own=True)
    training = Training(plan.model, network.batch, network.samples, network.epochs)
    has_article = user_model is None and plan.model in networks.NETWORKS
    return Request(
        training=_changed(training, plan.changes),
        network=user_model,
        switches=_with_precision(plan.keras_options, network),
        validation=plan.validation,
        prices=plan.prices,
        assumed=() if has_article else _assumed(plan.changes),
        starting_s=starting_s,
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
