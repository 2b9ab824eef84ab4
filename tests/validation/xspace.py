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

Event = tuple[str, int, int, dict]  # name, begin and end in ps, stats by their names
Segment = tuple[
    int, int, tuple[str, str, str, str], int
]  # begin and end in ps; (where, scope, name, whose); calls begun


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

    return xplane_pb2.XSpace.FromString(written)


def _hlo(written: bytes):
    """An HLO module out of its proto."""
    from tensorflow.compiler.xla.service import hlo_pb2

    return hlo_pb2.HloProto.FromString(written).hlo_module


def steps_of(space, optimizer: str) -> Trace:
    """What the steps in an XSpace consist of; step_s is 0: a trace doesn't know it. TensorFlow traces the operations that it
    holds to take more than 8000 cycles.

    Raises: Untold where no step is found.
    """
    lines = [
        (plane.name, line.name, list(_events(plane, line)))
        for plane in space.planes
        for line in plane.lines
        if not line.name.startswith(_DERIVED)
    ]
    begins = sorted(begin for _, _, events in lines for name, begin, _, _ in events if name in _STEPS)
    if len(begins) < 4:
        raise Untold(f"the trace has {len(begins)} of Keras's steps")
    first, *_, last = begins = begins[1:]  # the first one waits for the pipeline to begin
    of_hlo, count = _HLO(space), len(begins) - 1
    every = [s for line in lines for s in _segments(*line, optimizer, of_hlo) if first <= s[0] < last]
    busy = {}
    for place, wheres in (("op", (OP,)), ("device", (KERNEL, COPY))):
        if own := [s[:2] for s in every if s[2][0] in wheres]:
            busy[place] = _union(own) / count / 1e12
    return Trace(count, 0.0, (last - first) / count / 1e12, busy, tuple(_added(every, count)))


def _events(plane, line) -> list[Event]:
    """A line's events by their begin, those that enclose others first."""
    names, found = {key: meta.name for key, meta in plane.stat_metadata.items()}, []

    def value(stat):
        kind = stat.WhichOneof("value")
        return names.get(stat.ref_value, "") if kind == "ref_value" else getattr(stat, kind) if kind else None

    for e in line.events:
        begin, meta = line.timestamp_ns * 1000 + e.offset_ps, plane.event_metadata.get(e.metadata_id)
        own = {names.get(s.metadata_id, ""): value(s) for s in e.stats}
        found.append((meta.name if meta else "", begin, begin + e.duration_ps, own))
    return sorted(found, key=lambda e: (e[1], -e[2]))


def _segments(plane: str, line: str, events: list[Event], optimizer: str, of_hlo: "_HLO") -> Iterable[Segment]:
    """What ran when on a line, nothing within something else counted twice; the input pipeline's operations left out."""
    if plane.startswith("/device:GPU"):
        return [(begin, end, (*_kernel(name, own, optimizer, of_hlo), name), 1) for name, begin, end, own in events]
    if not plane.startswith("/host") or line.startswith("tf_data"):
        return []
    ops = [(begin, end, _OP.fullmatch(name)) for name, begin, end, _ in events]
    return _innermost([(begin, end, (OP, _scope(op[1], optimizer), op[2], op[1]), 1) for begin, end, op in ops if op])


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


def _kernel(name: str, stats: dict, optimizer: str, of_hlo: "_HLO") -> tuple[str, str, str]:
    """(where, scope, name) of what ran on a GPU: by its HLO, by TensorFlow's operation, by its own name."""
    if name.startswith(_COPIES):
        return COPY, "", name
    if hlo := stats.get("hlo_op") or of_hlo.by_kernel.get(name):
        scope, told = of_hlo.find(str(stats.get("hlo_module", "")), str(hlo), optimizer)
        if told:
            return KERNEL, scope, told
    if op := _OP.fullmatch(str(stats.get("tf_op", ""))):
        return KERNEL, _scope(op[1], optimizer), op[2]
    return KERNEL, "", name[:60]


class _HLO:
    """The HLO modules in a trace: instruction -> what it is. by_kernel: the instruction that XLA made a kernel for."""

    def __init__(self, space):
        self._known: dict[str, dict[str, tuple[str, set[str]]]] = {}
        for plane in space.planes:
            protos = {key for key, meta in plane.stat_metadata.items() if meta.name == "Hlo Proto"}
            for stat in (s for meta in plane.event_metadata.values() for s in meta.stats if s.metadata_id in protos):
                module = _hlo(stat.bytes_value)
                self._known[module.name] = _instructions(module)
        self.by_kernel = {re.sub(r"\W", "_", name): name for known in self._known.values() for name in known}

    def find(self, module: str, instruction: str, optimizer: str) -> tuple[str, str]:
        """(scope, name) of an instruction; of one in no module, or in several, ("", the instruction)."""
        holding = {name: known for name, known in self._known.items() if instruction in known}
        found = [holding[module]] if module in holding else list(holding.values())
        if len(found) != 1:
            return "", re.sub(r"[.\d]+$", "", instruction)
        name, paths = found[0][instruction]
        scopes = [_scope(path, optimizer) for path in paths]
        return max(scopes, key=[FORWARD, BACKWARD, OPTIMIZER].index, default=""), name


def _instructions(module) -> dict[str, tuple[str, set[str]]]:
    """Instruction -> (its name: opcode, what it calls or what is fused in it; the names of the graph's operations in it)."""
    computations = {c.id: c for c in module.computations}
    found = {}
    for i in (i for c in module.computations for i in c.instructions):
        called = i.called_computation_ids if i.opcode == "fusion" else ()
        inside = [j for c in called for j in computations[c].instructions]
        heavy = [o for o in _HEAVY if any(j.opcode == o for j in inside)]
        name = i.custom_call_target if i.opcode == "custom-call" else " ".join([i.opcode, *heavy])
        found[i.name] = name, {j.metadata.op_name for j in (i, *inside) if j.metadata.op_name}
    return found


def _union(spans: Iterable[tuple[int, int]]) -> float:
    """ps in which at least one of the spans lasts."""
    whole, until = 0, 0
    for begin, end in sorted(spans):
        whole += max(0, end - max(begin, until))
        until = max(until, end)
    return float(whole)


def _added(every: list[Segment], steps: int) -> Iterable[Op]:
    """The segments by kind, those apart whose mean differs by more than a power of two; the longest first."""
    each: collections.Counter = collections.Counter()
    begun: collections.Counter = collections.Counter()
    for begin, end, key, calls in every:
        each[key] += end - begin
        begun[key] += calls
    found: dict[tuple, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for key, ps in each.items():
        sums = found[*key[:3], round(math.log2(max(1.0, ps / max(1, begun[key]))))]
        sums[0] += begun[key] / steps
        sums[1] += ps / steps / 1e12
    ops = [Op(*kind, *(float(f"{x:.4g}") for x in sums)) for (*kind, _), sums in found.items()]
    return sorted(ops, key=lambda op: -op.seconds)
