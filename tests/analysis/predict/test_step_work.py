"""Seconds of a step's kernels, and which work no row measures."""

import pytest
from traced_steps import BATCH, Rows, operation, samples, step

from analysis.predict import step_work
from analysis.predict.curves import UNLIKE
from analysis.predict.profile import COMPILED
from analysis.predict.step_kernels import traced_fusion
from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.predict.step_kernels.traced_kernel import StepPrecision
from analysis.predict.step_work import RoughWork
from kernels.problems import Stream

PLAIN = StepPrecision()


def transform():
    return operation("FFT2D", "fft", [samples(64)], [samples(64)])


def test_work_without_rows_widens_the_interval(monkeypatch):
    """A transform of 64 numbers reads and writes 512 bytes a sample; the pass beside it 1,536."""
    relu = operation("Relu", "element-wise", [samples(192)], [samples(192)])
    kernels = traced_fusion.compiled(step(transform(), relu), BATCH, PLAIN, "gpu:0")
    parts = step_work.work_parts(kernels, Rows(monkeypatch), "gpu:0", COMPILED)
    rough, sure = 512 * BATCH / 1e6, 1536 * BATCH / 1e6
    seconds = parts.parts["element-wise"]
    assert seconds.value == pytest.approx(rough + sure)
    assert (seconds.low, seconds.high) == pytest.approx((rough / UNLIKE + sure, rough * UNLIKE + sure))
    assert parts.rough == RoughWork(share=0.25, kinds=("FFT2D by its bytes alone",))
    alone = traced_fusion.compiled(step(relu), BATCH, PLAIN, "gpu:0")
    assert step_work.work_parts(alone, Rows(monkeypatch), "gpu:0", COMPILED).rough is None


def test_rough_work_is_named_by_its_seconds(monkeypatch):
    """Of 1, 3 and 2 MB at a second a megabyte the last two are named, the longest first."""
    kernels = []
    for megabytes, kind in ((1, "a"), (3, "b"), (2, "c")):
        problem = Stream("copy", megabytes * 1_000_000, "float32")
        kernels.append(StepKernel(name=kind, part="element-wise", problem=problem, rough=kind))
    parts = step_work.work_parts(kernels, Rows(monkeypatch), "gpu:0", COMPILED)
    assert parts.rough == RoughWork(share=1.0, kinds=("b", "c"))
