"""The same work on every GPU of a host, each alone and all at once: how much contention there is.

A worker a GPU is kept over all rows; workloads.harness.concurrent says which calls count.
"""

import argparse
from collections.abc import Generator

import msgspec

from kernels.problems import AtOnce
from workloads import options
from workloads.harness import concurrent, sweep
from workloads.harness.worker import Worker, environment
from workloads.records import Machine, Measurement, Row, Settings

ROUNDS, FAST_ROUNDS = 5, 3
WINDOW_S, FAST_WINDOW_S = 0.5, 0.15
MIB = 1 << 20
# (kernel, operation, size, math, mode): full rates of the units, of the memory, of the link to the host; then products around
# the size from which a GPU wins, with their data there and with copies.
WORK = (
    *(("matmul/cupy/cublas", "matmul", 4096, math, "resident") for math in ("float32", "bfloat16")),
    ("stream/cupy/wide", "triad", 512 * MIB, "float32", "resident"),
    *(("transfer/cupy/memcpy_async", way, 256 * MIB, "float32", "resident") for way in ("h2d", "d2h")),
    *(
        ("matmul/cupy/cublas", "matmul", n, "float32", mode)
        for mode in ("resident", "roundtrip-pinned")
        for n in (128, 256, 512, 1024)
    ),
)


def rows(gpus: list[int]) -> list[Row]:
    """The rows: each work on each GPU alone, then on each while all do it."""
    every = ",".join(map(str, gpus))
    return [
        Row(kernel, AtOnce(operation, size, at_work or str(gpu), math), Settings(f"gpu:{gpu}", mode=mode))
        for kernel, operation, size, math, mode in WORK
        for at_work in ("", every)
        for gpu in gpus
    ]


def _turns(args: argparse.Namespace) -> tuple[int, float]:
    return (FAST_ROUNDS, FAST_WINDOW_S) if args.fast else (ROUNDS, WINDOW_S)


def measure(
    args: argparse.Namespace, here: Machine, gpus: list[int], command: str, shown=lambda m: None, run=None
) -> sweep.Outcome:
    """Measures the rows into at-once.jsonl; the sweep.Outcome.

    Raises: Missing with fewer than two GPUs.
    """
    if len(gpus) < 2:
        raise options.Missing(
            f"all GPUs at once takes two or more; here {'is' if len(gpus) == 1 else 'are'} {len(gpus)}",
            "python -m workloads.suite --quick",
        )
    every = rows(gpus)
    workers: list[Worker] = []
    some = 2 * len(gpus)
    groups = [
        concurrent.Group(every[i : i + some], lambda i=i: _measured(every[i : i + some], workers, args, here))
        for i in range(0, len(every), some)
    ]
    try:
        return concurrent.studied("at-once", groups, args, command, shown, run)
    finally:
        for worker in workers:
            worker.close()


def _measured(
    group: list[Row], workers: list[Worker], args: argparse.Namespace, here: Machine
) -> Generator[Measurement]:
    """The rows of one work: alone on each GPU, then on each of all."""
    count = len(group) // 2
    alone = group[:count]
    if not workers:
        workers += [Worker(environment(row, here.uuids)) for row in alone]
    sets = (*((i,) for i in range(count)), tuple(range(count)))
    rounds, window_s = _turns(args)
    answers, taken, bad = concurrent.in_turns(alone, workers, sets, concurrent.Turns(rounds, window_s, args.seed))
    for i, row in enumerate(group):
        own, members = i % count, sets[i] if i < count else sets[-1]
        if bad:
            yield concurrent.lost(row, alone[own], bad)
        else:
            m = concurrent.measured(row, answers[own], [round_[members] for round_ in taken], [own])
            yield msgspec.structs.replace(m, kernel=row.kernel, problem=row.problem)
