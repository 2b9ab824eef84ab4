"""Trainings beside others: windows, rounds and trials with made-up workers, and once each in the suite's TensorFlow process."""

import itertools
import threading
from types import SimpleNamespace
from typing import ClassVar

import msgspec
import pytest
from fake_contention import STUDENT, four, rounds, timed
from fake_measurements import CPU_MACHINE, GPU_MACHINE, run
from fake_measurements import answer as made

from analysis.analysis import Analysis
from analysis.report import page
from analysis.report.material import Material
from analysis.text import training as training_words
from analysis.training.contention import TRIAL, several_at_once, slowdown, trial_seconds
from kernels.problems import AtOnce, Inference, Training
from workloads import options, records, training
from workloads.frameworks import forecast, side_by_side, trials, work_windows
from workloads.harness import concurrent, one_row, sweep
from workloads.harness.timing import Limits
from workloads.harness.worker import Order
from workloads.machine import facts
from workloads.records import Measurement, Row, Samples, Settings
from workloads.records import settings as switches
from workloads.tables import training_table


def window(*stamps: tuple[float, float], steps: float = 2.0) -> Measurement:
    begins, ends = zip(*stamps, strict=True)
    return made(STUDENT, series={"begin_s": begins, "end_s": ends}, values={"steps": steps})


def test_only_common_working_time_counts():
    """Two parties: from 1.5 (the later end of a first unit) to 5 both are at work. Units of 2 steps and of 1 step."""
    first = [window((0, 1), (1, 2), (2, 4)), window((4, 5), (5, 6))]
    second = [window((0.5, 1.5), (1.5, 2.5), (2.5, 5), steps=1.0)]
    assert concurrent.common_step_seconds({0: first, 1: second}) == {0: [1.0, 0.5], 1: [1.0, 2.5]}
    assert concurrent.common_step_seconds({0: first}) == {0: [0.5, 1.0, 0.5, 0.5]}
    assert concurrent.common_step_seconds({0: [window((0, 9))], 1: [window((1, 2), (2, 3))]}) == {0: [], 1: []}
    alone, both, other = (
        msgspec.structs.replace(STUDENT, settings=Settings("gpu:0", switches={"data": data, "beside": beside}))
        for data, beside in (("synthetic", "nothing"), ("synthetic", "teacher"), ("real", "teacher"))
    )
    assert work_windows.work_key(alone) == work_windows.work_key(both) != work_windows.work_key(other)


@pytest.mark.parametrize(
    ("step_s", "unit_s", "first", "count"),
    [(0.1, 1.0, 1, 10), (5.0, 1.0, 1, 1), (0.001, 1.0, 8, 1000), (0.3, 1.0, 8, 3)],
)
def test_a_unit_fills_its_time_with_calls(monkeypatch, step_s, unit_s, first, count):
    work = VirtualWork(monkeypatch, step_s)
    work.first_steps = first
    assert work_windows.steps_of_a_unit(work, unit_s) == count


class VirtualWork(work_windows.RepeatedWork):
    """Steps that take time of a virtual clock only."""

    check = "exact"

    def __init__(self, monkeypatch, step_s: float):
        self.values = {"parameters": 7.0}
        self.now = 0.0
        self.step_s = step_s
        monkeypatch.setattr(work_windows.time, "monotonic", lambda: self.now)

    def run(self, steps: int) -> None:
        self.now += steps * self.step_s


@pytest.mark.parametrize(
    ("problem", "work_class", "steps"),
    [
        (AtOnce("matmul", 33, "0"), "KernelCalls", 32),
        (Inference("lenet", 2), "ModelCalls", 32),
        (Training("lenet", 2, 4), "FitSteps", 128),
    ],
)
def test_a_window_is_cut_into_units(monkeypatch, problem, work_class, steps):
    """A window of 640 steps: 20 units of calls, 5 of fits. Powers of two add without rounding."""
    step_s = 2.0**-10
    window = Limits(visit_s=640 * step_s)
    work = VirtualWork(monkeypatch, step_s)
    work.units_a_window = getattr(work_windows, work_class).units_a_window
    monkeypatch.setattr(work_windows, work_class, lambda row, seed, phases: work)
    row = Row("matmul/numpy/blas", problem, Settings("cpu", 1))
    prepared = work_windows.prepare(row, window, 7)
    assert (prepared.values, prepared.check) == ({"parameters": 7.0}, "exact")
    taken = work_windows.window(row, window, 7)
    assert taken.values == {"parameters": 7.0, "steps": steps}
    assert len(taken.series["end_s"]) == 640 / steps


def test_fits_are_of_whole_epochs(monkeypatch):
    """Of 16 samples in batches of 4: up to four steps are one epoch, 11 are nearest to three."""
    fits = []
    trainer = SimpleNamespace(wrong="", values={}, fit=lambda samples, epochs: fits.append((samples, epochs)))
    monkeypatch.setattr(work_windows.trainers, "make_trainer", lambda task: trainer)
    monkeypatch.setattr(work_windows.tensors, "begin", lambda device, threads: {})
    row = Row("training/keras/fit", Training("lenet", 4, 16), Settings(switches={"data": "synthetic"}))
    work = work_windows.FitSteps(row, 1, {})
    work.run(3)
    work.run(11)
    assert fits == [(4, 1), (12, 1), (16, 3)]
    assert [work.nearest_possible(steps) for steps in (3, 4, 11)] == [3, 4, 12]


def test_all_work_until_the_slowest_is_done(monkeypatch):
    """Each call ends only when all have begun: one after another they would wait for ever."""
    barrier = threading.Barrier(3)

    def call(n: int) -> Measurement:
        barrier.wait(timeout=10)
        return made(STUDENT, values={"trials": float(n)}, status="failed")

    found = concurrent.at_once({n: (lambda n=n: call(n)) for n in range(3)}, 1.0)
    assert [m.values["trials"] for n in range(3) for m in found[n]] == [0, 1, 2]
    # A unit of 1 s beside one of 10 s, in windows of 5 s: three of the slow one's are needed after its first, so 40 s

    def worker(unit: float):
        stamps = itertools.count()

        def ask() -> Measurement:
            threading.Event().wait(0.001)  # the other's turn
            begin = next(stamps) * unit
            return window((begin, begin + unit), steps=1.0)

        return ask

    found = concurrent.common_step_seconds(concurrent.at_once({0: worker(1.0), 1: worker(10.0)}, 5.0))
    assert set(found[0]) == {1.0} and found[1][:3] == [10.0] * 3 and len(found[0]) >= 29
    alone = concurrent.at_once({0: worker(1.0)}, 5.0)[0]
    assert len(alone) == 6  # the first unit is a warm-up
    monkeypatch.setattr(concurrent, "LONGEST_S", 0.0)
    assert len(concurrent.at_once({0: worker(100.0)}, 5.0)[0]) == 1


VALUES = {"traces": 2.0, "functions": 30.0, "rss_bytes": 2.0**20, "final_loss": 0.5, "jit_compile": 0.0}


class FakeWorker:
    """Answers at once: units of 10 steps that take a second of its clock for each worker that is at work."""

    every: ClassVar[list] = []
    asked: ClassVar[list] = []
    fails: ClassVar[dict] = {}
    together = 1

    def __init__(self, variables):
        self.closed, self.now = 0, 0.0
        FakeWorker.every.append(self)

    def ask(self, order: Order, timeout_s: float) -> Measurement:
        FakeWorker.asked.append((order.verb, order.row.problem.op))
        if order.verb in FakeWorker.fails:
            return made(order.row, status="failed", reason=FakeWorker.fails[order.verb])
        if order.verb == "trial":
            return made(order.row, phases_s={"build": 0.5}, check="weights", values=VALUES)
        if order.verb == "prepare":
            return made(order.row, values={"parameters": 5.0}, check="weights")
        begin, self.now = self.now, self.now + FakeWorker.together
        return made(order.row, series={"begin_s": (begin,), "end_s": (self.now,)}, values={"steps": 10.0})

    def close(self):
        self.closed += 1


@pytest.fixture
def workers(monkeypatch):

    def in_turn(asks, window_s):
        """Four units of each, all on the same clock; the first is a warm-up."""
        FakeWorker.together = len(asks)
        for worker in FakeWorker.every:
            worker.now = 0.0
        return {party: [ask() for _ in range(4)] for party, ask in asks.items()}

    FakeWorker.every, FakeWorker.asked, FakeWorker.fails = [], [], {}
    monkeypatch.setattr(concurrent, "at_once", in_turn)
    for module in (trials, concurrent):
        monkeypatch.setattr(module, "Worker", FakeWorker)
    monkeypatch.setattr(facts, "describe", lambda: GPU_MACHINE)
    return FakeWorker


def told(folder, *words):
    """What the training command is told."""
    return training.parse(["-q", "--fast", "-o", str(folder), *words]).measuring


def test_a_teacher_beside_a_student_row_by_row(workers, tmp_path):
    shown = []
    outcome = side_by_side.measure("teacher", told(tmp_path), run(GPU_MACHINE), shown.append)
    assert [(m.problem.op, m.problem.model, m.settings.device, m.settings.switches["beside"]) for m in shown] == [
        ("inference", "vgg-small", "cpu", "nothing"),
        ("training", "cifar10-cnn", "gpu:0", "nothing"),
        ("inference", "vgg-small", "cpu", "student"),
        ("training", "cifar10-cnn", "gpu:0", "teacher"),
    ]
    assert [m.on("host-latency").seconds for m in shown] == [(0.1,) * 12] * 2 + [(0.2,) * 12] * 2
    assert shown[0].on("host-latency").block == (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)
    assert [verb for verb, _ in workers.asked[:2]] == ["prepare", "prepare"]
    ops = [op[0] for _, op in workers.asked[2:]]  # four units a window; every other round in the opposite order
    assert "".join(ops) == ("iiiittttiiiitttt" + "iiiittttttttiiii") * 2
    assert all(worker.closed for worker in workers.every)
    assert (outcome.exit_code, outcome.left) == (0, 0)
    read = records.read(tmp_path).measurements
    assert [m.key for m in read] == [m.key for m in shown] and all(switches.checked_keras(m.row) for m in read)
    assert training_words.side_by_side(read) == [
        "CIFAR-10 CNN trains on the GPU while a frozen vgg-small answers on the CPU, batch 32: 200 ms one after the other, "
        "200 ms overlapped, can't tell."
    ]


@pytest.mark.parametrize("error", [OSError("closed"), ZeroDivisionError("planted")])
def test_one_partys_end_ends_the_others(monkeypatch, error):
    asked = threading.Event()

    def breaks():
        asked.wait(1.0)
        raise error

    def works():
        asked.set()
        threading.Event().wait(0.01)
        return window((0, 1), (1, 2))

    monkeypatch.setattr(concurrent, "LONGEST_S", 1.0)
    with pytest.raises(type(error)):
        concurrent.at_once({0: works, 1: breaks}, 1.0)


def test_several_trainings_at_once_share_the_device(workers, tmp_path):
    found = side_by_side.measure("together", told(tmp_path), run(GPU_MACHINE)).measurements
    expected = [("gpu:0", k, Training("mnist-cnn", 32, 32 * 64)) for k in ("1", "2", "4")]
    assert [(m.settings.device, m.settings.switches["at_once"], m.problem) for m in found] == expected
    assert [len(m.on("host-latency").seconds) for m in found] == [12, 24, 48] and found[0].on("host-throughput") is None
    assert found[1].on("host-throughput").seconds == pytest.approx([0.1] * 4)  # two steps in 0.2 s
    assert found[2].on("host-throughput").seconds == pytest.approx([0.1] * 4)
    assert len(workers.every) == 4
    (line,) = training_words.side_by_side(found)
    name = "MNIST CNN, batch 32, on one GPU, a process each"
    assert line == f"{name}: 2 trainings make 1.0x and 4 trainings make 1.0x the steps a second of one."


def test_an_uncertain_slowdown_is_called_that():

    def of(row: Row, *seconds: float, **given: str) -> Measurement:
        one = timed(row, {"host-latency": 1.0}, **given)
        return msgspec.structs.replace(one, samples=(Samples("host-latency", seconds, 1, (1, 1, 1), ""),))

    rows = four(of, (0.010, 0.012, 0.011), (0.03,) * 3, (0.011, 0.011, 0.0115), (0.09,) * 3)
    (gain,) = training_words.side_by_side(rows)
    assert gain.endswith("overlapped, 2.2x slower.")  # 90 ms against 41
    # three of rounds 1.26 to 1.62 times as long tell nothing, however far apart the samples: their interval is too wide
    slow = (0.0162, 0.01535, 0.0126, 0.0150)
    told = [slowdown(rounds(STUDENT, *(0.01,) * n), rounds(STUDENT, *slow[:n])) for n in (3, side_by_side.FAST_ROUNDS)]
    assert told[0].low < 1 < told[1].low


def test_ratios_are_the_medians_with_round_intervals():
    """Medians 3 and 1.68 ms are 1.79 times as many, the rounds' own ratios 1.79, 1.67 and 1.9. Of a teacher 10 + 3 ms after each
    other and 10.8 at once are 1.20 times as fast, the rounds' own 1.20, 1.21 and 1.19."""
    alone = rounds(STUDENT, 0.0030, 0.0028, 0.0032, beside="nothing", at_once="1")
    both = rounds(STUDENT, 0.00168, 0.00168, 0.00168, clock="host-throughput", beside="fits", at_once="2")
    (several,) = several_at_once([alone, both])
    gain = several.gains[2]
    expected = (0.003 / 0.00168, True, True)
    assert (gain.value, 1.4 < gain.low < 0.0028 / 0.00168, 0.0032 / 0.00168 < gain.high < 2.2) == expected
    drift = slowdown(rounds(STUDENT, 0.01, 0.02, 0.03), rounds(STUDENT, 0.011, 0.022, 0.033))
    assert (drift.low, drift.high) == (pytest.approx(1.1), pytest.approx(1.1))  # what slows a round slows both of it
    files = ("training-together.jsonl",)
    shown = page.markdown(
        [Material(Analysis.from_loaded(records.Loaded((run(GPU_MACHINE),), (alone, both), 0, files)))], False
    )
    assert "| time | ± | contention |" in shown and "the time over the steps of all processes" in shown
    assert "queued" not in shown and "2 trainings make 1.8x the steps a second of one." in shown
    rows = four(rounds, (0.003, 0.0031, 0.0029), (0.010,) * 3, (0.004,) * 3, (0.0108,) * 3)
    assert training_words.side_by_side(rows)[0].endswith("10.8 ms overlapped, 1.2x faster.")


def test_trials_in_one_process_and_in_many(workers, tmp_path, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(trials.time, "perf_counter", lambda: float(next(ticks)))
    found = side_by_side.measure("trials", told(tmp_path, "--device", "cpu"), run(GPU_MACHINE)).measurements
    expected = [(TRIAL, "warm", "off"), (TRIAL, "warm", "on"), (TRIAL, "fresh", "off")]
    assert [(m.kernel, m.settings.process, m.settings.switches["clear_session"]) for m in found] == expected
    assert [m.on("host-latency").seconds for m in found] == [(1.0, 1.0, 1.0)] * 3
    assert found[0].values == {"total_s": 3.0, "trials": 3.0, "traces": 6.0, "jit_compile": 0.0}
    assert found[0].series["build_s"] == (0.5, 0.5, 0.5)
    assert [worker.closed for worker in workers.every] == [1, 1, 4]  # fresh: after each trial, and at the end
    assert training_words.side_by_side(found) == [
        "MNIST CNN on the CPU: one more trial takes 1.00 s in a process that is there, 1.00 s in its own. 3 trials of one "
        "process trace the step 6 times."
    ]
    assert training_words.side_by_side(found[:2]) == []


def test_the_first_trial_stands_by_itself():
    """9, 4 and 6 s in one process: 5 s each after the first; a process each: 6 s in the middle."""
    row = Row(TRIAL, Training("lenet", 4, 8), Settings())
    taken = [made(row, phases_s={"import": 3.0, "build": 1.0}, values=VALUES)] * 3
    warm, fresh = (
        trials.joined_trials(msgspec.structs.replace(row, settings=Settings(process=process)), taken, [9.0, 4.0, 6.0])
        for process in ("warm", "fresh")
    )
    fresh = msgspec.structs.replace(fresh, settings=Settings(process="fresh"))
    assert (trial_seconds(warm), trial_seconds(fresh)) == (5.0, 6.0)
    (said,) = training_words.side_by_side([warm, fresh])
    assert "takes 5.00 s in a process that is there, 6.00 s in its own" in said
    # they start processes, but that is not what they are asked
    assert training_words.start_sentences([warm, fresh]) == []
    cells = training_table.TrainingTable().cells(warm)
    assert cells[6:9] == ["-"] * 3 and cells[-1].endswith("3 trials one process 5.00 s each")
    assert training_table.TrainingTable().cells(fresh)[-1].endswith("3 trials a process each 6.00 s each")
    row = Row(TRIAL, Training("lenet", 4, 8), Settings())
    taken = [made(row, phases_s=phases, values=VALUES) for phases in ({"import": 3.0, "build": 1.0}, {"build": 2.0})]
    m = trials.joined_trials(row, taken, [9.0, 4.0])
    assert m.series["import_s"] == (3.0, 0.0) and m.series["build_s"] == (1.0, 2.0)
    assert (m.values["total_s"], m.values["traces"], m.phases_s) == (13.0, 4.0, {"import": 3.0, "build": 1.0})


def test_without_a_gpu_its_rows_are_skipped(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "gpu_problem", lambda: "no NVIDIA driver")
    for study in ("teacher", "together"):
        outcome = side_by_side.measure(study, told(tmp_path / study), run(CPU_MACHINE))
        assert {m.status for m in outcome.measurements} == {"skipped"}
        assert outcome.measurements[0].reason == "no GPU here: no NVIDIA driver; --device cpu runs all of it on the CPU"
        assert outcome.exit_code == options.MISSING
    assert workers.asked == []
    found = side_by_side.rows("teacher", told(tmp_path, "--device", "cpu"), CPU_MACHINE)
    assert {row.settings.device for row in found} == {"cpu"}
    assert {row.settings.device for row in side_by_side.rows("trials", told(tmp_path), CPU_MACHINE)} == {"cpu"}


@pytest.mark.parametrize("verb", ["prepare", "window"])
def test_a_failing_party_ends_the_experiment(workers, tmp_path, verb):
    workers.fails[verb] = "no luck"
    outcome = side_by_side.measure("teacher", told(tmp_path), run(GPU_MACHINE))
    assert [m.status for m in outcome.measurements] == ["failed"] * 4
    assert [m.reason for m in outcome.measurements] == ["no luck", "what ran beside it ended: no luck"] * 2
    assert outcome.exit_code == options.FAILED
    assert all(worker.closed for worker in workers.every)


def test_a_step_longer_than_the_window_is_said(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(concurrent, "common_step_seconds", lambda windows: {party: [] for party in windows})
    outcome = side_by_side.measure("together", told(tmp_path), run(GPU_MACHINE))
    assert {m.status for m in outcome.measurements} == {"failed"}
    assert "no step ended within a window of 2.00 s" in outcome.measurements[0].reason


def test_finished_rows_are_kept_and_not_measured_again(workers, tmp_path):
    measuring = told(tmp_path, "--device", "cpu", "--stop-after", "1e-9")
    stopped = side_by_side.measure("trials", measuring, run(GPU_MACHINE))
    assert (stopped.stopped, stopped.left, stopped.measurements) == ("stop-after", 3, [])
    measuring = told(tmp_path, "--device", "cpu", "--resume")
    whole = side_by_side.measure("trials", measuring, run(GPU_MACHINE))
    asked = len(workers.asked)
    again = side_by_side.measure("trials", measuring, run(GPU_MACHINE))
    assert (len(workers.asked), asked) == (9, 9)
    assert again.measurements == [records.shortened(m) for m in whole.measurements]


def test_a_signal_keeps_finished_rows_and_closes_workers(workers, tmp_path, monkeypatch):
    real = FakeWorker.ask

    def ask(self, order, timeout_s):
        if order.row.settings.switches["clear_session"] == "on":
            raise sweep.Stopped("SIGTERM")
        return real(self, order, timeout_s)

    monkeypatch.setattr(FakeWorker, "ask", ask)
    outcome = side_by_side.measure("trials", told(tmp_path, "--device", "cpu"), run(GPU_MACHINE))
    assert (outcome.stopped, outcome.left, outcome.exit_code) == ("SIGTERM", 2, options.TERMINATED)
    assert len(records.read(tmp_path).measurements) == 1
    assert all(worker.closed for worker in workers.every)


def test_a_teacher_takes_the_students_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side, "STUDENT", "lenet")
    assert {row.problem.model for row in side_by_side.rows("teacher", told(tmp_path), GPU_MACHINE)} == {"lenet"}
    assert switches.ordinary(STUDENT)
    for study in (["--device", "cpu"], []):
        for name in ("teacher", "together", "trials"):
            assert not any(map(switches.ordinary, side_by_side.rows(name, told("nowhere", *study), GPU_MACHINE)))


def test_the_plan_names_time_and_processes(tmp_path):
    measuring = told(tmp_path)
    assert side_by_side.seconds("trials", measuring, GPU_MACHINE) == 2 * 3 * (10 + 10 + 25)
    assert side_by_side.seconds("teacher", measuring, GPU_MACHINE) == pytest.approx(4 * 4 * (2 * 1.3 + 0.5) + 4 * 20)
    planned = forecast.forecast([], measuring, ["teacher"], GPU_MACHINE)
    lines = forecast.lines(planned, rigorous=False)
    assert [line.split()[0] for line in lines[:4]].count("inference/keras/call") == 2
    named = [forecast.name(r) for r in side_by_side.rows("trials", told(tmp_path, "--device", "cpu"), GPU_MACHINE)]
    assert [name.endswith(" each trial in a fresh process") for name in named] == [False, False, True]


def order(verb: str, row: Row) -> Order:
    return Order(verb, row, Limits(visit_s=0.05))


def test_a_window_of_answers_in_a_real_worker(train):
    # of no other test
    row = Row("inference/keras/call", Inference("mlp-8-4x1-3", 4), Settings(switches={"beside": "nothing"}))
    early = train.worker.ask(order("window", row), 60)
    assert (early.status, early.reason) == ("skipped", "the row was not prepared in this process")
    prepared = train.worker.ask(order("prepare", row), 120)
    assert (prepared.status, prepared.reason, prepared.check) == ("ok", "", "bound")
    beside = msgspec.structs.replace(row, settings=Settings(switches={"beside": "student"}))
    m = train.worker.ask(order("window", beside), 60)
    assert m.status == "ok"
    begins, ends = m.series["begin_s"], m.series["end_s"]
    assert all(b < e for b, e in zip(begins, ends, strict=True))
    assert all(e <= b for e, b in zip(ends, begins[1:], strict=False))
    assert ends[-1] - begins[0] >= 0.05 > ends[-2] - begins[0]
    assert any(stamp != round(stamp, 6) for stamp in begins + ends)  # on a machine that is up for long, too
    assert m.values["steps"] >= 1


def test_real_trials_trace_anew_each_time(train):
    row = Row(TRIAL, Training("lenet", 4, 8), Settings(switches={"clear_session": "off"}))
    first, second = (train.worker.ask(order("trial", row), 120) for _ in range(2))
    assert (second.status, second.reason, second.check) == ("ok", "", "weights")
    assert first.values["traces"] == second.values["traces"] >= 1
    assert first.values["final_loss"] == pytest.approx(second.values["final_loss"], rel=1e-4)
    assert second.values["functions"] > first.values["functions"]
    assert {"data", "clear", "build", "first_call"} <= set(second.phases_s) and second.values["rss_bytes"] > 2**20
    row = Row(TRIAL, Training("nobody", 4, 8), Settings())
    m = train.worker.ask(order("trial", row), 60)
    assert (m.status, "unknown model 'nobody'" in m.reason) == ("skipped", True)
    assert one_row.obey(Order("dance", row)).status == "failed"


def test_student_and_teacher_need_rows_alone():
    rows = four(rounds, *[(0.01, 0.01, 0.01)] * 4)
    assert len(training_words.side_by_side(rows)) == 1
    for missing in range(4):
        assert training_words.side_by_side([row for i, row in enumerate(rows) if i != missing]) == []
