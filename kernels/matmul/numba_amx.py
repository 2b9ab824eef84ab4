"""Matmul of bfloat16 with float32 sums in AMX's tile registers: an instruction multiplies 16 x 32 by 32 x 16."""

# Alternatives on a core of Sapphire Rapids at n = 2048, as shares of this version's rate: blocks of A with 384 rows 0.8, all of k
# at once 0.85, plain loads of A 0.9, packed B written by non-temporal stores 0.95, six tiles of sums no gain. Packing takes 12 %
# of the time and storing C 5 %. The tile products are limited by the bandwidth of the second-level cache.

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.problems import Matmul
from kernels.problems.arrays import empty, numpy_dtype
from kernels.reference import operands
from kernels.registry import into, kernel
from kernels.simd import emit
from kernels.simd.amx import require, tile_shapes, tiles_allowed
from kernels.simd.packing import copy_group, origin, peek, room

_SIDE = 32  # rows, and columns, of C in four tiles of sums; also the k of one instruction, which is called a step
_WORDS = 2 * 16 * 16  # 32-bit words in two adjacent tiles of A, or of B
_FEW = 16  # steps at a time: their 32 KiB of B stay in the first-level cache, while loads of A bypass it
_STEPS = 64  # steps in a block of A
_HIGH = 8  # panels of 32 rows in a block of A: 1 MiB, which stays in the second-level cache
_WIDE = 64  # most panels of B whose sums are kept for further steps: 2 MiB per thread
_TOGETHER = 4  # panels of B that are packed together, so that memory is read along B's rows
_RUN = 8 * _SIDE  # consecutive k of a row of A that are packed together, for the same reason
_AHEAD_ROWS = 16  # how many rows ahead packing prefetches B
_AHEAD = 4 * _WORDS // _HIGH  # bytes of B prefetched per step: all of the next _FEW steps during _HIGH panels of A

# tileloaddt1 loads A but leaves B in the first-level cache. B is prefetched into the second-level cache (prefetcht1), the next
# sums into the first-level cache (prefetcht0), all of them within _FEW steps.
_TILE_CODE = "\n".join(
    [
        "leaq 4096($5), $4",
        "testq $6, $6",
        "jnz 2f",
        *(f"tilezero %tmm{i}" for i in range(4)),
        "jmp 1f",
        "2:",
        *(f"tileloadd {1024 * i}($5,$7,1), %tmm{i}" for i in range(4)),
        ".p2align 6",
        "1:",
        "tileloaddt1 ($1,$7,1), %tmm4",
        "tileloadd ($2,$7,1), %tmm6",
        "tileloadd 1024($2,$7,1), %tmm7",
        "tileloaddt1 1024($1,$7,1), %tmm5",
        *(
            line
            for i in range(4)
            for line in (
                f"tdpbf16ps %tmm{6 + i % 2}, %tmm{4 + i // 2}, %tmm{i}",
                f"prefetcht1 {64 * i}($3)",
                f"prefetcht0 {64 * i}($4)",
            )
        ),
        "addq $$2048, $1",
        "addq $$2048, $2",
        f"addq $${_AHEAD}, $3",
        f"addq $${4096 // _FEW}, $4",
        "decq $0",
        "jnz 1b",
        *(f"tilestored %tmm{i}, {1024 * i}($5,$7,1)" for i in range(4)),
    ]
)


@intrinsic
def _four_tiles(typingctx, a, a_at, b, b_at, sums, sums_at, steps, add, ahead):
    """Multiplies two tiles of A by two of B in each of `steps` steps and adds the products to four tiles of sums, which start at
    0 if `add` is 0. Each step prefetches _AHEAD bytes of B, from word `ahead` on, and a part of the sums that follow these.

    a, b, sums: arrays of 32-bit words, tile after tile. No compiler uses tile registers by itself, so their configuration stays
    valid from one piece of assembly to the next.
    """
    signature = types.void(a, types.intp, b, types.intp, sums, *[types.intp] * 4)

    def codegen(context, builder, signature, arguments):
        pointers = emit.datas(context, builder, signature, arguments, (0, 2, 4, 2))
        places = [builder.gep(p, [arguments[i]]) for p, i in zip(pointers, (1, 3, 5, 8), strict=True)]
        # inputs of _TILE_CODE: three that it only reads ($5 to $7), then four that it changes ($0 to $3)
        values = [places[2], arguments[7], emit.INDEX(64), arguments[6], places[0], places[1], places[3]]
        left_over = ir.LiteralStructType([value.type for value in [*values[3:], values[6]]])
        kind = ir.FunctionType(left_over, [value.type for value in values])
        outputs, inputs = "=&r,=&r,=&r,=&r,=&r", "r,r,r,0,1,2,3"
        builder.asm(kind, _TILE_CODE, f"{outputs},{inputs},~{{memory}},~{{flags}}", values, side_effect=True)
        return context.get_dummy_value()

    return signature, codegen


def _assembly(code: str, operand: bool):
    def codegen(context, builder, signature, arguments):
        pointers = emit.datas(context, builder, signature, arguments, (0,)) if operand else []
        kind = ir.FunctionType(ir.VoidType(), [p.type for p in pointers])
        builder.asm(kind, code, ("r," if operand else "") + "~{memory}", pointers, side_effect=True)
        return context.get_dummy_value()

    return codegen


@intrinsic
def _shape_tiles(typingctx, shapes):
    """Configures this thread's tile registers by `shapes`, the 64 bytes that LDTILECFG reads."""
    return types.void(shapes), _assembly("ldtilecfg ($0)", True)


@intrinsic
def _release_tiles(typingctx):
    return types.void(), _assembly("tilerelease", False)


@intrinsic
def _zip_rows(typingctx, lanes, target, target_at, source, source_at, apart, ahead):
    """Interleaves two rows of 32 values: the pairs of the first 16 columns go to one tile, the others to the next. Prefetches
    the source `ahead` elements further on, and the same lines of the next two tiles for writing."""
    signature = types.void(lanes, target, types.intp, source, *[types.intp] * 3)

    def codegen(context, builder, signature, arguments):
        vector, _ = emit.vector_of(context, signature, 1)
        to, source = emit.datas(context, builder, signature, arguments, (1, 3))
        rows = []
        for where in (arguments[4], builder.add(arguments[4], arguments[5])):
            rows.append(builder.load(emit.at(builder, source, where, vector), align=2))
            emit.prefetch(builder, emit.at(builder, source, builder.add(where, arguments[6]), vector))
        for i, value in enumerate(emit.zipped(builder, rows)):
            emit.prefetch(builder, emit.at(builder, to, arguments[2], vector, 512 * i + 2 * _WORDS), write=True)
            builder.store(value, emit.at(builder, to, arguments[2], vector, 512 * i), 2)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True)
def _pack_a(lanes, target, at, source, start, row, col, valid, k):
    """Packs `valid` rows of A, at most 32, as pairs of tiles, each 16 rows by 32 of k; beyond the last k are zeros."""
    for first in range(0, k, _RUN):
        for r in range(valid):
            for k0 in range(first, min(first + _RUN, k), _SIDE):
                to = at + k0 * _SIDE + r * _SIDE
                if col == 1 and k0 + _SIDE <= k:
                    copy_group(lanes, target, to, source, start + r * row + k0, _RUN)
                else:
                    for i in range(_SIDE):
                        target[to + i] = peek(source, start + r * row + (k0 + i) * col) if k0 + i < k else 0


@numba.njit(cache=True)
def _pack_b(lanes, target, at, apart, source, start, row, col, valid, k):
    """Packs panels of 32 columns of B, `apart` elements from each other, as pairs of tiles. Row i of a tile has the values of
    k = 2 i and 2 i + 1 of 16 columns, side by side for each column; beyond the last k are zeros."""
    for k0 in range(0, -(-k // _SIDE) * _SIDE, 2):
        for first in range(0, valid, _SIDE):
            to = at + first // _SIDE * apart + k0 // _SIDE * _SIDE * _SIDE + k0 % _SIDE * 16
            if col == 1 and k0 + 2 <= k and first + _SIDE <= valid:
                _zip_rows(lanes, target, to, source, start + k0 * row + first, row, _AHEAD_ROWS * row)
            else:
                for j in range(min(_SIDE, valid - first)):
                    for i in range(2):
                        value = peek(source, start + (k0 + i) * row + (first + j) * col) if k0 + i < k else 0
                        target[to + j // 16 * 512 + j % 16 * 2 + i] = value


@intrinsic
def _stream(typingctx, group, target, target_at, source, source_at):
    """Copies as many values as `group` is long, a cache line, by a non-temporal store: the line need not be read first.

    The thread's next atomic operation, such as `take_number`, orders the store before what follows.
    """
    signature = types.void(group, target, types.intp, source, types.intp)

    def codegen(context, builder, signature, arguments):
        vector, _ = emit.vector_of(context, signature, 1)
        to, source = emit.datas(context, builder, signature, arguments, (1, 3))
        loaded = builder.load(emit.at(builder, source, arguments[4], vector), align=64)
        emit.store_past_caches(builder, loaded, emit.at(builder, to, arguments[2], vector), 64)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True)
def _store(tile, sums, at, c, c_at, length, high, wide):
    """Stores four tiles of sums as high x wide of C, whose rows are `length` long; bfloat16 (16-bit words) is rounded to even."""
    for i in range(high):
        for j0 in range(0, wide, 16):
            to, word_at = c_at + i * length + j0, at + (i // 16 * 2 + j0 // 16) * 256 + i % 16 * 16
            if c.itemsize == 4 and wide - j0 >= 16 and length % 16 == 0:
                _stream(tile, c, to, sums, word_at)
            elif c.itemsize == 4 and wide - j0 >= 16:
                copy_group(tile, c, to, sums, word_at, 0)
            else:
                for j in range(min(16, wide - j0)):
                    word = sums[word_at + j]
                    c[to + j] = (word + 0x7FFF + ((word >> 16) & 1)) >> 16 if c.itemsize == 2 else word


@numba.njit(cache=True)
def _pack(lanes, b, b_by, sizes, right, counters):
    """Packs panels of B, as long as there are any that no thread has taken, and waits until all are packed. In `right` all
    panels' first _STEPS steps come first, then their next ones, so that the data to prefetch follows the data in use."""
    (_, n, k), (b_row, b_col) = sizes, b_by
    b_panels, steps = -(-n // _SIDE), -(-k // _SIDE)
    groups = -(-b_panels // _TOGETHER)
    while True:
        piece = emit.take_number(counters, 0)
        if piece >= groups:
            break
        first = piece * _TOGETHER
        for step in range(0, steps, _STEPS):
            apart = min(_STEPS, steps - step) * 2 * _WORDS
            at, start = step * b_panels * 2 * _WORDS + first * apart, first * _SIDE * b_col + step * _SIDE * b_row
            _pack_b(
                lanes,
                right,
                at,
                apart,
                b,
                start,
                b_row,
                b_col,
                min(_TOGETHER * _SIDE, n - first * _SIDE),
                min(_STEPS * _SIDE, k - step * _SIDE),
            )
        emit.take_number(counters, 1)
    emit.wait_for(counters, 1, groups)


@numba.njit(cache=True)
def _pack_block(lanes, a, a_by, left, i0, i1, sizes, step, deep):
    """Packs `deep` steps of the panels i0 to i1 - 1 of A: _FEW steps of all panels, then the next ones, as they are read."""
    (m, _, k), (a_row, a_col) = sizes, a_by
    for few in range(0, deep, _FEW):
        some = min(_FEW, deep - few)
        first = (step + few) * _SIDE
        for i in range(i0, i1):
            at, start = (few * (i1 - i0) + (i - i0) * some) * 2 * _WORDS, i * _SIDE * a_row + first * a_col
            _pack_a(lanes, left, at, a, start, a_row, a_col, min(_SIDE, m - i * _SIDE), min(some * _SIDE, k - first))


@numba.njit(cache=True)
def _multiply(lanes, tile, shapes, a, a_by, left, right, sums, c, sizes, block, counters):
    """Computes blocks of C, of `block` = (down, across) panels each, until no thread has any left to take."""
    (m, n, k), (high, wide) = sizes, block
    a_panels, b_panels, steps = -(-m // _SIDE), -(-n // _SIDE), -(-k // _SIDE)
    down, across = -(-a_panels // high), -(-b_panels // wide)
    halves = left.view(np.uint16)
    packed = -1
    _shape_tiles(shapes)
    while True:
        piece = emit.take_number(counters, 2)
        if piece >= down * across:
            break
        i0, j0 = piece // across * high, piece % across * wide
        i1, j1 = min(i0 + high, a_panels), min(j0 + wide, b_panels)
        for step in range(0, steps, _STEPS):
            deep = min(_STEPS, steps - step)
            if deep < steps or packed != i0:
                _pack_block(lanes, a, a_by, halves, i0, i1, sizes, step, deep)
                packed = i0
            for j in range(j0, j1):
                # if these steps are all of k, the sums are stored at once and their memory is used again
                column = 0 if deep == steps else (j - j0) * high
                right_at = (step * b_panels + j * deep) * _WORDS
                for few in range(0, deep, _FEW):
                    some = min(_FEW, deep - few)
                    for i in range(i1 - i0):
                        left_at = (few * (i1 - i0) + i * some) * _WORDS
                        ahead = right_at + (few + some) * _WORDS + i * some * (_AHEAD // 4)
                        _four_tiles(
                            left,
                            left_at,
                            right,
                            right_at + few * _WORDS,
                            sums,
                            (column + i) * 2 * _WORDS,
                            some,
                            step + few,
                            ahead,
                        )
                if step + deep == steps:
                    for i in range(i0, i1):
                        _store(
                            tile,
                            sums,
                            (column + i - i0) * 2 * _WORDS,
                            c,
                            i * _SIDE * n + j * _SIDE,
                            n,
                            min(_SIDE, m - i * _SIDE),
                            min(_SIDE, n - j * _SIDE),
                        )
    _release_tiles()


@numba.njit(cache=True, parallel=True)
def _product(lanes, tile, shapes, a, a_by, b, b_by, c, sizes, block, left, right, sums, counters):
    counters[:] = 0
    halves = right.view(np.uint16)
    for thread in numba.prange(sums.shape[0]):
        _pack(lanes, b, b_by, sizes, halves, counters)
        _multiply(lanes, tile, shapes, a, a_by, left[thread], right, sums[thread], c, sizes, block, counters)


@kernel(rung=True)
def amx(problem: Matmul, a, b):
    """AMX: four tiles of sums take products of two tiles of A and two of B; a packed block of A stays in the
    second-level cache, and a piece of a panel of B, the next one asked for early, in the first-level one."""
    require(problem, "amx-tile", "amx-bf16")
    if problem.out not in ("bfloat16", "float32"):
        raise ValueError(f"the sums are float32 and are stored so or rounded to bfloat16, not to {problem.out}")
    if not tiles_allowed():
        raise ValueError("the kernel of this system does not let a process use AMX's tiles")
    m, n, k, threads = problem.m, problem.n, problem.k, numba.get_num_threads()
    a_panels, b_panels, steps = -(-m // _SIDE), -(-n // _SIDE), -(-k // _SIDE)
    high, wide = _HIGH, b_panels if steps <= _STEPS else min(b_panels, _WIDE)
    while -(-a_panels // high) * -(-b_panels // wide) < 4 * threads and threads > 1 and max(high, wide) > 4:
        high, wide = (high // 2, wide) if high > 4 else (high, -(-wide // 2))
    left, right, sums = room(
        np.dtype(np.uint32),
        (threads, high * min(steps, _STEPS) * _WORDS),
        (b_panels * steps * _WORDS,),
        (threads, high * (wide if steps > _STEPS else 1) * 2 * _WORDS),
    )
    c = empty((m, n), numpy_dtype(problem.out), 5)
    raw = c.reshape(-1).view(np.uint16 if problem.out == "bfloat16" else np.uint32)
    views = [x.view(np.uint16) for x in operands(problem, (a, b))]
    a_by, b_by = (tuple(step // 2 for step in x.strides) for x in views)
    given = tile_shapes(), origin(views[0]), a_by, origin(views[1]), b_by, raw, (m, n, k), (high, wide)
    return into(c, _product, (0,) * 32, (0,) * 16, *given, left, right, sums, np.zeros(3, np.int64), keep=(a, b))
