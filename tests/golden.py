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
import unittest.mock
import warnings

# ---- All that is asked of the inside of the product: when modules move, only these lines change.
from fake_measurements import CPU_MACHINE, GPU_MACHINE

from analysis import answers, crossover, foretold, held_out, jobs, links, prediction, profile, roofs, spread
from workloads import cases, machine, records

FIXED = {  # what this machine would say of itself -> what it says here
    machine: {
        "gpu_problem": lambda: "" if _machine.gpus else "no NVIDIA driver",
        "describe": lambda: _machine,
        "threads_to_try": lambda: (1, 2, 4, 8, 16),
        "usable_cores": lambda: 16,
        "usable_threads": lambda: 16,
        "numba_threads": lambda: 16,
        "memory_available": lambda device="cpu": 64 << 30,
    },
}
_machine = CPU_MACHINE
# ----

ROOT = pathlib.Path(__file__).parent.parent
STORED = ROOT / "tests" / "golden.json"
FROM = "commit af57aea (as formatted by ffc9759)"
REPORTS = pathlib.Path("reports")
H200 = "reports/nvidia-h200"
X4 = "reports/nvidia-h200-x4"
OLD = "reports/amd-avx512-2c/occasions/20261122T044306Z.jsonl"
NEW = "reports/amd-avx512-2c/occasions/20261122T054904Z.jsonl"

Values = dict[str, str]


def number(value: float | int) -> str:
    """One digit more than what is compared, so that a rounding is no difference; whole numbers as they are."""
    if isinstance(value, float):
        return f"{value:.7g}" if not value.is_integer() or abs(value) > 1e15 else str(int(value))
    return str(int(value))


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
    text = scalar(node)
    return {name: text} if text else {}


def command(words: str, here=CPU_MACHINE) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `python -m words`, in this process, on a machine whose facts are fixed."""
    global _machine
    _machine, (module, *argv) = here, words.split()
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        for owner, fakes in FIXED.items():
            for name, fake in fakes.items():
                stack.enter_context(unittest.mock.patch.object(owner, name, fake))
        stack.enter_context(unittest.mock.patch.object(sys, "argv", [module, *argv]))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        warnings.simplefilter("ignore")
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    return code, out.getvalue(), err.getvalue()


# ---- what is frozen


def explained(names) -> Values:
    """explain --format json of cases, by the rows of the H200."""
    made: Values = {}
    for name in names:
        code, out, err = command(f"analysis.explain --case {name} --format json {H200}")
        made[f"explain/{name}/exit"] = str(code)
        made |= flat(f"explain/{name}", json.loads(out) if out else {"error": err})
    return made


def planned(words: str, here) -> Values:
    """A dry run's rows, a line each."""
    code, out, err = command(f"{words} --dry-run --format json", here)
    name = f"plan/{here.key}/{words}"
    made = {f"{name}/exit": str(code)}
    if not out.startswith("{"):
        return made | {f"{name}/error": errors(err)}
    plan = json.loads(out)
    made |= {f"{name}/{key}": str(scalar(plan[key])) for key in plan if key != "rows"}
    return made | {
        f"{name}/row {i:03}": " ".join(v for v in flat("", row).values() if v) for i, row in enumerate(plan["rows"])
    }


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
    names = list(found[0])
    for row in found[::every]:
        key = " ".join(row[n] for n in names[: names.index("median_s")] if row[n])
        values = [number(float(row[n])) if row[n] else "-" for n in told]
        made[f"rows/{folder}/{key}"] = " ".join([*values, row["status"], *row["flags"].split()])
    return made


def answer(name: str, a) -> Values:
    """Who wins where: the kind, the range, each crossing, the bands that can't be told, and the ratio at each size."""
    ways = [a.form.mode, a.form.clock, str(a.form.reuse), a.form.framework, a.form.cache]
    fixed = " ".join(f"{k}={v}" for k, v in a.family.fixed)
    name = f"{name}/{a.family.op} {a.family.varies} {fixed} {a.precision} {' '.join(filter(None, ways))}"
    name += " as-written" if a.form.as_written else ""
    made = {name: f"{a.kind} {a.low_n} {a.high_n} bands {' '.join(f'{b[0]}-{b[1]}' for b in a.bands) or '-'}"}
    for c in a.crossings:
        made[f"{name}/crossing {c.below}"] = f"{interval(c.at)} {c.below} {c.above} {c.to}"
    signs = {1: "GPU", -1: "CPU", 0: "can't-tell"}
    points = a.points[:: max(1, len(a.points) // 8)]
    made |= {f"{name}/at {p.n}": f"{interval(p.ratio)} {signs[p.sign]}" for p in points}
    return made | (answer(f"{name}/default", a.default) if a.default else {})


def crossings(folder: str) -> Values:
    """Every crossover of a folder: of products and convolutions, and of trainings."""
    taken = records.read(folder).measurements
    found = [*crossover.crossovers(taken), *answers.every(taken, "matmul"), *answers.every(taken, "conv")]
    made: Values = {}
    for a in [*found, *jobs.answers(taken)]:
        made |= answer(f"crossover/{folder}", a)
    return made


def ceilings(folder: str) -> Values:
    """The ceilings, and the laws of the links."""
    loaded = records.read(folder)
    found = roofs.roofs(loaded.measurements, loaded.runs[-1].machine)
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
    for m in jobs.trainings(taken):
        costs = jobs.law(m, taken)
        if costs is None:
            continue
        s = m.settings
        told = " ".join(f"{k}={v}" for k, v in sorted(s.switches.items()))
        of = " ".join(str(v) for v in flat("", json.loads(m.key)["problem"]).values()) if m.key else ""
        name = f"cost/{folder}/{m.kernel} {of} {s.device} {s.threads} {told}"
        parts = ("fit", "epoch", "step", "build", "compile", "compile_last", "start", "feed")
        made |= {f"{name}/{part}": interval(getattr(costs, part)) for part in parts if getattr(costs, part)}
        if job := jobs.job(m, taken):
            made[f"{name}/job"] = interval(job)
    for pair in jobs.pairs(taken):
        of = pair.setup
        name = f"break-even/{folder}/{of.kernel} {of.model} {of.batch} {of.samples} {of.dtype} " + " ".join(
            "=".join(pair_) for pair_ in of.switches
        )
        made[name] = interval(jobs.payback(pair))
    return made


def spreads(folder: str) -> Values:
    """By how much single processes of a row may differ, and what other moments add."""
    loaded = records.read(folder)
    known = spread.stored(loaded.runs[-1].machine.key)
    made: Values = {}
    for m in [m for m in loaded.measurements if m.status == "ok"]:
        for what in (spread.ALONE, spread.TURNS, spread.OCCASIONS):
            found = known.of(m, what)
            if found.processes:
                made[f"spread/{folder}/{m.key}/{what}"] = f"{number(found.limit)} {number(found.processes)}"
    return made


def compared(old: str, new: str) -> Values:
    """The verdicts of two stored runs."""
    code, out, err = command(f"analysis.compare {old} {new} --format json")
    made = {f"compare/{old} {new}": f"{code}" if not code else f"{code}: {errors(err)}"}
    for r in json.loads(out) if out else ():
        values = [number(float(r[n])) for n in ("old_s", "new_s", "ratio", "low", "high", "least_effect")]
        made[f"compare/{old} {new}/{r['row']} {r['clock']}"] = " ".join([*values, r["verdict"].replace(" ", "-")])
    return made


def fleet(run: str) -> Values:
    """What is said of the devices of a run."""
    code, out, _ = command(f"analysis.fleet {run} --format json")
    return {f"fleet/{run}": str(code)} | flat(f"fleet/{run}", json.loads(out))


def predicted(run: str, rules=None) -> Values:
    """Every training predicted without its model; its errors by device and bound."""
    of = profile.read(run)
    found = held_out.leave_one_out(of, prediction.RULES - {rules} if rules else prediction.RULES)
    head = f"predict/{run}" + (f" without {rules}" if rules else "")
    made: Values = {}
    for s in held_out.summaries(found, of):
        told = [s.cases, s.models, s.median, s.mean, s.floor or 0, *s.counted, s.wide, *s.every, s.covered]
        made[f"{head}/{s.device} {s.bound}"] = " ".join(map(number, told))
        if not rules:
            made |= {f"{head}/{s.device} {s.bound}/{k}": number(v) for k, v in s.baselines.items()}
    if rules:
        return made
    for i, c in enumerate(found):
        t = c.seen.row.problem
        name = f"{head}/{i:03} {t.model} {t.batch} {t.samples} {t.epochs} {t.dtype} {c.device}"
        made[name] = f"{interval(c.seconds)} / {interval(c.predicted.job_s)} / {number(c.error)} {c.bound}"
    for i, b in enumerate(foretold.beside(of)):
        made[f"{head}/crossing {i:02} {b.varies} {b.by}"] = "-" if b.error is None else number(float(b.error))
        made |= answer(f"{head}/crossing {i:02}/measured", b.measured) | answer(
            f"{head}/crossing {i:02}/predicted", b.foretold
        )
    return made


# ---- which of it

CASES = [*cases.BY_NAME, *cases.COMPLAINTS_BY_NAME, *cases.QUESTIONS_BY_NAME]
QUICK_CASES = ["S0", "keras-249"]
FOLDERS = sorted({str(file.parent) for file in REPORTS.glob("*/*/*.jsonl")})
MACHINES = sorted({str(pathlib.Path(folder).parent) for folder in FOLDERS})
QUICK_FOLDERS = [
    "reports/intel-avx512-2c/suite",
    "reports/nvidia-h200/layers-mnist-cnn",
    "reports/nvidia-h200/roofs",
    "reports/nvidia-h200/small-dataset",
    "reports/nvidia-h200/training-batches",
]
OCCASIONS = sorted(str(file) for file in REPORTS.glob("amd-avx512-2c/occasions/*.jsonl"))
PAIRS = [
    (OLD, NEW),
]
CPU_PLANS = [
    "workloads.matmul --sizes 64:256:x2 --backends numpy numba",
    "workloads.matmul --model mnist-cnn --batch 32 --backends numpy --threads 1",
    "workloads.conv --backends numpy --threads 1 2",
    "workloads.stream --sizes 8KiB:1MiB:x8 --backends numpy numba --threads 1",
    "workloads.peak --backends numba",
    "workloads.launch --backends numpy numba",
]
GPU_PLANS = [
    "workloads.matmul --sizes 64:256:x2 --backends numpy cupy",
    "workloads.transfer --sizes 4B:1MiB:x16",
    "workloads.launch --backends cupy",
    "workloads.stream --sizes 1MiB:64MiB:x8 --backends cupy",
    "workloads.peak --backends cupy",
]
MEASURING = ("matmul", "conv", "stream", "peak", "launch", "transfer", "training", "inference", "peers")
COMMANDS = [
    *(f"workloads.{name}" for name in (*MEASURING, "suite", "referee", "doctor", "describe")),
    *(f"analysis.{name}" for name in ("report", "roofline", "export", "compare", "explain", "predict", "fleet")),
]
REFUSED = [
    *(f"{name} --nonsense" for name in COMMANDS),
    *(f"workloads.{name} --max-time 0" for name in MEASURING),
    *(f"workloads.{name} --device tpu" for name in MEASURING),
    *(f"workloads.{name} --device gpu --dry-run" for name in MEASURING),
    *(f"workloads.{name} --backends nope --dry-run" for name in MEASURING),
    *(f"workloads.{name} --require-gpu" for name in MEASURING),
    *(f"workloads.{name} --sizes 64x --dry-run" for name in ("matmul", "stream", "transfer")),
    *(f"workloads.{name} --fail-on much" for name in ("matmul", "training")),
    "workloads.matmul --sizes 512:256 --dry-run",
    "workloads.matmul --sizes 0 --dry-run",
    "workloads.matmul --sizes 1:8:x1 --dry-run",
    "workloads.matmul --sizes 1:1000000000:+1 --dry-run",
    "workloads.matmul --variants nope --backends numpy --dry-run",
    "workloads.matmul --dtypes float8 --dry-run",
    "workloads.matmul --dry-run --format csv --backends numpy --sizes 64",
    "workloads.matmul --model nope --dry-run",
    "workloads.matmul --against nowhere --sizes 64 --backends numpy",
    "workloads.matmul --fail-on slower>5% --sizes 64 --backends numpy",
    "workloads.matmul --save bad/name --sizes 64 --backends numpy",
    "workloads.matmul -o TMP/full --sizes 64 --backends numpy",
    "workloads.matmul --threads 99 --sizes 64 --backends numba --dry-run",
    "workloads.conv --shapes 1x8 --dry-run",
    "workloads.conv --model nope --dry-run",
    "workloads.conv --direction up --dry-run",
    "workloads.training --model nope --dry-run",
    "workloads.training --study nope --dry-run",
    "workloads.training --batch 0 --dry-run",
    "workloads.training --dtype int3 --dry-run",
    "workloads.inference --model nope --dry-run",
    "workloads.suite --only nope",
    "workloads.suite --quick --dry-run --format json",
    "workloads.describe --model nope",
    "workloads.describe --model nope.keras",
    "workloads.doctor --format csv",
    *(f"analysis.{name} nowhere" for name in ("report", "roofline", "fleet")),
    "analysis.report",
    "analysis.roofline",
    "analysis.export nowhere --to csv",
    "analysis.export nowhere",
    "analysis.export nowhere --to xml",
    "analysis.export reports/nvidia-h200/training-batches reports/intel-avx512-2c/suite --to csv",
    "analysis.export reports/nvidia-h200/training-batches --to csv -o TMP/full/file",
    "analysis.compare nowhere nowhere",
    "analysis.compare nowhere",
    f"analysis.compare {OLD} reports/intel-avx512-2c/suite",
    f"analysis.compare {OLD} {NEW} --fail-on often",
    f"analysis.compare {OLD} {NEW} --min-effect 2",
    f"analysis.compare {OLD} reports",
    "analysis.explain",
    "analysis.explain --case S9",
    "analysis.explain --case S0 --model peaks",
    "analysis.explain --case S0 nowhere",
    "analysis.explain --case S0 --batch 0",
    "analysis.explain --case S0 --price-gpu -1",
    "analysis.explain --model peeks",
    "analysis.explain --case S0 reports/nvidia-h200/training-batches",
    "analysis.explain --case S0 reports/intel-avx512-2c reports/nvidia-h200/training-batches",
    "analysis.predict",
    "analysis.predict --model nope --profile reports/nvidia-h200/roofs",
    "analysis.predict --model peaks --profile nowhere",
    "analysis.predict --model peaks --profile reports/intel-avx512-2c/suite",
    "analysis.predict --model peaks --profile reports/nvidia-h200/roofs --device gpu:7",
    "analysis.predict --model peaks --profile reports/nvidia-h200/roofs --switch nope=1",
    "analysis.predict --model peaks --profile reports/nvidia-h200/roofs --save x.jsonl",
    "analysis.predict --model peaks --batch x --profile reports/nvidia-h200/roofs",
    "analysis.predict --check nowhere.ndjson",
    "analysis.predict --leave-one-out nowhere",
    f"analysis.fleet {X4}/peers --against nowhere",
    f"analysis.fleet {X4}/peers --fail-on slower>3%",
]


def quick() -> Values:
    """About 20 s of it."""
    made = explained(QUICK_CASES)
    for words in REFUSED:
        made |= refused(words)
    for words in CPU_PLANS:
        made |= planned(words, CPU_MACHINE)
    with stand_in():
        for words in GPU_PLANS:
            made |= planned(words, GPU_MACHINE)
    for folder in QUICK_FOLDERS:
        made |= rows(folder) | crossings(folder) | ceilings(folder) | trained(folder)
    for old, new in PAIRS:
        made |= compared(old, new)
    return made | fleet(f"{X4}/peers")


def rest() -> Values:
    """What takes longer."""
    made = explained([name for name in CASES if name not in QUICK_CASES])
    return made


def same(stored: str, now: str) -> bool:
    """Whether two values agree, numbers to 6 digits."""
    if stored == now:
        return True
    a, b = stored.split(), now.split()
    return len(a) == len(b) and all(x == y or _near(x, y) for x, y in zip(a, b, strict=True))


def _near(a: str, b: str) -> bool:
    try:
        return math.isclose(float(a), float(b), rel_tol=1.5e-6, abs_tol=1e-15)
    except ValueError:
        return False


@contextlib.contextmanager
def stand_in():
    """Stands in for CuPy where it is not installed: a plan imports it and calls nothing of it."""
    absent = {}
    if importlib.util.find_spec("cupy") is None:
        absent = {name: unittest.mock.MagicMock() for name in ("cupy", "cupy.cuda", "cupyx")}
    with unittest.mock.patch.dict(sys.modules):  # the kernels that took it are forgotten afterwards
        sys.modules.update(absent)
        yield


def main() -> int:
    asked = argparse.ArgumentParser(prog="make golden", description=__doc__)
    asked.add_argument("--quick", action="store_true", help="only what takes about 20 s")
    asked.add_argument("--update", action="store_true", help="write the values that are given now")
    args = asked.parse_args()
    kept = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    parts = {"quick": quick} if args.quick else {"quick": quick, "rest": rest}
    made = {part: give() for part, give in parts.items()}
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
    with tempfile.TemporaryDirectory() as made_:
        SCRATCH = pathlib.Path(made_)
        (SCRATCH / "full").mkdir()
        shutil.copy(NEW, SCRATCH / "full" / "matmul.jsonl")
        (SCRATCH / "full" / "file").write_text("here\n")
        sys.exit(main())
