"""Sums over all GPUs of a host: through NCCL, and by a kernel of ours for small ones, launched each or recorded in graphs."""

import functools
import os
import types
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cupy
import numpy as np

from kernels.cuda import loader, several_gpus
from kernels.problems import ONE_SHOT_BYTES, AllReduce
from kernels.problems.arrays import numpy_dtype
from kernels.registry import TimedCall, kernel, timed_call

#: Calls in a graph: launching it is then small against them.
RECORDED = 32
#: Threads of a block of `one_shot`.
_THREADS = 512
#: Most blocks of `one_shot`: they run all at once on any GPU that NVLink connects.
_MOST_BLOCKS = 128
#: Bytes that a thread of `one_shot` sends at once.
_PIECE = 8
#: Nanoseconds that `one_shot` waits for another GPU.
LONGEST_NS = 2_000_000_000


@functools.cache
def _communicators(count: int) -> tuple[types.ModuleType, list]:
    """(NCCL's bindings, its communicators, one for each of the first `count` GPUs, all in this process).

    NVLink multicast stays off: a program that dies with it can leave the host's GPUs unusable for all.
    Raises: ValueError where NCCL does not load.
    """
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # read when the first communicator is made
    from cupy.cuda import nccl

    if not nccl.available:
        major = cupy.cuda.get_local_runtime_version() // 1000
        raise ValueError(f"NCCL does not load; install it with: pip install nvidia-nccl-cu{major}")
    return nccl, nccl.NcclCommunicator.initAll(list(range(count)))


class Sum(NamedTuple):
    """A sum over all GPUs that is ready to start."""

    #: The call that starts it on the streams of all GPUs.
    run: Callable[[], None]
    #: The array of each GPU that receives it.
    results: list[cupy.ndarray]
    #: The call that waits for all GPUs.
    wait: Callable[[], None]


def _placed(problem: AllReduce, data: np.ndarray) -> tuple[list, list]:
    """(the arrays that the GPUs send, the arrays that receive the sum), a CuPy array on each GPU; the same arrays for a sum
    in place.

    data: a row for each GPU, in host memory.
    """
    several_gpus.require_gpus(len(problem.members))
    sent = [several_gpus.array(gpu, row) for gpu, row in enumerate(data)]
    if problem.form == "in-place":
        return sent, sent
    return sent, [several_gpus.poisoned(array) for array in sent]


def _bound(problem: AllReduce, all_reduce: Sum) -> TimedCall:
    """The timed call of a sum, which returns the arrays that receive it. It has the attributes that timing and checks read:
    `synchronize` waits for all GPUs, `on_host` stacks the results in one host array, a row for each GPU."""

    def on_host(arrays: Sequence[cupy.ndarray]) -> np.ndarray:
        return np.stack([cupy.asnumpy(array) for array in arrays]).view(numpy_dtype(problem.dtype))

    call = timed_call(all_reduce.run, result=all_reduce.results)
    call.synchronize = all_reduce.wait
    call.on_host = on_host
    return call


def _nccl_sum(problem: AllReduce, data: np.ndarray) -> Sum:
    """The sum by one ncclAllReduce per GPU, grouped in one thread, as in nccl-tests -g.

    data: a row for each GPU, in host memory.
    """
    count = len(problem.members)
    nccl, communicators = _communicators(count)
    sent, results = _placed(problem, data)
    kind = getattr(nccl, f"NCCL_{problem.dtype.upper()}")
    parts = []
    for gpu, communicator in enumerate(communicators):
        pointers = (sent[gpu].data.ptr, results[gpu].data.ptr)
        arguments = (*pointers, problem.elements, kind, nccl.NCCL_SUM, several_gpus.stream(gpu).ptr)
        parts.append((communicator.allReduce, arguments))

    def run(keep=sent):
        nccl.groupStart()
        for reduce, arguments in parts:
            reduce(*arguments)
        nccl.groupEnd()

    return Sum(run=run, results=results, wait=several_gpus.wait_for(count))


def _one_shot_sum(problem: AllReduce, data: np.ndarray, early: bool = False) -> Sum:
    """The sum by our kernel on every GPU; its wait raises RuntimeError for a GPU that did not answer in time.

    data: a row for each GPU, in host memory.
    early: a call's blocks start while those of the call before it end.
    Raises: ValueError for arrays that are too large or of another type, and for GPUs without access to each other's memory.
    """
    count = len(problem.members)
    if problem.nbytes > ONE_SHOT_BYTES:
        raise ValueError(
            f"one_shot is for arrays of at most {ONE_SHOT_BYTES} bytes: it sends each of them whole to every GPU"
        )
    if problem.nbytes % _PIECE or problem.dtype == "float16":
        raise ValueError(f"one_shot adds whole {_PIECE} bytes of float32 or bfloat16")
    sent, results = _placed(problem, data)
    several_gpus.require_reach(count)
    pieces = problem.nbytes // _PIECE
    blocks = min(_MOST_BLOCKS, -(-pieces // _THREADS))
    inboxes = [several_gpus.array(gpu, np.zeros((2, count, pieces, 2), np.uint64)) for gpu in range(count)]
    calls = [several_gpus.array(gpu, np.zeros(blocks * _THREADS, np.uint32)) for gpu in range(count)]
    failed = [several_gpus.array(gpu, np.zeros(1, np.int32)) for gpu in range(count)]
    # A GPU that waited too long writes here the number of the GPU that it waited for, from 1.
    missing = np.frombuffer(cupy.cuda.alloc_pinned_memory(4 * count), np.int32, count)
    missing[:] = 0
    boxes = np.array([inbox.data.ptr for inbox in inboxes], np.uint64).view(f"V{8 * count}")
    macros = {"GPUS": count, "BFLOAT16": int(problem.dtype == "bfloat16"), "EARLY": int(early)}
    compiled = loader.compile_kernel("collective/cupy", "one_shot", **macros)
    launches = []
    for gpu in range(count):
        arguments = (
            sent[gpu],
            results[gpu],
            np.int64(pieces),
            boxes,
            np.int32(gpu),
            calls[gpu],
            failed[gpu],
            np.uint64(missing.ctypes.data + 4 * gpu),
            np.int64(LONGEST_NS),
        )
        launches.append(several_gpus.launcher(gpu, compiled, blocks, _THREADS, arguments, early))
    wait_for_all = several_gpus.wait_for(count)

    def wait(keep=(inboxes, missing)) -> None:
        """Waits for all GPUs, then looks whether one of them gave up. keep: alive as long as this call, as kernels know their
        addresses only."""
        wait_for_all()
        if missing.any():
            gpu = int(np.flatnonzero(missing)[0])
            raise RuntimeError(f"GPU {gpu} waited {LONGEST_NS / 1e9:.3g} s for GPU {missing[gpu] - 1} and gave up")

    return Sum(run=several_gpus.on_all(launches), results=results, wait=wait)


def _in_graphs(problem: AllReduce, all_reduce: Sum) -> TimedCall:
    """The timed call of RECORDED sums that were recorded as CUDA graphs, with the attributes that timing and checks read."""
    if problem.form == "in-place":
        raise ValueError("a recorded sum has a place of its own: in place each call would add up the one before")
    replay = several_gpus.recorded(all_reduce.run, len(problem.members), RECORDED)
    call = _bound(problem, all_reduce._replace(run=replay))
    call.passes = RECORDED
    return call


@kernel
def nccl(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """NCCL's all-reduce, a group of calls from one thread: its ring or tree, chosen by size; NVLink multicast off.

    data: a row for each GPU, in host memory.
    """
    return _bound(problem, _nccl_sum(problem, data))


@kernel
def nccl_graph(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """The same calls recorded as CUDA graphs of 32, one a GPU: what NCCL takes without the host's part.

    data: a row for each GPU, in host memory.
    """
    return _in_graphs(problem, _nccl_sum(problem, data))


@kernel
def one_shot(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """Each GPU writes its values into all others' inboxes and adds what comes: one way over the link, no second step.

    data: a row for each GPU, in host memory.
    """
    return _bound(problem, _one_shot_sum(problem, data))


@kernel
def one_shot_graph(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """The same kernel recorded as CUDA graphs of 32, one a GPU: what it takes without the host's part.

    data: a row for each GPU, in host memory.
    """
    return _in_graphs(problem, _one_shot_sum(problem, data))


@kernel
def one_shot_early_graph(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """The same, each call's blocks started while those before it end: programmatic dependent launch, from Hopper on.

    data: a row for each GPU, in host memory.
    """
    if int(cupy.cuda.Device(0).compute_capability) < 90:
        raise ValueError("programmatic dependent launch needs a GPU of compute capability 9.0 or later")
    return _in_graphs(problem, _one_shot_sum(problem, data, early=True))
