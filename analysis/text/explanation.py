"""An Explanation as at most twelve lines: who wins, why, from where, what helps, and the command that checks it."""

from analysis.explain import sides as of_sides
from analysis.explain.explanation import Explanation
from analysis.explain.sides import Side
from analysis.predict.prediction import Prediction
from analysis.predict.what_if import Change, WhatIf
from analysis.stats import NOTHING, Estimate
from analysis.text import sentences as say
from analysis.text.published import gain_words
from analysis.units import count, join
from workloads import terminal

MOST, WIDTH = 12, 80
ACTIONS = 3
_BAR = 36  # blocks of a bar, fewer where the terminal is narrow
_LABEL = " " * 6
_REACH = 2.5  # times the longer time, beyond which an interval runs off its bar
_LITTLE = 0.01  # of a step: a part of less is not named
# Parts of a step as the why names them.
PARTS = {
    "dispatch": "dispatch",
    "launches": "kernel launches",
    "transfer calls": "copy calls",
    "transfer bytes": "copied bytes",
    "matmul": "dense layers",
    "conv": "convolutions",
    "element-wise": "element-wise passes",
    "optimizer": "the optimizer",
    "input pipeline": "the input pipeline",
    "at the same time": "overlap",
}
# What a change is called, by the setting that it changes; {} is its new value. And what else it does.
_CHANGES = {
    "batch": ("batch {}", "learns otherwise"),
    "samples": ("{} samples: whole batches", "one compilation less"),
    "steps_per_execution": ("steps_per_execution={}", "fewer callbacks"),
    "resident": ("data set on the GPU, own loop", "no callbacks"),
    "prefetch": ("prefetch to the GPU", "tf.data"),
    "on": ("with XLA", "compiles each batch size"),
    "off": ("without XLA", "nothing is compiled"),
    "tf32": ("TF32 allowed", "fewer bits"),
    "precision": ("{}", "fewer bits"),
    "device": ("use the {}", ""),
}
# By whether the GPU's steps are faster, and whether it starts later.
WHY = {
    (True, True): "The GPU's steps are {step} faster, but it starts {later} later{most}.",
    (True, False): "The GPU's steps are {step} faster, and it starts no later.",
    (False, True): "The GPU's steps are {step} slower, and it starts {later} later{most}.",
    (False, False): "The GPU's steps are {step} slower, but it starts {earlier} earlier.",
}
SAID = {
    "beside": "Most goes to {what}: {parts}.",
    "share": "{name} step: {shares}{predicted}.",
    "turn": "{at} on, the {to} finishes first.",
    "never": "the first epoch on, the {to} finishes first, and it stays so.",
    "overlap": "Savings overlap: do not add them.",
    "more": "{n} more {verb} no sure saving (--all).",
    "no saving": "Nothing looked at surely saves time; --all has what was.",
    "measure": "Measure it here, {time}: {command}",
    "verify": "Check it (1 min): {command}",
    "all": "More: {command}",
    "none": "No verdict yet: {who} for this model.",
    "one": "On the {name} it takes {time} ({source}).",
    "withheld": "No verdict: nothing here knows {names}, {share} of a step's arithmetic.",
    "partial": "Partial: {names}, {share} of the arithmetic, {verb} only estimated.",
    "unknown": "Left out of the {name}'s time, as no row tells it: {parts}.",
    "money": "Cheapest is the {cheap} ({low} against {high}); fastest is the {fast}.",
    "one price": "On the {name} it costs {money} at {price} an hour.",
    "worth": "The GPU pays while its machine costs less than {ratio} the CPU's an hour.",
}


def subject(e: Explanation) -> str:
    """`CIFAR-10 CNN, batch 32, 50,000 samples, 10 epochs`."""
    t = e.asked.training
    more = [f"{t.dtype} inputs"] * (t.dtype != "float32")
    more += [f"validated on {e.asked.validation:,}"] * bool(e.asked.validation)
    sizes = [say.title(t.model), f"batch {t.batch:,}", f"{t.samples:,} samples", count(t.epochs, "epoch")]
    return ", ".join([*sizes, *more])


def sources(e: Explanation) -> str:
    """`predicted`, `measured`, or which is which; a stored GPU by its machine."""
    each = {s.name: s.cost.source for s in e.sides}
    if e.borrowed and "GPU" in each:
        each[e.borrowed] = each.pop("GPU")
    alone = len(set(each.values())) == 1 and not e.borrowed
    return next(iter(each.values())) if alone else ", ".join(f"{name} {source}" for name, source in each.items())


def answer(e: Explanation, again: str, measuring: str = "") -> list[str]:
    """The lines. again: the command that was typed; measuring: how long --measure would take, where it would help."""
    head, where = subject(e), sources(e) if e.sides else ""
    gap = " " * (WIDTH - len(head) - len(where))
    first = [f"{head}{gap if len(gap) > 1 else '; '}{where}" if where else head]
    last = [_next(e, again, measuring)]
    if not e.both:
        return [*first, *_no_verdict(e), *last]
    cpu, gpu = e.both
    body = [winner(cpu, gpu), *bars(e.both), f"Why   {why(cpu, gpu)}", *(f"{_LABEL}{said}" for said in _shares(e))]
    body += [f"From  {turns(cpu, gpu)}", *(f"{_LABEL}{said}" for said in _doubts(e))]
    body += [f"Cost  {said}" for said in price(e) if e.asked.prices]
    room = MOST - sum(map(lines_of, (*first, *body, *last)))
    return [*first, *body, *_actions(e, room), *last]


def lines_of(text: str) -> int:
    """Lines of WIDTH that a line takes."""
    return len(terminal.wrapped(text, WIDTH))


def winner(cpu: Side, gpu: Side) -> str:
    """The first sentence: who finishes first, and both times."""
    kinds = {cpu.cost.source, gpu.cost.source}
    return say.winner(cpu.whole, gpu.whole, say.PREDICTED if say.PREDICTED in kinds else kinds.pop())


def _no_verdict(e: Explanation) -> list[str]:
    """Why there is none, and what is known of one device."""
    unknown = e.asked.unknown_share
    said = [SAID["one"].format(name=s.name, time=say.timed(s.whole), source=s.cost.source) for s in e.sides]
    if unknown and e.withheld:
        return [SAID["withheld"].format(names=unknown.names, share=percent(unknown.arithmetic)), *said]
    there = {s.device for s in e.sides}
    who = "the CPU has no rows" if "cpu" not in there else "no GPU was measured"
    return [SAID["none"].format(who=who), *said]


def percent(share: float) -> str:
    """Whole percents; of a little one digit."""
    return f"{100 * share:.0f} %" if share >= _LITTLE or not share else f"{100 * share:.1g} %"


def bars(both: tuple[Side, Side]) -> list[str]:
    """A bar a device: full to the interval's low end, light to its high end, with a mark at the value."""
    longest = max(s.whole.value for s in both)
    blocks = max(_BAR // 4, min(_BAR, (terminal.width() or WIDTH) - WIDTH + _BAR))
    scale = blocks / min(max(s.whole.high for s in both), _REACH * longest)
    lines = []
    for side in both:
        low, value, high = (round(scale * min(x, blocks / scale)) for x in _ends(side.whole))
        bar = "█" * low + "░" * (value - low) + "|" + "░" * (high - value)
        lines.append(f"  {side.name}  {bar:<{blocks + 1}}  {say.timed(side.whole)}")
    return lines


def _ends(e: Estimate) -> tuple[float, float, float]:
    return max(0.0, e.low), e.value, e.high


def why(cpu: Side, gpu: Side) -> str:
    """Steps and start-up of the GPU against the CPU's; where neither's steps are most of it, what is."""
    largest = {s.name: max(s.parts, key=lambda name: s.parts[name].value) for s in (cpu, gpu)}
    if not {"steps", "start-up", "build and compile"} & set(largest.values()):
        each = [f"{say.time(s.parts[largest[s.name]])} on the {s.name}" for s in (cpu, gpu)]
        return SAID["beside"].format(what=" and ".join(dict.fromkeys(largest.values())), parts=", ".join(each))
    ratio = cpu.cost.step.value / gpu.cost.step.value
    none = cpu.training.samples
    later = gpu.of(none, 0).value - cpu.of(none, 0).value
    compiling = (gpu.cost.compile or NOTHING).value - (cpu.cost.compile or NOTHING).value
    said = WHY[ratio > 1, later > 0]
    most = " (compilation)" if compiling > later / 2 else ""
    return said.format(
        step=say.factor(max(ratio, 1 / ratio)), later=say.time(later), earlier=say.time(-later), most=most
    )


def shares(p: Prediction, most: int = 3) -> list[str]:
    """`72 % dispatch`: the largest parts of a predicted step, as shares of all of them."""
    parts = {name: e.value for name, e in p.parts.items() if e.value > 0}
    whole = sum(parts.values())
    ranked = sorted(parts, key=lambda name: -parts[name])[:most]
    return [f"{percent(parts[n] / whole)} {PARTS.get(n, n)}" for n in ranked if parts[n] > _LITTLE * whole]


def _shares(e: Explanation) -> list[str]:
    p = e.gpu or e.cpu
    if p is None:
        return []
    name = "GPU" if p is e.gpu else "CPU"
    marked = " (predicted)" if any(s.name == name and s.cost.source != say.PREDICTED for s in e.sides) else ""
    said = [SAID["share"].format(name=name, shares=", ".join(shares(p, most)), predicted=marked) for most in (3, 2)]
    return [next((line for line in said if len(line) + len(_LABEL) <= WIDTH), said[-1])]


def turns(cpu: Side, gpu: Side) -> str:
    """From how many samples or epochs on the winner is another one."""
    t = cpu.training
    epochs = of_sides.epochs_turn(cpu, gpu)
    found = {"samples": of_sides.samples_turn(cpu, gpu)} if t.batch < t.samples else {}
    found |= {"epochs": epochs} if epochs.at else {}
    told = {what: turn for what, turn in found.items() if turn.at > 0 and turn.to == epochs.to}
    if not told:
        return SAID["never"].format(to=epochs.to.upper())
    at = " or ".join(say.counted(max(1.0, turn.at), what) for what, turn in told.items())
    return SAID["turn"].format(at=f"about {at}", to=epochs.to.upper())


def _doubts(e: Explanation) -> list[str]:
    """Layers that are only estimated, and what no row tells of a side."""
    unknown = e.asked.unknown_share
    said = []
    if unknown and say.PREDICTED in {s.cost.source for s in e.sides}:
        verb = "are" if " and " in unknown.names else "is"
        said.append(SAID["partial"].format(names=unknown.names, share=percent(unknown.arithmetic), verb=verb))
    missing = [(s.name, join(s.unknown)) for s in e.sides if s.unknown]
    return said + [SAID["unknown"].format(name=name, parts=parts) for name, parts in missing]


def actions(e: Explanation) -> list[WhatIf]:
    """The changes whose saving is surely above 0, the surest first; of several batches the one that saves most."""
    sure = [w for w in e.what_ifs if w.helps and w.change.settings.device == e.main.settings.device] if e.main else []
    ranked = sorted(sure, key=lambda w: -w.job_saved.low if w.job_saved else 0.0)
    batches = [w for w in ranked if w.change.learns]
    return [w for w in ranked if w not in batches[1:]]


def _actions(e: Explanation, room: int) -> list[str]:
    """A line an action, as many as there is room for, and what else was looked at."""
    sure = actions(e)
    told = sure[: max(0, min(ACTIONS, room - 1))]
    left = len([w for w in e.what_ifs if w.change.training.batch == e.asked.training.batch]) - len(told)
    if not told:
        return [f"Do    {SAID['no saving']}"] * (room > 0 and not sure)
    lines = [f"{'Do    ' if i == 1 else _LABEL}{i}. {action(e, w)}" for i, w in enumerate(told, 1)]
    notes = [SAID["overlap"]] * (len(told) > 1)
    notes += [SAID["more"].format(n=left, verb="shows" if left == 1 else "show")] * (left > 0)
    return [*lines, f"{_LABEL}{' '.join(notes)}"] if notes else lines


def action(e: Explanation, w: WhatIf) -> str:
    """`batch 512                      saves 38 s [17, 60]   changes what is learned`."""
    words, note = change_words(w.change, e)
    saves = f"saves {say.timed(w.job_saved)}" if w.job_saved else w.why
    line = f"{words:<30}{saves:<23}"
    return f"{line}{note}".rstrip() if len(line) + len(note) + 9 <= WIDTH else line.rstrip()


def change_words(c: Change, e: Explanation) -> tuple[str, str]:
    """(what to do otherwise, what else that does)."""
    t, base = c.training, e.asked.training
    now, before = c.settings.switches, e.main.settings.switches if e.main else {}
    changed = next((name for name in now if now[name] != before.get(name)), "")
    if c.settings.device != (e.main.settings.device if e.main else ""):
        key, value = "device", "CPU" if c.settings.device == "cpu" else "GPU"
    elif t.batch != base.batch:
        key, value = "batch", f"{t.batch:,}"
    elif t.samples != base.samples:
        key, value = "samples", f"{t.samples:,}"
    else:
        value = now.get(changed, "")
        key = changed if changed in _CHANGES else value
    words, note = _CHANGES.get(key, (c.words, ""))
    return words.format(value), note


def price(e: Explanation) -> list[str]:
    """What the whole training costs on both, where prices are given; else up to which price the GPU pays."""
    money = {c.device: c.money for c in e.costs if c.money}
    if not e.both:
        return []
    cpu, gpu = e.both
    if not money:
        return [SAID["worth"].format(ratio=gain_words(cpu.whole / gpu.whole))]
    names = {s.device: s.name for s in e.both}
    if len(money) < 2:
        (device,) = money
        rate = e.asked.prices["cpu" if device == "cpu" else "gpu"]
        return [SAID["one price"].format(name=names[device], money=say.number(money[device]), price=f"{rate:g}")]
    cheap, dear = sorted(money, key=lambda device: money[device].value)
    low, high = (say.number(money[device]) for device in (cheap, dear))
    fast = of_sides.likelier(cpu, gpu).upper()
    return [SAID["money"].format(cheap=names[cheap], low=low, high=high, fast=fast)]


def _next(e: Explanation, again: str, measuring: str) -> str:
    """The one command that measures what is missing, checks the first saving, or shows the rest."""
    if measuring:
        return SAID["measure"].format(time=measuring, command=f"{again} --measure")
    if actions(e) and not e.borrowed:
        return SAID["verify"].format(command=f"{again} --verify 1")
    return SAID["all"].format(command=f"{again} --all")
