"""Constants from hand-made launch rows whose slopes and sums are known."""

import pytest
from fake_measurements import row

from analysis.roofline import overheads
from analysis.roofline.overheads import constants, find, lines
from analysis.stats import Estimate
from kernels.problems import Launch


def launch(kernel, call, count, seconds, **fields):
    return row(f"launch/{kernel}", Launch(call, count), seconds, **fields)


KERAS = [launch("tensorflow/fit", "step", n, 40e-3 + 20e-3 + 1e-3 * n) for n in (1, 64)]
KERAS += [launch("tensorflow/fit", "epoch", n, 40e-3 + 21e-3 * n) for n in (1, 8)]


def test_a_line_through_points_is_worked_out_by_hand():
    """Half-widths 1.96 and 3.92 are sigmas of 1 and 2: the slope's is sqrt(1 + 4) / 10, the base's follows from both."""
    base, slope = overheads.line([(10, Estimate(30.0, 28.04, 31.96)), (20, Estimate(50.0, 46.08, 53.92))])
    assert (slope.value, base.value) == (pytest.approx(2.0), pytest.approx(10.0))
    assert slope.high - slope.value == pytest.approx(1.96 * 5**0.5 / 10)
    assert base.high - base.value == pytest.approx(1.96 * (2**2 * 1 + 1 * 4) ** 0.5)  # base = 2 y1 - y2
    straight = [(n, Estimate(float(n), n - 0.1, n + 0.1)) for n in (1, 2, 3)]
    bent = [*straight[:2], (3, Estimate(4.0, 3.9, 4.1))]
    widths = [slope.high - slope.low for _, slope in (overheads.line(straight), overheads.line(bent))]
    assert widths[1] > 5 * widths[0]


def test_steps_epochs_fits_and_graph_nodes_are_told_apart():
    found = {c.name: c for c in constants(KERAS)}
    expected = pytest.approx({"keras-step": 1e-3, "keras-epoch": 20e-3, "keras-fit": 40e-3}, rel=1e-6)
    assert {name: c.seconds.value for name, c in found.items()} == expected
    assert {c.jit for c in found.values()} == {"auto"}
    assert found["keras-epoch"].source == "launch/tensorflow/fit epoch x1,8, host-latency, less keras-step"
    assert [c.name for c in constants(KERAS[2:])] == ["keras-fit"]
    assert constants(KERAS[:1]) == ()
    rows = [launch("cupy/ufunc", "elementwise", n, {"host-throughput": 2.5e-6 * n}) for n in (1, 64)]
    rows += [launch("cupy/graph", "elementwise", n, {"host-throughput": 5e-6 + 1.25e-6 * n}) for n in (1, 64)]
    node = find(constants(rows), "graph-node", "gpu:0", clock="host-throughput")
    assert node.seconds.value == pytest.approx(1.25e-6)
    assert node.seconds.low < node.seconds.value < node.seconds.high
    assert lines(constants(rows))[-1].startswith("  small CuPy kernels one after another: 2.50 us")
    assert ": 2.00 times less (2.00 to 2.00)" in lines(constants(rows))[-1]


def test_clocks_threads_and_devices_are_kept_apart():
    clocks = {"host-latency": 10.3e-6, "host-issue": 5.1e-6}
    rows = [launch("cupy/rawkernel", "empty", 1, clocks)]
    rows += [
        launch("numba/prange", "empty", n, 1e-6 * threads * n, threads=threads) for threads in (1, 2) for n in (1, 64)
    ]
    rows += [
        launch("tensorflow/eager", "elementwise", n, 1e-5 * n, device=d) for d in ("cpu", "gpu:0") for n in (1, 64)
    ]
    made = constants(rows)
    assert find(made, "kernel", "gpu:0", clock="host-issue").seconds.value == pytest.approx(5.1e-6)
    assert {c.threads: c.seconds.value for c in made if c.name == "prange-fork-join"}[2] == pytest.approx(2e-6)
    assert find(made, "tf-op-eager", "gpu:0").device == "gpu:0" and find(made, "tf-op-eager", "gpu:1") is None
    text = "\n".join(lines(made))
    assert "an empty GPU kernel: 10.3 us waited for and 5.10 us to issue" in text
    assert "1.00 us (1.00 us to 1.00 us) on 1 thread and 2.00 us (2.00 us to 2.00 us) on 2 threads" in text
    made = constants(
        [launch("tensorflow/eager", "elementwise", n, 1e-5 * n, threads=t) for t in (None, 2) for n in (1, 64)]
    )
    assert lines(made)[1].endswith("on the threads it takes by itself and 10.0 us (10.0 us to 10.0 us) on 2 threads")


def test_what_happens_once_and_what_may_be_nothing_in_words():
    rows = [
        launch("numba/once", "import", 1, 0.3),
        launch("tensorflow/once", "compile", 1, 0.2),
        launch("cupy/once", "device_start", 1, None, status="skipped", reason="no GPU"),
    ]
    made = constants(rows)
    assert [c.name for c in made] == ["import-numba", "compile-tensorflow"]
    assert find(made, "import-numba", "cpu").source == "launch/numba/once import, 20 fresh processes"
    assert lines(made)[1] == "  importing Numba, once in a process: 300 ms"
    inside, outside = "a further operation inside a tf.function", "a TensorFlow operation outside a function"
    at = ("cpu", "host-latency")
    flat = overheads.Constant("tf-op-in-jit", *at, Estimate(1e-9, -5e-9, 7e-9), jit="on", words=inside)
    below = overheads.Constant("tf-op-eager", *at, Estimate(-2e-9, -5e-9, -1e-9), words=outside)
    assert lines([flat, below])[1:] == [
        f"  {inside} (jit_compile on): not above 7.00 ns",
        f"  {outside}: too little to tell from nothing",
    ]


def test_every_rule_names_a_call_and_a_kernel_that_is_there():
    from kernels import registry

    for rule in overheads.RULES:
        backend, variant = rule.kernel.split("/")
        assert rule.call in Launch.CALLS
        files = [p.read_text() for p in registry.FOLDER.glob(f"launch/{backend}*.py")]
        assert any(f"def {variant}(" in text for text in files), rule.kernel
