"""Inside a worker: work that goes on for a given time beside that of other workers, and whole trainings one after another.

The parent (`side_by_side`) sets off the workers; when each unit of work began and ended is told by the system's monotonic
clock, which all processes share, so that it can see which units ran while all were at work.
"""

import dataclasses
import functools
import time
from collections.abc import Callable

import psutil
from msgspec.structs import replace

from kernels import networks, registry
from workloads.frameworks import data, inference_row, models, tensors, trainers
from workloads.harness import copy_modes, one_row
from workloads.harness.dispatch import Broken
from workloads.harness.memory_needs import require_memory
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row, settings

UNITS, FITS = 20, 5  # so many units of work, and fits, are to fill a window: a fit's own cost is in its steps' time
_WARM_STEPS = 8  # of the fit that tells how long a step takes


@dataclasses.dataclass(frozen=True)
class Unit:
    """Work of `steps` steps or calls, done and waited for by `run`."""

    run: Callable[[], None]
    steps: int
    values: dict[str, float]
    check: str


_prepared: dict[str, Unit] = {}
_loaded = functools.lru_cache(maxsize=1)(data.load)


def key(row: Row) -> str:
    """The row's key without what runs beside it: the same preparation serves alone and together."""
    kept = {name: text for name, text in row.settings.switches.items() if name not in ("beside", "at_once")}
    return Row(row.kernel, row.problem, replace(row.settings, switches=kept)).key


def prepare(row: Row, limits: Limits, seed: int) -> Measurement:
    """Builds, compiles and checks the row's model and makes its unit of work: some calls, or a fit of some steps. A whole window
    is to take `limits.visit_s` seconds."""
    phases: dict[str, float] = {}
    make, units = {"inference": (_inference, UNITS), "at-once": (_raw, UNITS)}.get(row.problem.op, (_training, FITS))
    unit = _prepared[key(row)] = make(row, limits.visit_s / units, seed, phases)
    return row.result("ok", phases_s=phases, values=unit.values, check=unit.check)


def _inference(row: Row, unit_s: float, seed: int, phases: dict) -> Unit:
    """Calls of a model, waited for at the unit's end.

    Raises: Broken for a wrong answer.
    """
    values: dict[str, float] = {}
    ready, x = inference_row.prepare(row, seed, phases, values)
    with tensors.on(ready.device):
        call = inference_row.caller(row, ready, x)
        with tensors.timed(phases, "first_call"):
            call()
        _, wrong = inference_row.checked(row, ready, x)
    if wrong:
        raise Broken(wrong)

    def run(calls: int) -> None:
        with tensors.on(ready.device):
            for _ in range(calls):
                call()
            if ready.wait:
                ready.wait()

    calls = counted(run, unit_s)
    return Unit(lambda: run(calls), calls, values, "bound")


def _raw(row: Row, unit_s: float, seed: int, phases: dict) -> Unit:
    """Calls of a kernel that was checked, each waited for. What this process prepared before is let go: one such row at a time.

    Raises: Broken for a wrong answer.
    """
    _prepared.clear()
    inner = Row(row.kernel, row.problem.inner, row.settings)
    require_memory(inner.problem, row.device)
    kernel = registry.find(row.kernel)
    check, phases["first_call"] = one_row.checked(kernel, inner, seed)
    if not check.passed:
        raise Broken("the answer is not the reference's")
    prepared = copy_modes.prepare(kernel, inner.problem, inner.settings, inner.problem.inputs(seed))

    def run(calls: int) -> None:
        for _ in range(calls):
            prepared.call()

    run(1)
    calls = counted(run, unit_s)
    return Unit(lambda: run(calls), calls, {}, check.how)


def _training(row: Row, unit_s: float, seed: int, phases: dict) -> Unit:
    """A warm fit of as many whole batches as a unit takes; where the problem has fewer, of several epochs."""
    problem, network, wanted = row.problem, networks.find(row.problem.model), settings.checked_keras(row)
    require_memory(problem, "cpu")
    phases |= tensors.begin(row.device, row.threads)
    x, y = data.load(wanted.data, network, problem.samples, seed, problem.dtype)
    trainer = trainers.way(row.kernel)(trainers.Task(row, network, x, y, seed, phases))
    if trainer.wrong:
        raise Broken(trainer.wrong)
    most = max(1, problem.samples // problem.batch)

    def run(steps: int) -> None:
        epochs = max(1, round(steps / most))
        trainer.fit(min(steps, most) * problem.batch, epochs)

    with tensors.timed(phases, "first_call"):
        run(1)
    steps = counted(run, unit_s, _WARM_STEPS)
    steps = steps if steps <= most else max(1, round(steps / most)) * most
    return Unit(lambda: run(steps), steps, dict(trainer.values), "weights")


def counted(
    run: Callable[[int], None], unit_s: float, first: int = 1, clock: Callable[[], float] = time.monotonic
) -> int:
    """How many calls take about `unit_s` seconds, going by growing numbers of them."""
    count = first
    while True:
        begin = clock()
        run(count)
        each = (clock() - begin) / count
        wanted = max(1, round(unit_s / each))
        if wanted < 2 * count:
            return wanted
        count = min(wanted, 8 * count)


def window(row: Row, limits: Limits, seed: int) -> Measurement:
    """Runs units of the row's work one after another for `limits.visit_s` seconds, at least one. Series: begin_s and end_s on
    the clock that all processes share. values: steps of a unit.

    Raises: ValueError for a row that was not prepared.
    """
    if key(row) not in _prepared:
        raise ValueError("the row was not prepared in this process")
    unit = _prepared[key(row)]
    spans: list[tuple[float, float]] = []
    stop = time.monotonic() + limits.visit_s
    while not spans or spans[-1][1] < stop:
        begin = time.monotonic()
        unit.run()
        spans.append((begin, time.monotonic()))
    begins, ends = zip(*spans, strict=True)
    values, series = unit.values | {"steps": float(unit.steps)}, {"begin_s": begins, "end_s": ends}
    return row.result("ok", values=values, series=series, check=unit.check)


def trial(row: Row, limits: Limits, seed: int) -> Measurement:
    """One whole training as a search does it: the model built and compiled anew, and fitted once. The samples are loaded once a
    process; with the switch clear_session Keras first forgets the models before.

    phases_s: import, device_start (a process's first), data, clear, build, first_call (the fit). values: traces of the
    train step (each is compiled, too, where jit is on), functions that TensorFlow holds, rss_bytes, final_loss.
    """
    problem, wanted = row.problem, settings.checked_keras(row)
    phases: dict[str, float] = {}
    network = networks.find(problem.model)
    require_memory(problem, "cpu")
    phases |= tensors.begin(row.device, row.threads)
    import keras

    where, _ = tensors.start(row.device, row.threads)
    with tensors.timed(phases, "data"):
        x, y = _loaded(wanted.data, network, problem.samples, seed, problem.dtype)
    with tensors.timed(phases, "clear"):
        if row.experiment.clear_session == "on":
            keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    with tensors.on(where):
        with tensors.timed(phases, "build"):
            model = models.build(network, settings.JIT[wanted.jit_compile])
        traces = traced(model)
        with tensors.timed(phases, "first_call"):
            history = model.fit(x, y, problem.batch, problem.epochs, verbose=0)
    loss = float(history.history["loss"][-1])
    if not loss < float("inf"):
        raise Broken(f"the loss is {loss}")
    if wrong := models.differences(model, network):
        raise Broken(wrong)
    values = {
        "traces": float(len(traces)),
        "functions": float(held_functions()),
        "rss_bytes": float(psutil.Process().memory_info().rss),
        "final_loss": loss,
        "jit_compile": float(model.jit_compile is True),
    }
    return row.result("ok", phases_s=phases, values=values, check="weights")


def traced(model) -> list[int]:
    """A list that grows by one each time the model's train step is traced: Python runs it only then."""
    found, step = [], model.train_step

    def counting(*args, **keywords):
        found.append(1)
        return step(*args, **keywords)

    object.__setattr__(model, "train_step", counting)  # Keras would track it as a part of the model
    return found


def held_functions() -> int:
    """Graph functions that TensorFlow holds in this process: they grow with models that are not let go."""
    from tensorflow.python.eager import context  # no public way to them

    return len(context.context().list_function_names())
