"""The predicted training on a stored GPU, for a machine without a GPU."""

from analysis.explain.explanation import explain
from analysis.explain.findings import winner
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.predict import profile
from analysis.predict.prediction import predict
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
    plain = [
        m.problem for m in break_even.trainings(rows) if break_even.is_default(m) and networks.known(m.problem.model)
    ]
    if not plain:
        return []
    first = plain[0]
    network = networks.find(first.model)
    training = Training(first.model, first.batch, max(network.samples, first.batch), network.epochs, first.dtype)
    explanation = explain(Request(training), Sources(profile.Profile(rows, machine), profile.read(STORED), predict))
    both = explanation.both
    # with the stored machine's own CPU the GPU's time is no prediction for here
    if explanation.host_factor is None or not both:
        return []
    training_words = f"{subject(explanation)}, with the GPU of {STORED}"
    return [verdict.winner(winner(explanation, *both), training_words)]
