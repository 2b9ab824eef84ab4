"""Plateaus of memory bandwidth, found in curves whose levels are known."""

import itertools
from types import SimpleNamespace

import fake_measurements as fake
import msgspec
import pytest
from fake_measurements import STREAM_SIZES, stairs, stream_curve

from analysis.roofline import memory_levels

KIB, MIB, GIB = 2**10, 2**20, 2**30
SAPPHIRE = fake.GPU_MACHINE  # L1d 48 KiB and L2 2 MiB a core, L3 105 MiB, 16 cores; a GPU with 60 MiB of L2
ONE_CORE = stairs((48 * KIB, 400e9), (2 * MIB, 150e9), (105 * MIB, 36e9), last=12e9)


def found(rows, machine=SAPPHIRE):
    return {p.name: p for p in memory_levels.plateaus(rows, machine)}


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.06])
def test_four_levels_are_recovered_with_their_bandwidths(spread):
    seen = found(stream_curve("stream/numba/loop", ONE_CORE, STREAM_SIZES, spread=spread))
    assert list(seen) == ["L1", "L2", "L3", "DRAM"]
    for (name, p), rate in zip(seen.items(), (400e9, 150e9, 36e9, 12e9), strict=True):
        assert p.rate.value == pytest.approx(rate, rel=0.02 if spread < 0.05 else 0.05), name
        assert p.rate.low <= rate * 1.001 and p.rate.high >= rate * 0.999, name
    # 64 KiB, 2 and 4 MiB, 128 MiB lie between the levels
    spans = [(round(p.from_bytes / KIB), round(p.to_bytes / KIB), p.points) for p in seen.values()]
    assert spans == [(8, 32, 3), (128, 1024, 4), (8192, 65536, 4), (256 * 1024, 2048 * 1024, 4)]


def test_noise_and_slopes_make_no_levels():
    flat = stream_curve("stream/numba/loop", lambda n: 1e10, STREAM_SIZES[6:], spread=0.08)
    (one,) = memory_levels.plateaus(flat, None)
    assert one.points == len(STREAM_SIZES) - 6 and one.rate.value == pytest.approx(1e10, rel=0.05)
    busy = stream_curve("stream/numba/loop", lambda n: 1e10, STREAM_SIZES, spread=0.9)  # other programs ran
    assert memory_levels.plateaus(busy, SAPPHIRE) == ()
    falling = stream_curve("stream/numba/loop", lambda n: 1e15 / n**0.4, STREAM_SIZES)
    assert memory_levels.plateaus(falling, SAPPHIRE) == ()
    gentle = stream_curve("stream/numba/loop", lambda n: 1e12 / n**0.14, STREAM_SIZES)  # 9 % from size to size
    assert memory_levels.plateaus(gentle, SAPPHIRE) == ()
    assert memory_levels.plateaus(stream_curve("stream/numba/loop", ONE_CORE, STREAM_SIZES[-3:]), SAPPHIRE) == ()
    two_in_l1 = stream_curve("stream/numba/loop", ONE_CORE, STREAM_SIZES[1:])
    assert "L1" not in found(two_in_l1)


def test_without_a_flat_end_dram_has_no_plateau():
    law = stairs((48 * KIB, 400e9), (2 * MIB, 150e9), last=36e9)
    short = stream_curve("stream/numba/loop", law, [n for n in STREAM_SIZES if n <= 64 * MIB])
    assert list(found(short)) == ["L1", "L2", "L3"]
    steep = stream_curve("stream/numba/loop", lambda n: law(n) if n <= 64 * MIB else 36e9 * 64 * MIB / n, STREAM_SIZES)
    assert list(found(steep)) == ["L1", "L2", "L3"]
    claims = msgspec.structs.replace(fake.CPU_MACHINE, caches_bytes={"L1d": 32 * KIB, "L2": 2 * MIB, "L3": 480 * MIB})
    law = stairs((32 * KIB, 300e9), (2 * MIB, 100e9), (40 * MIB, 40e9), last=9e9)
    rows = stream_curve("stream/numba/loop", law, [n for n in STREAM_SIZES if n <= 512 * MIB])
    seen = found(rows, claims)
    assert list(seen)[-2:] == ["L3", "L3 or DRAM"] and seen["L3 or DRAM"].rate.value == pytest.approx(9e9)
    whole = stream_curve("stream/numba/loop", law, STREAM_SIZES)
    assert list(found(whole, claims))[-1] == "DRAM"  # 2 GiB cannot lie in 480 MiB


@pytest.mark.parametrize(
    ("largest", "names"),
    [
        ((40, 900, 90_000), ["L1", "L2", "DRAM"]),
        ((20, 40, 90_000), ["L1", "L2", "DRAM"]),  # two in the smallest cache, none in the next
        ((20, 40, 900, 90_000), ["L1", "", "L2", "DRAM"]),  # the next cache has a run of its own
        ((900, 5_000, 14_000), ["L2", "L3", "L3 or DRAM"]),
        ((5_000, 9_000, 14_000), ["L3", "L3 or DRAM", ""]),
    ],
)
def test_a_level_is_its_smallest_possible_cache(largest, names):
    """A cache may hold half as much again as it claims: 48, 1,536 and 15,360 bytes."""
    claimed = (("L1", 32), ("L2", 1024), ("L3", 10_240))
    runs = [[SimpleNamespace(nbytes=nbytes)] for nbytes in largest]
    assert memory_levels._level_names("cpu", runs, claimed) == names


def test_core_caches_count_per_thread_l3_once():
    assert memory_levels.levels(SAPPHIRE, "cpu", 4) == (("L1", 192 * KIB), ("L2", 8 * MIB), ("L3", 105 * MIB))
    assert memory_levels.levels(SAPPHIRE, "cpu", 64)[0] == ("L1", 768 * KIB)  # 16 cores
    assert memory_levels.levels(SAPPHIRE, "gpu:0") == (("L2", 60 * MIB),)
    assert memory_levels.levels(SAPPHIRE, "gpu:7") == memory_levels.levels(None, "cpu", 1) == ()
    law = stairs((192 * KIB, 1.5e12), (8 * MIB, 600e9), (105 * MIB, 120e9), last=40e9)
    seen = found(stream_curve("stream/numba/loop", law, STREAM_SIZES, threads=4))
    assert seen["L1"].to_bytes >= 127 * KIB and seen["L2"].threads == 4


def test_a_gpu_has_l2_and_hbm_levels():
    machine = msgspec.structs.replace(SAPPHIRE, gpus=(msgspec.structs.replace(fake.H200, l2_bytes=50 * MIB),))

    def law(n):
        rate = 7e12 if n <= 34 * MIB else 5.5e12 if n < 100 * MIB else 4.2e12
        # flat at first, then rising: calls, not bytes
        return min(rate, 5e10 if n <= 40 * KIB else rate * n / (4 * MIB))

    rows = stream_curve("stream/cupy/wide", law, STREAM_SIZES, None)
    seen = {p.name: p for p in memory_levels.plateaus(rows, machine)}
    assert list(seen) == ["L2", "HBM"] and seen["L2"].rate.value == pytest.approx(7e12)
    assert seen["HBM"].rate.value == pytest.approx(4.2e12)
    assert seen["HBM"].from_bytes == pytest.approx(128 * MIB, rel=0.01) and seen["L2"].threads is None
    rows = stream_curve("stream/cupy/wide", lambda n: 4e12, STREAM_SIZES[-5:], None)
    assert {round(p.rate.value) for p in memory_levels.plateaus(rows, SAPPHIRE)} == {4 * 10**12}


def test_which_rows_count_at_each_size():
    slow, fast = (
        stream_curve(f"stream/numba/{name}", law, STREAM_SIZES)
        for name, law in (
            ("loop", lambda n: ONE_CORE(n) * (0.7 if n > 100 * MIB else 1.0)),
            ("nontemporal", lambda n: ONE_CORE(n) * (1.0 if n > 100 * MIB else 0.3)),
        )
    )
    seen = found([*slow, *fast])
    assert seen["DRAM"].rate.value == pytest.approx(12e9)
    assert [seen[name].kernels for name in ("DRAM", "L1")] == [("stream/numba/nontemporal",), ("stream/numba/loop",)]
    (m, *_) = stream_curve("stream/numba/loop", ONE_CORE, STREAM_SIZES)
    cold = msgspec.structs.replace(m, settings=msgspec.structs.replace(m.settings, cache="cold"))
    assert memory_levels.curves([cold, fake.row("stream/numba/loop", fake.Stream("relu", MIB), 1e-6, threads=1)]) == {}
    rows = stream_curve("stream/numba/loop", ONE_CORE, STREAM_SIZES)
    levels = memory_levels.spans(memory_levels.plateaus(rows, SAPPHIRE))
    spans = [(span.plateau.name, span.first_bytes, span.last_bytes) for span in levels]
    assert [name for name, *_ in spans] == ["L1", "L2", "L3", "DRAM"]
    for (_, _, end), (name, start, _) in itertools.pairwise(spans):
        assert start == end + 1, name
    assert 64 * KIB < spans[0][2] < 128 * KIB  # the transition at 64 KiB is L1's
    assert spans[3][2] == pytest.approx(2 * GIB, rel=1e-6)


@pytest.mark.parametrize("change", [{"status": "failed"}, {"mode": "roundtrip"}])
def test_failed_and_copying_rows_do_not_count(change):
    curve = stream_curve("stream/numba/loop", ONE_CORE, STREAM_SIZES)
    assert memory_levels.curves([fake.row(m.kernel, m.problem, 1e-9, threads=1, **change) for m in curve]) == {}
