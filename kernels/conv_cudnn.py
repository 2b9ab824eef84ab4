"""Convolution through cuDNN's graphs: every plan that it offers is built and timed once, and the fastest is kept."""

import functools

import cudnn
import cupy
import numpy as np

from kernels.problems import Conv
from kernels.registry import kernel

WORKSPACE_BYTES = 1 << 30
_ROUNDS, _CALLS = 3, 3
_KINDS = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}
_NOTES = cudnn.numerical_note
_TRANSFORMS = (_NOTES.WINOGRAD, _NOTES.WINOGRAD_TILE_4x4, _NOTES.WINOGRAD_TILE_6x6, _NOTES.WINOGRAD_TILE_13x13, _NOTES.FFT)
_TENSOR_CORES = (_NOTES.TENSOR_CORE, _NOTES.DOWN_CONVERT_INPUTS, _NOTES.REDUCED_PRECISION_REDUCTION)
# Winograd and FFT multiply sums of inputs by fractions: their answers on whole numbers may be off by this share of the
# largest sum that could come up, c_in r s products of at most 4.
TRANSFORM_ERROR = 2e-3


@functools.cache
def _handle():
    made = cudnn.create_handle()
    cudnn.set_stream(handle=made, stream=cupy.cuda.get_current_stream().ptr)
    return made


@functools.cache
def _workspace() -> cupy.ndarray:
    return cupy.empty(WORKSPACE_BYTES, np.uint8)


def _strides(n: int, c: int, h: int, w: int, layout: str) -> list[int]:
    return [c * h * w, 1, w * c, c] if layout == "NHWC" else [c * h * w, h * w, w, 1]


def _graph(problem: Conv, transforms: bool):
    """(the planned graph, its three tensors: two inputs and the output).

    Raises: ValueError when cuDNN cannot do it.
    """
    kind, group = getattr(cudnn.data_type, _KINDS[problem.dtype]), problem.c_in // problem.groups
    wide = cudnn.data_type.DOUBLE if problem.dtype == "float64" else cudnn.data_type.FLOAT
    graph = cudnn.pygraph(handle=_handle(), io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide)
    dims = {"x": (problem.n, problem.c_in, problem.h, problem.w), "y": (problem.n, problem.c_out, problem.p, problem.q),
            "w": (problem.c_out, group, problem.r, problem.s)}  # fmt: skip

    def tensor(name):
        shape = dims[name]
        return graph.tensor(name=name, dim=list(shape), stride=_strides(*shape, problem.layout), data_type=kind)

    (top, bottom), (left, right) = problem.pads
    how = {"pre_padding": [top, left], "post_padding": [bottom, right], "stride": [problem.stride] * 2, "dilation": [1, 1],
           "compute_data_type": wide}  # fmt: skip
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
            graph.deselect_numeric_notes(list(_TENSOR_CORES))
        if not transforms:
            graph.deselect_numeric_notes(list(_TRANSFORMS))
        graph.deselect_workspace_greater_than(WORKSPACE_BYTES)
        graph.check_support()
    except Exception as error:  # cuDNN has a class of its own for every reason
        raise ValueError(f"cuDNN cannot do this: {' '.join(str(error).split())[:200]}") from error
    return graph, (first, second, out)


def _plans(graph, pack, workspace, stream) -> list[tuple[float, int, str]]:
    """(least device milliseconds of a call, index, name) of every plan that builds and runs, fastest first."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    found = []
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
            if graph.get_workspace_size_plan_at_index(index) > WORKSPACE_BYTES:
                continue
            graph.execute_plan_at_index(pack, workspace, index, _handle())
            stream.synchronize()
        except Exception:  # noqa: S112  a plan that does not build or run is none; the others are timed
            continue
        least = float("inf")
        for _ in range(_ROUNDS):
            begin.record(stream)
            for _ in range(_CALLS):
                graph.execute_plan_at_index(pack, workspace, index, _handle())
            end.record(stream)
            end.synchronize()
            least = min(least, cupy.cuda.get_elapsed_time(begin, end) / _CALLS)
        found.append((least, index, graph.get_plan_name_at_index(index)))
    return sorted(found)


_chosen: dict[tuple, tuple] = {}


def _bound(problem: Conv, a, b, transforms: bool):
    if problem.dtype not in _KINDS:
        raise ValueError(f"cuDNN convolves no {problem.dtype} here")
    key = (problem, transforms)
    stream, workspace = cupy.cuda.get_current_stream(), _workspace()
    if key not in _chosen:
        _chosen[key] = (*_graph(problem, transforms), [])
    graph, (first, second, third), plans = _chosen[key]
    nhwc = problem.layout == "NHWC"
    if nhwc and problem.direction != "wgrad":  # cuDNN's channels-last filters are c_out, r, s, c_in: held so, as a library would
        b = cupy.ascontiguousarray(b.transpose(3, 0, 1, 2))
    shape = problem.out_shape
    if nhwc and problem.direction == "wgrad":
        shape = (shape[3], *shape[:3])
    out = cupy.empty(shape, a.dtype)
    pack = {first: a.data.ptr, second: b.data.ptr, third: out.data.ptr}
    place = workspace.data.ptr
    if not plans:
        plans += _plans(graph, pack, place, stream)
    if transforms:
        plans = [plan for plan in plans if _transforms(graph, plan[1])]
    if not plans:
        raise ValueError("cuDNN offers no such plan for this problem")
    _, index, name = plans[0]
    given = out.transpose(1, 2, 3, 0) if nhwc and problem.direction == "wgrad" else out

    def run(keep=(a, b, workspace)):  # the call holds raw addresses, so their owners are held here
        graph.execute_plan_at_index(pack, place, index, _handle())
        return given

    run.notes = {"plan": name, "plans": str(len(plans))}
    return run


def _transforms(graph, index: int) -> bool:
    """Whether the plan multiplies in another space than the images'."""
    return bool(set(graph.get_numerical_notes_for_plan_at_index(index)) & set(_TRANSFORMS))


@kernel
def plan(problem: Conv, a, b):
    """The fastest of cuDNN's plans that multiply the images themselves: implicit GEMM and direct forms; float32 without TF32."""
    return _bound(problem, a, b, False)


@kernel
def transformed(problem: Conv, a, b):
    """The fastest of cuDNN's Winograd and FFT plans: fewer multiplications, and answers that are close but not exact."""
    if problem.direction not in ("fprop", "dgrad", "wgrad") or problem.stride != 1 or min(problem.r, problem.s) < 2:
        raise ValueError("Winograd and FFT forms want filters of at least 2 x 2 and stride 1")
    run = _bound(problem, a, b, True)
    run.bound = TRANSFORM_ERROR * 4 * problem.gemm[2]
    return run
