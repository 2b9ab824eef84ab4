"""Plans of explain, from its flags."""

import pytest
from explain_commands import FIT, OWN, plan, requested

from analysis.explain.missing_parts import MeasureOptions
from analysis.explain.plan import ExplainPlan
from analysis.explain.profiles import RowNames
from analysis.explain.training_request import EveryCase, PublishedCase, TrainingOptions, TrainingScript
from kernels.problems import Training
from workloads import options
from workloads.records import published_cases

pytestmark = pytest.mark.usefixtures("laws")


def test_every_flag_is_a_field_of_the_plan():
    words = "--case S0 --batch 64 --samples 1000 --epochs 3 --dtype float64 --validation 10 --input prefetch --jit on --tf32 off"
    words += (
        " --precision mixed_float16 --steps-per-execution 8 --price-gpu 4 --price-cpu 0.5 --gpu-profile nvidia-h200"
    )
    words += " --time-limit 30 --all --measure --budget 20 --wait-quiet --format md nvidia-h200 --how 2 --verify 4"
    rows = RowNames(runs=("nvidia-h200",), gpu_profile="nvidia-h200")
    assert plan(*words.split()) == ExplainPlan(
        command="typed",
        subject=PublishedCase(case=published_cases.EVERY["S0"]),
        options=TrainingOptions(
            batch=64,
            samples=1000,
            epochs=3,
            dtype="float64",
            keras_options={
                "residence": "prefetch",
                "jit_compile": "on",
                "tf32": "off",
                "precision": "mixed_float16",
                "steps_per_execution": "8",
            },
            validation=10,
            prices={"gpu": 4.0, "cpu": 0.5},
        ),
        rows=rows,
        measuring=MeasureOptions(
            rows=rows, command="typed", first=True, everything=True, budget_s=20.0, wait_quiet=True
        ),
        all_details=True,
        format="md",
        change_number=2,
        verified_changes=4,
    )
    assert plan("--case", "all").subject == EveryCase()
    assert plan("--model", "lenet").explains_training and not plan("--case", "S0").explains_training
    assert all(plan("--case", "S0", *more.split()).explains_training for more in ("--all", "--how 1", "--format json"))


def test_cases_tables_and_models_bring_a_training(own_model):
    request = requested("--case", "S0", "--epochs", "3", "--dtype", "float32", "--price-gpu", "4", "--jit", "off")
    assert request.training == Training("cifar10-cnn", 32, 50_000, 3)
    assert (request.prices, request.switches) == ({"gpu": 4.0}, {"jit_compile": "off"})
    request = requested("--case", "so-42097115")
    assert request.training == Training("mlp-784-100x2-10", 128, 60_000, 10)
    assert (request.varies, request.sizes[0]) == ("width", 16)
    assert requested("--case", "S4", "--samples", "1000").training == Training("peaks", 1000, 1000, 2000)
    assert requested("--case", "cupy-2902") is None
    request = requested("--model", "fashion-mlp", "--batch", "64", "--input", "tf.data", "--validation", "100")
    assert (request.training, request.network) == (Training("fashion-mlp", 64, 60_000, 5), None)
    assert request.switches == {"residence": "tf.data"} and request.validation == 100
    request = requested("--model", "own:build", "--samples", "5000", "--epochs", "2")
    assert request.network is OWN and request.training == Training("own:build", 32, 5000, 2)
    assert request.assumed == ("batch",)


def test_a_script_brings_all_numbers(own_script):
    script = plan("train.py", "nvidia-h200", "--batch", "32", "--", "--lr", "0.1", "--batch", "8")
    assert script.subject == TrainingScript(name="train.py", arguments=("--lr", "0.1", "--batch", "8"), time_limit_s=60)
    assert (script.rows.runs, script.options.batch) == (("nvidia-h200",), 32)
    request = requested("train.py")
    assert request.training == Training("train.py:41", 64, 8000, 20) and request.network is OWN
    assert (request.validation, request.assumed, request.script) == (2000, (), FIT)
    assert request.switches == {"residence": "tf.data", "jit_compile": "off", "data": "script"}
    changed = requested("train.py", "--epochs", "3", "--validation", "10", "--jit", "on", "--samples", "640")
    assert changed.training == Training("train.py:41", 64, 640, 3) and changed.validation == 10
    assert changed.switches == {"residence": "tf.data", "jit_compile": "on", "data": "script"}
    assert requested("train.py", "--", "--lr", "0.1").training.model == "train.py:41 --lr 0.1"
    module = plan("-m", "package.train", "--fit", "60")
    assert module.subject == TrainingScript(name="package.train", arguments=(), time_limit_s=60, fit="60")
    own_script(samples=None)
    with pytest.raises(options.Usage, match=r"train.py, fit at line 41: its data do not tell how many samples"):
        requested("train.py")
    assert requested("train.py", "--samples", "640").training.samples == 640


def test_missing_numbers_are_assumed_or_an_articles(own_model):
    assert requested("--model", "own:build").assumed == ("batch", "samples", "epochs")
    assert requested("--model", "own:build", "--batch", "64", "--epochs", "2").assumed == ("samples",)
    assert requested("--model", "mlp-784-100x2-10", "--batch", "64").assumed == ("samples", "epochs")
    assert requested("--model", "lenet").assumed == requested("--case", "S0").assumed == ()
