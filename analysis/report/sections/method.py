"""The method and the formulas; each appears only where the page has rows of its operation."""

from collections import Counter
from collections.abc import Iterable

from analysis.blocks import Block, listed, titled
from analysis.table import parsed
from analysis.units import join
from workloads.records import Loaded, Measurements, Run

# The values of a row's `check`, in words.
_CHECKS = {
    "exact": "equal to the answer on whole numbers, in any order",
    "bound": "within a stated error of the answer",
    "weights": "shapes and numbers of weights, layer by layer, are the model's",
    "first loss": "the first loss and its gradient are NumPy's",
}
# Operations | the sentence shown where any of them was measured.
_LIMITS = """
matmul conv stream peak transfer launch peer collective at-once | \
    Rates and roofs use the device clock on a GPU where there is one, else the time of one call on the host.
matmul conv | The CPU side of a crossover is the fastest kernel and thread count at that size; teaching rungs are out.
matmul conv stream | A memory roof counts only for working sets that no cache holds; smaller ones have the roof of the level \
    that holds them, where it was measured.
training | A step is what later epochs of two lengths differ by; the CPU side is its fastest form, with the framework's threads.
"""
_FORMULAS = """
matmul | matmul M x N x K: 2 M N K FLOP; it must move its three matrices once, (M K + K N + M N) elements
conv | convolution: 2 n p q c_out c_in r s / groups FLOP; the images, the filters and the result once
stream | stream: the bytes of the arrays that the operation reads and writes, each once
matmul conv stream peak transfer | rate: FLOP or bytes over the median time; arithmetic intensity: FLOP over bytes; ridge: peak \
    rate over bandwidth
matmul conv stream | of its roof: the least time that the roofs allow, over the measured one
matmul conv training inference | speedup: the CPU's time over the GPU's; crossover: where its logarithm passes 0, linear in the \
    logarithm of the size
matmul | a copy used k times: the call with its copies and k - 1 calls without, over k
training | whole training: start-up, build and compilation, then a fit: once + epochs (an epoch's own + steps x a step)
feeding | input pipeline: what epochs of two lengths differ by, a step; its law: call + samples x a sample + bytes / bandwidth
inference | samples a second: the samples of a call over its median time
"""


def _measured(lines: str, measurements: Measurements) -> list[str]:
    """The sentences whose operations were measured. lines: a sentence each, after its operations and a bar, as in _LIMITS."""
    measured = {m.problem.op for m in measurements if m.ok}
    sentences = []
    for operations, words in parsed(lines):
        if measured & set(operations.split()):
            sentences.append(" ".join(words.split()))
    return sentences


def how_section(loaded: Loaded) -> list[Block]:
    """A list on how the rows were measured: statuses, checks of their answers, why sampling stopped, flags, software, and what
    holds for the operations among them.
    """
    rows = loaded.measurements
    stop_reasons: Counter[str] = Counter()
    flags: Counter[str] = Counter()
    for m in rows:
        stop_reasons.update(samples.stop_reason for samples in m.samples)
        flags.update(m.flags)
    stops = ", ".join(f"{reason} ({n:,})" for reason, n in stop_reasons.most_common())
    software = software_words(loaded.runs)
    lines = [
        f"Rows: {_counts(Counter(m.status for m in rows))}; bad lines in the files: {loaded.bad_lines}.",
        f"Checked before timing: {_checks(rows)}.",
        "A time is the median of its samples; its 95 % interval is of the medians of visits and is widened "
        f"where these are few. Why sampling stopped, and how often: {stops or 'none'}.",
        f"Flags on rows: {_counts(flags)}.",
        f"Software: {join(software) or 'unknown'}.",
    ]
    lines += _measured(_LIMITS, rows)
    if any(m.problem.op == "training" and m.keras.data == "synthetic" for m in rows):
        lines.append("The samples of trainings are made up: losses and accuracies are not those of real data.")
    return listed(lines)


def _checks(rows: Measurements) -> str:
    """How many rows had each check of their answer, with the meaning of the check: `120 exact (equal to ...), 3 not checked`."""
    counts = Counter(m.check or "not checked" for m in rows if m.ok)
    words = []
    for check, n in counts.most_common():
        meaning = f" ({_CHECKS[check]})" if check in _CHECKS else ""
        words.append(f"{n:,} {check}{meaning}")
    return ", ".join(words) or "none"


def formulas(measurements: Measurements) -> list[Block]:
    """The formulas of the numbers on the page, for the measured operations."""
    return titled("Formulas", listed(_measured(_FORMULAS, measurements)))


def software_words(runs: "Iterable[Run]") -> list[str]:
    """The software of all runs, each as `numpy 2.4.6`; every version where runs differ, that of the newest run last."""
    by_name: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, version in run.software.items():
            versions = by_name.setdefault(name, {})
            versions.pop(version, None)  # put it behind the others
            versions[version] = None
    return [f"{name} {' or '.join(versions)}" for name, versions in by_name.items()]


def _counts(names: Counter[str]) -> str:
    """`12 ok, 3 skipped`, the most frequent first; "none" without any."""
    return ", ".join(f"{n:,} {name}" for name, n in names.most_common()) or "none"
