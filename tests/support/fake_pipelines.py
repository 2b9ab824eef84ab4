"""Rows of input pipelines that follow known laws."""

from analysis.training import pipeline_costs
from kernels.problems import InputPipeline
from workloads.records import Fits, Measurement, Samples, Settings

CALL, SAMPLE, BYTE, EPOCH, SETUP = 0.6e-3, 1e-7, 1 / 5e9, 0.04, 0.02


def timed(kernel, problem, step, device, few, setup=None, **fields):
    """A row whose epochs take EPOCH and its steps."""
    steps, epochs = problem.steps, [(n, EPOCH + n * step) for n in (problem.steps, few)]
    samples = Samples("host-latency", (epochs[0][1] / steps,) * 4, steps, (2, 2), "epochs of 2 fits, steady")
    setups = {n: (setup(n),) * 2 if setup else () for n in (steps, few)}
    fits = (
        Fits(steps=steps, setup_s=setups[steps]),
        Fits(steps=few, setup_s=setups[few], later_epoch_s=(epochs[1][1],) * 4),
    )
    return Measurement(kernel, problem, Settings(device), "ok", samples=(samples,), fits=fits, **fields)


def fed(way, batch, width, slower=1.0, device="gpu:0", dtype="float32"):
    """A row of the study: its step follows the planted law; what lies on the device already, its call."""
    problem = InputPipeline(batch, width, pipeline_costs.steps(batch, width), dtype)
    step = CALL if way == "resident" else (CALL + batch * SAMPLE + problem.nbytes * BYTE) * slower
    return timed(f"feeding/keras/{way}", problem, step, device, 4, lambda steps: SETUP + steps * problem.nbytes / 3e9)


def study(ways=("numpy", "resident"), sizes=pipeline_costs.SIZES, **how):
    return [fed(way, *size, **how) for way in ways for size in sizes]
