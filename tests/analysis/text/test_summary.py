"""Sentences: their numbers and units, every kind of answer, and what must never be left out."""

import re

import fake_measurements as fake
import msgspec
from fake_measurements import row, square

from analysis import units
from analysis.analysis import Analysis
from analysis.roofline.roofs import roofs_of
from analysis.text import crossings, rates, summary
from kernels.problems import Conv, Peak, Stream


def test_digits_times_rates_percents_and_sizes():
    values = 131.0, 24.14, 0.0012345, 771234.0, 999.6, 0.9996, 0.0, -3.14159
    assert " ".join(map(units.digits, values)) == "131 24.1 0.00123 771000 1000 1.00 0 -3.14"
    values = 24.1e-6, 0.00123456, 2.5, 3e-9, 999.96e-6, 3600.0, 0.0, -4e-6, 1e-12
    texts = "24.1 µs, 1.23 ms, 2.50 s, 3.00 ns, 1.00 ms, 3600 s, 0 s, -4.00 µs, 0.00100 ns"
    assert ", ".join(map(units.seconds, values)) == texts
    assert units.flops_rate(85.24e9) == "85.2 GFLOP/s" and units.flops_rate(0.9e9) == "0.900 GFLOP/s"
    assert units.flops_rate(51.04e12) == "51.0 TFLOP/s" and units.bytes_rate(4.14e12) == "4140 GB/s"
    assert units.bytes_rate(12.34e9) == "12.3 GB/s" and units.percent(0.8213) == "82.1 %"
    assert (units.size(512 * 2**20), units.size(100)) == ("512 MiB", "100 bytes")
    assert (units.count(1, "row"), units.count(2, "row")) == ("1 row", "2 rows")
    assert (units.join([]), units.join("a"), units.join("ab"), units.join("abc")) == ("", "a", "a and b", "a, b and c")


PEAK = row("peak/numba/fma", Peak("float32", 10**9), 1e-2, threads=1)


def test_a_gpu_machines_answer_is_five_sentences():
    loaded = fake.gpu_run(sizes=(64, 128, 256, 512, 1024))
    said = summary.answer(Analysis.from_loaded(loaded))
    assert len(said) == 5
    steps = {"CPU": "1.91 ms", "GPU": "2.60 ms"}  # rows without fits: a step on each
    assert said[:2] == [f"CIFAR-10 CNN, batch 32, on the {on}: a step takes {time}." for on, time in steps.items()]
    name = "Square float32 products, resident on the GPU"
    assert re.fullmatch(rf"{name}: the GPU wins from about n = 11\d \(10\d to 1(3|4)\d\)\.", said[2])
    assert said[3].endswith("of the GPU's is launch and Python.")
    assert said[4].startswith("Copied in and out on every call") and "asarray and asnumpy" in said[4]


def test_products_in_caches_are_called_that():
    rows = [PEAK, row("stream/numba/loop", Stream("triad", 240_000_000), 0.024, threads=1)]
    slow = "4.8 % of that arithmetic: neither is the"
    for n, rate, words in ((30, 50e9, "fit a cache"), (600, 50e9, "It is compute-bound"), (600, 4.8e9, slow)):
        matmul = row("matmul/numpy/blas", square(n), 2 * n**3 / rate, threads=1)
        assert any(words in s for s in summary.answer(Analysis.from_rows([*rows, matmul], fake.CPU_MACHINE)))
    rows = [
        *fake.memory_rows(0.0),
        row("peak/numba/fma", Peak("float32", 10**9), 1e-3, threads=1),
        row("matmul/numpy/blas", square(60), 1e-5, threads=1),
    ]
    (said,) = rates.bound_sentences(rows, roofs_of(rows, fake.GPU_MACHINE))
    assert said.endswith("It would be memory-bound, but its 42.2 KiB fit a cache.")
    rows = [PEAK, row("matmul/numpy/blas", square(512), 2e-3, threads=1)]
    (said,) = rates.rate_sentences(rows, roofs_of(rows, fake.GPU_MACHINE))  # 134 of 100 GFLOP/s
    assert said.endswith(
        "130 % of its measured roof (float32, 1 thread), as the CPU was slower while that was measured."
    )
    slower = [PEAK, row("matmul/numpy/blas", square(512), 4e-3, threads=1)]
    (said,) = rates.rate_sentences(slower, roofs_of(slower, fake.GPU_MACHINE))
    assert said.endswith("67 % of its measured roof (float32, 1 thread).")


def test_an_untimed_gpu_is_no_crossover():
    rows = [
        row("matmul/numpy/blas", square(64), 1e-5, threads=1),
        row("matmul/cupy/cublas", square(64), None, status="failed", reason="CUDA error 2"),
    ]
    said = summary.answer(Analysis.from_rows(rows, fake.GPU_MACHINE))
    assert said[0].startswith("No GPU time was measured on this machine") and "CUDA error 2" in said[0]
    assert said[-1] == "1 row failed: matmul/cupy/cublas, n = 64 (CUDA error 2)."
    wrong = [row("matmul/cupy/cublas", square(n), 1e-5, status="wrong", reason="off by 3") for n in (64, 99)]
    said = summary.answer(Analysis.from_rows([*rows, *wrong], fake.GPU_MACHINE))[-1]
    assert said.endswith(" 2 rows gave a wrong answer: matmul/cupy/cublas, n = 64 (off by 3) and 1 more.")
    cpu = row("matmul/numpy/blas", square(64), 1e-5, threads=1)
    gpu = row("matmul/cupy/cublas", square(128), 1e-5, device="gpu:0")
    failed = row("matmul/cupy/cublas", square(64), None, device="gpu:0", status="failed", reason="CUDA error 2")
    for rows, words in (
        ([gpu], "Only the GPU was timed here"),
        ([gpu, failed], "Only the GPU"),
        ([cpu], "No GPU was measured"),
        ([cpu, gpu], "Nothing was timed on both"),
        ([cpu, failed], "No GPU time was measured"),
    ):
        assert crossings.no_gpu_sentence(rows, fake.GPU_MACHINE).startswith(words)


def test_only_a_virtual_cpu_may_pass_its_roof():
    rows = [PEAK, row("matmul/numpy/blas", square(1000), 0.01, threads=1)]
    assert "1 row above the roof, which is impossible" in summary.answer(Analysis.from_rows(rows, fake.CPU_MACHINE))[-1]
    virtual = msgspec.structs.replace(fake.CPU_MACHINE, virtual=True)
    assert not any("impossible" in s for s in summary.answer(Analysis.from_rows(rows, virtual)))


def test_each_kind_of_roof_has_a_sentence():
    loaded = fake.whole_run(spread=0.0, sizes=(64, 128, 256))
    ceilings = roofs_of(loaded.every, fake.GPU_MACHINE)
    cpu, gpu, *told = rates.roof_sentences(ceilings)
    assert cpu.startswith("Measured roofs of the CPU: 48.0 GB/s from DRAM") and "60.0 TFLOP/s in float32" in gpu
    assert told == [
        "Empty calls of the GPU: 100 ns a queued call and 7.00 µs a waited call.",
        "Large pinned copies of the GPU: 55.0 GB/s for h2d and 52.0 GB/s for d2h.",
    ]
    assert not {cpu, gpu, *told} & set(summary.answer(Analysis.from_loaded(loaded)))


def test_a_section_keeps_what_the_answer_omits(monkeypatch):
    """The answer has five sentences; the input pipeline waits for an answer with room."""
    by_topic = {
        "side by side": ["one", "two"],
        "starts": ["three", "four", "five", "six"],
        "inference": ["seven"],
        "feeding": ["eight"],
    }
    sections = {topic: lambda rows, texts=texts: texts for topic, texts in by_topic.items()}
    monkeypatch.setattr(summary, "SECTIONS", sections)
    sentences = summary.summary(Analysis.from_rows([]))
    assert sentences.lines == ["one", "two", "three", "four", "five"]
    left = {topic: sentences.left(topic) for topic in by_topic}
    assert left == {"side by side": [], "starts": ["six"], "inference": ["seven"], "feeding": ["eight"]}


def test_a_statement_of_two_topics_is_said_once():
    """The products say what the rate of the CPU is and why there is no crossover; the convolution, which no GPU ran either,
    and the list of rates add neither again."""
    conv = Conv(n=1, h=8, w=8, c_in=1, c_out=1, r=3, s=3)
    product = row("matmul/numpy/blas", square(64), 1e-5, threads=1)
    run = Analysis.from_rows([product, row("conv/numba/direct", conv, 1e-5, threads=1)], fake.CPU_MACHINE)
    statements = [sentence.statement for sentence in summary.summary(run).answer]
    assert statements.count(crossings.NoCrossover(kind="none")) == statements.count(product.key) == 1
    failed = row("conv/cudnn/heuristic", conv, None, device="gpu:0", status="failed", reason="CUDA error 2")
    run = Analysis.from_rows([product, failed], fake.CPU_MACHINE)
    statements = [sentence.statement for sentence in summary.summary(run).answer]
    why = {crossings.NoCrossover(kind="failed", reasons=("CUDA error 2",))}
    assert {s for s in statements if isinstance(s, crossings.NoCrossover)} == why
