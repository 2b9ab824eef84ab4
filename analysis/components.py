"""What a training's step is made of, each with its seconds from a profile: before anything is combined or calibrated.

The rules by which parts are counted have names, so that an ablation can leave one out (RULES).
"""

from math import prod
from typing import TYPE_CHECKING

import msgspec

from analysis import fusion, sources
from analysis.estimate import Estimate, median
from analysis.holding import holding
from analysis.paths import Path, aside_of_the_rest, fully_used, last_learned
from analysis.profile import Lacking, Profile
from analysis.sources import COMPILED, OP_BY_OP
from kernels import networks
from kernels.layers import Layer, Network
from kernels.problems import Matmul, Stream, Training
from kernels.steps import Work
from workloads import switches
from workloads.results import Row, Settings

if TYPE_CHECKING:
    from analysis.fusion import Kernel

FIT, TENSORFLOW_LOOP = "training/keras/fit", "training/tensorflow/loop"
RULE_WORDS = {
    "first dgrad": "no gradient by the images for the first layer",
    "fused": "element-wise passes fused as XLA does where it compiles",
    "element-wise": "biases, activations, pooling, dropout and loss counted",
    "optimizer": "the optimizer's passes counted",
    "operations": "a dispatch for each operation of a graph that is not compiled, a launch for each kernel of one that is",
    "cold": "passes and products at the memory's bandwidth where the step's arrays are larger than the last cache",
    "chain": "operations of a graph on the CPU that do not wait for each other run at once",
    "copies": "the batch copied to the GPU",
    "pipeline": "the input pipeline gathers the batch meanwhile",
    "at once": "host, device and input pipeline work at the same time",
    "calibrated": "the global numbers fitted on other models' trainings",
}
RULES = frozenset(RULE_WORDS)
_NONE = Estimate(0.0, 0.0, 0.0)
_TINY = Network("tiny", "", (1,), 1, (Layer("dense", "dense", 1),), "sgd", "mean_squared_error")  # of keras-step
_LABEL_BYTES = 8
_PRICED = "adam"  # what an optimizer without a stream problem is priced as


class WorkParts(msgspec.Struct, frozen=True):
    """Part -> seconds of the kernels on the device; what they are read from; the path through them, where they may run at
    once."""

    parts: dict[str, Estimate]
    sources: dict[str, str]
    path: Path | None


class Components(msgspec.Struct, frozen=True):
    """The seconds of a step's parts as the profile has them. dispatch: of a Keras step with almost no work, without its copies;
    operations: of the graph (op by op) or kernels (compiled) beyond that small step's; launches: what issuing them takes.
    parts: the device's work by part, the input pipeline, copies. lacking: the parts that the profile has no rows for,
    in whole or for some of their kernels, and what to measure. sources: what the work's parts are read from. given: the
    switches that are not their default. products: different products and convolutions; cast_bytes: of the samples that a fit
    casts to float32."""

    training: Training
    execution: str
    on_gpu: bool
    dispatch: Estimate
    operations: int
    launches: Estimate
    parts: dict[str, Estimate]
    epoch_s: Estimate
    fit_s: Estimate
    compile_s: Estimate
    start_s: Estimate
    kernels: int
    partial: tuple[str, ...]
    lacking: dict[str, Lacking] = {}
    sources: dict[str, str] = {}
    gathered_s: Estimate = _NONE
    products: int = 0
    cast_bytes: int = 0
    given: tuple[tuple[str, str], ...] = ()
    path: Path | None = None


def execution_of(settings: Settings) -> str:
    """How Keras runs a step by the resolved jit_compile: by itself it compiles where TensorFlow sees a GPU."""
    jit = settings.switches.get("jit_compile", "auto")
    if jit == "auto":
        return COMPILED if settings.device != "cpu" or settings.switches.get("gpu") == "visible" else OP_BY_OP
    return COMPILED if jit == "on" else OP_BY_OP


def _given(settings: Settings) -> tuple[tuple[str, str], ...]:
    """The switches that a step may depend on beside its execution."""
    return tuple(sorted((n, t) for n, t in settings.switches.items() if n not in ("data", "jit_compile", "gpu")))


def components(training: Training, settings: Settings, of: Profile, network: Network, rules: frozenset[str] = RULES,
               kernel: str = FIT) -> Components:  # fmt: skip
    """The components of a training's step, epoch, fit and start; `kernel`: what trains (Keras's fit, or a bare loop)."""
    chosen, execution, device = switches.of(Row(kernel, training, settings)), execution_of(settings), settings.device
    batch, partial, lacking = min(training.batch, training.samples), [], {}
    kernels = kernels_of(step_works(network, batch, chosen, device, partial, rules), execution, device, rules)
    work = _work_parts(kernels, of, device, execution, partial, lacking, rules)
    parts = work.parts
    try:
        dispatch = dispatch_of(of, device, execution, kernel, int(chosen["steps_per_execution"]))
    except Lacking as error:
        dispatch, lacking["dispatch"] = _NONE, error
    try:
        copies = _copies(of, network, batch, chosen) if device != "cpu" and "copies" in rules else {}
    except Lacking as error:
        copies, lacking["transfer calls"] = {}, error
    if copies and kernel == FIT:  # a Keras step with almost no work has them in it
        calls = min(copies["transfer calls"].value, dispatch.value)
        copies["transfer calls"] = Estimate(calls, calls, calls)
        dispatch = Estimate(dispatch.value - calls, dispatch.low - calls, dispatch.high - calls)
    count, launches = _launches(kernels, of, device, execution) if "operations" in rules else (0, _NONE)
    if settings.threads:
        partial.append(f"its {settings.threads} threads: the profile's rows are of as many as TensorFlow takes")
    fits = kernel == FIT
    return Components(
        training, execution, device != "cpu", dispatch, count, launches,
        {**copies, **parts, **(_pipeline(of, network, batch, chosen, rules) if fits else {})},
        _epoch(of, device, execution) if fits else _NONE, _fit(of, device, execution) if fits else _NONE,
        _compile(of, device, execution), _start(of, device), fusion.count(kernels), tuple(dict.fromkeys(partial)), lacking,
        work.sources,
        _gathered(of, network, training, chosen, device) if fits else _NONE,
        len({k.problem for k in kernels if k.part in ("matmul", "conv")}), _cast_bytes(network, training), _given(settings),
        work.path,
    )  # fmt: skip


def step_works(network: Network, batch: int, chosen: dict[str, str], device: str, partial: list[str],
               rules: frozenset[str] = RULES) -> list[Work]:  # fmt: skip
    """The operations of a step under its switches; what stands for something else is said in `partial`."""
    dtype = chosen["precision"].removeprefix("mixed_")
    tf32 = device != "cpu" and dtype == "float32" and chosen["tf32"] == "on"
    if network.optimizer not in Stream.WEIGHTS:
        partial.append(f"the optimizer {network.optimizer}, priced as {_PRICED}")
        network = msgspec.structs.replace(network, optimizer=_PRICED)
    if chosen["dropout"] == "off":
        network = msgspec.structs.replace(network, layers=tuple(
            msgspec.structs.replace(la, rate=0.0) if la.kind == "dropout" else la for la in network.layers))  # fmt: skip
    works = list(networks.step(network, batch, dtype, "tf32" if tf32 else ""))
    dropped = {la.name for la in network.layers if la.kind == "dropout" and not la.rate}
    works = [w for w in works if w.layer not in dropped]
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
    made = fusion.compiled(works, device) if execution == COMPILED and "fused" in rules else fusion.op_by_op(works)
    left_out = {part for part in ("element-wise", "optimizer") if part not in rules}
    return [k for k in made if k.part not in left_out]


def _work_parts(kernels: "list[Kernel]", of: Profile, device: str, execution: str, partial: list[str],
                lacking: dict[str, Lacking], rules: frozenset[str],
                ) -> WorkParts:  # fmt: skip
    """The work of the kernels on the device; `lacking` gets the parts that no row tells."""
    at_once = "chain" in rules and device == "cpu" and execution == OP_BY_OP
    last, on_path, aside, busy = last_learned(kernels), 0.0, 0, 0.0
    found: dict[str, list[Estimate]] = {}
    told: dict[str, dict[str, None]] = {}
    least = of.memory_bandwidth(device, fusion.working_set(kernels)) if "cold" in rules else None
    for k in kernels:
        if k.problem is None:
            partial.append(f"{k.name}: {k.why}")
            continue
        read = (of.passing if isinstance(k.problem, Stream) else of.product)(k.problem, device, execution)
        if read is None:
            lacking[k.part] = Lacking(f"no {k.problem.op} rows of {device}", [sources.command(k.problem, device)])
            continue
        seconds = read.seconds
        if least:
            cold = k.problem.bytes_moved / least
            if cold > seconds.value:
                seconds = Estimate(cold, min(cold, seconds.low), max(cold, seconds.high))
        found.setdefault(k.part, []).append(seconds)
        if aside_of_the_rest(k) and k.name not in last:
            aside += k.operations
        else:
            on_path += seconds.value
        busy += min(seconds.value, fully_used(k.problem, of, device))
        told.setdefault(k.part, {})[read.source] = None
        if read.instead:
            partial.append(f"{k.part}: {read.instead}")
    sums = {part: _sum(each) for part, each in found.items()}
    read_from = {part: ", ".join(names) for part, names in told.items()}
    return WorkParts(sums, read_from, Path(on_path, aside, busy) if at_once else None)


def _sum(each: list[Estimate]) -> Estimate:
    """The sum of independent errors: they add as squares."""
    value = sum(e.value for e in each)
    low, high = (sum(((e.value - e.low) if i else (e.high - e.value)) ** 2 for e in each) ** 0.5 for i in (1, 0))
    return Estimate(value, max(0.0, value - low), value + high)


def dispatch_of(of: Profile, device: str, execution: str, kernel: str = FIT, steps_per_execution: int = 1) -> Estimate:
    """Seconds that a step with almost no work takes: of Keras, of which several steps in one call share the call; of a bare loop
    of TensorFlow, a call.

    Raises: Lacking without such rows.
    """
    jit = "on" if execution == COMPILED else "off"
    name = "tf-jit-call" if jit == "on" else "tf-function-call"
    call = of.constant(name, device)
    if kernel == FIT:
        found = of.step_floor(device, jit)
    elif kernel == TENSORFLOW_LOOP:  # which waits for a GPU at its end alone
        found = call if device == "cpu" else of.constant(name, device, clock="host-throughput")
    else:
        found = None
    if found is None:
        raise Lacking(f"no step with almost no work on {device}", [sources.launches(device)])
    if steps_per_execution > 1:
        shared = max(0.0, found.value - (call.value if call else 0.0)) * (1 - 1 / steps_per_execution)
        found = Estimate(found.value - shared, found.low - shared, found.high - shared)
    return found


def _launches(kernels: "list[Kernel]", of: Profile, device: str, execution: str) -> tuple[int, Estimate]:
    """(operations of the graph, or kernels where it is compiled, beyond those of the small step; the seconds that the host takes
    to issue them by the profile): a GPU's products and convolutions as libraries are issued, all else as a launch."""
    small = kernels_of(list(networks.step(_TINY, 1)), execution, device)
    if execution == OP_BY_OP:
        each, count = of.operating(device) or _NONE, fusion.operations
    else:
        each = of.constant("kernel-launch", device, clock="host-throughput") if device != "cpu" else None
        each, count = each or _NONE, fusion.count
    beyond = count(kernels) - count(small)
    seconds = max(0.0, beyond * each.value)
    for op in ("matmul", "conv") if device != "cpu" else ():
        issued = sum(k.part == op for k in kernels) - sum(k.part == op for k in small)
        seconds += issued * max(0.0, (of.issuing(op, device) or 0.0) - each.value)
    wide = abs(beyond) * (each.high - each.low) / 2
    return beyond, Estimate(seconds, max(0.0, seconds - wide), seconds + wide)


def _copies(of: Profile, network: Network, batch: int, chosen: dict[str, str]) -> dict[str, Estimate]:
    """Calls and bytes of the copies of a batch and its labels, from pageable memory."""
    if chosen["residence"] == "resident":
        return {}
    sizes = (batch * networks.sample_bytes(network), batch * _LABEL_BYTES)
    one = of.copying(4, "gpu:0")
    if one is None:
        raise Lacking("no copies to the GPU", ["python -m workloads.transfer --backends tensorflow --direction h2d"])
    whole = [of.copying(n, "gpu:0") for n in sizes]
    beyond = sum(max(0.0, e.value - one.value) for e in whole)
    wide = sum(e.high - e.low for e in whole) / 2
    return {
        "transfer calls": one.scaled(len(sizes)),
        "transfer bytes": Estimate(beyond, max(0.0, beyond - wide), beyond + wide),
    }


def _pipeline(
    of: Profile, network: Network, batch: int, chosen: dict[str, str], rules: frozenset[str]
) -> dict[str, Estimate]:
    """The gathering of a batch from the shuffled samples, in threads of its own."""
    if "pipeline" not in rules or chosen["residence"] == "resident":
        return {}
    nbytes = 2 * batch * networks.sample_bytes(network)
    read = of.passing(Stream("copy", nbytes, "float32"), "cpu", OP_BY_OP)
    return {"input pipeline": read.seconds} if read else {}


def _epoch(of: Profile, device: str, execution: str) -> Estimate:
    jit = "on" if execution == COMPILED else "off"
    return of.constant("keras-epoch", device, jit) or of.constant("keras-epoch", device) or _NONE


def _fit(of: Profile, device: str, execution: str) -> Estimate:
    """A call of fit, its samples apart."""
    jit = "on" if execution == COMPILED else "off"
    return of.constant("keras-fit", device, jit) or of.constant("keras-fit", device) or _NONE


def _gathered(of: Profile, network: Network, training: Training, chosen: dict[str, str], device: str) -> Estimate:
    """What a fit does with the samples of a NumPy array before its first epoch: they are held in a tf.data set, those of another
    type after they were read and written once in float32."""
    if chosen["residence"] != "numpy":
        return _NONE
    held = training.samples * prod(network.input) * 4
    found = [holding(of, held, device)]
    if found[0] is None or training.dtype != "float32":
        nbytes = training.samples * networks.sample_bytes(network, training.dtype) + held
        read = of.passing(Stream("copy", max(8, nbytes), "float32"), "cpu", OP_BY_OP)
        found.append(read.seconds if read else None)
    return _sum([e for e in found if e])


def _cast_bytes(network: Network, training: Training) -> int:
    """Bytes of the samples, where they are of another type than float32."""
    return training.samples * networks.sample_bytes(network, training.dtype) if training.dtype != "float32" else 0


def _compile(of: Profile, device: str, execution: str) -> Estimate:
    """A first compilation of the small model."""
    jit = "on" if execution == COMPILED else "off"
    return (of.constant("compile-keras", device) or of.constant("compile-tensorflow", device, jit)
            or of.constant("compile-tensorflow", "cpu", jit) or _NONE)  # fmt: skip


def _start(of: Profile, device: str) -> Estimate:
    """Import and start of the device: of any training of the device, as neither knows of its model; else of launch rows."""
    seen = [m.phases_s["import"] + m.phases_s.get("device_start", 0.0) for m in of.trainings
            if m.settings.device == device and "import" in m.phases_s]  # fmt: skip
    if seen:
        return median(seen)
    found = [e for e in (of.constant("import-tensorflow", "cpu"), of.constant("device-start-tensorflow", device)) if e]
    return Estimate(sum(e.value for e in found), sum(e.low for e in found), sum(e.high for e in found))


__all__ = ["COMPILED", "OP_BY_OP", "RULES", "RULE_WORDS", "Components", "Lacking", "components", "dispatch_of", "execution_of",
           "kernels_of", "step_works"]  # fmt: skip
