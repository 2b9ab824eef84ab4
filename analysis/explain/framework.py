"""Whether TensorFlow used the GPU, as far as the rows show."""

from analysis.explain.sources import Sources
from analysis.finding import IN_DETAIL, Finding
from workloads.machine import facts
from workloads.records import Machine, Measurements


def framework(sources: Sources) -> Finding:
    """Whether TensorFlow used the GPU, as far as its rows show. Where the GPU is another machine's, also why this machine's
    cannot be measured.
    """
    profile = sources.gpu or sources.cpu
    here_problem = facts.gpu_problem() if sources.borrowed else None
    return gpu_use(profile.measurements, profile.machine, profile.key, here_problem)


def gpu_use(rows: Measurements, machine: Machine | None, where: str, here_problem: str | None = None) -> Finding:
    """Whether TensorFlow saw and used the GPU, as far as the rows of a machine show.

    Args:
        where: the machine's key, such as nvidia-h200.
        here_problem: why the GPU of the machine that runs this cannot be measured, where the rows are another's; "" where it
            could be, None where the rows are its own.
    """
    on_gpu = [m for m in rows if m.on_gpu and m.backend in ("tensorflow", "keras") and m.library == "tensorflow"]
    used = [m for m in on_gpu if m.ok]
    refused = [m for m in on_gpu if m.status == "failed"]
    if used:
        kind = "gpu-used"
    elif refused:
        kind = "gpu-refused"
    elif machine and machine.gpus:
        kind = "gpu-not-tried"
    else:
        kind = "gpu-not-measured"
    numbers = {
        "rows": len(used),
        "trained": sum(m.problem.op == "training" for m in used),
        "reason": refused[0].reason if refused else "",
        "here_problem": here_problem,
    }
    return Finding(kind=kind, subject=where, numbers=numbers, rank=IN_DETAIL)
