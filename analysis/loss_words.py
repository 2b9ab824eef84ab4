"""What trainings learned, in words: a row's losses, and where the two devices end apart."""

from typing import TYPE_CHECKING

from analysis.training_words import subject
from analysis.units import count, digits, percent, times

if TYPE_CHECKING:
    from analysis.jobs import Pair
    from workloads.results import Measurement

_OTHER = 2.0  # losses this many times apart are not alike
_LEARNED = 0.05  # of the first loss: what is left when nearly all is learned
_NO_LOSS = 1e-6


def _last_losses(a: "Measurement", b: "Measurement") -> tuple[str, float, float] | None:
    """(after what, each one's last loss) of two rows of one training: of their own fits where both have as many epochs."""
    if "job_loss" in a.series and "job_loss" in b.series and a.problem.epochs == b.problem.epochs:
        return f"after {count(a.problem.epochs, 'epoch')}", a.series["job_loss"][-1], b.series["job_loss"][-1]
    if a.series.get("loss") and b.series.get("loss"):
        return (
            f"after {count(len(a.series['loss']), 'epoch')} of few samples",
            a.series["loss"][-1],
            b.series["loss"][-1],
        )
    return None


def sentence(pair: "Pair") -> str:
    """Where the two devices end at losses that differ by more than a factor: by how much, and what could be why; "" where they
    agree, or both have learned nearly all that there is."""
    cpu, gpu = pair.cpus[0].row, pair.gpu.row
    if not (found := _last_losses(cpu, gpu)):
        return ""
    when, a, b = found
    if max(a, b) <= _OTHER * min(a, b) or max(a, b) < _LEARNED * max(cpu.series["loss"][0], gpu.series["loss"][0]):
        return ""
    why = ("; the GPU's products are in TF32 (10 bits of fraction where float32 has 23): with --tf32 off they are not"
           if gpu.values.get("tf32") else "")  # fmt: skip
    return (f"{subject(pair.setup)}: {when} the loss is {digits(a)} on the CPU and {digits(b)} on the GPU, "
            f"{times(max(a, b) / min(a, b)) if min(a, b) else 'many times'} apart{why}.")  # fmt: skip


def losses(m: "Measurement") -> str:
    """What a row learned: its own fit's losses, first and last, and those of a short run from the first weights."""
    said = []
    for name, epochs in (("job_", m.problem.epochs), ("", len(m.series.get("loss", ())))):
        if taken := m.series.get(f"{name}loss"):
            right = m.series.get(f"{name}accuracy")
            accuracy = f", accuracy {percent(right[0])} to {percent(right[-1])}" if right else ""
            what = "" if name else " of few samples"
            said.append(f"loss {_loss(taken[0])} to {_loss(taken[-1])}{accuracy} in {count(epochs, 'epoch')}{what}")
    return "; ".join(said)


def _loss(value: float) -> str:
    return digits(value) if value >= _NO_LOSS else f"under {_NO_LOSS:f}"
