"""Every sentence that the templates give on stored rows, and the pages that a reader sees."""

import house

from analysis.analysis import Analysis
from analysis.crossover import ladder, transfer_study
from analysis.predict import profile
from analysis.text import budget, crossings, inference, rates, several_gpus, summary, training
from tests.validation import error_tables, prediction_errors
from workloads import records

TOPICS = (inference, training, several_gpus)
MACHINES = sorted({file.parents[2].name for file in (house.ROOT / "reports").glob("[!l]*/*/*/*.jsonl")})
PAGES = [*sorted((house.ROOT / "docs").glob("*.md")), house.ROOT / "README.md", house.ROOT / "CONTRIBUTING.md"]
DEVELOPERS = ("CONTRIBUTING.md", "cases.md", "recipes.md")  # may be longer, and names the articles by the ids of --case


def rendered(machine: str) -> list[str]:
    """Every sentence that the stored rows of a machine give."""
    loaded = records.read(house.ROOT / "reports" / machine)
    rows = loaded.measurements
    analysis = Analysis.from_loaded(loaded)
    said = [*summary.answer(analysis), *map(budget.sentence, analysis.budgets)]
    said += transfer_study.sentences(transfer_study.costs(rows))
    said += map(crossings.crossing_sentence, analysis.crossovers)
    said += training.training_sentences(rows) + rates.roof_sentences(analysis.roofs)
    for ladders in analysis.ladders.values():
        for one in ladders:
            said += [s for s in ladder.sentences(one) if not any(idea in s for idea in one.ideas.values())]
    said += [*training.side_by_side(rows), *several_gpus.training_lines(rows)]
    return said + [line for topic in TOPICS for line in topic.lines(rows)]


def predicted_errors() -> list[str]:
    """What is said of the H200's predictions, without the tables."""
    of = profile.read(house.ROOT / "reports" / "nvidia-h200")
    said = error_tables.brief(of, prediction_errors.leave_one_out(of), {})
    return [line for line in said if line and isinstance(line, str)]
