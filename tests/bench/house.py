"""make bench NAME=house: the project's structure and speed beside their targets, its speed beside commit af57aea's too."""

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import house
import numpy as np
import recipes
from must_reach import Figure, at_most, exactly, table

from analysis.stats import Estimate

BASE = "af57aea"
PAIRS = 5
TIMED = {  # what -> (words of the command, target)
    "explain --case S4": (["-m", "analysis.explain", "--case", "S4", "reports/nvidia-h200"], 0.6),
    "report of the H200 machine": (["-m", "analysis.report", "reports/nvidia-h200", "-o", "{out}"], 0.5),
    "load of the H200 machine": (["-c", "from workloads import results; results.load('reports/nvidia-h200')"], 0.5),
}


def counted() -> list[Figure]:
    """The structure; every figure is a count."""
    limits = house.limits()
    product = [p for package in house.PRODUCT for p in house.files(package) if p.suffix in (".py", ".cu", ".cuh")]
    tests = [p for p in house.files("tests") if p.suffix == ".py"]
    readmes = house.ROOT.glob("reports/*/README.md")
    rows = [
        ("modules in an import cycle", 0, len(house.circle(house.imports(house.modules())))),
        ("broken import contracts", 0, house.broken_contracts()[0]),
        ("modules of the fullest folder", limits["modules_a_folder"], max(house.folders().values())),
        ("lines of the longest .py, .cu or .cuh", limits["file_lines"], max(map(house.lines, product))),
        ("lines of the longest test file", limits["test_file_lines"], max(map(house.lines, tests))),
        ("lines of the longest README of a machine", 200, max(map(house.lines, readmes))),
        ("other generated pages that are committed", 0, len(pages())),
    ]
    rows += [(f"files to touch for {name}", most, len(recipes.files(name))) for name, most in recipes.LIMITS.items()]
    return [at_most(*row) for row in rows]


def pages() -> list[str]:
    """Markdown under reports/ that is neither a machine's README nor a table of a bench or a stress run."""
    listed = subprocess.run(["git", "ls-files", "reports/*.md"], cwd=house.ROOT, capture_output=True, text=True).stdout
    own = re.compile(r"reports/[^/]+/(README|(bench|stress)-[\w-]+)\.md")
    return [path for path in listed.split() if not own.fullmatch(path)]


@contextlib.contextmanager
def base() -> Iterator[pathlib.Path]:
    """A checkout of the commit that times are compared with."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "--detach", "-q", path, BASE], cwd=house.ROOT, check=True)
        try:
            yield path
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", path], cwd=house.ROOT, check=True)


def seconds(words: list[str], where: pathlib.Path) -> float:
    with tempfile.TemporaryDirectory() as out:
        filled = [word.replace("{out}", f"{out}/page") for word in words]
        own = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"} | {"PYTHONPATH": str(where)}
        begin = time.perf_counter()
        subprocess.run([sys.executable, *filled], cwd=where, env=own, check=True, capture_output=True)
        return time.perf_counter() - begin


def timed() -> list[Figure]:
    """Seconds of commands over those of the base, in turns; the median of the pairs' ratios, from its least to its greatest."""
    figures = []
    with base() as old:
        for where in (old, house.ROOT):
            seconds(TIMED["load of the H200 machine"][0], where)  # fills the caches of bytecode and files
        for what, (words, most) in TIMED.items():
            ratios = [seconds(words, house.ROOT) / seconds(words, old) for _ in range(PAIRS)]
            ratio = Estimate(float(np.median(ratios)), min(ratios), max(ratios))
            figures.append(at_most(f"time of {what} / {BASE}'s", most, ratio))
    return figures


def suite() -> list[Figure]:
    """The whole test suite on two processes."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope"], cwd=house.ROOT)
    taken = time.perf_counter() - begin
    return [Figure("the suite, seconds", "<= 330", exactly(taken), taken <= 330 and not done.returncode, "s")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", action="store_true", help="run the tests too (about 8 minutes)")
    args = parser.parse_args()
    figures = counted() + timed() + (suite() if args.suite else [])
    return table("house", "The house: structure, speed", figures)


if __name__ == "__main__":
    sys.exit(main())
