"""make golden: holds the values that the commands and the analysis give of the stored runs to those of commit af57aea.

Numbers to 6 digits, verdicts, short names, exit codes and error lines are kept in golden.json; no sentence and no page is.
"""

import argparse
import contextlib
import csv
import importlib.util
import io
import json
import math
import os
import pathlib
import re
import runpy
import shutil
import sys
import tempfile
import tomllib
import unittest.mock
import warnings
import zlib
from collections.abc import Iterable

import msgspec

# ---- All that is asked of the inside of the product: when modules move, only these lines change.
from fake_measurements import CPU_MACHINE, GPU_MACHINE

from analysis import noise
from analysis.analysis import Analysis
from analysis.crossover import crossover
from analysis.predict import profile, saved_predictions
from analysis.roofline import links, roofs
from analysis.training import break_even, costs, data_parallel, inference
from tests.validation import predicted_crossovers, prediction_errors
from workloads import records
from workloads.machine import facts
from workloads.records import published_cases, run_files

FIXED = {  # what this machine would say of itself
    "gpu_problem": lambda: "" if _machine.gpus else "no NVIDIA driver",
    "describe": lambda: _machine,
    "threads_to_try": lambda fast=False: (1, 16) if fast else (1, 2, 4, 8, 16),
    **dict.fromkeys(("usable_cores", "usable_threads", "numba_threads"), lambda: 16),
    "memory_available": lambda device="cpu": 64 << 30,
}
_machine = CPU_MACHINE
# ----

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORED = pathlib.Path(__file__).with_name("golden.json")
FROM = "commit af57aea (as formatted by ffc9759)"
REPORTS = pathlib.Path("reports")
H200, X4, INTEL = "reports/nvidia-h200", "reports/nvidia-h200-x4", "reports/intel-avx512-2c"
OLD, NEW = (f"reports/amd-avx512-2c/repeated-products/2026-11-22/{at}.jsonl" for at in ("first", "last"))

Values = dict[str, str]


def number(value: float | int) -> str:
    """One digit more than what is compared, so that a rounding is no difference; whole numbers as they are."""
    rounded = isinstance(value, float) and not (value.is_integer() and abs(value) <= 1e15)
    return f"{value:.7g}" if rounded else str(int(value))


def scalar(value) -> str | None:
    """A number, a word or nothing as text; None for what is a sentence."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return number(value)
    return value if isinstance(value, str) and len(value) <= 60 and value.count(" ") <= 3 else None


def interval(e) -> str:
    return "-" if e is None else " ".join(number(float(v)) for v in (e.value, e.low, e.high))


def flat(name: str, node) -> Values:
    """The numbers and words of a JSON value by their paths: an interval, and a list of scalars, is one of them."""
    if isinstance(node, dict):
        if set(node) == {"value", "low", "high"}:
            return {name: " ".join(str(scalar(node[key])) for key in ("value", "low", "high"))}
        return {k: v for key, child in node.items() for k, v in flat(f"{name}/{key}", child).items()}
    if isinstance(node, list):
        texts = [scalar(child) for child in node]
        if not any(isinstance(child, dict | list) for child in node):
            return {name: " ".join(t for t in texts if t is not None)} if node else {}
        return {k: v for i, child in enumerate(node) for k, v in flat(f"{name}/{i}", child).items()}
    return {name: text} if (text := scalar(node)) else {}


def every(give, inputs: Iterable, *more) -> Values:
    return {name: value for one in inputs for name, value in give(one, *more).items()}


def command(words: str, here=CPU_MACHINE) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `python -m words`, in this process, on a machine whose facts are fixed."""
    global _machine
    _machine, argv, code = here, words.split(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(unittest.mock.patch.multiple(facts, **FIXED))
        # else a run of this checkout is proposed
        stack.enter_context(unittest.mock.patch.object(run_files, "_nearest_folder", lambda run: run))
        stack.enter_context(unittest.mock.patch.object(sys, "argv", argv))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        out = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        err = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        try:
            runpy.run_module(argv[0], run_name="__main__")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    return code, out.getvalue(), err.getvalue()


# ---- what is frozen


def explained(words: str) -> Values:
    """explain --format json, by the rows of the H200."""
    code, out, err = command(f"analysis.explain {words} --format json {H200}")
    return {f"explain/{words}": str(code)} | flat(f"explain/{words}", json.loads(out) if out else {"error": err})


def planned(words: str, here) -> Values:
    """A dry run's rows, a line each."""
    code, out, err = command(f"{words} --dry-run --format json", here)
    name = f"plan/{here.key}/{words}"
    made = {f"{name}/exit": str(code)}
    if out.startswith("{"):
        plan = json.loads(out)
        listed = [" ".join(v for v in flat("", row).values() if v) for row in plan.pop("rows")]
        made |= {f"{name}/{key}": str(scalar(value)) for key, value in plan.items()}
    else:  # a training's plan is a list, and then how long it may take, in words
        listed = [line for line in out.splitlines() if re.match(r"\w+/\w+/\w+ ", line)]
        made |= {f"{name}/error": errors(err)} if code else {}
    return made | {f"{name}/row {i:03}": line for i, line in enumerate(listed)}


def errors(err: str) -> str:
    """The last error line and the command it proposes, without what differs from machine to machine."""
    lines = err.splitlines()
    last = max((i for i, line in enumerate(lines) if line.startswith("error: ")), default=None)
    text = " | ".join(line.strip() for line in (lines[last:] if last is not None else lines[-1:]))
    text = re.sub(r"\S*python[\d.]*(?= -m )", "python", text)
    return text.replace(str(ROOT), "ROOT").replace(str(SCRATCH), "TMP")


def refused(words: str, here=CPU_MACHINE) -> Values:
    """A bad input's exit code and error line."""
    code, out, err = command(words.replace("TMP", str(SCRATCH)), here)
    printed = f" and {len(out.splitlines())} lines" if out and code == 2 else ""
    return {f"refused/{here.key}/{words}": f"{code}{printed}: {errors(err)}"}


def rows(folder: str) -> Values:
    """Each stored row's time with its interval, the share of its roof, its noise and its flags, as export prints them."""
    code, out, err = command(f"analysis.export {folder} --to csv")
    if code:
        return {f"rows/{folder}": f"{code}: {errors(err)}"}
    found = list(csv.DictReader(io.StringIO(out)))
    every = max(1, len(found) // 100)
    made = {f"rows/{folder}": str(len(found))}
    told = ("median_s", "low_s", "high_s", "throughput_median_s", "flops_per_s", "bytes_per_s", "roof_fraction")
    for row in found[::every]:
        key = " ".join(row[n] for n in list(row)[: list(row).index("median_s")] if row[n])
        values = [number(float(row[n])) if row[n] else "-" for n in told]
        made[f"rows/{folder}/{key}"] = " ".join([*values, row["status"], *row["flags"].split()])
    return made


def answer(name: str, a) -> Values:
    """Who wins where: the kind, the range, each crossing, the bands that can't be told, and the ratio at some sizes."""
    ways = [a.form.mode, a.form.clock, str(a.form.reuse), a.form.framework, a.form.cache]
    fixed = " ".join(str(v) for _, v in a.family.fixed)
    name = f"{name}/{a.family.op} {a.family.varies} {fixed} {a.precision} {' '.join(filter(None, ways))}"
    name += " as-written" if a.form.as_written else ""
    made = {name: f"{a.kind} {a.low_n} {a.high_n} bands {' '.join(f'{b[0]}-{b[1]}' for b in a.bands) or '-'}"}
    for c in a.crossings:
        made[f"{name}/crossing {c.below}"] = f"{interval(c.at)} {c.below} {c.above} {c.to}"
    signs = {1: "GPU", -1: "CPU", 0: "can't-tell"}
    points = a.points[:: max(1, len(a.points) // 4)]
    return made | {f"{name}/at {p.n}": f"{interval(p.ratio)} {signs[p.sign]}" for p in points}


def crossings(folder: str) -> Values:
    """Every crossover of a folder: of products and convolutions, of trainings, of models that answer."""
    taken, machine = (loaded := records.read(folder)).measurements, loaded.runs[-1].machine
    found = [one for op in ("matmul", "conv") for one in crossover.layer_crossovers(taken, op, machine=machine)]
    found += [*crossover.crossovers(taken, machine=machine), *break_even.answers(taken)]
    named = [(f"crossover/{folder}", a) for a in found]
    named += [(f"crossover/{folder}/{way.kernel} {way.clock}", a) for _, way, a in inference.crossovers(taken)]
    return every(lambda one: answer(*one), named)


def rungs(folder: str) -> Values:
    """What each rung of the ladders reaches of the library, of the peak, and over the one before."""
    loaded = records.read(folder)
    made: Values = {}
    for op, ladders in Analysis.from_rows(loaded.measurements, loaded.machine).ladders.items():
        for of in ladders:
            name = f"ladder/{folder}/{op} {of.device} {of.math} {of.threads}"
            for i, s in enumerate(of.steps):
                told = " / ".join(interval(e) for e in (s.seconds, s.library_share, s.peak_share, s.over_before))
                made[f"{name}/{i:02} {s.kernel} {s.problem.flops}"] = told
    return made


def together(folder: str) -> Values:
    """Trainings on several GPUs: the step, the sum over the GPUs, its bandwidth, how far the losses are from one GPU's."""
    made: Values = {}
    for i, case in enumerate(data_parallel.cases(records.read(folder).measurements)):
        p, apart, rate = case.several.problem, data_parallel.loss_difference(case), data_parallel.bus_bytes_per_s(case)
        told = [interval(data_parallel.step(case.several)), interval(data_parallel.all_reduce(case))]
        told += ["-" if value is None else number(float(value)) for value in (rate, apart)]
        made[f"together/{folder}/{i:02} {p.model} {p.batch} {case.count}"] = " / ".join(told)
    return made


def ceilings(folder: str) -> Values:
    """The ceilings, and the laws of the links."""
    loaded = records.read(folder)
    found = roofs.roofs_of(loaded.measurements, loaded.runs[-1].machine)
    made = {
        f"roof/{folder}/{r.device} {r.kind} {r.name} {r.threads} {r.holds_bytes} {r.measured}": interval(r.rate)
        for r in found
    }
    for of in links.fits(loaded.measurements):
        name = f"link/{folder}/{of.device} {of.kernel} {of.direction} {of.host_memory} {of.clock}"
        made[name] = f"{interval(of.bandwidth)} / {interval(of.latency)} / {interval(of.half_bytes)}"
        for p in of.pieces:
            made[f"{name}/{number(p.low)}"] = " ".join(map(number, (p.high, p.latency_s, p.s_per_byte, p.error)))
    return made


def trained(folder: str) -> Values:
    """What each training costs, and after how many epochs a GPU's later start is made good."""
    taken = records.read(folder).measurements
    made: Values = {}
    for m in break_even.trainings(taken):
        cost = costs.measured(m, taken)
        if cost is None:
            continue
        s = m.settings
        told = " ".join(f"{k}={v}" for k, v in sorted(s.switches.items()))
        fields = {"type": m.problem.op, **msgspec.structs.asdict(m.problem)}
        of = " ".join(str(fields[name]) for name in sorted(fields))
        name = f"cost/{folder}/{m.kernel} {of} {s.device} {s.threads} {told}"
        parts = ("dataset_setup", "epoch", "step", "build", "compile", "start", "setup_step")
        made |= {f"{name}/{part}": interval(getattr(cost, part)) for part in parts if getattr(cost, part)}
        made |= {f"{name}/job": interval(costs.whole_training(cost, m.problem.epochs, m.problem.steps))}
    for pair in break_even.pairs(taken):
        of = pair.setup
        name = f"{of.kernel} {of.model} {of.batch} {of.samples} {of.dtype} {' '.join(map('='.join, of.switches))}"
        made[f"break-even/{folder}/{name}"] = interval(pair.break_even)
    return made


def compared(runs: tuple[str, str]) -> Values:
    """The verdicts of two stored runs, and what runs are taken to differ by."""
    old, new = runs
    code, out, err = command(f"analysis.compare {old} {new} --format json")
    name = f"compare/{old} {new if new != old else 'itself'}"
    found = json.loads(out) if out else []
    made = {name: f"{code}: {errors(err)}" if code else f"{len(found)}"}
    for r in found[:: max(1, len(found) // 50)]:
        values = [number(float(r[n])) for n in ("old_s", "new_s", "ratio", "low", "high", "between_runs")]
        made[f"{name}/{r['row']} {r['clock']}"] = " ".join([*values, r["verdict"].replace(" ", "-")])
    return made


def fleet(run: str, slower: float = 1.0) -> Values:
    """What is said of the devices of a run; with `slower`, of a copy whose calls take so much longer, against the run."""
    words = f"analysis.fleet {run}"
    if slower != 1.0:
        copy = SCRATCH / pathlib.Path(run).parent.name
        copy.mkdir(exist_ok=True)
        for file in pathlib.Path(run).rglob("*.jsonl"):
            lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            for samples in (samples for line in lines for samples in line.get("samples", ())):
                samples["seconds"] = [slower * seconds for seconds in samples["seconds"]]
            (copy / file.name).write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        words = f"analysis.fleet {copy} --against {run}"
    code, out, _ = command(f"{words} --format json")
    name = f"fleet/{run} {slower}"
    return {name: str(code)} | flat(name, json.loads(out))


def saved(file: str) -> Values:
    """Predictions that were saved: what is read of their file."""
    made: Values = {}
    for i, p in enumerate(saved_predictions.load(file)):
        t = p.training
        name = f"saved/{file}/{i:03} {t.model} {t.batch} {t.samples} {p.settings.device}"
        made[name] = " / ".join(interval(e) for e in (p.step_s, p.epoch_total_s, p.job_s))
    return made


def predicted(run: str) -> Values:
    """Every training of a run predicted without its model; its errors by device and bound."""
    of = profile.read(run)
    found = prediction_errors.leave_one_out(of)
    head = f"predict/{run}"
    made: Values = {}
    for s in prediction_errors.summaries(found):
        told = [s.steps, s.models, s.median, s.mean, s.covered]
        made[f"{head}/{s.device} {s.bound}"] = " ".join(map(number, told))
        made |= {f"{head}/{s.device} {s.bound}/{k}": number(v) for k, v in s.baselines.items()}
    for i, c in enumerate(found):
        t = c.measured.row.problem
        name = f"{head}/{i:03} {t.model} {t.batch} {t.samples} {t.epochs} {t.dtype} {c.device}"
        made[name] = f"{interval(c.seconds)} / {interval(c.predicted.job_s)} / {number(c.error)} {c.bound}"
    for i, b in enumerate(predicted_crossovers.comparisons(of)):
        made[f"{head}/crossing {i:02} {b.varies} {b.by}"] = "-" if b.error is None else number(float(b.error))
        for way, a in (("measured", b.measured), ("predicted", b.predicted)):
            made |= answer(f"{head}/crossing {i:02}/{way}", a)
    return made


# ---- which of it


CASES = [*published_cases.EVERY]
QUICK_CASES = ["S0", "keras-249"]
EXPLAINED = [f"--case {name}" for name in CASES if name not in QUICK_CASES]
FOLDERS = sorted({str(records.study_folder(file)) for file in REPORTS.glob("[!l]*/*/*/*.jsonl")})
MACHINES = sorted({str(pathlib.Path(folder).parent) for folder in FOLDERS})
QUICK_RUNS = ("layers-mnist-cnn", "roofs", "small-dataset", "training-batches")
QUICK_FOLDERS = [f"{INTEL}/suite", *(f"{H200}/{run}" for run in QUICK_RUNS)]
OF_H200 = ["suite ladder", "suite roofs", "suite training-batches", "training-batches training-held-out"]
OF_H200 += ["training-seeds training-small-dataset"]
PAIRS = [(OLD, NEW), *((folder, folder) for folder in FOLDERS)]
PAIRS += [tuple(f"{H200}/{run}" for run in runs.split()) for runs in OF_H200]
SAVED = sorted(str(file) for file in REPORTS.glob("*/predictions-*.ndjson"))
# The lists of asked.toml; commands and their bad options.
ASKED = tomllib.loads(
    re.sub(r"\{(\w+)}", lambda found: globals()[found[1]], STORED.with_name("asked.toml").read_text(encoding="utf-8"))
)
REFUSED = [
    *(f"{name} --nonsense" for name in ASKED["commands"]),
    *(f"workloads.{name} {words}" for name in ASKED["measuring"] for words in ASKED["of_all"]),
    *(f"{name} {words}".strip() for name, listed in ASKED["options"].items() for words in listed),
]


def of_folder(folder: str) -> Values:
    """All that is frozen of a run's folder."""
    return every(lambda give: give(folder), (rows, crossings, ceilings, trained, rungs, together))


def quick() -> Values:
    """About 20 s of it. No TensorFlow."""
    made = every(explained, [f"--case {name}" for name in QUICK_CASES]) | every(refused, REFUSED)
    made |= every(planned, ASKED["cpu_plans"], CPU_MACHINE)
    with stand_in():
        made |= every(planned, ASKED["gpu_plans"], GPU_MACHINE)
    made |= every(of_folder, QUICK_FOLDERS) | compared((OLD, NEW))
    return made | fleet(f"{X4}/peers") | fleet(f"{X4}/peers", 1.06)


def rest() -> Values:
    """What takes longer."""
    made = every(explained, [*EXPLAINED, *ASKED["explained"]]) | every(
        of_folder, [f for f in [*FOLDERS, *MACHINES] if f not in QUICK_FOLDERS]
    )
    made |= every(compared, PAIRS) | every(planned, ASKED["trainings"], GPU_MACHINE) | every(saved, SAVED)
    return thinned(made | every(predicted, [H200]))


def thinned(made: Values) -> Values:
    """A fifth of the values of which there are most, always the same, and what an explanation rests on: a small file."""
    most, always = ("explain/", "rows/", "crossover/", "cost/", "compare/"), ("/step_s", "/job_s", "/job_saved")
    return {
        name: value
        for name, value in made.items()
        if not name.startswith(most) or name.endswith(always) or zlib.crc32(name.encode()) % 5 == 0
    }


def same(stored: str, now: str) -> bool:
    """Whether two values agree, numbers to 6 digits."""
    a, b = stored.split(), now.split()
    return len(a) == len(b) and all(map(_near, a, b))


def _near(a: str, b: str) -> bool:
    with contextlib.suppress(ValueError):
        return a == b or math.isclose(float(a), float(b), rel_tol=1.5e-6, abs_tol=1e-15)
    return False


@contextlib.contextmanager
def stand_in():
    """Stands in for CuPy where it is not installed: a plan imports it and calls nothing of it."""
    lacking = importlib.util.find_spec("cupy") is None
    absent = {name: unittest.mock.MagicMock() for name in ("cupy", "cupy.cuda", "cupyx") if lacking}
    with unittest.mock.patch.dict(sys.modules, absent):  # the kernels that took it are forgotten afterwards
        yield


def main() -> int:
    asked = argparse.ArgumentParser(prog="make golden", description=__doc__)
    asked.add_argument("--quick", action="store_true", help="only what takes about 20 s")
    asked.add_argument("--update", action="store_true", help="write the values that are given now")
    args = asked.parse_args()
    kept = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    made = {part.__name__: part() for part in ([quick] if args.quick else [quick, rest])}
    if args.update:
        kept = {"from": FROM, **kept, **made}
        STORED.write_text(json.dumps(kept, indent=0, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    differing = 0
    for part, now in made.items():
        stored = kept.get(part, {})
        for name in sorted(stored.keys() | now.keys()):
            if not (name in stored and name in now and same(stored[name], now[name])):
                differing += 1
                print(f"{name}\n  stored {stored.get(name, '(none)')}\n  now    {now.get(name, '(none)')}")
    print(f"{sum(map(len, made.values()))} values, {differing} differ from those of {kept['from']}")
    return 1 if differing else 0


SCRATCH = pathlib.Path()
if __name__ == "__main__":
    os.chdir(ROOT)
    noise.REPORTS = ROOT / "nothing stored"  # nor does what a machine's runs differ by move what is frozen
    with tempfile.TemporaryDirectory() as made_:
        SCRATCH = pathlib.Path(made_)
        (SCRATCH / "full").mkdir()
        shutil.copy(NEW, SCRATCH / "full" / "matmul.jsonl")
        (SCRATCH / "full" / "file").write_text("here\n")
        sys.exit(main())
