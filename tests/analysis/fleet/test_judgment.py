"""A fleet's devices against their baselines and each other, worked out by hand, and on stored rows with planted losses."""

import json
import math

import fake_measurements as fake
import msgspec
import numpy as np
import pytest
from fake_fleet import READS, nodes, planted, reads, stored_rows, write

from analysis.fleet import command, devices, judgment
from analysis.text import machines as fleet_words
from kernels.problems import Peak, Stream
from workloads.records import Measurement, baselines


@pytest.mark.parametrize(
    ("before", "now", "is_cause"),
    [(0, 4, True), (0, 2, True), (0, 1, False), (1, 2, True), (2, 4, False), (4, 4, False), (4, 0, False)],
)
def test_a_new_flag_on_half_is_a_cause(before, now, is_cause):
    def rows(flagged: int) -> list[Measurement]:
        (plain, *_), (capped, *_) = reads("gpu:0"), reads("gpu:0", flags=("power-cap",))
        return [capped] * flagged + [plain] * (4 - flagged)

    assert judgment.causes(rows(before), rows(now)) == ("at its power limit" if is_cause else "")


def test_only_eight_like_devices_judge_each_other(tmp_path):
    nodes(tmp_path, {(1, 2): 1 / 0.94})
    judged = judgment.judge(devices.devices(tmp_path), [])
    expected = ["gpu-2 of node-1: 6.00 % [6.00, 6.00] below the fleet's median in HBM read"]
    assert [fleet_words.finding(f) for f in judged.flagged] == expected
    assert len(judged.findings) == 8 and judged.unjudged == ()
    seven = judgment.judge(judged.devices[:7], [])
    assert seven.findings == () and {why for _, why in seven.unjudged} == {"no baseline, 7 alike are fewer than 8"}


def test_a_device_within_the_spread_is_not_slow(tmp_path):
    """Slow-downs of 0, 2, ..., 14 %: the median is 7 %, the median deviation 4 %, so one of 14 % is 1.2 deviations off."""
    nodes(tmp_path, {(i // 4, i % 4): 1 + 0.02 * i for i in range(8)})
    judged = judgment.judge(devices.devices(tmp_path), [])
    worst = max(judged.findings, key=lambda f: f.below.value)
    logs = np.log([1 + 0.02 * i for i in range(8)])
    sigma = 1.4826 * np.median(abs(logs - np.median(logs)))
    assert worst.beyond == pytest.approx((logs[7] - np.median(logs)) / sigma) and 1 < worst.beyond < 1.3
    assert worst.below.value == pytest.approx(1 - math.exp(np.median(logs)) / 1.14) and worst.below.low > 0.03
    assert not judged.flagged


def test_a_loss_needs_its_whole_interval_past_it():
    exact = [judgment.Estimate(r, r, r) for r in (1.05, 1.05, 1.05)]
    assert judgment.below(exact).value == pytest.approx(1 - 1 / 1.05)
    noisy = [judgment.Estimate(r, r - 0.03, r + 0.03) for r in (1.05, 1.05, 1.05)]
    assert judgment.below(noisy).low == pytest.approx(1 - 1 / 1.02)
    # Three busy SMs of an H200: one product lost nothing, one a tenth, one waits a whole wave of tiles longer.
    apart = [judgment.Estimate(r, r * 0.99, r * 1.01) for r in (1.00, 1.10, 2.00)]
    assert judgment.below(apart).low == pytest.approx(1 - 1 / (1.10 * 0.99))
    one_of_three = [judgment.Estimate(r, r, r) for r in (1.00, 1.00, 2.00)]
    assert judgment.below(one_of_three).low == 0.0
    device = devices.Device(
        node="n", device="gpu:0", uuid="GPU-1", model="H200", machine=fake.GPU_MACHINE, rows={}, broken=()
    )
    for against, low, beyond, claimed in (
        *(("baseline", 0.02, 0.0, False), ("baseline", 0.031, 0.0, True)),
        *(("fleet", 0.031, 3.4, False), ("fleet", 0.031, 3.6, True)),
    ):
        found = judgment.Deviation(
            device=device,
            quantity="HBM read",
            against=against,
            rows=3,
            below=judgment.Estimate(0.06, low, 0.09),
            least=0.03,
            beyond=beyond,
        )
        assert found.flagged is claimed


def test_quantities_are_known_by_their_limit(tmp_path):
    here = fake.GPU_MACHINE
    square = lambda n, seconds, **how: fake.row("matmul/cupy/cublas", fake.square(n), {"device": seconds}, **how)  # noqa: E731
    named = {
        "HBM read": reads("gpu:0")[0],
        "cache triad": fake.row("stream/cupy/wide", Stream("triad", 2**20), {"device": 1e-6}),
        # twice the last cache, of which a part is still there
        "cache read": fake.row("stream/cupy/wide", Stream("read", 2 * here.gpus[0].l2_bytes), {"device": 1e-5}),
        "memory triad": fake.row("stream/numba/loop", Stream("triad", 2**30), 1e-2, threads=1),
        "float32 products": square(4096, 3e-3),
        "short float32 products": square(64, 5e-6),
        "float32 products with copies": square(4096, 3e-3, mode="roundtrip"),
        "float64 arithmetic": fake.row("peak/cupy/fma", Peak("float64", 10**13), {"device": 0.3}),
        "pinned h2d copies": fake.transfer_rows()[13],
        "short h2d copies": fake.transfer_rows()[0],
        "launches": fake.launch_rows()[0],
    }
    assert {what: devices.quantity(m, here) for what, m in named.items()} == {what: what for what in named}
    once = fake.row("stream/cupy/wide", READS[0], {"device": 1e-3}, process="fresh")
    assert devices.quantity(once, here) == ""
    two, rows = fake.with_gpus("GPU-a", "GPU-b"), [*reads("gpu:0"), *reads("gpu:1", 2.0)]
    write(tmp_path / "old", two, rows, said="--device all")
    write(tmp_path / "new" / "n1", fake.with_gpus("GPU-b"), reads("gpu:0", 2.0))
    write(tmp_path / "new" / "n2", fake.with_gpus("GPU-a"), reads("gpu:0", 2.0))
    judged = judgment.judge(devices.devices(tmp_path / "new"), [tmp_path / "old"])
    expected = {("n1", False): 0.0, ("n2", True): 0.5}
    assert {(f.device.node, f.flagged): round(f.below.value, 9) for f in judged.findings} == expected


def test_a_cpu_claim_must_exceed_noise_between_runs(tmp_path):
    """Nothing is stored: 20 %."""

    def cpu(slower):
        return [fake.row("stream/numba/loop", Stream("triad", 2**30 * i), slower * i, threads=1) for i in (1, 2, 4)]

    here = msgspec.structs.replace(fake.CPU_MACHINE, key="some-other-machine")
    write(tmp_path / "old" / "n1", here, cpu(1.0))
    for slower, flagged in ((1 / 0.81, False), (1 / 0.79, True)):
        write(tmp_path / f"new{flagged}" / "n1", here, cpu(slower))
        judged = judgment.judge(devices.devices(tmp_path / f"new{flagged}"), [tmp_path / "old"])
        assert [f.flagged for f in judged.findings] == [flagged]


def found(rows, seed: int, slower: float, monkeypatch) -> set[str]:
    before, now = planted(rows, seed, slower)
    monkeypatch.setattr(judgment, "readable", lambda known: [tuple(before)])
    return {fleet_words.name(f.device) for f in judgment.judge(now, ["before"]).flagged}


def test_clean_runs_raise_no_flag_six_percent_does(monkeypatch):
    rows = stored_rows()[::7]
    assert len(rows) >= 40
    assert [found(rows, seed, 1.0, monkeypatch) for seed in range(5)] == [set()] * 5
    assert [found(rows, seed, 1.06, monkeypatch) for seed in range(2)] == [{"gpu-0 of node-7"}] * 2


def test_a_baseline_run_prints_in_every_format(tmp_path, capsys):
    nodes(tmp_path / "run", {}, 1)
    assert command.main([str(tmp_path / "run"), "--save", "clean"]) == 0
    assert (baselines.folder("clean") / "node-0" / "stream.jsonl").exists()
    capsys.readouterr()
    assert command.main([str(tmp_path / "run"), "--format", "json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert len(records) == 4 and set(records[0]) == set(judgment.HEAD) and records[0]["against"] == "baseline"
    for kind in ("csv", "md", "table"):
        assert command.main([str(tmp_path / "run"), "--format", kind, "-v"]) == 0
        assert "HBM read" in capsys.readouterr().out
