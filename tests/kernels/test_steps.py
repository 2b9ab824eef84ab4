"""Who wins a network's whole step: sums worked out by hand, libraries and frameworks each by themselves, what is missing."""

import fake_measurements as fake
import pytest
from fake_measurements import row

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
    return Loaded((fake.run(fake.GPU_MACHINE, network=MODEL),), tuple(rows), 0, ("matmul.jsonl",))


def only(rows: list) -> "tuple[network_steps.Step, list]":
    (step,) = network_steps.complete_steps(loaded(rows).runs, rows, "matmul")
    return step, network_steps.answers(step, rows)


def test_a_step_is_the_sum_of_its_products_by_the_fastest_kernel_each():
    """Eight products: at 1 ms each on the CPU, 5 ms or 0.25 ms on the GPU, the CPU wins at batch 1 and the GPU at 8."""
    rows = [*timed("matmul/cupy/cublas", 1, 5e-3), *timed("matmul/cupy/cublas", 8, 0.25e-3)]
    for b, threads in ((b, threads) for b in (1, 8) for threads in (1, 2)):
        rows += timed("matmul/numpy/blas", b, 2e-3 / threads, threads=threads)
    step, (found,) = only(rows)
    assert step.words == "a step of cifar10-mlp (8 products)" and len(products(1)) == 8
    assert [p.cpu.seconds.value for p in found.points] == [pytest.approx(8e-3)] * 2
    assert [p.gpu.seconds.value for p in found.points] == [pytest.approx(40e-3), pytest.approx(2e-3)]
    assert found.kind == "gpu-from" and (found.crossings[0].below, found.crossings[0].above) == (1, 8)
    (said,) = answers.steps(loaded(rows).runs, rows, "matmul")
    name = "A step of cifar10-mlp (8 products)"
    assert said.startswith(f"{name}, float32, resident on the GPU: the GPU wins from batch ")
    assert said.endswith(
        f" {name}, batch 1: 8.00 ms on the CPU, 40.0 ms on the GPU, 5.0x faster. "
        f"{name}, batch 8: 2.00 ms on the GPU, 8.00 ms on the CPU, 4.0x faster."
    )


def test_a_framework_is_compared_with_itself_and_a_low_precision_with_the_cpus_float32():
    rows = [
        *timed("matmul/cupy/cublas", 1, 1e-5, "tf32"),
        *timed("matmul/tensorflow/jit", 1, 3e-3, "tf32", device="gpu:0"),
        *timed("matmul/tensorflow/function", 1, 1e-3),
    ]
    _, (found,) = only(rows)
    assert (found.precision, found.cpu_maths, found.form.framework) == ("tf32", ("float32",), "tensorflow")
    assert found.kind == "cpu-throughout"  # the library's GPU call is no reason for TensorFlow's to win
    expected = "tf32, CPU in float32, by tensorflow, resident on the GPU"
    assert expected in answers.steps(loaded(rows).runs, rows, "matmul")[0]
    machine = loaded(rows)
    assert summary.answer(machine)[0].startswith("A step of cifar10-mlp (8 products), tf32")
    (tf32, float32) = (
        t
        for _, works in network_steps.steps(machine.runs, rows, "matmul")
        for t in network_steps.totals(works, rows, "matmul")
    )
    assert tf32.seconds == pytest.approx({"GPU": 8e-5, "tensorflow GPU": 24e-3})
    assert float32.seconds == pytest.approx({"tensorflow CPU": 8e-3})
    table = "\n".join(layers.section(select(machine, "matmul", ())))
    assert "| GPU, resident | tensorflow CPU | tensorflow GPU |" in table
    assert "| 80.0 µs | - | 24.0 ms |" in table
