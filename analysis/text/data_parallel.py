"""What more GPUs buy a training, in sentences: how much sooner, what was foretold, the losses, what fits, what does not help."""

import math
import re
from collections.abc import Iterable

from analysis.stats import Estimate, group_by
from analysis.training import data_parallel
from analysis.training.data_parallel import Case
from analysis.units import bytes_rate, count, digits, join, percent, seconds, size, times
from kernels import networks
from kernels.registry import title
from workloads.records import Measurement

_DEPTH = re.compile(r"(mlp-\d+-\d+)x(\d+)-(\d+)|(fashion-mlp)-(\d+)")
FEW = 1.1  # less than so many times as fast is said to be no sooner
HALF = (1 / 1.25, 1.25)  # times half (a third, ...) within which bytes are said to be shared among the GPUs


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """From where to where the gains reach, and the claims of S3c beside them; then a few sentences for each model."""
    every = list(measurements)
    found = [c for c in data_parallel.cases(every) if c.several.on_gpu]
    groups = group_by(sorted(found, key=lambda c: c.several.problem.batch), _group)
    said = [s for cases in groups.values() for s in _of_group(cases)]
    *traps, worst = _jit(every) or [""]
    return [*_reach(found), *([worst] if worst else []), *_claims(found), *said, *traps, *_depth(found)]


def _group(case: Case) -> tuple:
    jit, problem = case.several.keras.jit_compile, case.several.problem
    return problem.model, problem.dtype, case.several.library, jit, case.count


def _reach(cases: list[Case]) -> list[str]:
    """The trainings that gain most and least from so many GPUs, of those that surely gain or lose, the most GPUs first; nothing
    of a single one."""
    gained = [(c, gain) for c in sorted(cases, key=lambda c: -c.count) if (gain := c.gain) and sure(gain)]
    said = []
    for (n, how), own in group_by(gained, lambda one: (one[0].count, way(one[0].several))).items():
        if len({c.several.problem for c, _ in own}) > 1:
            least, most = (pick(own, key=lambda one: one[1].value) for pick in (min, max))
            ends = [
                f"{name(c)} gains {word}, {between(e)} times as fast at batch {c.several.problem.batch} in all"
                for (c, e), word in ((most, "most"), (least, "least"))
            ]
            said.append(f"{n} GPUs instead of one: of {len(own)} trainings {'; '.join(ends)} ({how}).")
    return said


def sure(gain: Estimate) -> bool:
    """Whether something is surely won or lost: the interval does not hold 1."""
    return not gain.low <= 1 <= gain.high


def name(case: Case) -> str:
    """`cifar10-cnn (S0)`."""
    model = case.several.problem.model
    network = networks.known(model)
    return f"{model} ({network.seed})" if network and network.seed else model


def way(m: "Measurement") -> str:
    """`Keras on JAX, jit on`: the setting that was in force, whatever was asked for."""
    backend = m.keras.keras_backend
    return f"Keras on {title(backend)}, jit {'on' if m.values.get('jit_compile') else 'off'}"


def between(e: Estimate) -> str:
    """`1.9 (1.8..2.0)`, `1.9 (at least 1.2)` where the step may be as short as its noise."""
    reach = f"{digits(e.low)}..{digits(e.high)}" if math.isfinite(e.high) else f"at least {digits(e.low)}"
    return f"{digits(e.value)} ({reach})"


def _of_group(cases: list[Case]) -> list[str]:
    """How much sooner, by the batch; the same batch a GPU; the sum, the losses and the memory."""
    first, n = cases[0], cases[0].count
    model = first.several.problem.model
    told = [
        f"{between(c.gain)} times as fast{'' if sure(c.gain) else ', or no faster,'} at batch {c.several.problem.batch} in "
        f"all{_foretold(c)}"
        for c in cases
        if c.gain
    ]
    said = []
    if told:
        said.append(f"{n} GPUs train {name(first)} {join(told)} ({way(first.several)}).")
    whole = [
        f"{between(e)} times as fast at batch {c.several.problem.batch} in all"
        for c in cases
        if (e := _apart_by_epoch(c))
    ]
    if whole:
        said.append(
            f"By whole warm epochs of only {first.several.problem.steps} steps {n} GPUs train {name(first)} "
            f"{join(whole)} ({way(first.several)})."
        )
    grown = [
        f"{between(c.scaled)} times the samples a second with {c.several.problem.batch // n} a GPU"
        for c in cases
        if c.scaled
    ]
    if grown:
        said.append(f"With the same batch on each GPU as one had, {model} does {join(grown)}.")
    return said + [s for s in (_sums(cases), _losses(cases), *(_memory(c) for c in cases[-1:])) if s]


def _apart_by_epoch(case: Case) -> Estimate | None:
    """The gain by whole epochs, where the step does not tell one or tells another."""
    whole, gain = case.by_epoch, case.gain
    if whole is None or (gain and whole.low <= gain.high and gain.low <= whole.high):
        return None
    return whole


def _foretold(case: Case) -> str:
    foretold, off = case.foretold_gain, case.off
    if foretold is None or off is None:
        return ""
    waits = ", as a step waits for the host" if case.waits else ""
    return f" (foretold {digits(foretold.value)}{waits}: {percent(abs(off))} {'more' if off > 0 else 'less'})"


def _sums(cases: list[Case]) -> str:
    """What adding up the gradients takes beside a step."""
    case = max(cases, key=lambda c: c.several.problem.batch)
    taken, bandwidth = data_parallel.all_reduce(case), data_parallel.bus_bytes_per_s(case)
    if not (taken and bandwidth):
        return ""
    moved = case.several.values["all_reduce_bytes"]
    share = taken.value / data_parallel.step(case.several).value
    return (
        f"Adding up its {size(moved)} of gradients takes {seconds(taken.value)} (bus bandwidth {bytes_rate(bandwidth)}), "
        f"{percent(share)} of a step at batch {case.several.problem.batch}."
    )


def _losses(cases: list[Case]) -> str:
    apart = [d for c in cases if (d := data_parallel.loss_difference(c)) is not None]
    if not apart:
        return ""
    steps = max(len(c.several.series.get("step_loss", ())) for c in cases)
    first = count(min(steps, data_parallel.FIRST), "step")
    if max(apart) > data_parallel.SAME_LOSS:
        return f"Its losses are NOT those of one GPU: within {first} they come to differ by {percent(max(apart))}."
    said = f"The losses of its first {first} are those of one GPU to {percent(max(apart))} of their value"
    if steps <= data_parallel.FIRST:
        return f"{said}."
    later = max(d for c in cases if (d := data_parallel.loss_difference(c, None)) is not None)
    if later <= max(apart):
        return f"{said}, and of all {steps} too."
    return f"{said}; rounding grows from step to step, to {percent(later)} after {steps}."


def _memory(case: Case) -> str:
    """What each GPU must hold, against one GPU with the same batch in all."""
    several, one = data_parallel.memory(case.several), case.one and data_parallel.memory(case.one)
    peaks = [b for m in (case.one, case.several) if m and (b := m.values.get("peak_memory_bytes")) is not None]
    p = case.several.problem
    if not (several and one):
        if len(peaks) < 2:
            return ""
        return (
            f"At batch {p.batch} in all {p.model} holds at most {size(peaks[0])} on one GPU and {size(peaks[1])} on each of "
            f"{case.count}."
        )
    share = several[1] / one[1] * case.count
    shared = "shared" if HALF[0] <= share <= HALF[1] else "shared in part"
    if several[1] >= one[1]:
        shared = f"not shared, each holds {times(several[1] / one[1])} as much"
    return (
        f"Memory of a step of {p.model} at batch {p.batch}: weights, optimizer and batch take {size(one[0])} on one GPU "
        f"and {size(several[0])} on each of {case.count}, as each holds all weights; activations and gradients "
        f"{size(one[1])} and {size(several[1])}: {shared}."
    )


def _jit(every: "list[Measurement]") -> list[str]:
    """What another jit setting costs on one GPU: where several have not the one that Keras takes on one, that is a trap."""
    found: list[tuple[float, str]] = []
    fits = [m for m in every if m.kernel == data_parallel.FIT and m.ok and m.on("host-latency")]
    refused = [
        m
        for m in every
        if m.kernel == data_parallel.FIT
        and m.status == "skipped"
        and m.experiment.replicas > 1
        and m.keras.jit_compile == "on"
    ]
    for m in (m for m in fits if m.experiment.strategy == "MirroredStrategy" and m.experiment.replicas > 1):
        one = [
            o
            for o in fits
            if o.problem.model == m.problem.model
            and o.problem.batch == m.problem.batch
            and o.device == m.device
            and o.experiment.replicas == 1
            and "strategy" not in o.settings.switches
            and o.keras.keras_backend == "tensorflow"
            and o.keras.dropout == "off"
        ]
        jitted = next((o for o in one if o.values.get("jit_compile")), None)
        if jitted is None or m.values.get("jit_compile"):
            continue
        own, other = data_parallel.step(m), data_parallel.step(jitted)
        why = ", and turning it on there is refused" if refused else ""
        longer = own / other
        told = f"{between(longer)} times as long{'' if sure(longer) else ', or no longer'}"
        found.append(
            (
                longer.value,
                f"Under MirroredStrategy Keras turns XLA off{why}: {m.experiment.replicas} GPUs without it "
                f"take {seconds(own.value)} a step of {m.problem.model} at batch {m.problem.batch}, one GPU with it, as "
                f"Keras runs by itself, {seconds(other.value)}: {told}.",
            )
        )
    return [said for _, said in sorted(found)]


def _depth(cases: list[Case]) -> list[str]:
    """That twice the layers need as much more on each of several GPUs as on one: from two depths of one model."""
    said = []
    for deep in cases:
        for flat in cases:
            few, many = (_layers(c.several.problem.model) for c in (flat, deep))
            alike = _group(flat)[1:] == _group(deep)[1:] and flat.several.problem.batch == deep.several.problem.batch
            if few is None or many is None or not alike:
                continue
            held = [h for c in (flat, deep) for m in (c.one, c.several) if m and (h := data_parallel.memory(m))]
            if len(held) < 4 or few[0] != many[0] or many[1] != 2 * few[1]:
                continue
            grown = [held[2][0] - held[0][0], held[3][0] - held[1][0]]
            more, all_ = [size(b) for b in grown], [size(sum(b)) for b in held[2:]]
            said.append(
                f"Data-parallel training does not help depth: from {few[1]} to {many[1]} hidden layers "
                f"{few[0]} needs {more[0]} more for weights and optimizer on one GPU and {more[1]} more on each of "
                f"{deep.count}; in all {all_[0]} on one and {all_[1]} on each."
            )
    return said


def _layers(model: str) -> tuple[str, int] | None:
    """(the model without its depth, its hidden layers) of a model that has such a size."""
    found = _DEPTH.fullmatch(model)
    if not found:
        return None
    return (f"{found[1]}-{found[3]}", int(found[2])) if found[1] else (found[4], int(found[5]))


def _claims(cases: list[Case]) -> list[str]:
    """S3c's claims, by what Keras ran on: more GPUs do nothing by themselves, the gain comes from bigger batches in all."""
    said = []
    for backend in dict.fromkeys(c.several.library for c in cases):
        own = sorted((c for c in cases if c.several.library == backend), key=lambda c: c.several.problem.batch)
        groups = group_by(((c, gain) for c in own if (gain := c.gain)), lambda one: _group(one[0]))
        ends = [(g[0], g[-1]) for g in groups.values() if len(g) > 1]
        if not ends:
            continue
        none = all(small.value < FEW for (_, small), _ in ends)
        grows = all(large.low > small.high for (_, small), (_, large) in ends)
        told = [
            f"{a.several.problem.model} on {a.count} GPUs {digits(x.value)} times as fast at batch "
            f"{a.several.problem.batch} and {digits(y.value)} at {b.several.problem.batch}"
            for (a, x), (b, y) in ends
        ]
        said.append(
            f"S3c says that more GPUs do nothing by themselves and that the gain comes from bigger batches in all: with "
            f"Keras on {title(backend)} the first {'holds' if none else 'does not hold'} at the smallest "
            f"batch, the second {'holds' if grows else 'does not hold for every model'} ({join(told)})."
        )
    return said
