"""On a GPU: whether our cuDNN rows are cuDNN at its best.

causes    a layer at the first five plans and at all, with and without Winograd and FFT, and the host's time of a call
torch     our rows against PyTorch with torch.backends.cudnn.benchmark, both memory formats on both sides
stored    stored rows of the product, measured again
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import drawn
import msgspec
import numpy as np
from gpu_bench import on_gpu
from msgspec.structs import replace
from must_reach import REPORTS, Figure, at_most, printed, short, table

from analysis import stats
from analysis.predict import profile
from kernels import registry
from kernels.problems import Conv
from kernels.registry import Kernel
from tests.bench.conv_cuda import layers
from workloads import records
from workloads.harness import cache_state, copy_modes, timing
from workloads.machine import facts
from workloads.records import Measurement
from workloads.shared_flags import Limits

PARTS, DTYPES = ("causes", "torch", "stored"), ("bfloat16", "float32")
KERNEL = "conv/cudnn/plan"
FEW = 5  # plans that the bench of before gave cuDNN
BEFORE = "between events behind one flush, with excluded kinds / device"
NEAR, WITHIN = 0.95, 0.05  # of PyTorch's time; of a stored row
GRAPH_BELOW_S, GRAPH_CALLS = 100e-6, 20  # shorter calls of both sides run in a CUDA graph of so many
LOAD_S, TIMED_S, TURNS = 0.12, 0.2, 2  # of each side, and how often each order comes
FIXED = (  # n, side, c_in, c_out, filter, stride, pad: of VGG, Inception and ResNet-50
    (16, 35, 288, 288, 3, 1, 1),
    (32, 112, 32, 64, 3, 1, 1),
    (64, 56, 64, 64, 3, 2, 1),
    (256, 56, 64, 64, 3, 1, 1),
    (256, 28, 128, 128, 3, 1, 1),
    (256, 14, 256, 256, 3, 1, 1),
    (256, 7, 512, 512, 3, 1, 1),
    (256, 56, 64, 256, 1, 1, 0),
    (256, 28, 512, 128, 1, 1, 0),
    (256, 14, 1024, 2048, 1, 2, 0),
    (64, 56, 256, 256, 3, 1, 1),
    (32, 112, 128, 128, 3, 1, 1),
)
SHORT = (  # the same, of few images
    (1, 16, 32, 64, 3, 1, 1),
    (1, 7, 512, 512, 3, 1, 1),
    (1, 14, 256, 256, 3, 1, 1),
    (32, 56, 64, 64, 1, 1, 0),
)
LAYERS, DRAWN_FLOPS = 20, {"drawn": (10.7, 11.7)}  # layers of a direction; the FLOPs of a drawn one as powers of ten
STORED_ROWS = 20


class Cause(msgspec.Struct, frozen=True, kw_only=True, tag="cause"):
    """What a few plans, excluded kinds of plans and the host's time do to one layer."""

    problem: Conv
    #: Plans that cuDNN listed, and that were built and timed.
    listed: int
    timed: int
    #: Device seconds of the fastest of all plans, of the first five that build, and of all without Winograd and FFT.
    all_s: float
    few_s: float
    direct_s: float
    #: Their places in cuDNN's list.
    all_index: int
    few_index: int
    direct_index: int
    #: cuDNN's name of the fastest.
    name: str
    #: Host seconds to start a call, in a graph of one plan and in one with excluded kinds of plans.
    host_s: float
    excluded_host_s: float
    #: Seconds between events around a single call without Winograd and FFT behind one flush of the L2, kinds excluded.
    before_s: float
    #: The GPU, cuDNN's version, the commit and the time.
    card: str
    cudnn: str
    commit: str
    at: str


class Compared(msgspec.Struct, frozen=True, kw_only=True, tag="torch"):
    """One layer through our kernel and through PyTorch."""

    problem: Conv
    #: Device seconds of a call, by layout.
    ours: dict[str, float]
    torch: dict[str, float]
    #: Device seconds of each side's better layout, under load in alternating order.
    ours_s: float
    torch_s: float
    #: Our plan in the better layout.
    plan: str
    #: Whether both sides ran in a CUDA graph.
    graph: bool
    #: The norm of the difference of both results over the norm of PyTorch's.
    difference: float
    #: The GPU, each side's cuDNN version, PyTorch's version, the commit and the time.
    card: str
    cudnn: str
    torch_cudnn: str
    torch_version: str
    commit: str
    at: str


class Again(msgspec.Struct, frozen=True, kw_only=True, tag="stored"):
    """A stored row and the same row now."""

    problem: Conv
    #: The stored row's day, plan, device seconds and seconds of a call that is waited for.
    day: str
    plan_then: str
    then_s: float
    then_host_s: float
    #: The same now.
    plan: str
    now_s: float
    now_host_s: float
    #: The GPU, cuDNN's version, the commit and the time.
    card: str
    cudnn: str
    commit: str
    at: str


Line = Cause | Compared | Again


def main() -> int:
    args = arguments()
    file = args.print or REPORTS / facts.describe().key / "bench-cudnn_best.ndjson"
    here = profile.read(str(args.print.parent)).machine if args.print else None
    if not args.print:
        try:
            kernel = registry.find(KERNEL)
            measure(args, kernel, file)
        except (ImportError, registry.NotInstalled) as error:
            print(f"error: this bench needs cuDNN's frontend and PyTorch: {error}", file=sys.stderr)
            return 3
    lines = latest(lines_of(file))
    if not lines:
        print(f"error: {file} has no row", file=sys.stderr)
        return 2
    return table("cudnn_best", "cuDNN's rows beside cuDNN at its best", figures(lines), [about(lines)], of=here)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--directions", nargs="+", default=list(Conv.DIRECTIONS), choices=Conv.DIRECTIONS)
    parser.add_argument("--most", type=int, default=10_000, help="rows of a part at most")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begins no row after so many seconds")
    parser.add_argument("--print", type=pathlib.Path, help="measures nothing: the table of this file of rows")
    return parser.parse_args()


def measure(args: argparse.Namespace, kernel: Kernel, file: pathlib.Path) -> None:
    """Appends a line for each row of the parts, those without one first; a row that fails is printed and left out."""
    end = time.monotonic() + args.seconds
    stream = copy_modes.gpu_stream()
    measured = {(type(line), line.problem) for line in lines_of(file)}
    with open(file, "a", 1, "utf-8") as out:
        for part in args.parts:
            rows = rows_of(part, args.dtypes, args.directions)
            rows.sort(key=lambda one, kind=LINES[part]: (kind, getattr(one, "problem", one)) in measured)
            for one in rows[: args.most]:
                if time.monotonic() > end:
                    print(f"{part}: the time is up", file=sys.stderr)
                    break
                begin = time.monotonic()
                try:
                    line = MEASURE[part](kernel, one, stream)
                except Exception as error:
                    print(f"error: {part} {one}: {type(error).__name__}: {error}", file=sys.stderr)
                    continue
                out.write(msgspec.json.encode(line).decode() + "\n")
                print(
                    f"{part} {time.monotonic() - begin:.1f} s: {title(line.problem)} {summary(line)}", file=sys.stderr
                )


def rows_of(part: str, dtypes: list[str], directions: list[str]) -> list:
    """What a part measures, shuffled: problems, for `stored` the measurements."""
    if part == "stored":
        rows = [m for m in stored_rows() if m.problem.dtype in dtypes and m.problem.direction in directions]
        drawn.draw(0)[1].shuffle(rows)
        return rows[:STORED_ROWS]
    problems = cause_layers(dtypes) if part == "causes" else torch_layers(dtypes)
    problems = [problem for problem in problems if problem.direction in directions]
    drawn.draw(0)[1].shuffle(problems)
    return problems


def layer(shape: tuple[int, ...], dtype: str, direction: str = "fprop") -> Conv:
    n, side, c_in, c_out, taps, stride, pad = shape
    return Conv(
        n=n, h=side, w=side, c_in=c_in, c_out=c_out, r=taps, s=taps,
        stride=stride, pad=pad, dtype=dtype, math=dtype, direction=direction,
    )  # fmt: skip


def cause_layers(dtypes: Iterable[str]) -> list[Conv]:
    """Layers of few and of many images, the directions in turns: ten of each type."""
    shapes = [*SHORT, *FIXED[:6]]
    problems = []
    for dtype in dtypes:
        for number, shape in enumerate(shapes):
            problems.append(layer(shape, dtype, Conv.DIRECTIONS[number % 3]))
    return problems


def torch_layers(dtypes: Iterable[str]) -> list[Conv]:
    """The fixed layers and drawn ones, in every direction. PyTorch pads both sides alike, so drawn ones do too."""
    shapes = list(FIXED)
    for salt in range(10):
        for problem in layers(salt, DRAWN_FLOPS)["drawn"]:
            zeros = {side for pair in problem.pads for side in pair}
            if len(zeros) == 1 and len(shapes) < LAYERS:
                sizes = problem.n, problem.h, problem.c_in, problem.c_out, problem.r
                shapes.append((*sizes, problem.stride, zeros.pop()))
    problems = []
    for dtype in dtypes:
        for shape in shapes:
            problems += [layer(shape, dtype, direction) for direction in Conv.DIRECTIONS]
    return problems


def stored_rows() -> list[Measurement]:
    """The stored rows of the kernel on this machine's kind of GPU, resident and warm."""
    rows = []
    for path in sorted((REPORTS / facts.describe().key).glob("*/*/conv.jsonl")):
        for m in records.read(path).measurements:
            settings = m.settings
            if (
                m.kernel == KERNEL
                and m.ok
                and settings.mode == "resident"
                and settings.cache == "warm"
                and m.on("device")
            ):
                rows.append(m)
    return rows


def where() -> dict[str, str]:
    """The fields of a line that say what it was measured on."""
    import cudnn

    return {
        "card": facts.describe().gpus[0].name,
        "cudnn": str(cudnn.backend_version()),
        "commit": short(facts.commit()),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cause(kernel: Kernel, problem: Conv, stream) -> Cause:
    """One layer's plans, timed in this process."""
    import cupy

    from kernels.conv import cudnn as plans

    inputs = drawn.operands(problem)
    result = cupy.empty(problem.out_shape, inputs[0].dtype)
    pointers = [inputs[0].data.ptr, inputs[1].data.ptr, result.data.ptr]
    run = kernel.bind(problem, *inputs)
    search = plans.timed_plans(problem, pointers, stream)
    fastest = search.plans[0]
    few = min(sorted(search.plans, key=lambda plan: plan.index)[:FEW], key=lambda plan: plan.seconds)
    direct = next(plan for plan in search.plans if not plans.is_transform(search.graph, plan.index))
    graph, tensors = plans.search_graph(problem)
    plans.is_transform(graph, direct.index)  # builds it; from here on the graph has excluded kinds
    excluded = plans.call_of(graph, direct.index, dict(zip(tensors, pointers, strict=True)))
    flush = cache_state.flush(registry.find("matmul/cupy/cublas"), "gpu:0")
    single = timing.device_after(excluded, flush, stream)
    return Cause(
        problem=problem,
        listed=search.graph.get_execution_plan_count(),
        timed=len(search.plans),
        all_s=fastest.seconds,
        few_s=few.seconds,
        direct_s=direct.seconds,
        all_index=fastest.index,
        few_index=few.index,
        direct_index=direct.index,
        name=search.graph.get_plan_name_at_index(fastest.index),
        host_s=timing.issue(run, stream.synchronize)(100) / 100,
        excluded_host_s=timing.issue(excluded, stream.synchronize)(100) / 100,
        before_s=float(np.median([single(1) for _ in range(12)][2:])),
        **where(),
    )


def compared(kernel: Kernel, problem: Conv, stream) -> Compared:
    """One layer through both sides, each in its better layout."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0  # all algorithms, not the first ten
    torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream.ptr))
    inputs = drawn.operands(problem)
    ours = our_calls(kernel, problem, inputs)
    theirs = torch_calls(torch, problem, inputs)
    difference = apart(torch, problem, ours["NHWC"](), theirs["NHWC"]())
    plans = {layout: run.notes["plan"] for layout, run in ours.items()}
    stream.synchronize()
    seconds = [event_seconds(run, stream) for run in (*ours.values(), *theirs.values())]
    graph = min(seconds) < GRAPH_BELOW_S
    calls = GRAPH_CALLS if graph else 1
    if graph:
        ours = {layout: captured(run, stream, GRAPH_CALLS) for layout, run in ours.items()}
        theirs = {layout: torch_graph(torch, run, stream) for layout, run in theirs.items()}
    ours_first = {layout: event_seconds(run, stream) / calls for layout, run in ours.items()}
    torch_first = {layout: event_seconds(run, stream) / calls for layout, run in theirs.items()}
    layout = min(ours_first, key=ours_first.__getitem__)
    torch_layout = min(torch_first, key=torch_first.__getitem__)
    ours_s, torch_s = alternating(ours[layout], theirs[torch_layout], stream)
    return Compared(
        problem=problem,
        ours=ours_first,
        torch=torch_first,
        ours_s=ours_s / calls,
        torch_s=torch_s / calls,
        plan=f"{layout} {plans[layout]}",
        graph=graph,
        difference=difference,
        torch_cudnn=str(torch.backends.cudnn.version()),
        torch_version=str(torch.__version__),
        **where(),
    )


def event_seconds(run: Callable, stream) -> float:
    """Seconds of a call by two events around several, after two that do not count: about 20 ms of them."""
    once = [timing.device(run, stream)(1) for _ in range(3)][-1]
    calls = max(3, min(100, round(20e-3 / max(once, 1e-6))))
    return timing.device(run, stream)(calls) / calls


def alternating(ours: Callable, theirs: Callable, stream) -> tuple[float, float]:
    """The medians of both sides' seconds of a call, each alone after its own load, in the order A B B A."""
    timings: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for side in (0, 1, 1, 0):
            run = (ours, theirs)[side]
            timings[side].append(loaded(run, stream))
    return float(np.median(timings[0])), float(np.median(timings[1]))


def loaded(run: Callable, stream) -> float:
    """Seconds of a call after a while of its own load, by events."""
    take = timing.device(run, stream)
    each = max(take(3) / 3, 1e-6)
    take(max(1, round(LOAD_S / each)))
    calls = max(1, round(TIMED_S / each))
    return take(calls) / calls


def our_calls(kernel: Kernel, problem: Conv, inputs: list) -> dict[str, Callable]:
    """Layout -> our call."""
    calls = {"NHWC": kernel.bind(problem, *inputs)}
    channels_first = channels_first_inputs(problem, inputs)
    try:
        calls["NCHW"] = kernel.bind(replace(problem, layout="NCHW"), *channels_first)
    except ValueError as error:
        print(f"NCHW: {error}", file=sys.stderr)
    return calls


def channels_first_inputs(problem: Conv, inputs: list) -> list:
    """The operands as NCHW has them: images n, c, h, w and filters c_out, c_in, r, s."""
    import cupy

    axes = {"images": (0, 3, 1, 2), "filters": (3, 2, 0, 1)}
    second = "images" if problem.direction == "wgrad" else "filters"
    first = cupy.ascontiguousarray(inputs[0].transpose(axes["images"]))
    return [first, cupy.ascontiguousarray(inputs[1].transpose(axes[second]))]


def torch_calls(torch, problem: Conv, inputs: list) -> dict[str, Callable]:
    """Layout -> PyTorch's call, on the same values."""
    calls = {}
    formats = {"NHWC": torch.channels_last, "NCHW": torch.contiguous_format}
    for layout, memory_format in formats.items():
        tensors = []
        for array in channels_first_inputs(problem, inputs):
            tensor = as_tensor(torch, array, problem.dtype)
            tensors.append(tensor.contiguous(memory_format=memory_format))
        calls[layout] = torch_call(torch, problem, tensors, memory_format)
    return calls


def as_tensor(torch, array, dtype: str):
    """A CuPy array as PyTorch's tensor; bfloat16 is held as its bits."""
    if dtype == "bfloat16":
        return torch.from_dlpack(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(array)


def torch_call(torch, problem: Conv, tensors: list, memory_format) -> Callable:
    """One direction of the layer; a gradient alone, as a mask chooses it."""
    pad = problem.pads[0][0]
    settings = ([problem.stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1)
    first, second = tensors
    if problem.direction == "fprop":
        return lambda: torch.ops.aten.convolution(first, second, None, *settings)
    backward = torch.ops.aten.convolution_backward
    if problem.direction == "dgrad":
        shape = problem.n, problem.c_in, problem.h, problem.w
        images = torch.empty(shape, dtype=first.dtype, device=first.device, memory_format=memory_format)
        return lambda: backward(first, images, second, None, *settings, [True, False, False])[0]
    shape = problem.c_out, problem.c_in, problem.r, problem.s
    filters = torch.empty(shape, dtype=first.dtype, device=first.device, memory_format=memory_format)
    return lambda: backward(second, first, filters, None, *settings, [False, True, False])[1]


def apart(torch, problem: Conv, ours, theirs) -> float:
    """The norm of the difference of our result in NHWC and PyTorch's, over the norm of PyTorch's."""
    import cupy

    contiguous = as_tensor(torch, cupy.ascontiguousarray(ours), problem.dtype)
    axes = (2, 3, 1, 0) if problem.direction == "wgrad" else (0, 2, 3, 1)
    wanted = theirs.permute(axes).float()
    return float((contiguous.float() - wanted).norm() / wanted.norm())


def captured(run, stream, calls: int):
    """The launch of a CUDA graph of so many calls: the host's time to start each is then in none of them."""
    run()
    stream.synchronize()
    stream.begin_capture()
    try:
        for _ in range(calls):
            run()
    finally:
        graph = stream.end_capture()
    return lambda: graph.launch(stream)


def torch_graph(torch, run: Callable, stream) -> Callable:
    """The launch of a CUDA graph of several of PyTorch's calls."""
    run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    external = torch.cuda.ExternalStream(stream.ptr)
    with torch.cuda.graph(graph, stream=external):
        for _ in range(GRAPH_CALLS):
            run()
    torch.cuda.set_stream(external)
    return graph.replay


def again(kernel: Kernel, stored: Measurement, stream) -> Again:
    """A stored row, by the same clocks."""
    problem = stored.problem
    run = kernel.bind(problem, *drawn.operands(problem))
    run()
    stream.synchronize()
    device, host = stored.on("device"), stored.on("host-latency")
    limits = Limits()
    is_long = timing.call_seconds(timing.device(run, stream), limits) >= timing.BLOCKED_BELOW_S
    clock = (timing.device if is_long else timing.blocked)(run, stream)
    waited = timing.latency(run, stream.synchronize)
    return Again(
        problem=problem,
        day=stored.at[:10],
        plan_then=stored.notes.get("plan", ""),
        then_s=float(np.median(device.seconds)),
        then_host_s=float(np.median(host.seconds)) if host else 0.0,
        plan=run.notes["plan"],
        now_s=float(np.median(timing.visits(clock, limits, "device").seconds)),
        now_host_s=float(np.median(timing.visits(waited, limits, "host-latency").seconds)),
        **where(),
    )


MEASURE: dict[str, Callable] = {"causes": cause, "torch": compared, "stored": again}
LINES = {"causes": Cause, "torch": Compared, "stored": Again}


def lines_of(file: pathlib.Path) -> list[Line]:
    """The lines of a file of rows; none where there is no file."""
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=Line) for line in file.read_bytes().splitlines()]


def latest(lines: Iterable[Line]) -> list[Line]:
    """The last line of each problem of a part."""
    last = {}
    for line in lines:
        last[type(line), line.problem] = line
    return list(last.values())


def title(problem: Conv) -> str:
    shape, layout = drawn.described(problem)
    return f"{problem.dtype} {layout} {'x'.join(map(str, shape))}"


def summary(line: Line) -> str:
    if isinstance(line, Cause):
        return f"five / all {line.few_s / line.all_s:.3f}, plan {line.all_index} of {line.listed}"
    if isinstance(line, Compared):
        return f"torch / ours {line.torch_s / line.ours_s:.3f}, {line.plan}"
    return f"then / now {line.then_s / line.now_s:.3f}"


def figures(lines: list[Line]) -> list[Figure]:
    causes = [line for line in lines if isinstance(line, Cause)]
    against_torch = [line for line in lines if isinstance(line, Compared)]
    stored = [line for line in lines if isinstance(line, Again)]
    return cause_figures(causes) + torch_figures(against_torch) + stored_figures(stored)


def cause_figures(lines: list[Cause]) -> list[Figure]:
    """Five plans against all, with the host's time; then every layer."""
    if not lines:
        return []
    few = [line.few_s / line.all_s for line in lines]
    direct = [line.direct_s / line.all_s for line in lines]
    shown = drawn.claim("plans", few, None, sides="first five / all")
    shown += drawn.claim("plans", direct, None, sides="without Winograd and FFT / all")
    shown += drawn.claim("single calls", [line.before_s / line.direct_s for line in lines], None, sides=BEFORE)
    later = sum(line.all_index > line.few_index for line in lines)
    shown.append(printed(f"layers of {len(lines)} whose fastest plan is listed later", later))
    for name, seconds in (
        ("the host, to start a call", [line.host_s for line in lines]),
        ("the host, with excluded kinds of plans", [line.excluded_host_s for line in lines]),
    ):
        shown.append(printed(name, stats.median([s * 1e6 for s in seconds]), "µs"))
    for line in lines:
        plans = (
            f"all {micro(line.all_s)} by plan {line.all_index} of {line.listed} ({line.timed} run), first five "
            f"{micro(line.few_s)} by {line.few_index}, without Winograd and FFT {micro(line.direct_s)} by {line.direct_index}"
        )
        host = f"host {micro(line.host_s)}, with excluded kinds {micro(line.excluded_host_s)}"
        name = f"{title(line.problem)}: {plans}; {host}: {BEFORE}"
        shown.append(printed(name, line.before_s / line.direct_s))
    return shown


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} µs"


def torch_figures(lines: list[Compared]) -> list[Figure]:
    """PyTorch's time over ours, by type and direction; then every layer."""
    shown = []
    for dtype in DTYPES:
        for direction in Conv.DIRECTIONS:
            chosen = [line for line in lines if (line.problem.dtype, line.problem.direction) == (dtype, direction)]
            ratios = [line.torch_s / line.ours_s for line in chosen]
            at_most_1 = [min(ratio, 1.0) for ratio in ratios]
            shown += drawn.claim(f"{dtype} {direction}", at_most_1, NEAR, sides="PyTorch / ours, at most 1")
            shown += drawn.claim(f"{dtype} {direction}", ratios, None, sides="PyTorch / ours")
    if lines:
        shown.append(at_most("largest difference of both results", 0.02, max(line.difference for line in lines)))
    for line in lines:
        rate, torch_rate = (line.problem.flops / s / 1e12 for s in (line.ours_s, line.torch_s))
        best = min(line.torch, key=line.torch.__getitem__)
        name = f"{title(line.problem)}{', in a graph' if line.graph else ''}: ours {rate:.4g} TFLOP/s by {line.plan}"
        shown.append(printed(f"{name}, PyTorch {torch_rate:.4g} in {best}: PyTorch / ours", line.torch_s / line.ours_s))
    return shown


def stored_figures(lines: list[Again]) -> list[Figure]:
    """Stored rows that differ from now, on the device and for a host that waits."""
    if not lines:
        return []
    shown = []
    for name, pairs in (
        ("on the device", [(line.then_s, line.now_s) for line in lines]),
        ("waited for", [(line.then_host_s, line.now_host_s) for line in lines if line.then_host_s]),
    ):
        differ = sum(abs(then / now - 1) > WITHIN for then, now in pairs)
        shown.append(at_most(f"stored rows of {len(pairs)} that differ by more than 5 %, {name}", 0, differ))
    for line in lines:
        name = f"{title(line.problem)}, {line.day}"
        ratio = line.then_s / line.now_s
        plans = f"{line.plan_then} {line.then_s * 1e6:.4g} µs, now {line.plan} {line.now_s * 1e6:.4g} µs"
        within = abs(ratio - 1) <= WITHIN
        shown.append(Figure(f"{name}: {plans}: then / now", "within 5 %", stats.exact(ratio), within))
        host = f"{line.then_host_s * 1e6:.4g} µs, now {line.now_host_s * 1e6:.4g} µs"
        shown.append(printed(f"{name}, waited for: {host}: then / now", line.then_host_s / line.now_host_s))
    return shown


def about(lines: list[Line]) -> str:
    """How the rows were measured, and on what."""
    cards = ", ".join(sorted({line.card for line in lines}))
    versions = ", ".join(sorted({line.cudnn for line in lines}))
    commits = ", ".join(sorted({line.commit for line in lines}))
    days = sorted({line.at[:10] for line in lines})
    text = f"Measured {days[0]} to {days[-1]} on {cards}, at commits {commits}; our side's cuDNN {versions}"
    against_torch = [line for line in lines if isinstance(line, Compared)]
    if against_torch:
        theirs = ", ".join(sorted({f"{line.torch_version} with cuDNN {line.torch_cudnn}" for line in against_torch}))
        text += f", PyTorch {theirs}"
    return (
        f"{text}. N(0,1) operands, float32 without TF32. PyTorch: cudnn.benchmark over all algorithms. "
        f"Each side's better layout of two runs alone, {LOAD_S:g} s of its own load, then {TIMED_S:g} s timed, in the order "
        f"A B B A {TURNS} times. Where a call is shorter than {GRAPH_BELOW_S * 1e6:.0f} µs both sides run in CUDA graphs of "
        f"{GRAPH_CALLS}. "
        "The ratio is PyTorch's time over ours. The target counts none above 1, as PyTorch keeps a slow algorithm for some "
        "layers. A layer is its n, h, w, c_in, c_out, r, s, stride."
    )


if __name__ == "__main__":
    sys.exit(main() if "--print" in sys.argv else on_gpu(main))
