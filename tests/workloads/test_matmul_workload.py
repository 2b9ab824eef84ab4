"""python -m workloads.matmul for networks' dense layers, layouts and float8; squares are tested by the sweep's own tests."""

import pathlib

import fake_measurements as fake
from fake_measurements import row, square

from analysis.roofline.frame import frame
from kernels.problems import Matmul
from kernels.registry import Kernel
from workloads import matmul, tables
from workloads.harness import plan, sweep


def problems(*argv):
    return matmul.problems(matmul.parser().parse_args(list(argv)))


def test_a_models_dense_layers_layouts_and_float8():
    found = problems("--model", "cifar10-cnn", "--batch", "8", "--direction", "all")
    assert found == [
        Matmul(8, 512, 3136),
        Matmul(8, 3136, 512, layout="nt"),
        Matmul(3136, 512, 8, layout="tn"),
        Matmul(8, 10, 512),
        Matmul(8, 512, 10, layout="nt"),
        Matmul(512, 10, 8, layout="tn"),
    ]
    assert [(p.m, p.k) for p in problems("--model", "fashion-mlp", "--batch", "4")] == [(4, 784), (4, 500), (4, 500)]
    first = problems("--model", "cifar10-mlp", "--batch", "4", "--direction", "dgrad")
    assert [(p.n, p.k) for p in first] == [(3000, 1000), (1000, 10)]  # nothing needs the images' gradient
    found = problems("--sizes", "8", "16", "--layouts", "nn,tn", "--dtypes", "float32", "tf32")
    expected = [(n, way, math) for n in (8, 16) for way in ("nn", "tn") for math in ("float32", "tf32")]
    assert [(p.n, p.layout, p.math) for p in found] == expected
    eight = Matmul(16, 16, 16, "float8_e4m3", out="bfloat16", layout="nt")
    assert problems("--sizes", "16", "--dtypes", "float8_e4m3", "--layouts", "nn", "nt") == [eight]
    found = problems("--model", "lenet", "--dtypes", "float8_e4m3", "--direction", "all")
    assert {(p.layout, p.out) for p in found} == {("nt", "bfloat16")}


def test_many_products_in_a_launch_have_a_crossover_of_their_own_beside_the_single_ones(capsys):
    """A GPU call takes 20 µs however many there are, the CPU 1 ns an n^2 and product: even at 141, at 8.8 for 256."""
    found = problems("--batch", "1", "256", "--sizes", "4", "512")
    assert found == [Matmul(n, n, n, batch=b) for b in (1, 256) for n in (4, 512)]
    rows = []
    for p in problems("--batch", "1", "256", "--sizes", "4:512:x2"):
        rows += [row("matmul/numpy/blas", p, 1e-9 * p.n**2 * p.count, threads=1)]
        rows += [row("matmul/cupy/cublas", p, 2e-5, device="gpu:0")]
    args = matmul.parser().parse_args(["--batch", "1", "256", "--sizes", "4", "512"])
    run = fake.run(fake.GPU_MACHINE)
    matmul.answer(args, sweep.Outcome(run, pathlib.Path("x.jsonl"), rows))
    said = capsys.readouterr().out
    assert "Square float32 products, resident on the GPU: the GPU wins from n = 161" in said
    assert "Square products, 256 in one launch, float32, resident on the GPU: the GPU wins from n = 11" in said
    few = [m for m in rows if m.problem.n in (4, 512)]
    assert {r.problem.count for r in matmul.refine(few, here=fake.GPU_MACHINE)} == {1, 256}
    table = tables.Matmuls(fake.GPU_MACHINE, None, found)
    table.shown(rows[-1])
    table.finish()
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["512", "float32", "x256"]
    assert list(frame(rows)["batch"].fillna(1)) == [1] * 16 + [256] * 16


def test_crossovers_are_refined_in_the_batch_and_by_their_own_kernels():
    def at(p):
        n = p.k if p.layout == "tn" else p.m
        return [row("matmul/numpy/blas", p, 1e-6 * n, threads=1), row("matmul/cupy/cublas", p, 20e-6)]

    layers = [problems("--model", "lenet", "--batch", n, "--direction", "all") for n in ("1", "512")]
    rows = [m for some in layers for p in some for m in at(p)]
    added = matmul.refine(rows, in_batch=True)
    shapes = {r.problem for r in rows}
    assert added and not {r.problem for r in added} & shapes
    fixed = lambda p: (p.n, p.k) if p.layout != "tn" else (p.m, p.n)  # noqa: E731
    assert {fixed(r.problem) for r in added} == set(map(fixed, shapes))
    assert matmul.refine(rows) == []
    rows = fake.laws(lambda n: 1e-9 * n**2, lambda n: 2e-5, [64, 1024])
    rows += [row("matmul/tensorflow/function", square(n), 1e-9 * n**2 * 3) for n in (64, 1024)]
    assert {r.kernel for r in matmul.refine(rows)} == {"matmul/numpy/blas", "matmul/cupy/cublas"}
    rows += [row("matmul/tensorflow/function", square(n), 2e-5, device="gpu:0") for n in (64, 1024)]
    expected = {"matmul/numpy/blas", "matmul/cupy/cublas", "matmul/tensorflow/function"}
    assert {r.kernel for r in matmul.refine(rows)} == expected


def test_the_table_names_the_layer_and_tensorflow_runs_only_when_it_is_named(capsys):
    args = matmul.parser().parse_args(["--model", "cifar10-cnn", "--direction", "all"])
    names = tables.layer_names(matmul.works(args), True)
    table = tables.Matmuls(fake.GPU_MACHINE, names, matmul.problems(args), cold=True)
    for p in matmul.problems(args):
        table.shown(row("matmul/numpy/blas", p, 1e-3, threads=1))
        table.shown(row("matmul/mkl/gemm", p, 5e-4, threads=2))
    table.finish()
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["layer", "MxNxK", "type", "numpy", "ms"]
    assert lines[1].split()[:5] == ["dense1", "dgrad", "32x3136x512", "float32", "nt"]
    assert lines[1].endswith("mkl/gemm x2")
    assert len(lines) == 6 and {line.index("float32") > 30 for line in lines} == {True}
    args = matmul.parser().parse_args(["-q"])
    kinds = {k.backend for k in plan.kernels("matmul", args, ["cpu"], on_request=("tensorflow",))}
    assert {"numpy", "numba"} <= kinds and "tensorflow" not in kinds


def test_our_cuda_kernels_run_when_asked_for_and_rungs_without_copies(monkeypatch):
    asked = []

    def kernels(op, args, on, ladder, on_request):
        asked.append((ladder, on_request))
        made = [("cuda", "naive", True), ("cuda", "wgmma", False), ("cupy", "cublas", False)]
        return [Kernel(op, backend, v, lambda problem, a, b: None, ("gpu",), rung=rung) for backend, v, rung in made]

    monkeypatch.setattr(plan, "kernels", kernels)
    monkeypatch.setattr(plan, "roof_rows", lambda *args: [])
    modes, both = {"naive": 1, "wgmma": 4, "cublas": 4}, {"naive": 2, "wgmma": 2, "cublas": 2}
    for argv, out, copies in (
        (["--ladder"], ("tensorflow",), modes),
        ([], ("tensorflow", "cuda"), modes),
        (["--variants", "wgmma"], ("tensorflow",), modes),
        (["--modes", "roundtrip", "resident"], ("tensorflow", "cuda"), both),
    ):
        args = matmul.parser().parse_args([*argv, "--sizes", "64", "--device", "gpu", "-q"])
        rows = [r for r in matmul.rows(args, fake.GPU_MACHINE) if r.problem.op == "matmul"]
        assert asked.pop() == ("--ladder" in argv, out)
        assert {name: sum(r.kernel.endswith(name) for r in rows) for name in modes} == copies
