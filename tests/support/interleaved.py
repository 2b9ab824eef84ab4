"""Rows visited side by side, for benches that plant slow-downs in one of two."""

import os
from collections.abc import Sequence

import msgspec

from analysis import stats
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Measurement, Row
from workloads.records.visits import together

LONGEST_S = 120.0  # of a visit, with its inputs, compilation and check


def visited(
    rows: list[Row], limits: Limits, *, seed: int = 1, least: int = 8, most: int = 160, handicaps: Sequence[float] = ()
) -> list[Measurement]:
    """The rows visited side by side in interleaved rounds (A B B A ...), each in a process of its own.

    Ends when each row's ratio to the first is known to `limits.max_noise`, after `least` to `most` rounds, whatever the
    verdict: going on until there is one would find one. Visit i of all rows was made side by side, so stats.verdict(...,
    paired=True) may compare them. `handicaps`: a planted slow-down of each. A row that fails ends it.
    """
    uuids = facts.describe().uuids
    workers = [Worker(environment(row, uuids)) for row in rows]
    sides = list(zip(rows, workers, handicaps or [0.0] * len(rows), strict=True))
    taken: list[list[Measurement]] = [[] for _ in rows]
    try:
        for worker in workers:
            worker.start()
        for number in range(-1, most + 1):  # two rounds warm up
            if number == 0 and hasattr(os, "sched_getaffinity") and all(row.settings.threads == 1 for row in rows):
                for worker in workers:  # compiled side by side, timed in turns on one CPU: two are not equally busy
                    worker.pin({max(os.sched_getaffinity(0))})
            for i in range(len(rows)) if number % 2 else reversed(range(len(rows))):
                row, worker, handicap = sides[i]
                answer = worker.ask(Order("visit", row, limits, seed, max(number, 1), handicap), LONGEST_S)
                if answer.status != "ok":
                    return [msgspec.structs.replace(answer, visit=0)] * len(rows)
                taken[i] += [answer] * (number > 0)
            if (
                number >= least
                and number % 4 == 0
                and _told_apart([together(side) for side in taken], limits.max_noise)
            ):
                break
    finally:
        for worker in workers:
            worker.close()
    return [together(side) for side in taken]


def _told_apart(sides: list[Measurement], noise: float) -> bool:
    first, *others = (side.samples[0] for side in sides)
    return all(stats.verdict(first, other, paired=True).ratio.noise <= noise for other in others)
