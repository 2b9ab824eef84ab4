"""What a sweep says while it runs."""

from types import SimpleNamespace

import pytest

from kernels.problems import Matmul
from workloads.harness import progress
from workloads.records import Row, Settings

ROW = Row("matmul/numpy/blas", Matmul(8, 16, 32), Settings(threads=1))


@pytest.mark.parametrize(
    ("quiet", "verbose", "visits"),
    [
        (True, False, []),
        (False, False, ["1 of 20", "4 of 20, about 68 s left", "7 of 20, about 56 s left"]),
        (False, True, [f"{i} of 20" for i in (1, 2)]),
    ],
)
def test_a_visit_is_reported_every_ten_seconds(monkeypatch, capsys, quiet, verbose, visits):
    """Visits of 4 s: after three the other 17 take 68 s, after six 14 take 56 s. The first tenth gives no time."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with progress.progress(quiet, verbose) as begun:
        for made in range(7):
            begun(ROW, 20 - made)
            clock.now += 4.0
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("]")[0].removeprefix("[visit ") for line in lines][: len(visits)] == visits
    assert len(lines) == (7 if verbose else len(visits))
    assert all("matmul" in line for line in lines)
