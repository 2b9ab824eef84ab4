"""Rows of answers of a model."""

from fake_measurements import row

from kernels.problems import Inference
from workloads.frameworks import inference_row

CALL, PREDICT, SERVE = inference_row.CALL, inference_row.PREDICT, inference_row.SERVE


def answered(batch, clocks, kernel=CALL, mode="roundtrip", device="cpu", **more):
    return row(kernel, Inference("lenet", batch), clocks, device=device, mode=mode, **more)
