"""Commands of explain as people type them: what they ask, and a model, a script and rows for them."""

import pathlib

from fake_measurements import GPU_MACHINE, launch_rows, run, transfer_rows, write
from fake_predictions import sources

from analysis.explain import explanation
from analysis.explain.__main__ import main, parser
from analysis.explain.plan import ExplainPlan
from analysis.explain.request import Request
from kernels.networks.layers import Layer, Network
from kernels.problems import Training
from workloads.records.script_fit import ScriptFit

OWN = Network("own:build", "", (4,), 3, (Layer("odd", "Odd", shape=(4,), weights=16), Layer("out", "dense", 3)))


def written(folder: pathlib.Path, of=GPU_MACHINE, rows=()) -> str:
    write(folder / "launch.jsonl", run(of), rows or (*launch_rows(0.0), *transfer_rows(0.0)))
    return str(folder)


def plan(*words) -> ExplainPlan:
    return ExplainPlan.from_flags(parser().parse_args(words), "typed")


def requested(*words) -> Request | None:
    chosen = plan(*words)
    return chosen.subject.request(chosen.options)


def said(capsys, *words):
    code, caught = main(list(words)), capsys.readouterr()
    return code, caught.out, caught.err.splitlines()


FIT = ScriptFit(
    script="train.py",
    place="line 41",
    inputs=1,
    batch=64,
    samples=8000,
    epochs=20,
    stops_early=True,
    validation=2000,
    dtype="int32",
    keras_options={"residence": "tf.data", "jit_compile": "off"},
)


def explained():
    return explanation.explain(Request(Training("cifar10-cnn", 32, 3200, 10)), sources())
