"""Convolutions, forward and backward, a module a backend. Imports problems, reference and registry, and what operations share."""

# The ladder, the simplest first: the ideas of kernels whose first stored rows do not tell them. A new kernel's is its docstring.
IDEAS = {
    "numba/direct": (
        "Seven loops in the order of the definition, the images (the filters, for wgrad) shared out over the "
        "threads: each product reads its two factors anew, the filter's a row apart."
    ),
    "numba/blocked": (
        "Tiles of some pixels by whole vectors of filters stay in registers while windows are read where the "
        "images lie, borders from a copy, and the filters from panels in the second-level cache."
    ),
    "cuda/direct": (
        "An output a thread, seven plain loops: every product reads its image and its filter anew, from the "
        "caches at best."
    ),
    "cuda/implicit_gemm": (
        "The columns of im2col are never written: pixels are copied from the images straight into tiles in shared "
        "memory, several stages ahead, as warp_tiled does it; tiles and parts of the sum are the fastest of "
        "several on this GPU."
    ),
    "cuda/tensor_core": (
        "mma.sync on pixels that cp.async gathers into tiles, ldmatrix brings them into registers; images whose "
        "channels are no eights are copied into eights first, each time."
    ),
    "cuda/wgmma": (
        "TMA in im2col mode walks the pixels and fills a ring of tiles, warpgroups multiply them by wgmma while "
        "it runs ahead; a step takes whole lines of channels, zeros where an image has fewer; blocks stay on "
        "their multiprocessors."
    ),
}
# Those among the kernels here that are rungs, for stored rows that do not tell it. A new one says @kernel(rung=True) alone.
RUNGS = ("numba/direct", "cuda/direct", "tensorflow/graph")
