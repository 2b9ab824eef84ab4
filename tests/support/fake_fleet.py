"""Result folders of made-up nodes of a fleet."""

import math
import pathlib

import fake_measurements as fake
import msgspec
import numpy as np

from analysis.fleet import devices
from kernels.problems import Stream
from workloads import ROOT, records
from workloads.records import Measurement

READS = tuple(Stream("read", 2**30 * i) for i in (1, 2, 4))


def write(folder, here, rows, workload="stream", said="--ray auto") -> None:
    fake.write(folder / f"{workload}.jsonl", fake.run(here, f"python -m workloads.suite {said} --fast"), rows)


def reads(device: str, slower: float = 1.0, clock: float = 1.98e9, flags=()) -> list[Measurement]:
    """HBM reads at 4 TB/s, all samples equal, so the intervals are points."""

    def one(p: Stream):
        clocks = {"device": slower * p.bytes_moved / 4e12}
        return fake.row("stream/cupy/wide", p, clocks, device=device, values={"gpu_clock_hz": clock}, flags=flags)

    return [one(p) for p in READS]


H200 = ROOT / "reports" / "nvidia-h200"


def noisy(m: Measurement, rng, row_noise: float, factor: float = 1.0) -> Measurement:
    """A stored row as another process might have measured it: a common factor for its samples, and its own samples drawn anew."""
    move = factor * math.exp(row_noise * rng.standard_normal())
    drawn = [tuple(float(x) * move for x in rng.choice(s.seconds, len(s.seconds))) for s in m.samples]
    pairs = zip(m.samples, drawn, strict=True)
    return msgspec.structs.replace(m, samples=tuple(msgspec.structs.replace(s, seconds=taken) for s, taken in pairs))


def stored_rows() -> list[Measurement]:
    loaded = records.read(*(H200 / study for study in ("roofs", "suite", "ladder")))
    of = ("peak", "stream", "matmul")
    kept = [m for m in loaded.measurements if m.ok and m.settings.device == "gpu:0" and m.on("device")]
    return [m for m in kept if m.problem.op in of and devices.quantity(m, loaded.runs[-1].machine)]


def planted(rows, seed: int, slower: float):
    """(baselines, devices): eight GPUs whose rows move by 0.5 % from process to process; the last is `slower`."""
    rng = np.random.default_rng(seed)
    here = fake.with_gpus("GPU-x")

    def device(i: int, factor: float) -> devices.Device:
        made = {m.key: noisy(m, rng, 0.005, factor) for m in rows}
        return devices.Device(
            node=f"node-{i}",
            device="gpu:0",
            uuid=f"GPU-{i}",
            model="NVIDIA H200",
            machine=here,
            rows=made,
            broken=(),
        )

    return [device(i, 1.0) for i in range(8)], tuple(device(i, slower if i == 7 else 1.0) for i in range(8))


def nodes(folder: pathlib.Path, slow: dict[tuple[int, int], float], count: int = 2, **how) -> None:
    """Folders of nodes of four GPUs each; slow: (node, GPU) -> how many times as long its reads take."""
    for node in range(count):
        here = fake.with_gpus(*(f"GPU-{node}{i}" for i in range(4)))
        rows = [m for i in range(4) for m in reads(f"gpu:{i}", slow.get((node, i), 1.0), **how)]
        write(folder / f"node-{node}", here, rows)
