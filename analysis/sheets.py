"""Data-sheet peaks, from one table with sources: what is drawn dashed beside what was measured."""

import msgspec


class Sheet(msgspec.Struct, frozen=True):
    """Data-sheet peaks of a GPU: FLOP/s by arithmetic (dense, at boost clock) and bytes/s of its memory."""

    source: str
    flops_per_s: dict[str, float]
    bytes_per_s: float


# By the exact product name, because a maker's variants differ (an H200 NVL is not an H200).
# Source: the NVIDIA data sheets named; tensor-core numbers are the dense ones, half of those marked "with sparsity".
_HOPPER = {"float64 vector": 34e12, "float64": 67e12, "float32": 67e12, "tf32": 494.7e12, "float16": 989.4e12,
           "bfloat16": 989.4e12}  # fmt: skip
_AMPERE = {"float64 vector": 9.7e12, "float64": 19.5e12, "float32": 19.5e12, "tf32": 156e12, "float16": 312e12,
           "bfloat16": 312e12}  # fmt: skip
SHEETS = {
    "NVIDIA H200": Sheet("NVIDIA H200 Tensor Core GPU data sheet (SXM)", _HOPPER, 4.8e12),
    "NVIDIA H100 80GB HBM3": Sheet("NVIDIA H100 Tensor Core GPU data sheet (SXM)", _HOPPER, 3.35e12),
    "NVIDIA A100-SXM4-80GB": Sheet("NVIDIA A100 80GB Tensor Core GPU data sheet (SXM)", _AMPERE, 2.039e12),
}
