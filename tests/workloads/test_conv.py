"""python -m workloads.conv and workloads.matmul: what they plan and refuse, their tables, and the answers along batch,
channels and size."""

import json
import pathlib
import types

import fake_measurements as fake
import msgspec
import pytest
from fake_measurements import row, square
from msgspec.structs import replace

from analysis.analysis import Analysis
from analysis.crossover import crossover, families
from analysis.crossover.families import comparable, conv_rows
from analysis.crossover.forms import LATENCY
from analysis.roofline.frame import frame
from analysis.text import answers, summary
from kernels import networks, registry
from kernels.networks import NETWORKS, Layer, Network
from kernels.problems import Conv, Matmul
from kernels.reference import conv as reference_conv
from kernels.registry import Kernel
from workloads import conv, matmul, options, session
from workloads.harness import copy_modes, one_row, plan, sweep
from workloads.harness.timing import Limits
from workloads.records import Row, Settings
from workloads.tables import problem_tables

pytestmark = pytest.mark.usefixtures("no_roofs")
FAST = ["--fast", "--backends", "numpy", "--threads", "1", "--max-time", "0.05", "--min-time", "0.005", "-q"]


def problems(*argv, command=conv):
    return list(command.parse(argv).problems)


def test_a_plan_has_models_shapes_and_variations():
    found = problems("--model", "cifar10-cnn", "--batch", "8", "--direction", "all")
    assert [(p.c_in, p.c_out, p.h, p.pad, p.direction) for p in found] == [
        (3, 32, 32, "same", "fprop"),
        (3, 32, 32, "same", "wgrad"),
        *((32, 64, 16, "same", way) for way in Conv.DIRECTIONS),
        *((64, 64, 16, "valid", way) for way in Conv.DIRECTIONS),
    ]
    assert {p.n for p in found} == {8}
    assert len(set(problems("--model", "vgg-16"))) == len(problems("--model", "vgg-16")) == 9  # of 13 layers
    assert problems() == problems("--model", "cifar10-cnn", "--batch", "32", "--direction", "fprop")
    assert {p.layout for p in problems("--layout", "NCHW")} == {"NCHW"}
    (p,) = problems("--shapes", "2x9x7x6:9x3x2", "--stride", "2", "--pad", "1", "--groups", "3", "--layout", "NCHW")
    assert p == Conv(2, 9, 7, 6, 9, 3, 2, 2, 1, 3, "NCHW")
    assert problems("--shapes", "2x9x7x6:9x3x2x6")[0].pad == "same"
    both = problems("--shapes", "2x9x7x6:9x3x2", "--dtypes", "float32", "tf32", "--direction", "dgrad,wgrad")
    expected = [(way, math) for way in ("dgrad", "wgrad") for math in ("float32", "tf32")]
    assert [(p.direction, p.math) for p in both] == expected
    base = ["--shapes", "2x8x8x4:16x3x3"]
    assert [(p.n, p.c_in) for p in problems(*base, "--batch", "1:16:x4")] == [(1, 4), (4, 4), (16, 4)]
    expected = [(4, 4, 2), (8, 8, 2)]
    assert [(p.c_in, p.c_out, p.n) for p in problems(*base, "--vary", "channels", "--sizes", "4", "8")] == expected
    expected = [(8, 8, 16), (16, 16, 16)]
    assert [(p.h, p.w, p.c_out) for p in problems(*base, "--vary", "size", "--sizes", "8:16")] == expected


def test_an_impossible_model_or_direction_is_corrected(capsys):
    conv.main(["--model", "peaks", "--batch", "7"])
    assert capsys.readouterr().err.rstrip().endswith("-m workloads.matmul --model peaks --batch 7")
    dense = problems("--model", "peaks", "--batch", "7", command=matmul)
    assert {(p.m, p.n, p.k) for p in dense} == {(7, 20, 2), (7, 5, 20), (7, 1, 5)}
    layers = (Layer("conv1", "conv", 2, 3), Layer("flatten", "flatten"), Layer("classes", "dense", 2))
    NETWORKS["one-conv"] = Network("one-conv", "", (8, 8, 1), 2, layers)
    networks.known.cache_clear()
    try:
        with pytest.raises(options.Usage, match="the convolutions of one-conv have no dgrad"):
            problems("--model", "one-conv", "--direction", "dgrad")
    finally:
        del NETWORKS["one-conv"]
        networks.known.cache_clear()


def law(n: int, **fields) -> list:
    """A convolution of batch n: 1e-6 s an image on the CPU; on the GPU 20e-6 s a call, with its copies 80e-6."""
    p = Conv(**{"n": n, "h": 8, "w": 8, "c_in": 4, "c_out": 4, "r": 3, "s": 3, "pad": "same"} | fields)
    return [
        row("conv/numpy/im2col", p, 1e-6 * p.n * p.h * p.c_in / 32, threads=1),
        row("conv/cudnn/plan", p, {"host-latency": 20e-6, "device": 1e-6}, device="gpu:0"),
        row("conv/cudnn/plan", p, 80e-6, device="gpu:0", mode="roundtrip"),
    ]


@pytest.mark.parametrize(
    ("varies", "fields", "true"),
    [
        ("batch", lambda v: {"n": v}, 20),
        ("channels", lambda v: {"n": 1, "c_in": v, "c_out": v}, 80),
        ("size", lambda v: {"n": 1, "h": v, "w": v}, 160),
    ],
)
def test_a_known_crossover_is_refined_along_each_axis(varies, fields, true):
    sizes, done = [4, 1024], [m for v in (4, 1024) for m in law(**{"n": 1} | fields(v))]
    plan = conv.parse(["--vary", varies])
    while added := plan.refine(None, done):
        new = dict.fromkeys(r.problem for r in added)
        assert {r.key for r in added} <= {m.key for p in new for m in law(**msgspec.structs.asdict(p))}
        done += [m for p in new for m in law(**msgspec.structs.asdict(p))]
        sizes += [families.Family("conv", varies, families.CONV_FIELDS[varies]).size(p) for p in new]
    (answer,) = crossover.family_crossovers(conv_rows(comparable(done, "conv"), {varies: 2}), [LATENCY])
    assert answer.family.varies == varies and answer.kind == "gpu-from"
    (crossing,) = answer.crossings
    assert crossing.fine and crossing.at.value == pytest.approx(true, rel=0.02) and len(sizes) < 30


def test_families_have_equal_problems_and_valid_sizes():
    rows = [*law(1), *law(64), *law(1, direction="wgrad"), *law(1, c_in=8, c_out=8), *law(1, h=16, w=16)]
    found = conv_rows(comparable(rows, "conv"))
    # two sizes are no sweep of sizes
    assert {f.varies: set(r["float32"]) for f, r in found.items()} == {"batch": {1, 64}}
    expected = {"batch", "channels", "size"}
    assert {f.varies for f in conv_rows(comparable(rows, "conv"), dict.fromkeys(families.CONV_FIELDS, 2))} == expected
    (family,) = found
    assert family.at(5, "tf32") == Conv(5, 8, 8, 4, 4, 3, 3, 1, "same", math="tf32")
    assert families.SQUARES.at(7, "bfloat16") == Matmul(7, 7, 7, "bfloat16")
    lone = [m for n in (1, 64) for m in law(n, c_in=3, h=9)]
    assert {f.varies for f in conv_rows(comparable(lone, "conv"), dict.fromkeys(families.CONV_FIELDS, 1))} == {"batch"}
    rows = [m for v in (8, 1024) for m in law(1, c_in=v, c_out=v, groups=8)]
    of_channels = conv.parse(["--vary", "channels"])
    added = of_channels.refine(None, rows)
    assert added and all(r.problem.c_in % 8 == 0 for r in added)
    assert conv.parse(["--vary", "channels", "--no-refine"]).refine(None, rows) == []
    rows = [m for v in (6, 96) for m in law(1, c_in=v, c_out=v, groups=3)]
    assert of_channels.refine(None, rows) == []  # 32, in the middle, is not in three groups


def test_frameworks_and_cold_rows_meet_their_like():
    rows = [m for n in (4, 1024) for m in law(n)]
    for n in (4, 1024):
        p = rows[0].problem if n == 4 else rows[3].problem
        rows.append(row("conv/tensorflow/function", p, 1e-9, device="gpu:0"))
        rows.append(row("conv/tensorflow/function", p, 1.0))
        rows.append(row("conv/tensorflow/held", p, 1e-12))
    (raw,) = crossover.family_crossovers(conv_rows(comparable(rows, "conv")), [LATENCY])
    assert raw.kind == "gpu-from"
    assert {s.kernel for p in raw.points for s in (p.cpu, p.gpu)} == {"conv/numpy/im2col", "conv/cudnn/plan"}
    (own,) = crossover.family_crossovers(
        conv_rows(comparable(rows, "conv", "tensorflow")), [LATENCY], framework="tensorflow"
    )
    assert own.kind == "gpu-at-smallest" and own.form.framework == "tensorflow"
    assert own.points[0].cpu.seconds.value == 1.0  # 50 convolutions in a call are no call
    cold = [replace(m, settings=replace(m.settings, cache="cold")) for m in rows[:1] + rows[1:2]]
    assert crossover.forms_of(rows + cold) == [("", "warm"), ("", "cold"), ("tensorflow", "warm")]
    assert crossover.family_crossovers(conv_rows(comparable(cold, "conv")), [LATENCY]) == ()


def test_answers_name_the_family_and_what_varies():
    rows = [m for n in (4, 40) for m in law(n, stride=2, groups=2)]
    said = answers.lines(crossover.layer_crossovers(rows, "conv"), rows)
    family = "convolution Nx8x8x4:4x3x3 fprop (stride 2, 2 groups, pad same)"
    assert said[0].startswith(f"{family[0].upper()}{family[1:]}, float32, resident on the GPU: the GPU")
    assert "the GPU wins from batch 20." in said[0]
    always = [m for n in (64, 1024) for m in law(n)]
    expected = "the GPU wins from batch 64, the smallest measured."
    assert expected in answers.lines(crossover.layer_crossovers(always, "conv"), always)[0]
    cpu = [m for m in rows if m.settings.device == "cpu"]
    (told,) = answers.lines(crossover.layer_crossovers(cpu, "conv"), cpu)
    assert told == "No GPU was measured on this machine, so there is no crossover here."
    many = answers.lines(crossover.layer_crossovers(rows, "conv"), rows, most=1)
    assert len(many) == 2 and many[1].startswith("... and 1 more answer")


def test_the_table_names_layer_shape_and_winner(capsys):
    plan = conv.parse(["--model", "vgg-16", "--batch", "2"])
    rows = [row("conv/numpy/im2col", p, 1e-3, threads=t) for p in plan.problems for t in (1, 2)]
    (said,) = answers.together(plan.layers, rows, "convolutions of vgg-16")
    assert said == "All 13 convolutions of vgg-16 (fprop), float32, batch 2: 13.0 ms on the CPU."
    assert answers.together(plan.layers, rows[:3], "convolutions") == []
    plan = conv.parse(["--model", "cifar10-cnn", "--direction", "all"])
    planned = plan.problems
    table = plan.table(fake.GPU_MACHINE)
    for p in (*planned, replace(planned[0], n=7)):
        table.add(row("conv/numpy/im2col", p, 2e-3, threads=2))
        table.add(row("conv/numpy/im2col", p, 3e-3, threads=1))
        table.add(row("conv/cupy/im2col", p, {"host-latency": 1e-4, "device": 9e-5}))
        table.add(row("conv/cudnn/plan", p, {"host-latency": 5e-5, "device": 4e-5}, device="gpu:0"))
        table.add(row("conv/cudnn/plan", p, 5e-3, device="gpu:0", mode="roundtrip"))
        table.add(row("conv/tensorflow/jit", p, 1e-9, device="gpu:0"))
    table.finish()
    head, first, *others = capsys.readouterr().out.splitlines()
    assert head.split("  ")[-1].strip() == "winner" and "tensorflow jit GPU ms" in head
    assert first.split()[:5] == ["conv1", "32x32x32x3:32x3x3", "same", "fprop", "float32"]
    flops = 2 * 32 * 32 * 32 * 27 * 32
    cells = first.split()
    assert cells[5] == "2.00" and float(cells[6]) == pytest.approx(flops / 2e-3 / 1e9, rel=1e-2)
    assert cells[7:9] == ["0.0500", "5.00"] and "% of roof" not in head  # no roof was measured
    assert first.endswith("GPU resident (cudnn/plan)")
    assert others[-2] == "sizes added around the crossovers:" and others[-1].split()[0] == "conv1"


def test_a_plan_has_every_setting_once():
    convolutions = conv.parse(["--shapes", "1x8x8x4:4x3x3", "--cache", "warm", "cold", *FAST])
    measuring = convolutions.measuring
    found = [r for r in convolutions.rows(fake.CPU_MACHINE) if r.problem.op == "conv"]
    expected = [("conv/numpy/im2col", "warm"), ("conv/numpy/im2col", "cold")]
    assert [(r.kernel, r.settings.cache) for r in found] == expected
    on_gpu = Kernel("conv", "cudnn", "plan", lambda p, a, b: None, ("gpu",))
    modes = list(options.MODES)
    assert [s.mode for s in plan.settings(on_gpu, ["cpu", "gpu:0"], measuring, modes=modes)] == modes
    cold = plan.settings(on_gpu, ["gpu:0"], measuring, modes=modes, cache="cold")
    assert [(s.mode, s.cache) for s in cold] == [("resident", "cold")]
    framework = Kernel("conv", "tensorflow", "jit", lambda p, a, b: None, ("cpu", "gpu"))
    assert [s.mode for s in plan.settings(framework, ["gpu:0"], measuring, modes=modes)] == ["resident"]
    shape = ["--shapes", "1x8x8x4:4x3x3", "--fast", "--threads", "1", "--backends", "numba"]
    for more, expected in (
        ("", ["blocked", "held"]),
        ("--ladder", ["blocked", "direct", "held"]),
        ("--variants direct", ["direct"]),
    ):
        found = conv.parse([*shape, *more.split()]).rows(fake.CPU_MACHINE)
        assert sorted(r.kernel for r in found if r.problem.op == "conv") == [f"conv/numba/{name}" for name in expected]


def test_the_command_measures_in_every_format(tmp_path, capsys):
    flags = ["--shapes", "2x8x8x3:4x3x3", "--direction", "all", "--format", "json", "-o"]
    assert conv.main([*flags, str(tmp_path), *FAST]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["direction"], r["c_out"], r["status"]) for r in found] == [(way, 4, "ok") for way in Conv.DIRECTIONS]
    assert conv.main(["--shapes", "1x8x8x8:8x3x3", "--dtypes", "float16", *FAST, "-o", str(tmp_path / "none")]) == 3
    assert "skipped: 1 row" in capsys.readouterr().err


def test_a_plan_and_its_bound_reach_the_measurement(monkeypatch):
    """A kernel whose answer is off by less than it says is `bound`, one that is off by more is wrong."""

    def planted(error: float, bound: float | None):
        def bind(p, a, b):
            answer = reference_conv.conv(p, a, b)

            def run():
                return answer + a.dtype.type(error)

            run.notes = {"plan": "winograd"}
            if bound is not None:
                run.bound = bound
            return run

        return registry.Kernel("conv", "numpy", "planted", bind, ("cpu",))

    problem = Conv(2, 6, 6, 3, 4, 3, 3)
    for dtype in ("float32", "float16"):
        for error, bound, status in ((0.0, None, "ok"), (0.03, 0.1, "ok"), (0.2, 0.1, "wrong"), (0.25, None, "wrong")):
            if dtype == "float16" and status == "wrong":
                error *= 10  # beyond what 16 bits round away
            made = planted(error, bound)
            monkeypatch.setattr(one_row.registry, "find", lambda name, made=made: made)
            monkeypatch.setattr(one_row, "_known", {})
            one_row.bound_rows.clear()
            p = replace(problem, dtype=dtype, math=dtype)
            done = one_row.measure(Row("conv/numpy/planted", p, Settings(threads=1)), Limits(1e-3, 3, 0.5, 1e-2), 1)
            assert (done.status, done.check) == (status, "exact" if bound is None else "bound"), (dtype, error, bound)
            assert done.notes == ({"plan": "winograd"} if status == "ok" else {})


def test_notes_outlive_the_copies_around_a_kernel():
    def compute():
        pass

    compute.notes, compute.bound = {"plan": "eng0"}, 0.1
    kernel = types.SimpleNamespace(bind=lambda problem: compute)
    prepared = copy_modes.Prepared(copy_modes._roundtrip(None, kernel, None, ()), lambda value: value)
    assert (prepared.notes, prepared.bound) == ({"plan": "eng0"}, 0.1)


@pytest.mark.parametrize("kernel", ["conv/numpy/im2col", "conv/numba/direct"])
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_operands_of_other_shapes_are_refused(kernel, direction):
    """They would be read past their ends."""
    p = Conv(1, 6, 6, 8, 4, 3, 3, direction=direction)
    a, b = p.inputs(1)
    bind = registry.find(kernel).bind
    for given in ((a[..., :1], b), (a, b[..., :1])):
        with pytest.raises(ValueError, match=f"{direction} wants an operand of shape"):
            bind(p, *given)
    _, b = (product := Matmul(4, 4, 4)).inputs(1)
    with pytest.raises(ValueError, match=r"the product wants an operand of shape \(4, 4\), not \(3, 4\)"):
        registry.find("matmul/numba/naive").bind(product, b[:3], b)


def products(*argv):
    return problems(*argv, command=matmul)


def test_a_models_dense_layers_layouts_and_float8():
    found = products("--model", "cifar10-cnn", "--batch", "8", "--direction", "all")
    assert found == [
        Matmul(8, 512, 3136),
        Matmul(8, 3136, 512, layout="nt"),
        Matmul(3136, 512, 8, layout="tn"),
        Matmul(8, 10, 512),
        Matmul(8, 512, 10, layout="nt"),
        Matmul(512, 10, 8, layout="tn"),
    ]
    assert [(p.m, p.k) for p in products("--model", "fashion-mlp", "--batch", "4")] == [(4, 784), (4, 500), (4, 500)]
    first = products("--model", "cifar10-mlp", "--batch", "4", "--direction", "dgrad")
    assert [(p.n, p.k) for p in first] == [(3000, 1000), (1000, 10)]  # nothing needs the images' gradient
    found = products("--sizes", "8", "16", "--layouts", "nn,tn", "--dtypes", "float32", "tf32")
    expected = [(n, way, math) for n in (8, 16) for way in ("nn", "tn") for math in ("float32", "tf32")]
    assert [(p.n, p.layout, p.math) for p in found] == expected
    eight = Matmul(16, 16, 16, "float8_e4m3", out="bfloat16", layout="nt")
    assert products("--sizes", "16", "--dtypes", "float8_e4m3", "--layouts", "nn", "nt") == [eight]
    found = products("--model", "lenet", "--dtypes", "float8_e4m3", "--direction", "all")
    assert {(p.layout, p.out) for p in found} == {("nt", "bfloat16")}


def test_batched_and_epilogue_products_have_their_crossovers(capsys):
    """A GPU call takes 20 µs however many there are, the CPU 1 ns an n^2 and product: even at 141, at 8.8 for 256; with the
    epilogue 16 ns, even at 35."""
    found = products("--batch", "1", "256", "--sizes", "4", "512")
    assert found == [Matmul(n, n, n, batch=b) for b in (1, 256) for n in (4, 512)]
    rows = []
    for p in products("--batch", "1", "256", "--sizes", "4:512:x2"):
        rows += [row("matmul/numpy/blas", p, 1e-9 * p.n**2 * p.count, threads=1)]
        rows += [row("matmul/cupy/cublas", p, 2e-5, device="gpu:0")]
    for p in products("--epilogue", "bias-relu", "--sizes", "4:512:x2"):
        fused = [
            row("matmul/numpy/blas", p, 16e-9 * p.n**2, threads=1),
            row("matmul/cupy/cublas", p, 2e-5, device="gpu:0"),
        ]
        rows = [*fused, *rows]
    many = matmul.parse(["--batch", "1", "256", "--sizes", "4", "512"])
    run = fake.run(fake.GPU_MACHINE)
    outcome = sweep.Outcome(run, pathlib.Path("x.jsonl"), rows)
    many.answer(outcome, session.analyzed(outcome))
    said = capsys.readouterr().out
    assert "Square float32 products, resident on the GPU: the GPU wins from about n = 141 (124 to 161)" in said
    assert (
        "Square products, 256 in one launch, float32, resident on the GPU: the GPU wins from about n = 9 (8 to 11)"
        in said
    )
    assert "Square products, bias-relu, float32, resident on the GPU: the GPU wins from about n = 36 (32 to 41)" in said
    assert "256 in one launch" in " ".join(summary.answer(Analysis.from_rows(rows, fake.GPU_MACHINE)))
    few = [m for m in rows if m.problem.n in (4, 512)]
    assert {r.problem.count for r in many.refine(fake.GPU_MACHINE, few)} == {1, 256}
    for planned in (found, [*found, Matmul(1, 1, 100_000)]):
        table = problem_tables.Matmuls(fake.GPU_MACHINE, planned=planned)
        for m in (rows[-1], row("matmul/cupy/cublas", planned[-1], 2e-5, device="gpu:0")):
            table.add(m)
        table.finish()
        heads, *lines = capsys.readouterr().out.splitlines()
        assert lines[0].split()[:3] == ["512", "float32", "x256"]
        assert {line.index("float32") for line in lines} == {heads.index("type")}
    assert list(frame(rows)["batch"].fillna(1)) == [1] * 32 + [256] * 16
    assert list(frame(rows)["epilogue"].fillna("")) == ["bias-relu"] * 16 + [""] * 32


def test_crossovers_are_refined_by_their_own_kernels():
    def at(p):
        n = p.k if p.layout == "tn" else p.m
        return [row("matmul/numpy/blas", p, 1e-6 * n, threads=1), row("matmul/cupy/cublas", p, 20e-6)]

    layers = [products("--model", "lenet", "--batch", n, "--direction", "all") for n in ("1", "512")]
    rows = [m for some in layers for p in some for m in at(p)]
    added = matmul.parse(["--model", "lenet"]).refine(None, rows)
    squares = matmul.parse([])
    shapes = {r.problem for r in rows}
    assert added and not {r.problem for r in added} & shapes
    fixed = lambda p: (p.n, p.k) if p.layout != "tn" else (p.m, p.n)  # noqa: E731
    assert {fixed(r.problem) for r in added} == set(map(fixed, shapes))
    assert squares.refine(None, rows) == []
    rows = fake.laws(lambda n: 1e-9 * n**2, lambda n: 2e-5, [64, 1024])
    rows += [row("matmul/tensorflow/function", square(n), 1e-9 * n**2 * 3) for n in (64, 1024)]
    assert {r.kernel for r in squares.refine(None, rows)} == {"matmul/numpy/blas", "matmul/cupy/cublas"}
    rows += [row("matmul/tensorflow/function", square(n), 2e-5, device="gpu:0") for n in (64, 1024)]
    expected = {"matmul/numpy/blas", "matmul/cupy/cublas", "matmul/tensorflow/function"}
    assert {r.kernel for r in squares.refine(None, rows)} == expected


def test_our_cuda_kernels_run_only_on_request(monkeypatch):
    asked = []

    def kernels(op, measuring, on, ladder, on_request):
        asked.append((ladder, set(on_request)))
        made = [("cuda", "naive", True), ("cuda", "wgmma", False), ("cupy", "cublas", False)]
        return [Kernel(op, backend, v, lambda problem, a, b: None, ("gpu",), rung=rung) for backend, v, rung in made]

    monkeypatch.setattr(plan, "kernels", kernels)
    monkeypatch.setattr(plan, "roof_rows", lambda *given, **more: [])
    modes, both = {"naive": 1, "wgmma": 4, "cublas": 4}, {"naive": 2, "wgmma": 2, "cublas": 2}
    for argv, out, copies in (
        (["--ladder"], {"tensorflow"}, modes),
        ([], {"tensorflow", "cuda"}, modes),
        (["--variants", "wgmma"], {"tensorflow"}, modes),
        (["--modes", "roundtrip", "resident"], {"tensorflow", "cuda"}, both),
    ):
        products = matmul.parse([*argv, "--sizes", "64", "--device", "gpu", "-q"])
        rows = [r for r in products.rows(fake.GPU_MACHINE) if r.problem.op == "matmul"]
        assert asked.pop() == ("--ladder" in argv, out)
        assert {name: sum(r.kernel.endswith(name) for r in rows) for name in modes} == copies


def test_a_plan_prints_as_text_or_json(capsys):
    from workloads import conv as command

    words = ["--shapes", "1x8x8x3:4x3x3", "--backends", "numpy", "--threads", "1", "--dry-run", "-q"]
    assert command.main([*words, "--format", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["rows"][-1]["kernel"] == "conv/numpy/im2col" and planned["rows"][-1]["problem"]["c_out"] == 4
    assert planned["largest_bytes"] > 0 and planned["seconds_at_most"] > 0
    assert command.main([*words, "--format", "csv"]) == 2
    assert capsys.readouterr().err.startswith("error: --dry-run has nothing measured for --format csv")
