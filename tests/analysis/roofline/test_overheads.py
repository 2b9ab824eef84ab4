"""Constants of launches and frameworks, from rows whose slopes are known."""

import pytest
from fake_measurements import row

from analysis.roofline import overheads
from analysis.roofline.overheads import constants, find, table
from analysis.stats import Estimate
from kernels.problems import Launch


def constant(name: str, seconds: Estimate, **fields) -> overheads.Constant:
    return overheads.Constant(name=name, device="gpu:0", clock="host-latency", seconds=seconds, **fields)


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
