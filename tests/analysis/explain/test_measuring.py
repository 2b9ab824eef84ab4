"""The child that measures what an answer lacks: its budget, how it ends, and what it says; one real child."""

import os
import signal

import pytest

from analysis.explain.measuring import Child, TimeBudget
from workloads import records
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

LOOP = """
import sys, time
for line in sys.stdin:
    print('{"type": "doing", "words": "compiling"}', flush=True)
    time.sleep(0.4)
    print('{"type": "doing", "words": "timing 9 steps", "timing": true, "seconds": 512.0}', flush=True)
    WORK
    print('{"type": "done", "reason": "REASON"}', flush=True)
"""


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """ask(work, reason, budget): (the failure, the budget, what was shown) of a child that does that work while it times."""

    def measured(work: str, reason: str = "", seconds: float = 90.0):
        (tmp_path / "serves.py").write_text(LOOP.replace("WORK", work).replace("REASON", reason))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        budget, shown = TimeBudget(seconds=seconds), []
        with Child("serves") as child:
            failure = child.measure("it", ["x"], budget, lambda doing, taken_s: shown.append(doing))
        return failure, budget, shown

    return measured


def test_a_budget_counts_timing_and_triples_on_progress():
    budget = TimeBudget(seconds=90.0, spent=80.0)
    assert (budget.left, budget.is_over(90.0), budget.is_over(90.5)) == (190.0, False, True)
    budget.spent = 270.0
    assert (budget.left, budget.is_over(1.0)) == (0.0, False)
    budget.spent = 270.5
    assert (budget.left, budget.is_over(1.0)) == (0.0, True)
    assert [budget.enough(needed_s) for needed_s in (100.0, 301.0)] == [300, 400]


def test_compilation_is_free_and_progress_is_shown(ask):
    failure, budget, shown = ask("time.sleep(0.2)")
    assert failure is None and 0.1 < budget.spent < 0.39
    assert shown[-1] == "timing 9 steps, about 512 s" and "compiling" in shown
    failure, _, _ = ask("pass", "no memory")
    assert (failure.part, failure.reason, failure.budget_s) == ("it", "no memory", 0)


def test_a_slow_child_ends_with_the_needed_budget(ask):
    failure, _, _ = ask("time.sleep(60)", seconds=0.5)
    assert failure.reason == "timing 9 steps, about 512 s: longer than its budget of 0 s"
    assert failure.budget_s == 600


def test_a_dying_childs_last_words_are_one_line(ask):
    failure, _, _ = ask("sys.exit('no such layer')")
    assert (failure.reason, failure.budget_s) == ("its process ended with exit code 1: no such layer", 0)
    failure, _, _ = ask("sys.exit(7)")
    assert failure.reason == "its process ended with exit code 7"
    failure, _, _ = ask("import os; os.kill(os.getpid(), 9)")
    assert failure.reason == "its process ended with signal SIGKILL"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_child(tmp_path, capsys, monkeypatch, number, code):
    source = "import os, time; open('pid', 'w').write(f'{os.getpid()}\\n'); time.sleep(60); os.remove('pid')"
    (tmp_path / "waits.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    pid = tmp_path / "pid"

    def signaled(doing: str, taken_s: float) -> None:
        if pid.exists() and pid.read_text().endswith("\n"):
            os.kill(os.getpid(), number)

    def body(plan):
        with Child("waits") as child:
            return bool(child.measure("it", ["x"], TimeBudget(seconds=30.0), signaled))

    # a background shell lets its children ignore the interrupt
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        parser = CommandParser(module="x", examples=["x"])
        assert running.run_command(parser, [], make_plan=running.no_plan, carry_out=body) == code
    finally:
        signal.signal(signal.SIGINT, inherited)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert capsys.readouterr().err == "stopped\n"


def test_one_real_child_measures_command_after_command(tmp_path):
    words = ["workloads.matmul", "--sizes", "8", "--backends", "numpy", "--fast", "--min-time", "0.001", "-q", "-o"]

    def say(doing: str, taken_s: float) -> None:
        pass

    with Child() as child:
        bad = child.measure("bad", ["workloads.matmul", "--sizes", "x"], TimeBudget(seconds=90.0), say)
        good = child.measure("good", [*words, str(tmp_path / "one")], TimeBudget(seconds=90.0), say)
        broken = child.measure("broken", ["workloads.nothing"], TimeBudget(seconds=90.0), say)
    assert bad.reason.startswith("'x' is no whole number") and good is None
    assert broken.reason == "ModuleNotFoundError: No module named 'workloads.nothing'"
    measurements = records.read(tmp_path / "one").measurements
    assert {m.problem.op for m in measurements} == {"matmul"} and all(m.ok for m in measurements)
