"""Numbers that answer a case's own question: eight kinds of question, each with one function."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from analysis.analysis import Analysis
from analysis.explain import explanation, published
from analysis.explain.explanation import GPU, Explanation, Request, Sources
from analysis.predict.budget import TRANSFERS
from analysis.predict.combine import total_of
from analysis.predict.profile import Profile
from analysis.roofline import links, overheads
from analysis.stats import Estimate, group_by, middle
from analysis.training import break_even, data_parallel, inference, side_by_side
from analysis.training.break_even import BY_STEP
from kernels import networks
from kernels.problems import Training
from workloads import ROOT, records
from workloads.records import Measurement, Measurements
from workloads.records.published_cases import Case, Complaint, Question

_FLOAT32 = 4
# The name of an answer and its numbers by the names that its sentences call them; a number that is not known is None.
Found = tuple[str, dict[str, Any]]


class Asking(msgspec.Struct, frozen=True):
    """A case with the rows that answer it; its training is explained where that is needed, a case without one has no request."""

    case: Any
    of: Sources
    request: Any

    @property
    def rows(self) -> tuple[Measurement, ...]:
        return (self.of.gpu or self.of.cpu).measurements

    def explained(self, **otherwise: int) -> Explanation:
        """The explanation of its training, or of the training with these fields replaced."""
        training = replace(self.request.training, **otherwise)
        return explanation.explain(replace(self.request, training=training), self.of)


def evidence(case: Case | Complaint | Question, of: Sources, request: Request | None) -> Found | None:
    """(kind of answer, its numbers) for the case's own question; None if the rows do not answer it."""
    return KINDS[case.kind](Asking(case, of, request))


# ---------------------------------------------------------------- who wins


def _winner(a: Asking) -> Found | None:
    """The faster device and its speedup: for an article's claims, or a complaint's trainings."""
    if isinstance(a.case, Complaint):
        return _pair(a)
    claims = published.picked(a.rows, a.case)
    if not claims:
        return None
    first = claims[0]
    alike = first.faster == first.claim.faster != "neither"
    epochs = [(p.device.upper(), p.epoch_s, getattr(first, p.device)) for p in a.case.published]
    values = {"verdict": "As in" if alike else "Unlike", "first": first, "claims": claims, "epochs": epochs}
    return "winner", {**values, "gpu": a.explained().gpu}


def _reported(a: Asking) -> list[tuple[str, published.Measured]]:
    """(label, measurement) of each reported training that was measured. The label is its width, its model, or the batch of a
    single one."""
    found = [m for r in a.case.reported if (m := published.measured(r, a.rows))]
    if a.case.varies == "width":
        return [(f"width {break_even.sized(m.reported.training, 'width')[0]:,}", m) for m in found]
    return [(f"batch {m.batch}" if len(a.case.reported) == 1 else m.reported.training.model, m) for m in found]


def _pair(a: Asking) -> Found | None:
    """Two reported trainings of one machine with different winners; None if one was not measured."""
    reported = _reported(a)
    if len(reported) < len(a.case.reported):
        return None
    few, many = (_arithmetic(r.training) for r in a.case.reported)
    hits = sum(m.comes_back for _, m in reported)
    both = {"first": reported[0], "second": reported[1]}
    return "pair", {**both, "reported": reported, "hits": hits, "ratio": many / few}


def _arithmetic(training: Training) -> float:
    """FLOPs of a step's products for each of its operations."""
    works = networks.step(networks.find(training.model), min(training.batch, training.samples))
    return sum(w.flops for w in works if w.kind in ("dense", "conv")) / len(works)


def _flip(a: Asking) -> Found | None:
    """The width or batch from which the GPU wins: measured with the case's training, else predicted."""
    made, varies = a.explained(), a.case.varies
    found = [x for x in made.crossovers if x.family.varies == varies and x.form.mode == BY_STEP]
    if not found:
        return None
    constant = published.step_constant(a.of.gpu.constants, GPU) if a.of.gpu else None
    return "flip", {"wins": found[0], "reported": _reported(a), "copied": copied(made), "floor": constant}


def _inference(a: Asking) -> Found | None:
    """Rates and the GPU's speedup for answers, at the smallest and the largest batch; None without rows."""
    own = {way: x for case, way, x in inference.crossovers(a.rows) if case.model == a.case.training.model}
    if not own:
        return None
    ends = own.get(inference.PREDICT, next(iter(own.values()))).ends
    rates = [{"n": p.n, "cpu": p.n / p.cpu.seconds, "gpu": p.n / p.gpu.seconds, "gain": p.ratio} for p in ends]
    return "inference", {"one": rates[0], "many": rates[-1]}


def _together(a: Asking) -> Found | None:
    """The gain of several devices at once: GPUs that share each batch (rows of this machine, else of a stored one), or a
    teacher beside a student."""
    if not a.case.rows:
        taught = next(iter(side_by_side.taught([m for m in a.rows if m.ok])), None)
        return ("teacher", {"found": taught}) if taught else None
    folder, where, model = ROOT / "reports" / a.case.rows, None, a.case.training.model
    if not (found := several_gpus(a.rows, model)) and folder.exists():
        found, where = several_gpus(records.read(folder).measurements, model), a.case.rows
    return ("gpus", {"gains": found, "first": found[0], "last": found[-1], "where": where}) if found else None


# ---------------------------------------------------------------- what the time goes to


def _cause(a: Asking) -> Found | None:
    """The largest part of the GPU's step, and its share; None without rows."""
    reported = _reported(a)
    if not reported:
        return None
    m = reported[0][1]
    share, sent = (min(1.0, m.parts.get(name, 0.0) / m.gpu.value) for name in (m.largest, published.COPYING))
    parts = {"part": m.largest, "share": share, "copied": sent, "parts": m.parts.items()}
    return "cause", {**parts, "reported": reported, "larger": a.explained().larger}


def _home(a: Asking) -> Found | None:
    """Savings of a data set resident on the GPU against copies batch by batch; None if something is not known."""
    made = a.explained()
    kept = next((w for w in made.what_ifs if w.change.settings.keras.residence == "resident"), None)
    if not (kept and kept.job_saved and made.both and a.of.gpu and made.larger):
        return None
    t, other = made.asked.training, a.explained(batch=8 * made.asked.training.batch).both
    nbytes = t.samples * networks.sample_bytes(made.asked.of, t.dtype)
    words = {"kept": kept, "larger": made.larger, "copied": copied(made), "bytes": nbytes}
    sides = {"gpu": made.both[1], "other": other[1] if other else None}
    return "home", {**words, **sides, "sent": a.of.gpu.copying(nbytes, GPU)}


def _copies(a: Asking) -> Found | None:
    """Numbers on copies: of a step bound by them, or of a clock stopped too early."""
    kind, made = ("bound", bound) if "step_s" in a.case.numbers else ("clock", clock)
    found = made(a.case, a.rows)
    return (kind, {"theirs": a.case.numbers, **found}) if found else None


def _peaks(a: Asking) -> Found | None:
    """The speedup by measured arithmetic peaks, that of a step, and the share of a step that its arithmetic takes at its peak."""
    e = a.explained()
    cpu, gpu = _peak(a.of.cpu, False, ("float32",)), a.of.gpu and _peak(a.of.gpu, True, ("tf32", "float32"))
    if not (e.both and cpu and gpu):
        return None
    t, (host, device) = e.asked.training, e.both
    busy = min(t.batch, t.samples) * networks.training_flops(e.asked.of) / gpu / device.cost.step.value
    step = host.cost.step / device.cost.step
    return "peaks", {"theirs": a.case.numbers, "ratio": gpu / cpu, "step": step, "busy": busy}


KINDS: dict[str, Callable[[Asking], Found | None]] = {
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
    found = [r for r in ceilings if r.kind == "compute" and r.measured and (r.device != "cpu") == on_gpu]
    rates = [[r.rate.value for r in found if r.name == math] for math in maths]
    return next((max(some) for some in rates if some), None)


def copied(e: Explanation) -> float | None:
    """The share of the GPU's predicted step that copying a batch takes."""
    return (total_of(e.gpu.parts, TRANSFERS) / e.gpu.step_s).value if e.gpu else None


def bound(case: Complaint, rows: Measurements) -> dict[str, Any] | None:
    """For a step that is mostly copying: its bytes, seconds of the copy from pageable and from pinned memory, of a step with
    pinned memory, and of one whose copy and work overlap fully (`least`); the speedups of both."""
    pageable, pinned = (links.law(rows, GPU, memory=memory) for memory in ("pageable", "pinned"))
    if pageable is None or pinned is None:
        return None
    last, copy, whole = pageable.pieces[-1], case.numbers["copy_s"], case.numbers["step_s"]
    nbytes = (copy - last.latency_s) / last.s_per_byte
    quick, rest = pinned.seconds(nbytes).value, whole - copy
    step, least = rest + quick, max(rest, quick)
    return {"bytes": nbytes, "pinned": quick, "step": step, "least": least, "gains": (whole / step, whole / least)}


def clock(case: Complaint, rows: Measurements) -> dict[str, Any] | None:
    """Seconds of passes over an array: to issue and to run them, of the array's copy to the host, with what that waits for."""
    elements, passes = case.numbers["elements"], int(case.numbers["passes"])
    nbytes = 2 * _FLOAT32 * elements
    like = [m for m in rows if m.problem.op == "stream" and m.problem.operation in ("scale", "copy")]
    timed = [m for m in like if m.device == GPU and m.ok and m.on("device")]
    law, constants = links.law(rows, GPU, "d2h"), overheads.constants(rows)
    clocks = ("host-issue", "host-throughput")
    issue = next((c for name in clocks if (c := overheads.find(constants, "cupy-launch", GPU, clock=name))), None)
    if not timed or law is None or issue is None:
        return None
    near = min(timed, key=lambda m: abs(m.problem.bytes_moved - nbytes))
    ran = passes * nbytes * middle(near.on("device")) / near.problem.bytes_moved
    issued, copy = passes * issue.seconds.value, law.seconds(_FLOAT32 * elements).value
    return {"issued": issued, "ran": ran, "copy": copy, "waited": max(0.0, ran - issued) + copy}


def several_gpus(rows: Measurements, model: str) -> list[tuple[int, int, Estimate]]:
    """(GPUs, batch, gain) of the most GPUs for a model, by batch, with the library that has most of them."""
    every = [(c.several, gain) for c in data_parallel.cases(rows) if c.several.on_gpu and (gain := c.gain)]
    own = [one for one in every if one[0].problem.model == model] or every
    groups = group_by(own, lambda one: (one[0].experiment.replicas, one[0].library))
    best = max(sorted(groups), key=lambda at: (at[0], len(groups[at])), default=None)
    told = [(best[0], m.problem.batch, gain) for m, gain in groups[best]] if best else []
    return sorted(told, key=lambda one: one[1])
