"""What the page says first and last: its head, the answer, the runs beside each other, the questions."""

import pathlib
from typing import TYPE_CHECKING

from analysis import facts, questions
from analysis.report import again, cells, differences, fold, sections
from analysis.report.html_page import title
from analysis.units import count, join, size

if TYPE_CHECKING:
    from analysis.report.html_page import Page
    from analysis.report.material import Material


def head(page: "Page") -> dict:
    """What stands above the answer."""
    heads = [_head(of) for of in page.runs]
    files = dict.fromkeys(file for one in heads for file in one["files"])
    return {
        "key": " beside ".join(of.name for of in page.runs) if page.several else heads[0]["key"],
        "heads": heads,
        "files": join(files) or "no file",
        "commands": list(dict.fromkeys(c for of in page.runs for c in again.commands(of.loaded.runs))),
    }


def _head(of: "Material") -> dict:
    loaded, run = of.loaded, of.loaded.runs[-1] if of.loaded.runs else None
    bad, timed = sections.noisy(of.rows)
    word = "noisy" if bad > sections.NOISY_SHARE * timed else "clean"
    why = f"{bad} of {count(timed, 'timed row')} flagged or with an interval wider than ±{100 * sections.NOISY_WIDTH:.0f} %"
    machine = "The result file has no line that says what machine it came from."
    if run:
        machine = f"{facts.machine_words(run.machine)}, {size(run.machine.memory_bytes)} of memory" + (
            ", virtual" if run.machine.virtual else ""
        )
    files = list(dict.fromkeys("/".join(pathlib.Path(f).parts[-2:]) for f in loaded.files))
    return {
        "run": f"{of.letter}: {of.name}" if of.letter else "",
        "key": run.machine.key if run else "an unknown machine",
        "machine": machine,
        "badge": {"word": word, "why": why},
        "dates": join(sorted({r.started_at[:10] for r in loaded.runs})),
        "made_of": sections.made_of(loaded.runs) if run else "",
        "commits": join(dict.fromkeys(r.commit for r in loaded.runs)),
        "counted": f"{count(len(of.rows), 'row')} of {count(len(files), 'file')}",
        "files": files,
    }


def answer(page: "Page") -> None:
    """The sentences, each run's by itself; what they differ in."""
    bodies = []
    for of in page.runs:
        said = "".join(f"<li>{fold.inline(cells.text(s))}</li>" for s in of.said)
        heading = f"<h3>{title(of)}</h3>" if page.several else ""
        told = f'<ol class="answer">{said}</ol>' if said else "<p>Nothing was measured that answers.</p>"
        bodies.append(heading + told)
    page.add("answer", "The answer", *bodies)
    page.add("beside", differences.HEADING, fold.markdown(differences.section(page.runs)))


def ask(page: "Page") -> None:
    """The questions with each run's answer."""
    titles = {s.name: s.title for s in page.sections}
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for of in page.runs:
        asked = questions.Asked(of.rows, of.answers, of.roofs, of.pairs, of.machine)
        for question, section, said, more in questions.answered(asked):
            found.setdefault((question, section), []).append((of.letter, said, more))
    if found:
        page.add("questions", "Questions newcomers ask", str(page.parts.questions(found, titles)))
