"""Reads where the time of warm steps went out of the XSpace that TensorFlow's profiler writes."""

import collections
import math
import re
from collections.abc import Iterable

import msgspec

OP, KERNEL, COPY = "op", "kernel", "copy"
OPTIMIZER, FORWARD, BACKWARD = "optimizer", "forward", "backward"

_STEPS = ("multi_step_on_iterator", "one_step_on_iterator", "one_step_on_data")  # Keras's train functions
_OP = re.compile(r"([\w.][\w.\-/>]*):(_?[A-Za-z]\w*)")  # node:Type
# Lines whose events are derived from other lines'.
_DERIVED = ("XLA Modules", "XLA Ops", "Steps", "TensorFlow", "Framework", "Source code", "Launch Stats")
_COPIES = ("Memcpy", "Memset")
_HEAVY = ("dot", "convolution", "reduce", "reduce-window", "select-and-scatter", "scatter", "sort", "custom-call")
_ASYNC_END = "end: "

# begin and end in ps; (where, scope, name, whose); calls begun
Segment = tuple[int, int, tuple[str, str, str, str], int]


class Op(msgspec.Struct, frozen=True, array_like=True):
    """Operations of one kind that take about as long each, added up over a step.

    where: op (on the host), kernel or copy (on a GPU). scope: forward, backward, optimizer, "" where it cannot be told. name:
    TensorFlow's type of the operation; of XLA's its opcode or what it calls, a fusion's followed by the products or reductions
    in it; else the kernel's. calls, seconds: a step, each operation's own.
    """

    where: str
    scope: str
    name: str
    calls: float
    seconds: float


class Trace(msgspec.Struct, frozen=True):
    """The traced steps of a fit. steps: how many; step_s: seconds of an untraced step, fits of both kinds taking turns;
    traced_s: of a traced one; of both the quickest fit. busy_s: op or device -> seconds a step in which at least one operation
    of the host, or one kernel or copy, ran."""

    steps: int
    step_s: float
    traced_s: float
    busy_s: dict[str, float]
    ops: tuple[Op, ...]

    @property
    def quickest_s(self) -> float:
        """Seconds of a step, traced or not: what disturbs either only adds to it."""
        return min(self.step_s, self.traced_s)

    @property
    def slower(self) -> float:
        """What tracing adds to a step, relative to it."""
        return self.traced_s / self.step_s - 1


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
    """What the steps in an XSpace consist of; step_s is 0: a trace doesn't know it. TensorFlow traces the operations that it
    holds to take more than 8000 cycles.

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
    busy = {
        place: _union(own) / count / 1e12
        for place, wheres in (("op", (OP,)), ("device", (KERNEL, COPY)))
        if (own := [s[:2] for s in segments if s[2][0] in wheres])
    }
    return Trace(count, 0.0, (begins[-1] - begins[0]) / count / 1e12, busy, tuple(_added(segments, count)))


def _events(plane, line) -> list[_Event]:
    """A line's events by their begin, those that enclose others first."""
    names = {key: meta.name for key, meta in plane.event_metadata.items()}
    stats = {key: meta.name for key, meta in plane.stat_metadata.items()}
    origin, found = line.timestamp_ns * 1000, []
    for e in line.events:
        begin, own = origin + e.offset_ps, {stats.get(s.metadata_id, ""): _value(s, stats) for s in e.stats}
        found.append(_Event(names.get(e.metadata_id, ""), begin, begin + e.duration_ps, own))
    return sorted(found, key=lambda e: (e.begin, -e.end))


def _value(stat, names: dict[int, str]):
    kind = stat.WhichOneof("value")
    return names.get(stat.ref_value, "") if kind == "ref_value" else getattr(stat, kind) if kind else None


def _segments(plane: str, line: str, events: list[_Event], optimizer: str, modules: "_Modules") -> Iterable[Segment]:
    """What ran when on a line, nothing within something else counted twice; the input pipeline's operations left out."""
    if plane.startswith("/device:GPU"):
        for e in events:
            yield e.begin, e.end, (*_kernel(e, optimizer, modules), e.name), 1
        return
    if not plane.startswith("/host") or line.startswith("tf_data"):
        return
    own = []
    for e in events:
        if op := _OP.fullmatch(e.name):
            own.append((e.begin, e.end, (OP, _scope(op[1], optimizer), op[2], op[1]), 1))
        elif "hlo_op" in e.stats:  # may go on when its call has returned
            end = max(e.end, modules.ends.get(e.stats.get("_p"), 0))
            scope, name = modules.of(e.stats.get("hlo_module", ""), e.stats["hlo_op"], optimizer)
            own.append((e.begin, end, (OP, scope, name, e.stats["hlo_op"]), 1))
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
        return OPTIMIZER
    return BACKWARD if any(p.startswith("gradient_tape") for p in parts) else FORWARD


def _kernel(e: _Event, optimizer: str, modules: "_Modules") -> tuple[str, str, str]:
    """(where, scope, name) of what ran on a GPU: by its HLO, by TensorFlow's operation, by its own name."""
    if e.name.startswith(_COPIES):
        return COPY, "", e.name
    hlo = e.stats.get("hlo_op") or modules.named(e.name)
    if hlo:
        scope, name = modules.of(str(e.stats.get("hlo_module", "")), str(hlo), optimizer)
        if name:
            return KERNEL, scope, name
    if op := _OP.fullmatch(str(e.stats.get("tf_op", ""))):
        return KERNEL, _scope(op[1], optimizer), op[2]
    return KERNEL, "", e.name[:60]


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
        return max(scopes, key=[FORWARD, BACKWARD, OPTIMIZER].index) if scopes else "", name


def _modules(space) -> _Modules:
    """The HLO modules that lie in a trace."""
    protos = []
    ends: dict[int | None, int] = {}
    for plane in space.planes:
        stats = {key: meta.name for key, meta in plane.stat_metadata.items()}
        for meta in plane.event_metadata.values():
            protos += [_hlo(s.bytes_value) for s in meta.stats if stats.get(s.metadata_id) == "Hlo Proto"]
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
    for i in (i for c in module.computations for i in c.instructions):
        called = i.called_computation_ids if i.opcode == "fusion" else ()
        inside = [j for c in called for j in computations[c].instructions]
        heavy = [o for o in _HEAVY if any(j.opcode == o for j in inside)]
        name = i.custom_call_target if i.opcode == "custom-call" else " ".join([i.opcode, *heavy])
        found[i.name] = name, tuple({j.metadata.op_name for j in (i, *inside) if j.metadata.op_name})
    return found


def _union(spans: Iterable[tuple[int, int]]) -> float:
    """ps in which at least one of the spans lasts."""
    whole, until = 0, 0
    for begin, end in sorted(spans):
        whole += max(0, end - max(begin, until))
        until = max(until, end)
    return float(whole)


def _added(segments: list[Segment], steps: int) -> Iterable[Op]:
    """The segments by kind, those apart whose mean differs by more than a power of two; the longest first."""
    each: dict[tuple, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for begin, end, key, begun in segments:
        each[key][0] += begun
        each[key][1] += end - begin
    found: dict[tuple, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for (*kind, _), (calls, ps) in each.items():
        about = round(math.log2(max(1.0, ps / max(1, calls))))
        found[*kind, about][0] += calls / steps
        found[*kind, about][1] += ps / steps / 1e12
    return sorted(
        (Op(*kind, *(float(f"{x:.4g}") for x in sums)) for (*kind, _), sums in found.items()),
        key=lambda op: -op.seconds,
    )
