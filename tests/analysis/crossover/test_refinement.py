"""Sizes that are added near a crossing, until it is known to 5 %."""

import pytest
from fake_crossovers import CPU_RATE, GPU_RATE, LAUNCH, cpu_law, gpu_law, only
from fake_measurements import laws, row, square

from analysis.crossover import refinement

# 2 n^3 (1 / CPU_RATE - 1 / GPU_RATE) = LAUNCH
TRUE_N = (LAUNCH / 2 / (1 / CPU_RATE - 1 / GPU_RATE)) ** (1 / 3)


def test_a_known_crossing_is_bracketed_and_pinned_down():
    assert round(TRUE_N, 1) == 100.3
    sizes = [16, 64, 256, 1024]
    answer = only(laws(cpu_law, gpu_law, sizes))
    assert answer.kind == "gpu-from" and (answer.low_n, answer.high_n) == (16, 1024)
    (crossing,) = answer.crossings
    assert (crossing.below, crossing.above, crossing.to) == (64, 256, "gpu")
    while added := refinement.refine(answer, sizes):
        sizes += added
        answer = only(laws(cpu_law, gpu_law, sorted(sizes)))
    (crossing,) = answer.crossings
    assert crossing.above / crossing.below <= 1.05
    assert crossing.below < TRUE_N < crossing.above and crossing.at.value == pytest.approx(TRUE_N, rel=0.01)
    assert len(sizes) <= 12


def test_refining_adds_nothing_where_nothing_can_change():
    assert refinement.refine(only(laws(lambda n: 2.0, lambda n: 1.0))) == []
    failed = [row("matmul/cupy/cublas", square(n), None, status="failed", reason="x") for n in range(65, 256)]
    assert refinement.refine(only([*laws(cpu_law, gpu_law, [64, 256]), *failed])) == []
    assert refinement.refine(only(laws(cpu_law, gpu_law, [100, 101]))) == []
    # a quarter of the gap is beyond the middle
    assert refinement.refine(only(laws(cpu_law, gpu_law, [4, 1024]))) == [64]
    assert refinement.refine(only(laws(cpu_law, gpu_law, [1, 4096]))) == [64]
    answer = only(laws(cpu_law, gpu_law, [64, 256]))
    assert refinement.refine(answer, [64, 132, 256]) == [132] and refinement.refine(answer, [64, 70, 256]) == [128]
