"""Rates of rows and roofs in words."""

import fake_measurements as fake
import msgspec
import pytest
from fake_measurements import row, square

from analysis.roofline.roofs import roofs_of
from analysis.text import rates
from kernels.problems import Peak


def test_the_memorys_ceiling_says_where_it_comes_from():
    """Bandwidths that fall all the way: no flat part anywhere, so the best beyond four times the cache counts."""
    rows = fake.stream_curve("stream/numba/loop", lambda nbytes: 1e10 * (2**31 / nbytes) ** 0.4, fake.STREAM_SIZES, 2)
    (memory,) = (r for r in roofs_of(rows, fake.CPU_MACHINE) if r.kind == "memory")
    assert memory.note == "no plateau up to 2.00 GiB"
    said = rates.roof_sentences((memory,))
    assert said == [f"Measured roofs of the CPU: {memory.speed} from DRAM."]
    quick = roofs_of(rows[-1:], fake.CPU_MACHINE)  # a look at one size has searched for no plateau
    assert [r.note for r in quick] == [""]


PEAK = row("peak/numba/fma", Peak("float32", 10**9), 1e-2, threads=1)


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ("failed", "CUDA error 2", "1 row failed: matmul/cupy/cublas, n = 64 (CUDA error 2)."),
        ("failed", "", "1 row failed: matmul/cupy/cublas, n = 64."),
        ("wrong", "", "1 row gave a wrong answer: matmul/cupy/cublas, n = 64."),
        ("ok", "", ""),
    ],
)
def test_a_failed_row_is_named_with_its_reason(status, reason, words):
    rows = [row("matmul/cupy/cublas", square(64), None, status=status, reason=reason)]
    assert rates.trouble_sentence(rows, (), None) == words


def test_a_virtual_machines_gpu_stays_under_its_roof():
    """100 TFLOP/s under a peak of 50; the CPU's row, above its roof too, counts only where the machine is none."""
    peak = row("peak/cupy/fma", Peak("float32", 10**9), {"device": 1e9 / 50e12, "host-latency": 1.0})
    product = row("matmul/cupy/cublas", square(1000), {"device": 2e9 / 100e12, "host-latency": 1.0})
    rows = [PEAK, row("matmul/numpy/blas", square(1000), 0.01, threads=1), peak, product]
    for virtual, count in ((True, "1 row"), (False, "2 rows")):
        machine = msgspec.structs.replace(fake.GPU_MACHINE, virtual=virtual)
        assert rates.trouble_sentence(rows, roofs_of(rows), machine).startswith(f"{count} above the roof, which is")
