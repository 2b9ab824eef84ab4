"""Puts the report together and writes it: the Markdown page with its pictures, and the HTML page beside it."""

import importlib.util
import os
import pathlib
from typing import TYPE_CHECKING

from analysis import beside, comparison
from analysis.report import budgets, choose, html, ladder, layers, movement, sections, training, trust
from analysis.report.cells import table, text
from analysis.report.material import Material
from workloads.results import Loaded, by_machine, files_of, read

if TYPE_CHECKING:
    from workloads.results import Machine

INSTALL = "python -m pip install matplotlib"


def has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def folder_of(run: "str | os.PathLike") -> pathlib.Path:
    """The folder that a RUN is or lies in."""
    path = pathlib.Path(run)
    return path if path.is_dir() else path.parent


def machine_of(loaded: Loaded) -> "Machine | None":
    return loaded.runs[-1].machine if loaded.runs else None


def read_one_machine(runs: "list[str | os.PathLike]") -> Loaded:
    """What the runs hold.

    Raises: ValueError when they are of different machines; FileNotFoundError when there is no result file.
    """
    loaded = read(*runs)
    keys = dict.fromkeys(r.machine.key for r in loaded.runs)
    if len(keys) > 1:
        raise ValueError(f"these runs are of different machines ({', '.join(keys)}); one roofline shows one machine")
    return loaded


def read_all(runs: "list[str | os.PathLike]") -> "tuple[Loaded, list[tuple[str, str, Loaded, Loaded]]]":
    """(what the page is of: the first run's machine; what stands beside it: (name, name, old, new)). Another machine stands
    beside the first one; runs of one machine are merged, and the first beside each later one where they share rows.

    Raises: FileNotFoundError when there is no result file; ValueError for an unreadable one.
    """
    machines = by_machine(*runs)
    first, *others = machines.items()
    pairs = [(first[0], key, first[1], loaded) for key, loaded in others]
    apart = [(_name(run), read(run)) for run in runs] if len(runs) > 1 and not others else []
    for name, loaded in apart[1:]:
        if {m.key for m in apart[0][1].measurements} & {m.key for m in loaded.measurements}:
            pairs.append((apart[0][0], name, apart[0][1], loaded))
    return first[1], pairs


def _name(run: "str | os.PathLike") -> str:
    path = pathlib.Path(run)
    return "/".join(path.resolve().parts[-2:])


def write(
    runs: "list[str | os.PathLike]",
    out: "str | os.PathLike | None" = None,
    with_html: bool = True,
    with_pictures: bool = True,
) -> pathlib.Path:
    """Writes report.md, its pictures and report.html into `out`, by default the first run's folder; the path of report.md."""
    for run in runs:
        files_of(run)  # each of them has a result file
    loaded, pairs = read_all(runs)
    folder = pathlib.Path(out) if out else folder_of(runs[0])
    folder.mkdir(parents=True, exist_ok=True)
    of = Material(loaded)
    drawn = with_pictures and _draw(of, folder)
    path = folder / "report.md"
    path.write_text(markdown(of, drawn, pairs), encoding="utf-8")
    if with_html and html.has_libraries():
        html.write(of, folder / html.NAME, folder if drawn else None, pairs)
    return path


def _draw(of: Material, folder: pathlib.Path) -> bool:
    """Writes the pictures; False without matplotlib."""
    if not has_matplotlib():
        return False
    from analysis.report import layer_pictures, pictures, roofline

    rows = of.rows
    if roofline.has_any(rows, of.roofs):
        pictures.save(roofline.figure(rows, of.roofs), folder / "roofline.svg")
    if of.answers:
        pictures.save(pictures.crossover(of.answers, rows), folder / "crossover.svg")
    if choose.by_kernel(rows):
        pictures.save(pictures.rates(rows), folder / "rates.svg")
    for found in of.layers.values():
        for name, _ in layers.pictures_of(found):
            pictures.save(layer_pictures.figure(found, name), folder / f"{name}.svg")
    if movement.has_memory(rows):
        pictures.save(movement.memory(rows, of.machine), folder / "memory.svg")
    if movement.has_copies(rows):
        pictures.save(movement.transfers(rows), folder / "transfers.svg")
    for name, figure in training.figures(rows).items():
        pictures.save(figure, folder / name)
    return True


def markdown(of: Material, pictures: bool, pairs: "list[tuple[str, str, Loaded, Loaded]]" = ()) -> str:
    """The page: the answer first, everything else after."""
    rows, ceilings, loaded = of.rows, of.roofs, of.loaded
    lines = sections.header(loaded) + sections.answers_section(of.said)
    if not pictures:
        lines += [f"No pictures were drawn: matplotlib is not installed (`{INSTALL}`).", ""]
    lines += beside_section(pairs)
    lines += sections.crossover_section(rows, of.answers, pictures)
    lines += sections.roofline_section(rows, ceilings, pictures)
    for found in of.layers.values():
        shown = {name: sections.image(f"{name}.svg", says, pictures) for name, says in layers.pictures_of(found)}
        lines += layers.section(found, shown)
    says = "Bandwidth against working set, with the levels that it shows."
    lines += movement.memory_section(rows, of.machine, sections.image("memory.svg", says, pictures), ceilings)
    says = "Time of copies between host and device against their bytes, with the fitted laws."
    lines += movement.copies_section(rows, ceilings, sections.image("transfers.svg", says, pictures))
    lines += movement.launches_section(rows, ceilings)
    lines += sections.kernels_section(rows, ceilings, pictures)
    for op in ladder.TITLES:
        lines += ladder.section(rows, of.machine, op)
    lines += budgets.section(of.budgets, rows)
    lines += training.section(
        rows, {name: sections.image(name, says, pictures) for name, says in training.PICTURES.items()}
    )
    lines += sections.details_section(of.left_out)
    lines += trust.section(rows)
    lines += sections.how_section(loaded)
    numbers = [row for m, row in zip(of.ordered, of.numbers, strict=True) if m.status != "skipped"]
    lines += sections.numbers_section(rows, numbers)
    return "\n".join(lines).rstrip() + "\n"


def beside_section(pairs: "list[tuple[str, str, Loaded, Loaded]]") -> list[str]:
    """The differences of runs in words, and their shared rows as a table; nothing for a single run."""
    lines: list[str] = []
    for old, new, before, after in pairs:
        found = comparison.comparison(before, after)
        lines += [
            f"### {text(new)} beside {text(old)}",
            "",
            *(f"- {text(s)}" for s in beside.sentences(found, old, new)),
            "",
        ]
        lines += table(beside.HEADS, beside.rows(found), 2) if found.rows else []
    return ["## Beside the other runs", "", *lines] if lines else []
