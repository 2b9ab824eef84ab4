"""What trainings learned, in words: a row's losses, and where the two devices end apart."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from analysis import jobs
from analysis.training_words import subject
from analysis.units import count, digits, percent, times
from workloads.records import SAMPLES

if TYPE_CHECKING:
    from analysis.jobs import Pair
    from workloads.records import Measurement

_OTHER = 2.0  # losses this many times apart are not alike
_LEARNED = 0.05  # of the first loss: what is left when nearly all is learned
_FALL = 0.005  # of the first loss: a last one that is no farther below has not fallen
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


def sentence(pair: "Pair", measurements: "Iterable[Measurement]" = ()) -> str:
    """Where the two devices end at losses that differ by more than a factor after learning from the same samples: by how much,
    and what could be why, if none of the `measurements` says that it is not; "" where they agree, or both have learned nearly
    all that there is."""
    gpu = pair.gpu.row
    cpu = next((side.row for side in pair.cpus if _same_samples(side.row, gpu)), None)
    if not (cpu and (found := _last_losses(cpu, gpu))):
        return ""
    when, a, b = found
    if not _apart(a, b) or max(a, b) < _LEARNED * max(cpu.series["loss"][0], gpu.series["loss"][0]):
        return ""
    return (
        f"{subject(pair.setup)}: {when} the loss is {digits(a)} on the CPU and {digits(b)} on the GPU, "
        f"{times(max(a, b) / min(a, b)) if min(a, b) else 'many times'} apart{_why(pair, cpu, measurements)}."
    )


def _same_samples(a: "Measurement", b: "Measurement") -> bool:
    return a.notes.get(SAMPLES) == b.notes.get(SAMPLES)


def _apart(a: float, b: float) -> bool:
    return max(a, b) > _OTHER * min(a, b)


def _why(pair: "Pair", cpu: "Measurement", measurements: "Iterable[Measurement]") -> str:
    """TF32, where the GPU uses it and the same training without it is not known to end as far from the CPU."""
    gpu = pair.gpu.row
    if not gpu.values.get("tf32"):
        return ""
    plain = msgspec.structs.replace(pair.setup, switches=tuple(sorted((*pair.setup.switches, ("tf32", "off")))))
    for m in measurements:
        if m.problem.op == "training" and m.settings.device == gpu.settings.device and jobs.setup_of(m) == plain:
            found = _last_losses(cpu, m) if m.status == "ok" and _same_samples(cpu, m) else None
            if found and _apart(*found[1:]):
                return f"; with --tf32 off it is {digits(found[2])} on the GPU too"
    return (
        "; the GPU's products are in TF32 (10 bits of fraction where float32 has 23), which may be why: with --tf32 off they "
        "are not"
    )


def losses(m: "Measurement") -> str:
    """What a row learned: its own fit's losses, first and last, and those of a short run from the first weights; that it does
    not learn where they do not fall."""
    said = []
    for name, epochs in (("job_", m.problem.epochs), ("", len(m.series.get("loss", ())))):
        if taken := m.series.get(f"{name}loss"):
            right = m.series.get(f"{name}accuracy", ())
            accuracy = f", accuracy {percent(right[0])} to {percent(right[-1])}" if right else ""
            what = "" if name else " of few samples"
            stuck = "" if _falls(taken, right) else "does not learn: "
            said.append(
                f"{stuck}loss {_loss(taken[0])} to {_loss(taken[-1])}{accuracy} in {count(epochs, 'epoch')}{what}"
            )
    return "; ".join(said)


def _falls(taken: tuple[float, ...], right: tuple[float, ...]) -> bool:
    """Whether the losses of several epochs fall by more than next to nothing; where nearly all is learned they need not."""
    learned = right[-1] > 1 - _LEARNED if right else taken[-1] < _LEARNED
    return len(taken) < 2 or learned or taken[-1] < (1 - _FALL) * taken[0]


def _loss(value: float) -> str:
    return digits(value) if value >= _NO_LOSS else f"under {_NO_LOSS:f}"
