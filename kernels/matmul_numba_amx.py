"""Matmul of bfloat16 with float32 sums on AMX's tiles: 16 x 32 by 32 x 16 in an instruction."""

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels import simd as emit
from kernels.arrays import empty, numpy_dtype
from kernels.panels import copy_group, origin, peek
from kernels.peak_numba_bfloat16 import require, tile_shapes, tiles_allowed
from kernels.problems import Matmul
from kernels.reference import operands
from kernels.registry import kernel

_SIDE = 32  # rows and columns of C that four tiles of sums hold; also the steps in k of an instruction
_WORDS = 2 * 16 * 16  # 32-bit words of two tiles of A or of B, side by side
_STEPS = 16  # times 32 in k: a panel of A, 32 KiB, stays in the first-level cache
_BLOCK = 512  # rows and columns of C at most that a thread keeps in its second-level cache until they are done

_TILE_CODE = "\n".join([
    "testq $4, $4",
    "jnz 2f",
    *(f"tilezero %tmm{i}" for i in range(4)),
    "jmp 1f",
    "2:",
    *(f"tileloadd {1024 * i}($3,$5,1), %tmm{i}" for i in range(4)),
    "1:",
    "tileloadd ($1,$5,1), %tmm4",
    "tileloadd ($2,$5,1), %tmm6",
    "tdpbf16ps %tmm6, %tmm4, %tmm0",
    "tileloadd 1024($2,$5,1), %tmm7",
    "tdpbf16ps %tmm7, %tmm4, %tmm1",
    "tileloadd 1024($1,$5,1), %tmm5",
    "tdpbf16ps %tmm6, %tmm5, %tmm2",
    "tdpbf16ps %tmm7, %tmm5, %tmm3",
    *(f"prefetcht0 {4096 + 64 * i}($2)" for i in range(32)),  # B comes from the second-level cache, two steps early
    "addq $$2048, $1",
    "addq $$2048, $2",
    "decq $0",
    "jnz 1b",
    *(f"tilestored %tmm{i}, {1024 * i}($3,$5,1)" for i in range(4)),
])  # fmt: skip


@intrinsic
def _four_tiles(typingctx, a, a_at, b, b_at, sums, sums_at, steps, add):
    """`steps` products of two tiles of A with two of B onto the four tiles of sums, from 0 where `add` is 0.

    a, b, sums: arrays of 32-bit words in which such tiles lie one after the other. No compiler uses tiles by itself, so
    they keep their shapes from one piece of assembly to the next.
    """
    signature = types.void(a, types.intp, b, types.intp, sums, *[types.intp] * 3)

    def codegen(context, builder, signature, arguments):
        pointers = emit.datas(context, builder, signature, arguments, (0, 2, 4))
        places = [builder.gep(p, [arguments[i]]) for p, i in zip(pointers, (1, 3, 5), strict=True)]
        values = [places[2], arguments[7], emit.INDEX(64), arguments[6], places[0], places[1]]
        left_over = ir.LiteralStructType([value.type for value in values[3:]])
        kind = ir.FunctionType(left_over, [value.type for value in values])
        builder.asm(kind, _TILE_CODE, "=&r,=&r,=&r,r,r,r,0,1,2,~{memory},~{flags}", values, side_effect=True)
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
def _zip_rows(typingctx, lanes, target, target_at, source, source_at, apart):
    """Two rows' 32 values in turns, the first 16 columns' to one tile and the rest to the next."""
    signature = types.void(lanes, target, types.intp, source, types.intp, types.intp)

    def codegen(context, builder, signature, arguments):
        vector = ir.VectorType(context.get_value_type(signature.args[1].dtype), signature.args[0].count)
        to, source = emit.datas(context, builder, signature, arguments, (1, 3))
        rows = [builder.load(emit.at(builder, source, where, vector))
                for where in (arguments[4], builder.add(arguments[4], arguments[5]))]  # fmt: skip
        for row in rows:
            row.align = 2
        for i, value in enumerate(emit.zipped(builder, rows)):
            builder.store(value, emit.at(builder, to, arguments[2], vector, 512 * i)).align = 2
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True)
def _pack_a(lanes, target, at, source, start, row, col, valid, k):
    """32 rows as pairs of tiles, 16 rows of 32 steps each; steps after the last are 0."""
    for k0 in range(0, k, _SIDE):
        for r in range(valid):
            to = at + k0 * _SIDE + r * _SIDE
            if col == 1 and k0 + _SIDE <= k:
                copy_group(lanes, target, to, source, start + r * row + k0, _SIDE * 8)
            else:
                for i in range(_SIDE):
                    target[to + i] = peek(source, start + r * row + (k0 + i) * col) if k0 + i < k else 0


@numba.njit(cache=True)
def _pack_b(lanes, target, at, source, start, row, col, valid, k):
    """32 columns as pairs of tiles, 16 rows of 16 columns' pairs of steps each; steps after the last are 0."""
    for k0 in range(0, k, 2):
        to = at + k0 // _SIDE * _SIDE * _SIDE + k0 % _SIDE * 16
        if col == 1 and k0 + 2 <= k and valid == _SIDE:
            _zip_rows(lanes, target, to, source, start + k0 * row, row)
        else:
            for j in range(valid):
                for i in range(2):
                    value = peek(source, start + (k0 + i) * row + j * col) if k0 + i < k else 0
                    target[to + j // 16 * 512 + j % 16 * 2 + i] = value
    for k0 in range((k + 1) // 2 * 2, -(-k // _SIDE) * _SIDE, 2):
        to = at + k0 // _SIDE * _SIDE * _SIDE + k0 % _SIDE * 16
        for half in range(2):
            target[to + half * 512 : to + half * 512 + 32] = 0


@numba.njit(cache=True)
def _store(tile, sums, at, c, c_at, length, high, wide):
    """Four tiles of sums to a piece of C whose rows are `length` long, rounded to even where C is of bfloat16 (16-bit words)."""
    for i in range(high):
        for j0 in range(0, wide, 16):
            to, word_at = c_at + i * length + j0, at + (i // 16 * 2 + j0 // 16) * 256 + i % 16 * 16
            if c.itemsize == 4 and wide - j0 >= 16:
                copy_group(tile, c, to, sums, word_at, 0)
            else:
                for j in range(min(16, wide - j0)):
                    word = sums[word_at + j]
                    c[to + j] = (word + 0x7FFF + ((word >> 16) & 1)) >> 16 if c.itemsize == 2 else word


@numba.njit(cache=True)
def _pack(lanes, a, a_by, b, b_by, sizes, left, right, counters):
    """Packs what no other thread has taken, and waits for the others. All panels' parts of some steps lie together, so that
    those in use at a time do not fall onto the same sets of a cache."""
    (m, n, k), (a_row, a_col), (b_row, b_col) = sizes, a_by, b_by
    a_panels, b_panels, steps = -(-m // _SIDE), -(-n // _SIDE), -(-k // _SIDE)
    while True:
        piece = emit.take_number(counters, 0)
        if piece >= a_panels + b_panels:
            break
        for step in range(0, steps, _STEPS):
            deep = min(_STEPS, steps - step)
            some = min(deep * _SIDE, k - step * _SIDE)
            if piece < a_panels:
                first, at = piece * _SIDE, (step * a_panels + piece * deep) * 2 * _WORDS
                start = first * a_row + step * _SIDE * a_col
                _pack_a(lanes, left, at, a, start, a_row, a_col, min(_SIDE, m - first), some)
            else:
                first, at = (piece - a_panels) * _SIDE, (step * b_panels + (piece - a_panels) * deep) * 2 * _WORDS
                start = first * b_col + step * _SIDE * b_row
                _pack_b(lanes, right, at, b, start, b_row, b_col, min(_SIDE, n - first), some)
        emit.take_number(counters, 1)
    emit.wait_for(counters, 1, a_panels + b_panels)


@numba.njit(cache=True)
def _multiply(tile, shapes, left, right, sums, c, sizes, block, counters):
    """Takes blocks of C, of so many panels down and across, until there are no more."""
    (m, n, k), (high, wide) = sizes, block
    a_panels, b_panels, steps = -(-m // _SIDE), -(-n // _SIDE), -(-k // _SIDE)
    down, across = -(-a_panels // high), -(-b_panels // wide)
    _shape_tiles(shapes)
    while True:
        piece = emit.take_number(counters, 2)
        if piece >= down * across:
            break
        i0, j0 = piece % down * high, piece // down * wide
        i1, j1 = min(i0 + high, a_panels), min(j0 + wide, b_panels)
        for step in range(0, steps, _STEPS):
            deep = min(_STEPS, steps - step)
            for i in range(i0, i1):
                for j in range(j0, j1):
                    at = ((i - i0) * wide + j - j0) * 2 * _WORDS
                    left_at, right_at = (step * a_panels + i * deep) * _WORDS, (step * b_panels + j * deep) * _WORDS
                    _four_tiles(left, left_at, right, right_at, sums, at, deep, step)
        for i in range(i0, i1):
            for j in range(j0, j1):
                at = ((i - i0) * wide + j - j0) * 2 * _WORDS
                _store(
                    tile,
                    sums,
                    at,
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
    left_halves, right_halves = left.view(np.uint16), right.view(np.uint16)
    for thread in numba.prange(sums.shape[0]):
        _pack(lanes, a, a_by, b, b_by, sizes, left_halves, right_halves, counters)
        _multiply(tile, shapes, left, right, sums[thread], c, sizes, block, counters)


@kernel(rung=True)
def amx(problem: Matmul, a, b):
    """AMX: four tiles of sums take products of two tiles of A and two of B; both are packed as tiles once, and a block of
    C stays in the second-level cache until its sums are whole."""
    require(problem, "amx-tile", "amx-bf16")
    if problem.out not in ("bfloat16", "float32"):
        raise ValueError(f"the sums are float32 and are stored so or rounded to bfloat16, not to {problem.out}")
    if not tiles_allowed():
        raise ValueError("the kernel of this system does not let a process use AMX's tiles")
    m, n, k, threads = problem.m, problem.n, problem.k, numba.get_num_threads()
    a_panels, b_panels, steps = -(-m // _SIDE), -(-n // _SIDE), -(-k // _SIDE)
    high = wide = _BLOCK // _SIDE
    while high > 4 and -(-a_panels // high) * -(-b_panels // wide) < 4 * threads:
        high, wide = (high // 2, wide) if high >= wide else (high, wide // 2)
    word = np.dtype(np.uint32)
    left, right = (empty((panels * steps * _WORDS,), word, place) for panels, place in ((a_panels, 2), (b_panels, 6)))
    sums = empty((threads, high * wide * 2 * _WORDS), word)
    c = empty((m, n), numpy_dtype(problem.out), 5)
    raw = c.reshape(-1).view(np.uint16 if problem.out == "bfloat16" else np.uint32)
    views = [x.view(np.uint16) for x in operands(problem, (a, b))]
    a_by, b_by = (tuple(step // 2 for step in x.strides) for x in views)
    arguments = ((0,) * 32, (0,) * 16, tile_shapes(), origin(views[0]), a_by, origin(views[1]), b_by, raw, (m, n, k),
                 (high, wide), left, right, sums, np.zeros(3, np.int64))  # fmt: skip

    def run(keep=(a, b)):
        _product(*arguments)
        return c

    return run
