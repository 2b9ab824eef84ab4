"""Charts of trainings: a step in parts on each device, predicted beside measured, who wins along batch and samples."""

from collections.abc import Iterable

from analysis.crossover.crossover import Answer
from analysis.predict.budget import REST, Budget
from analysis.predict.held_out import Case
from analysis.report.charts.chart import Axis, Chart, Trace, View, crossed, rounded, sides, stacked
from analysis.report.sections import step_budgets
from analysis.table import Table
from analysis.text import training
from analysis.training.break_even import BY_JOB, BY_STEP
from analysis.units import count, digits, percent, seconds, signed


def steps(made: "list[Budget]") -> list[Chart]:
    """A step in parts, a bar a device, a view a training; none where nothing of any step is known."""
    views = []
    for group in step_budgets.groups(made):
        names = dict.fromkeys(p.name for b in group for p in b.parts if step_budgets.is_known(p))
        where = _apart([step_budgets.place(b) for b in group])
        parts = {part: [_part(b, part) for b in group] for part in (*names, REST)}

        def words(part, j, v, where=where, group=group):
            return f"{part} on the {where[j]}: {signed(v)}, {percent(v / group[j].step.value)} of the step"

        best = [max(((p.seconds.value, p.name) for p in b.parts if p.seconds), default=(0.0, REST)) for b in group]
        says = "; ".join(
            f"on the {w} a step takes {seconds(b.step.value)}, the largest part known {n} ({signed(v)})"
            for w, (v, n), b in zip(where, best, group, strict=True)
        )
        axes = Axis("seconds of a step", "seconds", False), Axis("", "words", False)
        traces = stacked(parts, where, words)
        views.append(View(step_budgets.name(group[0]), *axes, traces, f"{says[:1].upper()}{says[1:]}.", bars=True))
    title = "Where a training step's time goes"
    return [Chart("budget", title, views, step_budgets.numbers(made), chooses="Training")] if views else []


def _part(b: "Budget", name: str) -> float:
    if name == REST:
        return b.remainder.value
    return sum(p.seconds.value for p in b.parts if p.name == name and p.seconds)


def _apart(names: list[str]) -> list[str]:
    """The names, those that are alike numbered."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return made


def predicted_steps(cases: "list[Case]") -> list[Chart]:
    """Predicted against measured seconds of a step, each training's model left out; none without predictions."""
    if not cases:
        return []
    traces, rows = [], []
    every = [s for c in cases for s in (c.seen.step.value, c.predicted.step_s.value)]
    for device, color, marker in (("cpu", "blue", "circle"), ("gpu", "vermillion", "square")):
        own = [(c, c.seen.step.value, c.predicted.step_s.value) for c in cases if c.device.startswith(device)]
        if not own:
            continue
        cells = [(_case(c), c.device, c.bound, seconds(by), seconds(seen), percent(c.error)) for c, seen, by in own]
        says = [f"{name}: predicted {by}, measured {seen}" for name, _, _, by, seen, _ in cells]
        xs, ys = [rounded(seen) for _, seen, _ in own], [rounded(by) for *_, by in own]
        traces.append(Trace(device.upper(), xs, ys, color, marker, line=False, says=says, hollow=device == "cpu"))
        rows += cells
    ends = [rounded(min(every)), rounded(max(every))]
    traces.append(Trace("as predicted", ends, ends, "ink", dash="dash", says=["predicted = measured"] * 2))
    near = sum(c.error <= 0.15 for c in cases)
    told = (
        f"{near} of {count(len(cases), 'training')} lie within 15 % of what this machine's microbenchmarks and the trainings of "
        "other models predict; on the dashed line the prediction is right."
    )
    view = View("", Axis("measured, a step", "seconds"), Axis("predicted, a step", "seconds"), traces, told)
    heads = "training | device | step is | predicted | measured | off by"
    return [Chart("predicted", "Training steps: predicted against measured", [view], Table(heads, rows, 3))]


def _case(c: "Case") -> str:
    return f"{c.predicted.training.model}, batch {c.predicted.training.batch}"


def along(answers: "Iterable[Answer]") -> list[Chart]:
    """Both devices' seconds along batch, samples, width or depth, a view each; by the step and by the whole job."""
    views, rows = [], []
    shown = [a for a in answers if len(a.points) > 2 and a.form.mode in (BY_STEP, BY_JOB)]
    for a in sorted(shown, key=_plainest):
        of = dict(a.family.fixed)
        what = f"{_short(of)}: {a.form.mode} by {a.family.varies}"
        mode, varies = a.form.mode, a.family.varies
        cpu, gpu = ([(p.n, getattr(p, name).seconds) for p in a.points] for name in ("cpu", "gpu"))
        traces = sides(cpu, gpu, f"{varies} {{}}".format)
        said, marked = training.answer_sentence(a), crossed(a.crossings, varies, "{} from ")
        views.append(View(what, Axis(varies, "count"), Axis(mode, "seconds"), traces, said, **marked))
        rows += [
            (_short(of), mode, varies, p.n, *(seconds(s.seconds.value) for s in (p.cpu, p.gpu)), digits(p.ratio.value))
            for p in a.points
        ]
    heads = "training | counted by | along | at | CPU | GPU | CPU / GPU"
    title = "Who wins a training, along one size"
    return [Chart("along", title, views, Table(heads, rows, 3), "batches.svg", "Training")] if views else []


def _plainest(a: "Answer") -> tuple:
    """Keras's own fit first, then steps by batch, then those with most sizes."""
    of = dict(a.family.fixed)
    return not str(of["kernel"]).endswith("/fit"), a.family.varies != "batch", a.form.mode != BY_STEP, -len(a.points)


def _short(of: dict) -> str:
    way = (
        ""
        if of["kernel"].endswith("/fit")
        else f", {of['kernel'].partition('/')[2]} {of.get('residence', '')}".rstrip()
    )
    more = "".join(
        f", {name} {of[name]}"
        for name in of
        if name not in ("kernel", "model", "batch", "samples", "dtype", "residence")
    )
    return f"{of['model']}{way}{more}" + (f", {of['dtype']}" if of["dtype"] != "float32" else "")
