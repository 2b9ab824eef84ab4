"""Articles and complaints answered: a case is data and one of eight kinds of question, each with one answer and one table."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from analysis.explain import evidence, explanation, published
from analysis.explain.explanation import GPU, Explanation, Request, Sources
from analysis.explain.published import Comparison
from analysis.table import Table, parsed
from analysis.text import sentences
from analysis.text.explanation import shares
from analysis.text.rows import way
from analysis.text.sentences import NAMES, say
from analysis.training import break_even, inference, side_by_side
from analysis.training.break_even import BY_STEP
from analysis.units import join, size
from kernels import networks
from kernels.problems import Training
from workloads import ROOT, records
from workloads.records import Measurement
from workloads.records.published_cases import Case, Complaint, Question

UNKNOWN = "not measured"
# Of each kind the answer, the rows (what | published | here) and what else belongs to it, but for lines of what is not known.
TOLD = {
    "same": """
As in the article, the {winner} is faster. Here: {here}; there: {words}.
GPU step: {shares} (predicted).""",
    "unlike": """
Unlike in the article. Here: {here}; there: {words}.
GPU step: {shares} (predicted).""",
    "pair": """
{verdict}: {here}.
{large:title} has {ratio:factor} the arithmetic for each operation; starting one costs the same.""",
    "flip": """
{wins} (a step; {source}).
copying a batch | - | {copied:share} of the GPU's step
No GPU step takes less than {floor:timed}, whatever the model (measured).""",
    "cause": """
It is {part}, {share:share} of the GPU's step; copied bytes are {copied:share}.
batch {batch:,} saves | - | {more:timed} (predicted)""",
    "home": """
Keeping the data set on the GPU saves {saved:timed} of {whole:time}; batch {batch:,} saves {more:timed} (predicted).
the data set | 316 MB | {bytes}
sent once | - | {sent:time}
copying a batch | - | {copied:share} of the GPU's step
batch {small} against {large} | 35 min against 12 | {whole:time} against {other:time}""",
    "bound": """
Yes, the copy decides: pinned memory would make a step {gain:factor} faster, full overlap {most:factor}.
a step | {step:time} | -
copy, pageable | {copy:time} | the same for {bytes}
copy, pinned | - | {pinned:time}
a step, pinned | - | {both:time}
a step, copy and work at once | - | at least {least:time}""",
    "clock": """
No, the copy takes {copy:time}: the clock was stopped before {passes:.0f} passes had run.
{passes:.0f} passes, not synchronized | {passes_s:time} | {issued:time}
the copy with what it waits for | {copy_s:time} | {waited:time}
{passes:.0f} passes, synchronized | - | {ran:time}
the copy alone | - | {copy:time}
Put cupy.cuda.Device().synchronize() before each reading of the clock.""",
    "inference": """
At batch {first} {one}; at batch {last} {many}.""",
    "gpus": """
With {count} GPUs the speedup is {least:factor} at batch {small:,} and {gain:factor} at batch {large:,}.
twice the layers | out of memory | each GPU holds the whole model
Rows of {where}.""",
    "teacher": """
{verdict}: at once instead of one after the other the speedup is {gain:gain}.
student's step on the GPU | slower? | slowdown {student:gain}
teacher's answer on the CPU | - | slowdown {teacher:gain}
both, one after the other | - | {after:time}
both at once | - | {at_once:time}""",
    "peaks": """
No: by measured peaks the GPU is {ratio:factor} faster, its step {step:factor}.
by counting lanes | 28 to 56x | -
in practice | 20x | a step {step:factor}
by measured peaks | - | {ratio:factor}
the step's arithmetic at that peak | - | {busy:share} of the step""",
}
SAID = {
    "none": "Not known here: these rows do not tell it.",
    "apart": "Otherwise here: {apart}.",
    "claim": "{model:title}, {samples:,} samples: published {words}; here {here}.",
    "run": "To know it: {command}",
    "all": "All of it: {command} --all",
}
_TRAINING, _COPIES = "python -m workloads.training --study ", "python -m workloads.transfer --sizes 4KiB:256MiB:x4"
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
    def rows(self) -> tuple[Measurement, ...]:
        return (self.of.gpu or self.of.cpu).measurements

    def explained(self, training: Training | None = None) -> Explanation:
        asked = msgspec.structs.replace(self.request, training=training) if training else self.request
        return explanation.explain(asked, self.of)

    def reply(self, kind: str, rows: Iterable[Row] = (), **values: object) -> Reply:
        """The kind's answer of these values, its own rows after `rows`."""
        apart = getattr(self.case, "apart", "")
        answer, *rest = sentences.lines(TOLD[kind], **values)
        told = [(what, theirs, here) for what, theirs, here in parsed("\n".join(s for s in rest if " | " in s))]
        more = [line for line in rest if " | " not in line] + [say(SAID["apart"], apart=apart)] * bool(apart)
        return Reply(self.case.name, self.case.title, answer, (*rows, *told), tuple(more))


def reply(case: Case | Complaint | Question, of: Sources, request: Request | None) -> Reply:
    """The answer to the case's own question; where no row tells it, the command that measures it."""
    answer, command = KINDS[case.kind]
    unknown = Reply(
        case.name,
        case.title,
        SAID["none"],
        command=say(command, study="data-parallel" if getattr(case, "rows", "") else "teacher"),
    )
    return answer(_Asking(case, of, request)) or unknown


def lines(r: Reply, again: str = "", markdown: bool = False) -> list[str]:
    """The reply for a terminal or as Markdown: at most 18 lines of 80 columns."""
    table = Table("what | published | here", r.rows)
    shown = (["", *table.md()] if markdown else table.text()) if r.rows else []
    last = say(SAID["run"], command=r.command) if r.command else again and say(SAID["all"], command=again)
    head = ["## " * markdown + f"{r.name}: {r.title}", *[""] * markdown]
    return [*head, r.answer, *shown, *r.more, *filter(None, [last])]


# ---------------------------------------------------------------- articles' claims


def picked(found: Iterable[Comparison]) -> list[Comparison]:
    """One comparison a claim: a bare loop where the article trained by one, and the fastest GPU of these."""

    def rank(c: Comparison) -> tuple[bool, bool, float]:
        return c.here is not None, c.is_loop == c.case.loop, -c.gpu.value if c.gpu else 0.0

    best: dict = {}
    for c in found:
        key = c.case.name, c.claim.samples
        best[key] = max(best.get(key, c), c, key=rank)
    return list(best.values())


def compared(c: Comparison) -> str:
    """`GPU 3.4x faster (fit)`."""
    return f"{sentences.faster_by(c.cpu, c.gpu)} ({way(c.row)})" if c.cpu and c.gpu and c.row else UNKNOWN


def claims(measurements: Iterable[Measurement]) -> list[str]:
    """A sentence for each claim that rows have something to say about."""
    found = [(c, c.claim) for c in picked(published.comparisons(measurements)) if c.here]
    return [
        say(SAID["claim"], model=c.case.model, samples=claim.samples, words=claim.words, here=compared(c))
        for c, claim in found
    ]


# ---------------------------------------------------------------- the kinds of question


def _winner(a: _Asking) -> Reply | None:
    """Which device is faster, and by how much: an article's claims, or a complaint's trainings."""
    if isinstance(a.case, Complaint):
        return _pair(a)
    found = picked(published.comparisons(a.rows, (a.case,)))
    first = next((c for c in found if c.here), None)
    if first is None:
        return None
    rows = [(f"{c.claim.samples:,} samples", c.claim.words, compared(c)) for c in found]
    for device, ours in (("cpu", first.cpu), ("gpu", first.gpu)):
        theirs = a.case.of(device)
        if theirs and theirs.epoch_s and ours:
            row = (f"an epoch on the {NAMES[device]}", sentences.time(theirs.epoch_s), sentences.timed(ours))
            rows.append(row)
    kind = "same" if first.faster == first.claim.faster != "neither" else "unlike"
    gpu, winner = a.explained().gpu, NAMES.get(first.faster, "")
    words = {"here": compared(first), "words": first.claim.words, "winner": winner}
    return a.reply(kind, rows, shares=join(shares(gpu)) if gpu else None, **words)


def _reported(a: _Asking) -> list[Row]:
    """A row for each reported training: its width, its model, or of a single one its batch; what was said; our step."""
    rows = []
    for r in a.case.reported:
        m, t = published.measured(r, a.rows), r.training
        width = break_even.size_of(_setup(t), "width") if a.case.varies == "width" else None
        name = sentences.title(t.model) if len(a.case.reported) > 1 else f"a step, batch {m.batch if m else t.batch}"
        name = sentences.counted(width[0], "width") if width else name
        rows.append((name, r.words, say("CPU {0:time}, GPU {1:time}", m.cpu, m.gpu) if m else UNKNOWN))
    return rows


def _setup(t: Training) -> break_even.Setup:
    return break_even.Setup("", t.model, t.batch, t.samples, t.dtype)


def _pair(a: _Asking) -> Reply | None:
    """Two trainings of one machine that have different winners."""
    found = [m for r in a.case.reported if (m := published.measured(r, a.rows))]
    if len(found) < len(a.case.reported):
        return None
    hits = sum(m.comes_back for m in found)
    verdict = "As reported" if hits == len(found) else "In part as reported" if hits else "Not as reported"
    here = [f"{sentences.title(m.reported.training.model)}, {sentences.faster_by(m.cpu, m.gpu)}" for m in found]
    few, many = (_arithmetic(r.training) for r in a.case.reported)
    large = a.case.reported[1].training.model
    return a.reply("pair", _reported(a), verdict=verdict, here="; ".join(here), large=large, ratio=many / few)


def _arithmetic(training: Training) -> float:
    """FLOPs of a step's products for each of its operations."""
    works = networks.step(networks.find(training.model), min(training.batch, training.samples))
    return sum(w.flops for w in works if w.kind in ("dense", "conv")) / len(works)


def _flip(a: _Asking) -> Reply | None:
    """From which width or batch the GPU wins: measured of the case's training but for what varies, else predicted."""
    made, varies = a.explained(), a.case.varies
    at = break_even.size_of(_setup(a.request.training), varies)
    alike = {("model", at[1].model), ("batch", at[1].batch)} if at else {("", "")}
    own = [x for x in break_even.answers(a.rows, (varies,)) if x.form.mode == BY_STEP and alike <= {*x.family.fixed}]
    found = own or [x for x in made.crossovers if x.family.varies == varies and x.form.mode == BY_STEP]
    if not found:
        return None
    source = sentences.MEASURED if own else sentences.PREDICTED
    wins = sentences.crossing(found[0], source)
    constant = published.step_constant(a.of.gpu.constants, GPU) if a.of.gpu else None
    words = {"wins": sentences.capital(wins), "source": source, "copied": evidence.copied(made)}
    return a.reply("flip", _reported(a), floor=constant and constant.seconds, **words)


def _cause(a: _Asking) -> Reply | None:
    """What takes the GPU's step."""
    m = published.measured(a.case.reported[0], a.rows)
    if m is None:
        return None
    rows = [*_reported(a), *((f"the GPU's {name}", "-", sentences.time(s)) for name, s in m.parts.items())]
    share, copied = (m.parts.get(name, 0.0) / m.gpu.value for name in (m.largest, published.COPYING))
    return a.reply("cause", rows, part=m.largest, share=min(1.0, share), copied=copied, **_larger(a.explained()))


def _larger(e: Explanation) -> dict:
    """What a larger batch saves of the whole training."""
    grown = [(w.job_saved, w.change.training.batch) for w in e.what_ifs if w.change.learns and w.job_saved]
    more, batch = max(grown, key=lambda one: one[0].value, default=(None, None))
    return {"more": more, "batch": batch}


def _home(a: _Asking) -> Reply | None:
    """Whether the data set should be sent to the GPU once instead of batch by batch."""
    made = a.explained()
    kept = next((w for w in made.what_ifs if w.change.settings.keras.residence == "resident"), None)
    larger = _larger(made)
    if not (kept and kept.job_saved and made.both and a.of.gpu and larger["more"]):
        return None
    t, whole = made.asked.training, made.both[1].whole
    nbytes = t.samples * networks.sample_bytes(made.asked.of, t.dtype)
    other = a.explained(msgspec.structs.replace(t, batch=8 * t.batch)).both
    words: dict = {"small": t.batch, "large": 8 * t.batch, "bytes": size(nbytes), "copied": evidence.copied(made)}
    words |= {"sent": a.of.gpu.copying(nbytes, GPU), "other": other[1].whole if other else None}
    return a.reply("home", saved=kept.job_saved, whole=whole, **words, **larger)


def _copies(a: _Asking) -> Reply | None:
    """Whether it is the copy: a step bound by it, or a clock stopped too early."""
    numbers = a.case.numbers
    if (step := numbers.get("step_s")) and (bound := evidence.bound(a.case, a.rows)):
        both, least = bound.rest + bound.pinned, max(bound.rest, bound.pinned)
        words = {"step": step, "copy": numbers["copy_s"], "pinned": bound.pinned, "both": both, "least": least}
        return a.reply("bound", bytes=size(bound.nbytes), gain=step / both, most=step / least, **words)
    if step is None and (clock := evidence.clock(a.case, a.rows)):
        waited = max(0.0, clock.ran - clock.issued) + clock.copy
        return a.reply("clock", waited=waited, **{**numbers, **msgspec.structs.asdict(clock)})
    return None


def _inference(a: _Asking) -> Reply | None:
    """Whether the GPU answers faster, one sample at a time and in batches."""
    own = {way: x for case, way, x in inference.crossovers(a.rows) if case.model == a.case.training.model}
    if not own:
        return None
    points = own.get(inference.PREDICT, next(iter(own.values()))).points
    rows, won = [], []
    for p in dict.fromkeys((*points[:4], points[-1])):
        cpu, gpu = p.cpu.seconds, p.gpu.seconds
        rates = f"CPU {sentences.number(p.n / cpu)}, GPU {sentences.number(p.n / gpu)}"
        rows.append((f"frames a second, batch {p.n}", "about 5 on both" if p.n == 1 else "-", rates))
        best, _, faster = sentences.faster_by(cpu, gpu).partition(" ")
        won.append("neither is faster" if best not in NAMES.values() else f"the {best} is {faster}")
    return a.reply("inference", rows, first=points[0].n, one=won[0], last=points[-1].n, many=won[-1])


def _together(a: _Asking) -> Reply | None:
    """What several devices bring at once: GPUs that share each batch, or a teacher beside a student."""
    if a.case.rows:
        return _gpus(a, a.case.training.model, a.case.rows)
    found = side_by_side.taught([m for m in a.rows if m.ok])
    if found is None:
        return None
    low, high, (student, teacher) = found.gain.low, found.gain.high, found.slower
    verdict = "Can't tell" if low <= 1 <= high else "It pays" if low > 1 else "It does not pay"
    words: dict = {"student": student, "teacher": teacher, "after": found.after, "at_once": found.at_once}
    return a.reply("teacher", verdict=verdict, gain=found.gain, **words)


def _gpus(a: _Asking, model: str, stored: str) -> Reply | None:
    """Of the rows, else of the stored machine's."""
    folder, where = ROOT / "reports" / stored, None
    if not (found := evidence.several_gpus(a.rows, model)) and folder.exists():
        found, where = evidence.several_gpus(records.read(folder).measurements, model), stored
    if not found:
        return None
    each = [(c.count, c.several.problem.batch, e) for c, e in found]
    rows = [(f"{k} GPUs, batch {batch:,} in all", "no faster", sentences.gain(e)) for k, batch, e in each]
    (count, small, least), (_, large, gain) = each[0], each[-1]
    return a.reply("gpus", rows, count=count, small=small, least=least, large=large, gain=gain, where=where)


def _peaks(a: _Asking) -> Reply | None:
    """Whether counted or measured peaks tell the speedup of a step."""
    found = evidence.peaks(a.explained(), a.of)
    return a.reply("peaks", **msgspec.structs.asdict(found)) if found else None


KINDS: dict[str, tuple[Callable[[_Asking], Reply | None], str]] = {  # what answers, and the command that measures it
    "winner": (_winner, f"{_TRAINING}complaints"),
    "flip": (_flip, f"{_TRAINING}complaints"),
    "cause": (_cause, f"{_TRAINING}complaints"),
    "home": (_home, _COPIES),
    "copies": (_copies, _COPIES),
    "inference": (_inference, "python -m workloads.inference --model inception-v3 --batch 1 8 32"),
    "together": (_together, f"{_TRAINING}{{study}}"),
    "peaks": (_peaks, "python -m workloads.peak"),
}
