"""Combines the parts of a step: which of them the host does, which the device, and which overlap."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from analysis.predict.components import Components
from analysis.predict.profile import COMPILED
from analysis.stats import Estimate, exact, total, within_factor

HIDDEN = "at the same time"  # the overlap of host, device and input pipeline, negative
ISSUING, COPYING = ("dispatch", "launches", "transfer calls"), ("transfer bytes",)
HOST = (*ISSUING, *COPYING)
DEVICE = ("matmul", "conv", "element-wise", "optimizer")
PIPELINE = "input pipeline"
PARTS = (*HOST, *DEVICE, PIPELINE, HIDDEN)  # of a step, in the order of a budget
_WORDS = """dispatch, kernel launches, copy calls, copied bytes, dense layers, convolutions, element-wise passes, optimizer,
input pipeline, overlap"""
WORDS = dict(zip(PARTS, (words.strip() for words in _WORDS.split(",")), strict=True))  # as people are told of them
_ROUNDING = 1e-12  # of a step: rounding error of sums
UNFITTED = 0.3  # relative error of predictions without a fit
UNTRIED = 1.0  # relative error for layer kinds in no network of the tables, on which no rule was checked


OVERHEAD, WORK = "overhead-bound", "work-bound"  # what most of a step is


class Calibration(msgspec.Struct, frozen=True):
    """Numbers fitted to trainings of `models` (empty: nothing is fitted). Factors on the profile's seconds: dispatch on those
    of a Keras step with almost no work, launches on issuing further operations or kernels, work on the device's work. spreads:
    OVERHEAD or WORK -> the relative error of such steps of a model that was left out of the fit, which nine of ten keep.
    compile_s: seconds of a compilation for each unit of Components.traced. build_s: seconds to build a model."""

    dispatch: float = 1.0
    launches: float = 1.0
    work: float = 1.0
    spreads: dict[str, float] = {}
    compile_s: float | None = None
    build_s: float = 0.0
    models: tuple[str, ...] = ()

    def spread(self, parts: dict[str, Estimate]) -> float:
        """The relative error of a step of these parts."""
        return self.spreads.get(bound_of(parts), UNFITTED)


def total_of(parts: dict[str, Estimate], names: Iterable[str]) -> Estimate:
    return total(parts.get(name) for name in names)


def bound_of(parts: dict[str, Estimate]) -> str:
    """What most of a step of these parts is: OVERHEAD or WORK."""
    step_s = sum(part.value for part in parts.values())
    return OVERHEAD if total_of(parts, ISSUING).value > step_s / 2 else WORK


Seconds = float | np.ndarray


class Lanes(NamedTuple):
    """Seconds of a step by who is busy (host, device or input pipeline), before any fit; for several steps an array each.

    dispatch, launches, calls: the host's. copying: bytes. work: the device's, one operation after the other; path: its critical
    path (infinite where nothing overlaps); busy: seconds in which all cores or the memory are busy. feeding: the input
    pipeline's. on_gpu, host_feeds: 0 or 1.
    """

    dispatch: Seconds
    launches: Seconds
    calls: Seconds
    copying: Seconds
    work: Seconds
    path: Seconds
    busy: Seconds
    feeding: Seconds
    on_gpu: Seconds
    host_feeds: Seconds


def lanes(made: Components) -> Lanes:
    calls, copying, work, feeding = (
        total_of(made.parts, names).value for names in (("transfer calls",), COPYING, DEVICE, (PIPELINE,))
    )
    path, busy = (made.path.seconds, made.path.busy) if made.path else (math.inf, 0.0)
    host = made.dispatch.value, made.launches.value, calls
    return Lanes(*host, copying, work, path, busy, feeding, made.on_gpu, made.host_feeds)


def step_seconds(of: Lanes, dispatch: float, launches: float, work: float) -> Seconds:
    """Seconds of a step, its lanes scaled by a Calibration's factors. On the CPU the host dispatches, then the graph's operations
    run; independent ones overlap as far as cores and bandwidth allow. A GPU works while the host dispatches and issues. But a
    copy from pageable memory waits until the GPU is done with the step before, and the host waits for the copy. The input
    pipeline, which has the copy in it, is what a batch adds to the dispatch; one that is ahead has threads of its own.

    Source: TensorFlow's GPUUtil::CopyCPUTensorToGPU, whose copying stream waits for the computing one.
    """
    issued, worked = launches * of.launches, work * of.work
    host = dispatch * of.dispatch + of.calls
    overlapped = np.maximum(issued + work * of.path, work * of.busy)
    gpu = of.copying + of.host_feeds * of.feeding + np.maximum(host + issued, worked)
    cpu = of.copying + host + np.minimum(issued + worked, overlapped)
    return np.maximum(np.where(of.on_gpu, gpu, cpu), of.feeding)


def overlapped_on_gpu(parts: dict[str, Estimate], host_feeds: bool) -> float:
    """The overlap of a GPU's step in seconds, at most 0: the step less the sum of its parts."""
    host, copying, work, feeding = (total_of(parts, names).value for names in (ISSUING, COPYING, DEVICE, (PIPELINE,)))
    none = Lanes(host, 0.0, 0.0, copying, work, math.inf, 0.0, feeding, True, host_feeds)
    hidden = float(step_seconds(none, 1.0, 1.0, 1.0)) - (host + copying + work + feeding)
    return hidden if -hidden > _ROUNDING * (host + work) else 0.0


def combined(made: Components, fitted: Calibration) -> dict[str, Estimate]:
    """Part -> seconds of a step, in the order of a budget; the overlap is a part of its own and negative."""
    parts = {"dispatch": made.dispatch * fitted.dispatch, "launches": made.launches * fitted.launches}
    parts |= {name: e * fitted.work if name in DEVICE else e for name, e in made.parts.items()}
    own, factors = lanes(made), (fitted.dispatch, fitted.launches, fitted.work)
    whole = float(step_seconds(own, *factors))
    if whole == step_seconds(own._replace(feeding=0.0), *factors):  # wholly hidden
        parts.pop(PIPELINE, None)
    hidden = whole - sum(e.value for e in parts.values())
    if abs(hidden) > _ROUNDING * whole:
        parts[HIDDEN] = exact(hidden)
    return {name: parts[name] for name in PARTS if name in parts}


def within(total: Estimate, spread: float) -> Estimate:
    """The sum, its interval widened to at least that relative error; no end is below 0 s."""
    low = max(0.0, min(total.low, total.value / (1 + spread)))
    return Estimate(total.value, low, max(total.high, total.value * (1 + spread)))


def setting_up(made: Components) -> Estimate:
    """Seconds of the data-set setup in a call of fit, for all samples; a factor of 2 uncertain either way."""
    return within_factor(made.setup_s.value, 2)


def compiling(made: Components, fitted: Calibration) -> Estimate:
    """Seconds of all compilations of a job. XLA compiles once for each distinct batch size; a graph that is not compiled is
    traced and optimized once for all."""
    t = made.training
    shapes = 1 + (made.execution == COMPILED and t.samples > t.batch and t.samples % t.batch > 0)
    if fitted.compile_s:
        value = shapes * fitted.compile_s * made.traced
        return within_factor(value, 2)
    value = shapes * made.compile_s.value
    return Estimate(value, shapes * made.compile_s.low, value * max(2.0, made.kernels))
