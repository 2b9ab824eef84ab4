"""Trainings in words: crossovers, when the GPU pays back its start, the small-dataset study, the CPU's forms as a trap, where
the samples live and what each switch does."""

from collections.abc import Iterable
from math import inf
from statistics import median
from typing import Any

import msgspec

from analysis.crossover.crossover import Answer
from analysis.crossover.families import Family
from analysis.stats import Estimate, group_by
from analysis.text import crossings, rates
from analysis.text.training import loss_sentence, subject, switch_words, way_word, whole_job
from analysis.training import break_even, costs
from analysis.training.break_even import BY_JOB, BY_STEP, Pair, Setup
from analysis.training.costs import TrainingCost, whole_training
from analysis.units import count, digits, join, percent, seconds, times
from kernels.problems import Training
from workloads.records import Measurement, settings

CANT_TELL = "can't tell"
_SHOWN = 0.05  # of a job: a part worth a sentence


def answer_sentence(a: Answer) -> str:
    """Who wins along a size, by what: `cifar10-cnn (S0), ...: by a step the GPU wins from batch = 3.1 (2.9..3.3) ...`."""
    job, setup = job_of(a) if a.form.mode == BY_JOB else ("", setup_of(a.family))
    how = f"{a.form.mode} {job}".strip()
    return (
        f"{subject(setup, a.family.varies)}: by {how}, {crossings.verdict_words(a)} (measured {a.low_n}..{a.high_n})."
    )


def job_of(a: Answer) -> tuple[str, Setup]:
    """(which whole job an answer is of, its setup without samples that are not the job's)."""
    varies, setup = a.family.varies, setup_of(a.family)
    at = break_even.at(setup, varies, a.low_n)
    if varies == "samples":
        return f"of {count(break_even.planned(at, varies)[1], 'epoch')}", setup
    words, named = whole_job(at, varies)
    return words, msgspec.structs.replace(setup, samples=named.samples)


def setup_of(family: "Family") -> Setup:
    """The training that a family of analysis.training.break_even is of; what varies is 0 or a letter in it."""
    fixed = dict(family.fixed)
    own: dict[str, Any] = {name: fixed.pop(name) for name in Setup.__struct_fields__ if name in fixed}
    return Setup(**own, switches=tuple((name, str(value)) for name, value in fixed.items()))


def break_even_sentence(pair: Pair) -> str:
    """When a GPU, which begins later, has caught up."""
    found, sides = pair.break_even, (pair.gpu.cost, pair.opponent.cost)
    gpu_s, cpu_s = (whole_training(cost, 0, pair.steps).value for cost in sides)
    epochs = [cost.epoch_seconds(pair.steps).value for cost in sides]
    begins = f"begins in {seconds(gpu_s)}, the CPU in {seconds(cpu_s)}"
    an, longer = f"an epoch takes {seconds(epochs[0])} and {seconds(epochs[1])}", epochs[0] - epochs[1]
    if gpu_s < cpu_s and longer > 0:
        end = f"so the GPU, which begins sooner, is overtaken after {digits((cpu_s - gpu_s) / longer)} epochs"
    elif found is None:
        end = "so the GPU never catches up"
    elif found.value == inf:
        end = (
            f"so whether the GPU catches up cannot be told: after {digits(found.low)} epochs at the earliest, or never"
            if found.low
            else "so which one is ahead cannot be told"
        )
    elif found.value == 0:
        end = "so the GPU is ahead from the first epoch"
    else:
        far = f"{digits(found.low)}..{digits(found.high)}" if found.high < inf else f"{digits(found.low)} or more"
        end = f"so the GPU pays its start back after {digits(found.value)} epochs of {pair.setup.samples:,} samples ({far})"
    return f"{subject(pair.setup)}: the GPU {begins}; {an}; {end}."


def trap_sentence(pair: Pair) -> str:
    """The CPU's forms that are slower by the step than its best one; empty where none is known to be."""
    best = pair.cpu(BY_STEP)
    others = [side for side in pair.cpus if side is not best]
    traps = [
        f"{seconds(side.cost.step.value)} with the {side.form} ({told})"
        for side in others
        if (told := factor_words(side.cost.step, best.cost.step)) != CANT_TELL
    ]
    near = [f"the {side.form}" for side in others if factor_words(side.cost.step, best.cost.step) == CANT_TELL]
    if not traps:
        return ""
    alike = f"; {join(near)} can't be told from the best" if near else ""
    return (
        f"{subject(pair.setup)}: the CPU's step takes {seconds(best.cost.step.value)} with the {best.form}, and, a trap for "
        f"who compares with it, {join(traps)}{alike}; the GPU's {seconds(pair.gpu.cost.step.value)}."
    )


def factor_words(a: Estimate, plain: Estimate) -> str:
    """How many times as long one takes as the other, or that it can't be told."""
    return CANT_TELL if a.low <= plain.high and plain.low <= a.high else times(a.value / plain.value)


def less_than(e: Estimate) -> float | None:
    """What a part is less than that may be nothing: the upper end of an interval that holds 0 far from its end; else None."""
    return max(0.0, e.high) if e.low < 0 and e.value <= e.high / 2 else None


class Small(msgspec.Struct, frozen=True):
    """The small-dataset study, training half: one training at growing samples, the rest fixed."""

    fixed: Setup
    pairs: tuple[Pair, ...]


def small_datasets(made: Iterable[Pair]) -> list[Small]:
    """Trainings that ran with at least three sample counts, Keras's own first."""
    groups: dict[Setup, dict[int, Pair]] = {}
    for pair in made:
        if not set(dict(pair.setup.switches)) - {"residence"} and (at := break_even.size_of(pair.setup, "samples")):
            groups.setdefault(at[1], {})[at[0]] = pair
    found = [
        Small(fixed, tuple(p for _, p in sorted(sizes.items()))) for fixed, sizes in groups.items() if len(sizes) > 2
    ]
    return sorted(found, key=lambda small: not small.fixed.kernel.endswith("/fit"))


def last_batch_sentence(pair: Pair) -> str:
    """What compiling once more for the smaller batch that ends an epoch takes of the GPU's job; "" where it is little."""
    setup, once = pair.setup, costs.phase(pair.gpu.row, "compile_last")
    job = whole_training(pair.gpu.cost, break_even.planned(setup, "samples")[1], pair.steps)
    if once is None or not setup.samples % setup.batch or once.value < _SHOWN * job.value:
        return ""
    rest = setup.samples % setup.batch
    return (
        f"{subject(setup)}: an epoch's last batch holds {count(rest, 'sample')}, and the GPU compiles for that shape too: "
        f"{seconds(once.value)}, {percent(once.value / job.value)} of its whole job; a batch that divides the samples, or "
        "leaving the rest out, saves that."
    )


def changes(measurements: "Iterable[Measurement]") -> list[tuple[str, str, str, Estimate, Estimate]]:
    """(training, device, what was changed, its step, the plain row's step) for each row that differs from a plain one in
    where the samples live, in one switch, in its type or in its threads."""
    rows = break_even.trainings(measurements)
    plain = {
        (m.kernel, m.problem.model, m.problem.batch, m.problem.samples, m.problem.dtype, m.device): m
        for m in rows
        if not switch_words(m.settings.switches) and m.threads is None
    }
    found = []
    for m in rows:
        p, fit = m.problem, "training/keras/fit"
        own = (p.model, p.batch, p.samples, p.dtype, m.device)
        same, single = (plain.get((fit, *own[:3], dtype, m.device)) for dtype in (p.dtype, "float32"))
        base = single if same is m or same is None else same
        if base is None or base is m or m.kernel.endswith("loop"):
            continue
        what = switch_words(m.settings.switches)
        what += [f"{p.dtype} inputs"] * (p.dtype != base.problem.dtype)
        what += [count(m.threads, "thread")] if m.threads is not None else []
        changed, usual = costs.measured(m), costs.measured(base)
        if what and changed and usual:
            name = f"{p.model}, batch {p.batch}, {p.samples:,} samples"
            found.append((name, m.device, ", ".join(what), _a_step(changed, p), _a_step(usual, base.problem)))
    return found


def _a_step(cost: TrainingCost, problem: Training) -> Estimate:
    """Seconds a step of a warm epoch, the epoch's own cost shared among its steps."""
    return cost.epoch_seconds(problem.steps) / problem.steps


def change_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """A sentence for each training and device: what each change does to a step."""
    groups = group_by(changes(measurements), lambda one: (*one[:2], seconds(one[4].value)))
    return [
        f"{name}, on {rates.device_name(device)}: a step of a warm epoch takes {own} as Keras does it by itself; "
        + "; ".join(f"{what}: {seconds(to.value)} ({against(to, plain)})" for *_, what, to, plain in each)
        + "."
        for (name, device, own), each in groups.items()
    ]


def against(changed: Estimate, plain: Estimate) -> str:
    """`4.09 times as long`, `14.2 times as fast`, or that it can't be told."""
    told = factor_words(changed, plain)
    if told == CANT_TELL:
        return told
    return f"{times(plain.value / changed.value)} as fast" if changed.value < plain.value else f"{told} as long"


def way_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """Of models that train all samples in one batch: an epoch of Keras's fit beside the steps of bare loops, which are the same
    arithmetic."""
    groups: dict[tuple, list[tuple[str, Estimate]]] = {}
    for m in break_even.trainings(measurements):
        p, found = m.problem, costs.measured(m)
        if found and p.batch == p.samples and (not m.on_gpu or break_even.is_default(m)):
            name = ", ".join([way_word(m), *switch_words(m.settings.switches, ("residence", "gpu"))])
            name += f" ({break_even.form_of(m)})" if m.keras.gpu == "visible" else ""
            groups.setdefault((p.model, p.samples, p.dtype, m.device), []).append((name, _a_step(found, p)))
    said = []
    for (model, samples, _, device), ways in groups.items():
        if len(ways) > 1:
            told = join(f"{seconds(e.value)} by {name}" for name, e in sorted(ways, key=lambda way: way[1].value))
            said.append(
                f"{model}, {samples:,} samples in one batch, on {rates.device_name(device)}: a step takes {told}."
            )
    return said


_ONCE = (("import_s", "import the framework"), ("device_start_s", "start the device"), ("build_s", "build the model"))
_FIRST = {True: ("first_call_s", "finish the first step"), False: ("first_call_s", "compile and finish the first fit")}


def start_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """What comes before training, a sentence a row of several processes: the middle process and the range of them all. Where rows
    of fresh processes were asked for just that, those that trained on in several are left out."""
    every = [
        m
        for m in measurements  # trials have a sentence of their own
        if m.problem.op == "training" and "import_s" in m.series and settings.ordinary(m)
    ]
    asked = {(m.problem.model, m.device, break_even.form_of(m)) for m in every if m.process == "fresh"}
    said = []
    for m in every:
        fresh = m.process == "fresh"
        if not fresh and (m.problem.model, m.device, break_even.form_of(m)) in asked:
            continue
        parts = [
            f"{seconds(median(taken))} ({seconds(min(taken))}..{seconds(max(taken))}) to {what}"
            for name, what in (*_ONCE, _FIRST[fresh])
            if (taken := m.series.get(name))
        ]
        form = break_even.form_of(m)
        where = "GPU" if m.on_gpu else f"CPU ({form})" if form else "CPU"
        said.append(
            f"{m.problem.model} on the {where}: {len(m.series['import_s'])} fresh processes took {join(parts)}."
        )
    return said


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """What the trainings say, a sentence a line; empty where no two rows can be compared."""
    every = list(measurements)
    made = break_even.pairs(every)
    said = [answer_sentence(a) for a in break_even.answers(every)]
    said += [break_even_sentence(p) for p in made if not p.setup.switches]
    said += filter(None, (tell(p) for tell in (trap_sentence, last_batch_sentence) for p in made))
    said += filter(None, (loss_sentence(p, every) for p in made))
    return [*said, *way_sentences(every), *change_sentences(every), *start_sentences(every)]
