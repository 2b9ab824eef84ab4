"""How soon commands answer: --help of each under 0.25 s and free of heavy imports, `python -m workloads` under 2 s."""

import os
import subprocess
import sys
import time

from must_reach import at_most, table

from analysis import stats
from workloads import ROOT

HEAVY = ("numpy", "pandas", "scipy", "numba", "cupy", "tensorflow", "keras", "matplotlib", "plotly", "msgspec")
RUNS = 15
_LIST = """import sys, runpy
sys.argv = ['x', '--help']
try: runpy.run_module(%r, run_name='__main__')
except SystemExit: pass
print(' '.join(m for m in sys.modules if m in %r), file=sys.stderr)"""


def commands() -> list[str]:
    """Every module that can be run with -m: it has a __main__ and takes --help."""
    found = []
    for package in ("workloads", "analysis"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if "__main__" in text and ("sys.exit(main())" in text or path.name == "__main__.py"):
                found.append(name.removesuffix(".__main__"))
    return found


def seconds(*words: str) -> list[float]:
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True, capture_output=True)
        taken.append(time.perf_counter() - begin)
    return taken


def heavy(command: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", _LIST % (command, HEAVY)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""


def main() -> int:
    figures, notes = [], []
    for command in commands():
        if command == "workloads.harness.worker":
            continue
        took = stats.median(seconds(command, "--help"))
        loaded = heavy(command)
        figures.append(at_most(f"{command} --help", 0.25, took, "s"))
        figures.append(at_most(f"{command} --help: heavy modules", 0, len(loaded.split())))
    took = stats.median(seconds("workloads"))
    figures.append(at_most("python -m workloads", 2, took, "s"))
    notes.append(f"Median of {RUNS} whole processes. Heavy modules are {', '.join(HEAVY)}.")
    return table("start", "How soon the commands answer", figures, notes)


if __name__ == "__main__":
    sys.exit(main())
