"""Inside a worker: one training, from import to Measurement. The worker's environment chose its device."""

import contextlib
import math
import re
import statistics
import traceback
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    import keras

CHECK = "weights"  # what every row is checked by: its model's weights against the description of its network
FIT = "training/keras/fit"
BUILD = "training/keras/build"  # a row that builds and compares the model and trains nothing
_HOST_COPIES = 3  # a training needs its samples so many times on the host, as other rows do (harness.memory_needs)
# The last of these is what TensorFlow says of a copy for which there is no memory (tensorflow#7025).
_OUT_OF_MEMORY = re.compile("RESOURCE_EXHAUSTED|[Oo]ut of memory|OOM when allocating|Dst tensor is not initialized")


class OutOfMemory(Exception):
    """A training that does not fit: its row is skipped, and the process goes on."""


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Trains the row's model in this process and times its steps.

    The samples of the clock `host-latency` are seconds a step, each the mean over one epoch of a fit. A fit's first epoch, in
    which it sets up its data, is not among them. Nothing of this project runs in a fit but a callback that stamps its epochs.
    phases_s: import and device_start (in a process's first row), samples, build, compile and compile_last (of the last, smaller
    batch), look (a fit for the losses), fits, first_call (compilation, data-set setup and an epoch). fits: epochs of another
    number of steps, and the data-set setup of each fit. series: losses and accuracies of each epoch from the first weights on.
    Steps slower than limits.slow_step_s are timed in epochs of a few steps, without losses. A row of process `fresh` has import,
    start, build and the first step alone. seed: of weights and made-up samples.
    Raises: ValueError for options that do not go together; registry.NotInstalled; DoesNotFit; OutOfMemory.
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
        traceback.clear_frames(error.__traceback__)  # their locals refer to the model and its samples
        tensors.forget()
        if not row.on_gpu:
            raise MemoryError from None
        raise OutOfMemory(one_line(error, 200)) from None
    return row.result(**{"status": "ok", **fields}, phases_s=phases, values=values)


def _trained(row: Row, limits: Limits, seed: int, *, phases: dict[str, float], values: dict[str, float]) -> dict:
    """Trains and times the row's model. Returns fields of its Measurement; `phases` and `values` are filled on the way.

    Raises: Broken for a model that does not train, and where its real data cannot be had; ValueError for options that do not go
    together.
    """
    settings.checked_keras(row)  # refuses what nothing here obeys
    if not isinstance(row.problem, Training):
        raise ValueError(f"{row.kernel} trains, it does no {row.problem.op}")
    # A user's model has no description in kernels.networks.
    network = None if settings.is_user_model(row.problem.model) else networks.find(row.problem.model)
    row = _with_possible_batch(row)
    require_room(row, facts.describe())
    phases |= tensors.begin(row.device, row.threads, row.library)
    _require_visible_gpu(row)
    if not phases:  # this process has measured another row, whose model is freed
        tensors.forget()
    _reset_peak_memory(row)
    announce.starting("running your file" if network is None else "building the model")
    if network is None:
        _require_options_of_user_model(row)
        model = _general_model(row, phases)
        if model is not None:
            return _fields_of_general_model(row, model, limits, seed, phases=phases, values=values)
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
            trainer.fit(min(row.problem.batch, row.problem.samples), epochs=1)
        return {"check": CHECK, "notes": trainer.notes}
    unit = row.keras.steps_per_execution
    try:
        return _timed(row, trainer, limits, available=len(x), unit=unit, phases=phases, values=values)
    except (TypeError, ValueError) as error:
        if network is not None:
            raise
        raise Broken(f"{row.problem.model} does not train on made-up samples: {one_line(error)}") from error


def _with_possible_batch(row: Row) -> Row:
    """The same row; where it has fewer samples than a batch, with a batch of all samples, so that every timed fit has that
    batch."""
    if row.problem.samples >= row.problem.batch:
        return row
    return replace(row, problem=replace(row.problem, batch=row.problem.samples))


def _build_fields(task: trainers.Task, values: dict[str, float]) -> dict:
    """Fields of the Measurement of a row that builds its model and trains nothing; `values` is filled."""
    built = trainers.built(task)
    values |= built.values
    fields = {"check": CHECK, "notes": built.notes}
    if built.wrong:
        fields |= {"status": "wrong", "reason": built.wrong}
    return fields


def _require_options_of_user_model(row: Row) -> None:
    """Raises ValueError for options of the row that a user's own model does not have."""
    options = row.keras
    if row.kernel == FIT and settings.is_user_model(options.data):  # a function of the user's gives the data
        options = replace(options, data="synthetic")
    for name, text in (("data", "synthetic"), ("dropout", "on"), ("targets", "float32")):
        if getattr(options, name) != text:
            raise ValueError(f"{row.problem.model} is a model of your own: {name} can only be {text}")


def _general_model(row: Row, phases: dict[str, float]) -> "keras.Model | None":
    """The user's model that the row names, built in the row's precision, where it needs the general way of user_training: with
    data of the user's, several inputs or outputs, or a train_step of its own. None for any other model.

    The seconds of building it are put into `phases`.
    Raises: Broken where it does not build.
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


def _fields_of_general_model(
    row: Row, model: "keras.Model", limits: Limits, seed: int, *, phases: dict[str, float], values: dict[str, float]
) -> dict:
    """Times the fit of a user's model on the user's data, or on the first made-up data that it takes. Returns fields of the row's
    Measurement; `phases` and `values` are filled.

    Raises: Broken with the error of the likeliest data where it takes none.
    """
    notes = user_training.require_compiled(row, model)
    first_error: Broken | None = None
    for cut, inputs in user_training.candidates(row, model, row.problem.samples, seed):
        step.build(model, inputs)
        if user_files.SOURCE not in notes:
            data_function = row.keras.data if row.keras.data != "synthetic" else ""
            notes[user_files.SOURCE] = user_files.hash_of_modules(row.problem.model, data_function)
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
    """Times the fit of a user's model. Returns fields of its Measurement; `phases` and `values` are filled.

    cut: the data, of which fits of any number of steps can be made. notes: of the measurement so far.
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
    """Times a trainer: its compilation, a fit for the losses, then fits of the row's samples in turns with fits of other numbers
    of steps. Returns fields of the row's Measurement; `phases` and `values` are filled.

    available: how many samples the trainer has. unit: how many steps Keras runs in one call.
    """
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
    fits_of_all_steps, _ = timed.fits
    phases["first_call"] = compile_s + fits_of_all_steps.setup_s[0] + epoch_s
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
    """The samples and targets (x, y) to train on: more than the row's problem has where its epochs are too short to time a step.

    network: None for a user's model, whose samples are made up.
    """
    problem = row.problem
    options = row.keras
    if network is None:
        return _samples_of_user_model(row, seed)
    x, y = data.load(options.data, network, problem.samples, seed, dtype=problem.dtype, targets=options.targets)
    if row.process == "fresh":
        return x, y
    sample_bytes = networks.sample_bytes(network, problem.dtype)
    count = fit_timing.samples_needed(problem, sample_bytes, options.steps_per_execution)
    return fit_timing.resized(x, y, count)


def _samples_of_user_model(row: Row, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Made-up samples and targets (x, y) for a user's model, which is built once to see what it takes.

    Raises: ValueError for a precision that a saved model does not have; DoesNotFit.
    """
    problem = row.problem
    options = row.keras
    if problem.model.endswith(".keras") and options.precision != "float32":
        raise ValueError(f"{problem.model} has the precision that it was saved with")
    model, _ = user_model.load(problem.model, "auto")
    values = math.prod(side or 1 for side in model.input_shape[1:])
    sample_bytes = ITEM_BYTES.get(problem.dtype, 1) * values
    count = fit_timing.samples_needed(problem, sample_bytes, options.steps_per_execution)
    problem_of_all = replace(problem, samples=count)
    require_room(replace(row, problem=problem_of_all), facts.describe(), values)
    x, y = user_model.samples(model, count, seed, problem.dtype)
    del model
    tensors.forget()
    return x, y


def footprint_bytes(problem: Training | Inference, values: int = 0) -> int:
    """Bytes of memory that a training or an inference needs at least.

    values: of a user's model, numbers in a sample: its samples alone are counted then, as its layers are not known. 0 for a
    network of kernels.networks.
    """
    if isinstance(problem, Training) and values:
        return problem.samples * values * ITEM_BYTES.get(problem.dtype, 1)
    return problem.footprint_bytes


def require_room(row: Row, here: Machine, values: int = 0) -> None:
    """Raises DoesNotFit where the host's memory is too small for a row's samples, or the GPU's where all of them are copied
    there.

    Nothing else is checked for a GPU, since the framework has taken its memory and raises an error itself. here: this machine.
    values: of a user's model, numbers in a sample; 0 for a network of kernels.networks.
    """
    require_bytes(_HOST_COPIES * footprint_bytes(row.problem, values), "host", facts.memory_available("cpu"))
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


def _require_visible_gpu(row: Row) -> None:
    """Raises ValueError for a row that trains on the CPU beside a visible GPU (option gpu=visible), where TensorFlow sees
    none."""
    if row.keras.gpu == "visible":
        if row.library != "tensorflow":
            raise ValueError(f"gpu=visible is TensorFlow's way of choosing the CPU; Keras runs on {row.library} here")
        import tensorflow

        if not tensorflow.config.list_physical_devices("GPU"):
            raise ValueError("gpu=visible puts a training on the CPU beside a GPU that TensorFlow sees; it sees none")


def _reset_peak_memory(row: Row) -> None:
    """Sets the peak of memory that the system (CPU) or TensorFlow (GPU) records for this process to what is in use now."""
    if not row.on_gpu:
        with contextlib.suppress(OSError):
            (cpu.ROOT / "proc/self/clear_refs").write_text("5")  # resets VmHWM (proc(5))
    elif row.library == "tensorflow":
        import tensorflow

        tensorflow.config.experimental.reset_memory_stats("GPU:0")


def _peak_memory(row: Row) -> dict[str, float]:
    """The value peak_memory_bytes since the peak was reset: of this process on the CPU, of TensorFlow's tensors on a GPU; {}
    where neither is known."""
    if not row.on_gpu:
        peak = re.search(r"VmHWM:\s+(\d+) kB", cpu.text(cpu.ROOT / "proc/self/status"))
        return {"peak_memory_bytes": int(peak[1]) * 1024.0} if peak else {}
    return tensors.peak_memory() if row.library == "tensorflow" else {}
