"""The sections of a run's page between the answer and all numbers, as Markdown, in their order."""

from analysis.report.material import Material
from analysis.report.sections import inference, layers, method, movement, overview, several_gpus, step_budgets, training


def parts(of: Material) -> dict[str, list[str]]:
    """name -> the lines of a section, with those of its pictures; none where there are no such rows. Worked out once a run."""
    if of.parts:
        return of.parts
    rows, ceilings, made = of.rows, of.roofs, of.parts
    made["crossover"] = overview.crossover_section(rows, of.answers, True)
    made["roofline"] = overview.roofline_section(rows, ceilings, True)
    for op, one in of.layers.items():
        shown = {name: overview.image(f"{of.prefix}{name}.svg", says, True) for name, says in layers.pictures_of(one)}
        made[layers.SECTIONS[op][2]] = layers.section(one, shown)
    picture = overview.image("memory.svg", "Bandwidth against working set, with the levels that it shows.", True)
    made["memory"] = movement.memory_section(rows, of.machine, picture, ceilings)
    says = "Time of copies between host and device against their bytes, with the fitted laws."
    made["transfers"] = movement.copies_section(rows, ceilings, overview.image("transfers.svg", says, True))
    made["launches"] = movement.launches_section(rows, ceilings)
    made["several"] = several_gpus.section(rows)
    made["kernels"] = overview.kernels_section(rows, ceilings, True)
    for op in overview.LADDERS:
        made[f"ladder-{op}"] = overview.ladder_section(rows, of.machine, op)
    made["budgets"] = step_budgets.section(of.budgets, rows, of.said)
    shown = {name: overview.image(name, says, True) for name, says in training.PICTURES.items()}
    made["training"] = training.section(rows, shown)
    made["inference"] = inference.section(rows, of.said)
    made["details"] = overview.details_section(of.left_out)
    made["trust"] = method.trust_section(rows, of.said)
    made["method"] = method.how_section(of.loaded)
    return made


def markdown(of: Material, pictures: bool, several: bool = False) -> list[str]:
    """All of them. Without `pictures` their lines are left out; of `several` runs only those of layers, which each run has of its
    own, are there."""
    lines, left_out = [], False
    for line in (line for part in parts(of).values() for line in part):
        if left_out and not line:  # the empty line behind a picture
            left_out = False
            continue
        left_out = line.startswith("![") and not (pictures and (not several or f"]({of.prefix}" in line))
        if not left_out:
            lines.append(line)
    return lines
