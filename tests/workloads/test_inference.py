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
    table.add(served)
    table.add(answered(1, None, status="failed", reason="no luck"))
    table.add(answered(1, None, status="skipped", reason="left out"))
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
