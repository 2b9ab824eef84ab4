"""Rows in words: every row differs from every other by what it shows."""

import pytest
from fake_measurements import row
from fake_trainings import trained
from msgspec.structs import replace

from analysis import labels
from analysis.text import rows
from analysis.text import rows as row_words
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
from workloads.records import settings as switches

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


def test_a_batch_that_no_epoch_fills_is_named():
    m = trained("mnist-cnn", 32, 100, (0.0, 0.0, 2e-3))
    m.phases_s["compile_last"] = 1.5
    assert row_words.notes(m)[-1] == "last batch of 4 compiled in 1.50 s"
    assert row_words.notes(trained("mnist-cnn", 32, 20, (0.0, 0.0, 2e-3)))[-1] == "batches of 20"


def test_a_flat_loss_is_said_not_to_learn():
    """Of several epochs alone, by half a percent at least, and not where nearly everything is learned in the first."""
    m = trained("vgg-small", 2048, 16384, (0.0, 0.0, 1e-3), device="gpu:0")

    def said(*loss: float, accuracy: tuple[float, ...] = ()) -> str:
        m.series.update({"loss": loss, "accuracy": accuracy})
        return row_words.losses(m)

    stuck = said(13.75, 14.5, 14.5, accuracy=(0.0977, 0.1, 0.1))
    assert stuck == "does not learn: loss 13.8 to 14.5, accuracy 9.77 % to 10.0 % in 3 epochs of few samples"
    assert said(2.306, 2.301).startswith("does not learn: loss 2.31 to 2.3 in 2 epochs")
    for fine in ((2.306, 2.294), (14.5,), (0.02, 0.03)):
        assert said(*fine).startswith("loss ")
    assert said(0.1, 0.12, accuracy=(0.95, 0.96)).startswith("loss ")
