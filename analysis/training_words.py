"""Trainings named in words, and the first thing to say of each: a step on either device, who wins, and the whole job."""

import re
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

import msgspec

from analysis import jobs
from analysis.estimate import Estimate, is_gpu, of
from analysis.jobs import BY_EPOCH, BY_JOB, BY_STEP, Pair, Setup
from analysis.units import count, percent, seconds, times
from kernels import networks
from workloads import switches

if TYPE_CHECKING:
    from analysis.crossover import Answer
    from workloads.records import Measurement

# Switches that have no words of their own: name -> how it is said, {} its text.
_SAID = {
    "steps_per_execution": "{} steps an execution",
    "tf32": "TF32 {}",
    "precision": "{}",
    "dropout": "dropout {}",
    "targets": "{} targets",
    "shuffle": "shuffle {}",
    "TF_ENABLE_ONEDNN_OPTS": "TF_ENABLE_ONEDNN_OPTS={}",
    "gpu": "GPU {}",
    "keras_backend": "Keras on {}",
    "jit_compile": "jit {}",
    "residence": "{}",
    "data": "{} data",
    "replicas": "{} GPUs",
    "strategy": "{}",
    "in_flight": "{} in flight",
    "at_once": "{} at once",
    "clear_session": "clear_session {}",
}


_TEXTS = {
    "residence": {
        "resident": "the whole set on the device",
        "generator": "a Python generator",
        "fed": "fed each step",
        "prefetch": "tf.data prefetched to the device",
    },
    "beside": {
        "nothing": "alone",
        "student": "beside a student",
        "teacher": "beside a teacher",
        "fits": "beside its like",
    },
}


def switch_words(given: "Iterable", without: Iterable[str] = ()) -> list[str]:
    """Switches that are not their default, in words."""
    named = {
        name: text
        for name, text in dict(given).items()
        if name not in without and (name, text) != ("data", "synthetic")
    }
    return [
        _TEXTS.get(name, {}).get(text) or _SAID.get(name, f"{name} {{}}").format(text) for name, text in named.items()
    ]


def subject(setup: Setup, varies: str = "") -> str:
    """`cifar10-cnn (S0), batch 32, 50,000 samples, float64 inputs, Keras's fit`; what varies is left out."""
    network = networks.known(setup.model) if not re.search(r"-[WD]|x[WD]", setup.model) else None
    name = f"{setup.model} ({network.seed})" if network and network.seed else setup.model
    if setup.batch == setup.samples and varies != "batch":
        sizes = [f"{setup.samples:,} samples in one batch" if setup.samples else "all samples in one batch"]
    else:
        sizes = [f"batch {setup.batch}"] * bool(setup.batch) + [f"{setup.samples:,} samples"] * bool(setup.samples)
    given = dict(setup.switches)
    _, backend, variant = setup.kernel.split("/")
    how = (
        ["Keras's fit"]
        if variant == "fit"
        else [f"a bare {backend} loop"]
        if variant.endswith("loop")
        else ["one loop on the device"]
    )
    home = {"numpy": [], "fed": ["fed each step"], "resident": ["data resident"] * variant.endswith("loop")}
    how += home.get(given.get("residence", "numpy"), [str(given.get("residence"))])
    return ", ".join([name, *sizes, f"{setup.dtype} inputs", *how, *switch_words(given, ("residence",))])


def whole_job(setup: Setup, varies: str = "") -> tuple[str, Setup]:
    """(`of 60,000 samples and 10 epochs, put together from these costs`, the setup without its own samples): which job a
    training is judged by; the setup as it is where the job has its samples."""
    samples, epochs = jobs.planned(setup, varies)
    words = f"of {samples:,} samples and {count(epochs, 'epoch')}"
    if samples == setup.samples:
        return words, setup
    return f"{words}, put together from these costs", msgspec.structs.replace(setup, samples=0)


def training_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """From where the winner changes, where that is known, and who wins the steps of other sweeps over batch, width or depth;
    then seconds of each training's step on each device and who wins, and the same of its whole job: like with like, of the most
    samples that were measured, of many batches that of the model's article. Of what ran on one device, or without the short
    fits that tell a step, what its rows show."""
    from analysis import job_words  # it says its answers in this module's words

    every = list(measurements)
    turns = [a for a in jobs.answers(every) if _worth(a)]
    turns.sort(key=lambda a: not a.crossings)
    fits, bare = (
        [job_words.answer_sentence(a) for a in turns if job_words.setup_of(a.family).kernel.endswith("/fit") is own]
        for own in (True, False)
    )
    most: dict[Setup, Pair] = {}
    made = jobs.pairs(every)
    for pair in made:
        if not pair.setup.switches:
            at = jobs.size_of(pair.setup, "samples")
            alike = msgspec.structs.replace(at[1] if at else pair.setup, dtype="")
            if any(a.family.varies == "batch" and _is_of(pair.setup, a) for a in turns):
                alike = msgspec.structs.replace(alike, batch=0)
            most[alike] = max(most.get(alike, pair), pair, key=_telling)
    told = {(p.setup.model, p.setup.batch) for p in made}
    return [*fits, *map(_of_pair, most.values()), *_of_rows(every, told), *bare]


def _worth(a: "Answer") -> bool:
    """Whether an answer is said by itself: a change of winner whose place is known, or the steps of a sweep that has none."""
    if a.crossings:
        return a.form.mode != BY_EPOCH and not any(c.wide for c in a.crossings)
    return a.form.mode == BY_STEP and a.family.varies != "samples" and len(a.points) > 2


def _is_of(setup: Setup, a: "Answer") -> bool:
    of = dict(a.family.fixed)
    return (setup.kernel, setup.model, setup.dtype) == (of["kernel"], of["model"], of["dtype"])


def _telling(pair: Pair) -> tuple[bool, int]:
    """Of alike pairs the article's batch goes first, then the most samples."""
    network = networks.known(pair.setup.model)
    return network is not None and pair.setup.batch == network.batch, pair.setup.samples


def _of_pair(pair: Pair) -> str:
    samples, epochs = jobs.planned(pair.setup, "")
    steps = jobs.planned_steps(pair.setup, samples)
    words, named = whole_job(pair.setup)

    def both(by: str) -> tuple[Estimate, Estimate]:
        cpu, gpu = (jobs.seconds_by(side, by, steps, epochs) for side in (pair.cpu(by, epochs, steps), pair.gpu))
        return cpu, gpu

    own = [side.costs.epoch.value for side in (pair.cpu(BY_JOB, epochs, steps), pair.gpu)]
    beyond = any(e > steps * step.value for e, step in zip(own, both(BY_STEP), strict=True))
    epoch = (
        f"; beside its {count(steps, 'step')} an epoch takes {seconds(own[0])} and {seconds(own[1])}" if beyond else ""
    )
    return (
        f"Training {subject(named)}: a step takes {_beside(*both(BY_STEP))}{epoch}; "
        f"the whole job {words}, start-up and compilation included, {_beside(*both(BY_JOB))}."
    )


def _beside(cpu: Estimate, gpu: Estimate) -> str:
    told = f"{seconds(cpu.value)} on the CPU and {seconds(gpu.value)} on the GPU"
    if not (gpu.high < cpu.low or cpu.high < gpu.low):
        side, worse = max((("CPU", cpu), ("GPU", gpu)), key=lambda named: abs(named[1].noise))
        known = (
            "from these samples"
            if worse.high == inf
            else f"as the {side}'s is only known to +-{percent(abs(worse.noise))}"
        )
        return f"{told} (can't tell which is faster, {known})"
    winner, factor = ("GPU", cpu.value / gpu.value) if gpu.value < cpu.value else ("CPU", gpu.value / cpu.value)
    return f"{told} (the {winner} is {times(factor)} as fast)"


def _of_rows(measurements: "list[Measurement]", told: set[tuple[str, int]]) -> list[str]:
    """A sentence for each model and batch not told: on each device the row with the shortest step, of those without switches and
    of float32 inputs where there are such."""
    cases: dict = {}
    for m in measurements:
        if m.problem.op != "training" or m.status != "ok" or not switches.ordinary(m):
            continue
        if (m.problem.model, m.problem.batch) not in told and (step := _step(m)):
            side = "GPU" if is_gpu(m.settings.device) else "CPU"
            sides = cases.setdefault((m.problem.model, m.problem.batch), {})
            changed = bool(switch_words(m.settings.switches)), m.problem.dtype != "float32"
            found = (*changed, step.value), step
            sides[side] = min(sides.get(side, found), found, key=lambda one: one[0])
    return [
        _of_steps(model, batch, {side: step for side, (_, step) in sides.items()})
        for (model, batch), sides in cases.items()
    ]


def _step(m: "Measurement") -> Estimate | None:
    """Seconds of a step without what an epoch and a fit cost beside their steps, where the row's fits tell it; else an epoch's
    seconds a step, of one sample with no end of an interval."""
    law, own = jobs.law(m), m.on("host-latency")
    if law and law.step.low > 0:
        return law.step
    if not (own and own.seconds):
        return None
    return of(own) if len(own.seconds) > 1 else Estimate(of(own).value, 0.0, inf)


def _of_steps(model: str, batch: int, sides: dict[str, Estimate]) -> str:
    said = f"Training {model} at batch {batch}: a step takes"
    if len(sides) == 2:
        return f"{said} {_beside(sides['CPU'], sides['GPU'])}."
    return f"{said} " + " and ".join(f"{seconds(step.value)} on the {side}" for side, step in sides.items()) + "."
