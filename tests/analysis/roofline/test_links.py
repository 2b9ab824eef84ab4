"""Laws of links found again through jumps and noise; constants of launches from rows whose slopes are known."""

import math

import msgspec
import numpy as np
import pytest
import stored_runs
from fake_measurements import row

from analysis.roofline import data_sheets, links, overheads
from analysis.roofline.overheads import constants, find, table
from analysis.stats import Estimate
from analysis.units import bytes_rate
from kernels.problems import Launch, Transfer

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


def constant(name: str, seconds: Estimate, **fields) -> overheads.Constant:
    return overheads.Constant(name=name, device="gpu:0", clock="host-latency", seconds=seconds, **fields)


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


@pytest.mark.parametrize(
    ("generation", "lanes", "gigabytes"),
    [(1, 16, 4.0), (2, 8, 4.0), (3, 4, 3.9385), (4, 8, 15.754), (5, 16, 63.015), (6, 4, 30.25)],
)
def test_the_bytes_of_a_pcie_link(generation, lanes, gigabytes):
    """2.5, 5, 8, 16, 32 and 64 gigatransfers a second and lane; 8 of 10 bits, 128 of 130 and 242 of 256 bytes are data."""
    assert data_sheets.pcie_bytes_per_s(generation, lanes) == pytest.approx(gigabytes * 1e9, rel=1e-4)


@pytest.mark.parametrize("errors", [(0.03, 0.01), (0.01, 0.03)])
def test_a_joining_piece_has_the_larger_error(errors):
    """From 1 s at 10 bytes to 5 s at 20: 0.4 s a byte, -3 s at none."""
    chain = links._joined([piece(1.0, 10.0, 1.0, 0.0, errors[0]), piece(20.0, 40.0, 5.0, 0.0, errors[1])])
    assert chain == [
        piece(1.0, 10.0, 1.0, 0.0, errors[0]),
        piece(10.0, 20.0, -3.0, 0.4, 0.03),
        piece(20.0, 40.0, 5.0, 0.0, errors[1]),
    ]


def launch(kernel, call, count, seconds, **fields):
    return row(f"launch/{kernel}", Launch(call, count), seconds, **fields)


KERAS = [launch("tensorflow/fit", "step", n, 40e-3 + 20e-3 + 1e-3 * n) for n in (1, 64)]
KERAS += [launch("tensorflow/fit", "epoch", n, 40e-3 + 21e-3 * n) for n in (1, 8)]


def test_a_line_fitted_by_hand():
    """Half-widths 1.96 and 3.92 are sigmas of 1 and 2: the slope's is sqrt(1 + 4) / 10, the base's follows from both."""
    base, slope = overheads.weighted_line([(10, Estimate(30.0, 28.04, 31.96)), (20, Estimate(50.0, 46.08, 53.92))])
    assert (slope.value, base.value) == (pytest.approx(2.0), pytest.approx(10.0))
    assert slope.high - slope.value == pytest.approx(1.96 * 5**0.5 / 10)
    assert base.high - base.value == pytest.approx(1.96 * (2**2 * 1 + 1 * 4) ** 0.5)  # base = 2 y1 - y2
    straight = [(n, Estimate(float(n), n - 0.1, n + 0.1)) for n in (1, 2, 3)]
    bent = [*straight[:2], (3, Estimate(4.0, 3.9, 4.1))]
    widths = [slope.high - slope.low for _, slope in (overheads.weighted_line(straight), overheads.weighted_line(bent))]
    assert widths[1] > 5 * widths[0]


def test_steps_epochs_fits_and_nodes_are_distinct():
    found = {c.name: c for c in constants(KERAS)}
    expected = pytest.approx({"keras-step": 1e-3, "keras-epoch": 20e-3, "keras-fit": 40e-3}, rel=1e-6)
    assert {name: c.seconds.value for name, c in found.items()} == expected
    assert {c.jit for c in found.values()} == {"auto"}
    assert found["keras-epoch"].source == "launch/tensorflow/fit epoch x1,8, host-latency, less keras-step"
    assert [c.name for c in constants(KERAS[2:])] == ["keras-fit"] and constants(KERAS[:1]) == ()
    rows = [launch("cupy/ufunc", "elementwise", n, {"host-throughput": 2.5e-6 * n}) for n in (1, 64)]
    rows += [launch("cupy/graph", "elementwise", n, {"host-throughput": 5e-6 + 1.25e-6 * n}) for n in (1, 64)]
    node = find(constants(rows), "graph-node", "gpu:0", clock="host-throughput")
    assert node.seconds.value == pytest.approx(1.25e-6) and node.seconds.low < node.seconds.value < node.seconds.high


def test_an_epoch_is_uncertain_by_both_its_parts():
    """Half widths of 0.4 ms and 0.3 ms come to 0.5 ms."""
    step = constant("keras-step", Estimate(1e-3, 0.7e-3, 1.3e-3))
    epoch = constant("keras-epoch", Estimate(21e-3, 20.6e-3, 21.4e-3))
    _, rest = overheads._without_steps([step, epoch])
    ends = rest.seconds.value, rest.seconds.low, rest.seconds.high
    assert ends == pytest.approx((20e-3, 19.5e-3, 20.5e-3))


def test_clocks_threads_and_devices_are_kept_apart():
    clocks = {"host-latency": 10.3e-6, "host-issue": 5.1e-6}
    rows = [launch("cupy/rawkernel", "empty", 1, clocks), launch("cupy/cublas", "matmul", 10, 50e-6)]
    for n in (1, 64):
        rows += [launch("numba/prange", "empty", n, 1e-6 * threads * n, threads=threads) for threads in (1, 2)]
        rows += [launch("tensorflow/eager", "elementwise", n, 1e-5 * n, device=d) for d in ("cpu", "gpu:0")]
    made = constants(rows)
    assert find(made, "kernel", "gpu:0", clock="host-issue").seconds.value == pytest.approx(5.1e-6)
    assert find(made, "cublas-call", "gpu:0").seconds.value == pytest.approx(5e-6)  # one of the ten
    assert {c.threads: c.seconds.value for c in made if c.name == "prange-fork-join"}[2] == pytest.approx(2e-6)
    assert find(made, "tf-op-eager", "gpu:0").device == "gpu:0" and find(made, "tf-op-eager", "gpu:1") is None
    told = [row[:-1] for row in table(made).rows]
    assert ["an empty GPU kernel", "gpu:0", "host-latency", "-", "10.3 µs"] in told
    assert ["an empty GPU kernel", "gpu:0", "host-issue", "-", "5.10 µs"] in told
    forked = [row for row in told if row[0].startswith("an almost empty Numba prange")]
    assert [(row[3], row[4]) for row in forked] == [(1, "1.00 µs"), (2, "2.00 µs")]


def test_one_time_and_possibly_absent_costs_in_words():
    rows = [
        launch("numba/once", "import", 1, 0.3),
        launch("tensorflow/once", "compile", 1, 0.2),
        launch("cupy/once", "device_start", 1, None, status="skipped", reason="no GPU"),
    ]
    made = constants(rows)
    assert [c.name for c in made] == ["import-numba", "compile-tensorflow"]
    assert find(made, "import-numba", "cpu").source == "launch/numba/once import, 20 fresh processes"
    assert table(made).rows[0][0] == "importing Numba, once in a process" and "300 ms" in table(made).rows[0]
    inside, outside = "a further operation inside a tf.function", "a TensorFlow operation outside a function"
    flat = constant("tf-op-in-jit", Estimate(1e-9, -5e-9, 7e-9), jit="on", words=inside)
    flats = [flat, constant("tf-op-eager", Estimate(-2e-9, -5e-9, -1e-9), words=outside)]
    found = table(flats)
    said = [(row[0], row[found.heads.index("a time")]) for row in found.rows]
    assert said == [(inside, "at most 7.0 ns"), (outside, "0 s")]


def test_every_rule_names_an_existing_kernel():
    from kernels import registry

    for rule in overheads.RULES:
        backend, variant = rule.kernel.split("/")
        assert rule.call in Launch.CALLS
        files = [p.read_text() for p in registry.FOLDER.glob(f"launch/{backend}*.py")]
        assert any(f"def {variant}(" in text for text in files), rule.kernel


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
