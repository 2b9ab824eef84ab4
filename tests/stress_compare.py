"""False alarms of `analysis.compare` on pairs of sweeps that are alike: fresh processes, one after the other."""

import argparse
import sys
import tempfile
from pathlib import Path

from must_reach import Figure, exactly, table

from analysis import comparison, spread
from kernels.problems import Matmul, Peak, Stream
from workloads import matmul, results, sweep
from workloads.results import Row, Settings

ONE = Settings(threads=1)
ROWS = [Row("matmul/numpy/blas", Matmul(64, 64, 64), ONE), Row("matmul/numpy/blas", Matmul(512, 512, 512), ONE),
        Row("matmul/numpy/operator", Matmul(64, 64, 64), ONE), Row("stream/numba/loop", Stream("triad", 1 << 20), ONE),
        Row("peak/numba/fma", Peak("float32", 1 << 28), ONE)]  # fmt: skip


def swept(folder: Path) -> results.Loaded:
    args = matmul.parser().parse_args(["-q", "--max-time", "0.5", "-o", str(folder)])
    sweep.sweep(ROWS, args, "matmul", "stress_compare")
    return results.read(folder)


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--pairs", type=int, default=200, help="of rows: each pair of sweeps has five")
    flags.add_argument(
        "--append", type=Path, help="keep what each pair said in this file and count what it holds, to go on later"
    )
    args = flags.parse_args()
    lines = args.append.read_text().splitlines() if args.append and args.append.exists() else []
    with tempfile.TemporaryDirectory() as place:
        for i in range(-(-(args.pairs - len(lines)) // len(ROWS))):
            old, new = (swept(Path(place) / f"{i}-{side}") for side in ("old", "new"))
            known = spread.stored(old.runs[0].machine.key)
            rows = comparison.comparison(old, new, stored=known).rows
            numbers = [(r.verdict.ratio.value, r.verdict.ratio.low, r.verdict.ratio.high, r.least.limit) for r in rows]
            told = [
                ",".join([r.word, *(f"{n:.4f}" for n in four), r.name]) for r, four in zip(rows, numbers, strict=True)
            ]
            lines += told
            print("\n".join(told), file=sys.stderr, flush=True)
            if args.append:
                args.append.write_text("\n".join(lines) + "\n")
    words = [line.partition(",")[0] for line in lines]
    false = words.count("slower") + words.count("faster")
    untold = words.count("can't tell")
    allowed = 4 * len(lines) // 200
    figures = [
        Figure(
            f"false verdicts of compare over {len(lines)} A/A pairs", f"<= {allowed}", exactly(false), false <= allowed
        )
    ]
    least = sorted(float(line.split(",")[4]) for line in lines)
    about = (f"Five rows of one thread, each pair two sweeps in fresh processes one after the other; {words.count('same')} were "
             f"called the same, {untold} could not be told. The least effect claimed of a row was between "
             f"{least[0]:.1%} and {least[-1]:.1%}, from the spread between processes stored for this machine.")  # fmt: skip
    notes = [about, "", *(f"- false: {line}" for line in lines if line.startswith(("slower", "faster")))]
    return table("compare", "False alarms of compare", figures, notes, "stress")


if __name__ == "__main__":
    sys.exit(main())
