"""Trainings on the page: crossovers along batch, samples, width, depth or epochs, the trainings of the small-dataset study, the
articles' claims beside ours, and the effect of each option."""

from analysis import numbers
from analysis.blocks import Block, listed, tabled, titled
from analysis.crossover import transfer_study
from analysis.crossover.crossover import Answer
from analysis.explain.published import comparisons
from analysis.report.material import Material
from analysis.report.sections import several_gpus
from analysis.table import Table
from analysis.text import crossings, input_pipeline, sentences, training
from analysis.text import rows as row_words
from analysis.training import break_even
from analysis.training.break_even import BY_EPOCH, BY_JOB, BY_STEP, Pair
from analysis.units import seconds
from workloads.records import Measurements


def section(of: Material) -> list[Block]:
    """The part of the page on trainings below the budgets."""
    lines = several_gpus.training_section(of.rows)
    if not break_even.trainings(of.rows):
        return lines
    by_pair = _forms(of.analysis.pairs)
    losses = titled("Losses that differ", listed(filter(None, map(training.loss_sentence, of.analysis.pairs))))
    return _answers(of.analysis.training_crossovers) + by_pair + losses + _changes(of.rows) + lines


def small_section(of: Material) -> list[Block]:
    """The study of small data sets: the parts of their time, compilation for a smaller last batch, the articles' claims, and
    the cost of copying the data."""
    copy_costs = transfer_study.costs(of.rows)
    table = tabled(transfer_study.study_table(copy_costs))
    learned = [*table, *listed(transfer_study.sentences(copy_costs))] if table else []
    copies = titled("What small data sets cost to copy", learned)
    pairs: list[Pair] = []
    for _, small in of.analysis.small_datasets:
        pairs += small
    said = training.last_batch_sentence(pairs)
    return listed([*input_pipeline.small_sentences(of.rows), *said]) + _articles(of.rows) + copies


def _answers(answers: list[Answer]) -> list[Block]:
    """A table, a line a training and size that varies: the winner by step, by epoch and by whole training."""
    groups: dict[tuple, dict[str, Answer]] = {}
    for a in answers:
        groups.setdefault((a.family, a.low_n, a.high_n), {})[a.form.mode] = a
    bys = [by for by in (BY_STEP, BY_EPOCH, BY_JOB) if any(by in group for group in groups.values())]
    rows = []
    for (family, low, high), group in groups.items():
        job, setup = training.job_of(group.get(BY_JOB) or next(iter(group.values())))
        verdicts = {by: f"{job}: " * (by == BY_JOB) + crossings.verdict_words(a) for by, a in group.items()}
        name = training.subject(setup, family.varies)
        rows.append((name, family.varies, f"{low}..{high}", *(verdicts.get(by, "-") for by in bys)))
    heads = ("training", "along", "measured", *(f"by {by}" for by in bys))
    return titled("Where the GPU starts to win a training", Table(heads, rows, len(heads)))


def _articles(measurements: Measurements) -> list[Block]:
    """A table of every article's claim beside our measurement, or `not measured`; [] where none was measured."""
    found = comparisons(measurements)
    if not any(b.here for b in found):
        return []
    heads = "article | samples | published | here | how | faster here"
    rows = [
        (
            f"{b.case.name}: {b.case.title}",
            f"{b.claim.samples:,}",
            b.claim.words,
            numbers.gain(b.here) if b.here else "not measured",
            row_words.loop_name(b.row) if b.row else "-",
            b.faster or "-",
        )
        for b in found
    ]
    return titled("The articles beside this machine", Table(heads, rows, 3))


def _forms(pairs: list[Pair]) -> list[Block]:
    """A table of step times in each CPU form, a line a training. A GPU compared with a slow form looks too good."""
    several = [p for p in pairs if len(p.cpus) > 1]
    names = list(dict.fromkeys(side.form for p in several for side in p.cpus))
    rows = []
    for pair in several:
        best, told = pair.cpu(BY_STEP), dict.fromkeys(names, "-")
        for side in pair.cpus:
            word = "the best" if side is best else sentences.speed(break_even.other_step(side, best) / side.cost.step)
            told[side.form] = f"{seconds(side.cost.step.value)} ({word})"
        rows.append((training.subject(pair.setup), *told.values(), seconds(pair.gpu.cost.step.value)))
    about = "A step on the CPU by how it was set up. Compare the GPU with the best form."
    return titled("The CPU's forms", about, Table(("training", *(f"CPU, {n}" for n in names), "GPU"), rows))


def _changes(measurements: Measurements) -> list[Block]:
    """A table of step times with one change each (residence, options, type, threads) beside the plain row's."""
    heads = "training | device | what is changed | a step | as Keras does it | beside that"
    rows = [
        (name, device, what, numbers.timed(e), numbers.timed(plain), sentences.speed(plain / e))
        for name, device, what, e, plain in training.changes(measurements)
    ]
    about = "Beside a row of another hour, Keras's own step counts with the noise between runs."
    return titled("What options change", about, Table(heads, rows, 3))
