"""The components of a training's step, each with its seconds from a profile, before they are combined or calibrated.

Device work is in `step_work`; here are the host's overheads around it, and the costs that occur once.
"""

from math import log2, prod

import msgspec

from analysis.predict import operations, profile
from analysis.predict.curves import Curve, curve, measured_pass
from analysis.predict.profile import COMPILED, JIT, OP_BY_OP, Lacking, Profile, once
from analysis.predict.step_kernels import step_kernel
from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.predict.step_work import Path, RoughWork, kernels_of, step_kernels, work_parts
from analysis.stats import NOTHING, Estimate, exact, independent_sum, middle, plus_minus, total, within_factor
from analysis.training import costs, feeding
from analysis.training.costs import FIT
from kernels import networks
from kernels.networks.layers import Layer, Network
from kernels.problems import Conv, Matmul, Stream, Training
from workloads.records import Row, Settings
from workloads.records import settings as switches
from workloads.records.switches import Keras

TENSORFLOW_LOOP = "training/tensorflow/loop"
_TINY = Network("tiny", "", (1,), 1, (Layer("dense", "dense", 1),), "sgd", "mean_squared_error")  # of keras-step
_LABEL_BYTES = 8
_TELLING = 4 << 20  # bytes: of fewer, making the set is most of it, and that is a fit's constant
_NOT_OF_STEPS = ("data", "jit_compile", "gpu")  # these options change a step only through its execution


class Components(msgspec.Struct, frozen=True):
    """The seconds of a step's parts as the profile has them. dispatch: of a Keras step with almost no work, without its copies;
    operations: of the graph (op by op) or kernels (compiled) beyond that small step's; launches: what issuing them takes.
    parts: the device's work by part, the input pipeline, copies. lacking: the parts that the profile has no rows for,
    in whole or for some of their kernels, and what to measure. sources: what the work's parts are read from. given: the
    switches that are not their default. traced: what a compilation grows with: the sizes (logarithms) of the different
    products and convolutions that XLA compiles, or the operations of a graph that is traced and laid out. host_feeds: the host
    waits for the input pipeline, whose seconds are those of a GPU's measured law. On a CPU that costs nothing beside the step:
    with its law, 60 steps of an H200's host were predicted 18 % off in the mean, without it 15 %."""

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
    setup_s: Estimate = NOTHING
    traced: float = 0.0
    host_feeds: bool = False
    given: tuple[tuple[str, str], ...] = ()
    path: Path | None = None
    rough: RoughWork | None = None


def execution_of(settings: Settings) -> str:
    """How Keras runs a step, compiled or op by op, by its jit_compile option; `auto` compiles where TensorFlow sees a GPU."""
    return COMPILED if costs.compiles(settings) else OP_BY_OP


def components(training: Training, settings: Settings, of: Profile, network: Network, kernel: str = FIT) -> Components:
    """The components of a training's step, epoch, fit and start; `kernel`: what trains (Keras's fit, or a bare loop)."""
    chosen, execution, device = (
        switches.checked_keras(Row(kernel, training, settings)),
        execution_of(settings),
        settings.device,
    )
    batch, fits = min(training.batch, training.samples), kernel == FIT
    kernels, partial = step_kernels(network, batch, chosen, device=device, execution=execution, machine=of.machine)
    work = work_parts(kernels, of, device, execution)
    partial, lacking = [*partial, *work.partial], dict(work.lacking)
    if settings.threads:
        partial.append(f"its {settings.threads} threads: the profile's rows are of as many as TensorFlow takes")
    try:
        dispatch = dispatch_of(of, device, execution, kernel, chosen.steps_per_execution)
    except Lacking as error:
        dispatch, lacking["dispatch"] = NOTHING, error
    added = (
        feeding.batch_seconds(_laws(of), device, chosen.residence, training, network)
        if fits and device != "cpu"
        else None
    )
    try:
        copies = _copies(of, network, batch, chosen) if device != "cpu" else {}
    except Lacking as error:
        copies, lacking["transfer calls"] = {}, error
    if copies and fits:  # a Keras step with almost no work has them in it
        calls = min(copies["transfer calls"].value, dispatch.value)
        copies["transfer calls"] = exact(calls)
        dispatch = dispatch - calls
    if added:
        copies.pop("transfer bytes", None)
        copies["input pipeline"] = added
    count, launches = _launches(kernels, of, device, execution)
    return Components(
        training,
        execution,
        device != "cpu",
        dispatch,
        count,
        launches,
        {**copies, **work.parts},
        _constant("keras-epoch", of, device, execution) if fits else NOTHING,
        _constant("keras-fit", of, device, execution) if fits else NOTHING,
        _compile(of, device, execution),
        _start(of, device),
        step_kernel.launches(kernels),
        tuple(dict.fromkeys(partial)),
        lacking,
        work.sources,
        _setup(of, network, training, device) if fits and chosen.residence == "numpy" else NOTHING,
        _traced(kernels, execution),
        bool(added) and chosen.residence != "prefetch",
        tuple(sorted((n, t) for n, t in settings.switches.items() if n not in _NOT_OF_STEPS)),
        work.path,
        work.rough,
    )


def _traced(kernels: list[StepKernel], execution: str) -> float:
    """The amount of work in a compilation (Components.traced). XLA tries the kernels whose tiles fit into each distinct
    product; their number grows with the logarithms of its sizes. Of a convolution only the filters count, as its images are
    always more than a tile."""
    if execution == OP_BY_OP:
        return sum(k.operations for k in kernels)  # a loop's are traced once
    sizes = []
    tiled = [kernel.problem for kernel in kernels if kernel.part in ("matmul", "conv")]
    for problem in dict.fromkeys(tiled):
        if isinstance(problem, Matmul):
            sizes.append(problem.m * problem.n * problem.k)
        elif isinstance(problem, Conv):
            sizes.append(problem.c_in // problem.groups * problem.c_out * problem.r * problem.s)
    return sum(log2(max(2, size)) for size in sizes)


def dispatch_of(of: Profile, device: str, execution: str, kernel: str = FIT, steps_per_execution: int = 1) -> Estimate:
    """Seconds of a step with almost no work. In Keras, several steps in one call share the overhead of the call; for a bare
    TensorFlow loop it is the call's overhead.

    Raises: Lacking without such rows.
    """
    name = profile.CALLS[profile.VARIANTS[execution]]
    call = of.constant(name, device)
    if kernel == FIT:
        found = of.step_floor(device, JIT[execution]) or of.step_floor(device, "on" if execution == OP_BY_OP else "off")
    elif kernel == TENSORFLOW_LOOP:  # which waits for a GPU at its end alone
        found = of.constant(name, device, clock=profile.clock(device))
    else:
        found = None
    if found is None:
        raise Lacking(f"no step with almost no work on {device}", [profile.launches(device)])
    if steps_per_execution > 1:
        shared = max(0.0, found.value - (call.value if call else 0.0)) * (1 - 1 / steps_per_execution)
        found = found - shared
    return found


def _launches(kernels: list[StepKernel], of: Profile, device: str, execution: str) -> tuple[int, Estimate]:
    """(operations of the graph, or kernels if it is compiled, beyond those of the small step; seconds that the host takes to
    issue them). On a GPU, products and convolutions cost what library calls do, all else a launch; op by op, an operation that
    launches nothing costs what one does on the CPU."""
    small = kernels_of(list(networks.step(_TINY, 1)), execution, device)
    launch = of.constant("kernel-launch", device, clock="host-throughput") if device != "cpu" else None
    on_host = (operations.operating(of, "cpu") or NOTHING).value
    unlaunched = 0
    if execution == OP_BY_OP:
        each = _launching(of, device) if device != "cpu" else exact(on_host)
        unlaunched = step_kernel.operations_outside_loops(kernel for kernel in kernels if kernel.launches == 0)
        beyond = (
            step_kernel.operations_outside_loops(kernels) - unlaunched - step_kernel.operations_outside_loops(small)
        )
    else:
        each, beyond = exact((launch or NOTHING).value), step_kernel.launches(kernels) - step_kernel.launches(small)
    seconds = (each * beyond).at_least(0.0) + unlaunched * on_host
    for op in ("matmul", "conv") if device != "cpu" else ():
        issued = sum(k.part == op and k.times == 1 for k in kernels) - sum(k.part == op for k in small)
        seconds += issued * max(0.0, (of.issuing(op, device) or 0.0) - each.value)
    loops = step_kernel.operations_in_loops(kernels) if execution == OP_BY_OP else 0
    # In a loop on a GPU an operation costs what it costs outside, in cuDNN's too: with a launch alone three recurrent models were
    # predicted 1.3 to 1.8 times too short (reports/nvidia-h200/bench-example_models.md).
    one = of.constant("tf-op-in-function", device) if device == "cpu" else None
    handed = (one if one and one.value > 0 else each).at_least(0.0) * loops  # rows of one may be too noisy to tell
    return beyond + loops, handed + seconds


def _launching(source: Profile, device: str) -> Estimate:
    """Seconds of one more operation on a GPU in a graph that is not compiled: by formulas of more operations, within the factor
    by which a chain of one more addition differs from it."""
    by_formulas = operations.operating(source, device)
    in_a_chain = source.constant("tf-op-in-function", device, clock=profile.clock(device))
    if by_formulas is None or by_formulas.value <= 0:
        return in_a_chain or exact((operations.operating(source, "cpu") or NOTHING).value)
    if in_a_chain is None or in_a_chain.value <= 0:
        return by_formulas
    ratio = by_formulas.value / in_a_chain.value
    return within_factor(by_formulas.value, max(ratio, 1 / ratio))


def _copies(of: Profile, network: Network, batch: int, chosen: Keras) -> dict[str, Estimate]:
    """Calls and bytes of the copies of a batch and its labels, from pageable memory."""
    if chosen.residence == "resident":
        return {}
    sizes = (batch * networks.sample_bytes(network), batch * _LABEL_BYTES)
    one = of.copying(4, "gpu:0")
    if one is None:
        raise Lacking("no copies to the GPU", ["python -m workloads.transfer --backends tensorflow --direction h2d"])
    whole = [e for n in sizes if (e := of.copying(n, "gpu:0"))]
    beyond = sum(max(0.0, e.value - one.value) for e in whole)
    wide = sum(e.high - e.low for e in whole) / 2
    return {"transfer calls": one * len(sizes), "transfer bytes": plus_minus(beyond, wide).at_least(0.0)}


@once
def _laws(of: Profile) -> tuple[feeding.Law, ...]:
    """The laws for the seconds that a batch's input pipeline takes, fitted to the feeding study's rows."""
    return feeding.laws(of.measurements)


def _constant(name: str, of: Profile, device: str, execution: str) -> Estimate:
    """Seconds of a Keras constant (an epoch, a call of fit) for this execution, else for any; 0 without a row."""
    return of.constant(name, device, JIT[execution]) or of.constant(name, device) or NOTHING


def _setup(of: Profile, network: Network, training: Training, device: str) -> Estimate:
    """Seconds that a fit takes to make a tf.data set from samples in a NumPy array. Types other than float32 are cast first:
    one pass that reads and writes them. Making the set counts as one such pass too if no row measured it."""
    nbytes = training.samples * prod(network.input) * 4
    made, found = _sets(of, device), []
    if made:
        found.append(made.seconds_of_bytes(nbytes))
    if not made or training.dtype != "float32":
        moved = training.samples * networks.sample_bytes(network, training.dtype) + nbytes
        read = operations.pass_seconds(of, Stream("copy", max(8, moved), "float32"), "cpu", OP_BY_OP)
        found += [read.seconds] if read else []
    return independent_sum(found)


@once
def _sets(of: Profile, device: str) -> Curve | None:
    """Seconds of making a tf.data set, as a curve over the samples' bytes; None without rows."""
    rows = (
        (m.problem.nbytes / 2, m)
        for m in of.measurements
        if m.kernel == profile.DATA_SET and m.device == device and m.ok and m.samples
    )
    return curve((measured_pass(n, middle(m.samples[0])) for n, m in rows if n > _TELLING), False)


def _compile(of: Profile, device: str, execution: str) -> Estimate:
    """A first compilation of the small model."""
    jit = JIT[execution]
    return (
        of.constant("compile-keras", device)
        or of.constant("compile-tensorflow", device, jit)
        or of.constant("compile-tensorflow", "cpu", jit)
        or NOTHING
    )


@once
def _start(of: Profile, device: str) -> Estimate:
    """Seconds of importing the library and starting the device: from any training on the device, as these do not depend on the
    model; else from launch rows."""
    began = [m for m in of.trainings if m.device == device]
    found = costs.start(began[0], of.trainings) if began else None
    return found or total((of.constant("import-tensorflow", "cpu"), of.constant("device-start-tensorflow", device)))
