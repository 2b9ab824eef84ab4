"""Runs to compare: samples, rows and files whose numbers are known."""

import fake_measurements as fake
import msgspec
import numpy as np
from fake_measurements import CPU_MACHINE, square
from msgspec.structs import replace

from analysis import noise
from analysis.compare import comparison
from kernels.problems import Training
from workloads.records import Loaded, Measurement, Run, Samples, Settings

RUN = replace(fake.run(CPU_MACHINE), software={"numpy": "2.4"}, sources="def")


def steady(center: float, off: float = 0.001, blocks: int = 10) -> Samples:
    """Blocks that alternate around a center: their median is it, their spread `off`."""
    seconds = tuple(center * (1 + off * (-1) ** (i // 2)) for i in range(2 * blocks))
    return Samples("host-latency", seconds, 1, (2,) * blocks, "steady")


def processes(*centers: float) -> Samples:
    seconds = tuple(np.repeat(centers, 2).tolist())
    reason = f"{len(centers)} processes"
    return Samples("host-latency", seconds, 1, (2,) * len(centers), reason, is_by_process=True)


def timed(samples: Samples, n: int = 64, status: str = "ok", flags=(), **settings) -> Measurement:
    kernel = "matmul/numpy/blas"
    return Measurement(kernel, square(n), Settings(threads=1, **settings), status, samples=(samples,), flags=flags)


def trained(samples: Samples) -> Measurement:
    return Measurement("training/keras/fit", Training("cifar10-cnn", 32, 512), Settings(), "ok", samples=(samples,))


def loaded(*measurements: Measurement, run: Run = RUN) -> Loaded:
    return Loaded((run,), measurements, 0, ())


def words(old, new, **how) -> list[str]:
    return [r.word for r in comparison.comparison(old, new, **how).rows]


def keep(root, shares: dict[tuple[str, int], float], machine=CPU_MACHINE, local: bool = True) -> None:
    """Stores what runs of a machine differ by under a folder of reports."""
    of = tuple(
        noise.NoiseShare(side=side, decade=decade, share=share, pairs=100, visit_share=2 * share, span_s=20.0)
        for (side, decade), share in shares.items()
    )
    place = root / "local" / machine.key if local else root / machine.key
    place.mkdir(parents=True)
    (place / noise.FILE).write_bytes(
        msgspec.json.encode(noise.Noise(machine=machine, taken_at="2026-01-01", span_s=900.0, sweeps=(), shares=of))
    )
