"""Rewrites everything under reports/ that holds rows to schema 2 and to `<machine>/<study>/<date>/`. Runs once.

python tests/support/migrate.py           rewrites reports/
python tests/support/migrate.py FILE      rewrites a result file of today's older checkout, MACHINE/STUDY/FILE

It fails where a row that stays loses or changes a sample.
"""

import ast
import collections
import json
import pathlib
import re
import sys

import drawn
import msgspec

from kernels import registry
from workloads import ROOT
from workloads.records import SAMPLES, SCHEMA, Measurement, Run
from workloads.records.visits import together

REPORTS = ROOT / "reports"
# Kernels whose first rows did not store that they are rungs.
RUNGS = {
    *("matmul/numba/naive", "matmul/numba/reordered", "matmul/numba/amx", "matmul/numba/packed"),
    *("matmul/cuda/naive", "matmul/cuda/coalesced", "matmul/cuda/tiled", "matmul/cuda/register_tiled"),
    *("matmul/tensorflow/graph", "conv/numba/direct", "conv/cuda/direct", "conv/tensorflow/graph"),
}
LATER = re.compile(r"later_epoch_s (\d+)")
SETUP = re.compile(r"setup_s(?: (\d+))?")
SHORT_FIT = re.compile(r"(fit_s \d+x\d+|epoch_s)( process \d+)?")
# Raw sweeps of a stored noise.json, runs named by their occasion, and one that the suite repeats.
GONE = ("noise", "occasions", "suite-in-bursts")
STUDIES = {  # (study, file) -> (study, file) of what is kept and was named by its occasion or its method
    ("training-later-epochs", "training"): ("training-held-out", "training"),
    ("training-later-epochs", "residence"): ("training-residence", "training"),
    ("occasions", "20261122T044306Z"): ("repeated-products", "first"),
    ("occasions", "20261122T054904Z"): ("repeated-products", "last"),
}
# Studies whose rows say more than the step of a training by itself: speedups over one GPU, and traces.
NOT_FOR_A_STEP = ("training-data-parallel", "training-trace")


def ideas() -> dict[str, str]:
    """Kernel of a ladder -> its docstring, read without importing its library."""
    found = {}
    for op in ("matmul", "conv"):
        for path in (registry.FOLDER / op).glob("[!_]*.py"):
            for made in ast.parse(path.read_text()).body:
                if isinstance(made, ast.FunctionDef):
                    name = f"{op}/{path.stem.split('_')[0]}/{made.name}"
                    if name in registry.ladder(op):
                        found[name] = " ".join((ast.get_docstring(made) or "").split())
    return found


IDEAS = ideas()


def plain(value):
    """The JSON value with every `reuse` of settings left out, and `held_s` under its present name."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {"setup_s" if name == "held_s" else name: plain(one) for name, one in value.items()}
    if {"device", "mode", "reuse", "cache", "process"} <= made.keys() and made.pop("reuse") != 1:
        raise SystemExit("a row of reuse other than 1")
    if made.get("type") == "measurement":
        made |= with_fits(made)
    return made


def with_fits(row: dict) -> dict:
    """The row's series without fits, and its fits as records."""
    own_steps = next((s["calls"] for s in row["samples"] if s["clock"] == "host-latency"), 0)
    fits: dict[int, dict] = {}
    series = {}
    for name, seconds in row["series"].items():
        later, setup = LATER.fullmatch(name), SETUP.fullmatch(name)
        if later:
            fits.setdefault(int(later[1]), {})["later_epoch_s"] = seconds
        elif setup:
            fits.setdefault(int(setup[1] or own_steps), {})["setup_s"] = seconds
        elif not SHORT_FIT.fullmatch(name):
            series[name] = seconds
    ordered = sorted(fits.items(), key=lambda item: item[0] != own_steps)
    return {"series": series, "fits": [{"steps": steps, **seconds} for steps, seconds in ordered]}


def is_short_fit(row: dict) -> bool:
    """Whether only short fits say what a step of this training takes. A bare loop over one batch has it in its samples."""
    if not any(SHORT_FIT.fullmatch(name) and name.startswith("fit_s") for name in row["series"]):
        return False
    problem = row["problem"]
    bare_loop = row["kernel"].endswith("loop") and problem["batch"] >= problem["samples"]
    return not bare_loop


def noted(row: dict, run: Run | None) -> dict:
    """The row with the notes that its kernel writes today."""
    notes = dict(row.get("notes", {}))
    kernel = row["kernel"]
    if kernel in IDEAS:
        notes.setdefault("idea", IDEAS[kernel])
    if kernel in RUNGS:
        notes.setdefault("rung", "yes")
    if "loss" in row["series"] and run:
        notes.setdefault(SAMPLES, f"as of sources {run.sources}")
    return {**row, "notes": notes}


class Counts(collections.Counter):
    """Lines and rows by what became of them."""


def migrated(path: pathlib.Path, counts: Counts, for_a_step: bool) -> list[bytes]:
    """The lines of a result file in schema 2: its runs in their order, each row once, its visits joined.

    Raises: SystemExit for a line that cannot be read, and for a row whose samples differ.
    """
    runs: list[Run] = []
    rows: dict[str, tuple[int, list[Measurement], list[dict]]] = {}
    for line in path.read_bytes().splitlines():
        old = json.loads(line)
        if old["type"] == "run":
            run = msgspec.convert({**old, "schema": SCHEMA}, Run)
            runs.append(run)
            continue
        counts["lines"] += 1
        if is_short_fit(old) and for_a_step:
            counts["short fits"] += 1
            continue
        new = msgspec.convert(noted(plain(old), runs[-1] if runs else None), Measurement)
        before = rows.get(new.key)
        if before and 0 < before[1][-1].visit < new.visit:
            before[1].append(new)
            before[2].append(old)
            continue
        if before:
            counts["replaced in their file"] += 1
        rows.pop(new.key, None)
        rows[new.key] = len(runs), [new], [old]
    lines = []
    written = 0
    for number, visits, old_visits in rows.values():
        while written < number:
            lines.append(msgspec.json.encode(runs[written]))
            written += 1
        row = together(visits)
        check(row, old_visits, path)
        lines.append(msgspec.json.encode(row))
        counts["rows"] += 1
    lines += [msgspec.json.encode(run) for run in runs[written:]]
    return lines


def check(row: Measurement, old: list[dict], path: pathlib.Path) -> None:
    """Raises SystemExit where the seconds of a row as it will be read are not those of its old lines, byte for byte."""
    if any(one["status"] != "ok" for one in old):
        old = [one for one in old if one["status"] != "ok"][:1]
    for samples in row.samples:
        was = [s["seconds"] for one in old for s in one["samples"] if s["clock"] == samples.clock]
        if json.dumps([second for seconds in was for second in seconds]) != json.dumps(list(samples.seconds)):
            raise SystemExit(f"{path}: the samples of {row.key} differ")
    clocks = {s["clock"] for one in old for s in one["samples"]}
    if clocks != {s.clock for s in row.samples}:
        raise SystemExit(f"{path}: {row.key} lost a clock")
    again = msgspec.json.decode(msgspec.json.encode(row), type=Measurement)
    if again != row:
        raise SystemExit(f"{path}: {row.key} is read otherwise than it was written")


def date(lines: list[bytes]) -> str:
    """The day of a file's first run."""
    return msgspec.json.decode(lines[0], type=Run).started_at[:10]


def result_file(path: pathlib.Path, counts: Counts) -> None:
    """Rewrites a result file, in the folder of its study and date."""
    machine, study = path.parents[1], path.parent.name
    lines = migrated(path, counts, for_a_step=study not in NOT_FOR_A_STEP)
    path.unlink()
    if not any(b'"type":"measurement"' in line for line in lines):
        counts["files gone"] += 1
        return
    study, name = STUDIES.get((study, path.stem), (study, path.stem))
    place = machine / study / date(lines) / f"{name}.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        raise SystemExit(f"{place} exists")
    place.write_bytes(b"\n".join(lines) + b"\n")


def json_lines(path: pathlib.Path) -> None:
    """Rewrites the rows and settings in a file of JSON lines of another kind. Drawn rows that are in no table any more go."""
    made = []
    for line in path.read_text().splitlines():
        value = json.loads(line)
        new = plain(value)
        made.append(line if new == value else json.dumps(new, separators=(",", ":"), ensure_ascii=False))
    if '"drawn":' in made[0]:
        rows = [msgspec.json.decode(line, type=drawn.Row) for line in made]
        pooled = {id(row) for row in drawn.latest(rows)}
        if pooled:  # a bench of fixed shapes draws none
            made = [line for line, row in zip(made, rows, strict=True) if id(row) in pooled]
    path.write_text("\n".join(made) + "\n")


def noise_file(path: pathlib.Path, began: list[str]) -> None:
    """Names the sweeps of a noise.json by when they began."""
    stored = json.loads(path.read_text())
    if len(stored["sweeps"]) != len(began):
        raise SystemExit(f"{path}: {len(stored['sweeps'])} sweeps, {len(began)} of them found")
    path.write_text(json.dumps({**stored, "sweeps": began}, indent=1) + "\n")


def began(folders: list[str]) -> list[str]:
    """When the first run of each of these folders of the checkout began."""
    times = []
    for folder in folders:
        (file,) = sorted((ROOT / folder).glob("*.jsonl")) if (ROOT / folder).is_dir() else [ROOT / folder]
        times.append(json.loads(file.read_bytes().splitlines()[0])["started_at"])
    return times


def main() -> None:
    counts = Counts()
    if sys.argv[1:]:
        for name in sys.argv[1:]:
            result_file(pathlib.Path(name), counts)
        print(dict(counts))
        return
    for path in sorted(REPORTS.glob("*/noise.json")):
        noise_file(path, began(json.loads(path.read_text())["sweeps"]))
    for path in sorted(REPORTS.glob("*/*/**/*.jsonl")):
        study = path.relative_to(REPORTS).parts[1]
        if study in GONE and (study, path.stem) not in STUDIES:
            counts["lines of raw sweeps"] += path.read_bytes().count(b'"type":"measurement"')
            path.unlink()
        else:
            result_file(path, counts)
    for path in sorted(REPORTS.glob("*/*.ndjson")):
        json_lines(path)
    print(dict(counts))


if __name__ == "__main__":
    main()
