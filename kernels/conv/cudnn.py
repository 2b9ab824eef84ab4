"""Convolution through cuDNN's graphs: every plan that it offers is built and timed once, and the fastest is kept."""

import functools

import cudnn
import cupy
import numpy as np

from kernels.cuda import autotuner
from kernels.problems import Conv
from kernels.problems.arrays import DTYPES
from kernels.reference import conv as reference_conv
from kernels.registry import into, kernel

WORKSPACE_BYTES = 1 << 30
_ROUNDS, _CALLS = 3, 3
_HOPELESS = 8  # a plan whose first timed call takes so many times the best one's is timed no further
_NOTES = cudnn.numerical_note
_WINOGRAD = (_NOTES.WINOGRAD, _NOTES.WINOGRAD_TILE_4x4, _NOTES.WINOGRAD_TILE_6x6, _NOTES.WINOGRAD_TILE_13x13)
_TRANSFORMS = [*_WINOGRAD, _NOTES.FFT]
_TENSOR_CORES = [_NOTES.TENSOR_CORE, _NOTES.DOWN_CONVERT_INPUTS, _NOTES.REDUCED_PRECISION_REDUCTION]
_chosen: dict[tuple, tuple] = {}  # (problem, direct) -> what _choose gave for it


@functools.cache
def _handle():
    return cudnn.create_handle()


@functools.cache
def _workspace() -> cupy.ndarray:
    return cupy.empty(WORKSPACE_BYTES, np.uint8)


def _strides(n: int, c: int, h: int, w: int, layout: str) -> list[int]:
    return [c * h * w, 1, w * c, c] if layout == "NHWC" else [c * h * w, h * w, w, 1]


def graph_of(problem: Conv, direct: bool = False):
    """(the planned graph, its three tensors: two inputs and the output); `direct`: without Winograd and FFT.

    Raises: ValueError when cuDNN cannot do it.
    """
    kind, group = getattr(cudnn.data_type, DTYPES[problem.dtype].cudnn), problem.c_in // problem.groups
    wide = cudnn.data_type.DOUBLE if problem.dtype == "float64" else cudnn.data_type.FLOAT
    graph = cudnn.pygraph(handle=_handle(), io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide)
    dims = {
        "x": (problem.n, problem.c_in, problem.h, problem.w),
        "y": (problem.n, problem.c_out, problem.p, problem.q),
        "w": (problem.c_out, group, problem.r, problem.s),
    }

    def tensor(name):
        shape = dims[name]
        return graph.tensor(name=name, dim=list(shape), stride=_strides(*shape, problem.layout), data_type=kind)

    (top, bottom), (left, right) = problem.pads
    how = {"pre_padding": [top, left], "post_padding": [bottom, right], "compute_data_type": wide}
    how |= {"stride": [problem.stride] * 2, "dilation": [1, 1]}
    match problem.direction:
        case "fprop":
            first, second, made = tensor("x"), tensor("w"), "y"
            out = graph.conv_fprop(image=first, weight=second, **how)
        case "dgrad":
            first, second, made = tensor("y"), tensor("w"), "x"
            out = graph.conv_dgrad(loss=first, filter=second, **how)
        case _:
            first, second, made = tensor("x"), tensor("y"), "w"
            out = graph.conv_wgrad(image=first, loss=second, **how)
    shape = dims[made]
    out.set_output(True).set_dim(list(shape)).set_stride(_strides(*shape, problem.layout)).set_data_type(kind)
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
        if problem.math == "float32":
            graph.deselect_numeric_notes(_TENSOR_CORES)
        if direct:
            graph.deselect_numeric_notes(_TRANSFORMS)
        graph.deselect_workspace_greater_than(WORKSPACE_BYTES)
        graph.check_support()
    except Exception as error:  # cuDNN has a class of its own for every reason
        raise ValueError(f"cuDNN cannot do this: {' '.join(str(error).split())[:200]}") from error
    return graph, (first, second, out)


def _timed(graph, pack: dict, workspace: int, stream) -> list[tuple[float, int]]:
    """(least device milliseconds of a call, index) of all plans that build and run, fastest first."""

    def milliseconds(index: int, calls: int) -> float:
        def call():
            graph.execute_plan_at_index(pack, workspace, index, _handle())

        return autotuner.milliseconds(call, calls, stream) / calls

    found: dict[int, float] = {}
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
            if graph.get_workspace_size_plan_at_index(index) <= WORKSPACE_BYTES:
                milliseconds(index, 1)
                found[index] = milliseconds(index, 1)
        except Exception:  # a plan that does not build or run is none; the others are timed
            continue
    best = min(found.values(), default=0.0)
    for _ in range(_ROUNDS):
        for index in [i for i, least in found.items() if least <= _HOPELESS * best]:
            found[index] = min(found[index], milliseconds(index, _CALLS))
    return sorted((least, index) for index, least in found.items())


def _multiplies_elsewhere(graph, index: int) -> bool:
    """Whether the plan is a Winograd or an FFT form. If so, cuDNN no longer builds it once those forms are deselected.

    cuDNN describes an engine by its notes alone. By its maintainers (NVIDIA/cudnn-frontend issue 20) neither a number nor an
    algorithm's name tells, so no number is listed here. A plan without such a note is held to exact sums as any other.
    """
    graph.deselect_numeric_notes(_TRANSFORMS)
    try:
        graph.build_plan_at_index(index)
    except Exception:
        return True
    return False


def _choose(problem: Conv, operands: list[int], place: int, stream, direct: bool) -> tuple:
    """(graph, tensors, index of its fastest plan, name, plans timed, whether it is a Winograd or FFT form)."""
    graph, tensors = graph_of(problem, direct)
    plans = _timed(graph, dict(zip(tensors, operands, strict=True)), place, stream)
    if not plans:
        raise ValueError("cuDNN offers no plan for this that builds and runs")
    index = plans[0][1]
    name, transforms = graph.get_plan_name_at_index(index), _multiplies_elsewhere(graph, index)
    return graph, tensors, index, name, len(plans), transforms


@kernel
def plan(problem: Conv, a, b, direct: bool = False):
    """The fastest of all plans that cuDNN offers, timed here (implicit GEMM, direct, Winograd, FFT); float32 without TF32."""
    if not DTYPES[problem.dtype].cudnn:
        raise ValueError(f"cuDNN convolves no {problem.dtype} here")
    stream, workspace, nhwc = cupy.cuda.get_current_stream(), _workspace(), problem.layout == "NHWC"
    cudnn.set_stream(_handle(), stream.ptr)
    # cuDNN's channels-last filters are c_out, r, s, c_in: held so, as a library would
    if nhwc and problem.direction != "wgrad":
        b = cupy.ascontiguousarray(b.transpose(3, 0, 1, 2))
    turned = nhwc and problem.direction == "wgrad"
    shape = problem.out_shape
    out = cupy.empty((shape[3], *shape[:3]) if turned else shape, a.dtype)
    operands, place, asked = [a.data.ptr, b.data.ptr, out.data.ptr], workspace.data.ptr, (problem, direct)
    if asked not in _chosen:
        _chosen[asked] = _choose(problem, operands, place, stream, direct)
    graph, tensors, index, name, count, transforms = _chosen[asked]
    pack, given = dict(zip(tensors, operands, strict=True)), out.transpose(1, 2, 3, 0) if turned else out
    run = into(given, graph.execute_plan_at_index, pack, place, index, _handle(), keep=(a, b, workspace))
    run.notes = {"plan": name, "plans": str(count)}
    if transforms:
        run.notes["form"] = "Winograd or FFT"
        run.bound = reference_conv.transform_bound(problem)
    return run
