"""Why a device wins: the parts of a call, worked out by hand."""

from types import SimpleNamespace

import pytest
from fake_crossovers import only, resident_and_copies
from fake_measurements import row, square

from analysis.crossover import time_split
from analysis.crossover.answer import CrossoverPoint
from analysis.crossover.families import SQUARES, rows_of
from analysis.crossover.forms import AS_WRITTEN, THROUGHPUT, Form
from analysis.crossover.time_split import ARITHMETIC, COPIES, OVERHEAD, REMAINDER, why


def test_parts_of_a_call_add_up():
    rows = resident_and_copies()
    below, above = why(rows_of(rows, SQUARES), only(rows, Form("roundtrip")))
    assert (below.n, above.n) == (64, 128) and below.parts[ARITHMETIC] == pytest.approx(5e-6)
    assert below.parts[OVERHEAD] == pytest.approx(19e-6) and below.parts[COPIES] == pytest.approx(76e-6)
    assert below.parts[REMAINDER] == pytest.approx(0, abs=1e-12) and max(below.known, key=below.known.get) == COPIES
    (resident,) = why(rows_of(rows, SQUARES), only(rows))
    assert resident.parts[COPIES] is None and max(resident.known, key=resident.known.get) == OVERHEAD
    (queued,) = why(rows_of(rows, SQUARES), only(rows, THROUGHPUT))
    assert queued.parts[OVERHEAD] == pytest.approx(5e-6)


def test_an_allocating_kernel_borrows_the_best_device_clock():
    rows = [row("matmul/numpy/operator", square(64), 50e-6), row("matmul/cupy/operator", square(64), 30e-6)]
    rows.append(row("matmul/cupy/cublas", square(64), {"host-latency": 25e-6, "device": 5e-6}))
    (found,) = why(rows_of(rows, SQUARES), only(rows, AS_WRITTEN[0]))
    assert (found.parts[ARITHMETIC], found.parts[OVERHEAD]) == (pytest.approx(5e-6), pytest.approx(25e-6))


def test_an_answer_is_explained_at_its_crossing():
    points = [CrossoverPoint(n=n, cpu=None, gpu=None) for n in (8, 16, 32)]

    def deciding(kind: str, *crossings) -> list[int]:
        answer = SimpleNamespace(kind=kind, points=points, crossings=crossings)
        return [point.n for point in time_split.deciding_points(answer)]

    assert deciding("several", SimpleNamespace(below=16, above=32), SimpleNamespace(below=8, above=16)) == [16, 32]
    assert (deciding("gpu-at-smallest"), deciding("cpu-throughout"), deciding("cant-tell")) == ([8], [32], [32])
    assert time_split.deciding_points(SimpleNamespace(kind="no-gpu", points=[], crossings=[])) == ()
    assert time_split.why({}, SimpleNamespace(precision="float32", kind="no-gpu", points=[], crossings=[]), True) == ()
