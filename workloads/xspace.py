"""Reads where the time of warm steps went out of the XSpace that TensorFlow's profiler writes, in a worker.

TensorFlow traces the operations that it holds to take more than 8000 cycles; smaller ones are in the time between. A GPU's
kernels and copies, and the driver's calls, are CUPTI's. What XLA's kernels consist of is read from the module in the trace.
"""

import bisect
import collections
import math
import re
from collections.abc import Iterable

import msgspec

from workloads import trace
from workloads.trace import Op, Trace

_STEPS = ("multi_step_on_iterator", "one_step_on_iterator", "one_step_on_data")  # Keras's train functions
_OP = re.compile(r"([\w.][\w.\-/>]*):(_?[A-Za-z]\w*)")  # node:Type
_RUN = re.compile(r"EagerLocalExecute: __inference_(?:multi|one)_step_on_\w+")
_DERIVED = (
    "XLA Modules",
    "XLA Ops",
    "Steps",
    "TensorFlow",
    "Framework",
    "Source code",
    "Launch Stats",
)  # of other lines' events
_COPIES = ("Memcpy", "Memset")
_API = re.compile(r"cu[A-Z]\w+")
_HEAVY = ("dot", "convolution", "reduce", "reduce-window", "select-and-scatter", "scatter", "sort", "custom-call")
_ASYNC_END = "end: "

Segment = tuple[
    int, int, tuple[str, str, str, str], int
]  # begin and end in ps; (where, scope, name, whose); calls begun


class Untold(ValueError):
    """A trace in which the steps cannot be found; the message says what is lacking."""


def parsed(written: bytes):
    """A trace as an XSpace."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(written)
    return space


class _Event(msgspec.Struct):
    """An event of a line: name, begin and end in ps, stats by their names."""

    name: str
    begin: int
    end: int
    stats: dict


def steps_of(space, optimizer: str) -> Trace:
    """What the steps in an XSpace consist of; step_s is 0: a trace doesn't know it.

    Raises: Untold where no step is found.
    """
    lines = [
        (plane.name, line.name, _events(plane, line))
        for plane in space.planes
        for line in plane.lines
        if not line.name.startswith(_DERIVED)
    ]
    begins = sorted(e.begin for _, _, events in lines for e in events if e.name in _STEPS)
    if len(begins) < 4:
        raise Untold(f"the trace has {len(begins)} of Keras's steps")
    begins = begins[1:]  # the first one waits for the pipeline to begin
    modules = _modules(space)
    segments = [
        s
        for plane, line, events in lines
        for s in _segments(plane, line, events, optimizer, modules)
        if begins[0] <= s[0] < begins[-1]
    ]
    count = len(begins) - 1
    walls, busy = _shared(segments)
    return Trace(
        count,
        0.0,
        (begins[-1] - begins[0]) / count / 1e12,
        {w: s / count / 1e12 for w, s in busy.items()},
        tuple(_added(segments, walls, count)),
    )


def _events(plane, line) -> list[_Event]:
    """A line's events by their begin, those that enclose others first."""
    names = {key: meta.name for key, meta in plane.event_metadata.items()}
    stats = {key: meta.name for key, meta in plane.stat_metadata.items()}
    origin, found = line.timestamp_ns * 1000, []
    for e in line.events:
        begin = origin + e.offset_ps
        found.append(
            _Event(
                names.get(e.metadata_id, ""),
                begin,
                begin + e.duration_ps,
                {stats.get(s.metadata_id, ""): _value(s, stats) for s in e.stats},
            )
        )
    return sorted(found, key=lambda e: (e.begin, -e.end))


def _value(stat, names: dict[int, str]):
    kind = stat.WhichOneof("value")
    return names.get(stat.ref_value, "") if kind == "ref_value" else getattr(stat, kind) if kind else None


def _segments(plane: str, line: str, events: list[_Event], optimizer: str, modules: "_Modules") -> Iterable[Segment]:
    """What ran when on a line, nothing within something else counted twice."""
    if plane.startswith("/device:GPU"):
        for e in events:
            yield e.begin, e.end, (*_kernel(e, optimizer, modules), e.name), 1
        return
    if not plane.startswith("/host"):
        return
    where = trace.PIPELINE if line.startswith("tf_data") else trace.OP
    own = []
    for e in events:
        if op := _OP.fullmatch(e.name):
            own.append((e.begin, e.end, (where, _scope(op[1], optimizer), op[2], op[1]), 1))
        elif "hlo_op" in e.stats:  # may go on when its call has returned
            end = max(e.end, modules.ends.get(e.stats.get("_p"), 0))
            scope, name = modules.of(e.stats.get("hlo_module", ""), e.stats["hlo_op"], optimizer)
            yield e.begin, end, (where, scope, name, e.stats["hlo_op"]), 1
        elif _API.fullmatch(e.name):
            yield e.begin, e.end, (trace.CALL, "", e.name, e.name), 1
        elif e.name in _STEPS or _RUN.match(e.name):
            name = "Keras's function" if e.name in _STEPS else "its graph"
            yield e.begin, e.end, (trace.HOST, "", name, name), 1
    yield from _innermost(own)


def _innermost(spans: list[Segment]) -> Iterable[Segment]:
    """Of spans of one thread, which lie beside or within each other, the pieces in which each is the innermost."""
    stack: list[list] = []  # [end, key, from where on it is innermost, 1 until its first piece]

    def closed(until: float) -> Iterable[Segment]:
        while stack and stack[-1][0] <= until:
            end, key, since, first = stack.pop()
            if end > since or first:
                yield since, end, key, first
            if stack:
                stack[-1][2] = max(stack[-1][2], end)

    for begin, end, key, _ in spans:
        yield from closed(begin)
        if stack and begin > stack[-1][2]:
            outer = stack[-1]
            yield outer[2], begin, outer[1], outer[3]
            outer[3] = 0
        stack.append([end, key, begin, 1])
    yield from closed(math.inf)


def _scope(path: str, optimizer: str) -> str:
    """Forward, backward or optimizer, by the scopes in an operation's name."""
    parts = path.split("/")
    if optimizer and optimizer in parts:
        return trace.OPTIMIZER
    return trace.BACKWARD if any(p.startswith("gradient_tape") for p in parts) else trace.FORWARD


def _kernel(e: _Event, optimizer: str, modules: "_Modules") -> tuple[str, str, str]:
    """(where, scope, name) of what ran on a GPU: by its HLO, by TensorFlow's operation, by its own name."""
    if e.name.startswith(_COPIES):
        return trace.COPY, "", e.name
    hlo = e.stats.get("hlo_op") or modules.named(e.name)
    if hlo:
        scope, name = modules.of(str(e.stats.get("hlo_module", "")), str(hlo), optimizer)
        if name:
            return trace.KERNEL, scope, name
    if op := _OP.fullmatch(str(e.stats.get("tf_op", ""))):
        return trace.KERNEL, _scope(op[1], optimizer), op[2]
    return trace.KERNEL, "", e.name[:60]


class _Modules:
    """The HLO modules in a trace: instruction -> what it is. `ends`: ends of what went on in another thread, by its flow."""

    def __init__(self, protos: Iterable, ends: dict[int | None, int]):
        self.ends = ends
        self._known: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {}
        for proto in protos:
            self._known[proto.name] = _instructions(proto)
        self._by_kernel = {re.sub(r"\W", "_", name): name for known in self._known.values() for name in known}

    def named(self, kernel: str) -> str:
        """The instruction that XLA made a kernel of that name for; "" where it made none."""
        return self._by_kernel.get(kernel, "")

    def of(self, module: str, instruction: str, optimizer: str) -> tuple[str, str]:
        """(scope, name) of an instruction; of one in no module, or in several, ("", the instruction)."""
        holds = [known for name, known in self._known.items() if instruction in known and module in ("", name)]
        holds = holds or [known for known in self._known.values() if instruction in known]
        if len(holds) != 1:
            return "", re.sub(r"[.\d]+$", "", instruction)
        name, paths = holds[0][instruction]
        scopes = [_scope(path, optimizer) for path in paths]
        return max(scopes, key=[trace.FORWARD, trace.BACKWARD, trace.OPTIMIZER].index) if scopes else "", name


def _modules(space) -> _Modules:
    """The HLO modules that lie in a trace."""
    protos = []
    ends: dict[int | None, int] = {}
    for plane in space.planes:
        stats = {key: meta.name for key, meta in plane.stat_metadata.items()}
        for meta in plane.event_metadata.values():
            for s in meta.stats:
                if stats.get(s.metadata_id) == "Hlo Proto":
                    protos.append(_hlo(s.bytes_value))
        flows = {key for key, name in stats.items() if name == "_c"}
        ended = {key for key, meta in plane.event_metadata.items() if meta.name.startswith(_ASYNC_END)}
        for line in plane.lines:
            for e in (e for e in line.events if e.metadata_id in ended):
                at = line.timestamp_ns * 1000 + e.offset_ps + e.duration_ps
                ends |= {s.int64_value or s.uint64_value: at for s in e.stats if s.metadata_id in flows}
    return _Modules(protos, ends)


def _hlo(written: bytes):
    """An HLO module out of its proto."""
    from tensorflow.compiler.xla.service import hlo_pb2

    proto = hlo_pb2.HloProto()
    proto.ParseFromString(written)
    return proto.hlo_module


def _instructions(module) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Instruction -> (its name: opcode, what it calls or what is fused in it; the names of the graph's operations in it)."""
    computations = {c.id: c for c in module.computations}
    found = {}
    for computation in module.computations:
        for i in computation.instructions:
            inside = (
                [j for c in i.called_computation_ids for j in computations[c].instructions]
                if i.opcode == "fusion"
                else []
            )
            heavy = [o for o in _HEAVY if any(j.opcode == o for j in inside)]
            name = i.custom_call_target if i.opcode == "custom-call" else " ".join([i.opcode, *heavy])
            found[i.name] = name, tuple({j.metadata.op_name for j in (i, *inside) if j.metadata.op_name})
    return found


def _shared(segments: list[Segment]) -> tuple[dict[int, float], dict[str, float]]:
    """(index of a segment -> its share of the time in which anything ran in its place, place -> that time), in ps."""
    walls: dict[int, float] = collections.defaultdict(float)
    busy = {}
    for place in dict.fromkeys(_place(key[0]) for _, _, key, _ in segments if key[0] not in (trace.HOST, trace.CALL)):
        own = [i for i, s in enumerate(segments) if _place(s[2][0]) == place and s[1] > s[0]]
        edges = sorted({t for i in own for t in segments[i][:2]})
        lengths = [0.0] * len(edges)  # running: how many, in the piece behind each edge
        for i in own:
            for at in range(bisect.bisect_left(edges, segments[i][0]), bisect.bisect_left(edges, segments[i][1])):
                lengths[at] += 1
        for i in own:
            for at in range(bisect.bisect_left(edges, segments[i][0]), bisect.bisect_left(edges, segments[i][1])):
                walls[i] += (edges[at + 1] - edges[at]) / lengths[at]
        busy[place] = float(sum(edges[at + 1] - edges[at] for at in range(len(edges) - 1) if lengths[at]))
    return walls, busy


def _place(where: str) -> str:
    return "device" if where in (trace.KERNEL, trace.COPY) else where


def _added(segments: list[Segment], walls: dict[int, float], steps: int) -> Iterable[Op]:
    """The segments by kind, those apart whose mean differs by more than a power of two; the longest first."""
    each: dict[tuple, list[float]] = collections.defaultdict(lambda: [0.0, 0.0, 0.0])
    for i, (begin, end, key, begun) in enumerate(segments):
        for n, more in enumerate((begun, end - begin, walls.get(i, end - begin))):
            each[key][n] += more
    found: dict[tuple, list[float]] = collections.defaultdict(lambda: [0.0, 0.0, 0.0])
    for (*kind, _), (calls, ps, wall) in each.items():
        about = round(math.log2(max(1.0, ps / max(1, calls))))
        for n, more in enumerate((calls / steps, ps / steps / 1e12, wall / steps / 1e12)):
            found[*kind, about][n] += more
    return sorted(
        (Op(*kind, *(float(f"{x:.4g}") for x in sums)) for (*kind, _), sums in found.items()),
        key=lambda op: -op.seconds,
    )
