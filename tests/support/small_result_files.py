"""Result files of rows of one size."""

from kernels.problems import Matmul
from workloads import records
from workloads.records import Machine, Measurement, Run, Samples, Settings

HERE = Machine("intel-avx512-2c", "a CPU", "intel", "avx512", 2, 1, 1 << 34)


def run(machine=HERE, schema=records.SCHEMA, at="2026-01-01T00:00:00Z"):
    return Run(schema, machine, {"python": "3.11"}, "python -m workloads.matmul", 1, "abc", "def", at)


def row(n, status="ok", seconds=0.25):
    samples = (Samples("host-latency", (seconds,), 1, (1,), "max-time"),) if status == "ok" else ()
    return Measurement("matmul/numpy/blas", Matmul(n, n, n), Settings(threads=1), status, samples=samples)


def write(path, *lines, resume=False, machine=HERE):
    with records.Writer(path, run(machine), resume) as writer:
        for line in lines:
            writer.append(line)
        return writer.done
