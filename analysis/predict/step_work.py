"""The work of a step on a device: its operations, the kernels that they come to in an execution, the seconds of each part, and
the path through them where they may run at once.
"""

import math

import msgspec

from analysis.predict import fusion, operations, profile
from analysis.predict.critical_path import Path, Timed, concurrent_dispatches, fully_used, longest
from analysis.predict.fusion import Kernel
from analysis.predict.profile import COMPILED, OP_BY_OP, Lacking, Profile
from analysis.stats import Estimate, independent_sum
from kernels import networks
from kernels.networks import training_step as steps
from kernels.networks.layers import Network
from kernels.networks.training_step import Work
from kernels.problems import Matmul, Problem, Stream
from kernels.problems.arrays import ITEM_BYTES

_PRICED = "adam"  # what an optimizer without a stream problem is priced as

# The rules by which a step's parts are counted and come together, by name, so that an ablation can leave one out.
RULE_WORDS = {
    "first dgrad": "no gradient by the images for the first layer",
    "inside": "rows of operations inside a graph, and what a call takes more than these taken off the others (CPU)",
    "remapped": "bias and activation in their product's kernel where TensorFlow's optimizer puts them there (CPU)",
    "fused": "element-wise passes fused as XLA does where it compiles",
    "element-wise": "biases, activations, pooling, dropout and loss counted",
    "optimizer": "the optimizer's passes counted",
    "operations": "a dispatch for each operation of a graph that is not compiled, a launch for each kernel of one that is",
    "cold": "passes and products at the memory's bandwidth where the step's arrays are larger than the last cache",
    "chain": "operations of a graph on the CPU that do not wait for each other run at once",
    "inline": "short operations dispatched by the thread that finds them ready, long ones by others meanwhile (CPU)",
    "copies": "the batch copied to the GPU",
    "pipeline": "the input pipeline gathers the batch meanwhile",
    "at once": "host, device and input pipeline work at the same time",
    "calibrated": "the global numbers fitted on other models' trainings",
}
RULES = frozenset(RULE_WORDS)


class WorkParts(msgspec.Struct, frozen=True):
    """Part -> seconds of the kernels on the device; what they are read from; the path through them, where they may run at
    once."""

    parts: dict[str, Estimate]
    sources: dict[str, str]
    path: Path | None


def step_works(
    network: Network, batch: int, chosen: dict[str, str], device: str, partial: list[str], rules: frozenset[str] = RULES
) -> list[Work]:
    """The operations of a step under its switches; what stands for something else is said in `partial`."""
    dtype = chosen["precision"].removeprefix("mixed_")
    tf32 = device != "cpu" and dtype == "float32" and chosen["tf32"] == "on"
    if network.optimizer not in Stream.WEIGHTS:
        partial.append(f"the optimizer {network.optimizer}, priced as {_PRICED}")
        network = msgspec.structs.replace(network, optimizer=_PRICED)
    off = chosen["dropout"] == "off"
    dropped = {la.name for la in network.layers if la.kind == "dropout" and (off or not la.rate)}
    works = [w for w in networks.step(network, batch, dtype, "tf32" if tf32 else "") if w.layer not in dropped]
    if "first dgrad" not in rules:
        works += _first_dgrads(works)
    return works


def _first_dgrads(works: list[Work]) -> list[Work]:
    """What the naive count of three products a layer has beyond the step's own."""
    has = {w.layer for w in works if w.direction == "dgrad"}
    first = [w for w in works if w.direction == "fprop" and w.layer not in has and w.problem]
    return [msgspec.structs.replace(w, direction="dgrad", problem=_dgrad(w.problem)) for w in first]


def _dgrad(problem):
    if isinstance(problem, Matmul):
        return msgspec.structs.replace(problem, n=problem.k, k=problem.n, layout="nt")
    return msgspec.structs.replace(problem, direction="dgrad")


def kernels_of(works: list[Work], execution: str, device: str, rules: frozenset[str] = RULES) -> "list[Kernel]":
    """The step's kernels in that execution."""
    if execution == COMPILED and "fused" in rules:
        made = fusion.compiled(works, device)
    else:
        made = fusion.op_by_op(works, device if execution == OP_BY_OP and "remapped" in rules else "")
    left_out = {part for part in ("element-wise", "optimizer") if part not in rules}
    return [k for k in made if k.part not in left_out]


def work_parts(
    kernels: "list[Kernel]",
    of: Profile,
    device: str,
    execution: str,
    partial: list[str],
    lacking: dict[str, Lacking],
    rules: frozenset[str],
) -> WorkParts:
    """The work of the kernels on the device; `lacking` gets the parts that no row tells."""
    timed, cold = [], {}
    found: dict[str, list[Estimate]] = {}
    told: dict[str, dict[str, None]] = {}
    rate = operations.bandwidth(of, device, fusion.working_set(kernels)) if "cold" in rules else None
    for k in (_as_pooled(k, device, execution) for k in kernels):
        if k.problem is None:
            partial.append(f"{k.name}: {k.why}")
            continue
        read = (operations.pass_seconds if isinstance(k.problem, Stream) else operations.product)(
            of, k.problem, device, execution
        )
        if read is None:
            lacking[k.part] = Lacking(f"no {k.problem.op} rows of {device}", [profile.command(k.problem, device)])
            continue
        seconds, cold[k.name] = read.seconds, _moved(k, execution) / rate if rate else 0.0
        if cold[k.name] > seconds.value:
            seconds = Estimate(cold[k.name], min(cold[k.name], seconds.low), max(cold[k.name], seconds.high))
        found.setdefault(k.part, []).append(seconds)
        timed.append((k, seconds.value))
        told.setdefault(k.part, {})[read.source] = None
        if read.instead:
            partial.append(f"{k.part}: {read.instead}")
    sums = {part: independent_sum(each) for part, each in found.items()}
    read_from = {part: ", ".join(names) for part, names in told.items()}
    at_once = "chain" in rules and device == "cpu" and execution == OP_BY_OP
    return WorkParts(sums, read_from, _path(timed, cold, of, device, "inline" in rules) if at_once else None)


def _as_pooled(k: "Kernel", device: str, execution: str) -> "Kernel":
    """A kernel as it is priced: oneDNN's pools of means as those of maxima, of which there are rows; neither is a mere copy.

    Source: oneDNN's pooling primitive, one for both; traces of LeNet's steps.
    """
    what = k.name.rpartition(" ")[2]
    if k.problem is None or device != "cpu" or execution != OP_BY_OP or what not in ("avgpool", "avgpool_grad"):
        return k
    elements = math.ceil(k.problem.nbytes / sum(Stream.WEIGHTS["maxpool"][:2]) / ITEM_BYTES[k.problem.dtype])
    return msgspec.structs.replace(k, problem=steps.stream(what.replace("avg", "max"), elements, k.problem.dtype))


def _moved(k: "Kernel", execution: str) -> float:
    """Bytes that a kernel moves: of a formula that is carried out step by step those of every step."""
    problem: Problem = k.problem
    fused = execution == COMPILED or not isinstance(problem, Stream)
    return problem.bytes_moved * (1.0 if fused else fusion.passes(problem.operation))


def _path(timed: Timed, cold: dict[str, float], of: Profile, device: str, inline: bool) -> Path:
    """The path through kernels that may run at once; `cold`: seconds of each at the memory's bandwidth, 0 where a cache holds
    its arrays."""
    each = operations.operating(of, device)
    line = longest(timed, each.value if each else 0.0)
    there, busy, cores = {k.name for k, _ in line}, 0.0, of.machine.cores if of.machine else 0
    for k, seconds in timed:
        own = fully_used(k.problem, of, device) if k.name in there else _shared(k.problem, of, device)
        share = min(1.0, own / seconds) if seconds > 0 else 1.0
        busy += min(seconds, max(cold[k.name], _whole_cores(share, cores) * seconds))
    return Path(sum(s for _, s in line), concurrent_dispatches(timed, line, inline), busy)


def _whole_cores(share: float, cores: int) -> float:
    """The share of the cores that what reaches that share of their best rate keeps busy at least: whole cores."""
    return math.ceil(share * cores - 1e-9) / cores if cores else share  # a rounding error is no core


def _shared(problem: Problem, of: Profile, device: str) -> float:
    """Seconds of a kernel beside others, where it is known to differ from what it takes by itself."""
    found = operations.together(of, problem, device) if isinstance(problem, Stream) else None
    return math.inf if found is None else found
