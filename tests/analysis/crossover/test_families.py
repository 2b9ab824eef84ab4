"""Families of problems that differ in one size, and their names."""

import pytest
from fake_layers import conv, law, law_time
from fake_measurements import row

from analysis import labels
from analysis.crossover import crossover, families
from analysis.crossover.families import comparable, conv_rows
from analysis.crossover.forms import COPIES, LATENCY
from analysis.crossover.time_split import ARITHMETIC, OVERHEAD, REMAINDER, why
from analysis.roofline.roofs import describe
from analysis.text import answers, crossings
from kernels.problems import Matmul


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


def test_an_output_type_makes_a_family_of_it():
    fixed = dict(families._fixed(Matmul(8, 16, 32, "float16", out="float32"), ("m",)))
    assert fixed == {"n": 16, "k": 32, "out": "float32", "layout": "nn"}
    assert "out" not in dict(families._fixed(Matmul(8, 16, 32, "float16"), ("m",)))
