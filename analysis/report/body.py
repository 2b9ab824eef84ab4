"""The sections of a run's page between the answer and all numbers, as Markdown, in their order."""

from analysis.report.material import Material
from analysis.report.sections import (
    feeding,
    inference,
    layers,
    method,
    movement,
    overview,
    several_gpus,
    step_budgets,
    stored_gpu,
    training,
)


def parts(of: Material) -> dict[str, list[str]]:
    """name -> the lines of a section, with layers' pictures; none where there are no such rows. Worked out once a run."""
    if of.parts:
        return of.parts
    rows, ceilings, made = of.rows, of.roofs, of.parts
    made["crossover"] = overview.crossover_section(rows, of.answers)
    made["roofline"] = overview.roofline_section(rows, ceilings)
    for op, one in of.layers.items():
        made[layers.SECTIONS[op][2]] = layers.section(one, of.prefix)
    made["memory"] = movement.memory_section(rows, of.machine, ceilings)
    made["transfers"] = movement.copies_section(rows, ceilings)
    made["feeding"] = feeding.section(rows)
    made["launches"] = movement.launches_section(rows, ceilings)
    made["several"] = several_gpus.section(rows)
    made["kernels"] = overview.kernels_section(rows, ceilings)
    for op in overview.LADDERS:
        made[f"ladder-{op}"] = overview.ladder_section(rows, of.machine, op)
    made["budgets"] = step_budgets.section(of.budgets, rows, of.said)
    made["training"] = [*stored_gpu.section(rows, of.machine), *training.section(of)]
    made["inference"] = inference.section(rows, of.said)
    made["details"] = overview.details_section(of.left_out)
    made["method"] = method.how_section(of.loaded)
    return made


def markdown(of: Material, pictures: bool) -> list[str]:
    """All of them. Without `pictures` the lines of those of layers are left out; what is drawn from charts is not among them."""
    lines, left_out = [], False
    for line in (line for part in parts(of).values() for line in part):
        if left_out and not line:  # the empty line behind a picture
            left_out = False
            continue
        left_out = line.startswith("![") and not pictures
        if not left_out:
            lines.append(line)
    return lines
