"""The predicted training on a stored GPU, for a machine without a GPU."""

from analysis.explain.explanation import explain
from analysis.explain.findings import winner
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.predict import profile
from analysis.stats import is_gpu
from analysis.text.explanation import verdict
from analysis.text.explanation.subject import subject
from analysis.training import break_even
from kernels import networks
from kernels.problems import Training
from workloads.records import Machine, Measurements

STORED = "nvidia-h200"


def sentences(rows: Measurements, machine: Machine | None) -> list[str]:
    """A sentence on whether a stored GPU would be faster than this machine's CPU: predicted for the first named model that the
    rows have a default training of, with the samples and epochs of its article. [] if the machine has a GPU, or the rows do not
    tell it.
    """
    known = profile.stored(STORED).is_file()
    if not known or machine is None or machine.gpus or any(is_gpu(m.device) for m in rows):
        return []
    defaults = [m.problem for m in break_even.trainings(rows) if break_even.is_default(m)]
    known_trainings = [problem for problem in defaults if networks.known(problem.model)]
    if not known_trainings:
        return []
    first = known_trainings[0]
    network = networks.find(first.model)
    training = Training(
        model=first.model,
        batch=first.batch,
        samples=max(network.samples, first.batch),
        epochs=network.epochs,
        dtype=first.dtype,
    )
    sources = Sources(cpu=profile.Profile(rows, machine), gpu=profile.read(STORED))
    explanation = explain(Request(training), sources)
    both = explanation.both
    # Without a factor between both hosts, the GPU's time would be that beside the stored machine's CPU.
    if explanation.host_factor is None or not both:
        return []
    training_words = f"{subject(explanation)}, with the GPU of {STORED}"
    return [verdict.winner(winner(explanation, *both), training_words)]
