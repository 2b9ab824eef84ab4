"""Answers of models on the page."""

from analysis.report.sections import inference
from analysis.training import inference as answers
from kernels.problems import Inference
from workloads.records import Measurement, Samples, Settings


def answer(batch: int, seconds: float, device: str = "cpu", joules: float | None = None, low: float | None = None):
    visits = (low or seconds, seconds, seconds, seconds, 2 * seconds - (low or seconds))
    taken = Samples("host-latency", visits, 1, (1,) * 5, "5 visits")
    values = {} if joules is None else {"joules_per_sample": joules}
    settings = Settings(device, None, "resident", switches={})
    return Measurement(
        answers.RESIDENT.kernel, Inference("lenet", batch), settings, "ok", samples=(taken,), values=values
    )


def test_an_answers_line_has_rates_and_speedup():
    """8 answers in 4 ms on the CPU and in 1 ms on the GPU; 32 in 2 ms on either, one of them known to a half."""
    rows = [
        answer(8, 4e-3),
        answer(8, 1e-3, "gpu:0", joules=0.5),
        answer(32, 2e-3, low=1e-3),
        answer(32, 2e-3, "gpu:0"),
    ]
    case = answers.InferenceCase(model="lenet", dtype="float32", precision="float32")
    assert inference._line(case, rows, answers.RESIDENT, 8) == (
        *("lenet", "8", "resident"),
        *("4.00 ms", "0 %", "1.00 ms", "0 %"),
        *("2000", "8000", "4.00"),
        *("-", "0.500"),
    )
    assert inference._line(case, rows, answers.RESIDENT, 32)[-3] == "can't tell"
    assert inference._line(case, rows[:1], answers.RESIDENT, 8)[5:10] == ("-", "-", "2000", "-", "-")
    assert inference._line(case, rows[:1], answers.QUEUED, 8) is None
    assert inference._line(case, rows, answers.ROUNDTRIP, 8) is None
