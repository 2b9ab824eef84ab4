"""How far predictions are off: each measured training predicted from the profile with its model left out, beside what simpler
predictions of the same kind come to, and what each rule is worth (it is left out in turn).
"""

import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from analysis import calibration, roofs
from analysis.combine import HOST
from analysis.components import RULE_WORDS, RULES, kernels_of, step_works
from analysis.estimate import Estimate
from analysis.prediction import Prediction, predict
from analysis.units import percent
from kernels import networks
from workloads import switches

if TYPE_CHECKING:
    from analysis.calibration import Seen
    from analysis.profile import Profile

OVERHEAD, WORK = "overhead-bound", "work-bound"
CONSTANT, LINE, SPEC, MEASURED = "constant", "a + b FLOPs + c launches", "data-sheet roofline", "measured roofline"
BASELINES = (CONSTANT, LINE, SPEC, MEASURED)
TARGETS = {"median": 0.10, "mean": 0.15}


class Case(msgspec.Struct, frozen=True):
    """One training predicted without its model: `bound` says what most of its step is, baselines: the seconds that each simpler
    prediction gives (those that it can give)."""

    seen: "Seen"
    predicted: Prediction
    bound: str
    baselines: dict[str, float]

    @property
    def device(self) -> str:
        return self.seen.row.settings.device

    @property
    def error(self) -> float:
        """Relative error of the step."""
        return off(self.predicted.step_s.value, self.seen.step.value)

    @property
    def held(self) -> bool:
        """Whether the measured step's interval and the predicted one's meet."""
        predicted, measured = self.predicted.step_s, self.seen.step
        return predicted.low <= measured.high and measured.low <= predicted.high


class Summary(msgspec.Struct, frozen=True):
    """The errors of a device's cases of one bound. `floor`: the five-process noise floor (None where none was measured);
    counted: median and mean with errors below twice the floor as zero. baselines: each one's median error."""

    device: str
    bound: str
    cases: int
    models: int
    median: float
    mean: float
    floor: float | None
    counted: tuple[float, float]
    covered: float
    baselines: dict[str, float]


def off(predicted: float, measured: float) -> float:
    """The relative error |predicted / measured - 1|."""
    return abs(predicted / measured - 1)


def leave_one_out(of: "Profile", rules: frozenset[str] = RULES) -> list[Case]:
    """Every training of the profile whose step is told, predicted with all trainings of its model left out."""
    seen = calibration.steps_seen(of, rules)
    found = []
    for s in seen:
        made = predict(s.row.problem, s.row.settings, of, rules=rules)
        floor = sum(made.parts[name].value for name in HOST if name in made.parts and name != "transfer bytes")
        bound = OVERHEAD if floor > s.step.value / 2 else WORK
        found.append(Case(s, made, bound, baselines(s, [o for o in seen if _comparable(o, s)], of)))
    return found


def _comparable(other: "Seen", of: "Seen") -> bool:
    """Whether a training may stand for another one of a model not its own: same device, same execution."""
    same = (other.row.settings.device, other.made.execution) == (of.row.settings.device, of.made.execution)
    return same and other.row.problem.model != of.row.problem.model


def baselines(seen: "Seen", others: "list[Seen]", of: "Profile") -> dict[str, float]:
    """What simpler predictions give for a step; the first two are fitted on the other models' trainings."""
    found = {}
    if others:
        found[CONSTANT] = statistics.median(s.step.value for s in others)
    if len(others) >= 3:
        found[LINE] = _line(seen, others)
    for name, wanted in ((SPEC, False), (MEASURED, True)):
        if (seconds := rooflined(seen, of, wanted)) is not None:
            found[name] = seconds
    return found


def _line(seen: "Seen", others: "list[Seen]") -> float:
    """a + b FLOPs + c launches, none negative, by the least squares of the relative errors."""
    from scipy.optimize import nnls

    columns = np.array([_features(s) for s in others])
    measured = np.array([s.step.value for s in others])
    scale = np.maximum(columns.max(axis=0), 1e-30)
    found, _ = nnls(columns / scale / measured[:, None], np.ones(len(others)))
    return float(found / scale @ np.array(_features(seen)))


def _features(seen: "Seen") -> tuple[float, float, float]:
    network, problem = networks.find(seen.row.problem.model), seen.row.problem
    return 1.0, float(min(problem.batch, problem.samples) * networks.training_flops(network)), float(seen.made.kernels)


def rooflined(seen: "Seen", of: "Profile", measured: bool) -> float | None:
    """Seconds of all kernels each under its roof: the data sheet's or the measured one; None without them."""
    settings = seen.row.settings
    every = (
        of.kept.setdefault("roofs", roofs.roofs(of.measurements, of.machine))
        if "roofs" not in of.kept
        else of.kept["roofs"]
    )
    here = [r for r in every if r.device == settings.device and r.measured == measured]
    chosen = switches.of(seen.row)
    batch = min(seen.row.problem.batch, seen.row.problem.samples)
    works = step_works(networks.find(seen.row.problem.model), batch, chosen, settings.device, [])
    total = 0.0
    for k in kernels_of(works, seen.made.execution, settings.device):
        if k.problem is None:
            continue
        times = [
            k.problem.flops / rate
            for rate in [_rate(here, "compute", k.problem.math)]
            if rate and k.part != "element-wise"
        ]
        times += [k.problem.bytes_moved / rate for rate in [_rate(here, "memory", "")] if rate]
        if not times:
            return None
        total += max(times)
    return total


def _rate(here: "list[roofs.Roof]", kind: str, name: str) -> float | None:
    return max((r.rate.value for r in here if r.kind == kind and name in ("", r.name)), default=None)


def noise_floor(of: "Profile", device: str) -> float | None:
    """The five-process noise floor of a device: the median over its trainings that were taken in several processes of how far
    these lie from their middle; None where there are none."""
    found = []
    for m in of.trainings:
        samples = m.on("host-latency")
        if m.settings.device == device and samples and samples.stop_reason.endswith("processes"):
            each: dict[int, list[float]] = {}
            for seconds, block in zip(samples.seconds, samples.block, strict=True):
                each.setdefault(block, []).append(seconds)
            medians = [statistics.median(s) for s in each.values()]
            if len(medians) > 1:
                middle = statistics.median(medians)
                found.append(statistics.median(abs(x / middle - 1) for x in medians))
    return statistics.median(found) if found else None


def summaries(cases: Iterable[Case], of: "Profile") -> list[Summary]:
    """A Summary for each device and bound, then for each device altogether."""
    cases, found = list(cases), []
    for device in dict.fromkeys(c.device for c in cases):
        for bound in (OVERHEAD, WORK, "all"):
            group = [c for c in cases if c.device == device and bound in ("all", c.bound)]
            if group:
                found.append(_summary(group, bound, noise_floor(of, device)))
    return found


def _summary(group: list[Case], bound: str, floor: float | None) -> Summary:
    errors = [c.error for c in group]
    counted = [0.0 if floor and e < 2 * floor else e for e in errors]
    named = {
        name: [off(c.baselines[name], c.seen.step.value) for c in group if name in c.baselines] for name in BASELINES
    }
    return Summary(group[0].device, bound, len(group), len({c.seen.row.problem.model for c in group}), statistics.median(errors),
                   statistics.fmean(errors), floor, (statistics.median(counted), statistics.fmean(counted)),
                   statistics.fmean(c.held for c in group), {n: statistics.median(e) for n, e in named.items() if e})  # fmt: skip


def table(found: Iterable[Summary]) -> list[str]:
    """The error table as Markdown, a line a device and bound."""
    head = ["device", "steps", "models", "trainings", "median error", "mean error", "in the interval", "noise floor",
            "counted from the floor", *BASELINES]  # fmt: skip
    lines = [_row(head), _row(["---"] * 2 + ["---:"] * (len(head) - 2))]
    for s in found:
        floor = percent(s.floor) if s.floor is not None else "not measured"
        counted = f"{percent(s.counted[0])}, {percent(s.counted[1])}" if s.floor is not None else "-"
        lines.append(_row([s.device, s.bound, str(s.models), str(s.cases), percent(s.median), percent(s.mean),
                           percent(s.covered), floor, counted,
                           *(percent(s.baselines[n]) if n in s.baselines else "-" for n in BASELINES)]))  # fmt: skip
    return lines


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def case_table(cases: Iterable[Case]) -> list[str]:
    """Every training: predicted, measured, error and what its step is bound by."""
    lines = [_row(["model", "batch", "device", "execution", "steps", "predicted ms", "measured ms", "error"]),
             _row(["---", "---:", "---", "---", "---", "---:", "---:", "---:"])]  # fmt: skip
    for c in sorted(
        cases, key=lambda c: (c.device, c.predicted.execution, c.seen.row.problem.model, c.seen.row.problem.batch)
    ):
        p = c.predicted
        given = {n: t for n, t in c.seen.row.settings.switches.items() if n not in ("data", "jit_compile")}
        name = p.training.model + "".join(f" {n}={t}" for n, t in given.items())
        lines.append(_row([name, str(p.training.batch), c.device, p.execution, c.bound, _ms(p.step_s), _ms(c.seen.step),
                           f"{100 * (p.step_s.value / c.seen.step.value - 1):+.0f} %"]))  # fmt: skip
    return lines


def _ms(e: Estimate) -> str:
    return f"{1e3 * e.value:.3g} ({1e3 * e.low:.3g} to {1e3 * e.high:.3g})"


def ablations(of: "Profile", cases: list[Case]) -> list[str]:
    """A line a rule: the median and mean error of each device without it."""
    devices = list(dict.fromkeys(c.device for c in cases))
    lines = [_row(["without", *(f"{d}: median, mean error" for d in devices)]), _row(["---", *["---:"] * len(devices)])]
    lines.append(_row(["(all rules)", *(_errors(cases, d) for d in devices)]))
    for rule, words in RULE_WORDS.items():
        without = leave_one_out(of, RULES - {rule})
        lines.append(_row([words, *(_errors(without, d) for d in devices)]))
    return lines


def _errors(cases: Iterable[Case], device: str) -> str:
    errors = [c.error for c in cases if c.device == device]
    return f"{percent(statistics.median(errors))}, {percent(statistics.fmean(errors))}" if errors else "-"


def verdicts(found: Iterable[Summary]) -> list[str]:
    """Whether each device's errors are within the targets, and half of the best baseline's: a sentence a line."""
    said = []
    for s in found:
        best = min(s.baselines.items(), key=lambda item: item[1], default=None)
        reached = s.median <= TARGETS["median"] and s.mean <= TARGETS["mean"]
        beside = f"; {best[0]}, the best simpler one, {percent(best[1])}" if best else ""
        half = " (more than half of that)" if best and s.median > best[1] / 2 else ""
        said.append(f"{s.device}, {s.bound}: median {percent(s.median)}, mean {percent(s.mean)}: "
                    f"{'within' if reached else 'not within'} {percent(TARGETS['median'])} and {percent(TARGETS['mean'])}"
                    f"{beside}{half}.")  # fmt: skip
    return said


def lines(of: "Profile", ablated: bool = True) -> list[str]:
    """The whole page: errors by device and bound, verdicts, every training, and what each rule is worth."""
    cases = leave_one_out(of)
    if not cases:
        return [
            "No training in this profile tells its step: measure some with: python -m workloads.training --study seeds"
        ]
    found = summaries(cases, of)
    said = ["Every training predicted with all trainings of its model left out of the calibration:", "", *table(found), "",
            *verdicts(found), "", *case_table(cases)]  # fmt: skip
    return [*said, "", "Without one rule at a time:", "", *ablations(of, cases)] if ablated else said


def check_lines(predictions: Iterable[Prediction], of: "Profile") -> list[str]:
    """Predictions beside the steps that were measured since, a line each, then the errors of each device."""
    rows = {(s.row.problem.model, s.row.problem.batch, s.row.settings.device, s.made.execution): s
            for s in calibration.steps_seen(of)}  # fmt: skip
    lines, errors = [_row(["model", "batch", "device", "execution", "predicted ms", "measured ms", "error"]),
                     _row(["---", "---:", "---", "---", "---:", "---:", "---:"])], {}  # fmt: skip
    for p in predictions:
        seen = rows.get((p.training.model, p.training.batch, p.settings.device, p.execution))
        measured, error = ("not measured", "") if seen is None else (
            _ms(seen.step), f"{100 * (p.step_s.value / seen.step.value - 1):+.0f} %")  # fmt: skip
        what = [p.training.model, str(p.training.batch), p.settings.device, p.execution]
        lines.append(_row([*what, _ms(p.step_s), measured, error]))
        if seen:
            errors.setdefault(p.settings.device, []).append(off(p.step_s.value, seen.step.value))
    told = [f"{device}: median error {percent(statistics.median(e))}, mean {percent(statistics.fmean(e))} of {len(e)}."
            for device, e in errors.items()]  # fmt: skip
    return [*lines, "", *told] if told else [*lines, "", "None of them was measured in these runs."]
