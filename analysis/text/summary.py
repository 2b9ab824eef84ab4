"""What a run says first, in at most five sentences, what these leave out, and a machine's findings for README."""

from collections.abc import Iterable

from analysis.crossover.crossover import COPIES, LATENCY, THROUGHPUT, Answer, crossovers
from analysis.crossover.time_split import why
from analysis.explain.explanation import Request, settings_of
from analysis.predict import held_out
from analysis.predict.held_out import Case
from analysis.predict.prediction import predict
from analysis.predict.profile import Lacking, Profile
from analysis.roofline.bounds import Roof, roofs
from analysis.text import (
    answers,
    explanation,
    inference,
    rates,
    sentences,
    several_gpus,
    training,
    training_answers,
)
from analysis.text.crossings import copies_sentence, crossing_sentence, form_name, no_gpu_sentence, why_sentence
from analysis.training import break_even
from analysis.training.break_even import BY_JOB
from analysis.units import join
from kernels import networks
from kernels.problems import Training
from workloads.records import Loaded, Machine, Measurement

MOST, TRAININGS = 5, 2


def answer(
    found: "Loaded | Iterable[Measurement]",
    machine: "Machine | None" = None,
    answers: tuple[Answer, ...] | None = None,
    ceilings: "tuple[Roof, ...] | None" = None,
) -> list[str]:
    """The verdict in at most five sentences: who wins a training, from where and why, what copies change, how near the limits.

    Rows that failed, gave a wrong answer or lie above their roof always have the last sentence. `machine` defaults to
    that of the last run of a Loaded; `answers` and `ceilings` are those of the rows, where they are known already.
    """
    measurements, machine = _parts(found, machine)
    ceilings = roofs(getattr(found, "every", measurements), machine) if ceilings is None else ceilings
    trouble = rates.trouble_sentence(measurements, ceilings, machine)
    answers = crossovers(measurements, machine=machine) if answers is None else answers
    has_gpu = any(a.kind != "no-gpu" for a in answers)
    trained = training_answers.training_sentences(measurements)
    wins = (_gpu_story(measurements, answers) if has_gpu else []) or _cpu_story(
        measurements, answers, ceilings, machine
    )
    told = _with_layers(wins, measurements, ceilings, machine, getattr(found, "runs", ()))
    told += rates.rate_sentences(measurements, ceilings) if len(told) < MOST and told else []
    told = [*trained[:TRAININGS], *told] if has_gpu else [*_of_their_own(measurements), *trained[:TRAININGS], *told]
    told += trained[TRAININGS:] + _of_options(measurements) + rates.ceiling_sentences(ceilings)
    # a run of roofs, launches or copies answers with those
    if not any(m.problem.products for m in measurements):
        told += _hardware(measurements, ceilings, machine)
    told = list(dict.fromkeys(told))[: MOST - 1 if trouble else MOST]
    return [*told, trouble] if trouble else told


def details(
    found: "Loaded | Iterable[Measurement]",
    machine: "Machine | None" = None,
    answers: tuple[Answer, ...] | None = None,
    ceilings: "tuple[Roof, ...] | None" = None,
    told: list[str] | None = None,
) -> list[str]:
    """What the five sentences left out: every precision and form, reasons, gaps, rates, skipped and flagged rows."""
    measurements, machine = _parts(found, machine)
    ceilings = roofs(getattr(found, "every", measurements), machine) if ceilings is None else ceilings
    answers = crossovers(measurements, machine=machine) if answers is None else answers
    said = [crossing_sentence(a) for a in answers if a.kind != "no-gpu" or a.gaps]
    for a in (a for a in answers if a.precision == answers[0].precision and a.crossings):
        lead = form_name(a.form)
        said += [why_sentence(w, a.form, f"{lead[0].upper()}{lead[1:]}") for w in why(measurements, a)[1:]]
    said += dict.fromkeys(f"{a.precision}: {gap}." for a in answers for gap in a.gaps)
    said += rates.rate_sentences(measurements, ceilings) + rates.ceiling_sentences(ceilings)
    said += training_answers.training_sentences(measurements) + _hardware(measurements, ceilings, machine)
    said += rates.skipped_sentences(measurements) + rates.flag_sentences(measurements)
    said += rates.beyond_sentence(measurements, ceilings, machine)
    if told is None:
        told = answer(found if hasattr(found, "runs") else measurements, machine, answers, ceilings)
    return [s for s in dict.fromkeys(said) if s not in told]


def _hardware(measurements, ceilings, machine) -> list[str]:
    """Memory level by level, an empty call, the links."""
    levels = rates.level_sentences(measurements, machine)
    return levels + rates.launch_sentences(ceilings) + rates.link_sentences(ceilings)


def _parts(found, machine) -> "tuple[list[Measurement], Machine | None]":
    if hasattr(found, "measurements"):
        return list(found.measurements), machine or (found.runs[-1].machine if found.runs else None)
    return list(found), machine


def first_forms(answers: tuple[Answer, ...]) -> tuple[Answer | None, list[Answer]]:
    """(resident, the ways of copying) of the first precision."""
    first = [a for a in answers if a.precision == answers[0].precision]
    return next((a for a in first if a.form in (LATENCY, THROUGHPUT)), None), [a for a in first if a.form in COPIES]


def wins(measurements: "Iterable[Measurement]", machine: "Machine | None") -> list[str]:
    """From which size the GPU wins the square products of each precision, resident, and how copies move it in the first."""
    rows = list(measurements)
    answers = [a for a in crossovers(rows, machine=machine) if a.points]
    _, copied = first_forms(tuple(answers)) if answers else (None, [])
    said = [crossing_sentence(a) for a in answers if a.form == LATENCY]
    return [*said, *([copies_sentence(copied)] if copied else [])] or [no_gpu_sentence(rows, machine)]


def _gpu_story(measurements, answers: tuple[Answer, ...]) -> list[str]:
    """The first precision: resident and why, the copies together and why."""
    resident, copied = first_forms(answers)
    told = [crossing_sentence(resident)] if resident else []
    told += _reason(measurements, resident)
    told += [copies_sentence(copied)] if copied else []
    told += _reason(measurements, copied[0]) if copied else []
    return told or [crossing_sentence(a) for a in answers[:2] if a.precision == answers[0].precision]


def _with_layers(told: list[str], measurements, ceilings: "tuple[Roof, ...]", machine, runs) -> list[str]:
    """The squares' sentences with the convolutions' first one third; without squares who wins the steps of the runs' networks,
    then what convolutions and layers' products say."""
    if told:
        return [*told[:2], *answers.story(measurements, "conv", ceilings, machine)[:1], *told[2:]]
    whole = [said for op in ("conv", "matmul") for said in answers.step_story(runs, measurements, op, machine)]
    return [
        *whole,
        *(said for op in ("conv", "matmul") for said in answers.story(measurements, op, ceilings, machine)),
    ][:MOST]


def _reason(measurements, a: Answer | None) -> list[str]:
    found = [w for w in why(measurements, a) if w.parts] if a else []
    return [why_sentence(found[0], a.form)] if a and found else []


def _of_their_own(measurements) -> list[str]:
    """What a run says first whose question is another one: several GPUs, data-parallel trainings, inference, trainings side by
    side."""
    ops = {m.problem.op for m in measurements}
    told = []
    if "training" in ops:
        told = [
            *several_gpus.training_lines(measurements),
            *training.side_by_side(measurements),
            *training.start_sentences(measurements),
        ]
    told += several_gpus.story(measurements) if ops & {"peer", "collective", "at-once"} else []
    return told + (inference.lines(measurements) if "inference" in ops else [])


def _of_options(measurements) -> list[str]:
    """What each change to a training does to its step."""
    trained = any(m.problem.op == "training" for m in measurements)
    return training.change_sentences(measurements) if trained else []


def _cpu_story(measurements, answers, ceilings: "tuple[Roof, ...]", machine) -> list[str]:
    if not answers:
        return []
    timed = any(m.on_gpu and m.ok for m in measurements)
    told = [] if timed else [no_gpu_sentence(measurements, machine)]
    told += rates.rate_sentences(measurements, ceilings)[:1] + rates.library_sentences(measurements)
    return told + rates.bound_sentences(measurements, ceilings) + rates.thread_sentences(measurements)


# ---------------------------------------------------------------- findings, for README

_FIRST = "cifar10-cnn"
_FOUND = {
    "small": "**Small data sets.** {said}",
    "why": "**Why.** {said}",
    "product": "**Bare products.** {said}",
    "copies": "**Copies.** {said}",
    "believe": "**How far to believe it.** Predicted steps have a median error of {gpu} on the GPU, {cpu} on the CPU. "
    "Where intervals overlap, the answer is: can't tell.",
}


def findings(answers: "tuple[Answer, ...]", trainings: list[Answer], of: Profile, cases: list[Case]) -> list[str]:
    """The findings of rows: `answers` of products, `trainings` along a size, the profile, predictions left out in turn."""
    found = {"small": _small(trainings), "why": _why(of), **_products(answers)}
    said = [_FOUND[name].format(said=text) for name, text in found.items() if text]
    errors = {s.device: sentences.share(s.median) for s in held_out.summaries(cases) if s.bound == "all"}
    if {"cpu", "gpu:0"} <= errors.keys():
        said.append(_FOUND["believe"].format(cpu=errors["cpu"], gpu=errors["gpu:0"]))
    return [f"- {line}" for line in said]


def _is_article(model: str) -> bool:
    network = networks.known(model)
    return bool(network and network.seed)


def _small(trainings: list[Answer]) -> str:
    """From how many samples on an article's whole training is shorter on the GPU."""
    for a in trainings:
        setup = break_even.setup_in(a.family)
        own = setup.kernel.endswith("/fit") and not setup.switches and _is_article(setup.model)
        if own and a.family.varies == "samples" and a.form.mode == BY_JOB and a.crossings and not a.crossings[0].wide:
            return training.answer_sentence(a)
    return ""


def _why(of: Profile) -> str:
    """The largest parts of a GPU step of the first article's training, as an explanation has them; "" where it lacks rows."""
    network = networks.find(_FIRST)
    training = Training(network.name, network.batch, network.samples, network.epochs)
    request = Request(training)
    try:
        made = predict(training, settings_of(request, "gpu:0"), of)
    except Lacking:
        return ""
    return f"Of a GPU step of {sentences.title(_FIRST)}: {join(explanation.shares(made))} (predicted)."


def _products(answers: "tuple[Answer, ...]") -> dict[str, str]:
    resident, copied = first_forms(answers)
    return {
        "product": crossing_sentence(resident) if resident else "",
        "copies": copies_sentence(copied) if copied else "",
    }
