"""Trainings on the page: crossovers along batch, samples, width, depth or epochs, the trainings of the small-dataset study, the
articles' claims beside ours, and the effect of each option."""

from analysis import numbers
from analysis.blocks import Block, listed, tabled, titled
from analysis.crossover import transfer_study
from analysis.crossover.answer import Answer
from analysis.explain.published import comparisons
from analysis.report.material import Material
from analysis.report.sections import several_gpus
from analysis.table import Table
from analysis.text import crossings, input_pipeline, sentences, training
from analysis.text.rows import loop_name
from analysis.training import break_even
from analysis.training.break_even import BY_EPOCH, BY_STEP, BY_WHOLE_TRAINING, Pair
from analysis.units import seconds
from workloads.records import Measurements


def section(material: Material) -> list[Block]:
    """The page's part on trainings, which follows the parts of a step: who wins, forms of the CPU, losses, options, several
    GPUs.
    """
    several = several_gpus.training_section(material.rows)
    if not break_even.trainings(material.rows):
        return several
    analysis = material.analysis
    losses = filter(None, map(training.loss_sentence, analysis.pairs))
    return [
        *_answers(analysis.training_crossovers),
        *_forms(analysis.pairs),
        *titled("Losses that differ", listed(losses)),
        *_changes(material.rows),
        *several,
    ]


def small_section(material: Material) -> list[Block]:
    """The study of small data sets: the parts of their time, compilation for a smaller last batch, the articles' claims, and
    the cost of copying the data."""
    pairs: list[Pair] = []
    for _, small in material.analysis.small_datasets:
        pairs += small
    lines = [*input_pipeline.small_sentences(material.rows), *training.last_batch_sentence(pairs)]
    return [*listed(lines), *_articles(material.rows), *_copy_costs(material.rows)]


def _copy_costs(measurements: Measurements) -> list[Block]:
    """A table of what copying small data sets costs, with its sentences; [] without rows of the study."""
    costs = transfer_study.costs(measurements)
    table = tabled(transfer_study.study_table(costs))
    if not table:
        return []
    blocks = [*table, *listed(transfer_study.sentences(costs))]
    return titled("What small data sets cost to copy", blocks)


def _answers(answers: list[Answer]) -> list[Block]:
    """A table of who wins a training along one size: a line a training and size, a column each for the winner by the step, by the
    epoch and by the whole training.
    """
    groups: dict[tuple, dict[str, Answer]] = {}
    modes = set()
    for a in answers:
        groups.setdefault((a.family, a.low_n, a.high_n), {})[a.form.mode] = a
        modes.add(a.form.mode)
    columns = [mode for mode in (BY_STEP, BY_EPOCH, BY_WHOLE_TRAINING) if mode in modes]
    rows = []
    for (family, low, high), by_mode in groups.items():
        whole = training.training_of_answer(by_mode.get(BY_WHOLE_TRAINING) or next(iter(by_mode.values())))
        cells = [training.subject(whole.setup, family.varies), family.varies, f"{low}..{high}"]
        for mode in columns:
            cells.append(_verdict_cell(by_mode.get(mode), whole.words))
        rows.append(cells)
    heads = ("training", "along", "measured", *(f"by {mode}" for mode in columns))
    return titled("Where the GPU starts to win a training", Table(heads, rows, left=len(heads)))


def _verdict_cell(a: Answer | None, whole_training: str) -> str:
    """The winner by size in words; a dash for None. whole_training: its epochs in words, which come first where the answer
    compares whole trainings.
    """
    if a is None:
        return "-"
    verdict = crossings.verdict_words(a)
    return f"{whole_training}: {verdict}" if a.form.mode == BY_WHOLE_TRAINING else verdict


def _articles(measurements: Measurements) -> list[Block]:
    """A table of every article's claim and the same training here, or `not measured`; [] where none was measured."""
    claims = comparisons(measurements)
    if not any(claim_row.here for claim_row in claims):
        return []
    rows = []
    for claim_row in claims:
        rows.append(
            (
                f"{claim_row.case.name}: {claim_row.case.title}",
                f"{claim_row.claim.samples:,}",
                claim_row.claim.words,
                numbers.gain(claim_row.here) if claim_row.here else "not measured",
                loop_name(claim_row.row) if claim_row.row else "-",
                claim_row.faster or "-",
            )
        )
    heads = "article | samples | published | here | how | faster here"
    return titled("The articles beside this machine", Table(heads, rows, left=3))


def _forms(pairs: list[Pair]) -> list[Block]:
    """A table of a step's time on the CPU in each form of setting it up (GPU hidden or visible, compiled or not), a line a
    training. A GPU that is compared with a slow form looks too good.
    """
    several = [pair for pair in pairs if len(pair.cpus) > 1]
    forms: dict[str, None] = {}
    for pair in several:
        forms |= dict.fromkeys(side.form for side in pair.cpus)
    rows = []
    for pair in several:
        best = pair.cpu(BY_STEP)
        cells = dict.fromkeys(forms, "-")
        for side in pair.cpus:
            if side is best:
                words = "the best"
            else:
                words = sentences.speed(break_even.other_step(side, best) / side.cost.step)
            cells[side.form] = f"{seconds(side.cost.step.value)} ({words})"
        rows.append((training.subject(pair.setup), *cells.values(), seconds(pair.gpu.cost.step.value)))
    about = "A step on the CPU by how it was set up. Compare the GPU with the best form."
    heads = ("training", *(f"CPU, {form}" for form in forms), "GPU")
    return titled("The CPU's forms", about, Table(heads, rows))


def _changes(measurements: Measurements) -> list[Block]:
    """A table of step times with one change each (residence, options, type, threads) beside the plain row's."""
    rows = []
    for one in training.changes(measurements):
        times = (numbers.timed(one.step), numbers.timed(one.plain_step))
        rows.append((one.training, one.device, one.options, *times, sentences.speed(one.plain_step / one.step)))
    heads = "training | device | what is changed | a step | as Keras does it | beside that"
    about = "Beside a row of another hour, Keras's own step counts with the noise between runs."
    return titled("What options change", about, Table(heads, rows, left=3))
