"""Data-sheet peaks, from one table with sources: what is drawn dashed beside what was measured."""

import msgspec


class Sheet(msgspec.Struct, frozen=True):
    """Data-sheet peaks of a GPU: FLOP/s by arithmetic (dense, at boost clock) and bytes/s of its memory."""

    source: str
    flops_per_s: dict[str, float]
    bytes_per_s: float


# By the exact product name, because a maker's variants differ (an H200 NVL is not an H200).
# Source: the NVIDIA data sheets named; tensor-core numbers are the dense ones, half of those marked "with sparsity".
_HOPPER = {
    "float64 vector": 34e12,
    "float64": 67e12,
    "float32": 67e12,
    "tf32": 494.7e12,
    "float16": 989.4e12,
    "bfloat16": 989.4e12,
    "float8_e4m3": 1978.9e12,
}
_AMPERE = {
    "float64 vector": 9.7e12,
    "float64": 19.5e12,
    "float32": 19.5e12,
    "tf32": 156e12,
    "float16": 312e12,
    "bfloat16": 312e12,
}
SHEETS = {
    "NVIDIA H200": Sheet("NVIDIA H200 Tensor Core GPU data sheet (SXM)", _HOPPER, 4.8e12),
    "NVIDIA H100 80GB HBM3": Sheet("NVIDIA H100 Tensor Core GPU data sheet (SXM)", _HOPPER, 3.35e12),
    "NVIDIA A100-SXM4-80GB": Sheet("NVIDIA A100 80GB Tensor Core GPU data sheet (SXM)", _AMPERE, 2.039e12),
}

# Transfers a second of one lane, and the share of the bits that the encoding leaves to data, by generation.
# Source: PCI-SIG, PCI Express Base Specification (8b/10b, from 3 on 128b/130b, from 6 on 242 of a FLIT's 256 bytes).
PCIE = {
    1: (2.5e9, 8 / 10),
    2: (5e9, 8 / 10),
    3: (8e9, 128 / 130),
    4: (16e9, 128 / 130),
    5: (32e9, 128 / 130),
    6: (64e9, 242 / 256),
}


def pcie_bytes_per_s(generation: int, width: int) -> float | None:
    """Bytes a second in each direction of a PCIe link of so many lanes (`width`), before the headers of its packets are taken
    off; None for an unknown generation."""
    if generation not in PCIE:
        return None
    transfers, share = PCIE[generation]
    return transfers * share * width / 8
