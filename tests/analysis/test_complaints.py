"""Each complaint's answer holds what such an answer must, on made-up rows whose numbers are worked out by hand and on the stored
GPU machine's; and the measured verdict, which asks no prediction."""

import ast
import json
import pathlib

import msgspec
import pytest
from fake_measurements import launch_rows, row, transfer_rows
from fake_predictions import MS, sources
from test_jobs import trained

from analysis.explain import command, explanation
from analysis.explain.explanation import Sources
from analysis.predict import profile
from analysis.predict.prediction import predict
from analysis.text import cases as complaints
from analysis.text import explanation as explanation_words
from analysis.text import verdicts
from kernels import networks
from kernels.problems import Launch, Stream, Training, Transfer
from workloads.records import published_cases
from workloads.records.published_cases import COMPLAINTS, COMPLAINTS_BY_NAME, Reported

ROOT = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def stored():
    here = profile.read(str(ROOT / "reports/nvidia-h200"))
    return Sources(here, here, predict)


def answered(name, of) -> str:
    """The whole answer to a case as text."""
    asked, case = command._asked(command.parser().parse_args(["--case", name]))
    if asked is None:
        return "\n".join(complaints.apart(case, of))
    e = explanation.explain(asked, of)
    sections = complaints.sections(case, e, of)
    return "\n".join(explanation_words.lines(e, "seen", sections, complaints.checked(case, e, of)))


def test_there_are_eight_complaints_and_every_training_is_one_that_can_be_run():
    assert len(COMPLAINTS) == 8 == len(COMPLAINTS_BY_NAME)
    for r in (r for c in COMPLAINTS for r in c.reported):
        assert networks.find(r.training.model) and r.faster in ("cpu", "gpu", "neither")
    for q in published_cases.QUESTIONS:
        assert networks.find(q.training.model)


MUST = {
    "so-42097115": ("A step on the GPU has a floor of", "By a step, the ", " width"),
    "keras-249": (
        "By a step, the ",
        " batch",
        "Copying each batch (196 KiB) takes",
        "Keeping the data on the device saves",
    ),
    "tensorflow-5995": (
        "It is dispatch and launch, not PCIe",
        '"bigger batches fix it"',
        "instead of 16 a sample costs",
    ),
    "mxnet-2898": ("2.24 MFLOP in mlp-784-128x2-10", "191 MFLOP in cifar10-cnn", "85.1 times as much"),
    "indepth-mnist": ("Measured on the GPU: a Keras step of a model with almost no work", "Of this step on the GPU"),
    "tensorflow-44836": (
        "It is truly bound by the transfer: 66.3 %",
        "From pinned memory the same bytes",
        "With full overlap",
    ),
    "cupy-2902": ("an artifact of the clock", "drains the queue", "synchronize()"),
    "cntk-751": ("By a step, the", " width"),
}


@pytest.mark.parametrize("name", [c.name for c in COMPLAINTS])
def test_the_stored_machines_answer_holds_what_it_must(name, stored):
    said = answered(name, stored)
    for words in MUST[name]:
        assert words in said, f"{words!r} is not in:\n{said}"
    assert COMPLAINTS_BY_NAME[name].said in said
    if COMPLAINTS_BY_NAME[name].reported:
        assert "Measured" in said and "Verdict" in said


@pytest.mark.parametrize("name", [*published_cases.BY_NAME, *published_cases.QUESTIONS_BY_NAME])
def test_every_article_is_answered_on_the_stored_machine(name, stored):
    if name == "S3b":  # a network of 94 convolutions: its answer is of rows, not of predictions
        case = published_cases.QUESTIONS_BY_NAME[name]
        assert complaints._QUESTIONS[name](None, stored) and case.beliefs == ("inference",)
        return
    said = answered(name, stored)
    assert f"{name}: " in said and "Verdict" in said and "What if" in said
    if name in ("S2", "S3e"):
        assert '"FLOPS decide"' in said
    if name == "S4":
        assert '"it is the PCIe copy"' in said
    if name == "S3a":
        assert '"bigger batches fix it"' in said and "The whole set is 299 MiB" in said


def test_the_stored_machines_answer_goes_to_json_with_its_real_numbers(capsys):
    assert command.main(["--case", "indepth-mnist", "--format", "json", str(ROOT / "reports/nvidia-h200")]) == 0
    made = json.loads(capsys.readouterr().out)
    assert len(made["verdict"]) == 5 and made["explanation"]["gpu"]["step_s"]["value"] > 1e-4


def test_a_narrow_network_flips_where_the_laws_say_and_dispatch_is_set_against_the_link():
    # 1 + 2.56 w = 2.1 + 0.128 + 0.128 w: w = 0.505 hundred, at batch 128
    said = answered("so-42097115", sources())
    assert "By a step, the GPU wins from width = 51 on (predicted over width 16 to 8,000)." in said
    assert "A step on the GPU has a floor of 900 µs" in said and "on the CPU 400 µs" in said
    said = answered("tensorflow-5995", sources())
    # 2 ms against 16 µs of bytes, of 2.121 ms; the 0.1 ms of the calls that copy are copying's
    assert (
        "starting the step and its kernels takes 2.00 ms (94.3 % of the step), the bytes on the link 16.0 µs (0.754 %)"
        in said
    )
    said = answered("keras-249", sources())
    assert (
        "Copying each batch (196 KiB) takes 100 µs for the calls and 64.0 µs for the bytes: 7.36 % of the GPU's step of 2.23 ms."
        in said
    )
    assert "Keeping the data on the device saves 1.86 ms of each step" in said  # 1.7 of dispatch, 0.164 of copies
    of = sources()
    e = explanation.explain(explanation.Request(published_cases.QUESTIONS_BY_NAME["S3e"].training), of)
    assert complaints._counted(e, of)[0].endswith("; what was measured is below.")
    (alone,) = complaints._counted(msgspec.structs.replace(e, cpu=None), of)
    assert alone.endswith("; to set a count beside steps takes both devices' rows.")
    assert complaints._several(e, of)[-1] == (
        "What more GPUs buy is not in these rows; python -m workloads.training --study data-parallel measures it on two or more"
    )


def copies(pageable=10e9, pinned=50e9):
    laws = (
        ("transfer/tensorflow/dataset", "pageable", "h2d", pageable),
        ("transfer/cupy/memcpy_async", "pinned", "h2d", pinned),
        ("transfer/cupy/array", "pageable", "d2h", pageable),
    )
    return [
        row(kernel, Transfer(direction, 4**i, memory), 1e-5 + 4**i / rate, device="gpu:0")
        for kernel, memory, direction, rate in laws
        for i in range(1, 16)
    ]


def bare(*rows):
    made = profile.profile(rows)
    return Sources(made, made, predict)


def test_a_transfer_bound_step_and_an_unsynchronized_clock_by_the_laws_of_copies():
    said = "\n".join(complaints.apart(COMPLAINTS_BY_NAME["tensorflow-44836"], bare(*copies())))
    # 136 ms at 10 GB/s are 1.36 GB; at 50 GB/s 27.2 ms; the rest of their step is 69 ms
    assert "Here 136 ms carry 1.27 GiB from pageable memory (10.0 GB/s, tensorflow/dataset)" in said
    assert (
        "From pinned memory the same bytes take 27.2 ms (50.0 GB/s): 5.00 times faster, a step of 96.2 ms and not 205 ms."
        in said
    )
    assert "136 ms from pageable memory, 69.0 ms from pinned, so at most 2.97 times faster than theirs" in said
    slow = "\n".join(complaints.apart(COMPLAINTS_BY_NAME["tensorflow-44836"], bare(*copies(pinned=12e9))))
    assert "Largest part as measured here: the copy, also from pinned memory" in slow
    assert verdicts.NO_COPIES in complaints.apart(COMPLAINTS_BY_NAME["tensorflow-44836"], bare())
    p = Stream("scale", 480_000_000, "float32")
    passes = row("stream/cupy/elementwise", p, {"device": 48e-3, "host-latency": 48e-3})  # 10 GB/s: slow passes
    launches = [
        row("launch/cupy/ufunc", Launch("elementwise", n), {"host-latency": 1e-5 * n, "host-issue": 5e-6 * n})
        for n in (1, 8, 64)
    ]
    said = "\n".join(complaints.apart(COMPLAINTS_BY_NAME["cupy-2902"], bare(passes, *launches, *copies())))
    # 100 calls of 5 µs; 100 passes of 48 ms; 240 MB at 10 GB/s are 24 ms
    assert "Here issuing 100 calls takes 500 µs, running them 4.80 s and the copy of 229 MiB alone 24.0 ms" in said
    assert "500 µs for the passes and 4.82 s for the copy" in said
    assert "Largest part as measured here: the passes" in said and "would mean 2290 GB/s" in said
    lacking = complaints.apart(COMPLAINTS_BY_NAME["cupy-2902"], bare())
    assert any("workloads.stream --backends cupy" in line for line in lacking)


MLP = Training("mlp-784-100x2-10", 128, 60_000, 10)


def both(cpu: float, gpu: float, model: str = MLP.model, batch: int = 128, samples: int = 2048, **switches) -> list:
    return [
        trained(model, batch, samples, (0.0, 0.0, cpu), **switches),
        trained(model, batch, samples, (0.0, 0.0, gpu), device="gpu:0", **switches),
    ]


def test_the_measured_winner_and_largest_part_and_why_a_finding_does_not_come_back():
    found = verdicts.measured(
        Reported(MLP, "cpu", "slower"), [*both(0.5 * MS, 1.2 * MS), *launch_rows(0.0), *transfer_rows(0.0)]
    )
    assert (found.faster, found.largest, found.comes_back) == ("cpu", verdicts.STARTING, True)
    # a Keras step of 0.9 ms; 128 x 784 x 4 bytes at 11 GB/s; the rest of 1.2 ms
    assert found.parts[verdicts.STARTING] == pytest.approx(0.9 * MS, rel=0.02)
    assert found.parts[verdicts.COPYING] == pytest.approx(128 * 784 * 4 / 1.1e10, rel=0.02)
    assert sum(found.parts.values()) == pytest.approx(1.2 * MS)
    said = verdicts.sentence(found.reported, found)
    assert (
        "measured here: the CPU is faster, as reported (slower): a step takes 1.20 ms on the GPU and 500 µs on the CPU"
        in said
    )
    assert "the largest part of the GPU's step is starting the step: 75" in said
    found = verdicts.measured(Reported(MLP, "cpu", "slower on the GPU"), [*both(5 * MS, 1.2 * MS), *launch_rows(0.0)])
    assert (found.faster, found.comes_back) == ("gpu", False)
    said = verdicts.sentence(found.reported, found)
    assert "the GPU is faster, unlike what was reported (slower on the GPU)" in said
    expected = "It does not come back: here starting a step on the GPU takes only 900 µs, and this CPU needs 5.00 ms"
    assert expected in said
    slow = verdicts.measured(Reported(MLP, "gpu", "faster on the GPU"), [*both(0.5 * MS, 1.2 * MS), *launch_rows(0.0)])
    expected = "cannot be shorter than the 900 µs that starting it takes, and this CPU is done in 500 µs"
    assert expected in verdicts.sentence(slow.reported, slow)


def test_the_nearest_batch_stands_and_far_ones_do_not():
    rows = [*both(1 * MS, 2 * MS, batch=32), *both(3 * MS, 2 * MS, batch=256)]
    found = verdicts.measured(Reported(MLP, "gpu", ""), rows)
    assert found.batch == 256 and "(at batch 256, the nearest measured)" in verdicts.sentence(found.reported, found)
    assert verdicts.measured(Reported(MLP, "gpu", ""), both(1 * MS, 2 * MS, batch=2048)) is None
    assert verdicts.measured(Reported(MLP, "gpu", ""), both(1 * MS, 2 * MS, model="lenet")) is None
    assert verdicts.measured(Reported(MLP, "gpu", ""), both(1 * MS, 2 * MS, steps_per_execution="4")) is None
    said = verdicts.sentence(Reported(MLP, "gpu", ""), None)
    assert said.endswith("python -m workloads.training --model mlp-784-100x2-10 --batch 128 --samples 8192 --fast")


def test_the_measured_verdict_imports_no_prediction():
    """Whoever judges predictions may not be made of them."""
    seen, left = set(), ["analysis.text.verdicts"]
    while left:
        name = left.pop()
        path = ROOT / (name.replace(".", "/") + ".py")
        if name in seen or not name.startswith("analysis") or not path.exists():
            continue
        seen.add(name)
        for node in ast.parse(path.read_text()).body:  # not what a function imports when it is called
            if isinstance(node, ast.ImportFrom) and node.module:
                left += [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
    assert "analysis.training.break_even" in seen and not [name for name in seen if name.startswith("analysis.predict")]
