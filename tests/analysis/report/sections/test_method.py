"""How it was measured: formulas and checks are those of the rows that the page has."""

import pathlib

import fake_measurements as fake
import msgspec
from fake_measurements import row

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.report.sections import method, training
from analysis.text import questions
from kernels.problems import Matmul
from workloads.machine import facts as machine
from workloads.records import by_machine


def switched(m, **given):
    return msgspec.structs.replace(m, settings=msgspec.structs.replace(m.settings, switches=given))


def test_training_pages_mention_no_kernels():
    (loaded,) = by_machine(pathlib.Path(__file__).parents[4] / "reports/nvidia-h200/training-seeds").values()
    said = "\n".join(markdown(method.how_section(loaded)))
    assert "The samples of trainings are made up: " in said and "fastest kernel" not in said and "roof" not in said
    real = msgspec.structs.replace(loaded, measurements=tuple(switched(m, data="real") for m in loaded.measurements))
    assert "made up" not in "\n".join(markdown(method.how_section(real)))
    assert "36 weights (shapes and numbers of weights, layer by layer, are the model's), 18 first loss (" in said
    told = "\n".join(markdown(training._articles(loaded.measurements)))
    assert "S4: Peaks regression in Flux.jl" in told and "S1a: CIFAR-10" in told


def test_mixed_precision_answers_at_the_largest_common_size():
    """bfloat16 by a kernel that runs only when asked for: 3 ms of 6 at n = 64, as long as float32 alone at 32; none at 128."""
    times = {"float32": {32: 1e-3, 64: 6e-3, 128: 9e-3}, "bfloat16": {32: 1e-3, 64: 3e-3}}
    kernels = {"float32": "matmul/numpy/blas", "bfloat16": "matmul/numba/amx"}
    cases = [(math, n, s) for math, taken in times.items() for n, s in taken.items()]
    rows = [row(kernels[math], Matmul(n, n, n, math), s, threads=1) for math, n, s in cases]
    on_gpu = {"float32": 4e-4, "float16": 1e-4}
    rows += [row("matmul/cupy/cublas", Matmul(64, 64, 64, math), s) for math, s in on_gpu.items()]
    answered = questions.answered(Analysis.from_rows(rows))
    (said,) = [one.answer for one in answered if one.question.startswith("Do TF32")]
    told = "2.0x faster in bfloat16 on the CPU and 4.0x faster in float16 on the GPU"
    assert said == f"Large products, beside float32: {told}."


def test_software_and_versions_of_libraries(monkeypatch):
    first = fake.run(fake.CPU_MACHINE)
    more = {**{f"library{i}": str(i) for i in range(15)}, "numpy": "2.4.7"}
    said = method.software_words([first, msgspec.structs.replace(first, software=more)])
    assert "numpy 2.4.6 or 2.4.7" in said and "numba 0.68.1" in said and "library14 14" in said and len(said) == 3 + 15
    installed = {"mkl": "2026.0.0", "nvmath-python": "0.7.0", "nvidia-cudnn-frontend": "1.28.0", "jax": "0.9"}
    monkeypatch.setattr(machine, "version", lambda package: installed.get(package, ""))
    found = machine.software()
    expected = ("2026.0.0", "0.7.0", "1.28.0", "0.9")
    assert (found["mkl"], found["nvmath"], found["cudnn_frontend"], found["jax"]) == expected and "keras" not in found
