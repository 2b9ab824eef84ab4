"""make bench NAME=measured_models: how many styles of models `explain --measure` ends with a measurement of, and how soon.

ARGS=busy: beside four spinning processes. Names of styles (tests/support/model_styles.py) run these alone.
"""

import ast
import contextlib
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import house
import msgspec
from must_reach import Figure, at_least, exactly, table

from workloads.machine import facts

STYLES = house.ROOT / "tests/support/model_styles.py"
BUSY = "busy"
SPINNING = 4  # processes
#: Most seconds of a model, by whether the processes spin.
LIMITS_S = {False: 90, True: 180}
SHARE = 0.9  # of the styles that are to be measured


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run of `explain --measure`."""

    style: str
    #: Whether the CPU's step in the answer is measured.
    measured: bool
    seconds: float
    #: The load average of the last minute when it ended.
    load: float
    #: What the command wrote on stderr about what it did not measure.
    failure: str


def names() -> list[str]:
    """The styles, in the order of their file."""
    tree = ast.parse(STYLES.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def measured(style: str, file: pathlib.Path) -> Result:
    """Runs `explain --measure` on a style in a file of a name that no row has."""
    words = ["-m", "analysis.explain", "--model", f"{file.name}:{style}", "--measure", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(house.ROOT)}
    environment.pop("PYTHONSAFEPATH", None)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *words], cwd=file.parent, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    sides = json.loads(done.stdout)["explanation"]["sides"] if done.returncode == 0 else []
    sources = {side["device"]: side["cost"]["source"] for side in sides}
    failures = [line for line in done.stderr.splitlines() if line.startswith(("not measured", "error"))]
    return Result(
        style=style,
        measured=sources.get("cpu") == "measured",
        seconds=seconds,
        load=os.getloadavg()[0],
        failure="; ".join(failures),
    )


@contextlib.contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many processes that compute all the while."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def forget(file: pathlib.Path) -> None:
    """Removes the rows of the models of a file, which no later answer takes."""
    for run in (house.ROOT / "reports/local" / facts.describe().key).glob("explain-*"):
        training = run / "training.jsonl"
        if training.exists() and file.name in training.read_text(encoding="utf-8"):
            shutil.rmtree(run)


def figure(result: Result, limit_s: float) -> Figure:
    """A style's row: its seconds, reached if it was measured within the limit."""
    what = f"{result.style}: {'measured' if result.measured else 'not measured'}, load {result.load:.1f}"
    reached = result.measured and result.seconds <= limit_s
    return Figure(what, f"measured, <= {limit_s:.0f} s", exactly(round(result.seconds, 1)), reached, "s")


def main(argv: list[str]) -> int:
    """Runs the styles one after the other and prints the table."""
    busy = BUSY in argv
    limit_s = LIMITS_S[busy]
    styles = [word for word in argv if word != BUSY] or names()
    results = []
    with tempfile.TemporaryDirectory() as folder, spinning(SPINNING if busy else 0):
        file = pathlib.Path(folder, f"styles_{os.getpid()}.py")
        shutil.copy(STYLES, file)
        try:
            for style in styles:
                results.append(measured(style, file))
                print(msgspec.json.encode(results[-1]).decode(), file=sys.stderr, flush=True)
        finally:
            forget(file)
    count = sum(result.measured for result in results)
    figures = [figure(result, limit_s) for result in results]
    figures.append(at_least(f"styles measured, of {len(results)}", math.ceil(SHARE * len(results)), count))
    failures = [f"- {result.style}: {result.failure}" for result in results if result.failure]
    title = "Models of one's own, measured by explain --measure" + (
        f", beside {SPINNING} spinning processes" if busy else ""
    )
    return table("measured_models", title, figures, failures, args=" ".join(argv))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
