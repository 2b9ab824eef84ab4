"""STREAM operations in Numba: whole vectors, each thread on a slice of its own."""

import functools
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.problems import Stream
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel, timed_call
from kernels.simd import emit

OPERATIONS = ("copy", "scale", "add", "triad", "read")
#: So many bytes a thread are moved in a call, in as many passes as it takes: some 0.3 ms in a first-level cache, of which
#: starting the threads takes a hundredth or two. Larger problems are passed over once.
_BYTES_A_CALL = 1 << 26
_MOST_PASSES = 1 << 13
_NEAR_BYTES = 1 << 15  # a thread's part of all arrays that every first-level cache holds
_LINE = 64  # bytes that caches move
_UNROLL = 4  # vectors of each array a trip
_SUMS = 8  # independent sums: two additions a cycle, four cycles long
#: Beyond the first-level cache, vectors of half a line are 5 to 10 % faster than whole ones on a chip with AVX-512 ...
_FAR_BYTES = 32
#: ... and prefetching the output's lines this far ahead of writing them gains as much again.
_AHEAD_BYTES = 512


@intrinsic
def _forget(typingctx):
    """A Numba intrinsic: makes the compiler take all memory as changed, so that a repeated pass over an array is made again and
    not left out."""

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic(prefer_literal=True)
def _pass(typingctx, operation, how, a, b, out, factor, start, stop):
    """A Numba intrinsic: out[i] = a[i] (copy), factor * a[i] (scale), a[i] + b[i] (add) or a[i] + factor * b[i] (triad) for start
    <= i < stop.

    operation, how: literals. how: `near`, for a first-level cache; `far`, which asks for lines of `out` ahead of time;
    `nontemporal`, which writes past the caches and waits until that is done. `out` begins, and `start` lies, on a cache line.
    """
    signature = types.void(operation, how, a, b, out, factor, types.intp, types.intp)
    word, how = operation.literal_value, how.literal_value
    width = emit.vector_bytes() if how == "near" else min(_FAR_BYTES, emit.vector_bytes())

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits the loops; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, _, _, _, _, factor, start, stop = tuple(arguments)
        array_type = signature.args[4]
        whole = emit.vector_type(context, array_type, width)
        item = array_type.dtype.bitwidth // 8
        sources = emit.data_pointers(context, builder, signature, arguments, places=(2, 3))
        (target,) = emit.data_pointers(context, builder, signature, arguments, places=(4,))

        def load(pointer: ir.Value, places: list, vector: ir.VectorType) -> list:
            """Emits loads of the vectors that begin at these elements of an array."""
            return [builder.load(emit.vector_pointer(builder, pointer, place, vector), align=item) for place in places]

        def some(index: ir.Value, count: int, vector: ir.VectorType) -> None:
            """Emits the operation on `count` vectors of each array, from element `index` on; a vector may have a single lane."""
            places = [builder.add(index, emit.INDEX(i * vector.count)) for i in range(count)]
            factors = emit.broadcast(builder, factor, vector)
            # Load: all vectors of both arrays.
            x = load(sources[0], places, vector)
            y = load(sources[1], places, vector)
            # Compute and store.
            for i, place in enumerate(places):
                value = _combined(builder, word, factors, x=x[i], y=y[i])
                if how == "far" and vector is whole and i * width % _LINE == 0:
                    ahead = emit.vector_pointer(builder, target, place, vector, ahead=_AHEAD_BYTES // item)
                    emit.prefetch(builder, ahead, write=True)
                to = emit.vector_pointer(builder, target, place, vector)
                if how == "nontemporal" and vector is whole:
                    emit.store_past_caches(builder, value, to, width)
                else:
                    builder.store(value, to, item)

        index = cgutils.alloca_once_value(builder, start)
        one = ir.VectorType(whole.element, 1)
        # As many whole trips as there are, then single vectors, then single elements.
        for count, vector in ((_UNROLL, whole), (1, whole), (1, one)):
            _steps(builder, index, stop, count=count, vector=vector, body=some)
        if how == "nontemporal":
            _drain(builder)
        return context.get_dummy_value()

    return signature, codegen


def _drain(builder: ir.IRBuilder) -> None:
    """Emits the wait until other threads see the non-temporal stores before it: `sfence` on x86."""
    if llvm.get_host_cpu_features().get("sse"):
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.sfence"), [])
    else:
        builder.fence("seq_cst")


def _combined(builder: ir.IRBuilder, operation: str, factors: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """Emits the operation on one vector of each array; `factors` has the scalar of `scale` and `triad` in every lane."""
    match operation:
        case "copy":
            return x
        case "scale":
            return builder.fmul(factors, x)
        case "add":
            return builder.fadd(x, y)
        case "triad":
            return builder.call(emit.fused(builder, x.type, "llvm.fmuladd"), [factors, y, x])
    raise ValueError(f"no stream operation {operation!r}")


def _steps(
    builder: ir.IRBuilder, index: ir.Value, stop: ir.Value, count: int, vector: ir.VectorType, body: Callable
) -> None:
    """Emits a loop whose trips each take `count` vectors, for as long as these lie before element `stop`.

    index: the address of the loop's position, which it moves on. body: called once, with (position, count, vector), to emit a
    trip.
    """
    step = emit.INDEX(count * vector.count)
    check = builder.append_basic_block("check")
    trip = builder.append_basic_block("trip")
    after = builder.append_basic_block("after")
    builder.branch(check)
    builder.position_at_end(check)
    here = builder.load(index)
    builder.cbranch(builder.icmp_signed("<=", builder.add(here, step), stop), trip, after)
    builder.position_at_end(trip)
    body(here, count, vector)
    builder.store(builder.add(here, step), index)
    builder.branch(check)
    builder.position_at_end(after)


@intrinsic
def _sum(typingctx, a, sums, start, stop):
    """A Numba intrinsic: adds up a[start:stop] in _SUMS vectors from 0 and stores them at `sums` (_SUMS * lanes values); elements
    that fill no vector go to the first value."""
    signature = types.void(a, sums, types.intp, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits the loops; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, _, start, stop = tuple(arguments)
        array_type = signature.args[0]
        whole = emit.vector_type(context, array_type)
        item = array_type.dtype.bitwidth // 8
        source, target = emit.data_pointers(context, builder, signature, arguments, places=(0, 1))
        slots = [cgutils.alloca_once_value(builder, ir.Constant(whole, None)) for _ in range(_SUMS)]
        rest = ir.VectorType(whole.element, 1)
        last = cgutils.alloca_once_value(builder, ir.Constant(rest, None))

        def some(index: ir.Value, count: int, vector: ir.VectorType) -> None:
            """Emits the addition of `count` vectors, from element `index` on, to as many sums; a vector of one lane goes to
            `last`."""
            for i, slot in enumerate(slots[:count] if vector is whole else [last]):
                place = builder.add(index, emit.INDEX(i * vector.count))
                loaded = builder.load(emit.vector_pointer(builder, source, place, vector), align=item)
                builder.store(builder.fadd(builder.load(slot), loaded), slot)

        index = cgutils.alloca_once_value(builder, start)
        # As many whole trips as there are, then single vectors, then single elements.
        for count, vector in ((_SUMS, whole), (1, whole), (1, rest)):
            _steps(builder, index, stop, count=count, vector=vector, body=some)
        # The sum of single elements goes to the first lane of the first vector.
        zero = ir.Constant(ir.IntType(32), 0)
        left = builder.extract_element(builder.load(last), zero)
        first = builder.load(slots[0])
        total = builder.fadd(builder.extract_element(first, zero), left)
        builder.store(builder.insert_element(first, total, zero), slots[0])
        for i, slot in enumerate(slots):
            place = emit.INDEX(i * whole.count)
            builder.store(builder.load(slot), emit.vector_pointer(builder, target, place, whole), item)
        return context.get_dummy_value()

    return signature, codegen


@functools.cache
def _compiled(operation: str, nontemporal: bool) -> Callable:
    """The operation (copy, scale, add or triad) as a function that Numba compiles; its parameters are those of `passed_over`."""
    small = "nontemporal" if nontemporal else "near"
    large = "nontemporal" if nontemporal else "far"

    @numba.njit(cache=True, parallel=True)
    def passed_over(
        a: np.ndarray, b: np.ndarray, out: np.ndarray, factor: float, share: int, passes: int, near: bool
    ) -> None:
        """Does the operation `passes` times on all of `out`, in slices of `share` elements, one for each thread.

        near: whether a thread's slices fit its first-level cache.
        """
        for thread in numba.prange(-(-out.size // share)):
            start = thread * share
            stop = min((thread + 1) * share, out.size)
            for _ in range(passes):
                if near:
                    _pass(operation, small, a, b, out, factor, start, stop)
                else:
                    _pass(operation, large, a, b, out, factor, start, stop)
                _forget()

    return passed_over


@numba.njit(cache=True, parallel=True)
def _read(a: np.ndarray, sums: np.ndarray, out: np.ndarray, share: int, passes: int) -> None:
    """out[0] = the sum of `a`, computed `passes` times, in slices of `share` elements, one for each thread, which has a row
    of `sums`."""
    for thread in numba.prange(sums.shape[0]):
        for _ in range(passes):
            _sum(a, sums[thread], min(thread * share, a.size), min((thread + 1) * share, a.size))
            _forget()
    out[0] = sums.astype(np.float64).sum()


def _bound(problem: Stream, arrays: Sequence[np.ndarray], nontemporal: bool) -> TimedCall:
    """The timed call of a copy, scale, add, triad or read on all threads, which may pass over little data several times.

    arrays: the one or two arrays read, of `problem.elements` values each. nontemporal: whether stores go past the caches.
    Raises: ValueError for other operations and types.
    """
    if problem.operation not in OPERATIONS or problem.dtype not in ("float32", "float64"):
        raise ValueError(
            f"no {problem.operation} of {problem.dtype} in Numba's vectors; they have {', '.join(OPERATIONS)}"
        )
    if nontemporal and problem.operation == "read":
        raise ValueError("a read stores nothing, so there is no store to make non-temporal")
    a = arrays[0]
    threads = numba.get_num_threads()
    line_elements = _LINE // a.itemsize
    share = -(-problem.elements // (threads * line_elements)) * line_elements  # elements of a thread: whole cache lines
    arguments: tuple
    passes = min(max(1, threads * _BYTES_A_CALL // problem.bytes_moved), _MOST_PASSES)
    if problem.operation == "read":
        out = np.empty(1, a.dtype)
        sums = empty((threads, _SUMS * emit.lanes(a.dtype)), a.dtype)
        compiled = _read
        arguments = (a, sums, out, share, passes)
    else:
        # its pages are given by the first call, to the threads that write them
        out = empty((problem.elements,), a.dtype, place=5)
        near = problem.bytes_moved <= threads * _NEAR_BYTES
        compiled = _compiled(problem.operation, nontemporal)
        arguments = (a, arrays[-1], out, a.dtype.type(3), share, passes, near)

    run = timed_call(compiled, *arguments, result=out)
    run.passes = passes
    return run


@kernel
def loop(problem: Stream, *arrays: np.ndarray) -> TimedCall:
    """Vectors through the caches, which read each line of the output before it is written; a call on little data makes
    many passes inside compiled code.

    arrays: the one or two arrays read, of `problem.elements` values each.
    """
    return _bound(problem, arrays, nontemporal=False)


@kernel
def nontemporal(problem: Stream, *arrays: np.ndarray) -> TimedCall:
    """The same with stores that go past the caches: no line of the output is read first, a third less traffic for a triad
    beyond them. Within them it shows what that costs.

    arrays: the one or two arrays read, of `problem.elements` values each.
    """
    return _bound(problem, arrays, nontemporal=True)
