"""The table of all numbers: every row is told from every other by what it shows, and columns that say nothing are left out."""

import pathlib

import pytest
from fake_measurements import row
from msgspec.structs import replace

from analysis import labels
from analysis.analysis import Analysis
from analysis.report import html
from analysis.report.material import Material
from analysis.report.sections import all_numbers
from analysis.text import rows
from kernels.problems import (
    AllReduce,
    AtOnce,
    Conv,
    Inference,
    Launch,
    Matmul,
    Peak,
    PeerCopy,
    Stream,
    Training,
    Transfer,
)
from workloads.records import by_machine
from workloads.records import settings as switches

REPORTS = pathlib.Path(__file__).parents[4] / "reports"
# Of each problem the fields, each with another value that is as good.
PROBLEMS = (
    (Matmul(64, 64, 64, "float16"), {"m": 65, "n": 65, "k": 65, "out": "float32", "layout": "tn"}),
    (Matmul(64, 64, 64), {"dtype": "float64", "math": "tf32", "batch": 3, "epilogue": "bias-relu"}),
    (
        Conv(1, 8, 8, 4, 4, 3, 3),
        dict.fromkeys(("n", "r", "s", "stride", "groups"), 2)
        | {"h": 9, "w": 9, "c_in": 8, "c_out": 8, "pad": "same"}
        | {"layout": "NCHW", "direction": "dgrad", "dtype": "float16", "math": "tf32"},
    ),
    (Stream("copy", 1 << 20), {"operation": "scale", "nbytes": (1 << 20) + 16, "dtype": "float32"}),
    (Peak("float32", 1 << 27), {"math": "float64", "flops": (1 << 27) + 1}),
    (Transfer("h2d", 1 << 20), {"direction": "d2h", "nbytes": 1 << 21, "host_memory": "pinned", "compute": "fma"}),
    (Transfer("h2d", 1 << 20, "pinned", "fma", 2, 2), {"chunks": 4, "streams": 3}),
    (Launch("step"), {"call": "epoch", "count": 2}),
    (Training("lenet", 32, 64), {"model": "peaks", "batch": 16, "samples": 65, "epochs": 2, "dtype": "float64"}),
    (Inference("lenet", 32), {"model": "peaks", "batch": 16, "dtype": "float64"}),
    (PeerCopy(0, 1, 1 << 20), {"source": 2, "target": 2, "nbytes": 1 << 21, "ways": 2}),
    (AllReduce(1 << 20), {"nbytes": 1 << 21, "gpus": "0,1,2", "dtype": "float16", "form": "in-place"}),
    (AtOnce("matmul", 1024, "0,1"), {"operation": "triad", "size": 2048, "gpus": "0,1,2", "math": "tf32"}),
)
SETTINGS = {"device": "gpu:0", "threads": 2, "mode": "roundtrip", "cache": "cold", "process": "fresh"}


def told(m) -> tuple[str, ...]:
    """What the table shows of a row beside its numbers."""
    how = (labels.problem(m.problem), rows.how(m), getattr(m.problem, "math", "-"))
    return (m.kernel, *how, m.settings.device, labels.threads(m))


def of(problem, device="cpu", **given):
    """A row with such switches."""
    plain = row("op/backend/variant", problem, 1.0, device=device)
    return replace(plain, settings=replace(plain.settings, switches=given))


@pytest.mark.parametrize(("problem", "others"), PROBLEMS, ids=lambda value: getattr(value, "op", ""))
def test_problems_differing_in_one_field_look_different(problem, others):
    plain = row("op/backend/variant", problem, 1.0)
    for field, value in others.items():
        fields = {name: getattr(problem, name) for name in problem.__struct_fields__} | {field: value}
        if field in ("dtype", "direction") and "math" in fields:
            fields["math"] = value if field == "dtype" else fields["math"]
        if field == "dtype" and "out" in fields:
            fields["out"] = value
        assert told(row("op/backend/variant", type(problem)(**fields), 1.0)) != told(plain), field


def test_every_field_of_a_problem_is_among_those():
    for kind in {type(problem) for problem, _ in PROBLEMS}:
        shown = {field for problem, others in PROBLEMS if type(problem) is kind for field in others}
        assert shown == set(kind.__struct_fields__), kind


@pytest.mark.parametrize(
    "problem", [Training("lenet", 32, 64), Inference("lenet", 32), Launch("step")], ids=lambda p: p.op
)
def test_settings_and_switches_are_told_apart(problem):
    plain = row("op/backend/variant", problem, 1.0)
    assert set(SETTINGS) | {"switches"} == set(plain.settings.__struct_fields__)
    seen = {told(plain)}
    for field, value in SETTINGS.items():
        seen.add(told(replace(plain, settings=replace(plain.settings, **{field: value}))))
    assert len(seen) == 1 + len(SETTINGS)
    for device in ("cpu", "gpu:0"):
        ways = [{}] + [{name: text} for name, known in switches.KNOWN.items() for text in known[1:] or ("2",) if text]
        ways += [{"TF_ENABLE_ONEDNN_OPTS": "0"}, {"jit_compile": "on", "gpu": "visible"}]
        assert len({told(of(problem, device, **way)) for way in ways}) == len(ways), device


def test_the_cpus_three_forms_have_names():
    training = Training("lenet", 32, 64)
    assert rows.how(of(training, data="synthetic")) == "GPU hidden"
    assert rows.how(of(training, jit_compile="on")) == "GPU hidden, jit on"
    assert rows.how(of(training, gpu="visible")) == "GPU visible"
    assert rows.how(of(training, residence="tf.data")) == "GPU hidden, tf.data"
    assert rows.how(of(training, jit_compile="off")) == "GPU hidden, jit off"
    assert rows.how(of(training, "gpu:0", data="synthetic")) == "-"
    assert rows.how(of(training, "gpu:0", data="real", jit_compile="on")) == "real data, jit on"


@pytest.mark.parametrize("run", ["training-seeds", "training-residence", "training-together", "inference"])
def test_no_two_rows_of_stored_runs_look_alike(run):
    for loaded in by_machine(REPORTS / "nvidia-h200" / run).values():
        shown = [Material(Analysis.from_loaded(loaded))]
        found, names = all_numbers.table(shown), html.embedded(shown)["names"]
        told = {tuple(line[: names - 1]) for line in found.rows}
        assert found.heads[names - 1] == "time" and len(told) == len(found.rows) > 1


def test_columns_that_say_nothing_are_left_out():
    for run in ("training-seeds", "suite"):
        (loaded,) = by_machine(REPORTS / "nvidia-h200" / run).values()
        shown = Material(Analysis.from_loaded(loaded))
        (first, *_), line = shown.ordered, all_numbers.table([shown]).rows[0]
        words = html._hint(first).split()
        assert len(words) == 3 and all(word in " ".join(line) for word in words)
    (loaded,) = by_machine(REPORTS / "nvidia-h200" / "training-seeds").values()
    found = all_numbers.table([Material(Analysis.from_loaded(loaded))])
    assert found.heads == ["kernel", "problem", "how", "device", "time", "±", "status, flags", "check"]
    assert {len(line) for line in found.rows} == {len(found.heads)}
