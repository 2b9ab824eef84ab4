"""What is said first of each training: who wins its whole training and its step; of one measured on one device only, how long it
takes and what of that is start-up, compiling and training."""

from collections.abc import Iterable

from analysis import numbers
from analysis.stats import faster, of, total
from analysis.text import sentences, training
from analysis.text.rates import device_name
from analysis.text.training import how, subject, whole_job
from analysis.training import break_even, costs
from analysis.training.break_even import BY_JOB, BY_STEP, Pair
from analysis.units import join
from kernels import networks
from workloads.records import Measurement

MOST = 8  # of more trainings the table's columns are easier to read than sentences
HEADS = "training | a step, CPU | a step, GPU | whole training, CPU | whole training, GPU | finishes first"
SAID = {
    "step": "{training}, on {device}: a step takes {step:time}.",
    "whole": """
{training}, {samples}, {epochs}, on {device}: {total:time}{without}{doubt}.
Start-up takes {start:time}.
Building and compiling take {built:time}, training {trained:time}.""",
}


def training_sentences(measurements: Iterable[Measurement]) -> list[str]:
    """Who wins each training and its step; then from where the winner changes; of what ran on one device what its row shows."""
    every = list(measurements)
    pairs, turns = break_even.main_pairs(every), break_even.main_answers(every)
    return [*map(_of_pair, pairs), *map(training.answer_sentence, turns), *lines(every)]


def _of_pair(pair: Pair) -> str:
    words, named = whole_job(pair.setup)
    most = ", at most" * any(side.cost.bound for side in (pair.cpu(BY_STEP), pair.gpu))
    whole = sentences.winner(*pair.seconds(BY_JOB), of=f"{subject(named)}, {words}")
    return f"{whole} {sentences.winner(*pair.seconds(BY_STEP), of=f'A step alone{most}')}"


def lines(measurements: Iterable[Measurement]) -> list[str]:
    """A sentence for each training of one device alone; none where there are more than MOST."""
    every = list(measurements)
    alone = break_even.unpaired(every)
    return [single_job(m, every) for m in alone] if len(alone) <= MOST else []


def single_job(m: Measurement, measurements: Iterable[Measurement] = ()) -> str:
    """`CIFAR-10 CNN, 1,000 samples, 2 epochs, on the CPU: 23 s. Start-up takes 12.7 s. ...`; without fits that tell these,
    its step alone."""
    p, cost = m.problem, costs.measured(m, measurements)
    name = ", ".join([networks.title(p.model), f"batch {p.batch:,}", *how(m)])
    words: dict = {"training": name, "device": device_name(m.device)}
    if cost is None:
        return sentences.say(SAID["step"], step=of(m.on("host-latency")), **words)
    by = costs.parts(cost, p.epochs, p.steps)
    words |= {"samples": sentences.counted(p.samples, "samples"), "epochs": sentences.counted(p.epochs, "epochs")}
    words |= {"start": cost.start, "built": by["build and compile"], "without": " without start-up" * (not cost.start)}
    words |= {"trained": by["between epochs"] + by["steps"] + by["data-set setup"], "total": total(by.values())}
    return " ".join(sentences.lines(SAID["whole"], doubt=f" (doubtful: {join(m.flags)})" * bool(m.flags), **words))


def table(measurements: Iterable[Measurement]) -> list[tuple[str, ...]]:
    """A line under HEADS for each of Keras's own fits that was measured at full size."""
    rows = []
    for pair in break_even.pairs(measurements):
        setup = pair.setup
        if setup.kernel.endswith("/fit") and not setup.switches and break_even.planned(setup, "")[0] == setup.samples:
            step, whole = pair.seconds(BY_STEP), pair.seconds(BY_JOB)
            best = sentences.NAMES.get(faster(*whole), sentences.CANT_TELL)
            times = map(numbers.timed, (*step, *whole))
            rows.append((f"{subject(setup)}, {whole_job(setup)[0]}", *times, best))
    return rows
