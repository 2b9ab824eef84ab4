"""Inside a worker: requests that a model answers while others wait, sent by several threads."""

import concurrent.futures
import functools
import itertools
import math
import time
from collections.abc import Callable

import numpy as np

from workloads.frameworks.keras_fit import enough
from workloads.harness import timing
from workloads.harness.timing import Limits
from workloads.records import Samples

COMPARED = 4  # samples whose answers are compared with the reference: requests are made of these
_SERVED_S = 0.1  # seconds of a sample of requests


def placed(device: str):
    """The scope in which everything is made and called on TensorFlow's `device`: a CPU row may see a GPU that it must not use."""
    import tensorflow

    return tensorflow.device(device)


def requests(x: np.ndarray, size: int) -> list[tuple[int, np.ndarray]]:
    """(first sample, samples) of the different requests there are among those that have a reference."""
    return [(at, np.ascontiguousarray(x[at : at + size])) for at in range(max(1, COMPARED - size + 1))]


def answers(ready, sent: list[np.ndarray], in_flight: int) -> tuple[list[np.ndarray], list[float]]:
    """(answers, seconds that each request waited) in the requests' order, `in_flight` threads sending one after another to a
    model that is ready (answering.Ready)."""
    import tensorflow

    def answer(request: np.ndarray) -> tuple[np.ndarray, float]:
        begin = time.perf_counter()
        with placed(ready.device):
            found = ready.function(tensorflow.constant(request)).numpy()
        return found, time.perf_counter() - begin

    found = list(_pool(in_flight).map(answer, sent))
    return [a for a, _ in found], [s for _, s in found]


@functools.cache
def _pool(threads: int) -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(threads)


def serve(
    ready, x: np.ndarray, size: int, in_flight: int, limits: Limits, before_block: Callable
) -> tuple[Samples, Samples]:
    """(host-throughput: seconds by the number of requests; host-latency: what a request waits) of blocks of requests that
    threads send one after another, `in_flight` of them at the same time: `size` samples each, array to array."""
    one = [request for _, request in requests(x, size)]

    def block(calls: int) -> tuple[float, float]:
        sent = list(itertools.islice(itertools.cycle(one), calls))
        begin = time.perf_counter()
        _, waited = answers(ready, sent, in_flight)
        return (time.perf_counter() - begin) / calls, sum(waited) / calls

    calls = 4 * in_flight
    rough, _ = block(calls)
    calls = max(calls, math.ceil(_SERVED_S / rough))
    seconds, latencies = [], []
    begin, reason = time.perf_counter(), ""
    while not reason:
        before_block()
        each, wait = block(calls)
        seconds.append(timing.rounded(each))
        latencies.append(timing.rounded(wait))
        reason = enough(seconds, time.perf_counter() - begin, limits)
    blocks = tuple(range(len(seconds)))
    return (
        Samples("host-throughput", tuple(seconds), calls, blocks, reason),
        Samples("host-latency", tuple(latencies), calls, blocks, reason),
    )
