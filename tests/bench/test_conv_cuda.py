"""The bench of our CUDA convolutions, on rows by hand."""

from drawn import Row, latest
from msgspec.structs import replace

from tests.bench.conv_cuda import ALL_PLANS, FLOAT32_FLOPS_PER_S, direct, figures


def test_a_claim_pools_the_last_three_draws():
    def row(drawn: str, shape: int, commit: str) -> Row:
        return Row(drawn, "1", "float32", "nn", (shape,), "x", 1.0, 1.0, 1.0, "", True, commit, "")

    drawn = [row(f"{name} 0", 1, "a") for name in ("one", "two", "three", "four")]
    sets = row("layers", 2, "before"), row("layers", 2, "a"), row("layers", 3, "a")
    assert latest([*sets, *drawn, row("four 1", 1, "b")]) == [*drawn[1:], row("four 1", 1, "b"), *sets[1:]]


def test_a_too_fast_float32_plan_is_not_direct():
    sides = {"conv/cuda/implicit_gemm": 1.0, "conv/cudnn/plan NCHW": 0.25, "conv/cudnn/plan NHWC": 0.75}
    row = Row("", "", "float32", "wgrad", (1,), "conv/cudnn/plan NCHW", 0.25, 1.0, 0.0, "", True, "", "", sides)
    for dtype, share, seconds in (("float32", 0.99, 0.25), ("float32", 1.01, 0.75), ("bfloat16", 1.01, 0.25)):
        assert direct(replace(row, dtype=dtype, flops=share * 0.25 * FLOAT32_FLOPS_PER_S)).library_s == seconds


def test_host_times_print_no_ratio_with_cudnn():
    sides = {"conv/cuda/wgmma": 1.0, "conv/cudnn/plan NHWC": 4.0}
    names = {"drawn": "a 0", "kind": "1", "dtype": "bfloat16", "layout": "fprop", "tiles": "", "commit": "", "at": ""}
    seconds = {"library": "conv/cudnn/plan NHWC", "library_s": 4.0, "ours_s": 1.0, "first_s": 0.0, "sides": sides}
    few = Row(**names, **seconds, shape=(1,), equal=True, flops=2e12)
    sides = {"conv/cuda/wgmma": 1.0, f"conv/cudnn/plan NHWC, {ALL_PLANS}": 0.5}
    every = replace(few, library=f"conv/cudnn/plan NHWC, {ALL_PLANS}", library_s=0.5, sides=sides)
    assert [(f.what, f.figure.value) for f in figures([few])[2:]] == [("1: bfloat16 fprop 1, ", 2.0)]
    printed = {f.what: f.figure.value for f in figures([few, every])}
    assert printed["bfloat16 fprop, drawn, 1 row: library / ours, geometric mean"] == 0.5
    assert printed["rows exact on whole numbers"] == 2
    assert 4.0 not in printed.values()
