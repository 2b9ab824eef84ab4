"""Squares whose crossing is known in closed form, and the answer of rows along one axis."""

from fake_measurements import row, square

from analysis.crossover import crossover
from analysis.crossover.forms import LATENCY, Form

CPU_RATE, GPU_RATE, LAUNCH = 100e9, 10e12, 20e-6


def cpu_law(n: int) -> float:
    return 2 * n**3 / CPU_RATE


def gpu_law(n: int) -> float:
    return LAUNCH + 2 * n**3 / GPU_RATE


def only(measurements, form: Form = LATENCY):
    (answer,) = crossover.crossovers(measurements, [form])
    return answer


def resident_and_copies(kernel: str = "matmul/cupy/cublas") -> list:
    rows = []
    for n, cpu in ((64, 50e-6), (128, 200e-6)):
        rows.append(row("matmul/numpy/blas", square(n), cpu, threads=1))
        rows.append(row(kernel, square(n), {"host-latency": 24e-6, "host-throughput": 10e-6, "device": 5e-6}))
        rows.append(row(kernel, square(n), 100e-6, mode="roundtrip"))
    return rows
