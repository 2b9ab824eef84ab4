"""Who wins a network's whole step: sums worked out by hand, libraries and frameworks each by themselves, what is missing."""

import fake_measurements as fake
import pytest
from fake_layers import law_time
from fake_measurements import row

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.crossover import network_steps
from analysis.report.layers import select
from analysis.report.sections import layers
from analysis.text import answers, summary
from kernels import networks
from kernels.networks.training_step import step as works_of
from workloads.records import Loaded

MODEL = "cifar10-mlp"


def products(batch: int, math: str = "float32") -> list:
    """The problems of a step's dense products, each as often as it occurs."""
    return [w.problem for w in works_of(networks.find(MODEL), batch, "float32", math) if w.kind == "dense"]


def timed(kernel: str, batch: int, seconds: float, math: str = "float32", **how) -> list:
    return [row(kernel, p, seconds, **how) for p in dict.fromkeys(products(batch, math))]


def loaded(rows: list) -> Loaded:
    return Loaded((fake.run(fake.GPU_MACHINE),), tuple(rows), 0, ("matmul.jsonl",))


def only(rows: list) -> "tuple[network_steps.NetworkStep, list]":
    (step,) = network_steps.complete_steps(rows, "matmul")
    return step, network_steps.answers(step, rows)


def test_a_step_sums_its_products_fastest_kernels():
    """Eight products: at 1 ms each on the CPU, 5 ms or 0.25 ms on the GPU, the CPU wins at batch 1 and the GPU at 8."""
    rows = [*timed("matmul/cupy/cublas", 1, 5e-3), *timed("matmul/cupy/cublas", 8, 0.25e-3)]
    for b, threads in ((b, threads) for b in (1, 8) for threads in (1, 2)):
        rows += timed("matmul/numpy/blas", b, 2e-3 / threads, threads=threads)
    step, (found,) = only(rows)
    assert step.words == "a step of cifar10-mlp (8 products)" and len(products(1)) == 8
    assert [p.cpu.seconds.value for p in found.points] == [pytest.approx(8e-3)] * 2
    assert [p.gpu.seconds.value for p in found.points] == [pytest.approx(40e-3), pytest.approx(2e-3)]
    assert found.kind == "gpu-from" and (found.crossings[0].below, found.crossings[0].above) == (1, 8)
    (said,) = answers.steps(rows, "matmul")
    name = "A step of cifar10-mlp (8 products)"
    assert said.startswith(f"{name}, float32, resident on the GPU: the GPU wins from batch ")
    assert said.endswith(
        f" {name}, batch 1: 8.00 ms on the CPU, 40.0 ms on the GPU, 5.0x faster. "
        f"{name}, batch 8: 2.00 ms on the GPU, 8.00 ms on the CPU, 4.0x faster."
    )


def test_frameworks_and_low_precision_have_their_own_comparisons():
    rows = [
        *timed("matmul/cupy/cublas", 1, 1e-5, "tf32"),
        *timed("matmul/tensorflow/jit", 1, 3e-3, "tf32", device="gpu:0"),
        *timed("matmul/tensorflow/function", 1, 1e-3),
    ]
    _, (found,) = only(rows)
    assert (found.precision, found.cpu_maths, found.form.framework) == ("tf32", ("float32",), "tensorflow")
    assert found.kind == "cpu-throughout"  # the library's GPU call is no reason for TensorFlow's to win
    expected = "tf32, CPU in float32, by tensorflow, resident on the GPU"
    assert expected in answers.steps(rows, "matmul")[0]
    machine = loaded(rows)
    assert summary.answer(Analysis.from_loaded(machine))[0].startswith("A step of cifar10-mlp (8 products), tf32")
    (tf32, float32) = (
        t for _, works in network_steps.steps(rows, "matmul") for t in network_steps.totals(works, rows, "matmul")
    )
    assert tf32.seconds == pytest.approx({"GPU": 8e-5, "tensorflow GPU": 24e-3})
    assert float32.seconds == pytest.approx({"tensorflow CPU": 8e-3})
    table = "\n".join(markdown(layers.section(select(machine, "matmul", ()))))
    assert "| GPU, resident | tensorflow CPU | tensorflow GPU |" in table
    assert "| 80.0 µs | - | 24.0 ms |" in table


def step_seconds(rows: list, batch: int) -> dict[str, float]:
    """Seconds of all rows' products on each side, at that batch."""
    (works,) = (works for _, works in network_steps.steps(rows, "matmul"))
    (total,) = network_steps.totals(works, rows, "matmul")
    assert total.batch == batch
    return total.seconds


@pytest.mark.parametrize("lacking", range(8))
def test_a_missing_product_leaves_the_step_without_time(lacking):
    """All eight products take 1 ms on the CPU; seven take 10 µs on the GPU, so 70 µs would win by a product that is missing."""
    cpu = timed("matmul/numpy/blas", 4, 1e-3, threads=1)
    gpu = timed("matmul/cupy/cublas", 4, 1e-5)
    assert len(cpu) == len(gpu) == 8
    assert step_seconds([*cpu, *gpu], 4) == pytest.approx({"CPU": 8e-3, "GPU": 8e-5})
    less = gpu[:lacking] + gpu[lacking + 1 :]
    assert step_seconds([*cpu, *less], 4) == pytest.approx({"CPU": 8e-3})
    assert only([*cpu, *less])[1] == []
    less = cpu[:lacking] + cpu[lacking + 1 :]
    assert step_seconds([*less, *gpu], 4) == pytest.approx({"GPU": 8e-5})
    assert only([*less, *gpu])[1] == []


def test_a_lower_precision_needs_every_cpu_product():
    gpu = timed("matmul/cupy/cublas", 4, 1e-5, "tf32")
    cpu = timed("matmul/numpy/blas", 4, 1e-3, threads=1)
    (answer,) = network_steps.answers(only([*gpu, *cpu])[0], [*gpu, *cpu])
    assert [(p.n, p.cpu.seconds.value, p.gpu.seconds.value) for p in answer.points] == [
        (4, pytest.approx(8e-3), pytest.approx(8e-5))
    ]
    rows = [*gpu, *cpu[:-1]]
    (step, *_) = network_steps.complete_steps(rows, "matmul")
    assert network_steps.answers(step, rows) == []


def test_a_product_used_twice_counts_twice():
    """A network of four equal layers of 5: forward 4 equal products, back 3, and 4 of the weights."""
    network = networks.mlp(5, 5, 3, 5)
    problems = [w.problem for w in works_of(network, 2) if w.kind == "dense"]
    rows = [row("matmul/numpy/blas", p, 1e-3, threads=1) for p in dict.fromkeys(problems)]
    side = network_steps.step_side(network_steps.best_rows(rows, "matmul", ""), problems, False)
    assert (len(problems), len(rows)) == (11, 3)
    assert side.seconds.value == pytest.approx(11e-3)


def test_batches_of_fewer_directions_are_no_complete_step():
    """At batch 1 all three directions are measured, at batch 8 the forward products alone: three of eight."""
    rows = timed("matmul/numpy/blas", 1, 1e-3, threads=1)
    rows += [row("matmul/numpy/blas", p, 1e-3, threads=1) for p in products(8) if p.layout == "nn"]
    (step,) = network_steps.complete_steps(rows, "matmul")
    assert {batch: len(works) for (batch, _), works in step.works.items()} == {1: 8}
    by_batch = [(works[0].problem.m, len(works)) for _, works in network_steps.steps(rows, "matmul")]
    assert by_batch == [(1, 8), (8, 3)]


def test_copied_and_unwaited_calls_are_in_no_step():
    copied = timed("matmul/cupy/cublas", 4, 1e-5, mode="roundtrip")
    queued = [row("matmul/cupy/cublas", p, {"host-throughput": 1e-6}) for p in products(4)]
    waited = timed("matmul/cupy/cublas", 4, 3e-5)
    for rows, seconds in (([*copied, *queued], {}), ([*copied, *queued, *waited], {"GPU": 24e-5})):
        assert step_seconds(rows, 4) == pytest.approx(seconds)


def test_a_row_belongs_to_every_equal_layer():
    """Four of fashion-mlp's six dense layers are 500 to 500. A network is measured where one direction has all its layers."""
    rows = fake.layer_rows("fashion-mlp", (32,), 0.0, ("float32",), ("dense",))
    found = network_steps.layers_of(network_steps.layers(networks.find("fashion-mlp"), "matmul"), rows)
    hidden = next(p for p in found if (p.m, p.n, p.k, p.layout) == (32, 500, 500, "nn"))
    assert [work.layer for work in found[hidden]] == [f"dense{i}" for i in (2, 3, 4, 5)]
    assert network_steps.measured_networks(rows, "matmul") == ["fashion-mlp"]
    forward = [m for m in rows if m.problem.layout == "nn"]
    assert network_steps.measured_networks(forward, "matmul") == ["fashion-mlp"]
    lacking = [m for m in rows if 784 not in (m.problem.m, m.problem.n, m.problem.k)]
    assert network_steps.measured_networks(lacking, "matmul") == ["fashion-mlp"]  # its input gradients have no 784
    lacking = [m for m in forward if m.problem.k != 784]
    assert network_steps.measured_networks(lacking, "matmul") == [] == list(network_steps.names(lacking, "matmul"))


def test_a_networks_layers_and_its_step():
    rows = fake.layer_rows("fashion-mlp", (32,), 0.0, ("float32",), ("dense",))
    named = set(network_steps.names(rows, "matmul").values())
    assert named == {"dense1", "dense2 +3", "classes"}  # dense2 to dense5 are alike
    (found,) = network_steps.steps(rows, "matmul")
    (total,) = network_steps.totals(found[1], rows, "matmul")
    cpu = {m.problem: law_time(m) for m in rows if m.settings.threads == 1}
    assert total.works == 17 and total.directions == ("fprop", "wgrad", "dgrad")  # six layers, the first without dX
    own = sum(cpu[w.problem] for w in found[1])
    assert total.seconds["CPU"] <= own and total.flops == sum(w.flops for w in found[1])
    partial = [m for m in rows if not (m.problem.layout == "nt" and m.problem.n == 500)]
    expected = {"fprop", "wgrad"}
    assert {w.direction for _, works in network_steps.steps(partial, "matmul") for w in works} == expected
