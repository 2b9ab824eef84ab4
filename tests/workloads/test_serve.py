"""A child that measures command after command: what it answers for each."""

import io
import sys
from types import SimpleNamespace

import msgspec
import pytest
from fake_measurements import row, square

from workloads import options, serve
from workloads.records.messages import Done

OK = row("matmul/numpy/blas", square(8), 1e-3, threads=1)
FAILED = row("matmul/numpy/blas", square(16), None, threads=1, status="failed", reason="no memory")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [([FAILED, OK], ""), ([OK], ""), ([FAILED], "no memory"), ([], "no row was begun in time")],
)
def test_a_command_answers_why_nothing_was_measured(rows, reason):
    assert serve.reason(SimpleNamespace(measurements=rows)) == reason


def test_a_failing_command_does_not_end_the_service(monkeypatch):
    """The second command fails, the fourth is stopped by SIGTERM, the fifth is not begun."""
    begun = []

    def measure(words, workers):
        begun.append(words)
        if words == ["two"]:
            raise options.Usage("no such size", "python -m workloads.matmul")
        stopped = "SIGTERM" if words == ["four"] else "--stop-after 5"
        return SimpleNamespace(measurements=[FAILED] if words == ["three"] else [OK], stopped=stopped)

    lines = b"".join(msgspec.json.encode([word]) + b"\n" for word in ("one", "two", "three", "four", "five"))
    monkeypatch.setattr(serve, "measure", measure)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    answers: list[Done] = []
    assert serve._serve({}, answers.append) == options.SIGNALED["SIGTERM"]
    assert [done.reason for done in answers] == ["", "", "no memory"]
    assert [bool(done.error) for done in answers] == [False, True, False]
    assert begun == [["one"], ["two"], ["three"], ["four"]]


@pytest.mark.parametrize("words", [["workloads.matmul"], ["workloads.layer", "--layer", "Dense", "--input", "8"]])
def test_a_command_is_a_module_or_a_package(words):
    assert serve.plan_of(words).command_line.name == words[0].rpartition(".")[2]
