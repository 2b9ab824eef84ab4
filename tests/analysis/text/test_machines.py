"""Several machines in words."""

import re

import pytest
from fake_measurements import row, square

from analysis.text import machines


def test_the_fastest_of_both_in_words():
    def rows(cpu: float, gpu: float, threads: int, sizes=(64, 128)) -> list:
        made = [row("matmul/numpy/blas", square(n), cpu * n, threads=threads, spread=0.01) for n in sizes]
        return made + [row("matmul/cupy/cublas", square(n), gpu, spread=0.01) for n in sizes]

    old, new = rows(1e-6, 4e-5, 16), rows(2e-6, 1e-5, 2, (64, 128, 256))
    cpu, gpu = machines.best(old, new, ("old", "new"))
    times = r"25\d µs in new, 12\d µs in old; slower \((\S+)x \[\S+ \S+\]\)"
    found = re.match(f"float32, n = 128, fastest on the CPU: {times}.$", cpu)
    assert found and float(found[1]) == pytest.approx(2.0, rel=0.25)
    assert re.search(r"on the GPU: .*; faster \(0\.2[45]\d?x ", gpu)
    same = machines.best(old, rows(1.001e-6, 4e-5, 16), ("old", "new"))
    assert "; same" in same[0] or "; can't tell" in same[0]
    assert machines.best(old, [], ("old", "new")) == []
