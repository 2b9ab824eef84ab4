"""Where a measured training step's time goes: the parts that the profile predicts, their sum, and the remainder, signed.

The parts are those of analysis.predict, from rows of other problems than trainings; what they say is in analysis.text.budget.
"""

from collections.abc import Iterable

import msgspec

from analysis.predict.calibration import calibration
from analysis.predict.combine import DEVICE, HIDDEN, HOST, PARTS, PIPELINE, WORDS, Calibration, combined, setting_up
from analysis.predict.components import FIT, Components, components
from analysis.predict.profile import Profile
from analysis.stats import Estimate, median_of, total
from analysis.training import costs
from analysis.training.costs import TrainingCost
from kernels import networks
from kernels.problems import Problem
from workloads.records import Measurement
from workloads.records import settings as switches

SETUP = "data-set setup"
UNKNOWN = "not known: the model's layers are not in kernels.networks"
TRANSFERS = ("transfer calls", "transfer bytes")


class Part(msgspec.Struct, frozen=True):
    """Seconds that one kind of work takes in a step; None if not measured. why: where they come from, without numbers of this
    step, or why there are none.

    `partial`: some of the part's operations have no row to be read from. command: the one that measures a part without
    seconds, "" where none does.
    """

    name: str
    seconds: Estimate | None
    why: str
    partial: bool = False
    command: str = ""

    @property
    def words(self) -> str:
        return WORDS.get(self.name, self.name)


class Budget(msgspec.Struct, frozen=True):
    """Seconds of one step on a device, the sum of its known parts, and the remainder: step minus sum, which may be negative."""

    training: "Measurement"
    step: Estimate
    parts: tuple[Part, ...]
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
        return [p.words for p in self.parts if p.seconds is None]

    @property
    def largest(self) -> list[tuple[float, str]]:
        """(seconds, words) of the parts with more than 0 s, the largest first."""
        return sorted(
            ((p.seconds.value, p.words) for p in self.parts if p.seconds and p.seconds.value > 0), reverse=True
        )

    @property
    def sound(self) -> bool:
        """Whether the budget can be shown by itself: the measured step has no flags, and the costs of every step (dispatch, a
        GPU's copy calls) are measured."""
        return not self.flags and not {"dispatch", CALLS} & set(self.missing)


def budget(training: "Measurement", of_: Profile) -> Budget:
    """The budget of the step of a training row that has a time; an epoch's own cost is not in it."""
    cost, problem = costs.measured(training), training.problem
    step = cost.step if cost else median_of(training.on("host-latency"))
    parts = tuple(_parts(training, of_, 0 if cost else problem.steps * problem.epochs))
    return Budget(training, step, parts, step - total(p.seconds for p in parts))


def budgets(of_: Profile) -> list[Budget]:
    """A budget for every training row of a profile that has a time, in their order."""
    return [budget(m, of_) for m in of_.trainings if switches.ordinary(m)]


def gemms(training: "Measurement") -> tuple[Problem, ...]:
    """The matrix products to measure for a training row's budget, each once, in the arithmetic that it was allowed; none for
    unknown models."""
    problem = training.problem
    if not (network := networks.known(problem.model)):
        return ()
    math = "tf32" if training.values.get("tf32") else "float32"
    works = networks.step(network, min(problem.batch, problem.samples), "float32", math)
    return tuple(dict.fromkeys(w.problem for w in works if w.problem and w.problem.op == "matmul"))


def _parts(training: "Measurement", whole: Profile, setup_steps: int) -> Iterable[Part]:
    """The parts of a step, in their order. The last is the data-set setup of a fit of `setup_steps` steps, if the measured step
    contains its share of that."""
    problem, settings = training.problem, training.settings
    network = networks.known(problem.model)
    names = [n for n in PARTS if n != HIDDEN and (settings.on_gpu or n not in TRANSFERS)]
    if network is None:
        yield from (Part(name, None, UNKNOWN) for name in names if name not in HOST and name != "input pipeline")
        return
    made = components(problem, settings, whole, network, kernel=training.kernel)
    fitted = calibration(whole, settings, {problem.model}) if training.kernel == FIT else Calibration()
    found = combined(made, fitted)
    for name in (*names, HIDDEN):
        if name in made.lacking:
            yield _lacking(name, made, found.get(name))
        elif name in found and (found[name].value or name in HOST):
            yield Part(name, found[name], _why(name, made))
    if setup_steps and training.kernel == FIT and (setup := setting_up(made) / setup_steps).value:
        yield Part(SETUP, setup, "copied into a tf.data set before the first epoch; whole fits have it in their steps")


def _lacking(name: str, made: Components, known: Estimate | None) -> Part:
    """A part that the profile has too few rows for."""
    command = made.lacking[name].commands[0]
    if known and known.value:
        return Part(name, known, f"in part: the profile has {made.lacking[name].what}", True)
    return Part(name, None, f"not measured: {command}", command=command)


def _why(name: str, made: Components) -> str:
    match name:
        case "dispatch":
            return "a Keras step of a model with almost no work"
        case "launches":
            what = "operations of the graph" if made.execution == "op by op" else "kernels"
            return f"{what} beyond those of that small model"
        case "transfer calls" | "transfer bytes":
            return "the bytes of a batch by the law of its copies"
        case "input pipeline":
            return "getting the batch into the step, by the measured law of its way"
        case "at the same time":
            return "what host, device and input pipeline do at once, or operations that do not wait for each other, taken off"
    return made.sources.get(name, "none in this network")


START, COMPILE, BESIDE = "start-up", "build and compile", "fit and epochs beside their steps"
DISPATCH, CALLS, BYTES, ARITHMETIC = "dispatch", WORDS["transfer calls"], WORDS["transfer bytes"], "arithmetic"
REST = "not explained"
JOB_PARTS = (START, COMPILE, BESIDE, DISPATCH, CALLS, BYTES, ARITHMETIC, REST)
# The job_parts of a budget that each stands for.
_OF_STEP = {
    DISPATCH: ("dispatch", "launches", PIPELINE),
    CALLS: ("transfer calls",),
    BYTES: ("transfer bytes",),
    ARITHMETIC: DEVICE,
}


def job_parts(cost: "TrainingCost", epochs: int, steps: int, made: "Budget | None") -> dict[str, float]:
    """Seconds of each part of a whole training of `epochs` epochs of `steps` steps; they add up.

    made: the budget of its row; without one the steps are not explained.
    """
    start, compiling, setup, beside, stepping = (e.value for e in costs.parts(cost, epochs, steps).values())
    found = {START: start, COMPILE: compiling, BESIDE: setup + beside}
    known = {p.name: p.seconds.value for p in made.parts if p.seconds} if made else {}
    for name, own in _OF_STEP.items():
        found[name] = epochs * steps * sum(known.get(part, 0.0) for part in own)
    told = sum(found[name] for name in _OF_STEP)
    return found | {REST: stepping - told}
