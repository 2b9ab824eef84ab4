"""What a row of workloads.training says beside a plain Keras script with a stopwatch that shares no code with us, on each device;
and what laws of feeding and budgets make of the same models.
"""

import argparse
import collections
import contextlib
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

import msgspec
import numpy as np
from must_reach import REPORTS, Figure, exactly, short, table

from analysis import stats, units
from analysis.predict import budget, profile
from analysis.predict.saved_predictions import relative_error
from analysis.stats import Estimate, group_by
from analysis.training import costs, pipeline_costs
from kernels import networks
from kernels.problems import Training
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Machine, Measurement, Row, Settings

SCRIPT = pathlib.Path(__file__).with_name("plain_keras.py")
EPOCHS, TIMEOUT_S, SEED = 6, 300, 1
# (model, batch, steps an epoch on the CPU and on a GPU); of those that are WHOLE the stopwatch counts too.
CASES = (
    ("strided-cnn", 256, 8, 50),
    ("mlp-784-500x2-10", 32, 300, 300),
    ("cifar10-cnn", 2048, 4, 20),
    ("cifar10-cnn", 32, 100, 300),
    ("cifar10-mlp", 256, 8, 100),
    ("strided-cnn", 64, 40, 100),
)
WARM = Training("strided-cnn", 64, 256)
WHOLE = (("strided-cnn", 256), ("cifar10-cnn", 32), ("mlp-784-500x2-10", 32))
NEAR, HELD_OUT = 0.10, 0.90
STEP, JOB, REST, ROW_S = (0.93, 1.07), (0.95, 1.05), 0.15, 30.0


class Plain(msgspec.Struct, frozen=True):
    """What the plain script took: seconds from its process's start to the end of its first fit, less making up the samples;
    epochs 2 and later of all samples and of a fourth of them; import, build and first fit apart."""

    whole_s: float
    epoch_s: tuple[float, ...]
    short_s: tuple[float, ...]
    short: int
    parts: dict[str, float] = {}


class Pair(msgspec.Struct, frozen=True):
    """A training by both ways, one after the other; row_s: seconds that the row took with its process's start and end."""

    plain: Plain
    ours: Measurement
    row_s: float
    ours_first: bool
    machine: Machine
    commit: str

    @property
    def case(self) -> tuple:
        return self.ours.device, self.ours.problem.model, self.ours.problem.batch


def plain(of: Training, device: str, uuids: dict[str, str]) -> Plain:
    """The script in a process of its own, which is told what GPU it sees, and no more.

    Raises: SystemExit with its last line where it fails, or trains another model than the table's.
    """
    few = max(1, of.steps // 4)
    words = [sys.executable, str(SCRIPT), of.model, *map(str, (of.batch, of.samples, EPOCHS, few))]
    seen = {"CUDA_VISIBLE_DEVICES": uuids.get(device, "0") if device != "cpu" else "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    variables, begin = {**os.environ, **seen, "KERAS_BACKEND": "tensorflow"}, time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as error,
        subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=error, text=True) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        whole = time.perf_counter() - begin
        out = child.stdout.read()
        if child.wait():
            error.seek(0)
            raise SystemExit(f"{of.model} on {device}: {(error.read().strip().splitlines() or ['no word'])[-1]}")
    said = json.loads(out)
    if said["weights"] != (wanted := networks.parameters(networks.find(of.model))):
        raise SystemExit(f"{of.model}: the script's model has {said['weights']} weights, the table's {wanted}")
    return Plain(whole - said["data_s"], tuple(said["epoch_s"]), tuple(said["short_s"]), few, said["parts"])


def ours(of: Training, device: str, uuids: dict[str, str]) -> tuple[Measurement, float]:
    """(the row as the command measures it by default, in a process of its own; its seconds).

    Raises: SystemExit with the reason when it is not ok.
    """
    row, begin = Row("training/keras/fit", of, Settings(device, switches={"data": "synthetic"})), time.perf_counter()
    with contextlib.closing(Worker(environment(row, uuids))) as worker:
        m = worker.ask(Order("measure", row, Limits(), SEED), TIMEOUT_S)
    if m.status != "ok":
        raise SystemExit(f"{m.status}: {of.model} on {device}: {m.reason}")
    return m, time.perf_counter() - begin


def measured(of: Training, device: str, ours_first: bool, here: Machine, uuids: dict[str, str]) -> Pair:
    first = ours(of, device, uuids) if ours_first else None
    script, (row, row_s) = plain(of, device, uuids), first or ours(of, device, uuids)
    return Pair(script, row, row_s, ours_first, here, facts.commit())


def plain_step(p: Pair) -> Estimate:
    """Seconds of a step of the script: what its later epochs of all samples and of a fourth of them differ by."""
    steps = p.ours.problem.steps
    return (stats.median(p.plain.epoch_s) - stats.median(p.plain.short_s)) / (steps - p.plain.short)


def cost(p: Pair) -> costs.TrainingCost:
    found = costs.measured(p.ours)
    assert found is not None
    return found


def within(what: str, ratios: list[Estimate], target: tuple[float, float]) -> Figure:
    """Of pairs of one case: its ratio, or their median from the lowest to the highest."""
    (low, high), values = target, [r.value for r in ratios]
    ratio = ratios[0] if len(ratios) == 1 else Estimate(statistics.median(values), min(values), max(values))
    return Figure(what, f"{low:g} .. {high:g}", ratio, low <= ratio.value <= high)


def steps(pairs: list[Pair]) -> Figure:
    (device, model, batch), m = pairs[0].case, pairs[0].ours
    nbytes = units.size(batch * networks.sample_bytes(networks.find(model)))
    both = [(cost(p).step, plain_step(p)) for p in pairs]
    own, other = (statistics.median(e.value for e in each) for each in zip(*both, strict=True))
    about = f"{m.problem.steps} steps, {units.seconds(own)} / {units.seconds(other)}"
    what = f"{device}: {model} at batch {batch} ({nbytes}): step / plain Keras ({about})"
    return within(what, [a / b for a, b in both], STEP)


def whole(pairs: list[Pair]) -> Figure:
    device, model, batch = pairs[0].case
    told = [costs.whole_training(cost(p), EPOCHS, p.ours.problem.steps) for p in pairs]
    own, other = (statistics.median(values) for values in ([t.value for t in told], [p.plain.whole_s for p in pairs]))
    what = f"{device}: {model} at batch {batch}: whole training from its parts / a stopwatch around plain Keras"
    what += f" ({EPOCHS} epochs, {units.seconds(own)} / {units.seconds(other)})"
    return within(what, [t / p.plain.whole_s for t, p in zip(told, pairs, strict=True)], JOB)


def beside(p: Pair) -> str:
    """The parts of a whole training by both ways, in words; the script's device starts when its model is built."""
    told, script = costs.parts(cost(p), EPOCHS, p.ours.problem.steps), p.plain.parts
    begun = (told["start-up"] + (costs.phase(p.ours, "build") or stats.NOTHING)).value
    start = f"start and build {begun:.1f} / {script['import'] + script['build']:.1f} s"
    fit = f"fit {stats.total(told.values()).value - begun:.1f} / {script['fit']:.1f} s"
    return "- {}: {} at batch {}: {}, {}.".format(*p.case, start, fit)


def unexplained(pairs: list[Pair], of: profile.Profile) -> Figure | str:
    """The share of a step that its budget does not explain, from the machine's stored rows, signed: the median over the pairs
    of a case, from the lowest to the highest; or what the rows lack."""
    (device, model, batch), found = pairs[0].case, [budget.budget(p.ours, of) for p in pairs]
    if missing := found[0].missing:
        return f"- {device}: {model} at batch {batch}: a budget needs rows of {', '.join(missing)}."
    shares = [100 * b.remainder.value / b.step.value for b in found]
    what = f"{device}: {model} at batch {batch}: share of the step that the budget does not explain"
    share = Estimate(statistics.median(shares), min(shares), max(shares))
    return Figure(what, f"{-100 * REST:g} .. {100 * REST:g} %", share, abs(share.value) < 100 * REST, "%")


def laws(of: profile.Profile, devices: Iterable[str]) -> tuple[list[Figure], list[str]]:
    """How many of the sizes that a law was not fitted to it is near, and which are not told: of feeding, of data-set setup."""
    errors_of = {"feeding a batch": batches(of.measurements), "setting up a data set": setups(of.measurements)}
    found, lacking = [], []
    for (what, each), device in itertools.product(errors_of.items(), devices):
        every = each.get(device, [])
        if errors := [e for e in every if e is not None]:
            share, exact_law = statistics.fmean(e <= NEAR for e, _ in errors), statistics.fmean(p for _, p in errors)
            name = f"{device}: {what}: held-out sizes within {units.percent(NEAR)} of their law ({len(errors)}; of an exact"
            name += f" law {units.percent(round(exact_law, 2))}, by these rows' noise)"
            found.append(Figure(name, f">= {units.percent(HELD_OUT)}", exactly(100 * share), share >= HELD_OUT, "%"))
        if (lost := every.count(None)) or not every:
            why = f"{lost} of {len(every)} held-out sizes lack a law or a time" if every else "no rows"
            lacking.append(f"- {device}: {what}: {why}: python -m workloads.transfer --study feeding")
    return found, lacking


def held(m: Measurement) -> bool:
    """Whether a row of the feeding study is of a size that no law is fitted to here."""
    return (m.problem.batch, m.problem.width) in pipeline_costs.TEST_SIZES


def error(by_law: float, seen: Estimate) -> tuple[float, float]:
    """(the relative error of a law, the chance that an exact law is NEAR such a row, by the row's own noise)."""
    return relative_error(by_law, seen.value), math.erf(NEAR * stats.Z / math.sqrt(2) / max(seen.noise, 1e-9))


def batches(measurements) -> dict[str, list]:
    """Device -> errors of a step of the held-out sizes by the law of its way, which was fitted to the others; None without."""
    every, found = pipeline_costs.timed_rows(measurements), collections.defaultdict(list)
    fitted = pipeline_costs.fits(m for m, _ in every if not held(m))
    for m, seen in (row for row in every if held(row[0])):
        law = pipeline_costs.find(fitted, m.device, m.variant, m.problem.dtype)
        found[m.device].append(law and error(law.seconds(m.problem.batch, m.problem.nbytes).value, seen))
    return found


def setups(measurements) -> dict[str, list]:
    """Device -> errors of a data set's setup in the held-out sizes, of all samples and of few, by a law of a call and bytes over
    a bandwidth that was fitted to the others; None without, and where it took no time that can be told."""
    arrays = (
        m for m, _ in pipeline_costs.timed_rows(measurements) if m.variant == "numpy"
    )  # other ways copy no data set
    found = collections.defaultdict(list)
    for (device, _), rows in group_by(arrays, lambda m: (m.device, m.problem.dtype)).items():
        each = [(held(m), (1.0, n * m.problem.nbytes), e) for m in rows for n, e in costs.setups(m).items()]
        fitted = [(x, e.value, e.noise) for apart, x, e in each if e.value > 0 and not apart]
        tells = len(fitted) >= pipeline_costs.FEWEST
        law = stats.least_squares(*map(np.array, zip(*fitted, strict=True))) if tells else 0
        found[device] += [error(float(law @ x), e) if tells and e.value > 0 else None for apart, x, e in each if apart]
    return found


def figures(pairs: list[Pair], of: profile.Profile) -> tuple[list[Figure], list[str]]:
    """What is to be reached, and what the stored rows do not tell."""
    groups = list(group_by(pairs, lambda p: p.case).values())
    rests = [unexplained(group, of) for group in groups]
    found = [steps(group) for group in groups]
    found += [whole(group) for group in groups if group[0].case[1:] in WHOLE]
    devices = group_by(pairs, lambda p: p.ours.device)
    told, lacking = laws(of, devices)
    found += [f for f in rests if isinstance(f, Figure)] + told
    for device, group in devices.items():
        seen = {p.case[1:] for p in group}
        lacking += [f"- {device}: {model} at batch {b}: no pair." for model, b, *_ in CASES if (model, b) not in seen]
        p = max(group, key=lambda p: p.row_s)
        begun = sum(p.ours.phases_s.get(n, 0.0) for n in ("import", "device_start", "samples", "build", "compile"))
        what = f"{device}: seconds of the longest row ({p.case[1]} at batch {p.case[2]}: {begun:.1f} s until it is compiled)"
        found.append(Figure(what, f"<= {ROW_S:g} s", exactly(p.row_s), p.row_s <= ROW_S, "s"))
    return found, [why for why in rests if isinstance(why, str)] + lacking


def read(path: pathlib.Path) -> list[Pair]:
    return [msgspec.json.decode(line, type=Pair) for line in path.read_bytes().splitlines()]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--device", nargs="+", help="cpu, gpu:0 (all that are here)")
    made.add_argument("--rounds", type=int, default=1, help="pairs of each training that the file is to have")
    made.add_argument("--stop-after", type=float, default=math.inf, help="seconds within which the last pair is to end")
    made.add_argument("--append", type=pathlib.Path, help="only measures what this file lacks, else the machine's anew")
    made.add_argument("--print", type=pathlib.Path, help="measures nothing: the table of this file")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse_args(argv)
    if args.print:
        return printed(read(args.print))
    here, uuids = facts.describe(), facts.describe().uuids
    devices = args.device or ["cpu", *["gpu:0"] * bool(here.gpus)]
    path, begin, longest = args.append or REPORTS / here.key / "bench-training.ndjson", time.monotonic(), 0.0
    if not args.append:
        path.write_bytes(b"")
    stored = collections.Counter(p.case for p in read(path)) if path.exists() else {}
    plain(WARM, devices[0], uuids)  # what is read from the disk is in memory for both ways
    every = [(Training(m, b, b * (c if d == "cpu" else g)), d) for d in devices for m, b, c, g in CASES]
    for round_, (i, (of, device)) in itertools.product(range(args.rounds), enumerate(every)):
        before = time.monotonic()
        if stored.get((device, of.model, of.batch), 0) > round_ or before - begin + longest > args.stop_after:
            continue
        pair = measured(of, device, bool((i + round_) % 2), here, uuids)
        longest = max(longest, time.monotonic() - before)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(pair) + b"\n")
        print(f"{pair.case}: row {pair.row_s:.1f} s, script {pair.plain.whole_s:.1f} s", file=sys.stderr, flush=True)
    return 0 if args.append else printed(read(path))


def printed(pairs: list[Pair]) -> int:
    """The table of what is stored, with the budgets and laws that the machine's other stored rows tell."""
    here = pairs[0].machine
    try:
        stored = profile.read(str(REPORTS / here.key))
    except FileNotFoundError:
        stored = profile.Profile([], here)
    commits = ", ".join(dict.fromkeys(short(p.commit) for p in pairs))
    notes = [
        f"Measured {min(p.ours.at for p in pairs)} to {max(p.ours.at for p in pairs)}, at commits {commits}, each "
        "training by both ways one after the other, in alternating order. The script (tests/bench/plain_keras.py) fits "
        f"{EPOCHS} epochs of all samples and {EPOCHS} of a fourth, twice; a step is what their later epochs differ by, so "
        "neither has an epoch's constant. The stopwatch counts from the process's start to the end of the first fit, without "
        "the samples' making. Of several pairs: the ratios' median from lowest to highest, no 95 % interval; seconds' medians."
    ]
    found, lacking = figures(pairs, stored)
    told = [beside(p) for p in pairs if p.plain.parts]
    notes += ["", "Whole trainings, from the row's parts / the script's:", "", *told] if told else []
    notes += ["", "Not told:", "", *lacking] if lacking else []
    return table("training", "What a training costs", found, notes, of=here)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
