"""Convolution in CUDA C: plain loops, and implicit GEMM, which reads the images as a matrix that nobody writes, in float32 and by
tensor cores of every GPU since Ampere."""

from collections.abc import Callable

import cupy
import numpy as np

from kernels.conv import _implicit_gemm
from kernels.conv._implicit_gemm import THREADS, Product
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import ConvTensors, ConvWarps
from kernels.cuda.rows import Placed, in_place
from kernels.cuda.tiles import TilePlan
from kernels.problems import Conv
from kernels.problems.arrays import HALVES
from kernels.registry import TimedCall, kernel, timed_call

#: Products of a call from which `direct` would take most of a second.
_MOST_DIRECT = 1 << 37
#: Products of one output, a thread's loop, from which it would.
_MOST_OF_ONE_OUTPUT = 1 << 20
#: FLOPs from which a copy of images whose channels are no fours saves more than it takes.
_COPY_FLOPS = 1e9
#: Multiplications of each item from which it does.
_COPY_READS = 256


@kernel(rung=True)
def direct(problem: Conv, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """An output a thread, seven plain loops: every product reads its image and its filter anew, from the caches
    at best.

    a, b: the operands, shaped as problem.operand_shapes says, float32 on the GPU.
    """
    _implicit_gemm.refuse(problem, ("float32",), "direct")
    products = problem.flops // 2
    depth = problem.gemm[2]
    if products > _MOST_DIRECT or depth > _MOST_OF_ONE_OUTPUT:
        raise ValueError(f"{products:.3g} products, {depth} an output: this kernel would take seconds a call")
    (top, _), (left, _) = problem.pads
    sizes = [getattr(problem, side) for side in ("n", "h", "w", "c_in", "p", "q", "c_out", "r", "s", "stride")]
    loops = np.array([*sizes, top, left, problem.groups, problem.layout == "NHWC"], np.int32)
    out = cupy.empty(problem.out_shape, np.float32)
    compiled = loader.compile_kernel("conv/cuda", "direct")
    direction = problem.DIRECTIONS.index(problem.direction)
    arguments = (a, b, out, loops.view(f"V{loops.nbytes}"), np.int32(direction), np.int32(out.size))
    grid = (-(-out.size // THREADS),)
    return timed_call(compiled, grid, (THREADS,), arguments, result=out)


def _in_fours(channels: int, array: cupy.ndarray) -> int:
    """1 where the array is copied 16 bytes (four float32) at a time: every such piece lies in one pixel and begins on 16
    bytes.

    channels: of a pixel, as stored.
    """
    return int(channels % 4 == 0 and array.data.ptr % 16 == 0)


def _call(product: Product, plan: TilePlan[ConvWarps]) -> Callable[[], None]:
    """The call of conv/cuda.cu's implicit_gemm for a product by that plan."""
    macros = {
        "WGRAD": product.wgrad,
        "VECTOR_A": _in_fours(product.gather.c, product.a),
        "VECTOR_B": _in_fours(product.b.shape[-1], product.b),
        "VECTOR": _in_fours(product.gather.k, product.out),
    }
    scale = np.float32(1)
    return _implicit_gemm.implicit_gemm_call("conv/cuda", product, plan, scale, macros=macros)


@kernel
def implicit_gemm(problem: Conv, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """The columns of im2col are never written: pixels are copied from the images straight into tiles in shared
    memory, several stages ahead, as warp_tiled does it; tiles and parts of the sum are the fastest of several
    on this GPU.

    a, b: the operands, shaped as problem.operand_shapes says, float32 on the GPU.
    """
    _implicit_gemm.refuse(problem, ("float32",), "implicit_gemm")
    product = _implicit_gemm.matrix_product(problem, "warp_tiled", a, b)
    if product:
        return product
    out = cupy.empty(problem.out_shape, np.float32)

    def widen(images: cupy.ndarray) -> Placed:
        """The images (n x h x w x channels), copied into whole fours of channels where that saves more time than it takes."""
        is_multiplied_often = problem.flops >= max(_COPY_FLOPS, 2 * _COPY_READS * images.size)
        channels = images.shape[-1]
        padding_is_much = images is a and 5 * channels < 4 * _implicit_gemm.padded_channels(channels, 4)
        if is_multiplied_often and not padding_is_much:
            return _implicit_gemm.widened(images)
        return in_place(images)

    wgrad = problem.direction == "wgrad"
    gemms = _implicit_gemm.implicit_products(problem, a, b, out=out, widen=widen)
    forms = _implicit_gemm.fitting(conv_tiles.WARPS, wgrad)
    if wgrad and not _in_fours(gemms.products[0].gather.c, gemms.products[0].a):
        # A thread fetches single rows, at least one of every line.
        forms = [form for form in forms if form.tile_m <= form.threads]
    return _implicit_gemm.tuned("conv/cuda", gemms, forms, _call, out=out)


def _tensor_call(product: Product, plan: TilePlan[ConvTensors]) -> Callable[[], None]:
    return _implicit_gemm.implicit_gemm_call("conv/cuda_tensor", product, plan, macros=product.macros)


@kernel
def tensor_core(problem: Conv, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """mma.sync on pixels that cp.async gathers into tiles, ldmatrix brings them into registers; images whose
    channels are no eights are copied into eights first, each time.

    a, b: the operands, shaped as problem.operand_shapes says, float16 or bfloat16 (as 16-bit words) on the GPU.
    """
    _implicit_gemm.refuse(problem, HALVES, "tensor_core")
    loader.require_capability(80)
    product = _implicit_gemm.matrix_product(problem, "tensor_core", a, b)
    if product:
        return product
    out = cupy.empty(problem.out_shape, a.dtype)
    gemms = _implicit_gemm.implicit_products(problem, a, b, out=out)
    forms = _implicit_gemm.fitting(conv_tiles.TENSORS, problem.direction == "wgrad")
    return _implicit_gemm.tuned("conv/cuda_tensor", gemms, forms, _tensor_call, out=out)
