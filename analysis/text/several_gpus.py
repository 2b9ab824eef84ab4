"""What several GPUs of a host do with each other, and what they buy a training, in words."""

import math
import re
from collections.abc import Iterable

import msgspec

from analysis.crossover import crossover
from analysis.roofline.peers import NCCL, bandwidth, slowdowns, speed_ups, sums, work
from analysis.stats import Estimate, group_by, of
from analysis.text import crossings, sentences
from analysis.text.sentences import say
from analysis.training import data_parallel
from analysis.training.data_parallel import Case
from analysis.units import bytes_rate, count, join, size
from kernels.problems import AllReduce, AtOnce, Matmul, PeerCopy
from kernels.registry import title
from workloads.records import Measurement

LARGE = 1 << 20  # bytes: of smaller copies no bandwidth is told
ALIKE = 0.9  # of the fastest pair's bandwidth: pairs that all reach it are told together
_SAME = 0.02  # of the time alone: slower by less is no contention
_LAUNCHED = {"_graph": "recorded in CUDA graphs", "": "each launched by the host"}
_WORK = {"triad": "triads in device memory", "h2d": "copies from the host", "d2h": "copies to the host"}
_FORMS = (crossover.Form("resident"), crossover.Form("roundtrip-pinned"))
_COPIES = {
    "refused": "No direct copies: {why}. Copies go through the host.",
    "pairs": "Copies of {size:size} from one to another of {gpus} GPUs reach {of}.",
    "slowest": "The slowest pair, gpu-{pair[0]} to gpu-{pair[1]}, has {share:share} of the fastest pair's bandwidth.",
    "both": "Both ways at once: {rate:bytes/s}, {factor:factor} one way.",
    "small": "A copy of {size:size} takes {of}.",
    "staged": "Through page-locked host memory: {rate:bytes/s}, {factor:factor} slower.",
}
_SUMS = {
    "nccl": "All-reduce of {dtype} over {gpus} GPUs (NCCL): {rate:bytes/s} of bus bandwidth at {size:size}. "
    "From {half:size} on it has half of that.",
    "ours": "Our one-shot kernel, {how}, {dtype}: {of}.",
}
_AT_ONCE = {
    "slower": "All {count} GPUs at once, {work}: {factor} slower than alone on {gpu} {span}.",
    "same": "No contention while all {count} GPUs work: {work}. Each takes at most {factor} the time alone.",
    "crossover": ": {alone}. While all GPUs work {together}.{moves}",
    "same crossover": ", alone and while all GPUs work: {alone}.",
}
_MOVES = {True: " It moves.", False: " It stays where it is.", None: ""}


def lines(measurements: Iterable[Measurement]) -> list[str]:
    """Everything to be said of copies, sums, work on all GPUs at once, and crossovers then."""
    rows = list(measurements)
    return copy_lines(rows) + sum_lines(rows) + at_once_lines(rows) + crossover_lines(rows)


def story(measurements: Iterable[Measurement]) -> list[str]:
    """What is asked first: the copies, the sum, ours beside it, and contention, or that there is none."""
    rows = list(measurements)
    together = at_once_lines(rows)
    return [*copy_lines(rows)[:1], *sum_lines(rows)[:2], *(together[:-1] or together)]


def copy_lines(rows: list[Measurement]) -> list[str]:
    """Bandwidths pair by pair, both ways at once, the smallest copy, and what going through the host costs."""
    copies = [m for m in rows if isinstance(m.problem, PeerCopy)]
    reasons = dict.fromkeys(m.reason for m in copies if m.variant == "direct" and m.status == "skipped")
    told = [_COPIES["refused"].format(why=reason) for reason in reasons]
    kinds = group_by((m for m in copies if m.ok), lambda m: (m.variant, m.problem.ways))
    one_way, both, staged = (kinds.get(kind, []) for kind in (("direct", 1), ("direct", 2), ("staged", 1)))
    large = _largest(one_way)
    pairs = {_pair(m): bandwidth(m) for m in large}
    if pairs:
        slow, fast = (pick(pairs, key=lambda pair: pairs[pair].value) for pick in (min, max))
        ends = _ends(bytes_rate(pairs[pair].value) for pair in (slow, fast))
        gpus = len({gpu for pair in pairs for gpu in pair})
        told.append(say(_COPIES["pairs"], size=large[0].problem.nbytes, of=ends, gpus=gpus))
        if pairs[slow].high < ALIKE * pairs[fast].low:
            told.append(say(_COPIES["slowest"], pair=slow, share=pairs[slow].value / pairs[fast].value))
    for m in [m for m in _largest(both) if _pair(m) in pairs][:1]:
        factor = bandwidth(m).value / pairs[_pair(m)].value
        told.append(say(_COPIES["both"], rate=bandwidth(m), factor=factor))
    if small := [m for m in one_way if m.problem.nbytes == min(m.problem.nbytes for m in one_way) < LARGE]:
        took = sorted((of(m.on("host-latency")) for m in small), key=lambda e: e.value)
        ends = _ends(sentences.time(e) for e in (took[0], took[-1]))
        told.append(say(_COPIES["small"], size=small[0].problem.nbytes, of=ends))
    for m in [m for m in _largest(staged) if _pair(m) in pairs][:1]:
        factor = pairs[_pair(m)].value / bandwidth(m).value
        told.append(say(_COPIES["staged"], rate=bandwidth(m), factor=factor))
    return told


def _pair(m: Measurement) -> tuple[int, int]:
    return m.problem.source, m.problem.target


def _ends(words: Iterable[str]) -> str:
    """`389 GB/s to 393 GB/s`; one of both where they are alike."""
    return " to ".join(dict.fromkeys(words))


def _largest(rows: list[Measurement]) -> list[Measurement]:
    most = max((m.problem.nbytes for m in rows), default=0)
    return [m for m in rows if m.problem.nbytes == most >= LARGE]


def sum_lines(rows: list[Measurement]) -> list[str]:
    """NCCL's bus bandwidth, type by type, and how our one-shot kernel compares."""
    told = []
    for dtype in dict.fromkeys(m.problem.dtype for m in rows if isinstance(m.problem, AllReduce) and m.ok):
        if own := sums(rows, NCCL, dtype):
            rates = {nbytes: bandwidth(m).value for nbytes, m in own.items()}
            best = max(rates, key=rates.__getitem__)
            half = next(nbytes for nbytes, rate in rates.items() if rate >= rates[best] / 2)
            gpus = len(own[best].problem.members)
            told.append(say(_SUMS["nccl"], dtype=dtype, gpus=gpus, rate=rates[best], size=best, half=half))
        for suffix, how in _LAUNCHED.items():
            if ratios := speed_ups(rows, dtype, suffix):
                ends = {n: ratios[n] for n in (min(ratios), max(ratios))}
                each = join(f"{sentences.speed(r, 'NCCL')} at {size(n)}" for n, r in ends.items())
                told.append(_SUMS["ours"].format(how=how, dtype=dtype, of=each))
    return told


def at_once_lines(rows: Iterable[Measurement]) -> list[str]:
    """The work that takes longer while all GPUs are at it, on the slowest of them; then all that does not in one sentence."""
    large = [one for one in slowdowns(rows) if one[1].problem.operation != "matmul" or _is_large_product(one[1])]
    told, same = [], {}
    for of_all in group_by(large, lambda one: work(one[1])[:4]).values():
        _, m, worst = max(of_all, key=lambda one: one[2].value)
        p, gpu, span = m.problem, m.device.replace(":", "-"), sentences.interval(worst)
        name = _WORK.get(p.operation, f"{p.math} products")
        if worst.low <= 1 + _SAME:
            same[name] = worst.high
        else:
            what = f"{name} of {f'n = {p.size:,}' if p.operation == 'matmul' else size(p.size)}"
            words = {"work": what, "factor": sentences.factor(worst, 3), "gpu": gpu, "span": span}
            told.append(_AT_ONCE["slower"].format(count=p.together, **words))
    if same:
        count, most = large[0][1].problem.together, sentences.factor(max(same.values()), 3)
        told.append(_AT_ONCE["same"].format(count=count, work=join(same), factor=most))
    return told


def _is_large_product(m: Measurement) -> bool:
    return m.mode == "resident" and m.problem.size >= 2048


def crossover_lines(rows: Iterable[Measurement]) -> list[str]:
    """From which size each GPU wins over the CPU alone, and while all GPUs work: whether the crossover moves."""
    rows = list(rows)
    cpus = [m for m in rows if isinstance(m.problem, Matmul) and not m.on_gpu]
    products = [m for m in rows if isinstance(m.problem, AtOnce) and m.problem.operation == "matmul" and m.ok]
    told: dict[tuple[str, str], list[str]] = {}  # of GPUs of which the same is said in one sentence
    for device in sorted({m.device for m in products}) if cpus else ():
        sides = []
        for is_alone in (True, False):  # products as if no other GPU mattered
            own = [m for m in products if m.device == device and (m.problem.together == 1) is is_alone]
            plain = [msgspec.structs.replace(m, problem=m.problem.inner) for m in own]
            found = crossover.crossovers([*cpus, *plain], _FORMS)
            sides.append({a.form: a for a in found if a.precision == "float32"})
        for form in (form for form in sides[0] if form in sides[1]):
            alone, together = (sentences.crossing(side[form]) for side in sides)
            moves = _MOVES[_moves(*(side[form] for side in sides))]
            said = _AT_ONCE["same crossover" if alone == together else "crossover"]
            said = said.format(alone=alone, together=together, moves=moves)
            told.setdefault((crossings.form_name(form), said), []).append(device.replace(":", "-"))
    return [f"{join(gpus)}, float32 products, {form}{said}" for (form, said), gpus in told.items()]


def _moves(alone: crossover.Answer, together: crossover.Answer) -> bool | None:
    """Whether a crossover moves by more than its interval; None where one of them is none."""
    if not alone.kind == together.kind == "gpu-from":
        return None
    a, b = alone.crossings[0].at, together.crossings[0].at
    far = max(a.value, b.value) > crossover.FINE * min(a.value, b.value)
    return far and (a.high < b.low or b.high < a.low)


# ---------------------------------------------------------------- trainings

_DEPTH = re.compile(r"(mlp-\d+-\d+)x(\d+)-(\d+)|(fashion-mlp)-(\d+)")
FEW = 1.1  # a gain of less is said to be none
_TRAINING = {
    "reach": "{n} GPUs instead of one ({how}), {trainings} trainings: {least} becomes {slow}, {most} {fast}.",
    "wrong": "{model}, batch {batch}: the losses are NOT those of one GPU. Within {first} they differ by {share}.",
    "jit": "Under MirroredStrategy Keras turns XLA off{refused}. "
    "{model}, batch {batch}: {n} GPUs without it take {several} a step, one GPU with it {one}: {speed}.",
    "depth": "Data-parallel training does not help depth. {model}, from {few} to {many} layers: "
    "weights and optimizer need {one:size} more on one GPU, {each:size} more on each of {n}.",
    "nothing": "More GPUs do nothing by themselves at the smallest batch, as the article on scaling says: {verdict} "
    "(Keras on {backend}).",
    "bigger": "The gain comes from bigger batches in all, as it says too: {verdict}. "
    "{model} on {n} GPUs: {small} at batch {first}, {large} at batch {batch}.",
}


def training_lines(measurements: Iterable[Measurement]) -> list[str]:
    """Trainings on several GPUs: losses that differ, from where to where the gains reach, the article's claims, and what does not
    help. Gains, memory and losses of each stand in the table."""
    every = list(measurements)
    found = [c for c in data_parallel.cases(every) if c.several.on_gpu]
    wrong = [
        _wrong(c, apart) for c in found if (apart := data_parallel.loss_difference(c) or 0) > data_parallel.SAME_LOSS
    ]
    return [*wrong, *_reach(found), *_jit(every), *_claims(found), *_depth(found)]


def _words(case: Case) -> dict[str, object]:
    p = case.several.problem
    return {"model": name(case), "n": case.count, "batch": f"{p.batch:,}", "how": way(case.several)}


def name(case: Case) -> str:
    """`CIFAR-10 CNN`."""
    return sentences.title(case.several.problem.model)


def way(m: Measurement) -> str:
    """`Keras on JAX, jit on`: the setting that was in force, whatever was asked for."""
    return f"Keras on {title(m.keras.keras_backend)}, jit {'on' if m.values.get('jit_compile') else 'off'}"


def between(e: Estimate) -> str:
    """`1.9x [1.8, 2.0]`; where the step may be as short as its noise, `at least 1.2x`."""
    finite = math.isfinite(e.high)
    return f"{sentences.factor(e)} {sentences.interval(e, 2)}" if finite else f"at least {sentences.factor(e.low)}"


def _wrong(case: Case, apart: float) -> str:
    steps = min(len(case.several.series["step_loss"]), data_parallel.FIRST)
    return _TRAINING["wrong"].format(first=count(steps, "step"), share=sentences.share(apart), **_words(case))


def _reach(cases: list[Case]) -> list[str]:
    """The trainings that gain least and most from so many GPUs, of those that surely gain or lose, the most GPUs first; nothing
    of a single one."""
    sure = [
        (c, gain) for c in sorted(cases, key=lambda c: -c.count) if (gain := c.gain) and not gain.low <= 1 <= gain.high
    ]
    told = []
    for (n, how), own in group_by(sure, lambda one: (one[0].count, way(one[0].several))).items():
        ends = {"least": min(own, key=lambda one: one[1].value), "most": max(own, key=lambda one: one[1].value)}
        if ends["least"] is not ends["most"]:
            words = {k: f"{name(c)} at batch {c.several.problem.batch:,}" for k, (c, _) in ends.items()}
            words |= {"slow": sentences.speed(ends["least"][1]), "fast": sentences.speed(ends["most"][1])}
            told.append(_TRAINING["reach"].format(n=n, how=how, trainings=len(own), **words))
    return told


def _claims(cases: list[Case]) -> list[str]:
    """The article's claims, by what Keras ran on: more GPUs do nothing by themselves, bigger batches in all bring the gain."""
    told = []
    by_batch = sorted(((c, gain) for c in cases if (gain := c.gain)), key=lambda one: one[0].several.problem.batch)
    for backend, own in group_by(by_batch, lambda one: one[0].several.library).items():
        groups = group_by(own, lambda one: _alike(one[0], one[0].several.problem.model))
        ends = [(g[0], g[-1]) for g in groups.values() if len(g) > 1]
        if ends:
            holds = "it holds" if all(small.value < FEW for (_, small), _ in ends) else "it does not hold"
            grows = all(large.low > small.high for (_, small), (_, large) in ends)
            told.append(_TRAINING["nothing"].format(verdict=holds, backend=title(backend)))
            (a, small), (b, large) = ends[-1]
            words = {"verdict": "it holds" if grows else "it does not hold for every model"}
            words |= {"small": sentences.speed(small), "large": sentences.speed(large)}
            told.append(_TRAINING["bigger"].format(first=f"{a.several.problem.batch:,}", **words, **_words(b)))
    return told


def _alike(case: Case, *more: object) -> tuple:
    """What cases share that can be set beside each other."""
    m = case.several
    return m.problem.dtype, m.library, m.keras.jit_compile, case.count, *more


def _jit(every: list[Measurement]) -> list[str]:
    """The training that several GPUs slow down most because Keras does not compile it there as it does on one."""
    own = [m for m in every if m.kernel == data_parallel.FIT]
    fits = [m for m in own if m.ok and m.on("host-latency")]
    refused = any(m.status == "skipped" and m.experiment.replicas > 1 and m.keras.jit_compile == "on" for m in own)
    found: list[tuple[float, str]] = []
    for m in fits:
        mirrored = m.experiment.strategy == "MirroredStrategy" and m.experiment.replicas > 1
        one = next((o for o in fits if o.values.get("jit_compile") and _is_one(o, m)), None)
        if mirrored and one and not m.values.get("jit_compile"):
            steps = data_parallel.step(m), data_parallel.step(one)
            words = {
                "model": sentences.title(m.problem.model),
                "batch": f"{m.problem.batch:,}",
                "n": m.experiment.replicas,
            }
            words |= dict(zip(("several", "one"), map(sentences.time, steps), strict=True))
            words |= {"refused": ", and refuses it turned on" * refused, "speed": sentences.speed(steps[1] / steps[0])}
            found.append(((steps[0] / steps[1]).value, _TRAINING["jit"].format(**words)))
    return [max(found)[1]] if found else []


def _is_one(one: Measurement, several: Measurement) -> bool:
    """Whether a row is the same training on one GPU, as Keras runs by itself."""
    a, b = one.problem, several.problem
    alike = (a.model, a.batch, one.device) == (b.model, b.batch, several.device)
    by_itself = one.experiment.replicas == 1 and "strategy" not in one.settings.switches
    return alike and by_itself and (one.keras.keras_backend, one.keras.dropout) == ("tensorflow", "off")


def _depth(cases: list[Case]) -> list[str]:
    """That twice the layers need as much more on each of several GPUs as on one: from two depths of one model."""
    groups: dict[tuple, dict[int, Case]] = {}
    for case in cases:
        if found := _DEPTH.fullmatch(case.several.problem.model):
            model, layers = (f"{found[1]}-{found[3]}", found[2]) if found[1] else (found[4], found[5])
            groups.setdefault(_alike(case, model, case.several.problem.batch), {})[int(layers)] = case
    told = []
    for key, by_layers in groups.items():
        for few, many in ((n, 2 * n) for n in by_layers if 2 * n in by_layers):
            rows = [m for n in (few, many) for m in (by_layers[n].one, by_layers[n].several)]
            held = [memory[0] for m in rows if m and (memory := data_parallel.memory(m))]
            if len(held) == len(rows):
                words = {
                    "model": key[-2],
                    "n": by_layers[few].count,
                    "one": held[2] - held[0],
                    "each": held[3] - held[1],
                }
                told.append(say(_TRAINING["depth"], few=few, many=many, **words))
    return told
