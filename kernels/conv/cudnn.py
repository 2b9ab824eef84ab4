"""Convolution through cuDNN's graphs: all plans of all its heuristics are built and timed, and the fastest is kept.

search graph    kinds of plans are excluded from it; what it still builds is timed behind a held stream
call graph      lists the same plans, nothing is excluded; the fastest is called through it
"""

# There are two graphs because cudnn-frontend 1.28 compares every plan of a graph with every excluded kind on each call, in
# Python. A choice is stored on disk for its GPU, cuDNN version and problem, in crossover/tiles.json of the user's cache folder;
# where that file is deleted all plans are timed anew.

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import cudnn
import cupy
import msgspec
import numpy as np

from kernels.cuda import autotuner
from kernels.problems import Conv
from kernels.problems.arrays import DTYPES, numpy_dtype
from kernels.reference.conv import check, transform_bound
from kernels.registry import TimedCall, kernel, timed_call

#: A plan that needs more bytes is not built.
WORKSPACE_BYTES = 4 << 30
#: Seconds after which a search leaves out the plans that cuDNN ranks last.
SEARCH_S = 20.0
#: A plan whose first timed call takes so many times the fastest plan's is timed no further.
_HOPELESS = 8
#: Seconds of the host in such a first call.
_HOST_S = 2e-4
#: Seconds of a first plan's calls ahead of all timings: a GPU at rest has lower clocks.
_WARM_S = 0.05
#: Plans so near to the fastest are timed twice, the second time in the other order.
_AGAIN = 2.0
#: Plans so near to the fastest are timed again in rounds.
_CLOSE = 1.3
#: Most plans that are.
_FINALISTS = 6
#: Values that tell whether an array holds whole numbers.
_FIRST_VALUES = 1024
#: Seconds of a call from which it is timed under load: the host starts one in some 40 µs, so it does not slow it down.
_LONG_S = 100e-6
_NOTES = cudnn.numerical_note
_WINOGRAD = (_NOTES.WINOGRAD, _NOTES.WINOGRAD_TILE_4x4, _NOTES.WINOGRAD_TILE_6x6, _NOTES.WINOGRAD_TILE_13x13)
_TRANSFORMS = [*_WINOGRAD, _NOTES.FFT]
_TENSOR_CORES = [_NOTES.TENSOR_CORE, _NOTES.DOWN_CONVERT_INPUTS, _NOTES.REDUCED_PRECISION_REDUCTION]


class TimedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that was built and timed."""

    #: Its place in the search graph's list.
    index: int
    #: Device seconds of a call.
    seconds: float


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that a problem is computed by."""

    #: Its place in the search graph's list.
    index: int
    #: cuDNN's name of it: the engine and its settings.
    name: str
    #: Whether it is a Winograd or an FFT form.
    transforms: bool
    #: The number of plans that were built and timed.
    timed: int
    #: The number of faster plans whose sums were wrong.
    inexact: int
    #: The number of plans that cuDNN listed.
    listed: int


class Search(msgspec.Struct, kw_only=True):
    """The plans of a problem that were built and timed, the fastest first."""

    #: The graph that builds them.
    graph: Any
    plans: list[TimedPlan]


class Calls(msgspec.Struct, kw_only=True):
    """A graph without excluded kinds, through which a problem's plans are called."""

    graph: Any
    #: Its two inputs and its output.
    tensors: tuple
    #: The places of the plans that were built in it.
    built: set[int]


_searches: dict[Conv, Search] = {}
_choices: dict[tuple[Conv, bool], Choice] = {}
_calls: dict[Conv, Calls] = {}
#: Device memory for the hungriest plan so far.
_workspace: cupy.ndarray | None = None


@functools.cache
def _handle():
    return cudnn.create_handle()


def workspace(nbytes: int) -> cupy.ndarray:
    """Device memory of at least `nbytes`, shared by all plans."""
    global _workspace
    if _workspace is None or _workspace.nbytes < nbytes:
        _workspace = cupy.empty(max(nbytes, 1), np.uint8)
    return _workspace


def _strides(n: int, c: int, h: int, w: int, layout: str) -> list[int]:
    return [c * h * w, 1, w * c, c] if layout == "NHWC" else [c * h * w, h * w, w, 1]


def listing(problem: Conv) -> tuple[Any, tuple]:
    """(a cuDNN graph with all execution plans that its heuristics list, the graph's three tensors: two inputs and the
    output).

    Raises: ValueError when cuDNN cannot do it.
    """
    kind = getattr(cudnn.data_type, DTYPES[problem.dtype].cudnn)
    wide = cudnn.data_type.DOUBLE if problem.dtype == "float64" else cudnn.data_type.FLOAT
    graph = cudnn.pygraph(handle=_handle(), io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide)
    dims = {
        "x": (problem.n, problem.c_in, problem.h, problem.w),
        "y": (problem.n, problem.c_out, problem.p, problem.q),
        "w": (problem.c_out, problem.c_in // problem.groups, problem.r, problem.s),
    }

    def tensor(name: str) -> Any:
        shape = dims[name]
        return graph.tensor(name=name, dim=list(shape), stride=_strides(*shape, problem.layout), data_type=kind)

    (top, bottom), (left, right) = problem.pads
    settings = {"pre_padding": [top, left], "post_padding": [bottom, right], "compute_data_type": wide}
    settings |= {"stride": [problem.stride] * 2, "dilation": [1, 1]}
    match problem.direction:
        case "fprop":
            first = tensor("x")
            second = tensor("w")
            out = graph.conv_fprop(image=first, weight=second, **settings)
            shape = dims["y"]
        case "dgrad":
            first = tensor("y")
            second = tensor("w")
            out = graph.conv_dgrad(loss=first, filter=second, **settings)
            shape = dims["x"]
        case _:
            first = tensor("x")
            second = tensor("y")
            out = graph.conv_wgrad(image=first, loss=second, **settings)
            shape = dims["w"]
    out.set_output(True).set_dim(list(shape)).set_stride(_strides(*shape, problem.layout)).set_data_type(kind)
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
        graph.check_support()
    except Exception as error:  # cuDNN has a class of its own for every reason
        raise ValueError(f"cuDNN cannot do this: {' '.join(str(error).split())[:200]}") from error
    return graph, (first, second, out)


def search_graph(problem: Conv) -> tuple[Any, tuple]:
    """(a graph that builds only plans in the problem's arithmetic, its three tensors); for float32 those on tensor cores are
    excluded.

    Raises: ValueError when cuDNN cannot do it.
    """
    graph, tensors = listing(problem)
    if problem.math == "float32":
        graph.deselect_numeric_notes(_TENSOR_CORES)
    return graph, tensors


def call_graph(problem: Conv) -> Calls:
    """The graph that calls the problem's plans, one in a process."""
    if problem not in _calls:
        graph, tensors = listing(problem)
        _calls[problem] = Calls(graph=graph, tensors=tensors, built=set())
    return _calls[problem]


def built(problem: Conv, index: int) -> Calls:
    """The graph that calls the problem's plans, with the plan at that place of its list built. It is built once in a process,
    as modes of measuring that copy the arrays bind the kernel anew."""
    calls = call_graph(problem)
    if index not in calls.built:
        calls.graph.build_plan_at_index(index)
        calls.built.add(index)
    return calls


def call_of(graph: Any, index: int, pack: dict) -> Callable[[], None]:
    """The call of the built plan at that place of the graph's list; it keeps the plan's workspace alive.

    pack: cuDNN's tensors -> device addresses.
    """
    room = workspace(graph.get_workspace_size_plan_at_index(index))
    return timed_call(graph.execute_plan_at_index, pack, room.data.ptr, index, _handle(), result=None, keep=(room,))


def timed_plans(problem: Conv, pointers: Sequence[int], stream: cupy.cuda.Stream) -> Search:
    """Builds and times the plans of a problem, once in a process.

    pointers: addresses of the two inputs and the output on the device.
    Raises: ValueError when cuDNN has none.
    """
    if problem not in _searches:
        graph, tensors = search_graph(problem)
        plans = _by_speed(graph, dict(zip(tensors, pointers, strict=True)), stream)
        if not plans:
            raise ValueError("cuDNN offers no plan for this that builds and runs")
        _searches[problem] = Search(graph=graph, plans=plans)
    return _searches[problem]


def _by_speed(graph: Any, pack: dict, stream: cupy.cuda.Stream) -> list[TimedPlan]:
    """All plans that build and run, the fastest first; after SEARCH_S seconds those that cuDNN ranks last are left out.

    pack: cuDNN's tensors -> device addresses.
    """
    end = time.monotonic() + SEARCH_S
    seconds: dict[int, float] = {}
    calls: dict[int, Callable] = {}
    for index in range(graph.get_execution_plan_count()):
        if seconds and time.monotonic() > end:
            break
        try:
            graph.build_plan_at_index(index)
            if graph.get_workspace_size_plan_at_index(index) > WORKSPACE_BYTES:
                continue
            call = call_of(graph, index, pack)
            if not seconds:
                _warm(call, stream)
            seconds[index] = _screened(call, min(seconds.values(), default=float("inf")), stream)
        except Exception:  # a plan that does not build or run is none; the others are timed
            continue
        calls[index] = call
    best = min(seconds.values(), default=0.0)
    for index in reversed(list(seconds)):
        if seconds[index] <= _AGAIN * best:
            seconds[index] = min(seconds[index], autotuner.device_seconds(calls[index]))
    plans = [TimedPlan(index=index, seconds=least) for index, least in seconds.items()]
    return sorted(plans, key=lambda plan: plan.seconds)


def _warm(call: Callable, stream: cupy.cuda.Stream) -> None:
    """Keeps the GPU busy for _WARM_S seconds, so that its clocks are up."""
    end = time.monotonic() + _WARM_S
    while time.monotonic() < end:
        autotuner.milliseconds(call, 1, stream)


def _screened(call: Callable, best: float, stream: cupy.cuda.Stream) -> float:
    """Device seconds of a call. Of a call much longer than `best`, the least seconds so far, the time of a single one, which
    includes the host's."""
    autotuner.milliseconds(call, 1, stream)  # loads its module
    once = autotuner.milliseconds(call, 1, stream) * 1e-3
    return once if once > _HOPELESS * best + _HOST_S else autotuner.device_seconds(call)


def is_transform(graph: Any, index: int) -> bool:
    """Whether the plan is a Winograd or an FFT form. If so, cuDNN no longer builds it once those forms are excluded, as they then
    are from the graph.

    cuDNN describes an engine by its notes alone. By its maintainers (NVIDIA/cudnn-frontend issue 20) neither a number nor an
    algorithm's name tells, so no number is listed here. A plan without such a note is held to exact sums as any other.
    """
    graph.deselect_numeric_notes(_TRANSFORMS)
    try:
        graph.build_plan_at_index(index)
    except Exception:
        return True
    return False


def _finalists(graph: Any, plans: list[TimedPlan], direct: bool) -> list[TimedPlan]:
    """The plans, of those given fastest first, that may be the fastest though their first timing has noise.

    direct: without Winograd and FFT forms.
    """
    chosen: list[TimedPlan] = []
    for plan in plans:
        if len(chosen) == _FINALISTS or (chosen and plan.seconds > _CLOSE * chosen[0].seconds):
            break
        if direct and is_transform(graph, plan.index):
            continue
        chosen.append(plan)
    return chosen


class Arrays(msgspec.Struct, frozen=True, kw_only=True):
    """A problem's arrays in device memory."""

    #: The two inputs as the caller has them: what the answer is worked out from.
    operands: tuple
    #: The output as the caller sees it.
    result: Any
    #: What a plan reads and writes, in the order of the graph's tensors; the filter's axes are in cuDNN's order.
    bound: tuple

    @property
    def pointers(self) -> list[int]:
        return [array.data.ptr for array in self.bound]


def is_exact(problem: Conv, arrays: Arrays, call: Callable[[], None], transforms: bool) -> bool:
    """Whether a plan's call gives the sums of whole numbers; True for other inputs, which cannot tell.

    cuDNN 9.19 lists plans in TF32 that do not: eng17_k25=0 for the filter gradient of 8 images of 28 x 28 x 1.
    """
    numbers = numpy_dtype(problem.dtype)
    operands = tuple(_on_host(array, numbers) for array in arrays.operands)
    if not all(_are_whole(array) for array in operands):
        return True
    call()
    bound = transform_bound(problem) if transforms else 0.0
    return check(problem, operands, _on_host(arrays.result, numbers), bound).passed


def _on_host(array: cupy.ndarray, numbers: np.dtype) -> np.ndarray:
    """A copy on the host of a device array of the type `numbers`; types that CuPy lacks are unsigned integers on the device."""
    values = cupy.asnumpy(array)
    return values.view(numbers) if values.dtype.kind == "u" else values


def _are_whole(array: np.ndarray) -> bool:
    first = array.ravel()[:_FIRST_VALUES].astype(np.float64)
    return bool(np.array_equal(first, np.rint(first)))


def _choose(problem: Conv, arrays: Arrays, stream: cupy.cuda.Stream, direct: bool) -> Choice:
    """The fastest plan whose sums are exact, timed here.

    direct: without Winograd and FFT forms.
    Raises: ValueError when there is none.
    """
    search = timed_plans(problem, arrays.pointers, stream)
    graph = search.graph
    plans = search.plans
    while finalists := _finalists(graph, plans, direct):
        calls = {plan.index: _call(problem, plan.index, arrays) for plan in finalists}
        seconds = autotuner.loaded_seconds if finalists[0].seconds >= _LONG_S else autotuner.device_seconds
        index = autotuner.fastest_by_rounds(calls, seconds) if len(calls) > 1 else finalists[0].index
        transforms = is_transform(graph, index)
        if is_exact(problem, arrays, calls[index], transforms):
            return Choice(
                index=index,
                name=graph.get_plan_name_at_index(index),
                transforms=transforms,
                timed=len(search.plans),
                inexact=len(search.plans) - len(plans),
                listed=graph.get_execution_plan_count(),
            )
        plans = [plan for plan in plans if plan.index != index]
    kinds = "only Winograd and FFT forms" if direct and plans else "no plan with exact sums"
    raise ValueError(f"cuDNN has {kinds} for this")


def _call(problem: Conv, index: int, arrays: Arrays) -> TimedCall:
    """The timed call of the problem's plan at that place of the list, which returns the result."""
    calls = built(problem, index)
    pack = dict(zip(calls.tensors, arrays.pointers, strict=True))
    room = workspace(calls.graph.get_workspace_size_plan_at_index(index))
    keep = (*arrays.bound, room)
    return timed_call(
        calls.graph.execute_plan_at_index, pack, room.data.ptr, index, _handle(), result=arrays.result, keep=keep
    )


def _choice(problem: Conv, arrays: Arrays, stream: cupy.cuda.Stream, direct: bool) -> Choice:
    """The fastest plan whose sums are exact: as chosen before by this process, as stored on disk, or timed now.

    direct: without Winograd and FFT forms.
    Raises: ValueError when there is none.
    """
    if (problem, direct) in _choices:
        return _choices[problem, direct]
    if direct:
        fastest = _choice(problem, arrays, stream, direct=False)
        if not fastest.transforms:
            _choices[problem, direct] = fastest
            return fastest
    gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    key = f"{gpu}, cuDNN {cudnn.backend_version()}, {problem}{', direct' if direct else ''}"
    choice = _stored(key, problem)
    if choice is None:
        choice = _choose(problem, arrays, stream, direct)
        autotuner.store(key, msgspec.json.encode(choice).decode())
    _choices[problem, direct] = choice
    return choice


def _stored(key: str, problem: Conv) -> Choice | None:
    """The choice stored on disk under `key`, if cuDNN still lists its plan in that place; else None."""
    try:
        choice = msgspec.json.decode(autotuner.stored_choices().get(key, ""), type=Choice)
    except msgspec.DecodeError:
        return None
    graph = call_graph(problem).graph
    listed = (
        choice.index < graph.get_execution_plan_count() and graph.get_plan_name_at_index(choice.index) == choice.name
    )
    return choice if listed else None


@kernel
def plan(problem: Conv, a: cupy.ndarray, b: cupy.ndarray, direct: bool = False) -> TimedCall:
    """The fastest of all plans that cuDNN offers, timed here (implicit GEMM, direct, Winograd, FFT); float32 without TF32.

    a, b: the operands, shaped as problem.operand_shapes says, on the GPU.
    direct: without Winograd and FFT forms.
    """
    if not DTYPES[problem.dtype].cudnn:
        raise ValueError(f"cuDNN convolves no {problem.dtype} here")
    stream = cupy.cuda.get_current_stream()
    nhwc = problem.layout == "NHWC"
    cudnn.set_stream(_handle(), stream.ptr)
    operands = (a, b)
    # cuDNN's channels-last filters are c_out, r, s, c_in: they are laid out so once, as a library would
    if nhwc and problem.direction != "wgrad":
        b = cupy.ascontiguousarray(b.transpose(3, 0, 1, 2))
    reordered = nhwc and problem.direction == "wgrad"
    shape = problem.out_shape
    out = cupy.empty((shape[3], *shape[:3]) if reordered else shape, a.dtype)
    result = out.transpose(1, 2, 3, 0) if reordered else out
    arrays = Arrays(operands=operands, result=result, bound=(a, b, out))
    choice = _choice(problem, arrays, stream, direct)
    run = _call(problem, choice.index, arrays)
    run.notes = {"plan": choice.name, "plans": str(choice.timed)}
    if choice.timed < choice.listed:
        run.notes["plans_listed"] = str(choice.listed)
    if choice.inexact:
        run.notes["plans_inexact"] = str(choice.inexact)
    if choice.transforms:
        run.notes["form"] = "Winograd or FFT"
        run.bound = transform_bound(problem)  # the error that a check of the result allows
    return run
