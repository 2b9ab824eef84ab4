"""Where a measured training step's time goes: the parts that the profile predicts, their sum, and the remainder, signed.

The parts are those of analysis.predict, from rows of other problems than trainings; what they say is in analysis.text.budget.
"""

import msgspec

from analysis.predict.calibration import calibration
from analysis.predict.components import FIT, Components, components
from analysis.predict.profile import OP_BY_OP, Profile
from analysis.predict.step_parts import DEVICE, HIDDEN, HOST, PARTS, PIPELINE, WORDS
from analysis.predict.step_time import Calibration, calibrated_parts
from analysis.stats import Estimate, median_of, total
from analysis.training import costs
from analysis.training.costs import TrainingCost
from kernels import networks
from kernels.problems import Problem
from workloads.records import Measurement, settings

SETUP = "data-set setup"
UNKNOWN = "not known: the model's layers are not in kernels.networks"
_SETUP_WHY = "copied into a tf.data set before the first epoch; whole fits have it in their steps"
TRANSFERS = ("transfer calls", "transfer bytes")
#: Part -> where its seconds come from, in words; of others the rows that they are read from.
_WHY = {
    "dispatch": "a Keras step of a model with almost no work",
    "transfer calls": "the bytes of a batch by the law of its copies",
    "transfer bytes": "the bytes of a batch by the law of its copies",
    PIPELINE: "getting the batch into the step, by the measured law of its way",
    HIDDEN: (
        "what host, device and input pipeline do at once, or operations that do not wait for each other, taken off"
    ),
}


class BudgetPart(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that one kind of work takes in a step."""

    name: str
    #: None if not measured.
    seconds: Estimate | None
    #: Where they come from, without numbers of this step, or why there are none.
    why: str
    #: Whether some of the part's operations have no row to be read from.
    partial: bool = False
    #: The one that measures a part without seconds; "" where none does.
    command: str = ""

    @property
    def words(self) -> str:
        return WORDS.get(self.name, self.name)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Where the seconds of one measured step go."""

    #: The training's row.
    training: Measurement
    #: Measured seconds of its step.
    step: Estimate
    parts: tuple[BudgetPart, ...]
    #: The step without the known parts; it may be negative.
    remainder: Estimate

    @property
    def device(self) -> str:
        return self.training.device

    @property
    def flags(self) -> list[str]:
        """The flags that make the measured step doubtful."""
        return list(dict.fromkeys(self.training.flags))

    @property
    def missing(self) -> list[str]:
        """The parts that are not measured, in words."""
        return [part.words for part in self.parts if part.seconds is None]

    @property
    def largest(self) -> list[tuple[float, str]]:
        """(seconds, words) of the parts with more than 0 s, the largest first."""
        parts = []
        for part in self.parts:
            if part.seconds is not None and part.seconds.value > 0:
                parts.append((part.seconds.value, part.words))
        return sorted(parts, reverse=True)

    @property
    def sound(self) -> bool:
        """Whether the budget can be shown by itself: the measured step has no flags, and the costs of every step (dispatch, a
        GPU's copy calls) are measured."""
        return not self.flags and not {"dispatch", CALLS} & set(self.missing)


def budget(training: Measurement, profile: Profile) -> Budget:
    """The budget of the step of a training row that has a time; an epoch's cost beyond its steps is not in it."""
    cost = costs.measured(training)
    if cost is not None:
        step = cost.step
        parts = _parts(training, profile)
    else:  # the whole fit over its steps
        step = median_of(training.on("host-latency"))
        parts = _parts(training, profile, setup_steps=training.problem.steps * training.problem.epochs)
    return Budget(
        training=training,
        step=step,
        parts=tuple(parts),
        remainder=step - total(part.seconds for part in parts),
    )


def budgets(profile: Profile) -> list[Budget]:
    """A budget for every training row of a profile that has a time, in their order."""
    return [budget(training, profile) for training in profile.trainings if settings.ordinary(training)]


def gemms(training: Measurement) -> tuple[Problem, ...]:
    """The matrix products to measure for a training row's budget, each once, in the arithmetic that it was allowed; none for
    unknown models."""
    problem = training.problem
    network = networks.known(problem.model)
    if network is None:
        return ()
    arithmetic = "tf32" if training.values.get("tf32") else "float32"
    works = networks.step(network, min(problem.batch, problem.samples), "float32", arithmetic)
    return tuple(dict.fromkeys(work.problem for work in works if work.problem and work.problem.op == "matmul"))


def _parts(training: Measurement, profile: Profile, setup_steps: int = 0) -> list[BudgetPart]:
    """The parts of a measured training step, in their order, with predicted seconds.

    setup_steps: if the measured step contains its share of the data-set setup of a fit, the number of the fit's steps, among
    which the setup is shared; else 0.
    """
    problem = training.problem
    on_gpu = training.settings.on_gpu
    names = [name for name in PARTS if name != HIDDEN and (on_gpu or name not in TRANSFERS)]
    network = networks.known(problem.model)
    if network is None:
        unknown = [name for name in names if name not in HOST and name != PIPELINE]
        return [BudgetPart(name=name, seconds=None, why=UNKNOWN) for name in unknown]
    step_components = components(problem, training.settings, profile, network, kernel=training.kernel)
    fitted = Calibration()
    if training.kernel == FIT:
        fitted = calibration(profile, training.settings, {problem.model})
    seconds = calibrated_parts(step_components, fitted)
    parts = []
    for name in (*names, HIDDEN):
        if name in step_components.lacking:
            parts.append(_lacking_part(name, step_components, seconds.get(name)))
        elif name in seconds and (seconds[name].value or name in HOST):
            parts.append(BudgetPart(name=name, seconds=seconds[name], why=_why(name, step_components)))
    if setup_steps and training.kernel == FIT:
        setup = step_components.setup_s / setup_steps
        if setup.value:
            parts.append(BudgetPart(name=SETUP, seconds=setup, why=_SETUP_WHY))
    return parts


def _lacking_part(name: str, step_components: Components, seconds: Estimate | None) -> BudgetPart:
    """A part for which the profile lacks some or all rows. seconds: those of its operations that have rows."""
    lacking = step_components.lacking[name]
    if seconds and seconds.value:
        return BudgetPart(name=name, seconds=seconds, why=f"in part: the profile has {lacking.what}", partial=True)
    command = lacking.commands[0]
    return BudgetPart(name=name, seconds=None, why=f"not measured: {command}", command=command)


def _why(name: str, step_components: Components) -> str:
    """Where the seconds of a part come from, in words."""
    if name == "launches":
        issued = "operations of the graph" if step_components.execution == OP_BY_OP else "kernels"
        return f"{issued} beyond those of that small model"
    if name in _WHY:
        return _WHY[name]
    return step_components.sources.get(name, "none in this network")


START = "start-up"
COMPILE = "build and compile"
OUTSIDE_STEPS = "fit and epochs beside their steps"
DISPATCH = "dispatch"
CALLS = WORDS["transfer calls"]
BYTES = WORDS["transfer bytes"]
ARITHMETIC = "arithmetic"
REST = "not explained"
#: The parts of a whole training.
JOB_PARTS = (START, COMPILE, OUTSIDE_STEPS, DISPATCH, CALLS, BYTES, ARITHMETIC, REST)
#: Part of a whole training -> the parts of a step's budget that it sums.
_PARTS_OF_STEP = {
    DISPATCH: ("dispatch", "launches", PIPELINE),
    CALLS: ("transfer calls",),
    BYTES: ("transfer bytes",),
    ARITHMETIC: DEVICE,
}


def job_parts(cost: TrainingCost, epochs: int, steps: int, step_budget: Budget | None) -> dict[str, float]:
    """Part of JOB_PARTS -> seconds of a whole training of `epochs` epochs of `steps` steps, start-up and compilation included;
    they add up to the whole.

    step_budget: the parts of a step; without it the seconds of steps are all REST ("not explained").
    """
    whole = costs.parts(cost, epochs, steps)
    seconds = {
        START: whole["start-up"].value,
        COMPILE: whole["build and compile"].value,
        OUTSIDE_STEPS: whole["data-set setup"].value + whole["between epochs"].value,
    }
    step_s: dict[str, float] = {}
    for part in step_budget.parts if step_budget else ():
        if part.seconds is not None:
            step_s[part.name] = part.seconds.value
    explained = 0.0
    for name, parts in _PARTS_OF_STEP.items():
        seconds[name] = epochs * steps * sum(step_s.get(part, 0.0) for part in parts)
        explained += seconds[name]
    seconds[REST] = whole["steps"].value - explained
    return seconds
