"""Faults that make stress NAME=mutants plants."""

import house
import mutants
import pytest

CHANGES = [
    ("a < b", "a <= b"),
    ("a is None", "a is not None"),
    ("a * b", "a / b"),
    ("a and b", "a or b"),
    ("not a", "a"),
    ("a if c else b", "b if c else a"),
    ("min(a, b)", "max(a, b)"),
    ("True", "False"),
    ("7", "8"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_an_expression_becomes_another(old, new):
    source = f"X = {old}\n\ndef f(a, b, c):\n    return µ({old})\n".encode()
    fault = next(fault for fault in mutants.faults(source, "f.py") if fault.old == old)
    assert fault.new == new
    assert fault.line == 4
    assert fault.planted(source).decode() == f"X = {old}\n\ndef f(a, b, c):\n    return µ(({new}))\n"


def test_names_and_calls_are_left_alone():
    assert mutants.faults(b"def f(a):\n    return g(a).b['c']\n", "f.py") == []


def test_another_seed_draws_other_faults():
    some = mutants.drawn(20, "one")
    assert len(some) == 20
    assert some == mutants.drawn(20, "one")
    assert some != mutants.drawn(20, "two")
    assert len({fault.file.rpartition("/")[0] for fault in some}) >= 8
    for fault in some:
        compile(fault.planted((house.ROOT / fault.file).read_bytes()), fault.file, "exec")


def test_files_that_import_a_module_run_first():
    near, others = mutants.tests_of("analysis/stats.py")
    assert "tests/analysis/test_stats.py" in near
    assert "tests/analysis/test_export.py" in others
    assert not set(near) & set(others)
