"""What rows of layers say together: ratios worked out by hand, names of layers, sums over a step, and their part of the page."""

import json

import fake_measurements as fake
import msgspec
import pytest
from fake_measurements import row, square
from legible import legible
from result_files import write

from analysis import labels, noise, report
from analysis import table as cells
from analysis.crossover import crossover, families, layers, network_steps
from analysis.crossover.families import comparable, conv_rows
from analysis.crossover.forms import COPIES, LATENCY
from analysis.crossover.time_split import ARITHMETIC, OVERHEAD, REMAINDER, why
from analysis.report import layers as layers_of_page
from analysis.report import page
from analysis.report.charts import layers as layer_charts
from analysis.report.charts import roofline, svg
from analysis.report.sections import method
from analysis.roofline import bounds
from analysis.roofline.roofs import BEST_MATMUL, describe, roofs_of
from analysis.text import answers, crossings, rates
from kernels import networks
from kernels.problems import Conv, Launch, Matmul, Peak
from workloads import printing
from workloads.machine import facts as machine
from workloads.tables import problem_tables


def conv(n: int = 32, **fields) -> Conv:
    return Conv(**{"n": n, "h": 8, "w": 8, "c_in": 8, "c_out": 16, "r": 3, "s": 3, "pad": "same"} | fields)


def cold(m):
    return msgspec.structs.replace(m, settings=msgspec.structs.replace(m.settings, cache="cold"))


def law(n: int, **fields) -> list:
    """1e-6 s an image on the CPU; on the GPU 20e-6 s a call, 4e-6 of them on the device, with copies 80e-6."""
    p = conv(n, **fields)
    return [
        row("conv/numpy/im2col", p, 1e-6 * n * p.h * p.c_in / 64, threads=1),
        row("conv/cudnn/plan", p, {"host-latency": 20e-6, "device": 4e-6}, device="gpu:0"),
        row("conv/cudnn/plan", p, 80e-6, device="gpu:0", mode="roundtrip"),
    ]


@pytest.mark.parametrize(
    ("varies", "sizes", "words"),
    [
        ("batch", {"n": (4, 40)}, ("the GPU wins from batch 20", "batch 4", "")),
        (
            "channels",
            {"n": (1, 1, 1), "c_in": (16, 100, 640), "c_out": (16, 100, 640)},
            ("the GPU wins from 160 channels", "100 channels", "16 channels"),
        ),
        (
            "size",
            {"n": (1, 1, 1), "h": (16, 100, 640), "w": (16, 100, 640)},
            ("the GPU wins from image side = 160", "image side = 100", "image side = 16"),
        ),
    ],
)
def test_sentences_and_reasons_name_what_varies(varies, sizes, words):
    """1e-6 n h c / 64 = 20e-6: n h c = 1280, of h = 8 and c = 8 at n = 20; on one image 160 channels or pixels."""
    rows = [m for at in zip(*sizes.values(), strict=True) for m in law(**dict(zip(sizes, at, strict=True)))]
    found = crossover.family_crossovers(conv_rows(comparable(rows, "conv"), {varies: 2}), (LATENCY, COPIES[0]))
    resident, copied = (next(a for a in found if a.form == form) for form in (LATENCY, COPIES[0]))
    assert words[0] in answers.sentence(resident)
    first, *_ = why(families.rows_of(rows, resident.family), resident)
    assert first.known == pytest.approx({ARITHMETIC: 4e-6, OVERHEAD: 16e-6, REMAINDER: 0})
    said = crossings.why_sentence(first, LATENCY)
    assert said.startswith(f"Why: at {words[1]} a GPU call takes 20.0 µs, ")
    assert said.endswith("80 % of the GPU's is launch and Python.")
    parts = [w.parts["copies"] for w in why(families.rows_of(rows, copied.family), copied)]
    assert parts and parts == pytest.approx([60e-6] * len(parts))
    slow = [m for m in rows if law_time(m) > 25e-6 or "cudnn" in m.kernel]  # the CPU at the larger sizes only
    always = crossover.family_crossovers(conv_rows(comparable(slow, "conv"), {varies: 1}), [LATENCY])
    assert "the smallest measured." in answers.sentence(next(a for a in always if a.kind == "gpu-at-smallest"))


def law_time(m) -> float:
    return m.samples[0].seconds[0]


def test_a_family_is_described_by_its_shape():
    rows = [m for n in (4, 100) for m in law(n)]
    quick = {"host-latency": 1e-6, "device": 1e-6}
    others = [row("conv/cudnn/plan", conv(n, direction="wgrad"), quick, device="gpu:0") for n in (4, 100)]
    others += [row("conv/tensorflow/jit", conv(n), quick, device="gpu:0") for n in (4, 100)]
    (answer,) = crossover.family_crossovers(conv_rows(comparable(rows, "conv")), [LATENCY])
    assert families.rows_of([*others, *rows], answer.family) == families.rows_of(rows, answer.family)
    dense = families.batch_family(Matmul(32, 10, 512, layout="tn"))
    assert dense.holds(Matmul(32, 10, 7, layout="tn")) and not dense.holds(Matmul(32, 11, 7, layout="tn"))
    assert not dense.holds(Matmul(32, 10, 7))
    assert not dense.holds(Matmul(32, 10, 7, "bfloat16", out="float32", layout="tn"))
    assert not families.SQUARES.holds(Matmul(8, 8, 8, layout="nt")) and families.SQUARES.holds(Matmul(8, 8, 8))
    assert labels.product(Matmul(8, 8, 8)) == "8" and labels.product(Matmul(8, 8, 8, layout="nt")) == "8 nt"
    expected = "2x8x8x8:16x3x3 wgrad (stride 2, 2 groups, NCHW, pad same)"
    assert labels.convolution(conv(2, stride=2, groups=2, layout="NCHW", direction="wgrad")) == expected
    expected = "conv/numpy/im2col, 2x8x8x8:16x3x3 fprop (pad same), 2 threads"
    assert describe(row("conv/numpy/im2col", conv(2), 1.0, threads=2)) == expected


def test_only_matmuls_are_judged_by_the_best_matmul():
    """2 x 4 x 4 x 8 floats in, 8 x 4 filters; with stride 2 out 2 x 2 x 2 x 4. The compulsory bytes would be a quarter of x."""
    p = Conv(2, 4, 4, 8, 4, 1, 1, stride=2)
    for other, into, out in (
        ({}, 4 * (256 + 32), 4 * 32),
        ({"direction": "dgrad"}, 4 * (32 + 32), 4 * 256),
        ({"direction": "wgrad"}, 4 * (256 + 32), 4 * 32),
        ({"dtype": "float16", "math": "float16"}, 2 * (256 + 32), 2 * 32),
    ):
        of = msgspec.structs.replace(p, **other)
        assert (of.operand_bytes, of.result_bytes) == (into, out)
    clocks = {"device": 2 * 64**3 / 1e12, "host-latency": 1e-3}
    product = row("matmul/cupy/cublas", Matmul(64, 64, 64, "bfloat16"), clocks)
    p = conv(dtype="bfloat16", math="bfloat16")
    quick = row("conv/cudnn/plan", p, {"device": p.flops / 2e12}, device="gpu:0")
    ceilings = roofs_of([product])
    assert ceilings[0].rate.value == pytest.approx(1e12) and ceilings[0].note == BEST_MATMUL
    assert bounds.judge(quick, ceilings).flag == "" and bounds.judge(quick, ceilings).fraction.value == pytest.approx(2)
    peak = roofs_of([row("peak/cupy/tensor", Peak("bfloat16", 10**12), {"device": 1.0})])
    assert bounds.judge(quick, peak).flag == bounds.ABOVE


def test_a_framework_and_cold_caches_beside_the_library():
    rows = [
        row("conv/numpy/im2col", conv(), 2e-3, threads=1),
        row("conv/numpy/im2col", conv(), 1e-3, threads=2),
        row("conv/tensorflow/function", conv(), 3e-3),
        row("conv/tensorflow/held", conv(), 5e-4),
        row("conv/cudnn/plan", conv(), {"host-latency": 5e-5, "device": 1e-6}, device="gpu:0"),
        row("conv/tensorflow/function", conv(), 2e-4, device="gpu:0"),
        row("conv/tensorflow/function", conv(64), 9.0),
        cold(row("conv/tensorflow/function", conv(), 9.0)),
    ]
    found = layers.against_library(rows, "conv")
    assert sorted((m.settings.device, m.variant, ratio) for m, _, ratio in found) == [
        ("cpu", "function", pytest.approx(3)),
        ("cpu", "held", pytest.approx(0.5)),
        ("gpu:0", "function", pytest.approx(4)),
    ]
    assert layers.spread([3.0, 1.0, 8.0]) == layers.Spread(3.0, 1.0, 8.0, 3)
    assert layers.spread([3.0, 1.0, 8.0]).words() == "3.00 (1.00 to 8.00)"
    assert layers.spread([2.0]).words() == "2.00" and layers.spread([]) is None
    rows = [
        row("conv/numpy/im2col", conv(), 1e-3, threads=2),
        row("conv/numpy/im2col", conv(), 2e-3, threads=1),
        cold(row("conv/numpy/im2col", conv(), 9e-3, threads=2)),
        cold(row("conv/numpy/im2col", conv(), 3e-3, threads=1)),
        cold(row("conv/numpy/im2col", conv(64), 1e-3, threads=1)),
    ]
    ((m, base, ratio),) = layers.cold_and_warm(rows, "conv")
    assert (m.settings.threads, base.settings.threads, ratio) == (1, 2, pytest.approx(3))


def test_less_precision_is_compared_within_a_backend():
    """8 and 16 channels: multiples of 8; 3 of them: of neither. tf32 is 4 and 1.5 times as fast."""
    rows = []
    for fields, gain in (({}, 4), ({"c_in": 3}, 1.5)):
        for math, factor in (("float32", 1), ("tf32", gain)):
            p = conv(math=math, **fields)
            rows.append(row("conv/cudnn/plan", p, {"device": 1e-3 / factor, "host-latency": 1.0}, device="gpu:0"))
            rows.append(row("conv/cudnn/plan", msgspec.structs.replace(p, n=8), {"device": 1e-9}, device="gpu:0"))
    found = layers.arithmetic(rows, "conv")
    assert [(a.math, a.alignment, a.rate.problems, a.speedup and a.speedup.median) for a in found] == [
        ("float32", 8, 1, None),
        ("float32", 1, 1, None),
        ("tf32", 8, 1, pytest.approx(4)),
        ("tf32", 1, 1, pytest.approx(1.5)),
    ]
    assert found[0].rate.median == pytest.approx(conv().flops / 1e-3)  # the smaller batch is left out
    # float32 was not measured there
    larger = row("conv/cudnn/plan", conv(256, math="tf32"), {"device": 1e-9}, device="gpu:0")
    assert layers.arithmetic([*rows, larger], "conv") == found


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


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    write(folder, fake.layers_run(batches=(1, 8, 128), maths=("float32", "tf32")))
    return report.render([folder], with_html=False)


def test_a_layers_table_omits_empty_columns(rendered):
    text = rendered.read_text()
    assert text.index("## Convolutions") < text.index("## Products of dense layers and other shapes")
    head = (
        "| layer | HxWxC:KxRxS | direction | precision | batch | multiples of | numpy | cudnn | cupy | tensorflow CPU | "
        "tensorflow GPU | fastest |"
    )
    found = text[text.index(head) :].split("\n\n")[0].splitlines()[2:]
    precisions = [line.split(" | ")[3] for line in found]
    assert precisions.count("float32") == 8 * 3 and set(precisions) == {"float32", "tf32"}
    expected = ["| a | c |", "| --- | ---: |"]
    assert cells.Table(("a", "b", "c"), [("x", "-", "1"), ("y", "", "2")], 2, ("b", "c")).md()[:2] == expected


def test_layer_pictures_keep_their_labels_apart():
    loaded = fake.layers_run(batches=(1, 8, 128), maths=("float32", "tf32"))
    ceilings = roofs_of(loaded.measurements, fake.GPU_MACHINE)
    drawn = roofline.chart(list(loaded.measurements), ceilings)
    for op in layers_of_page.HEADINGS:
        drawn += layer_charts.charts(layers_of_page.select(loaded, op, ceilings))
    assert len(drawn) == 1 + 2 * len(layers_of_page.HEADINGS)
    for chart in drawn:
        legible(svg.figure(chart.views[0], chart.title))


def test_layers_lie_at_their_bands_and_points(monkeypatch):
    monkeypatch.setattr(
        noise, "between_runs", lambda *row: noise.Between(share=0.0, source=noise.THIS_MACHINE)
    )  # runs do not differ
    rows = [m for n in (4, 16, 128) for m in law(n)]
    loaded = fake.Loaded((fake.run(fake.GPU_MACHINE),), tuple(rows), 0, ("conv.jsonl",))
    _, chart = layer_charts.charts(layers_of_page.select(loaded, "conv", ()))
    traces = {t.name: t.x for t in chart.views[0].traces}
    forms = {row[chart.numbers.heads.index("a call")]: row for row in chart.numbers.rows}
    column = chart.numbers.heads.index("answer")
    assert "batch 20" in forms["resident on the GPU"][column]
    assert any("batch 80" in row[column] for form, row in forms.items() if form.startswith("copied"))
    low, turn, high = 4, pytest.approx(20), 128
    assert traces["CPU wins"][:2] == [low, turn] and traces["GPU wins"][:2] == [turn, high]
    rows = [m for n in (4, 100) for m in law(n)] + [row("conv/tensorflow/jit", conv(100), 1e-9, device="gpu:0")]
    points = roofline.layer_points(rows)
    assert {(m.problem.n, m.kernel) for m in points} == {(100, "conv/numpy/im2col"), (100, "conv/cudnn/plan")}
    (axes,) = svg.figure(roofline.chart(rows, roofs_of(rows))[0].views[0], "").axes
    drawn = [(float(x), float(y)) for line in axes.lines if line.get_marker() == "^" for x, y in line.get_xydata()]
    p = conv(100)
    assert [x for x, _ in drawn] == pytest.approx([p.flops / p.bytes_moved] * 2, rel=1e-5)
    assert sorted(y for _, y in drawn) == pytest.approx([p.flops / 1e-4, p.flops / 4e-6], rel=1e-5)
    sizes = {device: size for device, _, size in (row.name for row in roofline.layer_rows(points, ()))}
    assert sizes == dict.fromkeys(("cpu", "gpu:0"), "batch 100")


def test_the_best_matmul_is_named_as_a_ceiling():  # 0.1 and 3,355 GFLOP/s
    rows = [row("matmul/cupy/cublas", square(n, "tf32"), {"device": 1e-5, "host-latency": 1e-4}) for n in (8, 256)]
    (view,) = roofline.chart(rows, roofs_of(rows))[0].views
    assert [t.label for t in view.traces if t.label] == ["GPU tf32, best seen 3.36 TFLOP/s"]
    ticks = [t.get_text() for t in svg.figure(view, "").axes[0].get_yticklabels()]
    assert {"0.1 GFLOP/s", "1 TFLOP/s"} <= {*ticks}


def test_an_empty_roofline_is_left_out(tmp_path, monkeypatch):
    write(tmp_path, msgspec.structs.replace(fake.gpu_run(), measurements=tuple(fake.transfer_rows())))
    text = report.render([tmp_path], with_html=False).read_text()
    assert not (tmp_path / "roofline.svg").exists() and "roofline.svg" not in text and "](transfers.svg)" in text
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    rows = fake.launch_rows()
    write(tmp_path, msgspec.structs.replace(fake.cpu_run(), measurements=tuple(rows)))
    text = report.render([tmp_path], with_html=False).read_text()
    assert "A time of `step x10 together` is that of all of them." in text and "| empty x64 together |" in text
    assert labels.problem(Launch("empty")) == "empty"


def test_the_memorys_ceiling_says_where_it_comes_from():
    """Bandwidths that fall all the way: no flat part anywhere, so the best beyond four times the cache counts."""
    rows = fake.stream_curve("stream/numba/loop", lambda nbytes: 1e10 * (2**31 / nbytes) ** 0.4, fake.STREAM_SIZES, 2)
    (memory,) = (r for r in roofs_of(rows, fake.CPU_MACHINE) if r.kind == "memory")
    assert memory.note == "no plateau up to 2.00 GiB"
    said = rates.roof_sentences((memory,))
    assert said == [f"Measured roofs of the CPU: {memory.speed} from DRAM."]
    quick = roofs_of(rows[-1:], fake.CPU_MACHINE)  # a look at one size has searched for no plateau
    assert [r.note for r in quick] == [""]


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


def test_roof_columns_need_a_roof(capsys, monkeypatch):
    for rows, there in (([], False), ([row("peak/numba/fma", Peak("float32", 10**9), 1e-2, threads=1)], True)):
        table = problem_tables.Convs(fake.CPU_MACHINE)
        for m in (*rows, row("conv/numpy/im2col", conv(), 1e-3, threads=1)):
            table.shown(m)
        table.finish()
        assert ("CPU % of roof" in capsys.readouterr().out) is there
    table, peak = printing.Lines(), Peak("float32", 10**9)
    for fields in ({}, {"status": "failed", "reason": "it died"}):
        table.shown(row("peak/numba/fma", peak, 1e-2 if not fields else None, threads=2, **fields))
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[-2:] == ["100", "GFLOP/s"] and second.split()[-3:] == ["failed", "it", "died"]
    monkeypatch.setenv("COLUMNS", "80")
    table = problem_tables.Matmuls(fake.CPU_MACHINE)
    table.shown(row("peak/numba/fma", peak, 1e-2, threads=1))
    for kernel, seconds in (("numpy/operator", 1e-5), ("numba/parallel", 1e-4), ("numba/simd", 2e-5)):
        table.shown(row(f"matmul/{kernel}", Matmul(64, 64, 64), seconds, threads=1))
    table.finish()
    assert capsys.readouterr().out.endswith("  numpy/operator x1\n")


def test_a_plan_prints_as_text_or_json(capsys):
    from workloads import conv as command

    words = ["--shapes", "1x8x8x3:4x3x3", "--backends", "numpy", "--threads", "1", "--dry-run", "-q"]
    assert command.main([*words, "--format", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["rows"][-1]["kernel"] == "conv/numpy/im2col" and planned["rows"][-1]["problem"]["c_out"] == 4
    assert planned["largest_bytes"] > 0 and planned["seconds_at_most"] > 0
    assert command.main([*words, "--format", "csv"]) == 2
    assert capsys.readouterr().err.startswith("error: --dry-run has nothing measured for --format csv")


def test_batched_tensorflow_calls_stand_for_no_side():
    p = Conv(2, 8, 8, 4, 4, 3, 3)
    rows = [row(f"conv/{backend}/held", p, 1e-3) for backend in ("numba", "tensorflow")]
    sides = [families.comparable(rows, "conv", framework) for framework in ("", "tensorflow")]
    assert [[m.kernel for m in side] for side in sides] == [["conv/numba/held"], []]
    assert set(layers.best_by_side(rows, "conv")[p]) == {"numba"}


def test_an_output_type_makes_a_family_of_it():
    fixed = dict(families._fixed(Matmul(8, 16, 32, "float16", out="float32"), ("m",)))
    assert fixed == {"n": 16, "k": 32, "out": "float32", "layout": "nn"}
    assert "out" not in dict(families._fixed(Matmul(8, 16, 32, "float16"), ("m",)))


def product(kernel: str, m: int, seconds: float, math: str = "float32", **fields):
    problem = Matmul(m, 24, 40, {"float32": "float32", "bfloat16": "bfloat16"}[math], math)
    return row(f"matmul/{kernel}", problem, seconds, **fields)


def test_frameworks_and_cold_caches_are_compared_by_size():
    """At 8 rows 6 ms of the framework against 2 ms of the better library, at 16 rows 5 against 2.5; cold 9 against 3."""
    rows = [
        product("numpy/blas", 8, 3e-3, threads=1),
        product("numpy/blas", 8, 2e-3, threads=4),
        product("numba/packed", 8, 4e-3, threads=1),
        product("tensorflow/function", 8, 6e-3),
        product("numpy/blas", 16, 2.5e-3, threads=1),
        product("tensorflow/function", 16, 5e-3),
        product("tensorflow/function", 32, 1.0),  # no library
        product("numba/packed", 16, 3e-3, threads=1),
        product("numba/packed", 16, 9e-3, threads=1, cache="cold"),
        product("numpy/blas", 16, 9e-3, threads=1, status="failed", cache="cold"),
    ]
    beside = layers.against_library(rows, "matmul")
    assert [(m.problem.m, base.kernel, ratio) for m, base, ratio in beside] == [
        (8, "matmul/numpy/blas", pytest.approx(3.0)),
        (16, "matmul/numpy/blas", pytest.approx(2.0)),
    ]
    (cold,) = layers.cold_and_warm(rows, "matmul")
    assert (cold[0].settings.cache, cold[1].settings.cache, cold[2]) == ("cold", "warm", pytest.approx(3.0))
    by_size = layers.by_size([*beside, (beside[0][0], beside[0][1], 5.0)])
    assert {key[3:5]: (s.median, s.least, s.most, s.problems) for key, s in by_size.items()} == {
        ("matmul/tensorflow/function", 8): pytest.approx((4.0, 3.0, 5.0, 2)),
        ("matmul/tensorflow/function", 16): pytest.approx((2.0, 2.0, 2.0, 1)),
    }


def test_less_precision_is_compared_at_the_largest_batch():
    """Of 8, 16 and 32 rows in float32 and 8 and 16 in bfloat16 it is 16: 4 ms against 1 ms."""
    rows = [product("numba/amx", m, 0.25e-3 * m) for m in (8, 16, 32)]
    rows += [product("numba/amx", m, m / 16 * 1e-3, "bfloat16") for m in (8, 16)]
    plain, less = layers.arithmetic(rows, "matmul")
    assert (plain.math, less.math, plain.alignment) == ("float32", "bfloat16", 8)
    flops = 2 * 16 * 24 * 40
    assert (plain.rate.median, less.rate.median) == pytest.approx((flops / 4e-3, flops / 1e-3))
    assert (plain.speedup, less.speedup.median, less.rate.problems) == (None, pytest.approx(4.0), 1)
    assert layers.largest(rows, "matmul") == [rows[2], rows[4]]
    assert layers.largest(rows[::-1], "matmul") == [rows[4], rows[2]]


def test_a_spread_is_the_median_with_its_ends():
    assert layers.spread([4.0, 1.0, 2.0, 9.0]) == layers.Spread(3.0, 1.0, 9.0, 4)
    assert layers.spread([4.0, 1.0, 2.0]).words() == "2.00 (1.00 to 4.00)" and layers.spread([2.0]).words() == "2.00"
    assert (
        layers.spread([]) is None and layers.aligned(8) == "multiples of 8" and layers.aligned(1).startswith("not all")
    )
