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
    """The predicted winner of the first training at its article's size, this CPU or a stored GPU; [] if a GPU is here."""
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
    # with the stored machine's own CPU the GPU's time is no prediction for here
    if explanation.host_factor is None or not both:
        return []
    training_words = f"{subject(explanation)}, with the GPU of {STORED}"
    return [verdict.winner(winner(explanation, *both), training_words)]
