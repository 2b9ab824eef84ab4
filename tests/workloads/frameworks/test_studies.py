"""The studies: what each asks, that all of them are rows that can run, and that the articles' plan fits its time."""

import re
from collections import Counter

import pytest
from fake_measurements import GPU_MACHINE

from kernels import networks
from kernels.problems import Training
from workloads import inference, options, training
from workloads.frameworks import forecast, grid, studies, training_row
from workloads.harness import plan
from workloads.records import Row, Settings, published_cases, settings

BOTH = ["cpu", "gpu:0"]
VISIBLE = {"data": "synthetic", "gpu": "visible"}


@pytest.fixture(autouse=True)
def every_library(monkeypatch):
    """As on the machine that has JAX and PyTorch."""
    monkeypatch.setattr(studies, "available", lambda library: True)


@pytest.mark.parametrize("name", studies.STUDIES)
def test_every_study_row_has_existing_settings(name):
    found = studies.rows([name], BOTH)
    assert {row.settings.device for row in found} == set(BOTH) and len({row.key for row in found}) == len(found)
    for row in found:
        assert networks.known(row.problem.model) is not None
        chosen = settings.checked_keras(row)
        assert chosen.residence in grid.RESIDENCES[grid.KERNELS[row.kernel]]
        assert row.settings.device == "cpu" or chosen.gpu == "hidden"
        assert row.settings.switches == settings.without_defaults(row.settings.switches)
        assert row.kernel.split("/")[1] != "jax" or chosen.jit_compile == "auto"


def test_the_articles_run_at_their_own_settings():
    found = studies.rows(["seeds", "peaks"], BOTH)
    for name in ("cifar10-cnn", "cifar10-mlp", "fashion-mlp", "mnist-cnn"):
        of = networks.find(name)
        whole = [r for r in found if r.problem.model == name and r.problem.samples == of.samples]
        assert [r.settings.device for r in whole] == BOTH
        assert {(r.problem.batch, r.problem.dtype) for r in whole} == {(32, "float64")}
        forms = [r.settings.switches for r in found if r.problem.model == name and r.problem.samples == studies.SHORT]
        expected = [{"data": "synthetic"}, {"data": "synthetic", "jit_compile": "on"}, VISIBLE, {"data": "synthetic"}]
        assert forms == (expected if name in ("cifar10-cnn", "fashion-mlp") else [])
    assert [r.problem for r in found].count(Training("cifar10-cnn", 32, 50_000, 4, "float64")) == 2
    loops = [r for r in found if r.kernel.endswith("loop")]
    of = {(r.problem.model, r.problem.epochs, r.problem.batch - r.problem.samples) for r in loops}
    assert of == {("peaks", 2000, 0)}
    for kernel in studies.LOOPS:
        for device in BOTH:
            own = [r for r in loops if (r.kernel, r.settings.device) == (kernel, device)]
            plain = [r for r in own if r.settings.switches == {"data": "synthetic", "residence": "resident"}]
            assert {r.problem.samples for r in plain} == {100, 200, 1000, 10_000, 40_000}
            assert {r.problem.samples for r in own if r.settings.switches["residence"] == "fed"} == {100, 40_000}
            assert {r.problem.samples for r in own if r.settings.switches.get("targets") == "float64"} == {100, 40_000}
    assert [r for r in found if r.problem.model == "peaks" and r.kernel == studies.FIT]
    small = {(r.problem.model, r.problem.samples) for r in studies.rows(["small-dataset"], BOTH)}
    most = {"cifar10-cnn": 50_000, "fashion-mlp": 60_000}
    assert small == {(name, n) for name in most for n in (100, 1000, 10_000, most[name])}
    batches = studies.rows(["batches"], BOTH)
    assert {r.problem.batch for r in batches} >= {1, 8192}
    assert not [r for r in batches if r.problem.samples % r.problem.batch]
    homes = {(r.problem.batch, settings.checked_keras(r).residence) for r in studies.rows(["residence"], BOTH)}
    assert homes >= {(b, home) for b in (8, 64) for home in ("numpy", "tf.data", "resident")}
    assert homes >= {(64, "prefetch"), (64, "generator")}
    assert networks.sample_bytes(networks.find("mnist-cnn"), "float64") * 50_000 == 313_600_000
    assert {r.settings.process for r in studies.rows(["starts"], BOTH)} == {"fresh"}
    found = {(r.problem.model, r.problem.batch) for r in studies.rows(["complaints"], ["cpu"])}
    assert {("mlp-784-100x2-10", 128), ("mnist-cnn", 64), ("mlp-7-32x2-2", 16), ("cifar10-cnn", 128)} < found
    assert len(found) == sum(len(c.reported) for c in published_cases.COMPLAINTS) == 9
    assert all(r.problem.samples % r.problem.batch == 0 for r in studies.rows(["complaints"], BOTH))
    assert not [r for name in studies.STUDIES for r in studies.rows([name], ["cpu"]) if "gpu" in r.settings.switches]
    every = studies.rows(["all"], BOTH)
    apart = [row.key for name in studies.STUDIES for row in studies.rows([name], BOTH)]
    assert len(every) == len(set(apart)) < len(apart)
    assert studies.experiments(["all"]) == ["together", "trials", "teacher"]
    assert studies.experiments(["seeds", "trials"]) == ["trials"]
    minutes = {name: sum(map(plan.seconds, studies.rows([name], BOTH))) / 60 for name in studies.STUDIES}
    assert max(minutes.values()) < 10


def one(
    model="cifar10-cnn", batch=32, samples=320, epochs=1, device="cpu", kernel=studies.FIT, process="warm", **given
):
    return Row(kernel, Training(model, batch, samples, epochs), Settings(device, process=process, switches=given))


def test_a_guess_adds_up_and_devices_take_turns():
    """10 s a row and 2 ms a step: four epochs of 10 steps at least; five times that in five processes."""
    assert list(map(plan.seconds, (one(), one(epochs=6)))) == pytest.approx([10.08, 10.12])
    assert plan.seconds(one(process="fresh")) == plan.seconds(one(), rigorous=True) == pytest.approx(50.4)
    gpu = {"device": "gpu:0"}
    cpus = ({}, {"batch": 8}, {"process": "fresh"}, {"TF_ENABLE_ONEDNN_OPTS": "0"})
    rows = [one(**given) for given in (*cpus, gpu, gpu | {"batch": 8}, gpu | {"jit_compile": "on"})]
    assert [rows.index(r) for r in forecast.in_turns(rows)] == [0, 3, 4, 1, 5, 6, 2]


@pytest.mark.parametrize("name", studies.STUDIES)
def test_a_stopped_study_has_whole_pairs_but_one(name):
    """Between a row and its twin on the other device are at most the CPU's other flags and thread counts: two of them."""
    twins: dict = {}
    for i, planned in enumerate(forecast.in_turns(studies.rows([name], BOTH))):
        s = planned.settings
        own = planned.kernel, planned.problem, s.threads, s.process, *sorted(s.switches.items())
        twins.setdefault(own, []).append(i)
    pairs = [places for places in twins.values() if len(places) == 2]
    assert pairs and max(b - a for a, b in pairs) <= 3


def test_the_plan_names_minutes_and_processes(monkeypatch):

    def lines(plan) -> list[str]:
        planned = forecast.forecast(plan.rows(GPU_MACHINE), plan.measuring, plan.studies, GPU_MACHINE)
        return forecast.lines(planned, rigorous=plan.measuring.rigorous)

    plan = training.parse(["--study", "width", "trials", "--fast"])
    rows, said = plan.rows(GPU_MACHINE), lines(plan)
    assert len(rows) == 10 and sum("training/keras/trial" in line for line in said) == 6
    assert said[-2].startswith("16 rows, at most ") and " minutes, a guess" in said[-1]
    # not of an experiment's rows, which take no five
    plan = training.parse(["--study", "starts", "width", "trials", "--rigorous", "--device", "cpu"])
    said = lines(plan)[:-2]
    ends = Counter(re.search(r"(in 5 .*|each trial .*)?$", line)[0] for line in said)
    rows = {name: len(studies.rows([name], ["cpu"])) for name in ("starts", "width")}
    assert ends == {
        "in 5 processes": rows["width"],
        "in 5 fresh processes": rows["starts"],
        "each trial in a fresh process": 1,
        "": sum("/trial " in line for line in said) - 1,
    }
    assert "in 5 processes" not in "".join(lines(plan.with_measuring(rigorous=False)))
    for own, also in (["cpu"], ""), (["cpu", "--jit", "on"], ", compiled too"), (["gpu"], ", compiled too"):
        *said, _, _ = lines(training.parse(["--samples", "100", "40", "--batch", "32", "64", "--device", *own]))
        ends = sorted(re.search("(last|one) batch.*", line)[0] for line in said)
        assert ends == sorted([*(f"last batch of {n}{also}" for n in (4, 8, 36)), "one batch of 40"])
    built: list[str] = []  # 28 x 28 values a sample
    monkeypatch.setattr(grid, "network", lambda name: built.append(name) or networks.find("mnist-cnn"))
    own = "tests/support/own_models.py:classes"
    assert inference.main(["--model", own, "--device", "cpu", "--dry-run", "-q"]) == 0 and built == [own]
    own = [Row(studies.FIT, Training("a.py:f", 32, samples, dtype="float64"), Settings()) for samples in (1024, 10**10)]
    planned = forecast.forecast(own, plan.with_measuring(rigorous=False).measuring, (), GPU_MACHINE)
    _, size, gone, _ = forecast.lines(planned, rigorous=False)
    assert size == "1 row, at most 6.12 MiB of arrays at a time" and gone.startswith(f"left out: {studies.FIT} a.py:f ")
    on_gpu = "572 GiB of GPU memory, there are 141 GiB: --residence tf.data leaves "
    for way, why in (("fit", "1720 GiB of host memory, "), ("fit", on_gpu), ("resident", on_gpu)):
        plan = training.parse(["--samples", "50000000", "--device", "gpu", "--variants", way])
        with pytest.raises(options.Missing, match=f"^training/keras/{way} .*needs {re.escape(why)}"):
            lines(plan)
        monkeypatch.setattr(training_row, "require_bytes", lambda need, name, have: None)


def test_an_experiments_minutes_add_to_the_rows(monkeypatch):
    """Ten minutes of two experiments beside a plan of one row of 90 s."""
    monkeypatch.setattr(
        forecast.side_by_side, "seconds", lambda study, measuring, here: {"trials": 480.0}.get(study, 120.0)
    )
    monkeypatch.setattr(forecast.side_by_side, "rows", lambda study, measuring, here: [])
    monkeypatch.setattr(forecast.plan, "seconds", lambda row, rigorous: 90.0)
    own = [Row(studies.FIT, Training("lenet", 32, 64), Settings())]
    planned = forecast.forecast(own, training.parse([]).measuring, ("trials", "together"), GPU_MACHINE)
    assert planned.seconds == 690
    assert forecast.lines(planned, rigorous=False)[-1].startswith("about 11.5 minutes")


def of(name: str, *devices: str) -> list[tuple]:
    """(device, model, batch, samples, type, switches beside the data) of a study's rows."""
    told = []
    for row in studies.rows([name], list(devices)):
        p, chosen = row.problem, {key: text for key, text in row.settings.switches.items() if key != "data"}
        told.append((row.settings.device, p.model, p.batch, p.samples, p.dtype, chosen))
    return told


def test_each_option_changes_alone():
    plain, wide = ("cifar10-cnn", 32, 2048, "float32"), {"steps_per_execution": "16"}
    assert of("switches", "cpu")[:4] == [
        ("cpu", *plain, {}),
        ("cpu", *plain, wide),
        ("cpu", *plain, {"jit_compile": "on"}),
        ("cpu", *plain, {"TF_ENABLE_ONEDNN_OPTS": "0"}),
    ]
    assert [row.threads for row in studies.rows(["switches"], ["cpu"])] == [None] * 4 + [4, None, None]
    assert of("switches", "gpu:0") == [
        ("gpu:0", *plain, {}),
        ("gpu:0", *plain, wide),
        ("gpu:0", *plain, {"jit_compile": "off"}),
        ("gpu:0", *plain, {"tf32": "off"}),
        ("gpu:0", *plain, {"precision": "mixed_bfloat16"}),
        ("gpu:0", *plain[:3], "float64", {}),
        ("gpu:0", *plain[:3], "uint8", {}),
    ]


def test_residence_is_varied_most_at_larger_batches():
    small, large = ("mnist-cnn", 8, 12_500, "float64"), ("mnist-cnn", 64, 50_000, "float64")
    assert of("residence", "cpu") == [("cpu", *small, {}), ("cpu", *large, {})]
    assert of("residence", "gpu:0") == [
        ("gpu:0", *small, {}),
        ("gpu:0", *small, {"residence": "tf.data"}),
        ("gpu:0", *small, {"residence": "resident"}),
        ("gpu:0", *large, {}),
        ("gpu:0", *large, {"residence": "tf.data"}),
        ("gpu:0", *large, {"residence": "prefetch"}),
        ("gpu:0", *large, {"residence": "generator"}),
        ("gpu:0", *large, {"residence": "resident"}),
    ]


@pytest.mark.parametrize(
    ("batch", "samples"), [(1, 256), (8, 2048), (32, 2048), (256, 2048), (512, 4096), (2048, 16_384)]
)
def test_a_short_row_has_8_to_256_steps(batch, samples):
    assert studies.short("lenet", batch) == Training("lenet", batch, samples, 1, "float32")


def test_what_each_study_trains():
    sweeps = {
        name: [(p[1], p[2]) for p in of(name, "cpu")] for name in ("batches", "width", "depth", "epochs", "held-out")
    }
    assert sweeps["batches"][:6] == [("cifar10-cnn", n) for n in (1, 8, 32, 256, 2048)] + [("cifar10-mlp", 1)]
    assert sweeps["width"] == [(f"mlp-784-{units}x2-10", 128) for units in (32, 128, 512, 2048, 8192)]
    assert sweeps["depth"] == [(f"fashion-mlp-{layers}", 32) for layers in (1, 5, 30)]
    assert sweeps["held-out"][:4] == [("lenet", 32), ("lenet", 512), ("vgg-small", 32), ("vgg-small", 256)]
    (many,) = studies.rows(["epochs"], ["cpu"])
    assert many.problem == Training("fashion-mlp", 32, 1024, 30)
    data = [(p[1], p[3], p[4]) for p in of("small-dataset", "cpu")]
    assert data[:4] == [("cifar10-cnn", n, "float64") for n in (100, 1000, 10_000, 50_000)]
    assert data[4:] == [("fashion-mlp", n, "float64") for n in (100, 1000, 10_000, 60_000)]
    starts = studies.rows(["starts"], ["cpu", "gpu:0"])
    assert [(r.settings.device, r.settings.process) for r in starts] == [("cpu", "fresh"), ("gpu:0", "fresh")]
    assert {r.problem.samples for r in studies.rows(["repeats"], ["cpu"])} == {512}


@pytest.mark.parametrize(
    ("switch", "device", "kernel", "regression", "applies"),
    [
        ("jit_compile", "cpu", studies.FIT, False, True),
        ("tf32", "cpu", studies.FIT, False, False),
        ("tf32", "gpu:1", studies.FIT, False, True),
        ("TF_ENABLE_ONEDNN_OPTS", "gpu:0", studies.FIT, False, False),
        ("TF_ENABLE_ONEDNN_OPTS", "cpu", studies.FIT, False, True),
        ("targets", "cpu", studies.FIT, False, False),
        ("targets", "cpu", studies.FIT, True, True),
        ("jit_compile", "gpu:0", "training/jax/keras_loop", False, False),
        ("jit_compile", "gpu:0", "training/tensorflow/loop", False, True),
        ("steps_per_execution", "cpu", studies.FIT, False, True),
        ("steps_per_execution", "cpu", "training/tensorflow/loop", False, False),
        ("shuffle", "cpu", "training/jax/keras_loop", False, True),
    ],
)
def test_an_option_is_varied_where_it_matters(switch, device, kernel, regression, applies):
    assert grid.applies(switch, device, kernel, regression) is applies
