"""Puts report.md together and writes it with its pictures."""

import importlib.util
import os
import pathlib
from typing import TYPE_CHECKING

from analysis.crossover import crossovers
from analysis.report import choose, ladder, layers, movement, sections, training
from analysis.roofline import roofs
from workloads.results import Loaded, read

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
        raise ValueError(f"these runs are of different machines ({', '.join(keys)}); one page shows one machine")
    return loaded


def write(runs: "list[str | os.PathLike]", out: "str | os.PathLike | None" = None) -> pathlib.Path:
    """Writes report.md and its pictures into `out`, by default the first run's folder; the path of report.md."""
    loaded = read_one_machine(runs)
    folder = pathlib.Path(out) if out else folder_of(runs[0])
    folder.mkdir(parents=True, exist_ok=True)
    drawn = _draw(loaded, folder)
    path = folder / "report.md"
    path.write_text(markdown(loaded, drawn), encoding="utf-8")
    return path


def _draw(loaded: Loaded, folder: pathlib.Path) -> bool:
    """Writes the pictures; False without matplotlib."""
    if not has_matplotlib():
        return False
    from analysis.report import layer_pictures, pictures, roofline

    rows, machine = list(loaded.measurements), machine_of(loaded)
    ceilings, answers = roofs(rows, machine), crossovers(rows)
    if roofline.has_any(rows, ceilings):
        pictures.save(roofline.figure(rows, ceilings), folder / "roofline.svg")
    if answers:
        pictures.save(pictures.crossover(answers, rows), folder / "crossover.svg")
    if choose.by_kernel(rows):
        pictures.save(pictures.rates(rows), folder / "rates.svg")
    for of in (layers.found(loaded, op, ceilings) for op in layers.SECTIONS):
        for name, _ in layers.pictures_of(of):
            pictures.save(layer_pictures.figure(of, name), folder / f"{name}.svg")
    if movement.has_memory(rows):
        pictures.save(movement.memory(rows, machine), folder / "memory.svg")
    if movement.has_copies(rows):
        pictures.save(movement.transfers(rows), folder / "transfers.svg")
    for name, figure in training.figures(rows).items():
        pictures.save(figure, folder / name)
    return True


def markdown(loaded: Loaded, pictures: bool) -> str:
    """The page: the answer first, everything else after."""
    rows = list(loaded.measurements)
    ceilings, answers = roofs(rows, machine_of(loaded)), crossovers(rows)
    lines = sections.header(loaded) + sections.answers_section(loaded)
    if not pictures:
        lines += [f"No pictures were drawn: matplotlib is not installed (`{INSTALL}`).", ""]
    lines += sections.crossover_section(rows, answers, pictures)
    lines += sections.roofline_section(rows, ceilings, pictures)
    for of in (layers.found(loaded, op, ceilings) for op in layers.SECTIONS):
        shown = {name: sections.image(f"{name}.svg", says, pictures) for name, says in layers.pictures_of(of)}
        lines += layers.section(of, shown)
    says = "Bandwidth against working set, with the levels that it shows."
    lines += movement.memory_section(rows, machine_of(loaded), sections.image("memory.svg", says, pictures), ceilings)
    says = "Time of copies between host and device against their bytes, with the fitted laws."
    lines += movement.copies_section(rows, ceilings, sections.image("transfers.svg", says, pictures))
    lines += movement.launches_section(rows, ceilings)
    lines += sections.kernels_section(rows, ceilings, pictures)
    lines += ladder.section(rows, machine_of(loaded))
    lines += sections.keras_section(rows)
    lines += training.section(rows, {name: sections.image(name, says, pictures) for name, says in training.PICTURES.items()})
    lines += sections.details_section(loaded)
    lines += sections.how_section(loaded)
    lines += sections.numbers_section(rows, ceilings)
    return "\n".join(lines).rstrip() + "\n"
