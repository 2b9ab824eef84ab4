"""Inside a worker: one training, from import to Measurement. The worker's environment chose its device."""

import contextlib
import math
import re
import statistics
import traceback
from typing import Any

import numpy as np
from msgspec.structs import replace

from analysis import units
from kernels import networks
from kernels.problems import Inference, Training
from kernels.problems.arrays import ITEM_BYTES
from workloads.frameworks import data, data_parallel, fit_timing, tensors, trainers, user_model
from workloads.frameworks.tracing import step, user_files
from workloads.frameworks.user_fit import cut_data, script_training, user_training, weight_limit
from workloads.frameworks.user_fit.cut_data import CutData
from workloads.harness import announce, telemetry
from workloads.harness.dispatch import Broken, one_line
from workloads.harness.memory_needs import DoesNotFit, require_bytes
from workloads.harness.timing import Limits
from workloads.machine import cpu, facts
from workloads.records import SAMPLES, Machine, Measurement, Row, script_files, settings

CHECK = "weights"  # what every row is checked by: its model against the table
FIT = "training/keras/fit"
BUILD = "training/keras/build"  # a row that builds and compares the model and trains nothing
# the last is what TensorFlow says of a copy that finds no room (tensorflow#7025)
_OUT_OF_MEMORY = re.compile("RESOURCE_EXHAUSTED|[Oo]ut of memory|OOM when allocating|Dst tensor is not initialized")


class OutOfMemory(Exception):
    """A training that does not fit: its row is skipped, and the process goes on."""


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Trains the row's model: `host-latency` samples are seconds a step, each the mean over a later epoch of a warm fit, whose
    first epoch and data-set setup are in none of them.

    Nothing of ours runs in a fit but the stamps of its epochs.
    phases_s: import and device_start (in a process's first row), samples, build, compile and compile_last, look (the fit of the
    losses), fits, first_call (compilation, data-set setup and an epoch). Fits: later epochs of another number of steps, and the
    data-set setup of each fit. Series: losses and accuracies of a fit from the first weights. Slow steps (limits.slow_step_s)
    are timed in epochs of a few, without losses.
    A row of process `fresh` has import, start, build and the first step alone.
    Raises: ValueError for what cannot be run so; registry.NotInstalled; measure.DoesNotFit; OutOfMemory.
    """
    if isinstance(row.problem, Training):
        scripted = script_files.script_training(row.problem.model)
        if scripted is not None:
            return script_training.measure(row, scripted, limits)
    phases: dict[str, float] = {}
    values: dict[str, float] = {}
    try:
        fields = _trained(row, limits, seed, phases=phases, values=values)
    except Broken as error:
        fields = {"status": "failed", "reason": str(error), "cause": error.cause}
    except Exception as error:
        refusal = data_parallel.refused(row, error)
        if refusal:
            raise ValueError(refusal) from error
        if isinstance(error, MemoryError) or not _OUT_OF_MEMORY.search(str(error)):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold the model and its samples
        tensors.forget()
        if not row.on_gpu:
            raise MemoryError from None
        raise OutOfMemory(one_line(error, 200)) from None
    return row.result(**{"status": "ok", **fields}, phases_s=phases, values=values)


def _trained(row: Row, limits: Limits, seed: int, *, phases: dict[str, float], values: dict[str, float]) -> dict:
    """The fields of the Measurement beside `phases` and `values`, which are filled on the way.

    Raises: Broken; data.Unavailable.
    """
    settings.checked_keras(row)  # refuses what nothing here obeys
    if not isinstance(row.problem, Training):
        raise ValueError(f"{row.kernel} trains, it does no {row.problem.op}")
    network = None if settings.is_user_model(row.problem.model) else networks.find(row.problem.model)
    row = _with_possible_batch(row)
    require_room(row, facts.describe())
    phases |= tensors.begin(row.device, row.threads, row.library)
    _require_sight(row)
    if not phases:  # another row has been here
        tensors.forget()
    _mark_memory(row)
    announce.starting("running your file" if network is None else "building the model")
    if network is None:
        _require_obeyed(row)
        model = _general_model(row, phases)
        if model is not None:
            return _general_fields(row, model, limits, seed, phases=phases, values=values)
    with tensors.timed(phases, "samples"):
        x, y = _samples(row, network, seed)
    task = trainers.Task(row=row, network=network, x=x, y=y, seed=seed, phases=phases)
    if row.kernel == BUILD:
        return _build_fields(task, values)
    trainer = trainers.make_trainer(task)
    values |= trainer.values
    if not row.on_gpu:  # unless told, TensorFlow takes every CPU that it may run on, and so do JAX and PyTorch
        values["threads"] = float(row.threads or len(cpu.affinity()))
    if trainer.wrong:
        return {"status": "wrong", "reason": trainer.wrong, "check": CHECK}
    if row.process == "fresh":
        with tensors.timed(phases, "first_call"):
            trainer.fit(min(row.problem.batch, row.problem.samples), 1)
        return {"check": CHECK, "notes": trainer.notes}
    unit = row.keras.steps_per_execution
    try:
        return _timed(row, trainer, limits, available=len(x), unit=unit, phases=phases, values=values)
    except (TypeError, ValueError) as error:
        if network is not None:
            raise
        raise Broken(f"{row.problem.model} does not train on made-up samples: {one_line(error)}") from error


def _with_possible_batch(row: Row) -> Row:
    """The row; with one batch of all samples where they are fewer than a batch, so that every timed fit has such batches."""
    if row.problem.samples >= row.problem.batch:
        return row
    return replace(row, problem=replace(row.problem, batch=row.problem.samples))


def _build_fields(task: trainers.Task, values: dict) -> dict:
    """The fields of a row that only builds the model."""
    built = trainers.built(task)
    values |= built.values
    fields = {"check": CHECK, "notes": built.notes}
    if built.wrong:
        fields |= {"status": "wrong", "reason": built.wrong}
    return fields


def _require_obeyed(row: Row) -> None:
    """Raises ValueError for options that a user's own model cannot obey."""
    chosen = row.keras
    if row.kernel == FIT and settings.is_user_model(chosen.data):
        chosen = replace(chosen, data="synthetic")
    for name, text in (("data", "synthetic"), ("dropout", "on"), ("targets", "float32")):
        if getattr(chosen, name) != text:
            raise ValueError(f"{row.problem.model} is a model of your own: {name} can only be {text}")


def _general_model(row: Row, phases: dict) -> Any:
    """A user's model under the row's precision, where user_training times it; else None. Fills phases_s build.

    Raises: Broken.
    """
    import keras

    if row.kernel != FIT:
        return None
    weight_limit.install()
    keras.config.set_dtype_policy(row.keras.precision)
    try:
        with tensors.timed(phases, "build"):
            model = user_model.opened(row.problem.model)
    finally:
        keras.config.set_dtype_policy("float32")
    if user_training.is_general(row, model):
        return model
    del model
    tensors.forget()
    return None


def _general_fields(
    row: Row, model: Any, limits: Limits, seed: int, *, phases: dict[str, float], values: dict[str, float]
) -> dict:
    """The fields of the Measurement of any compiled model, with the first data that it takes.

    Raises: Broken with the error of the likeliest data where it takes none.
    """
    notes = user_training.require_compiled(row, model)
    first_error: Broken | None = None
    for cut, inputs in user_training.candidates(row, model, row.problem.samples, seed):
        step.build(model, inputs)
        if user_files.SOURCE not in notes:
            names = [row.problem.model, row.keras.data if row.keras.data != "synthetic" else ""]
            notes[user_files.SOURCE] = user_files.hash_of_modules(*names)
        try:
            return fields_of_fit(row, model, cut, limits, notes=notes, phases=phases, values=values)
        except Broken as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


def fields_of_fit(
    row: Row,
    model: Any,
    cut: CutData,
    limits: Limits,
    *,
    notes: dict,
    phases: dict[str, float],
    values: dict[str, float],
) -> dict:
    """The fields of the Measurement of a user's fit, beside `phases` and `values`, which are filled.

    Raises: Broken with the user's own line that fails.
    """
    trainers.use_tf32(row)
    trainer = user_training.UserFit(row, model, cut, notes)
    unit = model.steps_per_execution
    available = fit_timing.samples_needed(row.problem, cut.sample_bytes, unit)
    watched = values | trainer.values
    try:
        fields = _timed(row, trainer, limits, available=available, unit=unit, phases=phases, values=watched)
        tensors.require_device(model, row.device, row.library)
        if row.keras.data != "synthetic":
            announce.timing("timing the data alone", cut_data.RATE_S)
            watched["input_step_s"] = cut.seconds_of_a_batch()
    except MemoryError:
        raise
    except Exception as error:
        if _OUT_OF_MEMORY.search(str(error)):
            raise
        raise user_training.failure(cut.error or error, row.problem.model) from error
    if cut.data.rows is None:  # what further steps add to a fit's setup is that of arrays, which are copied whole
        all_steps, few_steps = fields["fits"]
        fields["fits"] = (all_steps, replace(few_steps, setup_s=()))
    if not row.on_gpu:
        watched["threads"] = float(row.threads or len(cpu.affinity()))
    values |= watched
    return fields


def _timed(
    row: Row, trainer: trainers.Trainer, limits: Limits, *, available: int, unit: int, phases: dict, values: dict
) -> dict:
    """The timed fields of a Trainer, in order: compilation, losses, fits of the row's samples in turns with those of other
    steps. available: samples that are ready. unit: steps that Keras runs in one call."""
    problem = row.problem
    announce.starting("compiling")
    look = fit_timing.compiled(trainer, problem, phases, unit)
    with tensors.timed(phases, "look"):
        planned, learned = fit_timing.plan(trainer, problem, available, limits, look=look, unit=unit)
    watch = telemetry.watch(row.device, framework=True)
    with tensors.timed(phases, "fits"):
        timed = fit_timing.long_fits(trainer, problem, planned, limits, before_pair=watch.before_block)
    readings, flags = watch.readings()
    epoch_s = statistics.median(timed.samples.seconds) * timed.samples.calls
    compile_s = phases["compile"] + phases.get("compile_last", 0.0)
    phases["first_call"] = compile_s + timed.fits[0].setup_s[0] + epoch_s
    values |= readings | _peak_memory(row)
    series: dict[str, tuple[float, ...]] = {}
    if problem.epochs > 1:
        series["job_loss"] = timed.first.losses[: problem.epochs]
        series["job_accuracy"] = timed.first.accuracies[: problem.epochs]
    if learned is not None and learned.losses:
        series["loss"] = learned.losses
        series["accuracy"] = learned.accuracies
        values["final_loss"] = learned.losses[-1]
    if row.keras.dropout == row.keras.shuffle == "off":
        trainer.restore()
        series["step_loss"] = trainers.finite(trainer.step_losses(trainers.STEP_LOSSES))
    more = trainer.further_results()
    values |= more.values
    series |= more.series
    # a regression has no accuracy
    stored = {name: fit_timing.thinned(numbers) for name, numbers in series.items() if numbers}
    return {
        "samples": (timed.samples,),
        "fits": timed.fits,
        "series": stored,
        "check": CHECK,
        "flags": flags,
        "notes": {**trainer.notes, **more.notes, SAMPLES: data.VERSION},
    }


def _samples(row: Row, network: networks.Network | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) for the problem; more samples if its epochs are too short to time a step by."""
    problem = row.problem
    chosen = row.keras
    if network is None:
        return _user_samples(row, seed)
    x, y = data.load(chosen.data, network, problem.samples, seed, dtype=problem.dtype, targets=chosen.targets)
    if row.process == "fresh":
        return x, y
    sample_bytes = networks.sample_bytes(network, problem.dtype)
    count = fit_timing.samples_needed(problem, sample_bytes, chosen.steps_per_execution)
    return fit_timing.resized(x, y, count)


def _user_samples(row: Row, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) for a user's model, which is built once to see what it takes.

    Raises: ValueError for switches that such a model cannot obey; DoesNotFit.
    """
    problem = row.problem
    chosen = row.keras
    if problem.model.endswith(".keras") and chosen.precision != "float32":
        raise ValueError(f"{problem.model} has the precision that it was saved with")
    model, _ = user_model.load(problem.model, "auto")
    values = math.prod(side or 1 for side in model.input_shape[1:])
    sample_bytes = ITEM_BYTES.get(problem.dtype, 1) * values
    count = fit_timing.samples_needed(problem, sample_bytes, chosen.steps_per_execution)
    whole = replace(problem, samples=count)
    require_room(replace(row, problem=whole), facts.describe(), values)
    x, y = user_model.samples(model, count, seed, problem.dtype)
    del model
    tensors.forget()
    return x, y


def footprint_bytes(problem: Training | Inference, values: int = 0) -> int:
    """Bytes that a training, or a teacher's inference, holds at least; of a user's model, of `values` a sample, its samples
    alone."""
    if isinstance(problem, Training) and values:
        return problem.samples * values * ITEM_BYTES.get(problem.dtype, 1)
    return problem.footprint_bytes


def require_room(row: Row, here: Machine, values: int = 0) -> None:
    """Raises DoesNotFit for samples that the host's memory is too small for, or the GPU's where all of them come to lie there.
    What else a GPU cannot hold, the framework says itself: its memory is the framework's. `values`: as above."""
    require_bytes(3 * footprint_bytes(row.problem, values), "host", facts.memory_available("cpu"))
    gpu = here.gpu(row.device) if row.on_gpu else None
    residence = row.settings.switches.get("residence", "numpy")
    is_copied_whole = row.variant == "fit" and residence == "numpy" and row.library == "tensorflow"  # keras#16997
    is_resident = row.variant in ("resident", "loop") and residence != "fed"
    if gpu is None or not (is_copied_whole or is_resident):
        return
    problem = row.problem
    if is_copied_whole:
        problem = replace(problem, dtype=settings.dtype_in_fit(problem.dtype))
    needed = footprint_bytes(problem, values)
    if needed > gpu.memory_bytes:
        residence = "fed" if row.variant == "loop" else "tf.data"
        raise DoesNotFit(
            f"needs {units.size(needed)} of GPU memory, there are {units.size(gpu.memory_bytes)}: "
            f"--residence {residence} leaves them on the host"
        )


def _require_sight(row: Row) -> None:
    """Raises ValueError for a row whose process should see a GPU where there is none."""
    if row.keras.gpu == "visible":
        if row.library != "tensorflow":
            raise ValueError(f"gpu=visible is TensorFlow's way of choosing the CPU; Keras runs on {row.library} here")
        import tensorflow

        if not tensorflow.config.list_physical_devices("GPU"):
            raise ValueError("gpu=visible puts a training on the CPU beside a GPU that TensorFlow sees; it sees none")


def _mark_memory(row: Row) -> None:
    """Starts the measurement of peak memory: later peaks count."""
    if not row.on_gpu:
        with contextlib.suppress(OSError):
            (cpu.ROOT / "proc/self/clear_refs").write_text("5")  # resets VmHWM (proc(5))
    elif row.library == "tensorflow":
        import tensorflow

        tensorflow.config.experimental.reset_memory_stats("GPU:0")


def _peak_memory(row: Row) -> dict[str, float]:
    """peak_memory_bytes: of this process on the CPU; of TensorFlow's tensors on a GPU."""
    if not row.on_gpu:
        peak = re.search(r"VmHWM:\s+(\d+) kB", cpu.text(cpu.ROOT / "proc/self/status"))
        return {"peak_memory_bytes": int(peak[1]) * 1024.0} if peak else {}
    return tensors.peak_memory() if row.library == "tensorflow" else {}
