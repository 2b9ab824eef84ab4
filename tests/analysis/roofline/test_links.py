"""Laws of links found again through jumps and noise; constants of launches from rows whose slopes are known."""

import math

import msgspec
import numpy as np
import pytest
import stored_runs
from fake_measurements import row

from analysis.roofline import data_sheets, links
from analysis.stats import Estimate
from analysis.units import bytes_rate
from kernels.problems import Transfer

SIZES = [1 << power for power in range(2, 31)]
PINNED = "transfer/cupy/memcpy_async"


def copies(law, sizes=SIZES, direction="h2d", memory="pinned", kernel=PINNED, spread=0.0, **fields):
    return [row(kernel, Transfer(direction, n, memory), float(law(n)), spread=spread, **fields) for n in sizes]


def straight(n):
    return 10e-6 + n / 50e9


def h200(n):
    """Like an H200's pinned copies: 10 µs at first, 15 GB/s at 256 KiB, 47 at 4 MiB, 55.3 at last."""
    return 9.8e-6 + n / 55.3e9 + 3.5e-6 * (1 - math.exp(-n / (150 << 10)))


def stepped(n):
    """A driver that changes its way at 64 KiB: cheap below, then 6 µs more."""
    return (5e-6 if n <= 65536 else 11e-6) + n / 12e9


def piece(low: float, high: float, latency_s: float, s_per_byte: float, error: float = 0.0) -> links.Piece:
    return links.Piece(low=low, high=high, latency_s=latency_s, s_per_byte=s_per_byte, error=error)


def test_the_median_of_repeated_sizes_counts():
    again = [msgspec.structs.replace(m, notes={"again": "1"}) for m in copies(lambda n: 3 * straight(n), SIZES[-1:])]
    quick = [msgspec.structs.replace(m, notes={"again": "2"}) for m in copies(lambda n: straight(n) / 9, SIZES[-1:])]
    assert one([*copies(straight), *again, *quick]).bandwidth.value == one(copies(straight)).bandwidth.value


def one(rows, clock="host-latency"):
    (link,) = [x for x in links.fits(rows) if x.clock == clock]
    return link


def test_a_straight_line_is_one_piece():
    link = one(copies(straight))
    assert len(link.pieces) == 1 and link.latency.value == pytest.approx(10e-6)
    assert link.bandwidth.value == pytest.approx(50e9)
    assert link.half_bytes.value == pytest.approx(500_000)  # 10 µs * 50 GB/s
    assert link.seconds(1_000_000).value == pytest.approx(30e-6) and (link.low, link.high) == (4, 1 << 30)
    assert not link.extrapolates(4) and not link.extrapolates(1 << 30)
    assert link.extrapolates(3) and link.extrapolates((1 << 30) + 1)
    assert link.seconds(1 << 31).value == pytest.approx(straight(1 << 31)), "the last piece goes on"
    link = one(copies(straight, SIZES[20:]))
    assert link.half_bytes is None
    latency, slope = links._line(np.array([4.0, 8.0]), np.array([11e-6, 10e-6]))
    assert slope == 0 and 10e-6 < latency < 11e-6
    assert links._line(np.array([10.0, 30.0]), np.array([2.0, 4.0])) == pytest.approx((1.0, 0.1))


@pytest.mark.parametrize("law", [straight, h200])
@pytest.mark.parametrize("spread", [0.0, 0.01])
def test_the_law_holds_at_unseen_sizes(law, spread):
    rows = copies(law, spread=spread)
    for fitted in (rows, [m for m in rows if m.problem.nbytes in SIZES[::2]]):
        seen = links.errors(one(fitted), rows)
        assert [n for n, *_ in seen] == SIZES
        for n, predicted, measured, error in seen:
            assert error == pytest.approx(abs(predicted - measured) / measured)
            assert error <= (0.10 if 16 << 10 <= n <= 4 << 20 else 0.05), (n, predicted, measured)


def test_pieces_join_without_a_gap():
    """So the pieces are no ornament: one line over the same points misses the target."""
    one_piece = links._error(np.array(SIZES, float), np.array([h200(n) for n in SIZES]))
    link = one(copies(h200))
    assert one_piece > 0.10 > 3 * max(e for *_, e in links.errors(link, copies(h200))) and len(link.pieces) > 1
    link = one(copies(stepped))
    assert max(e for *_, e in links.errors(link, copies(stepped))) < 0.02
    for a, b in zip(link.pieces, link.pieces[1:], strict=False):
        assert a.high == b.low and a.seconds(a.high) == pytest.approx(b.seconds(b.low))
    assert link.latency.value == pytest.approx(5e-6) and link.bandwidth.value == pytest.approx(12e9)
    between = link.seconds(100_000).value
    assert stepped(65536) < between < stepped(131072), "between two sizes, between their times"


def test_intervals_hold_the_truth_and_grow_with_noise():
    calm, loud = (one(copies(straight, spread=s)) for s in (0.002, 0.03))
    for link in (calm, loud):
        for found, truth in ((link.latency, 10e-6), (link.bandwidth, 50e9), (link.half_bytes, 5e5)):
            assert found.low <= truth * 1.01 and found.high >= truth * 0.99
    assert loud.bandwidth.noise > 3 * calm.bandwidth.noise > 0 and loud.half_bytes.noise > 3 * calm.half_bytes.noise > 0
    assert len(loud.pieces) <= 3, "noise makes no pieces"
    wavy = copies(lambda n: straight(n) * (1.08 if n.bit_length() % 2 else 0.93), SIZES[2::3], spread=0.3)
    assert len(one(wavy).pieces) == 1


@pytest.mark.parametrize(
    "rows",
    [
        [],
        copies(straight, SIZES[:3]),
        copies(lambda n: 10e-6, SIZES[:8]),
        copies(straight, status="failed"),
        [row(PINNED, Transfer("h2d", n, "pinned", "fma", 32), straight(n)) for n in SIZES[10:]],
    ],
)
def test_no_law_where_none_shows(rows):
    assert links.fits(rows) == () and links.lines(rows) == []


def test_the_words():
    rows = [msgspec.structs.replace(m, values={"pcie_generation": 5.0, "pcie_width": 16.0}) for m in copies(straight)]
    rows[0] = msgspec.structs.replace(rows[0], values={"pcie_generation": 1.0, "pcie_width": 16.0})  # an idle look
    assert links.pcie(rows) == (5, 16)
    made, _, about = links.lines(rows)
    assert about == "The link ran at PCIe generation 5 with 16 lanes while copying, at most 63.0 GB/s each way."
    cells = "h2d pinned cupy/memcpy_async", "10.0 µs", "50.0 GB/s", "488 KiB", "79.3 %", "1 %"
    assert " ".join(made.rows[0][:3]) == cells[0] and [made.rows[0][i] for i in (3, 4, 6, 7, 8)] == [*cells[1:]]
    (told,) = links.lines(copies(straight, direction="both"))
    assert told.rows[0][7] == "-" and told.rows[0][4] == "50.0 GB/s"
    assert bytes_rate(data_sheets.pcie_bytes_per_s(5, 16)) == "63.0 GB/s"
    assert bytes_rate(data_sheets.pcie_bytes_per_s(3, 16)) == "15.8 GB/s" and data_sheets.pcie_bytes_per_s(1, 16) == 4e9
    assert data_sheets.pcie_bytes_per_s(9, 16) is None


@pytest.mark.parametrize("errors", [(0.03, 0.01), (0.01, 0.03)])
def test_a_joining_piece_has_the_larger_error(errors):
    """From 1 s at 10 bytes to 5 s at 20: 0.4 s a byte, -3 s at none."""
    chain = links._joined([piece(1.0, 10.0, 1.0, 0.0, errors[0]), piece(20.0, 40.0, 5.0, 0.0, errors[1])])
    assert chain == [
        piece(1.0, 10.0, 1.0, 0.0, errors[0]),
        piece(10.0, 20.0, -3.0, 0.4, 0.03),
        piece(20.0, 40.0, 5.0, 0.0, errors[1]),
    ]


def test_redrawn_copies_lie_in_their_medians_interval():
    """Of [1, 4] and [10, 10] s, 95 of 100 draws lie within."""
    drawn = links._redrawn([Estimate(2.0, 1.0, 4.0), Estimate(10.0, 10.0, 10.0), Estimate(1.0, 0.0, 9.0)])
    assert drawn.shape == (links._DRAWS, 3)
    inside = ((drawn[:, 0] >= 1.0) & (drawn[:, 0] <= 4.0)).mean()
    assert 0.93 <= inside <= 0.97
    assert (drawn[:, 1] == 10.0).all() and (drawn[:, 2] == 1.0).all()


@pytest.mark.parametrize(
    ("pieces", "half"),
    [
        ([(4, 1e9, 10e-6, 1e-9)], 10_000),
        ([(4, 5000, 10e-6, 1e-9)], 10_000),  # past what was measured
        ([(4, 1000, 0.2e-6, 1.5e-9), (1000, 1e9, 0.7e-6, 1e-9)], 400),
        ([(4, 1000, 2e-6, 1.5e-9), (1000, 1e9, 2.5e-6, 1e-9)], 2500),
        ([(4, 1000, 1e-6, 3e-9), (1000, 1e9, 5e-6, 1e-9)], 5000),
        ([(4, 1000, 1e-6, 3e-9), (1000, 1e9, 0.5e-6, 1e-9)], 1000),  # no less than where its piece begins
        ([(4, 1000, 0.0, 1e-9)], None),
    ],
)
def test_half_bandwidth_is_where_call_equals_bytes(pieces, half):
    """(from, to, seconds of a call, seconds a byte): in the end 1 GB/s, so half is 2 ns a byte."""
    chain = [piece(*ends_and_line) for ends_and_line in pieces]
    assert links._half_bandwidth_bytes(chain) == (half and pytest.approx(half))


@pytest.mark.parametrize(
    ("kernel", "memory", "bandwidth", "latency", "half", "pieces"),
    [
        ("asarray", "pageable", (1.050e10, 1.032e10, 1.071e10), (1.417e-5, 1.399e-5, 1.435e-5), 1.241e5, 3),
        ("memcpy", "pageable", (1.735e10, 1.694e10, 1.778e10), (9.703e-6, 9.514e-6, 9.851e-6), 3.240e5, 6),
        ("memcpy", "pinned", (5.535e10, 5.531e10, 5.538e10), (7.854e-6, 7.828e-6, 7.877e-6), 4.347e5, 1),
    ],
)
def test_links_of_a_stored_run_are_known(kernel, memory, bandwidth, latency, half, pieces):
    fits = links.fits(stored_runs.analysis("gpu").rows)
    (fit,) = [fit for fit in fits if fit.kernel.endswith(kernel) and fit.host_memory == memory]
    assert stored_runs.numbers(fit.bandwidth) == stored_runs.near(*bandwidth)
    assert stored_runs.numbers(fit.latency) == stored_runs.near(*latency)
    assert fit.half_bytes.value == pytest.approx(half, rel=5e-4) and len(fit.pieces) == pieces
