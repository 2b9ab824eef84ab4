"""Inside a worker: units of work that a row repeats in a window of seconds, while other processes do the same at the same time.

workloads.harness.concurrent asks each worker to `prepare` a row once and then for one `window` after another.
"""

import abc
import time

import msgspec
from msgspec.structs import replace

from kernels import networks, registry
from workloads.frameworks import data, inference_row, tensors, trainers
from workloads.harness import copy_modes, one_row
from workloads.harness.dispatch import Broken
from workloads.harness.memory_needs import require_memory
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row, settings


class RepeatedWork(abc.ABC):
    """What a row does again and again, built, compiled and checked in this process. A step is one batch trained, one batch
    answered or one call of a kernel."""

    #: Into how many units a window is cut.
    units_a_window: int = 20
    #: The first guess of the steps of a unit.
    first_steps: int = 1
    #: How its results were checked, as in a Measurement: `exact`, `bound`, `weights`.
    check: str
    #: Values of the row's measurement.
    values: dict[str, float]

    @abc.abstractmethod
    def run(self, steps: int) -> None:
        """Does so many steps and waits until the device has done them."""

    def nearest_possible(self, steps: int) -> int:
        """The number of steps nearest to this one that `run` can do; any, where a subclass does not say otherwise."""
        return steps


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a window: a few steps of a row's work, done in one go."""

    #: What is done.
    work: RepeatedWork
    #: How many steps of it.
    steps: int


#: `work_key` of a row -> its unit of work, prepared in this process.
_units: dict[str, Unit] = {}


def work_key(row: Row) -> str:
    """The row's key without the two settings that say what runs at the same time: its work is prepared once for all of these."""
    switches = dict(row.settings.switches)
    switches.pop("beside", None)
    switches.pop("at_once", None)
    return Row(row.kernel, row.problem, replace(row.settings, switches=switches)).key


def prepare(row: Row, limits: Limits, seed: int) -> Measurement:
    """Builds, compiles and checks the row's work, and sets how many steps are a unit, so that `window` can repeat it.

    limits: `visit_s` has the seconds of a whole window. The result has no samples: phases_s has the seconds of import, build and
    first call.
    Raises: Broken where the work gives wrong results.
    """
    phases: dict[str, float] = {}
    work = _repeated_work(row, seed, phases)
    steps = steps_of_a_unit(work, limits.visit_s / work.units_a_window)
    _units[work_key(row)] = Unit(work=work, steps=steps)
    return row.result("ok", phases_s=phases, values=work.values, check=work.check)


def _repeated_work(row: Row, seed: int, phases: dict[str, float]) -> RepeatedWork:
    """The work of a row, built and checked. phases: gets the seconds of what it took."""
    if row.problem.op == "at-once":
        _units.clear()  # one such row at a time: its arrays are large
        return KernelCalls(row, seed, phases)
    if row.problem.op == "inference":
        return ModelCalls(row, seed, phases)
    return FitSteps(row, seed, phases)


def steps_of_a_unit(work: RepeatedWork, unit_s: float) -> int:
    """How many steps of the work take about `unit_s` seconds: at least 1.

    Timed with more and more steps, until their number is at least half of the answer.
    """
    steps = work.first_steps
    while True:
        begin = time.monotonic()
        work.run(steps)
        step_s = (time.monotonic() - begin) / steps
        unit_steps = max(1, round(unit_s / step_s))
        if unit_steps < 2 * steps:
            return work.nearest_possible(unit_steps)
        steps = min(unit_steps, 8 * steps)  # a few steps give a rough estimate only


class ModelCalls(RepeatedWork):
    """Answers of a Keras model to the same batch again and again. A step is one answer; the device is waited for after the
    last."""

    check = "bound"

    def __init__(self, row: Row, seed: int, phases: dict[str, float]):
        """Raises Broken where the model gives wrong answers. phases: gets the seconds of import, build and first call."""
        self.values = {}
        self._model, x = inference_row.prepare(row, seed, phases, self.values)
        with tensors.on(self._model.device):
            self._call = inference_row.caller(row, self._model, x)
            with tensors.timed(phases, "first_call"):
                self._call()
            checked = inference_row.check_answers(row, self._model, x)
        if checked.wrong:
            raise Broken(checked.wrong)

    def run(self, steps: int) -> None:
        with tensors.on(self._model.device):
            for _ in range(steps):
                self._call()
            if self._model.wait:  # a GPU's calls return before it is done
                self._model.wait()


class KernelCalls(RepeatedWork):
    """Calls of a kernel, each waited for. A step is one call."""

    def __init__(self, row: Row, seed: int, phases: dict[str, float]):
        """row: its problem is an AtOnce, whose `inner` is the problem of the kernel."""
        kernel_row = Row(row.kernel, row.problem.inner, row.settings)
        require_memory(kernel_row.problem, row.device)
        kernel = registry.find(row.kernel)
        known = one_row.checked(kernel, kernel_row, seed)
        phases["first_call"] = known.first_call_s
        if not known.check.passed:
            raise Broken("the answer is not the reference's")
        self.check = known.check.how
        self.values = {}
        inputs = kernel_row.problem.inputs(seed)
        self._prepared = copy_modes.prepare(kernel, kernel_row.problem, kernel_row.settings, inputs)
        self.run(1)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._prepared.call()


class FitSteps(RepeatedWork):
    """Training steps of Keras's fit: one call of fit with one epoch, or with several where an epoch has fewer steps."""

    units_a_window = 5  # few and long ones, as each call of fit has a cost of its own, which counts as its steps' time
    first_steps = 8
    check = "weights"

    def __init__(self, row: Row, seed: int, phases: dict[str, float]):
        """Raises Broken where the model is not the one that the row names. phases: gets the seconds of import, build and first
        call."""
        problem = row.problem
        network = networks.find(problem.model)
        options = settings.checked_keras(row)
        require_memory(problem, "cpu")
        phases |= tensors.begin(row.device, row.threads)
        x, y = data.load(options.data, network, problem.samples, seed, dtype=problem.dtype)
        task = trainers.Task(row=row, network=network, x=x, y=y, seed=seed, phases=phases)
        self._trainer = trainers.make_trainer(task)
        if self._trainer.wrong:
            raise Broken(self._trainer.wrong)
        self.values = dict(self._trainer.values)
        self._batch = problem.batch
        self._epoch_steps = max(1, problem.samples // problem.batch)
        with tensors.timed(phases, "first_call"):
            self.run(1)

    def run(self, steps: int) -> None:
        epochs = max(1, round(steps / self._epoch_steps))
        self._trainer.fit(min(steps, self._epoch_steps) * self._batch, epochs)

    def nearest_possible(self, steps: int) -> int:
        """Any number up to an epoch's; beyond it whole epochs."""
        if steps <= self._epoch_steps:
            return steps
        return max(1, round(steps / self._epoch_steps)) * self._epoch_steps


def window(row: Row, limits: Limits, seed: int) -> Measurement:
    """Runs units of the row's work one after another for `limits.visit_s` seconds, at least one.

    The result has the series begin_s and end_s, of each unit, on the system's monotonic clock, which all processes share; and the
    value `steps`, those of a unit. seed: unused, as the work was prepared with it.
    Raises: ValueError for a row that was not prepared.
    """
    unit = _units.get(work_key(row))
    if unit is None:
        raise ValueError("the row was not prepared in this process")
    begin_s: list[float] = []
    end_s: list[float] = []
    stop = time.monotonic() + limits.visit_s
    while not end_s or end_s[-1] < stop:
        begin_s.append(time.monotonic())
        unit.work.run(unit.steps)
        end_s.append(time.monotonic())
    series = {"begin_s": tuple(begin_s), "end_s": tuple(end_s)}
    values = {**unit.work.values, "steps": float(unit.steps)}
    return row.result("ok", values=values, series=series, check=unit.work.check)
