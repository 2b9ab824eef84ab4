"""On a GPU: copies in chunks under kernels of equal length, against the longer of the two alone."""

import sys

from gpu_bench import GPU, MIB, alternating, on_gpu, over
from must_reach import Figure, at_most, printed, table

from analysis import stats
from kernels import registry
from kernels.problems import Transfer
from workloads.harness import copy_modes, timing

SIZE = 256 * MIB
CALLS = 3
FORMS = ((32, 2), (64, 2), (64, 3))  # chunks, streams
PARTS = ("overlap_copy", "overlap_compute", "overlap_both")


def main() -> int:
    stream, figures = copy_modes.gpu_stream(), []
    for compute in Transfer.COMPUTES:
        figures += best_of([overlapped(Transfer("h2d", SIZE, "pinned", compute, *how), stream) for how in FORMS])
    about = (
        "256 MiB of pinned memory to the device in chunks on one stream; the kernels on the others wait each for its chunk, and "
        "all together take about as long as the copies: `fma` computes in registers, `triad` streams through device memory. The "
        "three take turns in each round; times between events. The best form counts for the target, the others are printed."
    )
    return table("overlap", "Copies overlapped with kernels, against the longer of both alone", figures, [about])


def overlapped(problem: Transfer, stream) -> list[Figure]:
    """(both / the longer, copy / compute, milliseconds of each) for one number of streams."""
    takes = []
    for part in PARTS:
        prepared = copy_modes.prepare(registry.find(f"transfer/cupy/{part}"), problem, GPU, problem.inputs(1))
        for _ in range(2):
            prepared.run()
        stream.synchronize()
        takes.append(timing.device(prepared.run, stream))
    copy, compute, both = taken = alternating(*(lambda take=take: take(CALLS) / CALLS for take in takes))
    longer = [max(a, b) for a, b in zip(copy, compute, strict=True)]
    ratio, equal = over(both, longer), over(copy, compute)
    name = f"{problem.compute}, {problem.chunks} chunks, {problem.streams} streams"
    return [
        at_most(f"{name}: overlapped / the longer", 1.05, ratio),
        Figure(f"{name}: copy / kernels, alone", "0.9 .. 1.1", equal, 0.9 <= equal.value <= 1.1),
        *(printed(f"{name}: {part}", stats.median(s) * 1e3, "ms") for part, s in zip(PARTS, taken, strict=True)),
    ]


def best_of(groups: list[list[Figure]]) -> list[Figure]:
    """All figures; those with targets only of the number of streams whose first figure, the ratio, is the lowest."""
    best = min(groups, key=lambda group: group[0].figure.value)
    others = [f for group in groups if group is not best for f in group]
    return [*best, *(printed(f.what, f.figure, f.unit) for f in others)]


if __name__ == "__main__":
    sys.exit(on_gpu(main))
