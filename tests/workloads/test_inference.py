"""Answers of models: checked and timed in the suite's TensorFlow process, and everything around it worked out by hand."""

import json

from fake_answers import CALL, SERVE, answered
from fake_measurements import CPU_MACHINE, GPU_MACHINE

from analysis.blocks import markdown
from analysis.text import inference as inference_words
from analysis.training import inference as said
from kernels import networks
from kernels.problems import Inference
from workloads import inference, records
from workloads.records import Samples, Settings
from workloads.records import settings as switches


def test_the_products_of_an_answer_are_counted():
    assert Inference("mlp-3-5x1-2", 7).flops == 7 * 2 * (3 * 5 + 5 * 2)
    convolutions = 32 * 32 * 32 * 27 + 16 * 16 * 64 * 288 + 14 * 14 * 64 * 576
    expected = 2 * (convolutions + 3136 * 512 + 512 * 10)
    assert networks.inference_flops(networks.find("cifar10-cnn")) == expected
    assert Inference("somebody:model", 7).flops == 0


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


def test_joules_use_the_counters_at_hand(monkeypatch, tmp_path):
    """By a clock that a call moves by a second, on a board that uses 250 J in each."""
    state, waits = SimpleNamespace(now=0.0, joules=1000.0), []

    def call():
        state.now += 1
        state.joules += 250

    monkeypatch.setattr(energy, "WINDOW_S", 2.5)
    monkeypatch.setattr(energy, "time", SimpleNamespace(perf_counter=lambda: state.now))
    used = energy.used(lambda: state.joules, call, lambda: waits.append(state.now), 5)
    assert used == {"joules_per_sample": 50.0, "watts": 250.0}  # three calls of 5 samples a window, 750 J in 3 s
    assert waits == [0, 3, 3, 6, 6, 9]
    assert energy.used(lambda: 7.0, call, lambda: None, 5) == {}
    assert energy.used(lambda: None, call, lambda: None, 5) == {}

    def millijoules(handle):
        return {"the GPU-abc": 5_000, "number 1": 7_000}[handle]

    by_uuid, by_index = (lambda uuid: f"the {uuid}"), (lambda i: f"number {i}")
    energy_of = {"nvmlDeviceGetTotalEnergyConsumption": millijoules}
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetHandleByUUID=by_uuid, nvmlDeviceGetHandleByIndex=by_index, **energy_of))
    for visible in ("GPU-abc", "1"):
        read, of = energy.counter("gpu:0", {"CUDA_VISIBLE_DEVICES": visible})
        assert (read(), of) == ({"GPU-abc": 5.0, "1": 7.0}[visible], "NVML, whole board")
    assert energy.counter("gpu:1", {})[0]() == 7.0
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetHandleByIndex=lambda i: "h"))
    assert energy.counter("gpu:0", {}) == (None, energy.NO_NVML)
    use_nvml(monkeypatch, None)
    assert energy.counter("gpu:0", {}) == (None, energy.NO_NVML)
    folder = "sys/class/powercap/intel-rapl:"
    packages = {"0/name": "package-0\n", "0/energy_uj": "9000000\n", "0/max_energy_range_uj": "10000000"}
    packages |= {"1/name": "package-1", "1/energy_uj": "0", "1/max_energy_range_uj": "10000000"}
    others = {"0:0/name": "core", "0:0/energy_uj": "5", "2/name": "psys", "2/energy_uj": "1"}
    write(tmp_path, {folder + name: text for name, text in (packages | others).items()})
    monkeypatch.setattr(energy.cpu, "ROOT", tmp_path)
    read, of = energy.counter("cpu")
    assert (read(), of) == (0.0, "RAPL, CPU packages")
    write(tmp_path, {f"{folder}0/energy_uj": "1000000", f"{folder}1/energy_uj": "500000"})
    assert read() == pytest.approx(2.5)  # 2 J past the end of the first, 0.5 J of the second
    write(tmp_path, {f"{folder}0/energy_uj": "4000000"})
    assert read() == pytest.approx(5.5)  # since the first reading
    monkeypatch.setattr(energy.cpu, "ROOT", tmp_path / "nothing")
    assert energy.counter("cpu") == (None, energy.NO_RAPL)


def planned(words: str, here):
    return inference.parse(words.split()).rows(here)


def test_rows_follow_model_batch_and_device():
    found = planned("--model lenet peaks --batch 1,8", GPU_MACHINE)
    ways = [("predict", "roundtrip"), ("call", "resident"), ("call", "roundtrip")]
    expected = [("cpu", model, batch, *way) for model in ("lenet", "peaks") for batch in (1, 8) for way in ways]
    kernels = [(r.kernel.rpartition("/")[2], r.settings.mode) for r in found]
    cases = [(r.settings.device, r.problem.model, r.problem.batch) for r in found]
    assert [(*case, *way) for case, way in zip(cases, kernels, strict=True)][::2] == expected
    assert [r.settings.device for r in found] == ["cpu", "gpu:0"] * 12
    expected = [1, 4, 16, 64, 256]
    assert [r.problem.batch for r in planned("--variants predict", CPU_MACHINE)] == expected
    seeds = planned("--model seed --batch 1 --modes resident", CPU_MACHINE)
    assert [r.problem.model for r in seeds] == list(inference.SEEDS) and {r.kernel for r in seeds} == {CALL}
    words = "--model lenet --batch 1 4 --onednn on off --variants call --modes roundtrip"
    found = [(r.settings.device, r.problem.batch) for r in planned(words, GPU_MACHINE)]
    assert found == [("cpu", 1), ("cpu", 1), ("gpu:0", 1), ("cpu", 4), ("cpu", 4), ("gpu:0", 4)]
    found = planned("--variants serve --in-flight 1 8 --onednn on off --jit on", GPU_MACHINE)
    sides = [("cpu", {"TF_ENABLE_ONEDNN_OPTS": "1"}), ("cpu", {"TF_ENABLE_ONEDNN_OPTS": "0"}), ("gpu:0", {})]
    assert [(r.settings.device, dict(r.settings.switches)) for r in found] == [
        (device, {"data": "synthetic", "jit_compile": "on", **flag, **flying})
        for flying in ({}, {"in_flight": "8"})
        for device, flag in sides
    ]
    assert all(switches.checked_keras(r) for r in found)


def test_the_command_from_flags_to_sentences_and_again(one_tensorflow, tmp_path, capsys):
    folder = tmp_path / "run"
    words = "--model lenet --batch 1 8 --variants call --device cpu --fast --min-time 0.01 -q -o"
    flags = [*words.split(), str(folder)]
    assert inference.main(flags) == 0
    out = capsys.readouterr().out
    assert "lenet, array to array: from batch 1 to 8 the samples/s become " in out
    assert "No GPU was measured on this machine" in out
    read = records.read(folder).measurements
    assert [(m.kernel, m.problem.batch, m.status) for m in read] == [(CALL, b, "ok") for b in (1, 1, 8, 8)]
    assert inference.main([*flags, "--resume", "--format", "json"]) == 0
    table = json.loads(capsys.readouterr().out)
    expected = [("lenet", 1, "resident", "data=synthetic", None), ("lenet", 1, "roundtrip", "data=synthetic", None)]
    assert [(r["model"], r["batch"], r["mode"], r["switches"], r["joules_per_sample"]) for r in table[:2]] == expected
    assert table[0]["flops"] == Inference("lenet", 1).flops
    assert records.read(folder).measurements == read


def two_sides() -> list:
    """CPU: 1 ms and 1 ms a sample; GPU: 4 ms a call and 0.25 ms a sample, so they meet at batch 4 (5 ms each)."""
    cpu = [answered(b, 1e-3 + 1e-3 * b) for b in (1, 2, 8, 16)]
    metered = [{"joules_per_sample": 2.0 / b, "watts": 100.0} for b in (1, 2, 8, 16)]
    how = {"device": "gpu:0", "notes": {"energy": "NVML, whole board"}}
    return cpu + [answered(b, 4e-3 + 0.25e-3 * b, values=v, **how) for b, v in zip((1, 2, 8, 16), metered, strict=True)]


def test_the_batch_from_which_the_gpu_wins():
    ((case, way, answer),) = said.crossovers(two_sides())
    assert (case.model, way, answer.kind) == ("lenet", said.ROUNDTRIP, "gpu-from")
    assert 2 < answer.crossings[0].at.value < 8 and abs(answer.crossings[0].at.value - 4) < 0.5
    added = inference.parse([]).refine(GPU_MACHINE, two_sides())
    assert [(r.settings.device, r.problem.batch) for r in added] == [("cpu", 4), ("gpu:0", 4)]
    more = [answered(4, 5.01e-3), answered(4, 5e-3, device="gpu:0")]
    assert {r.problem.batch for r in inference.parse([]).refine(GPU_MACHINE, two_sides() + more)} <= {3, 5, 6}
    beside = answered(4, 1e-9, device="gpu:0", switches={"beside": "student"})
    other = answered(4, 1e-9, device="gpu:0", switches={"precision": "mixed_float16"})
    ((_, _, answer),) = said.crossovers([*two_sides(), beside, other])
    assert [p.n for p in answer.points] == [1, 2, 8, 16]
    assert {c.precision for c in said.cases([other])} == {"mixed_float16"} and said.cases([beside]) == {}


def test_rates_compare_at_the_largest_common_batch():
    clocks = {"host-latency": 6e-3, "host-throughput": 1e-3}
    served = answered(1, clocks, SERVE, device="gpu:0", switches={"in_flight": "8"})
    assert inference_words.lines([*two_sides(), served], GPU_MACHINE) == [
        "lenet, array to array: the GPU wins from batch 4. "
        "Batch 16: 2,000 samples/s on the GPU, 941 on the CPU, GPU 2.1x faster.",
        "lenet, array to array: from batch 1 to 16 the samples/s become 8.5x on the GPU and 1.9x on the CPU.",
        "lenet, single requests on the GPU: 1,000 samples/s with 8 in flight.",
    ]
    at_once = [(1, 1e-3, "cpu"), (8, 2e-3, "cpu"), (8, 1e-3, "gpu:0"), (64, 9e-3, "cpu")]
    rows = [answered(batch, {"host-latency": s}, device=device) for batch, s, device in at_once]
    (first,) = [line for line in inference_words.lines(rows) if " samples/s on the " in line]
    assert first.endswith(" Batch 8: 8,000 samples/s on the GPU, 4,000 on the CPU, GPU 2.0x faster.")


def test_the_table_and_page_show_rates_and_failures(capsys):
    table = inference.InferenceTable()
    served = answered(1, {"host-latency": 6e-3, "host-throughput": 1e-3}, SERVE, switches={"in_flight": "8"})
    table.shown(served)
    table.shown(answered(1, None, status="failed", reason="no luck"))
    table.shown(answered(1, None, status="skipped", reason="left out"))
    _, line, lost = capsys.readouterr().out.splitlines()
    cells = dict(zip(table._table.heads, table.cells(served), strict=True))
    assert (cells["ms/call"], cells["queued ms"], cells["samples/s"]) == ("6.00", "1.00", "1000")
    assert "in_flight=8" in line
    assert lost.endswith("no luck")
    from analysis.report.sections import inference as page

    lines = markdown(page.section(two_sides(), ["A rate that the answer has no room for."]))
    assert "- A rate that the answer has no room for." in lines
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| lenet")]
    assert [r[1] for r in rows] == ["1", "2", "8", "16"]
    assert (rows[0][3], rows[0][5], *rows[0][7:]) == ("2.00 ms", "4.25 ms", "500", "235", "0.471", "2.00")
    assert page.section([]) == []


def test_served_requests_show_fewest_and_fastest_in_flight():
    """2 requests in 2 ms with one in flight are 1,000 a second, 4,000 with four, 3,000 with eight."""

    def served(in_flight: int, seconds: float):
        taken = Samples("host-throughput", (seconds,) * 3, 1, (1,) * 3, "3 visits")
        settings = Settings("gpu:0", switches={"in_flight": str(in_flight)} if in_flight > 1 else {})
        return records.Measurement(SERVE, Inference("lenet", 2), settings, "ok", samples=(taken,))

    rows = [served(8, 2 / 3000), served(1, 2e-3), served(4, 0.5e-3)]
    (told,) = inference_words.serving_sentences(
        said.InferenceCase(model="lenet", dtype="float32", precision="float32"), rows
    )
    assert "1000 samples/s with 1 in flight and 4000 samples/s with 4 in flight" in told.replace(",", "")
