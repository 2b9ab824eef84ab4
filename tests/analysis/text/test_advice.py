"""The code of every advice: it is filled in for the training, it trains, and it does what it says."""

import json
import math
import os
import pathlib
import subprocess
import sys

import msgspec
import pytest

from analysis.predict import what_if
from analysis.text import advice
from kernels.problems import Training
from workloads.records import Settings

ROOT = pathlib.Path(__file__).parents[3]
CHILD = ROOT / "tests" / "support" / "advice_child.py"
#: 8 whole batches and 6 samples.
SMALL = Training("mine.py:build", 8, 70, 2)


def on_cpu(**switches: str) -> dict[str, str]:
    """Kind -> code after the change of a GPU's training, with the CPU in the GPU's place."""
    settings = Settings("gpu:0", switches=switches)
    after = {}
    for change in what_if.changes(SMALL, settings):
        cpu_settings = msgspec.structs.replace(change.settings, device="cpu:0")
        cpu_change = msgspec.structs.replace(change, settings=cpu_settings)
        after.setdefault(change.kind, advice.code(cpu_change, SMALL, settings).after)
    return after


@pytest.mark.slow
def test_every_changes_code_trains_as_it_says(tmp_path):
    codes = on_cpu(jit_compile="off") | on_cpu(tf32="off")
    assert set(codes) == set(advice.ADVICE)
    codes["own loop, compiled"] = on_cpu(jit_compile="on")["own loop"]
    paths = {}
    for name, code in codes.items():
        path = tmp_path / f"{name}.py"
        path.write_text(code)
        paths[name] = str(path)
    env = {**os.environ, "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    child = subprocess.run(
        [sys.executable, str(CHILD)], input=json.dumps(paths), capture_output=True, text=True, timeout=300, env=env
    )
    assert child.returncode == 0, child.stderr[-3000:]
    facts = json.loads(child.stdout.splitlines()[-1])
    assert all(math.isfinite(one["loss"]) for one in facts.values())
    # two epochs of 9 steps; of 3 with four times the batch; of 8 with whole batches
    assert {name: one["steps"] for name, one in facts.items()} == {
        "batch": 6,
        "steps_per_execution": 18,
        "without XLA": 18,
        "with XLA": 18,
        "whole batches": 16,
        "own loop": 16,
        "own loop, compiled": 16,
        "prefetch": 16,
        "tf32": 18,
        "mixed_bfloat16": 18,
    }
    assert facts["steps_per_execution"]["steps_per_execution"] == 9
    assert facts["batch"]["steps_per_execution"] == 1
    assert [facts[name]["jit_compile"] for name in ("without XLA", "with XLA")] == [False, True]
    assert facts["own loop"]["resident"] == facts["own loop, compiled"]["resident"] == [[70, 4], "device:CPU:0"]
    assert facts["prefetch"]["element"] == [8, 4]
    assert [name for name, one in facts.items() if one["tf32"]] == ["tf32"]
    assert [name for name, one in facts.items() if one["computes_in"] == "bfloat16"] == ["mixed_bfloat16"]


def test_the_page_holds_every_code():
    assert (ROOT / "docs" / "advice.md").read_text().splitlines() == advice.page()
    assert all(len(code.after.split("\n")) <= 18 for code in advice.examples())


def test_code_has_the_users_model_and_sizes():
    settings = Settings("gpu:0", switches={"jit_compile": "on"})
    training = Training("saved/net.keras", 32, 1000, 3)
    larger = next(change for change in what_if.changes(training, settings) if change.kind == "batch")
    code = advice.code(larger, training, settings)
    model = 'model = keras.models.load_model("saved/net.keras")'
    compiled = "model.compile(optimizer=optimizer, loss=loss, jit_compile=True)"
    assert code.before.splitlines() == [model, compiled, "model.fit(x, y, batch_size=32, epochs=3)"]
    assert code.after.splitlines() == [model, compiled, "model.fit(x, y, batch_size=128, epochs=3)"]
