"""The rows that an answer uses: a training's own row where its seconds are measured, else those that its prediction reads."""

import math

from analysis.predict import profile
from analysis.predict.components import execution_of
from analysis.predict.curves import NEAREST
from analysis.predict.network_kernels import step_kernels
from analysis.predict.profile import Profile
from kernels import registry
from kernels.networks import Network
from kernels.problems import Conv, Matmul, Problem, Training
from workloads.records import Measurement, Settings


def predicting(training: Training, settings: Settings, network: Network, source: Profile) -> list[Measurement]:
    """The rows of a profile that a prediction of a training reads, on the device of its settings: launches, copies to a GPU, and
    the operations of its step. Each row is listed once.
    """
    device = settings.device
    batch = min(training.batch, training.samples)
    kernels, _ = step_kernels(
        network,
        batch,
        settings.keras,
        device=device,
        execution=execution_of(settings),
        machine=source.machine,
    )
    problems = dict.fromkeys(kernel.problem for kernel in kernels if kernel.problem)
    used = launches(source, device)
    if device != "cpu":
        used += [m for m in source.rows.get(("transfer", device), ()) if m.problem.direction == "h2d"]
    for problem in problems:
        used += _telling(problem, source, device)
    by_identity = {id(m): m for m in used}
    return list(by_identity.values())


def launches(source: Profile, device: str) -> list[Measurement]:
    """The launch rows of frameworks on a device, and on a GPU those of single kernels."""
    backends = ("tensorflow", "keras") if device == "cpu" else ("tensorflow", "keras", "cupy")
    every = source.measurements
    return [m for m in every if m.problem.op == "launch" and m.ok and m.device == device and m.backend in backends]


def _telling(problem: Problem, source: Profile, device: str) -> list[Measurement]:
    """The rows that a problem's time is read from: those of the problem itself; without any, the NEAREST rows of its kind,
    between which predictions interpolate.
    """
    rows = [m for m in source.rows.get((problem.op, device), ()) if m.settings.cache == "warm" and _is_read(m)]
    same = [m for m in rows if m.problem == problem]
    if same:
        return same
    alike = [m for m in rows if _kind(m.problem) == _kind(problem)]
    return sorted(alike, key=lambda m: math.dist(_place(m.problem), _place(problem)))[:NEAREST]


def _is_read(m: Measurement) -> bool:
    """Whether predictions read such a row: on the CPU TensorFlow's; on a GPU those of libraries, and of passes over arrays also
    those of kernels that this project wrote.
    """
    if not m.on_gpu:
        return m.backend == "tensorflow"
    return m.backend in registry.LIBRARIES or (m.problem.op == "stream" and m.backend in registry.WRITTEN_HERE)


def _kind(problem: Problem) -> tuple[str, str]:
    """(kind, arithmetic) of a problem. Predictions interpolate among rows that share both."""
    if isinstance(problem, Matmul | Conv):
        return profile.kind(problem), problem.math
    return problem.operation, problem.dtype


def _place(problem: Problem) -> tuple[float, ...]:
    """Logarithms of a problem's sizes: the distance between two problems is that of these points."""
    if isinstance(problem, Matmul | Conv):
        return profile.coordinates(problem)
    return (math.log(problem.bytes_moved),)
