"""Answers of models in the suite's TensorFlow process: checked, timed, refused."""

from types import SimpleNamespace

import numpy as np
import pytest
from fake_answers import CALL, PREDICT, SERVE

from kernels.problems import Inference
from workloads.frameworks import inference_row
from workloads.harness import one_row
from workloads.harness.timing import Limits
from workloads.harness.worker import Order
from workloads.records import Row, Settings


@pytest.fixture
def answer(train):
    """answer(kernel, batch, mode, model, **switches): a row measured in the suite's TensorFlow process."""

    def ask(kernel=CALL, batch=2, mode="roundtrip", model="lenet", device="cpu", **given):
        wanted = Row(kernel, Inference(model, batch), Settings(device, None, mode, switches=given))
        return train.worker.ask(Order("measure", wanted, Limits(0.01, 3, 0.5, 0.05)), 120)

    return ask


def test_every_call_answers_like_single_operations(answer):
    first = answer(CALL, 2, "resident")
    assert (first.status, first.reason, first.check) == ("ok", "", "bound") and first.max_error < 1e-3
    assert first.values["parameters"] == 61_706 and {"build", "first_call"} <= set(first.phases_s)
    assert first.on("host-latency") and not first.on("host-throughput")  # a CPU's call has ended when it returns
    assert "peak_memory_bytes" not in first.values
    again = answer(CALL, 2, "roundtrip")
    assert not {"build", "first_call"} & set(again.phases_s)  # the same graph
    predict = answer(PREDICT, 5)
    assert (predict.status, "first_call" in predict.phases_s) == ("ok", True)
    compiled = answer(CALL, 2, jit_compile="on")
    assert (compiled.status, compiled.values["jit_compile"]) == ("ok", 1.0)


def test_requests_in_flight_have_rate_and_wait(answer):
    m = answer(SERVE, 1, in_flight="3")
    assert (m.status, m.reason) == ("ok", "")
    rate, wait = m.on("host-throughput"), m.on("host-latency")
    assert rate.calls == wait.calls >= 12 and rate.block == wait.block == (0, 1, 2)
    assert all(w > s for w, s in zip(wait.seconds, rate.seconds, strict=True))  # three wait at the same time


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kernel": PREDICT, "mode": "resident"}, "arrays with arrays"),
        ({"mode": "roundtrip-pinned"}, "arrays with arrays"),
        ({"kernel": "inference/keras/guess"}, "unknown way to answer"),
        ({"in_flight": "2"}, "one request at a time"),
        ({"shuffle": "off"}, "an inference has no shuffle"),
        ({"jit_compile": "maybe"}, "jit_compile can be"),
        ({"batch": 10**9}, "GiB of host memory"),
    ],
)
def test_impossible_requests_are_skipped_with_the_reason(answer, given, words):
    m = answer(**given)
    assert m.status == "skipped" and words in m.reason


def test_an_unseen_gpu_fails_with_tensorflows_words(answer):
    m = answer(device="gpu:0")
    assert m.status == "failed" and m.reason.startswith("TensorFlow finds no GPU: ")


REFERENCE = np.array([[0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.15, 0.85]])  # 0.2 apart


def compared(answers, wanted, reference, softmax):
    return inference_row.compare(answers, wanted, reference, softmax=softmax, arithmetic="float32")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a, ""),
        (lambda a: a + np.array([0.0019, -0.0019]), ""),
        (lambda a: a[:1], ""),
        (lambda a: np.concatenate([a, [[0.5, 0.5]]]), ""),
        (lambda a: a + np.array([0.0021, -0.0021]), "more than 0.01"),
        (lambda a: a[[1, 0, 2, 3]], "the answers are 1 of their range off"),
        (lambda a: a * 0.9, "sum to 1 +- 0.1"),
        (lambda a: np.where(a == 0.9, np.nan, a), "not a finite number"),
    ],
)
def test_wrong_answers_are_named(change, words):
    error, wrong = compared(change(REFERENCE), REFERENCE, REFERENCE, softmax=True)
    assert words in wrong and bool(words) == bool(wrong)
    assert error < 0.01 or wrong


def test_constant_references_and_sigmoid_probabilities_are_checked():
    same = np.full((4, 2), 0.5)
    assert "nothing can be compared" in compared(same, same, same, softmax=True)[1]
    assert compared(REFERENCE * 2, REFERENCE * 2, REFERENCE, softmax=False) == (0.0, "")


def test_a_wrong_answer_is_a_wrong_row(monkeypatch):
    ready = SimpleNamespace(device="/CPU:0", wait=None, compiled=set(), reference=REFERENCE, is_softmax=True, notes={})
    monkeypatch.setattr(inference_row, "prepare", lambda *of: (ready, np.zeros((4, 1))))
    monkeypatch.setattr(inference_row.tensors, "on", lambda device: __import__("contextlib").nullcontext())
    monkeypatch.setattr(inference_row, "caller", lambda *of: lambda: REFERENCE[::-1])
    # it asks TensorFlow, which is in no test's process
    monkeypatch.setattr(inference_row.tensors, "software_notes", lambda *of: {})
    m = one_row.measure(Row(CALL, Inference("lenet", 4), Settings()), Limits(), 1)
    assert (m.status, m.check, m.max_error) == ("wrong", "bound", pytest.approx(0.5)) and not m.samples


@pytest.mark.parametrize(
    ("device", "given", "lacks", "arithmetic"),
    [
        ("gpu:0", {}, False, "tf32"),
        ("gpu:0", {}, True, "float32"),
        ("gpu:0", {"tf32": "off"}, False, "float32"),
        ("cpu", {}, False, "float32"),
        ("cpu", {"precision": "mixed_bfloat16"}, False, "mixed_bfloat16"),
        ("gpu:0", {"precision": "mixed_float16"}, True, "mixed_float16"),
    ],
)
def test_the_arithmetic_that_answers_are_allowed(monkeypatch, device, given, lacks, arithmetic):
    monkeypatch.setattr(inference_row.gpu, "lacks", lambda device, math: lacks)
    assert inference_row._arithmetic(Row(CALL, Inference("lenet", 2), Settings(device, switches=given))) == arithmetic
