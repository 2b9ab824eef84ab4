"""Rows of convolutions that follow a known law."""

from fake_measurements import row

from kernels.problems import Conv


def conv(n: int = 32, **fields) -> Conv:
    return Conv(**{"n": n, "h": 8, "w": 8, "c_in": 8, "c_out": 16, "r": 3, "s": 3, "pad": "same"} | fields)


def law(n: int, **fields) -> list:
    """1e-6 s an image on the CPU; on the GPU 20e-6 s a call, 4e-6 of them on the device, with copies 80e-6."""
    p = conv(n, **fields)
    return [
        row("conv/numpy/im2col", p, 1e-6 * n * p.h * p.c_in / 64, threads=1),
        row("conv/cudnn/plan", p, {"host-latency": 20e-6, "device": 4e-6}, device="gpu:0"),
        row("conv/cudnn/plan", p, 80e-6, device="gpu:0", mode="roundtrip"),
    ]


def law_time(m) -> float:
    return m.samples[0].seconds[0]
