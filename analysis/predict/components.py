"""The components of a training's step, each with its seconds from a profile, before they are combined or calibrated."""

import msgspec

from analysis.predict.critical_path import Path
from analysis.predict.host_parts import host_parts, issued_beyond_small_step
from analysis.predict.network_kernels import step_kernels
from analysis.predict.one_time_costs import compiled_work, data_set_setup, small_compilation, start
from analysis.predict.profile import COMPILED, JIT, OP_BY_OP, Lacking, Profile
from analysis.predict.step_kernels import step_kernel
from analysis.predict.step_work import RoughWork, work_parts
from analysis.stats import NOTHING, Estimate
from analysis.training import costs
from analysis.training.costs import FIT
from kernels.networks import Network
from kernels.problems import Training
from workloads.records import Row, Settings, settings

#: Options that change a step only through its execution.
_NOT_OF_STEPS = ("data", "jit_compile", "gpu")


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of a step's parts as the profile has them, and of what happens once."""

    training: Training
    #: compiled or op by op.
    execution: str
    on_gpu: bool
    #: A Keras step with almost no work, without its copies.
    dispatch: Estimate
    #: Operations of the graph (op by op) or kernels (compiled) beyond those of that small step.
    operations: int
    #: What issuing them takes.
    launches: Estimate
    #: Part -> seconds: the device's work, the input pipeline, copies.
    parts: dict[str, Estimate]
    #: An epoch beyond its steps.
    epoch_s: Estimate
    #: A fit beyond its epochs.
    fit_s: Estimate
    #: A compilation of the small step.
    compile_s: Estimate
    #: Importing the library and starting the device.
    start_s: Estimate
    #: Kernels that a step launches.
    kernels: int
    #: What stands for something else, or for nothing, in words.
    partial: tuple[str, ...]
    #: Part without rows, in whole or for some of its kernels -> what to measure.
    lacking: dict[str, Lacking] = {}
    #: Part of the device's work -> the rows that its seconds are read from, in words.
    sources: dict[str, str] = {}
    #: Making the data set from its arrays, before the first epoch.
    setup_s: Estimate = NOTHING
    #: What a compilation grows with: the sizes (logarithms) of the different products and convolutions that XLA compiles, or the
    #: operations of a graph that is traced and laid out.
    traced: float = 0.0
    #: Whether the host waits for the input pipeline, whose seconds are those of a GPU's measured law. On a CPU that costs nothing
    #: beside the step: with its law, 60 steps of an H200's host were predicted 18 % off in the mean, without it 15 %.
    host_feeds: bool = False
    #: Options that are not their default and matter to a step: (name, value).
    options: tuple[tuple[str, str], ...] = ()
    #: The critical path where operations overlap.
    path: Path | None = None
    #: The work that no row is of.
    rough: RoughWork | None = None


def execution_of(chosen: Settings) -> str:
    """How Keras runs a step with these settings: COMPILED or OP_BY_OP."""
    return COMPILED if costs.compiles(chosen) else OP_BY_OP


def components(
    training: Training, chosen: Settings, profile: Profile, network: Network, kernel: str = FIT
) -> Components:
    """The predicted seconds of a training's parts before calibration: of a step, and of what happens once in an epoch, a fit and
    a process.

    chosen: the training's settings. kernel: what trains: Keras's fit (FIT), or a bare loop. Parts without rows are in `lacking`.
    """
    options = settings.checked_keras(Row(kernel, training, chosen))
    execution = execution_of(chosen)
    device = chosen.device
    batch = min(training.batch, training.samples)
    kernels, substitutions = step_kernels(
        network, batch, options, device=device, execution=execution, machine=profile.machine
    )
    work = work_parts(kernels, profile, device, execution)
    host = host_parts(training, options, profile, network, device=device, execution=execution, kernel=kernel)
    issued = issued_beyond_small_step(kernels, profile, device, execution)
    partial = [*substitutions, *work.partial]
    if chosen.threads:
        partial.append(f"its {chosen.threads} threads: the profile's rows are of as many as TensorFlow takes")
    epoch_s = NOTHING
    fit_s = NOTHING
    setup_s = NOTHING
    if kernel == FIT:
        epoch_s = _constant("keras-epoch", profile, device, execution)
        fit_s = _constant("keras-fit", profile, device, execution)
        if options.residence == "numpy":
            setup_s = data_set_setup(profile, network, training, device)
    return Components(
        training=training,
        execution=execution,
        on_gpu=device != "cpu",
        dispatch=host.dispatch,
        operations=issued.count,
        launches=issued.seconds,
        parts={**host.copies, **work.parts},
        epoch_s=epoch_s,
        fit_s=fit_s,
        compile_s=small_compilation(profile, device, execution),
        start_s=start(profile, device),
        kernels=step_kernel.launches(kernels),
        partial=tuple(dict.fromkeys(partial)),
        lacking={**work.lacking, **host.lacking},
        sources=work.sources,
        setup_s=setup_s,
        traced=compiled_work(kernels, execution),
        host_feeds=host.has_pipeline and options.residence != "prefetch",
        options=_options_of_steps(chosen),
        path=work.path,
        rough=work.rough,
    )


def _constant(name: str, profile: Profile, device: str, execution: str) -> Estimate:
    """Seconds of a Keras constant (keras-epoch or keras-fit), measured with this execution if possible, else with any; 0 without
    a row."""
    return profile.constant(name, device, JIT[execution]) or profile.constant(name, device) or NOTHING


def _options_of_steps(chosen: Settings) -> tuple[tuple[str, str], ...]:
    """(name, value) of the options that are not their default and change more of a step than how it is executed."""
    return tuple(sorted((name, value) for name, value in chosen.switches.items() if name not in _NOT_OF_STEPS))
