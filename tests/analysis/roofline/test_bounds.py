"""Rows faster than the hardware allows: seen by one check, and nothing is predicted from them."""

import msgspec
import pytest
from fake_layers import conv
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row, run, square, write

from analysis.analysis import Analysis
from analysis.predict import profile
from analysis.roofline import bounds
from analysis.roofline.roofs import BEST_MATMUL, is_beyond_hardware, roofs_of
from analysis.text import rates
from kernels.problems import Conv, Matmul, Peak, Stream, Training
from workloads import records

VIRTUAL = msgspec.structs.replace(CPU_MACHINE, virtual=True)
PEAK = row("peak/numba/fma", Peak("float32", 10**9), 10**9 / 100e9, threads=1)


def product(flops_per_s: float, threads: int | None = 1):
    """A product of 2e9 FLOPs."""
    return row("matmul/numpy/blas", square(1000), 2e9 / flops_per_s, threads=threads)


def step(seconds: float):
    """A training's row with steps of so many seconds."""
    return row("training/keras/fit", Training("cifar10-cnn", 32, 2048), seconds)


@pytest.mark.parametrize(
    ("measurement", "is_beyond"),
    [
        (product(3.2e13), False),  # 2 cores of 2,048 FLOPs a cycle at 8 GHz: 3.28e13 FLOP/s
        (product(3.3e13), True),
        (row("stream/numba/loop", Stream("copy", 4_000_000), 1e-6), False),  # 256 bytes a cycle: 4.1e12 a second
        (row("stream/numba/loop", Stream("copy", 4_200_000), 1e-6), True),
        (row("matmul/numpy/blas", square(1), 2.1e-9), False),  # 16 cycles are 2 ns
        (row("matmul/numpy/blas", square(1), 1.9e-9), True),
        (row("matmul/cupy/cublas", square(1), {"device": 1e-9}), True),
        (step(1e-9), True),
    ],
)
def test_hardware_is_bounded_by_its_widest_units(measurement, is_beyond):
    assert is_beyond_hardware(measurement, CPU_MACHINE) == is_beyond


def test_no_roof_comes_from_an_impossible_row():
    fast = msgspec.structs.replace(PEAK, kernel="peak/numba/other", samples=row("a/b/c", square(1), 1e-9).samples)
    (roof,) = roofs_of([PEAK, fast], CPU_MACHINE)
    assert roof.rate.value == pytest.approx(100e9)


@pytest.mark.parametrize(
    ("machine", "rate", "is_above"),
    [
        (CPU_MACHINE, 101e9, False),  # within 2 %
        (CPU_MACHINE, 110e9, True),
        (VIRTUAL, 390e9, False),  # lent four times as much at most
        (VIRTUAL, 410e9, True),
    ],
)
def test_a_virtual_cpu_may_pass_its_roof_fourfold(machine, rate, is_above):
    ceilings = roofs_of([PEAK], machine)
    assert bounds.is_above_roof(product(rate), ceilings, machine) == is_above
    sentence = rates.trouble_sentence([PEAK, product(rate)], ceilings, machine)
    assert ("above the roof" in sentence) == is_above


@pytest.mark.parametrize(
    ("machine", "threads", "most"),
    [
        (CPU_MACHINE, 1, 200e9),  # the roof of one thread, at twice the clock
        (CPU_MACHINE, None, 400e9),  # of two cores
        (VIRTUAL, 1, 400e9),
        (VIRTUAL, None, 800e9),
    ],
)
def test_a_row_is_impossible_beyond_a_low_roof(machine, threads, most):
    ceilings = roofs_of([PEAK], machine)
    assert not bounds.is_impossible(product(0.99 * most, threads), ceilings, machine)
    assert bounds.is_impossible(product(1.01 * most, threads), ceilings, machine)


def test_a_row_beyond_the_data_sheet_is_impossible():
    """A product of 2e9 FLOPs on an H200, whose sheet allows 66.9 TFLOP/s in float32."""
    ceilings = roofs_of([], GPU_MACHINE)
    (sheet,) = [roof.rate.value for roof in ceilings if roof.kind == "compute" and roof.name == "float32"]
    peak = row("peak/cupy/fma", Peak("float32", 10**9), {"device": 10**9 / (0.9 * sheet)}, device="gpu:0")
    ceilings = roofs_of([peak], GPU_MACHINE)

    def is_impossible(times: float) -> bool:
        fast = row("matmul/cupy/cublas", square(1000), {"device": 2e9 / (times * sheet)}, device="gpu:0")
        return bounds.is_impossible(fast, ceilings, GPU_MACHINE)

    assert not is_impossible(1.01)
    assert is_impossible(1.03)


def test_no_roof_comes_from_a_framework(tmp_path):
    """A copy of 64 MB takes 10 ms in TensorFlow, most of them its call: 200 MB of a product in 3 ms are no error."""
    peak = row("peak/cupy/fma", Peak("float32", 10**9), {"device": 10**9 / 60e12}, device="gpu:0")
    slow = row("stream/tensorflow/function", Stream("copy", 64_000_000), {"device": 1e-2}, device="gpu:0")
    fast = row("matmul/cupy/cublas", square(4096), {"device": 3e-3}, device="gpu:0")
    write(tmp_path / "rows.jsonl", run(GPU_MACHINE), [peak, slow, fast])
    assert profile.credible(records.read(tmp_path)) == [peak, slow, fast]


def test_a_training_step_has_the_widest_roof():
    """The roof is 100 GFLOP/s of one of two cores; matrix units do at most 16 times the FLOPs of vector units."""
    ceilings = roofs_of([PEAK], CPU_MACHINE)
    least_s = bounds.flops_of(step(1.0)) / (16 * 200e9)
    assert not bounds.is_impossible(step(1.01 * least_s), ceilings, CPU_MACHINE)
    assert bounds.is_impossible(step(0.99 * least_s), ceilings, CPU_MACHINE)


def test_a_profile_skips_impossible_rows_and_warns_once(tmp_path, capsys):
    rows = [PEAK, product(50e9), row("matmul/numpy/blas", square(8), 1e-9, threads=1)]
    write(tmp_path / "matmul.jsonl", run(VIRTUAL), rows)
    assert profile.read(str(tmp_path)).measurements == profile.read(str(tmp_path)).measurements == tuple(rows[:2])
    assert capsys.readouterr().err == (
        f"warning: 1 row is faster than the hardware's roof allows: not used ({tmp_path})\n"
    )
    assert Analysis.from_loaded(records.read(tmp_path)).profile.measurements == tuple(rows[:2])


@pytest.mark.parametrize("name", profile.stored_names())
def test_stored_profiles_have_no_impossible_row(name):
    loaded = records.read(profile.file_of(name))
    assert profile.credible(loaded) == list(loaded.measurements)
    assert loaded.machine.key == GPU_MACHINE.key


def test_only_matmuls_are_judged_by_the_best_matmul():
    """2 x 4 x 4 x 8 floats in, 8 x 4 filters; with stride 2 out 2 x 2 x 2 x 4. The compulsory bytes would be a quarter of x."""
    p = Conv(2, 4, 4, 8, 4, 1, 1, stride=2)
    for other, into, out in (
        ({}, 4 * (256 + 32), 4 * 32),
        ({"direction": "dgrad"}, 4 * (32 + 32), 4 * 256),
        ({"direction": "wgrad"}, 4 * (256 + 32), 4 * 32),
        ({"dtype": "float16", "math": "float16"}, 2 * (256 + 32), 2 * 32),
    ):
        of = msgspec.structs.replace(p, **other)
        assert (of.operand_bytes, of.result_bytes) == (into, out)
    clocks = {"device": 2 * 64**3 / 1e12, "host-latency": 1e-3}
    product = row("matmul/cupy/cublas", Matmul(64, 64, 64, "bfloat16"), clocks)
    p = conv(dtype="bfloat16", math="bfloat16")
    quick = row("conv/cudnn/plan", p, {"device": p.flops / 2e12}, device="gpu:0")
    ceilings = roofs_of([product])
    assert ceilings[0].rate.value == pytest.approx(1e12) and ceilings[0].note == BEST_MATMUL
    assert bounds.judge(quick, ceilings).flag == "" and bounds.judge(quick, ceilings).fraction.value == pytest.approx(2)
    peak = roofs_of([row("peak/cupy/tensor", Peak("bfloat16", 10**12), {"device": 1.0})])
    assert bounds.judge(quick, peak).flag == bounds.ABOVE
