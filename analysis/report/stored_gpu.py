"""What a stored GPU would do with the trainings of a machine that has none."""

from analysis.explain.explanation import Request, Sources, explain
from analysis.predict import profile
from analysis.predict.prediction import predict
from analysis.stats import is_gpu
from analysis.table import listed, titled
from analysis.text import explanation, sentences
from analysis.training import break_even
from kernels import networks
from kernels.problems import Training
from workloads import ROOT
from workloads.records import Machine, Measurements

MOST = 4  # trainings
STORED = "nvidia-h200"


def section(rows: Measurements, machine: Machine | None) -> list[str]:
    """A sentence for each training of a CPU alone at its article's size; nothing where a GPU was measured, or none is stored."""
    folder = ROOT / "reports" / STORED
    if machine is None or machine.gpus or any(is_gpu(m.device) for m in rows) or not folder.exists():
        return []
    plain = [
        m.problem for m in break_even.trainings(rows) if break_even.is_default(m) and networks.known(m.problem.model)
    ]
    if not plain:
        return []
    of = Sources(profile.Profile(rows, machine), profile.read(str(folder)), predict)
    said = []
    for model, batch, dtype in list(dict.fromkeys((p.model, p.batch, p.dtype) for p in plain))[:MOST]:
        network = networks.find(model)
        made = explain(Request(Training(model, batch, max(network.samples, batch), network.epochs, dtype)), of)
        if made.both:
            cpu, gpu = (side.whole for side in made.both)
            said.append(sentences.winner(cpu, gpu, sentences.PREDICTED, of=explanation.subject(made)))
    return titled(f"If it had the stored {STORED}", listed(said))
