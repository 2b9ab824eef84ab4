"""What other benchmarks' files say of a row, by hand-made ones; times to a width and how often the truth is held."""

import json
import sys
import types

import pytest

from analysis.stats import Estimate
from kernels.problems import Matmul
from tests.bench import referee
from tests.validation import outsiders
from tests.validation.outsiders import Told
from workloads.records import Row, Settings

ROW = Row("matmul/numpy/blas", Matmul(8, 8, 8), Settings(threads=1))


def test_pyperfs_file():
    runs = [{"metadata": {}}, {"values": [1.0, 3.0]}, {"values": [4.0, 4.0]}]  # the first calibrates; means 2 and 4
    told = outsiders.of_pyperf(json.dumps({"benchmarks": [{"runs": runs}]}), 7.0)
    assert told == Told(Estimate(3.0, pytest.approx(3 - 1.96), pytest.approx(3 + 1.96)), 7.0)


def test_cuda_benchs_file():
    said = {"time/gpu/mean": 2e-3, "time/gpu/stdev/relative": 0.1, "sample_size": 100, "walltime": 1.5}
    own = [{"tag": f"nv/cold/{tag}", "data": [{"name": "value", "value": repr(v)}]} for tag, v in said.items()]
    file = {"benchmarks": [{"name": "row00", "states": [{"summaries": own}]}]}
    (told,) = outsiders.of_cuda_bench(json.dumps(file))
    assert told == Told(Estimate(2e-3, pytest.approx(2e-3 * 0.9804), pytest.approx(2e-3 * 1.0196)), 1.5)
    file["benchmarks"][0]["states"] = [{"summaries": None, "skip_reason": "too short"}]
    with pytest.raises(KeyError, match="row00: too short"):
        outsiders.of_cuda_bench(json.dumps(file))


def test_pyperf_times_our_call_in_its_workers_only(monkeypatch):
    asked = []

    class Runner:
        def __init__(self, program_args):
            asked.append(program_args[-2:])

        def parse_args(self):
            return types.SimpleNamespace(worker=len(asked) > 1)

        def timeit(self, name, stmt, globals):
            asked.append(globals["run"])

    monkeypatch.setitem(sys.modules, "pyperf", types.SimpleNamespace(Runner=Runner))
    outsiders._by_pyperf(ROW.key)
    assert asked == [("pyperf", ROW.key), None]
    outsiders._by_pyperf(ROW.key)
    a, b = ROW.problem.inputs(1)
    assert asked[-1]() == pytest.approx(a @ b, abs=1e-4)


def test_times_to_a_width_and_what_intervals_hold():
    wide, narrow = Told(Estimate(1.0, 0.98, 1.02), 2.0), Told(Estimate(1.1, 1.099, 1.101), 2.0)
    assert referee.to_width(wide) == pytest.approx(8.0) and referee.to_width(narrow) == 2.0
    assert referee.coverage([wide, wide, wide, narrow]) == 3
