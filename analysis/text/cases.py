"""Articles and complaints answered: a case is data and one of eight kinds of question, each with one answer and one table."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from analysis.crossover.crossover import Answer, Point
from analysis.explain import evidence, explanation, published
from analysis.explain.explanation import GPU, Explanation, Request, Sources
from analysis.explain.published import Comparison, Measured
from analysis.stats import faster
from analysis.table import Table
from analysis.text import sentences as say
from analysis.text.explanation import percent, shares
from analysis.text.published import compared, gain_words, picked
from analysis.training import break_even, inference, side_by_side
from analysis.training.break_even import BY_STEP
from analysis.units import join, size
from kernels import networks
from kernels.problems import Training
from workloads import ROOT, records
from workloads.records.published_cases import Case, Complaint, Question

NAMES = {"cpu": "CPU", "gpu": "GPU", "neither": "neither"}
UNKNOWN = "not measured"
_LANES = (28, 56)  # what an article counts for a GPU of 3584 lanes against 8 cores
SAID = {
    "same": "The {winner} is faster here too: {here}, published {words}.",
    "unlike": "Unlike the article: {here}, published {words}.",
    "pair": "{verdict}: {here}.",
    "none": "Not known here: these rows do not tell it.",
    "flip": "{wins} (a step; {source}).",
    "cause": "It is {part}, {share} of the GPU's step; copied bytes are {copied}.",
    "home": "Keeping the data set on the GPU saves {saved} of {whole}; a larger batch saves {batch}.",
    "bound": "Yes, the copy decides: pinned memory would make a step {gain} faster, full overlap {most}.",
    "clock": "No, the copy takes {copy}: the clock was stopped before {passes} passes had run.",
    "sync": "Put cupy.cuda.Device().synchronize() before each reading of the clock.",
    "inference": "At batch 1 {one}; at batch {most} {many}.",
    "gpus": "{count} GPUs are {least} as fast as one at batch {small} and {gain} at batch {large}.",
    "teacher": "{verdict}: both at once are {gain} as fast as one after the other.",
    "peaks": "No: by measured peaks the GPU is {peak} faster, its step {step}.",
    "arithmetic": "{large} has {ratio} the arithmetic for each operation; starting one costs the same.",
    "floor": "No GPU step takes less than {floor}, whatever the model (measured).",
    "parts": "GPU step: {shares} (predicted).",
    "apart": "Otherwise here: {apart}.",
    "run": "To know it: {command}",
    "all": "All of it: {command} --all",
}
MEASURES = {
    "winner": "python -m workloads.training --study complaints",
    "copies": "python -m workloads.transfer --sizes 4KiB:256MiB:x4",
    "inference": "python -m workloads.inference --model inception-v3 --batch 1 8 32",
    "gpus": "python -m workloads.training --study data-parallel",
    "teacher": "python -m workloads.training --study teacher",
    "peaks": "python -m workloads.peak",
}
Row = tuple[str, str, str]


class Reply(msgspec.Struct, frozen=True):
    """A case's answer: its first sentence, rows (what, published, here), what else belongs to it, and what would measure it."""

    name: str
    title: str
    answer: str
    rows: tuple[Row, ...] = ()
    more: tuple[str, ...] = ()
    command: str = ""


class _Asking(msgspec.Struct, frozen=True):
    """A case, whose record is its kind's, with the rows that answer it; its training is explained where that is needed."""

    case: Any
    of: Sources
    request: Any  # a Request, or None of a case without a training

    @property
    def rows(self) -> tuple[records.Measurement, ...]:
        return (self.of.gpu or self.of.cpu).measurements

    def explained(self, training: Training | None = None) -> Explanation:
        asked = msgspec.structs.replace(self.request, training=training) if training else self.request
        return explanation.explain(asked, self.of)


def reply(case: Case | Complaint | Question, of: Sources, request: Request | None) -> Reply:
    """The answer to the case's own question."""
    return KINDS[case.kind](_Asking(case, of, request))


def lines(r: Reply, again: str = "", markdown: bool = False) -> list[str]:
    """The reply for a terminal or as Markdown: at most 18 lines of 80 columns."""
    table = Table("what | published | here", r.rows)
    shown = (["", *table.md()] if markdown else table.text()) if r.rows else []
    last = SAID["run"].format(command=r.command) if r.command else again and SAID["all"].format(command=again)
    head = f"## {r.name}: {r.title}" if markdown else f"{r.name}: {r.title}"
    return [head, *[""] * markdown, r.answer, *shown, *r.more, *filter(None, [last])]


def _reply(a: _Asking, answer: str, rows: Iterable[Row] = (), more: Iterable[str] = (), command: str = "") -> Reply:
    apart = getattr(a.case, "apart", "")
    told = [*more, *[SAID["apart"].format(apart=apart)] * bool(apart)]
    return Reply(a.case.name, a.case.title, answer, tuple(rows), tuple(told), command)


def _unanswered(a: _Asking, what: str) -> Reply:
    return _reply(a, SAID["none"], command=MEASURES[what])


# ---------------------------------------------------------------- the kinds of question


def _winner(a: _Asking) -> Reply:
    """Which device is faster, and by how much: an article's claims, or a complaint's trainings."""
    if isinstance(a.case, Complaint):
        return _pair(a)
    found = picked(published.comparisons(a.rows, (a.case,)))
    first = next((c for c in found if c.here), None)
    if first is None:
        return _unanswered(a, "winner")
    kind = "same" if first.faster == first.claim.faster != "neither" else "unlike"
    answer = SAID[kind].format(winner=NAMES[first.faster], here=compared(first), words=first.claim.words)
    rows = [(f"{c.claim.samples:,} samples", c.claim.words, compared(c)) for c in found]
    gpu = a.explained().gpu
    more = [SAID["parts"].format(shares=join(shares(gpu)))] if gpu else []
    return _reply(a, answer, [*rows, *_epochs(first)], more)


def _epochs(c: Comparison) -> list[Row]:
    """Each device's epoch beside the article's, where it gives seconds."""
    each = [(d, p.epoch_s, e) for d, e in (("cpu", c.cpu), ("gpu", c.gpu)) if (p := c.case.of(d)) and p.epoch_s and e]
    return [(f"an epoch on the {NAMES[d]}", say.time(theirs), say.timed(ours)) for d, theirs, ours in each]


def _reported(a: _Asking) -> list[Row]:
    """A row for each reported training: what was said, and a step of ours on both devices."""
    found = [(r, published.measured(r, a.rows)) for r in a.case.reported]
    return [(_label(a, r.training, m), r.words, _steps(m) if m else UNKNOWN) for r, m in found]


def _label(a: _Asking, t: Training, m: Measured | None) -> str:
    """What tells a case's trainings apart: the width, or the model; of a single one its batch."""
    size = break_even.size_of(_setup(t), a.case.varies) if a.case.varies == "width" else None
    if size:
        return say.counted(size[0], "width")
    return say.title(t.model) if len(a.case.reported) > 1 else f"a step, batch {m.batch if m else t.batch}"


def _setup(t: Training) -> break_even.Setup:
    return break_even.Setup("", t.model, t.batch, t.samples, t.dtype)


def _steps(m: Measured) -> str:
    return f"CPU {say.time(m.cpu)}, GPU {say.time(m.gpu)}"


def _pair(a: _Asking) -> Reply:
    """Two trainings of one machine that have different winners."""
    found = [m for r in a.case.reported if (m := published.measured(r, a.rows))]
    if len(found) < len(a.case.reported):
        return _unanswered(a, "winner")
    hits = sum(m.comes_back for m in found)
    verdict = "As reported" if hits == len(found) else "In part as reported" if hits else "Not as reported"
    here = "; ".join(f"{say.title(m.reported.training.model)}, {say.faster_by(m.cpu, m.gpu)}" for m in found)
    (_, few), (large, many) = ((r.training.model, _arithmetic(r.training)) for r in a.case.reported)
    why = SAID["arithmetic"].format(large=say.title(large), ratio=say.factor(many / few))
    return _reply(a, SAID["pair"].format(verdict=verdict, here=here), _reported(a), [why])


def _arithmetic(training: Training) -> float:
    """FLOPs of a step's products for each of its operations."""
    works = networks.step(networks.find(training.model), min(training.batch, training.samples))
    return sum(w.flops for w in works if w.kind in ("dense", "conv")) / len(works)


def _flip(a: _Asking) -> Reply:
    """From which width or batch the GPU wins."""
    made = a.explained()
    own = [x for x in break_even.answers(a.rows, (a.case.varies,)) if x.form.mode == BY_STEP and _alike(x, a)]
    predicted = [x for x in made.crossovers if x.family.varies == a.case.varies and x.form.mode == BY_STEP]
    if not (own or predicted):
        return _unanswered(a, "winner")
    source = say.MEASURED if own else say.PREDICTED
    wins = _wins((own or predicted)[0], source)
    constant = published.step_constant(a.of.gpu.constants, GPU) if a.of.gpu else None
    more = [SAID["floor"].format(floor=say.timed(constant.seconds))] if constant else []
    answer = SAID["flip"].format(wins=wins[0].upper() + wins[1:], source=source)
    return _reply(a, answer, [*_reported(a), *_copying(made)], more)


def _wins(x: Answer, source: str) -> str:
    """Who wins from which size; where one device alone surely wins, from or up to where."""
    sure = [p for p in x.points if p.sign]
    if x.kind != "cant-tell" or len({p.sign for p in sure}) != 1:
        return say.crossing(x, source)
    name, device = x.family.size_name, "GPU" if sure[0].sign > 0 else "CPU"
    if x.points[-1].sign:
        return f"the {device} surely wins from {say.counted(sure[0].n, name)}; below, it can't be told"
    return f"the {device} surely wins up to {say.counted(sure[-1].n, name)}; beyond, it can't be told"


def _alike(x: Answer, a: _Asking) -> bool:
    """Whether a measured crossover is of the case's training, but for what varies."""
    own, fixed = break_even.size_of(_setup(a.request.training), a.case.varies), dict(x.family.fixed)
    return own is not None and all(fixed.get(name) == getattr(own[1], name) for name in ("model", "batch"))


def _copying(e: Explanation) -> list[Row]:
    share = evidence.copied(e)
    return [] if share is None else [("copying a batch", "-", f"{percent(share)} of the GPU's step")]


def _cause(a: _Asking) -> Reply:
    """What takes the GPU's step."""
    m = published.measured(a.case.reported[0], a.rows)
    if m is None:
        return _unanswered(a, "winner")
    share = min(1.0, m.parts[m.largest] / m.gpu.value)
    copied = percent(m.parts.get(published.COPYING, 0.0) / m.gpu.value)
    rows = [*_reported(a), *((f"the GPU's {name}", "-", say.time(s)) for name, s in m.parts.items())]
    answer = SAID["cause"].format(part=m.largest, share=percent(share), copied=copied)
    return _reply(a, answer, [*rows, *_larger(a.explained())])


def _larger(e: Explanation) -> list[Row]:
    """What a larger batch saves of the whole training."""
    grown = [(w.job_saved, w.change.training.batch) for w in e.what_ifs if w.change.learns and w.job_saved]
    if not grown:
        return []
    saved, batch = max(grown, key=lambda one: one[0].value)
    return [(f"batch {batch:,} saves", "-", f"{say.timed(saved)} (predicted)")]


def _home(a: _Asking) -> Reply:
    """Whether the data set should be sent to the GPU once instead of batch by batch."""
    made = a.explained()
    kept = next((w for w in made.what_ifs if w.change.settings.keras.residence == "resident"), None)
    if not (kept and kept.job_saved and made.both and a.of.gpu):
        return _unanswered(a, "copies")
    t, whole = made.asked.training, made.both[1].whole
    nbytes = t.samples * networks.sample_bytes(made.asked.of, t.dtype)
    sent, larger = a.of.gpu.copying(nbytes, GPU), _larger(made)
    other = a.explained(msgspec.structs.replace(t, batch=8 * t.batch))
    beside = f"{say.time(whole)} against {say.time(other.both[1].whole)}" if other.both else UNKNOWN
    rows = [("the data set", "316 MB", size(nbytes)), ("sent once", "-", say.time(sent) if sent else UNKNOWN)]
    rows += [*_copying(made), *larger, (f"batch {t.batch} against {8 * t.batch}", "35 min against 12", beside)]
    saves = larger[0][2] if larger else "nothing"
    return _reply(a, SAID["home"].format(saved=say.timed(kept.job_saved), whole=say.time(whole), batch=saves), rows)


def _copies(a: _Asking) -> Reply:
    """Whether it is the copy: a step bound by it, or a clock stopped too early."""
    return _bound(a) if "step_s" in a.case.numbers else _clock(a)


def _bound(a: _Asking) -> Reply:
    found, step = evidence.bound(a.case, a.rows), a.case.numbers["step_s"]
    if found is None:
        return _unanswered(a, "copies")
    pinned, least = found.rest + found.pinned, max(found.rest, found.pinned)
    rows = [
        ("a step", say.time(step), "-"),
        ("copy, pageable", say.time(a.case.numbers["copy_s"]), f"the same for {size(found.nbytes)}"),
        ("copy, pinned", "-", say.time(found.pinned)),
        ("a step, pinned", "-", say.time(pinned)),
        ("a step, copy and work at once", "-", f"at least {say.time(least)}"),
    ]
    return _reply(a, SAID["bound"].format(gain=say.factor(step / pinned), most=say.factor(step / least)), rows)


def _clock(a: _Asking) -> Reply:
    found, numbers = evidence.clock(a.case, a.rows), a.case.numbers
    if found is None:
        return _unanswered(a, "copies")
    passes, waited = f"{numbers['passes']:.0f}", max(0.0, found.ran - found.issued) + found.copy
    rows = [
        (f"{passes} passes, not synchronized", say.time(numbers["passes_s"]), say.time(found.issued)),
        ("the copy with what it waits for", say.time(numbers["copy_s"]), say.time(waited)),
        (f"{passes} passes, synchronized", "-", say.time(found.ran)),
        ("the copy alone", "-", say.time(found.copy)),
    ]
    return _reply(a, SAID["clock"].format(copy=say.time(found.copy), passes=passes), rows, [SAID["sync"]])


def _inference(a: _Asking) -> Reply:
    """Whether the GPU answers faster, one sample at a time and in batches."""
    own = [(way, x) for case, way, x in inference.crossovers(a.rows) if case.model == a.case.training.model]
    if not own:
        return _unanswered(a, "inference")
    x = next((x for way, x in own if way == inference.PREDICT), own[0][1])
    first, last = x.points[0], x.points[-1]
    points = dict.fromkeys((first, *x.points[1:-1][:3], last))
    rows = [(f"frames a second, batch {p.n}", "about 5 on both" if p.n == 1 else "-", _rates(p)) for p in points]
    return _reply(a, SAID["inference"].format(one=_ahead(first), most=last.n, many=_ahead(last)), rows)


def _ahead(p: Point) -> str:
    best = faster(p.cpu.seconds, p.gpu.seconds)
    ratio = p.ratio if p.ratio.value >= 1 else 1 / p.ratio
    return "neither is faster" if best == "neither" else f"the {NAMES[best]} is {say.factor(ratio)} faster"


def _rates(p: Point) -> str:
    return f"CPU {say.number(p.n / p.cpu.seconds)}, GPU {say.number(p.n / p.gpu.seconds)}"


def _together(a: _Asking) -> Reply:
    """What several devices bring at once: GPUs that share each batch, or a teacher beside a student."""
    return _gpus(a, a.case.rows) if a.case.rows else _teacher(a)


def _gpus(a: _Asking, stored: str) -> Reply:
    model, folder, where = a.case.training.model, ROOT / "reports" / stored, ""
    if not (found := evidence.several_gpus(a.rows, model)) and folder.exists():
        found, where = evidence.several_gpus(records.read(folder).measurements, model), stored
    if not found:
        return _unanswered(a, "gpus")
    (small, least), (large, gain) = ((c.several.problem.batch, say.factor(e)) for c, e in (found[0], found[-1]))
    answer = SAID["gpus"].format(count=found[0][0].count, least=least, gain=gain, small=small, large=f"{large:,}")
    rows = [(f"{c.count} GPUs, batch {c.several.problem.batch:,} in all", "no faster", gain_words(e)) for c, e in found]
    rows.append(("twice the layers", "out of memory", "each GPU holds the whole model"))
    return _reply(a, answer, rows, [f"Rows of {where}."] if where else [])


def _teacher(a: _Asking) -> Reply:
    found = side_by_side.taught([m for m in a.rows if m.ok])
    if found is None:
        return _unanswered(a, "teacher")
    student, teacher = (f"{gain_words(e)} as long" for e in found.slower)
    rows = [
        ("student's step on the GPU", "slower?", student),
        ("teacher's answer on the CPU", "-", teacher),
        ("both, one after the other", "-", say.time(found.after)),
        ("both at once", "-", say.time(found.at_once)),
    ]
    gain = found.gain
    verdict = "Can't tell" if gain.low <= 1 <= gain.high else "It pays" if gain.low > 1 else "It does not pay"
    return _reply(a, SAID["teacher"].format(verdict=verdict, gain=gain_words(gain)), rows)


def _peaks(a: _Asking) -> Reply:
    """Whether counted or measured peaks tell the speedup of a step."""
    found = evidence.peaks(a.explained(), a.of)
    if found is None:
        return _unanswered(a, "peaks")
    rows = [
        ("by counting lanes", f"{_LANES[0]} to {_LANES[1]}x", "-"),
        ("in practice", "20x", f"a step {say.factor(found.step)}"),
        ("by measured peaks", "-", say.factor(found.ratio)),
        ("the step's arithmetic at that peak", "-", f"{percent(found.busy)} of the step"),
    ]
    return _reply(a, SAID["peaks"].format(peak=say.factor(found.ratio), step=say.factor(found.step)), rows)


KINDS: dict[str, Callable[[_Asking], Reply]] = {
    "winner": _winner,
    "flip": _flip,
    "cause": _cause,
    "home": _home,
    "copies": _copies,
    "inference": _inference,
    "together": _together,
    "peaks": _peaks,
}
