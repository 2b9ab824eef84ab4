"""Findings that answer a case's own question: eight kinds of question, each with one function."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from analysis.analysis import Analysis
from analysis.explain import explanation, published
from analysis.explain.explanation import Explanation
from analysis.explain.published import Measured
from analysis.explain.request import GPU, Request
from analysis.explain.sources import Sources
from analysis.finding import Finding
from analysis.predict.budget import TRANSFERS
from analysis.predict.profile import Profile
from analysis.predict.step_parts import total_of
from analysis.roofline import links, overheads
from analysis.stats import Estimate, group_by, quick_median
from analysis.training import break_even, contention, data_parallel, inference
from analysis.training.break_even import BY_STEP
from kernels import networks
from kernels.problems import Training
from workloads import ROOT, records
from workloads.records import Measurement, Measurements
from workloads.records.published_cases import ArticleTraining, Complaint, Question

_FLOAT32 = 4  # bytes
_PASSES = ("scale", "copy")  # of a stream, that a clock around passes is about


class CaseRows(msgspec.Struct, frozen=True, kw_only=True):
    """A case with the rows that answer it."""

    #: An article's system, a complaint or a question: what differs between them, each kind of question knows.
    case: Any
    #: The rows of the CPU and the GPU.
    sources: Sources
    #: The case's training; None of a complaint without one.
    request: Any

    @property
    def rows(self) -> tuple[Measurement, ...]:
        """The rows of the GPU's machine, where there is one."""
        return (self.sources.gpu or self.sources.cpu).measurements

    def explained(self, **changed_fields: int) -> Explanation:
        """The explanation of its training, or of the training with these fields replaced."""
        training = replace(self.request.training, **changed_fields)
        return explanation.explain(replace(self.request, training=training), self.sources)

    def finding(self, kind: str, **numbers: Any) -> Finding:
        """A finding of one kind of answer; a number that is not known is None."""
        return Finding(kind=kind, subject=self.case.name, numbers=numbers)


def evidence(case: ArticleTraining | Complaint | Question, sources: Sources, request: Request | None) -> Finding | None:
    """The finding that answers the case's own question; None if the rows do not answer it."""
    return KINDS[case.kind](CaseRows(case=case, sources=sources, request=request))


# ---------------------------------------------------------------- who wins


def _winner(asking: CaseRows) -> Finding | None:
    """The faster device and its speedup: for an article's claims, or a complaint's trainings."""
    if isinstance(asking.case, Complaint):
        return _pair(asking)
    claims = published.picked(asking.rows, asking.case)
    if not claims:
        return None
    first = claims[0]
    alike = first.faster == first.claim.faster != "neither"
    epochs = [(one.device.upper(), one.epoch_s, getattr(first, one.device)) for one in asking.case.published]
    return asking.finding(
        "winner",
        verdict="As in" if alike else "Unlike",
        first=first,
        claims=claims,
        epochs=epochs,
        gpu=asking.explained().gpu,
    )


def _reported(asking: CaseRows) -> list[tuple[str, Measured]]:
    """(label, measurement) of each reported training that was measured. The label is its width, its model, or the batch of a
    single one."""
    labeled = []
    for reported in asking.case.reported:
        measured = published.measured(reported, asking.rows)
        if measured is None:
            continue
        if asking.case.varies == "width":
            label = f"width {break_even.sized(reported.training, 'width')[0]:,}"
        elif len(asking.case.reported) == 1:
            label = f"batch {measured.batch}"
        else:
            label = reported.training.model
        labeled.append((label, measured))
    return labeled


def _pair(asking: CaseRows) -> Finding | None:
    """Two reported trainings of one machine with different winners; None if one was not measured."""
    reported = _reported(asking)
    if len(reported) < len(asking.case.reported):
        return None
    few, many = (_arithmetic(one.training) for one in asking.case.reported)
    return asking.finding(
        "pair",
        first=reported[0],
        second=reported[1],
        reported=reported,
        hits=sum(measured.comes_back for _, measured in reported),
        ratio=many / few,
    )


def _arithmetic(training: Training) -> float:
    """FLOPs of a step's products for each of its operations."""
    works = networks.step(networks.find(training.model), min(training.batch, training.samples))
    return sum(work.flops for work in works if work.kind in ("dense", "conv")) / len(works)


def _flip(asking: CaseRows) -> Finding | None:
    """The width or batch from which the GPU wins: measured with the case's training, else predicted."""
    explained = asking.explained()
    varies = asking.case.varies
    answers = [one for one in explained.crossovers if one.family.varies == varies and one.form.mode == BY_STEP]
    if not answers:
        return None
    gpu = asking.sources.gpu
    return asking.finding(
        "flip",
        wins=answers[0],
        reported=_reported(asking),
        copied=copied(explained),
        floor=published.step_constant(gpu.constants, GPU) if gpu else None,
    )


def _inference(asking: CaseRows) -> Finding | None:
    """Rates and the GPU's speedup for answers, at the smallest and the largest batch; None without rows."""
    by_method = {}
    for case, method, answer in inference.crossovers(asking.rows):
        if case.model == asking.case.training.model:
            by_method[method] = answer
    if not by_method:
        return None
    answer = by_method.get(inference.PREDICT, next(iter(by_method.values())))
    rates = []
    for point in answer.first_and_last:
        n = point.n
        rates.append({"n": n, "cpu": n / point.cpu.seconds, "gpu": n / point.gpu.seconds, "gain": point.ratio})
    return asking.finding("inference", one=rates[0], many=rates[-1])


def _together(asking: CaseRows) -> Finding | None:
    """The gain of several devices at once: GPUs that share each batch (rows of this machine, else of a stored one), or a
    teacher beside a student."""
    if not asking.case.rows:
        pairs = contention.taught([m for m in asking.rows if m.ok])
        pair = next(iter(pairs), None)
        return asking.finding("teacher", pair=pair) if pair else None
    model = asking.case.training.model
    where = None
    gains = several_gpus(asking.rows, model)
    folder = ROOT / "reports" / asking.case.rows
    if not gains and folder.exists():
        where = asking.case.rows
        gains = several_gpus(records.read(folder).measurements, model)
    if not gains:
        return None
    return asking.finding("gpus", gains=gains, first=gains[0], last=gains[-1], where=where)


# ---------------------------------------------------------------- what the time goes to


def _cause(asking: CaseRows) -> Finding | None:
    """The largest part of the GPU's step, and its share; None without rows."""
    reported = _reported(asking)
    if not reported:
        return None
    _, measured = reported[0]
    share, copying = (
        min(1.0, measured.parts.get(name, 0.0) / measured.gpu.value) for name in (measured.largest, published.COPYING)
    )
    return asking.finding(
        "cause",
        part=measured.largest,
        share=share,
        copied=copying,
        parts=measured.parts.items(),
        reported=reported,
        larger=asking.explained().larger,
    )


def _home(asking: CaseRows) -> Finding | None:
    """Savings of a data set resident on the GPU against copies batch by batch; None if something is not known."""
    explained = asking.explained()
    what_ifs = [one for one in explained.what_ifs if one.change.settings.keras.residence == "resident"]
    resident = what_ifs[0] if what_ifs else None
    gpu = asking.sources.gpu
    if not (resident and resident.job_saved and explained.both and gpu and explained.larger):
        return None
    training = explained.request.training
    larger = asking.explained(batch=8 * training.batch).both
    nbytes = training.samples * networks.sample_bytes(explained.request.model, training.dtype)
    return asking.finding(
        "home",
        resident=resident,
        larger=explained.larger,
        copied=copied(explained),
        bytes=nbytes,
        gpu=explained.both[1],
        other=larger[1] if larger else None,
        sent=gpu.copying(nbytes, GPU),
    )


def _copies(asking: CaseRows) -> Finding | None:
    """Numbers on copies: of a step bound by them, or of a clock stopped too early."""
    kind, measure = ("bound", bound) if "step_s" in asking.case.numbers else ("clock", clock)
    numbers = measure(asking.case, asking.rows)
    if numbers is None:
        return None
    return asking.finding(kind, theirs=asking.case.numbers, **numbers)


def _peaks(asking: CaseRows) -> Finding | None:
    """The speedup by measured arithmetic peaks, that of a step, and the share of a step that its arithmetic takes at its peak."""
    explained = asking.explained()
    cpu_rate = _peak(asking.sources.cpu, False, ("float32",))
    gpu_rate = _peak(asking.sources.gpu, True, ("tf32", "float32")) if asking.sources.gpu else None
    if not (explained.both and cpu_rate and gpu_rate):
        return None
    cpu, gpu = explained.both
    training = explained.request.training
    flops = min(training.batch, training.samples) * networks.training_flops(explained.request.model)
    return asking.finding(
        "peaks",
        theirs=asking.case.numbers,
        ratio=gpu_rate / cpu_rate,
        step=cpu.cost.step / gpu.cost.step,
        busy=flops / gpu_rate / gpu.cost.step.value,
    )


KINDS: dict[str, Callable[[CaseRows], Finding | None]] = {
    "winner": _winner,
    "flip": _flip,
    "cause": _cause,
    "home": _home,
    "copies": _copies,
    "inference": _inference,
    "together": _together,
    "peaks": _peaks,
}


def _peak(profile: Profile, on_gpu: bool, maths: tuple[str, ...]) -> float | None:
    """FLOP/s of the best measured roof of a side, in the first arithmetic that has one."""
    ceilings = Analysis.from_rows(profile.measurements, profile.machine).roofs
    for math in maths:
        rates = []
        for roof in ceilings:
            if roof.kind == "compute" and roof.measured and roof.name == math and (roof.device != "cpu") == on_gpu:
                rates.append(roof.rate.value)
        if rates:
            return max(rates)
    return None


def copied(explained: Explanation) -> float | None:
    """The share of the GPU's predicted step that copying a batch takes."""
    if explained.gpu is None:
        return None
    return (total_of(explained.gpu.parts, TRANSFERS) / explained.gpu.step_s).value


def bound(case: Complaint, rows: Measurements) -> dict[str, Any] | None:
    """For a step that is mostly copying: its bytes, seconds of the copy from pageable and from pinned memory, of a step with
    pinned memory, and of one whose copy and work overlap fully (`least`); the speedups of both."""
    pageable, pinned = (links.law(rows, GPU, memory=memory) for memory in ("pageable", "pinned"))
    if pageable is None or pinned is None:
        return None
    last_piece = pageable.pieces[-1]
    copy_s, step_s = case.numbers["copy_s"], case.numbers["step_s"]
    nbytes = (copy_s - last_piece.latency_s) / last_piece.s_per_byte
    pinned_s = pinned.seconds(nbytes).value
    work_s = step_s - copy_s
    pinned_step_s = work_s + pinned_s
    least_s = max(work_s, pinned_s)
    gains = (step_s / pinned_step_s, step_s / least_s)
    return {"bytes": nbytes, "pinned": pinned_s, "step": pinned_step_s, "least": least_s, "gains": gains}


def clock(case: Complaint, rows: Measurements) -> dict[str, Any] | None:
    """Seconds of passes over an array: to issue and to run them, of the array's copy to the host, with what that waits for."""
    elements, passes = case.numbers["elements"], int(case.numbers["passes"])
    nbytes = 2 * _FLOAT32 * elements
    timed = [m for m in rows if _is_gpu_pass(m)]
    law = links.law(rows, GPU, "d2h")
    constants = overheads.constants(rows)
    issue = None
    for name in ("host-issue", "host-throughput"):
        issue = issue or overheads.find(constants, "cupy-launch", GPU, clock=name)
    if not timed or law is None or issue is None:
        return None
    near = min(timed, key=lambda m: abs(m.problem.bytes_moved - nbytes))
    run_s = passes * nbytes * quick_median(near.on("device")) / near.problem.bytes_moved
    issue_s = passes * issue.seconds.value
    copy_s = law.seconds(_FLOAT32 * elements).value
    return {"issued": issue_s, "ran": run_s, "copy": copy_s, "waited": max(0.0, run_s - issue_s) + copy_s}


def _is_gpu_pass(m: Measurement) -> bool:
    """Whether a row is a pass over memory that the GPU's own clock timed."""
    is_pass = m.problem.op == "stream" and m.problem.operation in _PASSES
    return bool(is_pass and m.device == GPU and m.ok and m.on("device"))


def several_gpus(rows: Measurements, model: str) -> list[tuple[int, int, Estimate]]:
    """(GPUs, batch, gain) of the most GPUs for a model, by batch, with the library that has most of them."""
    every = [(case.several, case.gain) for case in data_parallel.cases(rows) if case.several.on_gpu and case.gain]
    wanted = [(m, gain) for m, gain in every if m.problem.model == model] or every
    groups = group_by(wanted, lambda one: (one[0].experiment.replicas, one[0].library))
    if not groups:
        return []
    best = max(sorted(groups), key=lambda key: (key[0], len(groups[key])))
    gains = [(best[0], m.problem.batch, gain) for m, gain in groups[best]]
    return sorted(gains, key=lambda one: one[1])
