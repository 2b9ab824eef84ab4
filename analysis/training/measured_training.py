"""The measured cost of one training on a device: the row that stands for it, with the compilations that the training makes.

Every sentence and table that tells the seconds of a whole training takes them from here, so that they are one number.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from analysis.stats import Estimate
from analysis.training import costs
from analysis.training.break_even import Pair, Trained, compiling, planned_training
from analysis.training.costs import FIT, whole_training
from kernels.problems import Training
from workloads.records import Settings, settings


def measured_training(
    rows: Iterable[Trained], training: Training, chosen: Settings, kernel: str = FIT
) -> Trained | None:
    """The measured training that stands for `training` on the device and with the options of `chosen` settings; None without one.

    It has the same kernel, model and batch; of several, the first by `Trained.rank` counts. Its number of samples and its input
    type may differ: they change nothing but the compilations, which are made those of `training`.
    """
    wanted = (kernel, training.model, training.batch, chosen.device, chosen.switches, None)
    alike = []
    for side in rows:
        m = side.row
        key = (m.kernel, m.problem.model, m.problem.batch, m.device, m.settings.switches, m.threads)
        if key == wanted and side.cost.step.value > 0:
            alike.append(side)
    if not alike:
        return None
    best = min(alike, key=lambda side: _known(side, training).rank(training))
    return compiling(best, training)


def _known(side: Trained, training: Training) -> Trained:
    """A measured training with the compilations of `training`, or if its row did not measure all of these, without any."""
    compiles_twice = costs.left_over(training, side.row.settings) > 0
    row_compiled_twice = costs.left_over(side.row.problem, side.row.settings) > 0
    if compiles_twice and not row_compiled_twice:
        return replace(side, cost=replace(side.cost, compile=None))
    return compiling(side, training)


def ran_all_samples(side: Trained, training: Training) -> bool:
    """Whether a measured training timed epochs of all the samples of `training`. Slow steps are timed in epochs of a few."""
    samples = side.row.on("host-latency")
    problem = side.row.problem
    return samples is not None and samples.calls == problem.steps and problem.samples == training.samples


def tells_whole(side: Trained) -> bool:
    """Whether the seconds of a whole training can be computed from a row: its start-up and compilations are known."""
    return side.cost.start is not None and side.cost.compile is not None


def seconds(side: Trained, training: Training) -> Estimate:
    """Seconds of a whole training, start-up and compilation included."""
    return whole_training(side.cost, training.epochs, training.steps)


def both_sides(pair: Pair, rows: Iterable[Trained]) -> tuple[Trained, Trained] | None:
    """(CPU, GPU): the measured trainings that stand for the pair's planned whole training on each device; None unless the seconds
    of the whole are known on both."""
    rows = list(rows)
    training = planned_training(pair.setup)
    switches = settings.without_defaults({"data": "synthetic", **dict(pair.setup.switches)})
    sides = []
    for device in ("cpu", pair.gpu.device):
        side = measured_training(rows, training, Settings(device, switches=switches), pair.setup.kernel)
        if side is None or not tells_whole(side):
            return None
        sides.append(side)
    cpu, gpu = sides
    return cpu, gpu
