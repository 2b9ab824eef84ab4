"""The predicted training on a stored GPU, for a machine without a GPU."""

from analysis.explain.explanation import Request, Sources, explain
from analysis.predict import profile
from analysis.predict.prediction import predict
from analysis.stats import is_gpu
from analysis.text import explanation
from analysis.text.sentences import PREDICTED, winner
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
    model, batch, network = plain[0].model, plain[0].batch, networks.find(plain[0].model)
    asked = Request(Training(model, batch, max(network.samples, batch), network.epochs, plain[0].dtype))
    made = explain(asked, Sources(profile.Profile(rows, machine), profile.read(STORED), predict))
    # with the stored machine's own CPU the GPU's time is no prediction for here
    if made.host_factor is None or not made.both:
        return []
    subject = f"{explanation.subject(made)}, with the GPU of {STORED}"
    return [winner(made.both[0].whole, made.both[1].whole, PREDICTED, subject)]
