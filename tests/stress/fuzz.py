"""100,000 made-up inputs: words of command lines, lines of result files, and what a report is made from."""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import fuzzing
from hypothesis import HealthCheck, Phase, given, seed, settings
from must_reach import Figure, added, exactly, table

from workloads import ROOT

COUNTS = {
    "sizes": 40_000,
    "reader": 25_000,
    "resumed": 15_000,
    "methods": 10_000,
    "special": 4_000,
    "outputs": 1_000,
    "page": 4_500,
    "printed": 500,
}


def run(name: str, count: int, number: int) -> Counter:
    """Tracebacks by where they come from, each with one input that gives it."""
    strategy, target = fuzzing.TARGETS[name]
    seen: Counter = Counter()

    how = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

    @settings(max_examples=count, phases=[Phase.generate], **how)
    @seed(number)
    @given(strategy)
    def go(made) -> None:
        try:
            target(made)
        except Exception as error:  # counted, not ended by
            where = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} in {where.filename.rpartition('/')[2]}, line {where.lineno}"
            if not seen[key]:
                print(f"{name}: {key}: {error}\n  {made!r:.2000}", file=sys.stderr, flush=True)
            seen[key] += 1

    go()
    return seen


def guided(name: str, count: int) -> Counter | str:
    """The same target steered by coverage (atheris), in a process of its own as it ends the one that it runs in."""
    if importlib.util.find_spec("atheris") is None:
        return "atheris is not installed: pip install atheris"
    code = (
        "import sys, atheris\n"
        "with atheris.instrument_imports():\n    import workloads.options, workloads.records\n"
        "import fuzzing\n"
        "atheris.Setup(sys.argv, fuzzing.RAW[sys.argv.pop(1)])\n"
        "atheris.Fuzz()\n"
    )
    paths = os.pathsep.join([str(ROOT / "tests" / "support"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        for i, seed_ in enumerate(fuzzing.SEEDS[name]):
            (Path(folder) / str(i)).write_bytes(seed_)
        flags = [f"-runs={count}", "-max_len=4096", "-seed=1", f"-artifact_prefix={folder}/"]
        env = {**os.environ, "PYTHONPATH": paths}
        words = [sys.executable, "-c", code, name, *flags, folder]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "Error" in line]
    last = said[0] if said else "it said nothing of an error"
    return Counter() if done.returncode == 0 else Counter({f"exit code {done.returncode}: {last}": 1})


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--share", type=float, default=1.0, help="of the full counts")
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--only", nargs="+", choices=tuple(COUNTS), default=tuple(COUNTS))
    flags.add_argument(
        "--guided", type=int, default=20_000, help="further inputs of sizes and reader steered by coverage (0: none)"
    )
    flags.add_argument("--append", type=Path, help="count what this file keeps of earlier parts too")
    args = flags.parse_args()
    begin, told, left_out = time.monotonic(), {}, ""
    for name in args.only:
        count = max(1, round(COUNTS[name] * args.share))
        seen = run(name, count, args.seed)
        told |= {f"inputs of {name}": count, **{f"bug: {name}: {where}": n for where, n in seen.items()}}
    for name in ("sizes", "reader") if args.guided else ():
        came = guided(name, args.guided)
        if isinstance(came, str):
            left_out = came
            continue
        told[f"inputs of {name}, steered by coverage"] = args.guided
        told |= {f"bug: {name}: {where}": n for where, n in came.items()}
    told = added(args.append, {**told, "seconds": round(time.monotonic() - begin)})
    total = sum(n for what, n in told.items() if what.startswith("inputs"))
    bugs = {what: n for what, n in told.items() if what.startswith("bug: ")}
    figures = [Figure(f"fuzz inputs with a traceback, of {total}", "0", exactly(sum(bugs.values())), not bugs)]
    notes = [
        f"{told['seconds']} s in all. {f'Left out: {left_out}.' if left_out else ''}".strip(),
        "",
        *(f"- {what}: {n}" for what, n in told.items() if what != "seconds"),
    ]
    return table("fuzz", "Made-up input", figures, notes, "stress")


if __name__ == "__main__":
    sys.exit(main())
