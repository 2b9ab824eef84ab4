"""Matmul of bfloat16 with float32 sums on AMX's tiles: 16 x 32 by 32 x 16 in an instruction."""

# Tried on a core of Sapphire Rapids at n = 2048, as shares of the present rate: blocks of A of 384 rows 0.8, all steps in k at
# once
# 0.85, plain loads of A 0.9, packed B stored past the caches 0.95, six tiles of sums no gain. Packing takes 12 % of the time and
# storing C 5 %; the tiles themselves are limited by what the second-level cache delivers.

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.problems import Matmul
from kernels.problems.arrays import empty, numpy_dtype
from kernels.reference import operands
from kernels.registry import into, kernel
from kernels.simd import vectors as emit
from kernels.simd.amx import require, tile_shapes, tiles_allowed
from kernels.simd.packing import copy_group, origin, peek, room

_SIDE = 32  # rows and columns of C that four tiles of sums hold; also the steps in k of an instruction
_WORDS = 2 * 16 * 16  # 32-bit words of two tiles of A or of B, side by side
_FEW = 16  # of these steps at a time: 32 KiB of B stay in the first-level cache while A's go past it
_STEPS = 64  # of them in a block of A, and its panels: 1 MiB stays in the second-level cache
_HIGH = 8
_WIDE = 64  # panels of B at most whose sums wait for further steps: 2 MiB a thread
_TOGETHER = 4  # panels of B that are packed together, so that memory is read along its rows
_RUN = 8 * _SIDE  # steps in k of a row of A that are packed together, for the same reason
_AHEAD_ROWS = 16  # of B, which are asked for early
_AHEAD = 4 * _WORDS // _HIGH  # bytes of B asked for in a step: all of the next steps while these meet _HIGH panels of A

# Loads of A leave B in the first-level cache (tileloaddt1); the next sums, of which _FEW steps see all, are asked for into it.
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
    """`steps` products of two tiles of A with two of B onto the four tiles of sums, from 0 where `add` is 0; meanwhile asks
    for _AHEAD bytes a step of B from its word `ahead` on, and for the sums that lie after these.

    a, b, sums: arrays of 32-bit words in which such tiles lie one after the other. No compiler uses tiles by itself, so
    they keep their shapes from one piece of assembly to the next.
    """
    signature = types.void(a, types.intp, b, types.intp, sums, *[types.intp] * 4)

    def codegen(context, builder, signature, arguments):
        pointers = emit.datas(context, builder, signature, arguments, (0, 2, 4, 2))
        places = [builder.gep(p, [arguments[i]]) for p, i in zip(pointers, (1, 3, 5, 8), strict=True)]
        # in the order of the code's operands: what it counts on, then what it only reads
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
    """Gives this thread tiles of those shapes (the 64 bytes of LDTILECFG)."""
    return types.void(shapes), _assembly("ldtilecfg ($0)", True)


@intrinsic
def _release_tiles(typingctx):
    return types.void(), _assembly("tilerelease", False)


@intrinsic
def _zip_rows(typingctx, lanes, target, target_at, source, source_at, apart, ahead):
    """Two rows' 32 values in turns, the first 16 columns' to one tile and the rest to the next; asks for those `ahead`, and
    for the lines that the next tiles' go to."""
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
    """32 rows as pairs of tiles, 16 rows of 32 steps each; steps after the last are 0."""
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
    """Panels, `apart` from one another, of 32 columns each as pairs of tiles, 16 rows of 16 columns' pairs of steps each; steps
    after the last are 0."""
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
    """Copies as many values as `group` is long past the caches, a whole line, which then need not be read first.

    A thread's next atomic operation, as `take_number` is one, orders such stores before what follows.
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
    """Four tiles of sums to a piece of C whose rows are `length` long, rounded to even where C is of bfloat16 (16-bit words)."""
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
    """Packs the panels of B that no other thread has taken, and waits for the others. All panels' parts of _STEPS steps lie
    together, so that what is asked for early lies behind what is in use."""
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
    """`deep` steps of the panels of A from i0 to i1, _FEW steps of all of them at a time, as they are read."""
    (m, _, k), (a_row, a_col) = sizes, a_by
    for few in range(0, deep, _FEW):
        some = min(_FEW, deep - few)
        first = (step + few) * _SIDE
        for i in range(i0, i1):
            at, start = (few * (i1 - i0) + (i - i0) * some) * 2 * _WORDS, i * _SIDE * a_row + first * a_col
            _pack_a(lanes, left, at, a, start, a_row, a_col, min(_SIDE, m - i * _SIDE), min(some * _SIDE, k - first))


@numba.njit(cache=True)
def _multiply(lanes, tile, shapes, a, a_by, left, right, sums, c, sizes, block, counters):
    """Takes blocks of C, of so many panels down and across, until there are no more."""
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
                # sums that are whole after these steps need no place of their own
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
