"""Trials: the same training again and again, built and compiled anew each time, as a search over settings or folds does it.

The parent's side is Trials, the work of one trial in a worker is `trial`.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import psutil
from msgspec.structs import replace

from kernels import networks
from workloads.frameworks import data, models, tensors
from workloads.harness import concurrent
from workloads.harness.dispatch import Broken
from workloads.harness.memory_needs import require_memory
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.records import Machine, Measurement, Row, Samples, settings

if TYPE_CHECKING:
    import keras

_load_once = functools.lru_cache(maxsize=1)(data.load)


# ---------------------------------------------------------------- in the parent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials(concurrent.RowGroup):
    """Trials of one row, one after another: in one worker process, or in a fresh one each where the row's process is `fresh`."""

    #: The row, alone.
    rows: list[Row]
    #: How many trials.
    count: int
    #: How long a row is timed.
    limits: Limits
    #: Seed of the data.
    seed: int
    #: This machine, whose GPUs the worker is given.
    here: Machine

    def measure(self) -> Generator[Measurement]:
        """Yields one measurement of all trials, up to the first that fails.

        They are timed here and not in the worker, so that a fresh process's start and end are part of its trial.
        """
        (row,) = self.rows
        order = Order(verb="trial", row=row, limits=self.limits, seed=self.seed)
        trials: list[Measurement] = []
        trial_s: list[float] = []
        with contextlib.closing(Worker(environment(row, self.here.uuids))) as worker:
            for _ in range(self.count):
                begin = time.perf_counter()
                trials.append(worker.ask(order, concurrent.timeout(row.problem)))  # starts a process where none runs
                if row.process == "fresh":
                    worker.close()
                trial_s.append(time.perf_counter() - begin)
                if trials[-1].status != "ok":
                    break
        yield joined_trials(row, trials, trial_s)


def joined_trials(row: Row, trials: list[Measurement], trial_s: list[float]) -> Measurement:
    """One measurement of a row from the answers to its trials, at least one; the last answer where that failed.

    trial_s: seconds of each trial, which are the samples of the clock `host-latency`. series: each trial's phases (0 where it had
    none of that name) and values. values: total_s, trials, and traces of all trials together.
    """
    last = trials[-1]
    if last.status != "ok":
        return replace(last, settings=row.settings)
    samples = Samples(
        clock="host-latency",
        seconds=tuple(trial_s),
        calls=1,
        block_sizes=(1,) * len(trials),
        stop_reason=f"{len(trials)} trials",
    )
    series: dict[str, tuple[float, ...]] = {}
    for trial in trials:
        for name in trial.phases_s:
            series[f"{name}_s"] = tuple(other.phases_s.get(name, 0.0) for other in trials)
    for name in ("traces", "functions", "rss_bytes", "final_loss"):
        series[name] = tuple(trial.values[name] for trial in trials)
    values = {
        "total_s": sum(trial_s),
        "trials": float(len(trials)),
        "traces": sum(series["traces"]),
        "jit_compile": last.values["jit_compile"],
    }
    return replace(last, samples=(samples,), phases_s=trials[0].phases_s, values=values, series=series)


# ---------------------------------------------------------------- in a worker


def trial(row: Row, limits: Limits, seed: int) -> Measurement:
    """Builds and compiles the row's model anew and fits it once, as each trial of a search does.

    The samples are loaded once a process. With the option clear_session Keras first forgets the models of earlier trials. limits:
    unused, as the fit's length is in the row.
    phases_s: seconds of import and device_start (in a process's first trial), data, clear, build and first_call, which is the
    fit. values: how often the train step was traced (where jit is on, each trace is also compiled), functions that TensorFlow
    holds, the process's resident bytes, the last epoch's loss.
    Raises: Broken for a loss that is no number, and for a model that differs from its description in kernels.networks.
    """
    problem = row.problem
    options = settings.checked_keras(row)
    phases: dict[str, float] = {}
    network = networks.find(problem.model)
    require_memory(problem, "cpu")
    phases |= tensors.begin(row.device, row.threads)
    import keras

    device, _ = tensors.start(row.device, row.threads)
    with tensors.timed(phases, "data"):
        x, y = _load_once(options.data, network, problem.samples, seed, dtype=problem.dtype)
    with tensors.timed(phases, "clear"):
        if row.experiment.clear_session == "on":
            keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    with tensors.on(device):
        with tensors.timed(phases, "build"):
            model = models.build(network, settings.JIT[options.jit_compile])
        traces = count_traces(model)
        with tensors.timed(phases, "first_call"):
            history = model.fit(x, y, problem.batch, problem.epochs, verbose=0)
    loss = float(history.history["loss"][-1])
    if not loss < float("inf"):
        raise Broken(f"the loss is {loss}")
    wrong = models.differences(model, network)
    if wrong:
        raise Broken(wrong)
    values = {
        "traces": float(len(traces)),
        "functions": float(graph_functions()),
        "rss_bytes": float(psutil.Process().memory_info().rss),
        "final_loss": loss,
        "jit_compile": float(model.jit_compile is True),
    }
    return row.result("ok", phases_s=phases, values=values, check="weights")


def count_traces(model: "keras.Model") -> list[int]:
    """A list that grows by one item each time TensorFlow traces the model's train step.

    The model's `train_step` is replaced by a function that appends to the list. Python runs it only while it is traced.
    """
    traces: list[int] = []
    step = model.train_step

    def counting(*args: object, **keywords: object) -> object:
        traces.append(1)
        return step(*args, **keywords)

    object.__setattr__(model, "train_step", counting)  # Keras would track it as a part of the model
    return traces


def graph_functions() -> int:
    """The number of graph functions that TensorFlow holds in this process: it grows with models that are not freed."""
    from tensorflow.python.eager import context  # no public way to them

    return len(context.context().list_function_names())
