"""Sums over all GPUs of a host: through NCCL, and by a kernel of ours for small ones, launched each or recorded in graphs."""

import functools
import os
from collections.abc import Callable, Sequence

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
def _communicators(count: int):
    """(NCCL's bindings, a communicator for each GPU), all in this process.

    NVLink multicast stays off: a program that dies with it can leave the host's GPUs unusable for all.
    Raises: ValueError where NCCL does not load.
    """
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # read when the first communicator is made
    from cupy.cuda import nccl

    if not nccl.available:
        major = cupy.cuda.get_local_runtime_version() // 1000
        raise ValueError(f"NCCL does not load; install it with: pip install nvidia-nccl-cu{major}")
    return nccl, nccl.NcclCommunicator.initAll(list(range(count)))


#: A sum over all GPUs: the call that starts it on all streams, the array of each GPU that receives it, the wait for all GPUs.
Sum = tuple[Callable[[], None], list, Callable[[], None]]


def _placed(problem: AllReduce, data: np.ndarray) -> tuple[list, list]:
    """(the arrays that the GPUs send, the arrays that receive the sum)."""
    several_gpus.require_gpus(len(problem.members))
    sent = [several_gpus.array(gpu, row) for gpu, row in enumerate(data)]
    if problem.form == "in-place":
        return sent, sent
    return sent, [several_gpus.poisoned(array) for array in sent]


def _bound(problem: AllReduce, run: Callable[[], None], results: list, wait: Callable[[], None]) -> Callable:
    """The call of a sum with the attributes that clocks and checks read: its wait, and how its results come to the host."""

    def on_host(arrays: Sequence[cupy.ndarray]) -> np.ndarray:
        return np.stack([cupy.asnumpy(array) for array in arrays]).view(numpy_dtype(problem.dtype))

    call = timed_call(run, result=results)
    call.synchronize = wait
    call.on_host = on_host
    return call


def _nccl_sum(problem: AllReduce, data: np.ndarray) -> Sum:
    """One ncclAllReduce per GPU, grouped in one thread, as in nccl-tests -g."""
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

    return run, results, several_gpus.wait_for(count)


def _one_shot_sum(problem: AllReduce, data: np.ndarray, early: bool = False) -> Sum:
    """Our kernel on every GPU; its wait reports a missing GPU. early: a call's blocks start while those of the call before it
    end."""
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

    def wait(keep=(inboxes, missing)):
        wait_for_all()
        if missing.any():
            gpu = int(np.flatnonzero(missing)[0])
            raise RuntimeError(f"GPU {gpu} waited {LONGEST_NS / 1e9:.3g} s for GPU {missing[gpu] - 1} and gave up")

    return several_gpus.on_all(launches), results, wait


def _in_graphs(problem: AllReduce, run: Callable[[], None], results: list, wait: Callable[[], None]) -> Callable:
    """The call of a sum recorded as CUDA graphs, with the attributes that clocks and checks read."""
    if problem.form == "in-place":
        raise ValueError("a recorded sum has a place of its own: in place each call would add up the one before")
    replay = several_gpus.recorded(run, len(problem.members), RECORDED)
    call = _bound(problem, replay, results, wait)
    call.passes = RECORDED
    return call


@kernel
def nccl(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """NCCL's all-reduce, a group of calls from one thread: its ring or tree, chosen by size; NVLink multicast off."""
    return _bound(problem, *_nccl_sum(problem, data))


@kernel
def nccl_graph(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """The same calls recorded as CUDA graphs of 32, one a GPU: what NCCL takes without the host's part."""
    return _in_graphs(problem, *_nccl_sum(problem, data))


@kernel
def one_shot(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """Each GPU writes its values into all others' inboxes and adds what comes: one way over the link, no second step."""
    return _bound(problem, *_one_shot_sum(problem, data))


@kernel
def one_shot_graph(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """The same kernel recorded as CUDA graphs of 32, one a GPU: what it takes without the host's part."""
    return _in_graphs(problem, *_one_shot_sum(problem, data))


@kernel
def one_shot_early_graph(problem: AllReduce, data: np.ndarray) -> TimedCall:
    """The same, each call's blocks started while those before it end: programmatic dependent launch, from Hopper on."""
    if int(cupy.cuda.Device(0).compute_capability) < 90:
        raise ValueError("programmatic dependent launch needs a GPU of compute capability 9.0 or later")
    return _in_graphs(problem, *_one_shot_sum(problem, data, early=True))
