"""The page of a referee's rows alone: how far timings can be trusted comes first, and nothing is said of who wins."""

import msgspec
import pytest
from fake_measurements import row, samples, square
from test_referee import RUN, beside, judged

from analysis.checks import referee
from analysis.report.material import Material
from analysis.report.page import markdown
from analysis.text import sentences
from kernels.problems import Stream
from workloads.records import Loaded, Samples, Settings


def gpu_match(n: int, **switches):
    """A row beside cuda-bench, as the referee stores them."""
    made = beside((1.0, 1.0), (1.0, 1.0), "cuda-bench", "cuda-bench 0.3.0", "matmul/cupy/cublas")
    settings = Settings("gpu:0", cache="cold", switches={"match": "cuda-bench", **switches})
    both = (samples(1.0, "device"), samples(1.0, "cuda-bench"))
    return msgspec.structs.replace(made, problem=square(n), settings=settings, samples=both)


def over_processes(problem, device="gpu:0", kernel="matmul/cupy/cublas"):
    took = (Samples("host-latency", (1.0, 1.1, 0.9), 1, (0, 1, 2), "3 processes"),)
    return msgspec.structs.replace(row(kernel, problem, None, device=device), samples=took)


REFEREES = [
    gpu_match(256),
    gpu_match(512),
    over_processes(square(512)),
    over_processes(Stream("triad", 1 << 28), kernel="stream/cupy/wide"),
]


def test_a_referees_run_answers_with_how_far_timings_can_be_trusted():
    said = sentences.answer(REFEREES)
    assert said == referee.sentences(REFEREES)
    assert said[0].startswith("Beside cuda-bench 0.3.0, 2 of 2 rows from 1.00 s to 1.00 s agree")
    assert "device=gpu:0 cache=cold, where runs" in said[0]  # the match is no part of the name
    page = markdown(Material(Loaded((RUN,), tuple(REFEREES), 0, ("x.jsonl",))), False)
    assert "has no time" not in page and "crossover" not in page.partition("## How it was measured")[0]
    assert "Products of dense layers" not in page and "Nothing was measured" not in page
    assert page.count("Beside cuda-bench 0.3.0") == 1 and "## How far to trust this" in page


@pytest.mark.parametrize(
    "more",
    [
        row("matmul/numpy/blas", square(512), 1e-3, threads=1),
        row("matmul/cupy/cublas", square(512), 1e-3, device="gpu:0"),
    ],
)
def test_beside_a_sweeps_rows_a_referee_does_not_come_first(more):
    assert referee.alone(REFEREES) and referee.alone([judged("verdicts")])
    assert not referee.alone([*REFEREES, more]) and not referee.alone([more]) and not referee.alone(REFEREES[2:])
    assert sentences.answer([*REFEREES, more])[0] != referee.sentences([*REFEREES, more])[0]
