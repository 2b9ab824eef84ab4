"""What more GPUs buy a training, in sentences: how much sooner, what was predicted, the losses, what fits, what does not help."""

import math
import re
from collections.abc import Iterable

from analysis.stats import Estimate, group_by
from analysis.text import sentences
from analysis.training import data_parallel
from analysis.training.data_parallel import Case
from analysis.units import bytes_rate, count, size
from kernels.registry import title
from workloads.records import Measurement

_DEPTH = re.compile(r"(mlp-\d+-\d+)x(\d+)-(\d+)|(fashion-mlp)-(\d+)")
FEW = 1.1  # a gain of less is said to be none
HALF = (1 / 1.25, 1.25)  # times half (a third, ...) within which bytes are said to be shared among the GPUs
_SAID = {
    "reach": "{n} GPUs instead of one, of {trainings} trainings ({how}): {model} gains {word}, {speed} at batch {batch}.",
    "gain": "{model} on {n} GPUs, batch {batch} in all: {speed} ({how}).{predicted}",
    "predicted": " Predicted was {factor}{waits}.",
    "epoch": "{model} on {n} GPUs, batch {batch} in all, by whole epochs of {steps} steps: {speed} ({how}).",
    "scaled": "{model} on {n} GPUs, batch {part} on each: {factor} the samples a second of one.",
    "sum": "{model}: its all-reduce of {moved} takes {time} at {rate}, {share} of a step at batch {batch}.",
    "losses": "{model}: the losses of the first {first} are those of one GPU, within {share}.",
    "grow": "{model}: the losses differ by {share} after {steps} steps, by rounding.",
    "wrong": "{model}: the losses are NOT those of one GPU. Within {first} they differ by {share}.",
    "peak": "{model}, batch {batch} in all: at most {one} of memory on one GPU, {each} on each of {n}.",
    "weights": "{model}, batch {batch} in all: weights, optimizer and batch take {one} on one GPU, {each} on each of {n}.",
    "activations": "{model}: activations and gradients take {one} on one GPU, {each} on each: {shared}.",
    "jit": "Under MirroredStrategy Keras turns XLA off{refused}. "
    "{model}, batch {batch}: {n} GPUs without it take {own} a step, one GPU with it {other}: {speed}.",
    "depth": "Data-parallel training does not help depth. {model}, from {few} to {many} layers: "
    "weights and optimizer need {one} more on one GPU, {each} more on each of {n}.",
    "nothing": "More GPUs do nothing by themselves at the smallest batch, as the article on scaling says: {verdict} "
    "(Keras on {backend}).",
    "bigger": "The gain comes from bigger batches in all, as it says too: {verdict}. "
    "{model} on {n} GPUs: {small} at batch {first}, {large} at batch {last}.",
}


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """From where to where the gains reach, and the article's claims beside them; then a few sentences for each model."""
    every = list(measurements)
    found = [c for c in data_parallel.cases(every) if c.several.on_gpu]
    groups = group_by(sorted(found, key=lambda c: c.several.problem.batch), _group)
    said = [s for cases in groups.values() for s in _of_group(cases)]
    *traps, worst = _jit(every) or [""]
    return [*_reach(found), *filter(None, [worst]), *_claims(found), *said, *traps, *_depth(found)]


def _group(case: Case) -> tuple:
    jit, problem = case.several.keras.jit_compile, case.several.problem
    return problem.model, problem.dtype, case.several.library, jit, case.count


def _reach(cases: list[Case]) -> list[str]:
    """The trainings that gain most and least from so many GPUs, of those that surely gain or lose, the most GPUs first; nothing
    of a single one."""
    gained = [(c, gain) for c in sorted(cases, key=lambda c: -c.count) if (gain := c.gain) and sure(gain)]
    said = []
    for (_, how), own in group_by(gained, lambda one: (one[0].count, way(one[0].several))).items():
        if len({c.several.problem for c, _ in own}) > 1:
            for pick, word in ((max, "most"), (min, "least")):
                case, gain = pick(own, key=lambda one: one[1].value)
                words = _words(case) | {"speed": sentences.speed(gain), "word": word, "how": how}
                said.append(_SAID["reach"].format(trainings=len(own), **words))
    return said


def _words(case: Case) -> dict:
    p = case.several.problem
    return {"model": name(case), "n": case.count, "batch": f"{p.batch:,}", "how": way(case.several)}


def sure(gain: Estimate) -> bool:
    """Whether something is surely won or lost: the interval does not hold 1."""
    return not gain.low <= 1 <= gain.high


def name(case: Case) -> str:
    """`CIFAR-10 CNN`."""
    return sentences.title(case.several.problem.model)


def way(m: "Measurement") -> str:
    """`Keras on JAX, jit on`: the setting that was in force, whatever was asked for."""
    return f"Keras on {title(m.keras.keras_backend)}, jit {'on' if m.values.get('jit_compile') else 'off'}"


def between(e: Estimate) -> str:
    """`1.9x [1.8, 2.0]`; where the step may be as short as its noise, `at least 1.2x`."""
    finite = math.isfinite(e.high)
    return f"{sentences.factor(e)} {sentences.interval(e, 2)}" if finite else f"at least {sentences.factor(e.low)}"


def _of_group(cases: list[Case]) -> list[str]:
    """How much sooner, by the batch; the same batch a GPU; the sum, the losses and the memory."""
    said = []
    for c in cases:
        if gain := c.gain:
            said.append(
                _SAID["gain"].format(speed=sentences.speed(gain, "one GPU"), predicted=_predicted(c), **_words(c))
            )
        if whole := _apart_by_epoch(c):
            steps = c.several.problem.steps
            said.append(_SAID["epoch"].format(speed=sentences.speed(whole, "one GPU"), steps=steps, **_words(c)))
        if scaled := c.scaled:
            part = c.several.problem.batch // c.count
            said.append(_SAID["scaled"].format(factor=sentences.factor(scaled), part=part, **_words(c)))
    return said + _sums(cases) + _losses(cases) + _memory(cases[-1])


def _apart_by_epoch(case: Case) -> Estimate | None:
    """The gain by whole epochs, where the step does not tell one or tells another."""
    whole, gain = case.by_epoch, case.gain
    if whole is None or (gain and whole.low <= gain.high and gain.low <= whole.high):
        return None
    return whole


def _predicted(case: Case) -> str:
    gain = case.predicted_gain
    waits = ", as a step waits for the host" if case.waits else ""
    return (
        _SAID["predicted"].format(factor=sentences.factor(gain.value), waits=waits)
        if gain and case.off is not None
        else ""
    )


def _sums(cases: list[Case]) -> list[str]:
    """What adding up the gradients takes beside a step."""
    case = max(cases, key=lambda c: c.several.problem.batch)
    taken, bandwidth = data_parallel.all_reduce(case), data_parallel.bus_bytes_per_s(case)
    if not (taken and bandwidth):
        return []
    words = _words(case) | {"moved": size(case.several.values["all_reduce_bytes"]), "time": sentences.time(taken)}
    share = sentences.share(taken.value / data_parallel.step(case.several).value)
    return [_SAID["sum"].format(rate=bytes_rate(bandwidth), share=share, **words)]


def _losses(cases: list[Case]) -> list[str]:
    apart = [d for c in cases if (d := data_parallel.loss_difference(c)) is not None]
    if not apart:
        return []
    steps = max(len(c.several.series.get("step_loss", ())) for c in cases)
    words = {"model": name(cases[0]), "first": count(min(steps, data_parallel.FIRST), "step"), "steps": steps}
    share = sentences.share(max(apart))
    if max(apart) > data_parallel.SAME_LOSS:
        return [_SAID["wrong"].format(share=share, **words)]
    said = [_SAID["losses"].format(share=share, **words)]
    if steps > data_parallel.FIRST:
        later = max(d for c in cases if (d := data_parallel.loss_difference(c, None)) is not None)
        said += [_SAID["grow"].format(share=sentences.share(later), **words)] if later > max(apart) else []
    return said


def _memory(case: Case) -> list[str]:
    """What each GPU must hold, against one GPU with the same batch in all."""
    several, one = data_parallel.memory(case.several), case.one and data_parallel.memory(case.one)
    peaks = [b for m in (case.one, case.several) if m and (b := m.values.get("peak_memory_bytes")) is not None]
    words = _words(case)
    if not (several and one):
        both = len(peaks) == 2
        return [_SAID["peak"].format(one=size(peaks[0]), each=size(peaks[1]), **words)] if both else []
    share = several[1] / one[1] * case.count
    shared = "shared" if HALF[0] <= share <= HALF[1] else "shared in part"
    if several[1] >= one[1]:
        shared = "not shared"
    kinds = zip(("weights", "activations"), one, several, strict=True)
    return [_SAID[k].format(one=size(a), each=size(b), shared=shared, **words) for k, a, b in kinds]


def _jit(every: "list[Measurement]") -> list[str]:
    """What another jit setting costs on one GPU: where several have not the one that Keras takes on one, that is a trap."""
    found: list[tuple[float, str]] = []
    own = [m for m in every if m.kernel == data_parallel.FIT]
    fits = [m for m in own if m.ok and m.on("host-latency")]
    refused = any(m.status == "skipped" and m.experiment.replicas > 1 and m.keras.jit_compile == "on" for m in own)
    for m in (m for m in fits if m.experiment.strategy == "MirroredStrategy" and m.experiment.replicas > 1):
        jitted = next((o for o in fits if o.values.get("jit_compile") and _is_one(o, m)), None)
        if jitted is None or m.values.get("jit_compile"):
            continue
        several, one = data_parallel.step(m), data_parallel.step(jitted)
        words = {"refused": ", and refuses it turned on" if refused else "", "n": m.experiment.replicas}
        words |= {"model": sentences.title(m.problem.model), "batch": f"{m.problem.batch:,}"}
        words |= {"own": sentences.time(several), "other": sentences.time(one), "speed": sentences.speed(one / several)}
        found.append(((several / one).value, _SAID["jit"].format(**words)))
    return [said for _, said in sorted(found)]


def _is_one(one: "Measurement", several: "Measurement") -> bool:
    """Whether a row is the same training on one GPU, as Keras runs by itself."""
    a, b = one.problem, several.problem
    return (
        (a.model, a.batch, one.device) == (b.model, b.batch, several.device)
        and one.experiment.replicas == 1
        and "strategy" not in one.settings.switches
        and one.keras.keras_backend == "tensorflow"
        and one.keras.dropout == "off"
    )


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
            grown = {"one": size(held[2][0] - held[0][0]), "each": size(held[3][0] - held[1][0])}
            said.append(_SAID["depth"].format(model=few[0], few=few[1], many=many[1], n=deep.count, **grown))
    return said


def _layers(model: str) -> tuple[str, int] | None:
    """(the model without its depth, its hidden layers) of a model that has such a size."""
    found = _DEPTH.fullmatch(model)
    if not found:
        return None
    return (f"{found[1]}-{found[3]}", int(found[2])) if found[1] else (found[4], int(found[5]))


def _claims(cases: list[Case]) -> list[str]:
    """The article's claims, by what Keras ran on: more GPUs do nothing by themselves, bigger batches in all bring the gain."""
    said = []
    for backend in dict.fromkeys(c.several.library for c in cases):
        own = sorted((c for c in cases if c.several.library == backend), key=lambda c: c.several.problem.batch)
        groups = group_by(((c, gain) for c in own if (gain := c.gain)), lambda one: _group(one[0]))
        ends = [(g[0], g[-1]) for g in groups.values() if len(g) > 1]
        if not ends:
            continue
        none = all(small.value < FEW for (_, small), _ in ends)
        grows = all(large.low > small.high for (_, small), (_, large) in ends)
        said.append(_SAID["nothing"].format(verdict="it holds" if none else "it does not hold", backend=title(backend)))
        (a, x), (b, y) = ends[-1]
        words = _words(a) | {"first": a.several.problem.batch, "last": f"{b.several.problem.batch:,}"}
        words |= {"small": sentences.speed(x), "large": sentences.speed(y)}
        verdict = "it holds" if grows else "it does not hold for every model"
        said.append(_SAID["bigger"].format(verdict=verdict, **words))
    return said
