"""Sums over all GPUs of a host: through NCCL, and by a kernel of ours for small ones, launched each or recorded in graphs."""

import functools
import os
from collections.abc import Callable

import cupy
import numpy as np

from kernels.cuda import loader, several_gpus
from kernels.problems import ONE_SHOT_BYTES, AllReduce
from kernels.problems.arrays import numpy_dtype
from kernels.registry import into, kernel

RECORDED = 32  # calls in a graph: launching it is then small beside them
_THREADS, _MOST_BLOCKS = 512, 128  # all at once on any GPU that NVLink connects
_PIECE = 8
LONGEST_NS = 2_000_000_000  # that a kernel of ours waits for another GPU


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


def _placed(problem: AllReduce, data: np.ndarray) -> tuple[list, list]:
    """(the array that each GPU sends, the array that receives its sum)."""
    several_gpus.require(len(problem.members))
    sent = [several_gpus.array(gpu, row) for gpu, row in enumerate(data)]
    return sent, sent if problem.form == "in-place" else [several_gpus.poisoned(each) for each in sent]


def _told(problem: AllReduce, run: Callable[[], None], got: list, wait: Callable[[], None]) -> Callable:
    """`run` with the attributes that clocks and checks read: its wait, and how its results come to the host."""
    call = into(got, run)
    call.synchronize = wait
    call.on_host = lambda value: np.stack([cupy.asnumpy(each) for each in value]).view(numpy_dtype(problem.dtype))
    return call


def _nccl(problem: AllReduce, data: np.ndarray):
    """(the call, the arrays that receive the sums): one ncclAllReduce per GPU, grouped in one thread, as in nccl-tests -g."""
    nccl, communicators = _communicators(len(problem.members))
    sent, got = _placed(problem, data)
    kind = getattr(nccl, f"NCCL_{problem.dtype.upper()}")
    parts = [
        (comm.allReduce, (a.data.ptr, b.data.ptr, problem.elements, kind, nccl.NCCL_SUM, several_gpus.stream(gpu).ptr))
        for gpu, (comm, a, b) in enumerate(zip(communicators, sent, got, strict=True))
    ]

    def run(keep=sent):
        nccl.groupStart()
        for reduce, arguments in parts:
            reduce(*arguments)
        nccl.groupEnd()

    return run, got


def _one_shot(problem: AllReduce, data: np.ndarray, early: bool = False):
    """(the call, the arrays that receive the sums, a wait that reports a missing GPU). early: a call's blocks start while those
    of the call before it end."""
    count = len(problem.members)
    if problem.nbytes > ONE_SHOT_BYTES:
        raise ValueError(
            f"one_shot is for arrays of at most {ONE_SHOT_BYTES} bytes: it sends each of them whole to every GPU"
        )
    if problem.nbytes % _PIECE or problem.dtype == "float16":
        raise ValueError(f"one_shot adds whole {_PIECE} bytes of float32 or bfloat16")
    sent, got = _placed(problem, data)
    several_gpus.require_reach(count)
    pieces = problem.nbytes // _PIECE
    blocks = min(_MOST_BLOCKS, -(-pieces // _THREADS))
    inboxes = [several_gpus.array(gpu, np.zeros((2, count, pieces, 2), np.uint64)) for gpu in range(count)]
    calls = [several_gpus.array(gpu, np.zeros(blocks * _THREADS, np.uint32)) for gpu in range(count)]
    failed = [several_gpus.array(gpu, np.zeros(1, np.int32)) for gpu in range(count)]
    told = np.frombuffer(cupy.cuda.alloc_pinned_memory(4 * count), np.int32, count)
    told[:] = 0
    boxes = np.array([inbox.data.ptr for inbox in inboxes], np.uint64).view(f"V{8 * count}")
    macros = {"GPUS": count, "BFLOAT16": int(problem.dtype == "bfloat16"), "EARLY": int(early)}
    compiled = loader.load("collective/cupy", "one_shot", **macros)
    launches = []
    for gpu in range(count):
        where = np.uint64(told.ctypes.data + 4 * gpu)
        own = sent[gpu], got[gpu], np.int64(pieces), boxes, np.int32(gpu), calls[gpu], failed[gpu], where
        launches.append(several_gpus.launcher(gpu, compiled, blocks, _THREADS, (*own, np.int64(LONGEST_NS)), early))
    wait_for_all = several_gpus.wait_for(count)

    def wait(keep=(inboxes, told)):
        wait_for_all()
        if told.any():
            gpu = int(np.flatnonzero(told)[0])
            raise RuntimeError(f"GPU {gpu} waited {LONGEST_NS / 1e9:.3g} s for GPU {told[gpu] - 1} and gave up")

    return several_gpus.on_all(launches), got, wait


def _in_graphs(problem: AllReduce, run: Callable[[], None], got: list, wait: Callable[[], None]) -> Callable:
    """A call of `run` recorded as CUDA graphs, with the attributes that clocks and checks read."""
    if problem.form == "in-place":
        raise ValueError("a recorded sum has a place of its own: in place each call would add up the one before")
    call = _told(problem, several_gpus.recorded(run, len(problem.members), RECORDED), got, wait)
    call.passes = RECORDED
    return call


@kernel
def nccl(problem: AllReduce, data):
    """NCCL's all-reduce, a group of calls from one thread: its ring or tree, chosen by size; NVLink multicast off."""
    run, got = _nccl(problem, data)
    return _told(problem, run, got, several_gpus.wait_for(len(problem.members)))


@kernel
def nccl_graph(problem: AllReduce, data):
    """The same calls recorded as CUDA graphs of 32, one a GPU: what NCCL takes without the host's part."""
    run, got = _nccl(problem, data)
    return _in_graphs(problem, run, got, several_gpus.wait_for(len(problem.members)))


@kernel
def one_shot(problem: AllReduce, data):
    """Each GPU writes its values into all others' inboxes and adds what comes: one way over the link, no second step."""
    return _told(problem, *_one_shot(problem, data))


@kernel
def one_shot_graph(problem: AllReduce, data):
    """The same kernel recorded as CUDA graphs of 32, one a GPU: what it takes without the host's part."""
    return _in_graphs(problem, *_one_shot(problem, data))


@kernel
def one_shot_early_graph(problem: AllReduce, data):
    """The same, each call's blocks started while those before it end: programmatic dependent launch, from Hopper on."""
    if int(cupy.cuda.Device(0).compute_capability) < 90:
        raise ValueError("programmatic dependent launch needs a GPU of compute capability 9.0 or later")
    return _in_graphs(problem, *_one_shot(problem, data, early=True))
