"""kill -9 at random moments of sweeps that go on with --resume, some by another method: no finished row or visit is lost, no
row has visits of two methods, no worker stays behind."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
from must_reach import added, at_most, table

from workloads import ROOT, records

_FLAGS = "--sizes 4KiB:64MiB:x1.1 --backends numpy --threads 1 --fast --max-time 0.02 --min-time 0.005 --format csv"
COMMAND = ["-m", "workloads.stream", *_FLAGS.split()]
# Flags of the methods by which a file is gone on with; most sweeps keep the first.
METHODS = ((), (), (), ("--seed", "2"), ("--max-noise", "0.2"))


def start(folder: Path, resume: bool, method: tuple[str, ...]) -> subprocess.Popen:
    words = [sys.executable, *COMMAND, *method, "-o", str(folder), *(["--resume"] if resume else [])]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)


def children(pid: int) -> list[int]:
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def killed(folder: Path, resume: bool, after_s: float, method: tuple[str, ...] = ()) -> tuple[int, list[int]]:
    """Kills a sweep `after_s` seconds after it wrote its first visit, and any moment before it is done: (rows printed, its
    workers)."""
    file = folder / "stream.jsonl"
    before = _lines(file)
    process, printed = start(folder, resume, method), []
    reader = threading.Thread(target=lambda: printed.extend(process.stdout), daemon=True)
    reader.start()
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if _lines(file) >= before + 2:  # the Run's and one of a visit
            break
        time.sleep(0.01)
    time.sleep(after_s)
    workers = children(process.pid)
    process.kill()
    process.wait()
    reader.join(10)
    whole = [line for line in printed if line.endswith("\n") and line.startswith("stream,")]
    return len(whole), workers


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def gone(pids: list[int], looks: int = 3000) -> bool:
    """Whether the processes end within a minute, counted in looks, as the machine may pause all of this meanwhile."""
    for _ in range(looks):
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return True
        time.sleep(0.02)
    return False


def visits_of(lines: list[bytes]) -> list[tuple[str, int, str]]:
    """(row key, number of the visit, its run's method) of a result file's lines, in their order."""
    visits: list[tuple[str, int, str]] = []
    method = ""
    for text in lines:
        line = msgspec.json.decode(text, type=records.Line)
        if isinstance(line, records.Run):
            method = f"{line.seed} {line.method}"
        elif line.visit:
            visits.append((line.key, line.visit, method))
    return visits


def made_again(visits: list[tuple[str, int, str]]) -> int:
    """Visits that were finished already by the method of their row's visit before."""
    last: dict[str, tuple[int, str]] = {}
    again = 0
    for key, number, method in visits:
        before, method_before = last.get(key, (0, method))
        if method == method_before and number <= before:
            again += 1
        last[key] = number, method
    return again


def mixed(visits: list[tuple[str, int, str]]) -> int:
    """Visits that continue a row whose visit before was of another method."""
    last: dict[str, str] = {}
    wrong = 0
    for key, number, method in visits:
        if number > 1 and last.get(key, method) != method:
            wrong += 1
        last[key] = method
    return wrong


def rounds(count: int, seed: int, said=lambda text: None) -> dict[str, int]:
    """Kills `count` sweeps; every tenth begins a new file, the others go on in the last one."""
    rng = random.Random(seed)
    told = dict.fromkeys(("kills", "rows", "visits", "lost", "mixed", "torn", "left", "unreadable"), 0)
    with tempfile.TemporaryDirectory() as place:
        folder, before, lines = Path(place), 0, []
        for i in range(count):
            if i % 10 == 0:
                folder, before, lines = Path(place) / str(i), 0, []
            printed, workers = killed(folder, i % 10 > 0, rng.expovariate(0.6), rng.choice(METHODS))
            path = folder / "stream.jsonl"
            kept = records.read(path) if path.exists() else records.Loaded((), (), 0, ())
            rows = len(kept.measurements)
            *now, tail = path.read_bytes().split(b"\n") if path.exists() else [b""]
            visits, visits_before = visits_of(now), visits_of(lines)
            told["kills"] += 1
            told["lost"] += max(0, printed - rows) + max(0, before - rows)  # a resumed sweep prints the old rows too
            # What was written stays as it is, and no visit is made again that was finished before.
            told["lost"] += (now[: len(lines)] != lines) + made_again(visits) - made_again(visits_before)
            told["mixed"] += mixed(visits) - mixed(visits_before)
            told["visits"] += len(visits) - len(visits_before)
            lines = now
            told["torn"] += bool(tail)
            told["unreadable"] += kept.bad_lines - bool(tail)
            told["left"] += not gone(workers)
            told["rows"] += max(0, rows - before)
            before = rows
            said(f"[{i + 1}/{count}] {told}")
    return told


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--kills", type=int, default=200)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--append", type=Path, help="count what this file keeps of earlier parts too")
    args = flags.parse_args()
    begin = time.monotonic()
    told = rounds(args.kills, args.seed, lambda text: print(text, file=sys.stderr, flush=True))
    told = added(args.append, {**told, "seconds": round(time.monotonic() - begin)})
    figures = [
        at_most(f"finished rows and visits lost over {told['kills']} random kill -9", 0, told["lost"]),
        at_most("visits that continue a row of another method", 0, told["mixed"]),
        at_most("whole lines that cannot be read", 0, told["unreadable"]),
        at_most("killed sweeps whose worker stayed behind", 0, told["left"]),
    ]
    about = (
        f"{told['rows']} rows and {told['visits']} visits were finished between the kills, {told['torn']} lines were torn (and "
        f"cut off by the next --resume). Every tenth sweep began a new file. {told['seconds']} s in all."
    )
    return table("kill", "kill -9 at random moments", figures, [about], "stress")


if __name__ == "__main__":
    sys.exit(main())
