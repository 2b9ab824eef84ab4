"""Inside a worker: one Keras training, from import to Measurement. The worker's environment chose its device."""

import math
import time
from collections.abc import Callable

from analysis import estimate
from kernels import networks
from kernels.problems import Training
from workloads import data, models, telemetry, tensors
from workloads.measure import now, require_memory
from workloads.results import Measurement, Row, Samples
from workloads.tensors import Broken, log_lines, missed, timed
from workloads.timing import Limits

BUILD = "training/keras/build"  # a row that builds and compares the model and trains nothing
FEWEST_FITS = 3
MOST_FITS = 20
LOSS_EPOCHS, LOSS_BATCHES = 3, 20
JIT: dict[str, bool | str] = {"auto": "auto", "on": True, "off": False}


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Trains the row's model: `host-latency` samples are seconds a step, each the mean over one warm `fit`.

    A warm fit runs the problem's epochs as a user's would, so the cost of a fit and of an epoch is in it; no callback
    runs in it. phases_s: import and device_start (in a process's first row), build, first_call (the first fit).
    The losses come from a run of their own, from the first weights again.
    Raises: ValueError for what cannot be run so; registry.NotInstalled; measure.DoesNotFit.
    """
    phases: dict[str, float] = {}
    values: dict[str, float] = {}
    fields: dict = {}
    try:
        fields = _trained(row, limits, seed, phases, values)
    except (Broken, data.Unavailable) as error:
        fields = {"status": "failed", "reason": str(error)}
    about = {"phases_s": phases, "values": values, "at": now()}
    return Measurement(row.kernel, row.problem, row.settings, **{"status": "ok", **fields, **about})


def _trained(row: Row, limits: Limits, seed: int, phases: dict, values: dict) -> dict:
    """The fields of the Measurement beside `phases` and `values`, which are filled on the way.

    Raises: Broken; data.Unavailable.
    """
    problem, switches = row.problem, _switches(row)
    if not isinstance(problem, Training):
        raise ValueError(f"{row.kernel} trains, it does no {problem.op}")
    network = networks.find(problem.model)
    require_memory(problem, "cpu")  # a GPU's memory is TensorFlow's already; it says itself what does not fit
    phases |= tensors.begin(row.settings.device, row.settings.threads)
    import keras

    keras.utils.set_random_seed(seed)
    x, y = data.load(switches["data"], network, problem.samples, seed, problem.dtype)
    with timed(phases, "build"):
        model = models.build(network, JIT[switches["jit_compile"]])
        model.optimizer.build(model.trainable_variables)
    values |= {"parameters": float(model.count_params()), "tf32": _tf32(row)}
    values["jit_compile"] = float(model.jit_compile is True)
    if wrong := models.differences(model, network):
        return {"status": "wrong", "reason": "; ".join(wrong)[:500], "check": "weights"}
    _require_device(model, row.settings.device)
    if row.kernel == BUILD:
        return {"check": "weights"}
    fresh = _snapshot(model)

    def fit(samples: int = problem.samples, epochs: int = problem.epochs, callbacks=None) -> list[float]:
        history = model.fit(x[:samples], y[:samples], problem.batch, epochs, verbose=0, callbacks=callbacks)
        return _finite(history.history["loss"])

    epochs_s = _EpochSeconds(keras)
    with timed(phases, "first_call"):
        fit(callbacks=[epochs_s.callback])
    values["first_epoch_s"] = epochs_s.seconds[0]
    watch = telemetry.watch(row.settings.device, framework=True)
    samples = _repeat(fit, problem.steps * problem.epochs, limits, watch.before_block)
    seen, flags = watch.seen()
    _restore(fresh)
    keras.utils.set_random_seed(seed)
    losses = fit(_whole_batches(problem), LOSS_EPOCHS)
    values |= {**seen, "final_loss": losses[-1]}
    return {"samples": (samples,), "series": {"loss": tuple(losses)}, "check": "weights", "flags": flags}


def _switches(row: Row) -> dict[str, str]:
    """The row's switches with the defaults filled in.

    Raises: ValueError for one that nothing here obeys, since its row would claim what was not done.
    """
    given = {name: text for name, text in row.settings.switches.items() if not name.startswith("TF_")}
    switches = {"data": "synthetic", "jit_compile": "auto"} | given
    if unknown := set(switches) - {"data", "jit_compile"}:
        raise ValueError(f"unknown switches: {', '.join(sorted(unknown))}")
    if switches["jit_compile"] not in JIT:
        raise ValueError(f"jit_compile can be {', '.join(JIT)}, not {switches['jit_compile']!r}")
    return switches


def _require_device(model, device: str) -> None:
    """Raises Broken unless the model's variables live where the row says."""
    lives, wanted = model.trainable_variables[0].value.device, "CPU" if device == "cpu" else "GPU"
    if f"device:{wanted}:" not in lives:
        raise Broken(f"the model's variables are on {lives or 'no device'}, not on a {wanted}: {missed(log_lines())}")


def _tf32(row: Row) -> float:
    """1 where float32 products may be done in TF32: on a GPU, TensorFlow's default."""
    import tensorflow

    return float(row.settings.device != "cpu" and tensorflow.config.experimental.tensor_float_32_execution_enabled())


def _snapshot(model) -> list[tuple]:
    """Every variable of the model and its optimizer with its value; seeds of dropout are among them."""
    every = {id(v): v for v in (*model.variables, *model.optimizer.variables)}
    return [(v, v.numpy().copy()) for v in every.values()]


def _restore(snapshot: list[tuple]) -> None:
    for variable, value in snapshot:
        variable.assign(value)


class _EpochSeconds:
    """A callback that stamps epochs, never batches: those would wait for each step."""

    def __init__(self, keras):
        self.seconds: list[float] = []
        begin = 0.0

        def on_begin(epoch, logs=None):
            nonlocal begin
            begin = time.perf_counter()

        def on_end(epoch, logs=None):
            self.seconds.append(time.perf_counter() - begin)

        self.callback = keras.callbacks.LambdaCallback(on_epoch_begin=on_begin, on_epoch_end=on_end)


def _finite(losses: list[float]) -> list[float]:
    """The losses of a fit; raises Broken when one is not a finite number."""
    for epoch, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            raise Broken(f"the loss is {loss} after epoch {epoch}")
    return [float(loss) for loss in losses]


def _repeat(fit: Callable, steps: int, limits: Limits, before_block: Callable) -> Samples:
    """Seconds a step of warm fits of that many steps, each fit a block of its own."""
    seconds: list[float] = []
    begin, reason = time.perf_counter(), ""
    while not reason:
        before_block()
        start = time.perf_counter()
        fit()
        seconds.append((time.perf_counter() - start) / steps)
        reason = _enough(seconds, time.perf_counter() - begin, limits)
    return Samples("host-latency", tuple(seconds), steps, tuple(range(len(seconds))), reason)


def _enough(seconds: list[float], spent: float, limits: Limits) -> str:
    """Why to stop after these fits: the time is up, or the interval is narrow enough; empty to go on."""
    if len(seconds) < FEWEST_FITS:
        return ""
    if spent > limits.max_time:
        return "max-time"
    if len(seconds) > FEWEST_FITS and estimate.median(seconds).noise <= limits.max_noise:
        return "steady"
    return "max-blocks" if len(seconds) == MOST_FITS else ""


def _whole_batches(problem: Training) -> int:
    """Samples for the run that gives the losses: few, and in whole batches, so that nothing is compiled anew."""
    return min(problem.samples // problem.batch, LOSS_BATCHES) * problem.batch or problem.samples
