"""An Explanation as at most twelve lines (the winner, why, from which size, what helps, how to check it), and its details."""

import itertools
from collections.abc import Sequence

import msgspec

from analysis import numbers
from analysis.explain.doubts import FLAGS
from analysis.explain.explanation import Explanation
from analysis.explain.sides import Side
from analysis.finding import Warning
from analysis.predict.combine import WORDS
from analysis.predict.what_if import WhatIf
from analysis.stats import NOTHING, Estimate, best_by, faster
from analysis.table import Table, text, titled
from analysis.text import sentences, training
from analysis.text.rows import option_words
from analysis.text.sentences import CANT_TELL, MEASURED, NAMES, PREDICTED, counted, say
from analysis.training.break_even import BY_JOB, Setup
from analysis.training.costs import FIT
from analysis.units import count, join, size
from workloads import terminal
from workloads.records import Machine, Measurements
from workloads.records.script_fit import ScriptFit

MOST, WIDTH, ACTIONS = 12, 80, 3
_BAR = 36  # blocks of a bar, fewer where the terminal is narrow
_LABEL = " " * 6
_START = {"start-up": "start-up", "build and compile": "compilation", "data-set setup": "data-set setup"}
_REACH = 2.5  # times the longer time, beyond which an interval runs off its bar
SAID = {
    "why": "The GPU's steps are {least}{ratio:speed}{start}.",
    "start": "; it starts {later:time} {when}{most}",
    "beside": "Most time is {what}: {cpu:time} on the CPU, {gpu:time} on the GPU.",
    "share": "{name} step: {main:shares}{predicted}.",
    "turn": "{at} on, the {to}{unsure} finishes first.",
    "never": "the first epoch on, the {to}{unsure} finishes first, and it stays so.",
    "saves": "saves {job_saved:timed}",
    "overlap": "Savings overlap: do not add them.",
    "more": "{n} more{unsure} {where}.",
    "how": "--how 1 shows the code.",
    "no saving": "No change is sure to save 1 % of the time.",
    "none": "No verdict yet: {who} for this model.",
    "one": "On the {side.name} it takes {side.whole:timed} ({side.cost.source}).",
    "withheld": "No verdict: {unknown.names} not known, {unknown.arithmetic:share} of the arithmetic; --measure times it.",
    "partial": "Partial: of {unknown.names}, {unknown.arithmetic:share} of the arithmetic, there is only an estimate.",
    "unknown": "Left out of the {name}'s time, as no row tells it: {parts}.",
    "not compiled": "The model is not compiled: {chosen} are assumed.",
    "disturbed": "{what}: measure again (--wait-quiet).",
    "question": "{where} about {counts} the {device} probably wins: how many {do}?",
    "too big": "It needs {m.peak.value:size} of memory on the {name}, which has {m.capacity:size} (predicted).",
    "price": "CPU {money[0]:number}, GPU {money[1]:number}, in your currency. Cheapest: {cheapest}. Fastest: {fastest}.",
    "worth": "The GPU pays while its machine costs less than {ratio:gain} the CPU's an hour.",
    "used": "On {where} TensorFlow used the GPU in {rows:,} rows, {trained:,} of them trainings.",
    "refused": "On {where} TensorFlow did not use the GPU: {reason}.",
    "unseen": "{where} has a GPU; python -m workloads.doctor says whether TensorFlow sees it.",
    "no gpu": "On {where} no GPU was measured; --gpu-profile nvidia-h200 sets a stored one beside it.",
    "host": "Dispatch takes {factor:gain} as long as with {gpu}'s own CPU.",
    "no host": "Dispatch is taken as with {gpu}'s own CPU: no call was measured on both.",
    "missing": "Missing of {text}.",
    "not known": "Not known: {text}.",
}
# Kind of a further command -> what it is for, and the flags that the typed command goes on with.
FOLLOW_UPS = {
    "measure": ("Measure it here, about {seconds:.0f} s", "--measure"),
    "verify": ("Check it (1 min)", "--verify 1"),
    "stored": ("With a stored GPU", "--gpu-profile nvidia-h200"),
    "all": ("More", "--all"),
}
ACTION_HEADS = "do | saving | note"

# A flag of disturbed rows -> what happened.
DISTURBED = {
    "other-load": "other programs used {share:share} of the CPU",
    "steal": "the hypervisor took {share:share} of the CPU time",
    "quota": "a CPU quota held the work back",
    "other-tenant": "another program computed on the GPU",
    "thermal": "heat lowered the GPU's clock",
}


# ---------------------------------------------------------------- twelve lines


def subject(e: Explanation) -> str:
    """`CIFAR-10 CNN, batch 32, 50,000 samples, 10 epochs`; with assumed numbers
    `mine.py:build, batch 32, assumed: 50,000 samples, 10 epochs`."""
    t = e.asked.training
    if e.asked.script is not None:
        return script_subject(e, e.asked.script)
    assumed = {one.name: counted(one.value, one.name) for one in e.assumed}
    setup = Setup(
        kernel=FIT,
        model=t.model,
        batch=0 if "batch" in assumed else min(t.batch, t.samples),
        samples=0 if "samples" in assumed else t.samples,
        dtype=t.dtype,
        switches=tuple(e.asked.switches.items()),
    )
    unknown_batch = setup.batch == setup.samples == 0
    words = [training.subject(setup, "batch" if unknown_batch else "")]
    if "epochs" not in assumed:
        words.append(counted(t.epochs, "epochs"))
    if t.dtype == "float64":
        words.append("float64 inputs")
    if e.asked.validation:
        words.append(f"validated on {e.asked.validation:,}")
    if assumed:
        words.append(f"assumed: {', '.join(assumed.values())}")
    return ", ".join(words)


def script_subject(e: Explanation, fit: ScriptFit) -> str:
    """`train.py, fit at line 41: 1 input, 8,000 samples, batch 64, at most 20 epochs (from your script)`."""
    t = e.asked.training
    epochs = counted(t.epochs, "epochs")
    if fit.stops_early and t.epochs == fit.epochs:
        epochs = f"at most {epochs}"
    words = [count(fit.inputs, "input"), counted(t.samples, "samples"), f"batch {min(t.batch, t.samples):,}", epochs]
    words += option_words(e.asked.switches)
    if t.dtype == "float64":
        words.append("float64 inputs")
    if e.asked.validation:
        words.append(f"validated on {e.asked.validation:,}")
    changed = []
    for name in ("batch", "samples", "epochs"):
        if getattr(t, name) != getattr(fit, name):
            changed.append(FLAGS[name])
    source = f"from your script, but for {', '.join(changed)}" if changed else "from your script"
    return f"{fit.head}: {', '.join(words)} ({source})"


def flags(e: Explanation) -> str:
    """`(--samples, --epochs)`: the flags that give what was assumed; "" where nothing was."""
    return f"({', '.join(one.flag for one in e.assumed)})" if e.assumed else ""


def sources(e: Explanation) -> str:
    """Where the times come from: `measured`, `predicted`, `GPU predicted`, or `from measured parts` (no row ran as many samples
    and epochs). A stored GPU's machine is named too."""
    predicted = [s.name for s in e.sides if s.cost.source == PREDICTED]
    whole = MEASURED if all(s.ran for s in e.sides) else f"from {MEASURED} parts"
    source = " ".join([*predicted[: len(predicted) < len(e.sides)], PREDICTED if predicted else whole])
    return f"{source}, {e.borrowed}" if e.borrowed else source


class FollowUp(msgspec.Struct, frozen=True, kw_only=True):
    """A command that says or measures more than the answer."""

    #: What it is for.
    purpose: str
    #: The command as it can be typed.
    command: str

    @property
    def line(self) -> str:
        return f"{self.purpose}: {self.command}"


class AnswerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says, before it is laid out for a terminal or as Markdown."""

    #: The winner with both times, or why there is none.
    first: str
    #: Name of a point (Why, From, Do, Note) -> its sentences.
    points: dict[str, list[str]]
    #: The changes that help most; on a terminal they stand before the sentences of Do.
    actions: Table


def answer(
    e: Explanation,
    command: str = "",
    *,
    measuring_s: float = 0.0,
    can_check: bool = False,
    complete: bool = False,
    markdown: bool = False,
) -> list[str]:
    """The answer for a terminal or as Markdown.

    command: as it was typed, for the last line, which says what more it can do; "" leaves that line out.
    measuring_s: seconds in which --measure measures what the answer lacks; 0 where it measures nothing.
    can_check: whether this machine can measure a change.
    complete: whether all of --all follows, to which nothing needs to lead.
    """
    kind = _follow_up_kind(e, measuring_s, can_check)
    follow_up = _follow_up(kind, command, measuring_s) if command else None
    both = e.both
    if both:
        last_line = follow_up.line if follow_up else ""
        parts = _compared(e, both, last_line, complete=complete, markdown=markdown)
    else:
        parts = _not_compared(e)
    if complete and kind == "all":
        follow_up = None
    return _markdown(e, parts, follow_up) if markdown else _lines(e, parts, follow_up)


def _follow_up_kind(e: Explanation, measuring_s: float, can_check: bool) -> str:
    """A key of FOLLOW_UPS."""
    if _too_big(e):
        return "all"
    if measuring_s:
        return "measure"
    if _has_only_cpu(e):
        return "stored"
    return "verify" if e.actions and can_check else "all"


def _follow_up(kind: str, command: str, measuring_s: float) -> FollowUp:
    purpose, flags = FOLLOW_UPS[kind]
    typed, separator, passed_on = command.partition(" -- ")  # words behind it are the script's
    return FollowUp(purpose=purpose.format(seconds=measuring_s), command=f"{typed} {flags}{separator}{passed_on}")


def _has_only_cpu(e: Explanation) -> bool:
    return [side.device for side in e.sides] == ["cpu"]


def _too_big(e: Explanation) -> list[str]:
    """A sentence for each device whose memory the training does not fit into."""
    return [say(SAID["too big"], m=m, name=NAMES[m.device]) for m in e.memory if m.too_big]


def _compared(
    e: Explanation, both: tuple[Side, Side], last_line: str, *, complete: bool, markdown: bool
) -> AnswerParts:
    """The answer where both sides are known. A terminal's is cut to MOST lines, its last line included."""
    cpu, gpu = both
    source = PREDICTED if PREDICTED in (cpu.cost.source, gpu.cost.source) else MEASURED
    first = sentences.winner(cpu.whole, gpu.whole, source, disturbed=bool(e.disturbances))
    near_change = question(e)
    points = {"Why": [why(cpu, gpu)]}
    points["But" if near_change else "From"] = [near_change or turns(e)]
    if e.asked.prices:
        points["Cost"] = [price(e)]
    notes = _notes(e)
    room = MOST
    if not markdown:
        point_lines = [_LABEL + sentence for sentence in [*itertools.chain(*points.values()), *notes]]
        room -= _line_count([*_head(e), first, *bars(both), last_line, *point_lines])
    reasons = _further_reasons(e, room)
    points["Why"] += reasons
    actions, points["Do"] = _actions(e, room - len(reasons), complete=complete)
    points["Note"] = notes
    return AnswerParts(first=first, points=points, actions=actions)


def _line_count(lines: Sequence[str]) -> int:
    """How many lines these are at WIDTH columns."""
    return sum(len(terminal.wrapped(line, WIDTH)) for line in lines)


def _further_reasons(e: Explanation, room: int) -> list[str]:
    """Sentences on the parts of a step and on the host of a stored GPU, where there is room for them."""
    reasons = []
    if e.main and room > 2:
        reasons.append(_step_shares(e))
    if e.borrowed and room > 4:
        reasons.append(_host(e))
    return reasons


def _not_compared(e: Explanation) -> AnswerParts:
    """The answer where a side is not known: why there is no winner."""
    too_big = _too_big(e)
    lacking = "no GPU was measured" if _has_only_cpu(e) else "the CPU was not measured"
    if too_big:
        first = too_big[0]
    elif e.withheld:
        first = say(SAID["withheld"], unknown=e.asked.unknown_share)
    else:
        first = say(SAID["none"], who=lacking)
    points = {} if e.withheld else {"And": too_big[1:], "Note": _notes(e)}
    return AnswerParts(first=first, points=points, actions=Table(ACTION_HEADS, (), 3))


def _head(e: Explanation) -> list[str]:
    """The training, the flags of what was assumed, and at the right the sources of its times: one line, or two if they are too
    long for one."""
    left, right = subject(e), sources(e) if e.sides else ""
    between = f" {flags(e)}".rstrip()
    gap = WIDTH - len(left) - len(between) - len(right)
    if not right or gap > 1:
        return [(left + between + " " * gap + right).rstrip()]
    second = between.strip()
    return [left, second + right.rjust(WIDTH - len(second))]


def _lines(e: Explanation, parts: AnswerParts, follow_up: FollowUp | None) -> list[str]:
    """The answer on a terminal: a bar a device, the points with their names before them."""
    sides = bars(e.both) if e.both else [say(SAID["one"], side=side) for side in e.sides]
    lines = [*_head(e), parts.first, *sides]
    for name, point in parts.points.items():
        rows = _action_rows(parts.actions) if name == "Do" else []
        lines += _labeled(name, [*rows, *point])
    if follow_up:
        lines.append(follow_up.line)
    return lines


def _action_rows(actions: Table) -> list[str]:
    """The rows of the table of changes; where they are too long for the terminal, their cells one after the other."""
    _, *rows = actions.text(0)
    widest = max(map(len, rows), default=0)
    if widest <= (terminal.width() or WIDTH) - len(_LABEL):
        return rows
    return ["; ".join(str(cell) for cell in row if cell) for row in actions.rows]


def _labeled(name: str, sentences_: list[str]) -> list[str]:
    """The sentences of a point, its name before the first."""
    lines: list[str] = []
    for sentence in sentences_:
        label = "" if lines else name
        lines.append(f"{label:<{len(_LABEL)}}{sentence}")
    return lines


def _markdown(e: Explanation, parts: AnswerParts, follow_up: FollowUp | None) -> list[str]:
    """The answer as Markdown: a heading, the winner in bold, what the terminal's bars say as a table, a list of the points."""
    heading = f"{subject(e)} {flags(e)}".rstrip()
    if e.sides:
        heading += f", {sources(e)}"
    sides = Table("on | whole training", [(side.name, numbers.timed(side.whole)) for side in e.sides])
    lines = [f"## {text(heading)}", "", f"**{text(parts.first)}**", "", *sides.md()]
    bullets = [f"- **{name}.** {text(' '.join(point))}" for name, point in parts.points.items() if point]
    if bullets:
        lines += [*bullets, ""]
    lines += parts.actions.md()
    if follow_up:
        lines.append(f"{follow_up.purpose}: `{follow_up.command}`")
    return lines


def bars(both: tuple[Side, Side]) -> list[str]:
    """A bar a device: full to the interval's low end, light to its high end, with a mark at the value."""
    longest = max(s.whole.value for s in both)
    blocks = max(_BAR // 4, min(_BAR, (terminal.width() or WIDTH) - WIDTH + _BAR))
    scale = blocks / min(max(s.whole.high for s in both), _REACH * longest)
    lines = []
    for side in both:
        e = side.whole
        low, value, high = (round(min(scale * max(0.0, x), blocks)) for x in (e.low, e.value, e.high))
        bar = "█" * low + "░" * (value - low) + "|" + "░" * (high - value)
        lines.append(f"  {side.name}  {bar:<{blocks + 1}}  {numbers.timed(e)}")
    return lines


def why(cpu: Side, gpu: Side) -> str:
    """The speedup of the GPU's steps, its least if they can't be told from 0, and how much later or earlier it starts, if that
    is more than noise. If both spend most time in the same other part, that part instead."""
    if cpu.largest == gpu.largest and cpu.largest not in ("steps", "start-up", "build and compile"):
        name = cpu.largest
        return say(SAID["beside"], what=name, cpu=cpu.parts[name], gpu=gpu.parts[name])
    apart = {name: gpu.parts[name] - cpu.parts[name] for name in _START}
    more = {name: 0.0 if e.low < 0 < e.high else e.value for name, e in apart.items()}
    later, most = sum(more.values()), max(more, key=more.__getitem__)
    words = {"when": "later" if later > 0 else "earlier", "most": f" ({_START[most]})" * (more[most] > later / 2 > 0)}
    start = say(SAID["start"], later=abs(later), **words) if later else ""
    ratio = cpu.cost.step / gpu.cost.step
    least = gpu.cost.step.low <= 0 and ratio.low > 1
    return say(SAID["why"], least="at least " * least, ratio=ratio.low if least else ratio.value, start=start)


def _step_shares(e: Explanation) -> str:
    name = "GPU" if e.gpu else "CPU"
    marked = " (predicted)" * any(s.name == name and s.cost.source != PREDICTED for s in e.sides)
    return say(SAID["share"], name=name, main=e.main, predicted=marked)


def _host(e: Explanation) -> str:
    """How long this CPU takes to dispatch for a GPU that is stored with another CPU."""
    return say(SAID["host" if e.host_factor else "no host"], factor=e.host_factor, gpu=e.borrowed)


def turns(e: Explanation) -> str:
    """The samples or epochs from which the other device wins; `probably` where no rows of fewer and of more were measured and
    the intervals of what was asked overlap, or where rows were disturbed."""
    to, turned = e.turns
    unsure = " probably" if not e.swept and e.winner == "neither" else ""
    at = [counted(max(1.0, x), what) for what, x in turned.items()]
    return say(SAID["turn" if at else "never"], at=f"about {' or '.join(at)}", to=to.upper(), unsure=unsure)


def question(e: Explanation) -> str:
    """A question for the assumed numbers near which the winner changes: `Below about 7,200 samples the CPU probably wins: how
    many have you?`; "" without such a number."""
    near = [(one, one.changes_at) for one in e.assumed if one.changes_at is not None]
    below = [(one, count) for one, count in near if count <= one.value]
    shown = below or near
    if not shown:
        return ""
    first, _ = shown[0]
    above = first.wins_above
    beneath = "cpu" if above == "gpu" else "gpu"
    where, winner = ("Below", beneath) if below else ("From", above)
    words = {
        "where": where,
        "device": NAMES[winner],
        "do": "have you" if first.name == "samples" else "will you train",
    }
    counts = [counted(max(1.0, count), one.name) for one, count in shown]
    every = say(SAID["question"], counts=" or ".join(counts), **words)
    fits = len(_LABEL + every) <= WIDTH
    return every if fits else say(SAID["question"], counts=counts[0], **words)


def _notes(e: Explanation) -> list[str]:
    """Sentences on what the answer rests on: disturbed rows, layers that are only estimated, parts without a row, a loss that was
    chosen here."""
    notes = []
    if e.disturbances:
        notes.append(disturbed(e.disturbances))
    for warning in e.warnings:
        if warning.kind == "estimated-layers":
            notes.append(say(SAID["partial"], unknown=e.asked.unknown_share))
        elif warning.kind == "no-row":
            notes.append(say(SAID["unknown"], name=NAMES[warning.device], parts=join(warning.names)))
        elif warning.kind == "not-compiled":
            notes.append(say(SAID["not compiled"], chosen=join(warning.names)))
    return notes


def disturbed(warnings: Sequence[Warning]) -> str:
    """`Other programs used 40 % of the CPU in 8 of 20 rows: measure again (--wait-quiet).`; each kind once, by the device with
    the most such rows."""
    by_kind = best_by(warnings, lambda warning: warning.kind, lambda warning: -warning.rows).values()
    clauses = []
    for warning in by_kind:
        clause = say(DISTURBED[warning.kind], share=warning.share or 0.0)
        if warning.rows < warning.rows_used:
            clause += f" in {warning.rows} of {warning.rows_used} rows"
        clauses.append(clause)
    return say(SAID["disturbed"], what=sentences.capital(join(clauses)))


def _actions(e: Explanation, room: int, *, complete: bool = False) -> tuple[Table, list[str]]:
    """(a table of actions, as many as `room` allows; notes, if there is room for them, on overlap, on the changes not shown and
    on their code). complete: all changes follow below."""
    lines = max(0, room)
    shown = e.actions[: min(ACTIONS, max(1, lines - 1), lines)]
    rows = [
        (f"{i}. {w.change.words}", say(SAID["saves"], job_saved=w.job_saved), _note(e, w))
        for i, w in enumerate(shown, 1)
    ]
    table = Table(ACTION_HEADS, rows, 3)
    if lines == len(shown):
        return table, []
    if not shown:
        return table, [SAID["no saving"]]
    notes = [SAID["overlap"]] if len(shown) > 1 else []
    how = SAID["how"]
    same_batch = [w for w in e.what_ifs if w.change.training.batch == e.asked.training.batch]
    hidden = len(same_batch) - len(shown)
    if hidden <= 0:
        return table, [" ".join([*notes, how])]
    where = "below" if complete else "(--all)"
    unsure = ", not sure to save 1 %" if shown == e.actions else ""
    long = " ".join([*notes, say(SAID["more"], n=hidden, unsure=unsure, where=where)])
    short = " ".join([*notes, say(SAID["more"], n=hidden, unsure="", where=where)])
    if len(f"{_LABEL}{long} {how}") <= WIDTH:
        return table, [f"{long} {how}"]
    if lines - len(shown) > 1:
        return table, [long, how]
    return table, [f"{short} {how}"]


def _note(e: Explanation, w: WhatIf) -> str:
    """What a change means besides; whether the GPU surely wins with it, where it does not without."""
    cpu, gpu = (side.whole for side in e.both)
    turns = faster(cpu, gpu) != "gpu" and faster(cpu, gpu - (w.job_saved or NOTHING)) == "gpu"
    return ", ".join(filter(None, (w.change.note, "then the GPU wins" * turns)))


def price(e: Explanation) -> str:
    """The cost on each device, the cheapest and the fastest, if both prices are given; else the highest price ratio at which
    the GPU pays."""
    (cpu, gpu), money = (side.whole for side in e.sides), [c.money for c in e.costs if c.money]
    if len(money) < 2:
        return say(SAID["worth"], ratio=cpu / gpu)
    cheapest, fastest = (NAMES.get(faster(*both), CANT_TELL) for both in (money, (cpu, gpu)))
    return say(SAID["price"], money=money, cheapest=cheapest, fastest=fastest)


# ---------------------------------------------------------------- all that is behind them


def details(e: Explanation, framework: str, markdown: bool = False) -> list[str]:
    """The sections of --all as lines: each title, then its lines or table. Anything based on withheld seconds is left out."""
    told, most, said = e.told(), max(0, terminal.width() - 2), []
    sections: dict[str, list] = {
        "The whole training, in parts": [_whole(e)] if e.sides else [],
        "A step, predicted": [_step(told)] if told.predictions else [],
        "Where the winner changes": [
            " ".join(sentences.crossover(a, "Whole training" if a.form.mode == BY_JOB else "A step"))
            for a in told.crossovers
        ],
        "What changes would save": [_changes(told)] if told.what_ifs else [],
        "Memory and cost": [
            *([_resources(told)] if e.memory else []),
            *([price(e)] if e.both and not e.asked.prices else []),
        ],
        "Does the framework use the GPU?": [framework],
        "What this does not know": caveats(e),
    }
    for title, parts in sections.items():
        lines = [line for p in parts for line in (p.text(most) if isinstance(p, Table) else [p])]
        plain = ["", title, *(f"  {line}" for line in lines)] if lines else []
        said += titled(title, *parts) if markdown and parts else plain
    return [""] * markdown + said


def _whole(e: Explanation) -> Table:
    """A table of the parts of the whole training; a dash where a part takes no time or was not measured."""
    parts = {name: [s.parts[name] for s in e.sides] for name in e.sides[0].parts}
    rows = [[name, *(numbers.timed(p.at_least(0)) if p.high > 0 else "-" for p in of)] for name, of in parts.items()]
    rows.append(["in all", *(numbers.timed(s.whole) for s in e.sides)])
    return Table(["part", *(f"{s.name}, {s.cost.source}" for s in e.sides)], rows)


def _step(e: Explanation) -> Table:
    """A table of the predicted step: its parts with their sum, the measured step, and measured less predicted."""
    each = [(p, e.measured.get(p.settings.device)) for p in e.predictions]
    rows = [
        [words, *(_signed(p.parts[n].value, p.parts_s) if p.parts.get(n, NOTHING).value else "-" for p, _ in each)]
        for n, words in WORDS.items()
        if any(p.parts.get(n, NOTHING).value for p, _ in each)
    ]
    rows.append(["in all", *(numbers.timed(p.step_s) for p, _ in each)])
    if e.measured:
        rows.append(["measured", *(numbers.timed(c.step) if c else "-" for _, c in each)])
        rest = (_signed(c.step.value - p.step_s.value, p.step_s.value) if c else "-" for p, c in each)
        rows.append(["measured less predicted", *rest])
    return Table(["part (share of their sum)", *(f"{NAMES[p.settings.device]}, {p.execution}" for p, _ in each)], rows)


def _signed(seconds: float, whole: float) -> str:
    """`-450 µs (-16 %)`."""
    return f"{numbers.time(seconds)} ({numbers.share(seconds / whole)})"


def _changes(e: Explanation) -> Table:
    rows = [[w.change.words, _saved(w.job_saved), w.change.note or "-"] for w in e.what_ifs]
    return Table("change | saves of the whole | besides", rows, last=True)


def _saved(e: Estimate | None) -> str:
    if e is None:
        return "not known"
    if e.low > 0:
        return numbers.timed(e)
    value = round(e.value, 9)
    perhaps, costs = "perhaps " * (e.high > 0), "costs " * (value < 0)
    return f"{perhaps}{costs}{numbers.time(abs(value))}" if value else "nothing"


def _resources(e: Explanation) -> Table:
    """Memory at the peak, the largest batch that fits into it, and the energy, a line a device."""
    joules, rows = {c.device: c.joules for c in e.costs}, []
    for m in e.memory:
        fits, energy = m.largest_batch.value if m.largest_batch else None, joules.get(m.device)
        batch = "-" if fits is None else f"about {numbers.number(fits, most=2)}" if fits >= 1 else "none fits"
        peak = size(m.peak.value) + (f" of {size(m.capacity)}" if m.capacity else "")
        rows.append((NAMES[m.device], peak, batch, numbers.number(energy / 3.6e6) if energy else "-"))
    return Table("on | memory at its peak | largest batch | energy, kWh", rows)


def seen(measurements: Measurements, machine: Machine | None, where: str) -> str:
    """A sentence: whether TensorFlow saw and used the GPU, as far as the rows of the machine `where` show."""
    rows = [m for m in measurements if m.on_gpu and m.backend in ("tensorflow", "keras") and m.library == "tensorflow"]
    used = [m for m in rows if m.ok]
    trained, refused = sum(m.problem.op == "training" for m in used), [m.reason for m in rows if m.status == "failed"]
    kind = "used" if used else "refused" if refused else "unseen" if machine and machine.gpus else "no gpu"
    return say(SAID[kind], where=where, rows=len(used), trained=trained, reason=refused[0] if refused else "")


def caveats(e: Explanation) -> list[str]:
    """Sentences on what the answer lacks, and on what it takes from another machine."""
    found = [say(SAID["not known"], text=text.rstrip(".")) for text in e.partial]
    if e.borrowed:
        found.append(_host(e))
    return found + [say(SAID["missing"], text=text.rstrip(".")) for text in e.lacks]
