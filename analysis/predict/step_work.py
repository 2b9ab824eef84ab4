"""The work of a step on a device: its operations, their kernels in an execution, the seconds of each part, and the critical
path.
"""

import math

import msgspec

from analysis.predict import operations, profile
from analysis.predict.curves import UNLIKE
from analysis.predict.profile import COMPILED, OP_BY_OP, Lacking, Profile
from analysis.predict.step_kernels import fusion, traced_fusion, traced_op_by_op
from analysis.predict.step_kernels.operation_counts import unfused_traffic
from analysis.predict.step_kernels.step_kernel import StepKernel, is_backward
from analysis.predict.step_kernels.traced_kernel import StepPrecision
from analysis.stats import Estimate, group_by, total, within_factor
from analysis.units import join, percent
from kernels import networks
from kernels.networks import Network, Work
from kernels.networks.layers import unknown
from kernels.problems import Problem, Stream
from workloads.records import Machine
from workloads.records.switches import Keras

Timed = list[tuple[StepKernel, float]]
_NEAR = 2  # powers of two: passes of so similar sizes share a best rate
LEAST_ROUGH = 0.05  # share of a step's work below which nothing says that it is priced roughly
MOST_KINDS = 2  # of such work that are named
_PRICED = "adam"  # what an optimizer without a stream problem is priced as


class Path(msgspec.Struct, frozen=True):
    """The critical path of a graph whose operations may overlap. seconds: of the longest chain of operations that wait for each
    other. busy: seconds for which all operations together keep every core or the memory busy, those of the chain at the best
    known rates."""

    seconds: float
    busy: float


class RoughWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a step that no row is of, priced by its bytes or by rows of something else: within a factor of UNLIKE."""

    #: Its share of the seconds of all work.
    share: float
    #: What it is, in words, the longest first.
    kinds: tuple[str, ...]


class WorkParts(msgspec.Struct, frozen=True):
    """The work of a step's kernels on the device. parts: part -> seconds; sources: part -> what these are read from. partial:
    what stands for something else, or for nothing, in words. lacking: the parts that no row tells. path: through the kernels,
    where they may run at once."""

    parts: dict[str, Estimate]
    sources: dict[str, str]
    partial: list[str]
    lacking: dict[str, Lacking]
    path: Path | None
    rough: RoughWork | None = None


def step_works(
    network: Network, batch: int, chosen: Keras, device: str, machine: Machine | None = None
) -> tuple[list[Work], list[str]]:
    """(operations of a step under its options, in float32 if the machine's GPUs lack an arithmetic; substitutions, in
    words)."""
    dtype, tf32, partial = step_arithmetic(chosen, device, machine)
    if network.optimizer not in Stream.WEIGHTS:
        partial.append(f"the optimizer {network.optimizer}, priced as {_PRICED}")
        network = msgspec.structs.replace(network, optimizer=_PRICED)
    off = chosen.dropout == "off"
    dropped = {la.name for la in network.layers if la.kind == "dropout" and (off or not la.rate)}
    if device == "cpu":  # which has no cuDNN
        layers = (msgspec.structs.replace(la, fused=False) if la.fused else la for la in network.layers)
        network = msgspec.structs.replace(network, layers=tuple(layers))
    works = networks.step(network, batch, dtype, "tf32" if tf32 else "")
    return [w for w in works if w.layer not in dropped], partial


def step_kernels(
    network: Network, batch: int, chosen: Keras, *, device: str, execution: str, machine: Machine | None = None
) -> tuple[list[StepKernel], list[str]]:
    """(kernels of a step under its options on a device; substitutions, in words)."""
    if network.traced is None:
        works, partial = step_works(network, batch, chosen, device, machine)
        return kernels_of(works, execution, device), partial
    dtype, _, partial = step_arithmetic(chosen, device, machine)
    lacks_tf32 = machine is not None and machine.lacks("tf32")
    tf32 = device != "cpu" and chosen.tf32 == "on" and not lacks_tf32  # of what stays float32 in a mixed precision too
    arithmetic = StepPrecision(
        dtype=dtype if dtype != "float32" and network.precision == "float32" else "",
        math="tf32" if tf32 else "",
    )
    if execution == COMPILED:
        return traced_fusion.compiled(network.traced, batch, arithmetic, device), partial
    return traced_op_by_op.op_by_op(network.traced, batch, arithmetic, device), partial


def step_arithmetic(chosen: Keras, device: str, machine: Machine | None) -> tuple[str, bool, list[str]]:
    """(type of the products, whether they may use TF32, what is priced as something else). It is float32 where the machine's GPUs
    lack an arithmetic."""
    dtype = chosen.precision.removeprefix("mixed_")
    if machine is None or device == "cpu":
        return dtype, device != "cpu" and dtype == "float32" and chosen.tf32 == "on", []
    tf32 = dtype == "float32" and chosen.tf32 == "on" and not machine.lacks("tf32")
    why = machine.lacks(dtype)
    if why:
        return "float32", tf32, [f"{why}: priced as float32"]
    return dtype, tf32, []


def kernels_of(works: list[Work], execution: str, device: str) -> list[StepKernel]:
    return (fusion.compiled if execution == COMPILED else fusion.op_by_op)(works, device)


def work_parts(kernels: list[StepKernel], of: Profile, device: str, execution: str) -> WorkParts:
    """The work of the kernels on the device, with seconds from the profile's rows."""
    timed, cold, partial, lacking = [], dict[str, float](), list[str](), dict[str, Lacking]()
    found: dict[str, list[Estimate]] = {}
    told: dict[str, dict[str, None]] = {}
    rough_seconds: dict[str, float] = {}
    moved = sum(k.problem.bytes_moved for k in kernels if k.problem)  # each counted by itself, once
    rate = operations.bandwidth(of, device, moved)
    for k in kernels:
        if k.problem is None:
            if k.why:
                partial.append(f"{k.name}: {k.why}")
            continue
        reader = operations.pass_seconds if isinstance(k.problem, Stream) else operations.product
        read = reader(of, k.problem, device, execution)
        if read is None:
            lacking[k.part] = Lacking(f"no {k.problem.op} rows of {device}", [profile.command(k.problem, device)])
            continue
        seconds = read.seconds * k.times
        if k.rough:
            seconds = seconds * within_factor(1.0, UNLIKE)
            rough_seconds[k.rough] = rough_seconds.get(k.rough, 0.0) + seconds.value
        cold[k.name] = _moved(k, execution) / rate if rate and k.times == 1 else 0.0
        if cold[k.name] > seconds.value:
            seconds = Estimate(cold[k.name], min(cold[k.name], seconds.low), max(cold[k.name], seconds.high))
        found.setdefault(k.part, []).append(seconds)
        timed.append((k, seconds.value))
        told.setdefault(k.part, {})[read.source] = None
        if read.instead:
            partial.append(f"{k.part}: {read.instead}")
    sums = {part: total(each) for part, each in found.items()}
    read_from = {part: ", ".join(names) for part, names in told.items()}
    at_once = device == "cpu" and execution == OP_BY_OP
    path = _path(timed, cold, of, device) if at_once else None
    rough = _rough_work(rough_seconds, sum(seconds for _, seconds in timed))
    return WorkParts(sums, read_from, partial, lacking, path, rough=rough)


def _rough_work(seconds_by_kind: dict[str, float], work_s: float) -> RoughWork | None:
    """The work that no row is of; None where it is too little to matter.

    seconds_by_kind: seconds of such work by its kind. work_s: of all work.
    """
    share = sum(seconds_by_kind.values()) / work_s if work_s > 0 else 0.0
    if share < LEAST_ROUGH:
        return None
    kinds = sorted(seconds_by_kind, key=lambda kind: -seconds_by_kind[kind])
    return RoughWork(share=share, kinds=tuple(kinds[:MOST_KINDS]))


def _moved(k: StepKernel, execution: str) -> float:
    """Bytes that a kernel moves; a formula executed step by step moves those of every step."""
    problem: Problem = k.problem
    fused = execution == COMPILED or not isinstance(problem, Stream)
    return problem.bytes_moved * (1.0 if fused else unfused_traffic(problem.operation))


def _path(timed: Timed, cold: dict[str, float], of: Profile, device: str) -> Path:
    """The path through kernels that may run at once; `cold`: seconds of each at the memory's bandwidth, 0 where a cache holds
    its arrays."""
    each = operations.operating(of, device)
    line = longest(timed, each.value if each else 0.0)
    there, busy = {k.name for k, _ in line}, 0.0
    for k, seconds in timed:
        best = max(cold[k.name], fully_used(k.problem, of, device)) if k.name in there else seconds
        busy += min(seconds, best * k.times)
    return Path(sum(s for _, s in line), busy)


def fully_used(problem: Problem, of: "Profile", device: str) -> float:
    """A lower bound in seconds of a kernel, at the best measured rate: of a product that of any kind of its type, of a pass
    that of one on about as many bytes; infinite without rows."""
    if not isinstance(problem, Stream):
        rate = _best(of, device, problem.dtype)
        return problem.flops / rate if rate else math.inf
    rate = _best(of, device, round(math.log2(problem.bytes_moved) / _NEAR) * _NEAR)
    return problem.bytes_moved * unfused_traffic(problem.operation) / rate if rate else math.inf


@profile.once
def _best(of: "Profile", device: str, alike: str | int) -> float | None:
    """The best rate of products of a dtype, or of passes on about 2^n bytes."""
    if isinstance(alike, str):
        return operations.best_rate(of, device, "matmul", lambda p: p.dtype == alike)
    return operations.best_rate(of, device, "stream", lambda p: abs(math.log2(p.bytes_moved) - alike) <= _NEAR)


def aside_of_the_rest(k: StepKernel) -> bool:
    """Whether no other operation of the step waits for this kernel: true for gradients of weights and for updates."""
    return k.part == "optimizer" or k.direction in ("wgrad", "bias_grad")


def longest(timed: Timed, each: float) -> Timed:
    """The critical path: the longest chain of kernels that wait for each other, with `each` seconds of dispatch an operation.
    A step goes forward, then backward. The gradient of a layer's weights waits for that of its output, the update of a
    variable for its gradient, and nothing waits for either.

    timed: the kernels of a graph that is not compiled with their seconds, forward in the order of the layers.
    """
    layers: dict[str, list] = {k.layer: [] for k, _ in timed}
    for k, seconds in timed:
        layers[k.layer].append((k, seconds))
    begun = [(k, s) for k, s in timed if not (aside_of_the_rest(k) or _backward(k))]
    lines = []
    for own in reversed(layers.values()):
        back, learned = [(k, s) for k, s in own if _backward(k)], [(k, s) for k, s in own if aside_of_the_rest(k)]
        here = [*begun, *((k, s) for k, s in back if k.direction != "dgrad")]
        begun = [*begun, *back]
        for variable in dict.fromkeys(_variable(k) for k, _ in learned):
            lines.append([*here, *((k, s) for k, s in learned if _variable(k) == variable)])
    return max([*lines, begun], key=lambda line: sum(s + each * k.operations * k.times for k, s in line))


def _variable(k: StepKernel) -> str:
    """The variable that a kernel off the critical chain updates or derives: `kernel`, `bias` ..."""
    return {"wgrad": "kernel", "bias_grad": "bias"}.get(k.direction, k.direction.rpartition(" ")[2])


def _backward(k: StepKernel) -> bool:
    """Whether a kernel belongs to the backward pass and others wait for it."""
    return is_backward(k.direction) and not aside_of_the_rest(k)


class UnknownShare(msgspec.Struct, frozen=True):
    """The layers of unknown kinds: their names in words, and their share of a step's FLOPs and bytes, by weights and outputs."""

    names: str
    arithmetic: float
    moved: float

    @property
    def most(self) -> bool:
        """Whether unknown layers are more than half of a step's arithmetic, so that its time is a guess."""
        return self.arithmetic > 0.5

    @property
    def words(self) -> str:
        share = f"about {percent(self.arithmetic)} of a step's arithmetic and {percent(self.moved)} of its bytes"
        return f"{self.names}: nothing here knows them; estimated from weights and outputs, {share}"


def unknown_share(network: Network, batch: int) -> UnknownShare | None:
    """The layers of unknown kinds in a step of `batch` samples, with their share of it; None if every kind is known."""
    layers = unknown(network)
    if not layers:
        return None
    kinds, names = group_by(layers, lambda layer: layer.kind), {layer.name for layer in layers}
    works = [w for w in networks.step(network, batch) if w.problem]
    own = [w for w in works if w.layer in names]
    shares = (
        sum(map(of, own)) / max(1, sum(map(of, works))) for of in (lambda w: w.flops, lambda w: w.problem.bytes_moved)
    )
    said = (f"{own[0].name} ({kind})" if len(own) == 1 else f"{len(own)} {kind} layers" for kind, own in kinds.items())
    return UnknownShare(join(said), *shares)
