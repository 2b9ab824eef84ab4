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
from kernels.registry import TimedCall, kernel, timed_call
from kernels.simd import emit
from kernels.simd.amx import ROW_BYTES, require, tile_shapes, tiles_allowed
from kernels.simd.packing import copy_group, origin, peek, room

#: Rows, and columns, of C in four tiles of sums; also the k of one instruction, which is called a step.
_SIDE = 32
#: bfloat16 values in a tile of A or of B.
_TILE = 16 * _SIDE
#: 32-bit words in two adjacent tiles of A, or of B.
_WORDS = 2 * 16 * 16
#: Steps at a time: their 32 KiB of B stay in the first-level cache, while loads of A bypass it.
_FEW = 16
#: Steps in a block of A.
_STEPS = 64
#: Panels of 32 rows in a block of A: 1 MiB, which stays in the second-level cache.
_HIGH = 8
#: Most panels of B whose sums are stored for further steps: 2 MiB per thread.
_WIDE = 64
#: Panels of B that are packed together, so that memory is read along B's rows.
_TOGETHER = 4
#: Consecutive k of a row of A that are packed together, for the same reason.
_RUN = 8 * _SIDE
#: How many rows ahead packing prefetches B.
_AHEAD_ROWS = 16
#: Bytes of B prefetched per step: all of the next _FEW steps during _HIGH panels of A.
_AHEAD = 4 * _WORDS // _HIGH
#: Blocks of C a thread gets, about, so that a slower thread can do fewer.
_BLOCKS_A_THREAD = 4
#: Fewest panels down or across to which a block is cut for that.
_FEWEST_PANELS = 4

# Counters that the threads share.

#: Groups of panels of B that threads have taken to pack.
_PACK_TAKEN = 0
#: Groups that are packed.
_PACKED = 1
#: Blocks of C that threads have taken.
_BLOCKS_TAKEN = 2

# $0 steps left, $1 A, $2 B, $3 B to prefetch, $4 sums to prefetch, $5 sums, $6 whether to add, $7 bytes of a tile's row.
# tileloaddt1 loads A but leaves B in the first-level cache. B is prefetched into the second-level cache (prefetcht1), the next
# sums into the first-level cache (prefetcht0), all of them within _FEW steps.
_TILE_CODE = f"""
leaq 4096($5), $4
testq $6, $6
jnz 2f
# begin with zeros
tilezero %tmm0
tilezero %tmm1
tilezero %tmm2
tilezero %tmm3
jmp 1f
# or with the sums so far
2:
tileloadd 0($5,$7,1), %tmm0
tileloadd 1024($5,$7,1), %tmm1
tileloadd 2048($5,$7,1), %tmm2
tileloadd 3072($5,$7,1), %tmm3
.p2align 6
# a step: load two tiles of A and two of B
1:
tileloaddt1 ($1,$7,1), %tmm4
tileloadd ($2,$7,1), %tmm6
tileloadd 1024($2,$7,1), %tmm7
tileloaddt1 1024($1,$7,1), %tmm5
# multiply each with each
tdpbf16ps %tmm6, %tmm4, %tmm0
prefetcht1 0($3)
prefetcht0 0($4)
tdpbf16ps %tmm7, %tmm4, %tmm1
prefetcht1 64($3)
prefetcht0 64($4)
tdpbf16ps %tmm6, %tmm5, %tmm2
prefetcht1 128($3)
prefetcht0 128($4)
tdpbf16ps %tmm7, %tmm5, %tmm3
prefetcht1 192($3)
prefetcht0 192($4)
addq $$2048, $1
addq $$2048, $2
addq $${_AHEAD}, $3
addq $${4096 // _FEW}, $4
decq $0
jnz 1b
# store the sums
tilestored %tmm0, 0($5,$7,1)
tilestored %tmm1, 1024($5,$7,1)
tilestored %tmm2, 2048($5,$7,1)
tilestored %tmm3, 3072($5,$7,1)
"""


@intrinsic
def _four_tiles(typingctx, a, a_at, b, b_at, sums, sums_at, steps, add, ahead):
    """A Numba intrinsic: multiplies two tiles of A by two of B in each of `steps` steps and adds the products to four tiles of
    sums, which start at 0 if `add` is 0. Each step prefetches _AHEAD bytes of B, from word `ahead` on, and a part of the sums
    that follow these.

    a, b, sums: arrays of 32-bit words, tile after tile; a_at, b_at, sums_at: their first words used. No compiler uses tile
    registers by itself, so their configuration stays valid from one piece of assembly to the next.
    """
    signature = types.void(a, types.intp, b, types.intp, sums, *[types.intp] * 4)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits _TILE_CODE with its operands; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, a_at, _, b_at, _, sums_at, steps, add, ahead = tuple(arguments)
        a, b, sums = emit.data_pointers(context, builder, signature, arguments, places=(0, 2, 4))
        a_tiles = builder.gep(a, [a_at])
        b_tiles = builder.gep(b, [b_at])
        sum_tiles = builder.gep(sums, [sums_at])
        b_ahead = builder.gep(b, [ahead])
        only_read = [sum_tiles, add, emit.INDEX(ROW_BYTES)]  # $5 to $7 of _TILE_CODE
        changed = [steps, a_tiles, b_tiles, b_ahead]  # $0 to $3; $4, a pointer too, begins as anything
        values = [*only_read, *changed]
        outputs = ir.LiteralStructType([value.type for value in [*changed, b_ahead]])
        kind = ir.FunctionType(outputs, [value.type for value in values])
        constraints = "=&r,=&r,=&r,=&r,=&r,r,r,r,0,1,2,3,~{memory},~{flags}"
        builder.asm(kind, _TILE_CODE, constraints, values, side_effect=True)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _shape_tiles(typingctx, shapes):
    """A Numba intrinsic: configures this thread's tile registers by `shapes`, the 64 bytes that LDTILECFG reads."""

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        pointers = emit.data_pointers(context, builder, signature, arguments, places=(0,))
        kind = ir.FunctionType(ir.VoidType(), [pointers[0].type])
        builder.asm(kind, "ldtilecfg ($0)", "r,~{memory}", pointers, side_effect=True)
        return context.get_dummy_value()

    return types.void(shapes), codegen


@intrinsic
def _release_tiles(typingctx):
    """A Numba intrinsic: gives this thread's tile registers back."""

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.asm(kind, "tilerelease", "~{memory}", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _zip_rows(typingctx, lanes, target, target_at, source, source_at, row_step, ahead):
    """A Numba intrinsic: interleaves two rows of 32 values, `row_step` from each other: the pairs of the first 16 columns go to
    one tile, the others to the next. Prefetches the source `ahead` elements further on, and the same lines of the next two
    tiles for writing."""
    signature = types.void(lanes, target, types.intp, source, *[types.intp] * 3)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits the loads, the interleaving and the stores; Numba calls this with the LLVM values of the intrinsic's
        arguments."""
        _, _, target_at, _, first_row, row_step, ahead = tuple(arguments)
        vector, _ = emit.vector_of(context, signature, array=1)
        target, source = emit.data_pointers(context, builder, signature, arguments, places=(1, 3))
        second_row = builder.add(first_row, row_step)
        rows = []
        for row in (first_row, second_row):
            rows.append(builder.load(emit.vector_pointer(builder, source, row, vector), align=2))
            emit.prefetch(builder, emit.vector_pointer(builder, source, builder.add(row, ahead), vector))
        for i, value in enumerate(emit.zipped(builder, rows)):
            next_tiles = emit.vector_pointer(builder, target, target_at, vector, ahead=_TILE * i + 2 * _TILE)
            emit.prefetch(builder, next_tiles, write=True)
            builder.store(value, emit.vector_pointer(builder, target, target_at, vector, ahead=_TILE * i), 2)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True)
def _pack_a(
    lanes: tuple, target: np.ndarray, at: int, source: np.ndarray, start: int, row: int, col: int, valid: int, k: int
) -> None:
    """Packs `valid` rows of A, at most 32, as pairs of tiles, each 16 rows by 32 of k, from target[at] on; beyond the last of
    `k` are zeros. Compiled by Numba.

    source[start]: the first value; row, col: elements from row to row and from k to k. lanes: a tuple as long as a vector.
    """
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
def _pack_b(
    lanes: tuple,
    target: np.ndarray,
    at: int,
    panel_step: int,
    source: np.ndarray,
    start: int,
    row: int,
    col: int,
    valid: int,
    k: int,
) -> None:
    """Packs `valid` columns of B in panels of 32, `panel_step` elements from each other, as pairs of tiles, from target[at]
    on. Row i of a tile has the values of k = 2 i and 2 i + 1 of 16 columns, side by side for each column; beyond the last of
    `k` are zeros. Compiled by Numba.

    source[start]: the first value; row, col: elements from k to k and from column to column. lanes: a tuple as long as a
    vector.
    """
    for k0 in range(0, -(-k // _SIDE) * _SIDE, 2):
        for first in range(0, valid, _SIDE):
            to = at + first // _SIDE * panel_step + k0 // _SIDE * _SIDE * _SIDE + k0 % _SIDE * 16
            if col == 1 and k0 + 2 <= k and first + _SIDE <= valid:
                _zip_rows(lanes, target, to, source, start + k0 * row + first, row, _AHEAD_ROWS * row)
            else:
                for j in range(min(_SIDE, valid - first)):
                    for i in range(2):
                        value = peek(source, start + (k0 + i) * row + (first + j) * col) if k0 + i < k else 0
                        target[to + j // 16 * _TILE + j % 16 * 2 + i] = value


@intrinsic
def _stream(typingctx, group, target, target_at, source, source_at):
    """A Numba intrinsic: copies as many values as `group` is long, a cache line, by a non-temporal store: the line need not be
    read first.

    The thread's next atomic operation, such as `take_number`, orders the store before what follows.
    """
    signature = types.void(group, target, types.intp, source, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits a load and a non-temporal store; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, _, target_at, _, source_at = tuple(arguments)
        vector, _ = emit.vector_of(context, signature, array=1)
        target, source = emit.data_pointers(context, builder, signature, arguments, places=(1, 3))
        loaded = builder.load(emit.vector_pointer(builder, source, source_at, vector), align=64)
        emit.store_past_caches(builder, loaded, emit.vector_pointer(builder, target, target_at, vector), 64)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True)
def _store(tile: tuple, sums: np.ndarray, at: int, c: np.ndarray, c_at: int, length: int, high: int, wide: int) -> None:
    """Stores four tiles of sums, from word sums[at] on, as high x wide of C from c[c_at] on, whose rows are `length` long.
    Words of 16 bits are bfloat16, rounded to even. Compiled by Numba; tile: a tuple as long as a row of a tile."""
    for i in range(high):
        for j0 in range(0, wide, 16):
            to = c_at + i * length + j0
            word_at = at + (i // 16 * 2 + j0 // 16) * 256 + i % 16 * 16
            if c.itemsize == 4 and wide - j0 >= 16 and length % 16 == 0:
                _stream(tile, c, to, sums, word_at)
            elif c.itemsize == 4 and wide - j0 >= 16:
                copy_group(tile, c, to, sums, word_at, 0)
            else:
                for j in range(min(16, wide - j0)):
                    word = sums[word_at + j]
                    c[to + j] = (word + 0x7FFF + ((word >> 16) & 1)) >> 16 if c.itemsize == 2 else word


@numba.njit(cache=True)
def _pack(lanes: tuple, b: np.ndarray, b_by: tuple, sizes: tuple, right: np.ndarray, counters: np.ndarray) -> None:
    """Packs panels of B, as long as there are any that no thread has taken, and waits until all are packed. In `right` all
    panels' first _STEPS steps come first, then their next ones, so that the data to prefetch follows the data in use.
    Compiled by Numba.

    lanes: a tuple as long as a vector. b: flat, from B's first value; b_by: elements from k to k and from column to column.
    sizes: (m, n, k). counters: numbers that the threads share.
    """
    n = sizes[1]
    k = sizes[2]
    b_row, b_col = b_by
    b_panels = -(-n // _SIDE)
    steps = -(-k // _SIDE)
    groups = -(-b_panels // _TOGETHER)
    while True:
        piece = emit.take_number(counters, _PACK_TAKEN)
        if piece >= groups:
            break
        first = piece * _TOGETHER
        columns = min(_TOGETHER * _SIDE, n - first * _SIDE)
        for step in range(0, steps, _STEPS):
            panel_step = min(_STEPS, steps - step) * 2 * _WORDS
            at = step * b_panels * 2 * _WORDS + first * panel_step
            start = first * _SIDE * b_col + step * _SIDE * b_row
            deep = min(_STEPS * _SIDE, k - step * _SIDE)
            _pack_b(lanes, right, at, panel_step, b, start, b_row, b_col, columns, deep)
        emit.take_number(counters, _PACKED)
    emit.wait_for(counters, _PACKED, groups)


@numba.njit(cache=True)
def _pack_block(
    lanes: tuple,
    a: np.ndarray,
    a_by: tuple,
    left: np.ndarray,
    first_panel: int,
    end_panel: int,
    sizes: tuple,
    step: int,
    deep: int,
) -> None:
    """Packs `deep` steps, from number `step` on, of A's panels from first_panel to end_panel: _FEW steps of all panels, then
    the next ones, as they are read. Compiled by Numba.

    lanes: a tuple as long as a vector. a: flat, from A's first value; a_by: elements from row to row and from k to k. left:
    where the panels go. sizes: (m, n, k).
    """
    m = sizes[0]
    k = sizes[2]
    a_row, a_col = a_by
    panels = end_panel - first_panel
    for first_step in range(0, deep, _FEW):
        few = min(_FEW, deep - first_step)
        first_k = (step + first_step) * _SIDE
        for panel in range(first_panel, end_panel):
            at = (first_step * panels + (panel - first_panel) * few) * 2 * _WORDS
            start = panel * _SIDE * a_row + first_k * a_col
            rows = min(_SIDE, m - panel * _SIDE)
            _pack_a(lanes, left, at, a, start, a_row, a_col, rows, min(few * _SIDE, k - first_k))


@numba.njit(cache=True)
def _multiply(
    lanes: tuple,
    tile: tuple,
    shapes: np.ndarray,
    a: np.ndarray,
    a_by: tuple,
    left: np.ndarray,
    right: np.ndarray,
    sums: np.ndarray,
    c: np.ndarray,
    sizes: tuple,
    block: tuple,
    counters: np.ndarray,
) -> None:
    """Computes blocks of C, of `block` = (down, across) panels each, until no thread has any left to take. Compiled by Numba.

    lanes, tile: tuples as long as a vector of bfloat16 and of float32. shapes: what configures the tile registers. a: flat,
    from A's first value; a_by: elements from row to row and from k to k. left, sums: the thread's room for packed A and for
    sums. right: packed B. c: flat. sizes: (m, n, k). counters: numbers that the threads share.
    """
    m = sizes[0]
    n = sizes[1]
    k = sizes[2]
    high, wide = block
    a_panels = -(-m // _SIDE)
    b_panels = -(-n // _SIDE)
    steps = -(-k // _SIDE)
    down = -(-a_panels // high)
    across = -(-b_panels // wide)
    halves = left.view(np.uint16)
    packed = -1
    _shape_tiles(shapes)
    while True:
        piece = emit.take_number(counters, _BLOCKS_TAKEN)
        if piece >= down * across:
            break
        a_first = piece // across * high
        a_end = min(a_first + high, a_panels)
        b_first = piece % across * wide
        b_end = min(b_first + wide, b_panels)
        for step in range(0, steps, _STEPS):
            deep = min(_STEPS, steps - step)
            # Pack: a block of A, unless the piece before had the same.
            if deep < steps or packed != a_first:
                _pack_block(lanes, a, a_by, halves, a_first, a_end, sizes, step, deep)
                packed = a_first
            for b_panel in range(b_first, b_end):
                # if these steps are all of k, the sums are stored at once and their memory is used again
                column = 0 if deep == steps else (b_panel - b_first) * high
                panel_at = (step * b_panels + b_panel * deep) * _WORDS
                # Multiply: a few steps of B's panel meet all panels of A's block.
                for first_step in range(0, deep, _FEW):
                    few = min(_FEW, deep - first_step)
                    for i in range(a_end - a_first):
                        a_at = (first_step * (a_end - a_first) + i * few) * _WORDS
                        b_at = panel_at + first_step * _WORDS
                        sums_at = (column + i) * 2 * _WORDS
                        ahead = panel_at + (first_step + few) * _WORDS + i * few * (_AHEAD // 4)
                        _four_tiles(left, a_at, right, b_at, sums, sums_at, few, step + first_step, ahead)
                # Store: after the last step, the rows and columns that C has.
                if step + deep == steps:
                    for a_panel in range(a_first, a_end):
                        sums_at = (column + a_panel - a_first) * 2 * _WORDS
                        c_at = a_panel * _SIDE * n + b_panel * _SIDE
                        rows = min(_SIDE, m - a_panel * _SIDE)
                        columns = min(_SIDE, n - b_panel * _SIDE)
                        _store(tile, sums, sums_at, c, c_at, n, rows, columns)
    _release_tiles()


@numba.njit(cache=True, parallel=True)
def _product(
    lanes: tuple,
    tile: tuple,
    shapes: np.ndarray,
    a: np.ndarray,
    a_by: tuple,
    b: np.ndarray,
    b_by: tuple,
    c: np.ndarray,
    sizes: tuple,
    block: tuple,
    left: np.ndarray,
    right: np.ndarray,
    sums: np.ndarray,
    counters: np.ndarray,
) -> None:
    """C = A B: all threads pack B together, then each takes blocks of C.

    lanes, tile: tuples as long as a vector of bfloat16 and of float32.
    shapes: the 64 bytes that configure the tile registers.
    a, b: flat arrays of 16-bit words; a_by, b_by: elements from row to row and from column to column.
    c: flat, of 16-bit or 32-bit words.
    sizes: (m, n, k). block: (down, across), a block of C in panels of 32.
    left, right, sums: room for packed A (a row for each thread), for packed B, and for sums (a row for each thread).
    counters: three numbers that the threads share.
    """
    counters[:] = 0
    halves = right.view(np.uint16)
    for thread in numba.prange(sums.shape[0]):
        _pack(lanes, b, b_by, sizes, halves, counters)
        _multiply(lanes, tile, shapes, a, a_by, left[thread], right, sums[thread], c, sizes, block, counters)


@kernel(rung=True)
def amx(problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """AMX: four tiles of sums take products of two tiles of A and two of B; a packed block of A stays in the
    second-level cache, and a piece of a panel of B, the next one asked for early, in the first-level one.

    a: m x k, b: k x n (as problem.layout stores them), bfloat16; C is bfloat16 or float32.
    """
    require(problem, "amx-tile", "amx-bf16")
    if problem.out not in ("bfloat16", "float32"):
        raise ValueError(f"the sums are float32 and are stored so or rounded to bfloat16, not to {problem.out}")
    if not tiles_allowed():
        raise ValueError("the kernel of this system does not let a process use AMX's tiles")
    threads = numba.get_num_threads()
    b_panels = -(-problem.n // _SIDE)
    steps = -(-problem.k // _SIDE)
    a_panels = -(-problem.m // _SIDE)
    high, wide = _block_panels(a_panels, b_panels, steps, threads=threads)
    columns_of_sums = wide if steps > _STEPS else 1
    left, right, sums = room(
        np.dtype(np.uint32),
        (threads, high * min(steps, _STEPS) * _WORDS),
        (b_panels * steps * _WORDS,),
        (threads, high * columns_of_sums * 2 * _WORDS),
    )
    c = empty((problem.m, problem.n), numpy_dtype(problem.out), place=5)
    raw = c.reshape(-1).view(np.uint16 if problem.out == "bfloat16" else np.uint32)
    a_bits, b_bits = operands(problem, (a.view(np.uint16), b.view(np.uint16)))
    bfloat16_lanes = (0,) * 32  # of a vector of 64 bytes: Numba compiles for a tuple's length
    float32_lanes = (0,) * 16
    arguments = (
        bfloat16_lanes,
        float32_lanes,
        tile_shapes(),
        origin(a_bits),
        _element_strides(a_bits),
        origin(b_bits),
        _element_strides(b_bits),
        raw,
        (problem.m, problem.n, problem.k),
        (high, wide),
        left,
        right,
        sums,
        np.zeros(3, np.int64),
    )
    return timed_call(_product, *arguments, result=c, keep=(a, b))


def _block_panels(a_panels: int, b_panels: int, steps: int, *, threads: int) -> tuple[int, int]:
    """Panels of a block of C, (down, across): as large as the caches allow, halved while threads would get too few blocks.

    a_panels, b_panels: panels of 32 rows of A and of 32 columns of B. steps: of 32 in k.
    """
    high = _HIGH
    wide = b_panels if steps <= _STEPS else min(b_panels, _WIDE)
    if threads == 1:
        return high, wide
    while -(-a_panels // high) * -(-b_panels // wide) < _BLOCKS_A_THREAD * threads:
        if high > _FEWEST_PANELS:
            high //= 2
        elif wide > _FEWEST_PANELS:
            wide = -(-wide // 2)
        else:
            break
    return high, wide


def _element_strides(array: np.ndarray) -> tuple[int, ...]:
    """Elements from row to row and from column to column."""
    return tuple(stride // array.itemsize for stride in array.strides)
