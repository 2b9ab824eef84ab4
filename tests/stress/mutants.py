"""Plants the faults of mutants.toml one at a time in a copy of the tree and runs the tests that whoever changed that file would
run: how many does the suite notice? The list is our own, so this is no measure of faults that others would plant."""

import argparse
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from must_reach import Figure, exactly, table

ROOT = Path(__file__).parent.parent.parent
TARGET = 95.0  # per cent


class Mutant(msgspec.Struct, frozen=True, array_like=True):
    """A planted fault: in `file` the text `old`, which is there once, becomes `new`. words: what that does to a number."""

    file: str
    words: str
    old: str
    new: str

    def planted(self, root: Path = ROOT) -> str:
        """The text of the file of that tree with the fault.

        Raises: ValueError where `old` is not there exactly once; SyntaxError where what comes of it is no Python.
        """
        text = (root / self.file).read_text()
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {times} times, not once: {self.old!r}")
        compile(text := text.replace(self.old, self.new), self.file, "exec")
        return text


class Listed(msgspec.Struct, frozen=True):
    """mutants.toml. tests: product file -> test files, the nearest first. equivalent: number -> why no number differs.
    first_survivors: of the first run, before tests were written for them."""

    tests: dict[str, list[str]]
    mutants: dict[str, dict[int, Mutant]]
    equivalent: dict[int, str]
    first_survivors: list[int]

    @property
    def every(self) -> dict[int, Mutant]:
        return {number: m for group in self.mutants.values() for number, m in group.items()}


class Came(msgspec.Struct, frozen=True):
    """What became of a fault: `by` is the test that failed, empty where none did."""

    number: int
    by: str
    seconds: float


def listed() -> Listed:
    return msgspec.convert(tomllib.loads(Path(__file__).with_suffix(".toml").read_text()), Listed, strict=False)


def copy_of_tree(folder: Path) -> None:
    """All files that git knows or would add."""
    names = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    for name in (name for name in names.split("\0") if name and (ROOT / name).is_file()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def failures(folder: Path, tests: list[str], limit_s: float | None, *flags: str) -> list[str]:
    """A line for each test that fails in a copy of the tree within so many seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *flags, *tests]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return [f"nothing within {limit_s:g} s"]
    lines = (done.stdout + done.stderr).strip().splitlines()
    return [x for x in lines if x.startswith(("FAILED ", "ERROR "))] or lines[-1:] * (done.returncode != 0)


def tried(made: Listed, numbers: list[int], append: Path, jobs: int, limit_s: float) -> None:
    """Adds what becomes of the faults with these numbers to the file, each at once.

    Raises: RuntimeError in the end where the tests that failed fail without a fault too, or the sound tree's may just be slow.
    """
    folders: queue.Queue[Path] = queue.Queue()

    def one(number: int) -> str:
        m, folder = made.every[number], folders.get()
        begin, at = time.monotonic(), folder / m.file
        text = at.read_text()
        try:
            at.write_text(m.planted(folder))
            by = "".join(failures(folder, made.tests[m.file], limit_s, "-x")[:1])
        finally:
            at.write_text(text)
            folders.put(folder)
        came = Came(number, by[:160], round(time.monotonic() - begin, 1))
        print(f"{number}: {came.seconds} s: {by or f'SURVIVED: {m.words} ({m.file})'}", file=sys.stderr, flush=True)
        with append.open("ab") as file:
            file.write(msgspec.json.encode(came) + b"\n")
        return by

    with tempfile.TemporaryDirectory() as parent, ThreadPoolExecutor(jobs) as pool:
        for folder in (Path(parent) / str(i) for i in range(jobs)):
            copy_of_tree(folder)
            folders.put(folder)
        came = {number: pool.submit(one, number) for number in numbers}
        errors = [str(error) for done in came.values() if (error := done.exception())]
        by = {number: done.result() for number, done in came.items() if not done.exception() and done.result()}
        names = {line.split()[1].partition("[")[0] for line in by.values() if not line.startswith("nothing")}
        errors += failures(folder, sorted(names), None) if names else []
        for file in {made.every[number].file for number, line in by.items() if line.startswith("nothing")}:
            errors += [f"{file}: {why}" for why in failures(folder, made.tests[file], limit_s / 3)]
    if errors:
        raise RuntimeError("; ".join(errors))


def kept(file: Path) -> dict[int, Came]:
    lines = file.read_bytes().splitlines() if file.exists() else []
    return {came.number: came for came in (msgspec.json.decode(line, type=Came) for line in lines)}


def report(made: Listed, came: dict[int, Came]) -> int:
    """Prints and stores the table; its exit code."""
    counted = set(made.every) - set(made.equivalent)
    kinds = {kind: counted & set(group) for kind, group in made.mutants.items()}
    noticed = {n for n in counted if came[n].by}
    now, first = (100 * len(some) / len(counted) for some in (noticed, counted - set(made.first_survivors)))
    what = f"planted faults of our own list that the suite notices, of {len(counted)}"
    figures = [
        Figure(what, f">= {TARGET:g} %", exactly(now), now >= TARGET, "%"),
        Figure("in the first run, before tests were written for survivors", "-", exactly(first), True, "%"),
    ]
    often = Counter(c.by.partition("::")[0].rpartition("/")[2] for c in came.values() if c.by).most_common()
    notes = ["| kind | noticed | of |", "|---|---|---|"]
    notes += [f"| {kind} | {len(own & noticed)} | {len(own)} |" for kind, own in kinds.items()]
    notes += ["", "Noticed first by: " + ", ".join(f"{name} {times}" for name, times in often) + ".", ""]
    notes += [f"- survived: {n}: {made.every[n].words} ({made.every[n].file})" for n in sorted(counted - noticed)]
    notes += [f"- equivalent, not counted: {n}: {made.every[n].words}: {why}" for n, why in made.equivalent.items()]
    return table("mutants", "Planted faults", figures, notes, "stress")


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument(
        "--only", nargs="+", type=int, help="the faults with these numbers, even where --append has them"
    )
    flags.add_argument("--jobs", type=int, default=2)
    flags.add_argument("--limit", type=float, default=120, help="seconds for the tests of a fault (120)")
    flags.add_argument("--append", type=Path, help="keep here what becomes of each, and try none of those here again")
    args = flags.parse_args()
    made = listed()
    with tempfile.TemporaryDirectory() as folder:
        append = args.append or Path(folder) / "came.jsonl"
        tried(made, args.only or [n for n in made.every if n not in kept(append)], append, args.jobs, args.limit)
        came = kept(append)
        return report(made, came) if came.keys() >= made.every.keys() else int(not all(c.by for c in came.values()))


if __name__ == "__main__":
    sys.exit(main())
