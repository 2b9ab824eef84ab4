"""False alarms of `analysis.compare` on pairs of sweeps that are alike: fresh processes, one after the other."""

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

from must_reach import Figure, exactly, table

from analysis import noise
from analysis.compare import comparison
from kernels.problems import Matmul, Peak, Stream
from workloads import matmul, records
from workloads.harness import sweep
from workloads.machine import facts
from workloads.records import Row, Settings

ONE = Settings(threads=1)
ROWS = [
    Row("matmul/numpy/blas", Matmul(64, 64, 64), ONE),
    Row("matmul/numpy/blas", Matmul(512, 512, 512), ONE),
    Row("matmul/numpy/operator", Matmul(64, 64, 64), ONE),
    Row("stream/numba/loop", Stream("triad", 1 << 20), ONE),
    Row("peak/numba/fma", Peak("float32", 1 << 28), ONE),
]
SIDES = ("old", "new")


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--pairs", type=int, default=200, help="of rows: each pair of sweeps has five")
    flags.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the sweeps here, to go on later; all of them are judged"
    )
    flags.add_argument(
        "--seconds", type=float, default=float("inf"), help="sweep no longer than this, then judge what is there"
    )
    args = flags.parse_args()
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        begin = time.monotonic()
        for i in range(-(-args.pairs // len(ROWS))):
            places = [folder / f"{i:03}-{side}" for side in SIDES]
            if time.monotonic() - begin < args.seconds:
                for place in places:
                    if not (place / "matmul.jsonl").exists():
                        swept(place)
        rows = judged(folder)
    return told(rows[: args.pairs])


def swept(folder: Path) -> None:
    args = matmul.parser().parse_args(["-q", "--max-time", "0.5", "-o", str(folder)])
    sweep.sweep(ROWS, args, "matmul", "stress_compare")


def judged(folder: Path) -> list[comparison.Compared]:
    """What `compare` says of every pair, with the spread that is stored for this machine."""
    known = noise.stored(facts.describe().key)
    found = []
    for old in sorted(folder.glob(f"*-{SIDES[0]}")):
        new = old.with_name(old.name.replace(*SIDES))
        if new.exists():
            found += comparison.comparison(records.read(old), records.read(new), stored=known).rows
    return found


def told(rows: list[comparison.Compared]) -> int:
    """Prints and writes the table; the exit code."""
    words = [r.word for r in rows]
    false = [r for r in rows if r.word in ("slower", "faster")]
    allowed = 4 * len(rows) // 200
    what = f"false verdicts of compare over {len(rows)} A/A pairs"
    figure = Figure(what, f"<= {allowed}", exactly(len(false)), len(false) <= allowed)
    untold = words.count("can't tell")
    about = (
        f"Five rows of one thread, each pair two sweeps in fresh processes one after the other; {words.count('same')} were "
        f"called the same, {untold} could not be told."
    )
    names = dict.fromkeys(r.name for r in rows)
    lines = [
        "| row | pairs | least effect claimed | largest difference of two medians | called different |",
        f"|{' --- |' * 5}",
    ]
    for name in names:
        own = [r for r in rows if r.name == name]
        most = max(max(r.verdict.ratio.value, 1 / r.verdict.ratio.value) - 1 for r in own)
        lines.append(
            f"| {name} | {len(own)} | {own[0].least.limit:.1%} | {most:.1%} | {sum(r in false for r in own)} |"
        )
    wrong = [
        f"- false: {r.word} {r.verdict.ratio.value:.4f} ({r.verdict.ratio.low:.4f} .. {r.verdict.ratio.high:.4f}), least "
        f"effect {r.least.limit:.1%}: {r.name}"
        for r in false
    ]
    return table("compare", "False alarms of compare", [figure], [about, "", *lines, "", *wrong], "stress")


if __name__ == "__main__":
    sys.exit(main())
