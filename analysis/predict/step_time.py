"""Seconds of a step from its parts: one formula for a CPU and one for a GPU, each drawn."""

import math
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis.predict.components import Components
from analysis.predict.step_parts import COPYING, DEVICE, HIDDEN, ISSUING, PARTS, PIPELINE, bound_of, total_of
from analysis.stats import Estimate, exact

#: Relative error of predictions without a fit.
UNFITTED = 0.3
# Of a step: the rounding error of sums.
_ROUNDING = 1e-12

#: Of one step, or an array of several.
Seconds = float | np.ndarray


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers fitted to trainings of other models. Three are factors on the profile's seconds."""

    #: Factor on a Keras step with almost no work.
    dispatch: float = 1.0
    #: Factor on issuing further operations or kernels.
    launches: float = 1.0
    #: Factor on the device's work.
    work: float = 1.0
    #: OVERHEAD or WORK -> the relative error that nine of ten such steps keep, of models that were left out of the fit.
    spreads: dict[str, float] = {}
    #: Seconds of a compilation for each unit of Components.traced; None where no training measured it.
    compile_s: float | None = None
    #: Seconds to build a model.
    build_s: float = 0.0
    #: The models that the factors are fitted to; empty: nothing is fitted.
    models: tuple[str, ...] = ()

    def spread(self, parts: dict[str, Estimate]) -> float:
        """The relative error of a predicted step: of steps of which most is overhead, or most is work, as of these parts."""
        return self.spreads.get(bound_of(parts), UNFITTED)


class UncalibratedStep(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the parts of a step before any fit; of several steps an array for each part."""

    #: Whether the device is a GPU; of several steps all are.
    on_gpu: bool
    #: The host starts the step.
    dispatch: Seconds
    #: The host issues operations or kernels.
    launches: Seconds
    #: The host calls for copies.
    copy_calls: Seconds
    #: Bytes are copied to the GPU.
    copied_bytes: Seconds
    #: All of the device's work, one operation after the other.
    work: Seconds
    #: The longest chain of operations that wait for each other; infinite where nothing overlaps.
    critical_path: Seconds
    #: Seconds in which all cores or the memory are busy.
    busy: Seconds
    #: A batch comes through the input pipeline.
    input_pipeline: Seconds
    #: Whether the host waits for the input pipeline.
    host_waits: bool | np.ndarray


def uncalibrated(components: Components) -> UncalibratedStep:
    """The parts of a step as the formulas take them: numbers without intervals, summed by what may overlap."""
    return UncalibratedStep(
        on_gpu=components.on_gpu,
        dispatch=components.dispatch.value,
        launches=components.launches.value,
        copy_calls=total_of(components.parts, ("transfer calls",)).value,
        copied_bytes=total_of(components.parts, COPYING).value,
        work=total_of(components.parts, DEVICE).value,
        critical_path=components.path.seconds if components.path else math.inf,
        busy=components.path.busy if components.path else 0.0,
        input_pipeline=total_of(components.parts, (PIPELINE,)).value,
        host_waits=components.host_feeds,
    )


def stacked(steps: Iterable[UncalibratedStep]) -> UncalibratedStep:
    """The parts of several steps as arrays, so that a formula computes all at once. All steps are on one kind of device."""
    first, *others = steps
    arrays = {}
    for name in UncalibratedStep.__struct_fields__:
        if name != "on_gpu":
            arrays[name] = np.array([getattr(step, name) for step in (first, *others)])
    return msgspec.structs.replace(first, **arrays)


def cpu_step(parts: UncalibratedStep, fitted: Calibration) -> Seconds:
    """Seconds of a step on a CPU: the host dispatches, then the graph's operations run. Independent ones overlap, as far as cores
    and bandwidth allow.

        host        |-- dispatch --|
        operations                 |-- critical path --------|
                                   |-- beside it --|
    """
    dispatch = fitted.dispatch * parts.dispatch
    launches = fitted.launches * parts.launches
    one_by_one = launches + fitted.work * parts.work
    overlapped = np.maximum(launches + fitted.work * parts.critical_path, fitted.work * parts.busy)
    return dispatch + np.minimum(one_by_one, overlapped)


def gpu_step(parts: UncalibratedStep, fitted: Calibration) -> Seconds:
    """Seconds of a step on a GPU, which works while the host dispatches and issues. An input pipeline for which the host does not
    wait has threads of its own.

        copies    |bytes|batch|
        host                  |-- dispatch, copy calls, launches --|
        GPU                   |-- kernels -----------------------------|
        pipeline  |-- batch of a later step, unless the host waits --|

    Source: TensorFlow copies from pageable memory on a stream that waits for the computing one (GPUUtil::CopyCPUTensorToGPU), and
    the host waits for the copy.
    """
    host = fitted.dispatch * parts.dispatch + parts.copy_calls + fitted.launches * parts.launches
    kernels = fitted.work * parts.work
    batch = np.where(parts.host_waits, parts.input_pipeline, 0.0)
    step = parts.copied_bytes + batch + np.maximum(host, kernels)
    return np.maximum(step, parts.input_pipeline)


def step_seconds(parts: UncalibratedStep, fitted: Calibration) -> Seconds:
    """Seconds of a step, or of several, by the formula of its device with fitted factors."""
    return gpu_step(parts, fitted) if parts.on_gpu else cpu_step(parts, fitted)


def calibrated_parts(components: Components, fitted: Calibration) -> dict[str, Estimate]:
    """Part -> seconds of a step after calibration, in the order of PARTS. The parts add up to the step: what runs at the same
    time is a negative part of its own (HIDDEN)."""
    parts = {
        "dispatch": components.dispatch * fitted.dispatch,
        "launches": components.launches * fitted.launches,
    }
    for name, seconds in components.parts.items():
        parts[name] = seconds * fitted.work if name in DEVICE else seconds
    before_fit = uncalibrated(components)
    step_s = float(step_seconds(before_fit, fitted))
    without_pipeline = msgspec.structs.replace(before_fit, input_pipeline=0.0)
    if step_s == step_seconds(without_pipeline, fitted):
        parts.pop(PIPELINE, None)
    overlap = step_s - sum(seconds.value for seconds in parts.values())
    if abs(overlap) > _ROUNDING * step_s:
        parts[HIDDEN] = exact(overlap)
    return {name: parts[name] for name in PARTS if name in parts}


def overlap_on_gpu(parts: dict[str, Estimate], *, host_waits: bool) -> float:
    """Seconds (0 or negative) by which a GPU's step is shorter than the sum of its parts, as host, device and input pipeline work
    at the same time. parts: calibrated, by name. host_waits: whether the host waits for the input pipeline."""
    host = total_of(parts, ISSUING).value
    copied_bytes = total_of(parts, COPYING).value
    work = total_of(parts, DEVICE).value
    input_pipeline = total_of(parts, (PIPELINE,)).value
    calibrated = UncalibratedStep(
        on_gpu=True,
        dispatch=host,
        launches=0.0,
        copy_calls=0.0,
        copied_bytes=copied_bytes,
        work=work,
        critical_path=math.inf,
        busy=0.0,
        input_pipeline=input_pipeline,
        host_waits=host_waits,
    )
    overlap = float(gpu_step(calibrated, Calibration())) - (host + copied_bytes + work + input_pipeline)
    return overlap if -overlap > _ROUNDING * (host + work) else 0.0
