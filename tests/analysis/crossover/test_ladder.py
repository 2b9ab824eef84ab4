"""The ladder from made-up rows whose speeds are known: order, ratios, what stands beside them, and who is missing."""

import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, cpu_run, row, run, square

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.crossover import ladder
from analysis.report import page
from analysis.report.charts import svg
from analysis.report.charts.ladder import ladder_chart
from analysis.report.material import Material
from analysis.report.sections.roofline import ladder_section
from kernels import registry
from kernels.cuda import tiles
from kernels.problems import Conv, Peak
from workloads.records import Loaded


def at(kernel: str, n: int, rate: float, math: str = "float32", **how):
    p = square(n, math)
    gpu = kernel.split("/")[1] in ("cuda", "cupy", "cublaslt")
    time = {"device": p.flops / rate, "host-latency": p.flops / rate + 1e-5} if gpu else p.flops / rate
    return row(kernel, p, time, **({"device": "gpu:0"} if gpu else {"threads": 1}), **how)


def cpu_rows():
    """naive 1, reordered 8, packed 16 GFLOP/s; libraries 80 and 100, the peak 200; from n = 512 no naive, at 640 no library."""
    both = {"numba/packed": 16e9, "numba/reordered": 8e9}
    large = both | {"numpy/operator": 80e9, "numpy/blas": 100e9}
    sizes = (640, both), (512, large), (256, large | {"numba/naive": 1e9})
    made = [at(f"matmul/{name}", n, rate) for n, of in sizes for name, rate in of.items()]
    return [*made, row("peak/numba/fma", Peak("float32", 10**9), 10**9 / 200e9, threads=1)]


def ladders(rows, machine, op: str = "matmul") -> list[ladder.Ladder]:
    return Analysis.from_rows(rows, machine).ladders[op]


def page_of(rows, op: str = "matmul") -> list[str]:
    material = Material(Analysis.from_loaded(Loaded((run(CPU_MACHINE),), tuple(rows), 0, ())))
    return markdown(ladder_section(material, op))


def gpu_rows():
    rates = {"naive": 1e12, "coalesced": 5e12, "warp_tiled": 50e12}
    made = [at(f"matmul/cuda/{name}", 1024, rate) for name, rate in rates.items()]
    made += [at("matmul/cupy/cublas", 1024, 40e12), at("matmul/cuda/wgmma", 1024, 700e12, "bfloat16")]
    made.append(row("matmul/cuda/wgmma", square(1024), None, device="gpu:0", status="skipped", reason="not float32"))
    return [*made, row("peak/cupy/fma", Peak("float32", 10**13), {"device": 10**13 / 60e12, "host-latency": 0.3})]


def test_a_gpu_has_a_ladder_for_each_arithmetic():
    kernels = registry.ladder("matmul")
    numba, cuda = ([k for k in kernels if k.startswith(f"matmul/{b}/")] for b in ("numba", "cuda"))
    assert numba[:3] == [f"matmul/numba/{name}" for name in ("naive", "reordered", "parallel")]
    rungs = ("naive", "coalesced", "tiled", "register_tiled", "warp_tiled", "tensor_core")
    ideas = ["two_stages", "stages", "two_consumers", "128x256", "cluster", "ping_pong", "overlapped", "split_k"]
    assert cuda == [f"matmul/cuda/{name}" for name in (*rungs, *(f"wgmma_{idea}" for idea in ideas), "wgmma")]
    float32, bfloat16 = ladders([*gpu_rows(), *cpu_rows()], GPU_MACHINE)[1:]
    assert (float32.device, float32.math, bfloat16.math) == ("gpu:0", "float32", "bfloat16")
    assert float32.at(square(1024))[-1].library_share.value == pytest.approx(50 / 40)
    assert len(bfloat16.steps) == 1 and bfloat16.steps[0].library_share is None


def test_rungs_compare_with_library_peak_and_predecessor():
    (one,) = ladders(cpu_rows(), CPU_MACHINE)
    assert ladder.title(one) == "cpu, 1 thread, float32"
    steps = one.at(square(256))
    assert [s.kernel.rpartition("/")[2] for s in steps] == ["naive", "reordered", "packed"]
    assert [s.library_share.value for s in steps] == pytest.approx([0.01, 0.08, 0.16])  # of the faster library
    assert [s.peak_share.value for s in steps] == pytest.approx([0.005, 0.04, 0.08])
    assert steps[0].over_before is None and [s.over_before.value for s in steps[1:]] == pytest.approx([8, 2])
    later = one.at(square(640))
    assert [s.library_share for s in later] == [None, None] and later[1].over_before.value == pytest.approx(2)
    assert [s.problem.n for s in ladder.clearest_steps(one)] == [256, 256, 512]  # with a rung before it and a library
    more = [at(f"matmul/numba/{name}", 2048, 8e9) for name in ("reordered", "packed")]  # no library, but far larger
    assert [s.problem.n for s in ladder.clearest_steps(*ladders([*cpu_rows(), *more], CPU_MACHINE))] == [256, 256, 2048]
    said = ladder.sentences(one)
    assert said[0].startswith("numba/naive starts with 1.00 GFLOP/s at n = 256. The idea of matmul/numba/naive.")
    assert said[1].startswith(
        "numba/reordered is 8.00x faster than numba/naive at n = 256. The idea of matmul/numba/reordered."
    )
    stands = "At n = 512 the fastest rung, numba/packed, reaches 16.0 % of numpy/blas and 8.00 % of the measured peak."
    assert [line for line in said if "fastest rung" in line] == [stands]
    for faster, spread in ((1.01e9, 0.2), (1.015e9, 0.0)):  # noise, and less than is claimed of any two times
        of = {"naive": 1e9, "reordered": faster}.items()
        (one,) = ladders([at(f"matmul/numba/{x}", 64, rate, spread=spread) for x, rate in of], CPU_MACHINE)
        assert ladder.sentences(one)[1].startswith("numba/reordered can't be told from numba/naive at n = 64. ")
    rows = [at("matmul/numba/naive", 64, 1e9), at("matmul/numba/reordered", 64, 2e9, flags=("steal",))]
    assert any(s.endswith("It was flagged: steal.") for s in ladder.sentences(ladders(rows, CPU_MACHINE)[0]))
    lacks = row("matmul/numba/naive", square(512), None, threads=1, status="skipped", reason="minutes a call")
    said = ladder.sentences(ladders([*cpu_rows(), lacks], CPU_MACHINE)[0])
    assert "numba/naive has no row at n = 512: minutes a call." in said


def test_who_has_a_ladder():
    rows = [m for m in cpu_rows() if m.variant not in ("naive", "reordered", "packed")]
    rows.append(at("matmul/numba/parallel", 256, 20e9))
    assert ladders(rows, CPU_MACHINE) == [] and page_of(rows) == []
    rows = [*cpu_rows(), at("matmul/cuda/warp_tiled", 256, 50e12), at("matmul/cuda/wgmma", 256, 50e12)]
    assert [one.device for one in ladders(rows, GPU_MACHINE)] == ["cpu"]
    rows = [*cpu_rows(), row("matmul/numba/parallel", square(256), 1e-3, threads=2)]
    assert [one.threads for one in ladders(rows, CPU_MACHINE)] == [1]


def test_a_rung_is_compared_with_the_best_before():
    rates = {"naive": 1e12, "coalesced": 5e12, "tiled": 4e12, "register_tiled": 10e12}
    # 128 x 256 of C by wgmma's 64 x 256 from two bytes an item: 2 x 384 / (2 x 32,768) and 2 x 320 / (2 x 16,384) for a FLOP
    words = tiles.traffic(2, (128 + 256, 128 * 256), (64 + 256, 64 * 256))
    assert words == "0.012 L2, 0.02 shared"
    rows = [at(f"matmul/cuda/{name}", 1024, rate, notes={"traffic": words}) for name, rate in rates.items()]
    rows += [at(f"matmul/cuda/{name}", 512, rate) for name, rate in (("coalesced", 2e12), ("tiled", 3e12))]
    (one,) = ladders(rows, GPU_MACHINE)
    assert ladder.sentences(one)[2].endswith(" It is 1.50x faster than cuda/coalesced at n = 512.")
    steps = one.at(square(1024))
    assert [s.over_before.value for s in steps[1:]] == pytest.approx([5, 0.8, 2])
    assert [s.before.rpartition("/")[2] for s in steps[1:]] == ["naive", "coalesced", "coalesced"]
    assert ladder.cells(one, square(1024))[0][-1] == "0.00586 memory, 0.012 L2, 0.02 shared"  # 12 n^2 bytes, 2 n^3 FLOP


def test_the_terminal_and_the_page_show_the_ladder():
    text = ladder.lines(ladders(cpu_rows(), CPU_MACHINE))
    begin = text.index("Ladder, cpu, 1 thread, float32, n = 256")
    table = text[begin + 1 : begin + 6]
    assert table[0].split()[0] == "rung" and table[4].startswith("library: numpy/blas")
    assert len({len(line) for line in table}) == 1 and table[4].split()[-3:] == ["50.0", "%", "-"]
    (chart,) = ladder_chart(ladders(cpu_rows(), CPU_MACHINE), "matmul")
    assert (
        "| cpu, 1 thread, float32 | n = 256 | numba/reordered | 8.00 GFLOP/s | 8.00 % | 4.00 % | 8.00x |"
        in chart.numbers.md()
    )
    assert "## From three loops to the library" in page.markdown([Material(Analysis.from_loaded(cpu_run()))], False)
    bare = Loaded((run(CPU_MACHINE),), (at("matmul/numpy/blas", 256, 80e9),), 0, ("matmul.jsonl",))
    assert "## From three loops to the library" not in page.markdown([Material(Analysis.from_loaded(bare))], False)


def test_a_ladder_is_drawn_at_its_largest_problem():
    """At n = 512 naive is missing and the library has 100 GFLOP/s; at 640, larger, no library was measured."""
    (chart,) = ladder_chart(ladders(cpu_rows(), CPU_MACHINE), "matmul")
    (view,) = chart.views
    (bars,) = view.traces
    assert view.label == "cpu, 1 thread, float32, n = 512"
    assert dict(zip(bars.y, bars.x, strict=True)) == {"numba/reordered": 8e9, "numba/packed": 16e9}
    assert bars.says[1] == "16.0 GFLOP/s, 16.0 % of the library, 8.00 % of the peak"
    assert bars.captions == ["The idea of matmul/numba/reordered.", "The idea of matmul/numba/packed."]
    assert [at for at, _ in view.lines] == [100e9, 200e9]


def test_the_ladder_of_most_rungs_is_drawn_first():
    (chart,) = ladder_chart(ladders(gpu_rows(), GPU_MACHINE), "matmul")
    assert [len(view.traces[0].y) for view in chart.views] == [3, 1]
    assert ladder_chart([], "matmul") == []


def test_convolutions_have_a_ladder_of_their_own():
    p = Conv(32, 16, 16, 32, 64, 3, 3, pad="same")
    rates = {"numba/direct": 2e9, "numba/blocked": 100e9, "numpy/im2col": 50e9}
    rates |= {"tensorflow/eager": 200e9, "tensorflow/held": 900e9}
    rows = [row(f"conv/{kernel}", p, p.flops / rate, threads=1) for kernel, rate in rates.items()] + cpu_rows()
    (one,) = ladders(rows, CPU_MACHINE, "conv")
    direct, blocked = one.at(p)
    assert (direct.kernel, blocked.kernel) == ("conv/numba/direct", "conv/numba/blocked")
    # of oneDNN
    assert blocked.over_before.value == pytest.approx(50) and blocked.library_share.value == pytest.approx(0.5)
    assert blocked.peak_share.value == pytest.approx(0.5)
    found = page.markdown(
        [Material(Analysis.from_loaded(Loaded((run(CPU_MACHINE),), tuple(rows), 0, ("conv.jsonl",))))], False
    )
    assert found.index("## From three loops to the library") < found.index("## From seven loops to the library")
    assert page_of((m for m in rows if m.kernel != "conv/numba/direct"), "conv") == []


def test_sentences_name_losing_rungs_threads_and_missing_libraries():
    thin, thick = Conv(32, 32, 32, 3, 32, 3, 3, dtype="bfloat16"), Conv(32, 16, 16, 64, 64, 3, 3, dtype="bfloat16")
    times = {("tensor_core", thin): 1e-5, ("wgmma", thin): 2e-5, ("tensor_core", thick): 3e-5, ("wgmma", thick): 2e-5}
    times["direct", Conv(8, 8, 8, 8, 8, 3, 3)] = 1e-5
    clocks = {of: {"device": s, "host-latency": 2 * s} for of, s in times.items()}
    rows = [row(f"conv/cuda/{name}", p, taken, device="gpu:0") for (name, p), taken in clocks.items()]
    one = next(found for found in ladders(rows, GPU_MACHINE, "conv") if found.math == "bfloat16")
    said = ladder.sentences(one)
    assert said[1].startswith("cuda/wgmma is 1.50x faster than cuda/tensor_core")
    assert ladder.cells(one, thin)[1][4] == "0.500x"
    said = ladder.sentences(ladders([*cpu_rows(), at("matmul/numba/parallel", 256, 4e9)], CPU_MACHINE)[0])
    slower = "is 2.00x slower than numba/reordered at n = 256. On one thread nothing is shared out"
    assert any(slower in line for line in said)
    p = Conv(32, 16, 16, 64, 64, 3, 3)
    convs = [row(f"conv/{name}", p, 1e-3, threads=1) for name in ("numba/direct", "numba/blocked", "numpy/im2col")]
    said = ladder.sentences(ladders(convs, CPU_MACHINE, "conv")[0])
    assert any(line.startswith("oneDNN, the CPU's library") for line in said)
    onednn = row("conv/tensorflow/eager", p, 1e-4, threads=1)
    said = ladder.sentences(ladders([*convs, onednn], CPU_MACHINE, "conv")[0])
    assert not any(line.startswith("oneDNN") for line in said)


def test_a_single_rung_without_library_is_drawn(tmp_path):
    rows = [at("matmul/numba/packed", 256, 16e9)]
    (chart,) = ladder_chart(ladders(rows, CPU_MACHINE), "matmul")
    (view,) = chart.views
    assert view.lines == [] and view.traces[0].x == [16e9]
    picture = svg.save(svg.figure(view, chart.title), tmp_path / chart.picture)
    assert "16.0 GFLOP/s" in picture.read_text()
