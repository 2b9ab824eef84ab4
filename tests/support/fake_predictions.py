"""A predictor whose laws are known: what explanations, what-ifs and cases are worked out from by hand."""

import re

from fake_measurements import CPU_MACHINE, GPU_MACHINE, launch_rows, row, transfer_rows

from analysis.explain.sources import Sources
from analysis.predict import profile
from analysis.predict.prediction import Prediction
from analysis.stats import exact
from kernels.problems import Launch, Peak

MS = 1e-3


class FunctionPredictor:
    """A predictor that answers by a function."""

    def __init__(self, function):
        self.predict = function


def predict(training, settings, of, network=None, *, kernel="training/keras/fit") -> Prediction:
    """On the CPU a step takes 1 ms and 20 µs a sample; on the GPU 2 ms (0.3 in a bare loop; half of it in calls of several
    steps), 0.1 ms and 1 µs a sample for copies, 1 µs a sample for arithmetic. Arithmetic grows with a multilayer
    perceptron's width beyond 100. An epoch takes 50 ms more, a fit 100 ms; start-up 5 s and 6 s; a compilation 3 s."""
    found = re.match(r"mlp-\d+-(\d+)x", training.model)
    wide = int(found[1]) / 100 if found else 1.0
    cpu, batch, given = settings.device == "cpu", min(training.batch, training.samples), settings.switches
    shared = 0.5 if given.get("steps_per_execution", "1") != "1" else 1.0
    if cpu:
        parts = {"dispatch": 1 * MS * shared, "matmul": 2e-5 * batch * wide}
    else:
        parts = {"dispatch": (0.3 if kernel.endswith("/loop") else 2) * MS * shared}
        if given.get("jit_compile") == "off":
            parts["launches"] = 5 * MS
        if given.get("residence") != "resident":
            parts |= {"transfer calls": 0.1 * MS, "transfer bytes": 1e-6 * batch}
        parts["matmul"] = 1e-6 * batch * wide * (0.5 if given.get("precision", "").startswith("mixed") else 1.0)
    estimates = {name: exact(value) for name, value in parts.items()}
    step = exact(sum(parts.values()))
    compiled = given.get("jit_compile", "auto") == "on" or (given.get("jit_compile", "auto") == "auto" and not cpu)
    once = (0.05, 0.1, 3.0 if compiled else 1e-9, 5.0 if cpu else 6.0)
    how = "compiled" if compiled else "op by op"
    epoch_s, fit_s, compile_s, start_s = map(exact, once)
    return Prediction(
        training=training,
        settings=settings,
        parts=estimates,
        step_s=step,
        epoch_s=epoch_s,
        fit_s=fit_s,
        compile_s=compile_s,
        start_s=start_s,
        execution=how,
        partial=(),
        profile=of.key,
    )


def peaks() -> list:
    """1 TFLOP/s on the CPU and 100 TFLOP/s on the GPU, in float32 and TF32 alike."""
    return [row("peak/numba/fma", Peak("float32", 10**12), 1.0, threads=16)] + [
        row("peak/cupy/fma", Peak(math, 10**14), {"device": 1.0, "host-latency": 1.0}) for math in ("float32", "tf32")
    ]


def starts(cpu: float, gpu: float | None = None) -> list:
    """Keras steps of a model with almost no work, so many seconds each."""
    each = [(device, seconds) for device, seconds in (("cpu", cpu), ("gpu:0", gpu)) if seconds]
    return [
        row(f"launch/tensorflow/{variant}", Launch("step", n), 0.02 + n * seconds, device=device)
        for n in (10, 80, 640)
        for device, seconds in each
        for variant in ("fit_jit", "fit_op_by_op")
    ]


def sources(*more, with_gpu: bool = True) -> Sources:
    """A GPU machine's profile of launches, copies, peaks and `more` rows; or a CPU machine's."""
    if not with_gpu:
        here = profile.Profile((*starts(2 * MS), *more), CPU_MACHINE)
        return Sources(cpu=here, gpu=None, predictor=FunctionPredictor(predict))
    here = profile.Profile((*launch_rows(0.0), *transfer_rows(0.0), *peaks(), *more), GPU_MACHINE)
    return Sources(cpu=here, gpu=here, predictor=FunctionPredictor(predict))


def borrowed(cpu_step: float = 2 * MS) -> Sources:
    """This machine's CPU, whose Keras step takes `cpu_step` seconds, beside the stored GPU machine, whose CPU takes 1 ms."""
    stored = profile.Profile((*starts(1 * MS, 2 * MS), *transfer_rows(0.0), *peaks()), GPU_MACHINE)
    here = profile.Profile(tuple(starts(cpu_step)), CPU_MACHINE)
    return Sources(cpu=here, gpu=stored, predictor=FunctionPredictor(predict))
