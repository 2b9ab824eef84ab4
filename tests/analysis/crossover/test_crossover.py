"""Crossings of laws known in closed form, every kind of answer, refinement that ends, and reasons that add up."""

import pytest
import stored_runs
from fake_crossovers import cpu_law, gpu_law, only
from fake_measurements import CPU_MACHINE, laws, row, square
from msgspec.structs import replace

from analysis import noise
from analysis.crossover import crossover, fastest_row, refinement, reuse, sign_changes
from analysis.crossover.answer import CrossoverPoint
from analysis.crossover.families import comparable, dense_rows
from analysis.crossover.fastest_row import FastestRow
from analysis.crossover.forms import AS_WRITTEN, LATENCY, Form
from analysis.stats import Estimate
from analysis.text import crossings
from kernels.problems import Matmul, Training


def at_points(*ratios: tuple[int, float, float]):
    """The answer of points whose CPU takes `ratio` seconds with that half-width, the GPU 1 s."""

    def side(device, e):
        return FastestRow(kernel="k", device=device, threads=1, math="float32", seconds=e)

    gpu = side("gpu:0", Estimate(1.0, 1.0, 1.0))
    points = [CrossoverPoint(n=n, cpu=side("cpu", Estimate(r, r - half, r + half)), gpu=gpu) for n, r, half in ratios]
    return sign_changes.classify("float32", LATENCY, points)


def test_the_interval_covers_neighboring_sizes_without_a_winner():
    """From 103, and too close to tell at 112: the GPU wins for certain from where the lower edge passes 1 after 112 only."""
    answer = at_points((96, 0.8, 0.05), (104, 1.2, 0.05), (112, 1.05, 0.1), (128, 1.5, 0.1))
    (crossing,) = answer.crossings
    assert answer.kind == "gpu-from" and answer.bands == ((112, 112),)
    assert 96 < crossing.at.low < crossing.at.value < 104
    assert 112 < crossing.at.high < 128 and (crossing.below, crossing.above) == (96, 128)
    assert "too close" not in crossings.verdict_words(answer) and refinement.refine(answer) == [100, 108, 120]
    # a band that touches the range's end is open there; one before the crossing counts alike; one far off is apart
    assert at_points((96, 0.8, 0.05), (104, 1.2, 0.05), (112, 1.0, 0.1)).crossings[0].at.high == pytest.approx(112)
    assert at_points((64, 0.5, 0.1), (128, 1.0, 0.1)).kind == "cant-tell", "not the CPU throughout"
    early = at_points((64, 0.5, 0.1), (80, 0.98, 0.1), (96, 0.8, 0.05), (104, 1.2, 0.05)).crossings[0]
    assert 64 < early.at.low < 80 and early.below == 64
    back = at_points((96, 0.8, 0.05), (104, 1.2, 0.05), (112, 1.0, 0.1), (128, 0.8, 0.05))  # the CPU wins beyond it
    assert [(c.below, c.above, c.to) for c in back.crossings] == [(96, 104, "gpu"), (104, 128, "cpu")]
    far = at_points((96, 0.8, 0.05), (104, 1.2, 0.05), (128, 1.3, 0.05), (256, 1.0, 0.1), (512, 1.5, 0.1))
    assert far.crossings[0].at.high < 104 and "; can't tell at 256" in crossings.verdict_words(far)


@pytest.mark.parametrize("half", [0.05, 0.3])
def test_a_wider_interval_does_not_move_the_estimate(half):
    """The medians pass 1 twice, at 100.3 and above 112; before the first lies the larger part below 1, so it is the one. ln(1 /
    0.8) = 0.2231 and ln 1.2 = 0.1823: 96 (104 / 96)^(0.2231 / 0.4055) = 100.33."""
    (crossing,) = at_points((96, 0.8, 0.05), (104, 1.2, half), (112, 0.95, 0.1), (128, 1.5, 0.05)).crossings
    assert crossing.at.value == pytest.approx(100.33, abs=0.01) and 112 < crossing.at.high < 128


def test_what_stands_for_no_side():
    """Held under a load, matched with another benchmark, a framework's, a rung's, wrong, of other shapes and layouts, cold."""
    rows, sizes = laws(cpu_law, gpu_law, [64, 128, 256]), (64, 128, 256)
    quick = [replace(m, samples=row(m.kernel, m.problem, 1e-9).samples) for m in rows]
    switched = [({"load": "held"}, [m for m in quick if m.on_gpu]), ({"match": "turns"}, quick)]
    held, matches = ([replace(m, settings=replace(m.settings, switches=s)) for m in some] for s, some in switched)
    cold = [replace(m, settings=replace(m.settings, cache="cold")) for m in quick]
    tf = [row("matmul/tensorflow/function", square(n), 1e-9, device=d) for n in sizes for d in ("cpu", "gpu:0")]
    rung = [row("matmul/numba/naive", square(n), 1e-9, threads=1) for n in sizes]
    wrong = row("matmul/cupy/operator", square(64), 1e-9, status="wrong")
    shapes = (Matmul(64, 64, 32), Matmul(64, 64, 64, layout="tn"), Training("m", 1, 1))
    others = [row(f"{p.op}/some/kernel", p, 1e-9, device="cpu") for p in shapes]
    for more in (held, matches, cold, tf, rung, others):
        assert crossover.crossovers([*rows, *more]) == crossover.crossovers(rows), more
    assert only([*rows, wrong]) == only(rows)
    (own,) = crossover.crossovers([*rows, *tf], [LATENCY], "tensorflow")
    assert own.kind == "cant-tell" and own.form == Form("resident", framework="tensorflow")


def test_copied_and_resident_calls_share_no_size():
    """Every other size was measured with copies: no reuse of a copy can be told, and nothing fails."""
    rows = [*laws(cpu_law, gpu_law, [64, 256]), *laws(cpu_law, gpu_law, [128, 512], mode="roundtrip")]
    answers = crossover.crossovers(rows)
    assert {a.form.mode for a in answers if a.points} >= {"resident", "roundtrip"}
    assert reuse.pairs(answers, "float32") == []


def test_sizes_with_an_uncertain_ratio_form_a_band():
    cpu = {64: 0.5, 128: 1.0, 160: 1.0, 256: 2.0}
    answer = only(laws(lambda n: cpu[n], lambda n: 1.0, cpu))
    assert answer.kind == "gpu-from" and answer.bands == ((128, 160),)
    assert [p.sign for p in answer.points] == [-1, 0, 0, 1]
    added = refinement.refine(answer)
    assert len(added) == 2 and 64 < added[0] < 128 and 160 < added[1] < 256


def test_the_cpu_side_is_the_best_row():
    rows = laws(cpu_law, gpu_law, [64, 256])
    rows += [row("matmul/numpy/blas", square(n), cpu_law(n) * 10, threads=None) for n in (64, 256)]
    rows += [row("matmul/numba/parallel", square(256), 1e-9, threads=2)]
    answer = only(rows)
    assert [p.cpu.kernel for p in answer.points] == ["matmul/numpy/blas", "matmul/numba/parallel"]
    assert answer.kind == "cpu-throughout"


def test_short_sweeps_are_widened_by_noise_between_runs(monkeypatch):
    monkeypatch.setattr(noise, "stored", lambda root: {})
    side = fastest_row.fastest([row("matmul/numpy/blas", square(64), 1.0)], "host-latency", CPU_MACHINE)
    assert side.seconds.high == pytest.approx((1 + noise.DEFAULT[noise.CPU]) ** 0.5**0.5)


def test_noise_of_another_machine_is_named(monkeypatch):
    answers = [only(laws(cpu_law, gpu_law, [64, 256]))]
    monkeypatch.setattr(noise, "stored", lambda root: {})
    (guess,) = crossings.noise_sentences(answers, CPU_MACHINE)
    assert noise.GUESS in guess and guess.endswith("workloads.doctor --noise")
    (unknown,) = crossings.noise_sentences(answers, None)
    assert "within this run" in unknown
    shares = tuple(
        noise.NoiseShare(side=clock, decade=0, share=0.1, pairs=10, visit_share=0.1, span_s=1.0)
        for clock in (noise.CPU, noise.CALLS)
    )
    known = noise.Noise(machine=CPU_MACHINE, taken_at="", span_s=900.0, sweeps=("01", "02"), shares=shares)
    monkeypatch.setattr(noise, "stored", lambda root: {CPU_MACHINE.key: known})
    assert crossings.noise_sentences(answers, CPU_MACHINE) == crossings.noise_sentences([], None) == []


def test_a_dense_layers_products_cross_in_their_batch():
    """Forward and for dX the batch is the product's rows, for dW what is summed over."""
    rows = []
    for n in (1, 256):
        layers = Matmul(n, 10, 512), Matmul(n, 512, 10, layout="nt"), Matmul(512, 10, n, layout="tn")
        for p in (*layers, Matmul(n, n, 512)):
            rows += [row("matmul/numpy/blas", p, 1e-6 * n, threads=1), row("matmul/cupy/cublas", p, 16e-6)]
    found = crossover.family_crossovers(dense_rows(comparable(rows, "matmul")), [LATENCY])
    expected = [("batch", way) for way in ("nn", "nt", "tn")]
    assert [(a.family.varies, dict(a.family.fixed)["layout"]) for a in found] == expected
    assert all(a.kind == "gpu-from" and a.crossings[0].at.value == pytest.approx(16) for a in found)
    assert found[2].family.at(3, "float32") == Matmul(512, 10, 3, layout="tn")


def test_each_form_has_its_own_rows_and_clock():
    rows = laws(lambda n: 1.0, lambda n: 2.0, [64, 128])
    rows += [row("matmul/cupy/cublas", square(n), 0.1, mode="roundtrip-pinned") for n in (64, 128)]
    rows += [row("matmul/cupy/operator", square(n), {"host-latency": 3.0, "host-throughput": 0.5}) for n in (64, 128)]
    assert {(a.form.mode, a.form.clock, a.form.as_written): a.kind for a in crossover.crossovers(rows)} == {
        ("resident", "host-latency", False): "cpu-throughout",
        ("resident", "host-throughput", False): "gpu-at-smallest",
        ("roundtrip-pinned", "host-latency", False): "gpu-at-smallest",
        ("resident", "host-latency", True): "no-cpu",
    }


def test_as_written_is_the_operator_with_default_threads():
    rows = [row("matmul/numpy/operator", square(64), t, threads=threads) for t, threads in ((1.0, None), (0.1, 1))]
    rows += [row("matmul/cupy/operator", square(64), 0.5), row("matmul/cupy/cublas", square(64), 0.05)]
    answer = only(rows, AS_WRITTEN[0])
    assert answer.kind == "gpu-at-smallest"
    assert (answer.points[0].cpu.seconds.value, answer.points[0].gpu.seconds.value) == (1.0, 0.5)
    # where each row names its threads, the most of them stand for the default, though fewer are quicker here
    rows = [row("matmul/numpy/operator", square(64), t, threads=n) for t, n in ((0.1, 1), (0.3, 2), (1.0, 4))]
    answer = only([*rows, row("matmul/cupy/operator", square(64), 0.5)], AS_WRITTEN[0])
    assert (answer.kind, answer.points[0].cpu.threads) == ("gpu-at-smallest", 4)


def test_tensor_arithmetic_meets_float32_on_the_cpu():
    rows = [row("matmul/numpy/blas", square(64), 1.0), row("matmul/cupy/cublas", square(64, "tf32"), 0.5)]
    (answer,) = [a for a in crossover.crossovers(rows) if a.precision == "tf32"]
    assert answer.kind == "gpu-at-smallest" and answer.cpu_maths == ("float32",)
    double = [row("matmul/numpy/blas", square(64), 1.0), row("matmul/cupy/cublas", square(64, "float64"), 0.5)]
    assert [a.kind for a in crossover.crossovers(double) if a.precision == "float64"] == ["no-cpu"]


def test_without_a_gpu_each_precision_has_one_answer():
    rows = [row("matmul/numpy/blas", square(n, math), 1.0) for n in (64, 128) for math in ("float64", "float32")]
    found = crossover.crossovers(rows)
    expected = [("float32", "no-gpu", 64, 128), ("float64", "no-gpu", 64, 128)]
    assert [(a.precision, a.kind, a.low_n, a.high_n) for a in found] == expected
    assert crossover.crossovers([]) == ()


@pytest.mark.parametrize("status", ["failed", "wrong", "skipped"])
def test_sizes_without_a_time_are_explained_gaps(status):
    lost = row("matmul/cupy/cublas", square(512), None, status=status, reason="out of memory")
    rows = [*laws(cpu_law, gpu_law, [64, 256]), lost, row("matmul/numpy/blas", square(512), cpu_law(512))]
    assert only(rows).gaps == (f"n = 512: no GPU time ({status}: out of memory)",) and only(rows).high_n == 256
    assert only([row("matmul/numpy/blas", square(512), 1.0), lost]).kind == "no-gpu"


@pytest.mark.parametrize(
    ("mode", "clock", "bands", "crossing", "between"),
    [
        ("resident", "host-latency", ((96, 120), (128, 128)), (101.98, 94.4, 136.2), (64, 160)),
        ("resident", "host-throughput", ((96, 100),), (94.44, 77.94, 100.8), (64, 104)),
        ("roundtrip-pageable", "host-latency", ((512, 512),), (521.2, 361.0, 688.3), (256, 1024)),
    ],
)
def test_crossovers_of_a_stored_run_are_known(mode, clock, bands, crossing, between):
    answers = stored_runs.analysis("gpu").crossovers
    (answer,) = [answer for answer in answers if (answer.form.mode, answer.form.clock) == (mode, clock)]
    assert (answer.kind, answer.low_n, answer.high_n, answer.bands) == ("gpu-from", 64, 4096, bands)
    (at,) = answer.crossings
    assert stored_runs.numbers(at.at) == stored_runs.near(*crossing) and (at.below, at.above) == between


def test_a_stored_cpu_run_has_no_crossover():
    (answer,) = stored_runs.analysis("cpu").crossovers
    assert (answer.kind, answer.points) == ("no-gpu", ())
