"""The finding that answers a published case's question, with what its source claims (workloads/records/published_cases.toml).

There are three kinds of question:
faster  which device is faster, by the seconds on both
gain    how many times faster something is after a change
copy    which share of the time a copy takes
"""

import math
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from analysis.analysis import Analysis
from analysis.explain import explanation, published
from analysis.explain.explanation import Explanation
from analysis.explain.request import GPU, Request
from analysis.explain.sources import Sources
from analysis.finding import Finding
from analysis.numbers import time
from analysis.predict.profile import Profile
from analysis.roofline import links, overheads
from analysis.stats import Estimate, exact, faster, group_by, quick_median
from analysis.training import break_even, contention, data_parallel, inference
from analysis.training.break_even import BY_STEP
from kernels import networks
from workloads import ROOT, records
from workloads.records import Measurement, Measurements
from workloads.records.published_cases import ArticleTraining, Complaint, Question

_FLOAT32_BYTES = 4
_PASSES = ("scale", "copy")  # operations of a stream that stand for an element-wise pass over an array


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the same work on the CPU and on the GPU."""

    #: The work, such as `a step at width 100`.
    label: str
    #: What the source says of it, shortened; "-" for nothing.
    words: str = "-"
    #: The device that is faster by the source: cpu, gpu or neither; "" where it says nothing.
    reported: str = ""
    #: Seconds on the CPU.
    cpu: Estimate
    #: Seconds on the GPU.
    gpu: Estimate

    @property
    def is_claimed(self) -> bool:
        """Whether the source claims something about it."""
        return bool(self.reported)

    @property
    def faster(self) -> str:
        """cpu or gpu; neither where the intervals overlap."""
        return faster(self.cpu, self.gpu)

    @property
    def holds(self) -> bool | None:
        """Whether the device that was reported to be faster is faster here; where neither was, the GPU must not be. None where a
        device was reported and neither is faster here.
        """
        if self.reported == "neither":
            return self.faster != "gpu"
        return None if self.faster == "neither" else self.faster == self.reported


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """How many times faster something is after a change."""

    #: The change, such as `batch 64 instead of 8`.
    label: str
    #: What the source says of it, shortened; "-" for nothing.
    words: str = "-"
    #: The least factor that the source claims; None where it claims none.
    claimed_low: float | None = None
    #: The largest factor that the source claims.
    claimed_high: float = math.inf
    #: The factor here: above 1 is faster.
    gain: Estimate

    @property
    def is_claimed(self) -> bool:
        """Whether the source claims something about it."""
        return self.claimed_low is not None

    @property
    def holds(self) -> bool | None:
        """Whether the factor may be one that the source claims. None where it claims a gain and there may be none here."""
        least = self.claimed_low or 0.0
        if self.gain.high < least or self.gain.low > self.claimed_high:
            return False
        may_be_none = self.gain.low <= 1 <= self.gain.high
        return None if self.claimed_high > 1 and may_be_none else True


class CopyShare(msgspec.Struct, frozen=True, kw_only=True):
    """A copy as a part of the time that a program waits."""

    #: Where it goes to or comes from, such as `from pinned memory`.
    label: str
    #: What the source says of it.
    words: str
    #: Seconds of the copy.
    copy_s: float
    #: Seconds of all that is waited for.
    whole_s: float
    #: The share that the copy takes at least, by the source.
    claimed_share: float
    #: Whether the source claims something about it.
    is_claimed: bool = True

    @property
    def share(self) -> float:
        """The share of the time that the copy takes."""
        return self.copy_s / self.whole_s

    @property
    def holds(self) -> bool:
        """Whether the copy takes as large a share as the source claims."""
        return self.share >= self.claimed_share


class PartTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of something that explains an answer."""

    label: str
    #: What the source says of it; "-" for nothing.
    words: str = "-"
    #: Seconds here; None where they are not known.
    seconds: Estimate | None


class CaseRows(msgspec.Struct, frozen=True, kw_only=True):
    """A case with the rows that answer it."""

    #: An article's training, a complaint or a question: what differs between them, each kind of question knows.
    case: Any
    #: The rows of the CPU and the GPU.
    sources: Sources
    #: The case's training; None of a complaint without one.
    request: Any

    @property
    def rows(self) -> tuple[Measurement, ...]:
        """The rows of the GPU's machine; without a GPU those of the CPU's."""
        return (self.sources.gpu or self.sources.cpu).measurements

    def explained(self, **changed_fields: int) -> Explanation:
        """The explanation of its training, or of the training with these fields replaced."""
        training = replace(self.request.training, **changed_fields)
        return explanation.explain(replace(self.request, training=training), self.sources)

    def finding(self, claims: list[Any], **numbers: Any) -> Finding:
        """The finding with these claims (Comparison, Gain or CopyShare), the one that answers the question first. A further
        number that is not known is None.
        """
        return Finding(kind=self.case.kind, subject=self.case.name, numbers={"claims": claims, **numbers})


def evidence(case: ArticleTraining | Complaint | Question, sources: Sources, request: Request | None) -> Finding | None:
    """The finding that answers the case's own question; None if the rows do not answer it."""
    return KINDS[case.kind](CaseRows(case=case, sources=sources, request=request))


# ---------------------------------------------------------------- which device is faster


def _faster(asking: CaseRows) -> Finding | None:
    """Seconds on both devices: of an article's trainings, a complaint's trainings, or a model's answers. With a complaint also
    from which size the GPU wins.
    """
    if isinstance(asking.case, Question):
        answers = _answers(asking)
        return asking.finding(answers, wins=None, shares=None) if answers else None
    if isinstance(asking.case, Complaint):
        return _reported(asking)
    compared = _claims(asking.case, asking.rows)
    if not compared:
        return None
    gpu = asking.explained().gpu
    return asking.finding(compared, wins=None, shares=gpu.largest_shares if gpu else None, source="predicted")


def _claims(article: ArticleTraining, rows: Measurements) -> list[Comparison]:
    """An article's claims of which the training was measured here on both devices, an item each."""
    times = " against ".join(time(one.epoch_s) for one in article.published)
    compared = []
    for one in published.picked(rows, article):
        if one.cpu is None or one.gpu is None:
            continue
        comparison = Comparison(
            label=f"an epoch of {one.claim.samples:,} samples",
            words=f"{one.claim.words}, {times}" if times else one.claim.words,
            reported=one.claim.faster,
            cpu=one.cpu,
            gpu=one.gpu,
        )
        compared.append(comparison)
    return compared


def _reported(asking: CaseRows) -> Finding | None:
    """A complaint's trainings that were measured, the parts of the first one's step on the GPU, and the size along which the
    winner changes.
    """
    compared = []
    shares: dict[str, float] = {}
    for reported in asking.case.reported:
        measured = published.measured(reported, asking.rows)
        if measured is None:
            continue
        if asking.case.varies == "width":
            label = f"a step at width {break_even.split_training(reported.training, 'width').size:,}"
        elif len(asking.case.reported) == 1:
            label = f"a step at batch {measured.batch}"
        else:
            label = f"a step of {networks.title(reported.training.model)}"
        comparison = Comparison(
            label=label,
            words=reported.words,
            reported=reported.faster,
            cpu=measured.cpu,
            gpu=measured.gpu,
        )
        compared.append(comparison)
        shares = shares or measured.shares
    if not compared:
        return None
    wins = None
    for answer in asking.explained().crossovers:
        if answer.family.varies == asking.case.varies and answer.form.mode == BY_STEP:
            wins = wins or answer
    return asking.finding(compared, wins=wins, shares=shares or None, source="measured")


def _answers(asking: CaseRows) -> list[Comparison]:
    """Seconds of an answer of the question's model, at the smallest batch and at the largest; [] without rows. The claim is about
    the smallest.
    """
    by_method = {}
    for case, method, answer in inference.crossovers(asking.rows):
        if case.model == asking.case.training.model:
            by_method[method] = answer
    if not by_method:
        return []
    answer = by_method.get(inference.PREDICT, next(iter(by_method.values())))
    compared: list[Comparison] = []
    for point in answer.first_and_last:
        claim = {} if compared else {"words": asking.case.words, "reported": asking.case.faster}
        comparison = Comparison(
            label=f"a frame at batch {point.n}",
            cpu=point.cpu.seconds / point.n,
            gpu=point.gpu.seconds / point.n,
            **claim,
        )
        compared.append(comparison)
    return compared


# ---------------------------------------------------------------- what a change gains


def _gain(asking: CaseRows) -> Finding | None:
    """The factor by which a change makes a training faster; None if it is not known."""
    return CHANGES[asking.case.change](asking)


def _claimed_gain(question: Question, label: str, gain: Estimate) -> Gain:
    """The gain that a question is about, with what its source claims."""
    return Gain(
        label=label,
        words=question.words,
        claimed_low=question.numbers["low"],
        claimed_high=question.numbers.get("high", math.inf),
        gain=gain,
    )


def _larger_batch(asking: CaseRows) -> Finding | None:
    """A batch of eight times the size; also what a data set that stays on the GPU would save."""
    explained = asking.explained()
    training = explained.request.training
    batch = 8 * training.batch
    larger = asking.explained(batch=batch)
    gpu = asking.sources.gpu
    if not (explained.both and larger.both and gpu):
        return None
    _, before = explained.both
    _, after = larger.both
    resident = [one.job_saved for one in explained.what_ifs if one.change.settings.keras.residence == "resident"]
    nbytes = training.samples * networks.sample_bytes(explained.request.model, training.dtype)
    sent_s = gpu.copying(nbytes, GPU)
    times = [
        PartTime(label=f"the training at batch {training.batch}", seconds=before.whole),
        PartTime(label=f"the training at batch {batch}", seconds=after.whole),
        PartTime(label="saved with the data set on the GPU", seconds=resident[0] if resident else None),
        PartTime(label="copying the data set once", seconds=exact(sent_s) if sent_s else None),
    ]
    label = f"batch {batch} instead of {training.batch}"
    return asking.finding([_claimed_gain(asking.case, label, before.whole / after.whole)], times=times)


def _more_gpus(asking: CaseRows) -> Finding | None:
    """Several GPUs that share each batch, at each batch; by the rows of this machine, else of the one that the question names."""
    model = asking.case.training.model
    where = None
    gains = several_gpus(asking.rows, model)
    folder = ROOT / "reports" / asking.case.rows
    if not gains and folder.exists():
        where = asking.case.rows
        gains = several_gpus(records.read(folder).measurements, model)
    if not gains:
        return None
    claims = []
    for gpus, batch, gain in gains:
        claims.append(_claimed_gain(asking.case, f"{gpus} GPUs, batch {batch:,} in all", gain))
    return asking.finding(claims, where=where)


def _teacher(asking: CaseRows) -> Finding | None:
    """A teacher on the CPU at the same time as a student on the GPU, instead of one after the other."""
    pairs = contention.taught([m for m in asking.rows if m.ok])
    if not pairs:
        return None
    pair = pairs[0]
    student, teacher = pair.slower
    claims = [
        _claimed_gain(asking.case, "both at once, not one after the other", pair.gain),
        Gain(label="the student's step, both at once", gain=1 / student),
        Gain(label="the teacher's answer, both at once", gain=1 / teacher),
    ]
    times = [
        PartTime(label="one after the other", seconds=exact(pair.after)),
        PartTime(label="both at once", seconds=exact(pair.at_once)),
    ]
    return asking.finding(claims, times=times)


def _lanes(asking: CaseRows) -> Finding | None:
    """A step on the GPU instead of the CPU, and the same of arithmetic alone, by the measured peaks of both."""
    explained = asking.explained()
    cpu_rate = _peak(asking.sources.cpu, False, ("float32",))
    gpu_rate = _peak(asking.sources.gpu, True, ("tf32", "float32")) if asking.sources.gpu else None
    if not (explained.both and cpu_rate and gpu_rate):
        return None
    cpu, gpu = explained.both
    training = explained.request.training
    flops = min(training.batch, training.samples) * networks.training_flops(explained.request.model)
    claims = [
        _claimed_gain(asking.case, "a step on the GPU", cpu.cost.step / gpu.cost.step),
        Gain(label="arithmetic at its measured peak", gain=exact(gpu_rate / cpu_rate)),
    ]
    times = [
        PartTime(label="a step on the GPU", seconds=gpu.cost.step),
        PartTime(label="its arithmetic at that peak", seconds=exact(flops / gpu_rate)),
    ]
    return asking.finding(claims, times=times)


#: What a question of the kind `gain` changes -> what measures it.
CHANGES: dict[str, Callable[[CaseRows], Finding | None]] = {
    "batch": _larger_batch,
    "gpus": _more_gpus,
    "teacher": _teacher,
    "lanes": _lanes,
}


def _peak(profile: Profile, on_gpu: bool, maths: tuple[str, ...]) -> float | None:
    """FLOP/s of the best measured compute roof of the CPU or of the GPUs, in the first of these arithmetics that has one."""
    ceilings = Analysis.from_rows(profile.measurements, profile.machine).roofs
    for math_ in maths:
        rates = []
        for roof in ceilings:
            if roof.kind == "compute" and roof.measured and roof.name == math_ and (roof.device != "cpu") == on_gpu:
                rates.append(roof.rate.value)
        if rates:
            return max(rates)
    return None


def several_gpus(rows: Measurements, model: str) -> list[tuple[int, int, Estimate]]:
    """(GPUs, batch, gain) of the most GPUs for a model, by batch, with the library that has most of them; of any model where this
    one was not measured.
    """
    every = [(case.several, case.gain) for case in data_parallel.cases(rows) if case.several.on_gpu and case.gain]
    wanted = [(m, gain) for m, gain in every if m.problem.model == model] or every
    groups = group_by(wanted, lambda one: (one[0].experiment.replicas, one[0].library))
    if not groups:
        return []
    best = max(sorted(groups), key=lambda key: (key[0], len(groups[key])))
    gpus, _ = best
    gains = [(gpus, m.problem.batch, gain) for m, gain in groups[best]]
    return sorted(gains, key=lambda one: one[1])


# ---------------------------------------------------------------- how much of the time a copy takes


def _copy(asking: CaseRows) -> Finding | None:
    """The share of a step, or of passes over an array and a copy after them, that the copy takes; None without its rows."""
    if "step_s" in asking.case.numbers:
        return _copied_step(asking)
    return _copied_result(asking)


def _copied_step(asking: CaseRows) -> Finding | None:
    """A step whose batch is copied: as reported from pageable memory, and from pinned memory here."""
    numbers = asking.case.numbers
    bound = bound_by_copies(numbers["copy_s"], numbers["step_s"], asking.rows)
    if bound is None:
        return None
    words = f"{time(numbers['copy_s'])} of {time(numbers['step_s'])}"
    pinned = CopyShare(
        label="from pinned memory",
        words=words,
        copy_s=bound.pinned_s,
        whole_s=bound.pinned_step_s,
        claimed_share=numbers["share"],
    )
    pageable = CopyShare(
        label="from pageable memory",
        words=words,
        copy_s=numbers["copy_s"],
        whole_s=numbers["step_s"],
        claimed_share=numbers["share"],
    )
    times = [PartTime(label="a step, copy and work at once", seconds=exact(bound.overlapped_step_s))]
    return asking.finding([pinned, pageable], times=times)


def _copied_result(asking: CaseRows) -> Finding | None:
    """The copy of an array to the host, right after passes over it have been issued: it waits until they have run."""
    numbers = asking.case.numbers
    passes = int(numbers["passes"])
    clock = passes_before_copy(int(numbers["elements"]), passes, asking.rows)
    if clock is None:
        return None
    copy = CopyShare(
        label="to the host",
        words=f"{time(numbers['copy_s'])} of {time(numbers['passes_s'] + numbers['copy_s'])}",
        copy_s=clock.copy_s,
        whole_s=clock.waited_s,
        claimed_share=numbers["share"],
    )
    times = [
        PartTime(label=f"issuing {passes} passes", words=time(numbers["passes_s"]), seconds=exact(clock.issue_s)),
        PartTime(label=f"running {passes} passes", seconds=exact(clock.run_s)),
    ]
    return asking.finding([copy], times=times)


class BoundByCopies(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is mostly a copy from pageable memory, with other ways to copy the same bytes."""

    #: Bytes of the copy, by the seconds that it takes.
    nbytes: float
    #: Seconds of the copy from pinned memory.
    pinned_s: float
    #: Seconds of a step with that copy.
    pinned_step_s: float
    #: Seconds of a step whose copy from pinned memory runs at the same time as its work.
    overlapped_step_s: float


def bound_by_copies(copy_s: float, step_s: float, rows: Measurements) -> BoundByCopies | None:
    """What a step of `step_s` seconds, of which a copy from pageable memory takes `copy_s`, would take from pinned memory. None
    without rows of both kinds of copies.
    """
    pageable, pinned = (links.batch_copies(rows, GPU, memory=memory) for memory in ("pageable", "pinned"))
    if pageable is None or pinned is None:
        return None
    last_piece = pageable.pieces[-1]
    nbytes = (copy_s - last_piece.latency_s) / last_piece.s_per_byte
    pinned_s = pinned.seconds(nbytes).value
    work_s = step_s - copy_s
    return BoundByCopies(
        nbytes=nbytes,
        pinned_s=pinned_s,
        pinned_step_s=work_s + pinned_s,
        overlapped_step_s=max(work_s, pinned_s),
    )


class PassesBeforeCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Passes over an array on the GPU, and the array's copy to the host after them."""

    #: Seconds until all passes are issued; the GPU runs them meanwhile and afterwards.
    issue_s: float
    #: Seconds until all passes have run.
    run_s: float
    #: Seconds of the copy by itself.
    copy_s: float
    #: Seconds of the copy with the passes that it waits for.
    waited_s: float


def passes_before_copy(elements: int, passes: int, rows: Measurements) -> PassesBeforeCopy | None:
    """The times of so many passes over an array of float32 elements and of its copy to the host; None without rows of both."""
    nbytes = 2 * _FLOAT32_BYTES * elements  # a pass reads and writes each element
    timed = [m for m in rows if _is_gpu_pass(m)]
    law = links.batch_copies(rows, GPU, "d2h")
    constants = overheads.constants(rows)
    issue = None
    for name in ("host-issue", "host-throughput"):
        issue = issue or overheads.find(constants, "cupy-launch", GPU, clock=name)
    if not timed or law is None or issue is None:
        return None
    near = min(timed, key=lambda m: abs(m.problem.bytes_moved - nbytes))
    run_s = passes * nbytes * quick_median(near.on("device")) / near.problem.bytes_moved
    issue_s = passes * issue.seconds.value
    copy_s = law.seconds(_FLOAT32_BYTES * elements).value
    waited_s = max(0.0, run_s - issue_s) + copy_s
    return PassesBeforeCopy(issue_s=issue_s, run_s=run_s, copy_s=copy_s, waited_s=waited_s)


def _is_gpu_pass(m: Measurement) -> bool:
    """Whether a row is a pass over memory that the GPU's own clock timed."""
    is_pass = m.problem.op == "stream" and m.problem.operation in _PASSES
    return bool(is_pass and m.device == GPU and m.ok and m.on("device"))


#: Kind of question -> what answers it.
KINDS: dict[str, Callable[[CaseRows], Finding | None]] = {"faster": _faster, "gain": _gain, "copy": _copy}
