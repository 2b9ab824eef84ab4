"""Device times of --rigorous runs of one machine that are alike, each run beside each and beside itself."""

import argparse
import itertools
import sys
from collections import Counter
from pathlib import Path

from must_reach import REPORTS, at_least, at_most, table

from analysis.compare import comparison
from kernels.problems import Matmul, Stream
from workloads import matmul, records
from workloads.harness import sweep
from workloads.records import Row, Settings

VISIT_S = "0.03"


def rows() -> list[Row]:
    """Calls of 3 µs to 3 ms."""
    on = Settings("gpu:0")
    made = [Row("stream/cupy/wide", Stream("triad", 1 << p), on) for p in (18, 20, 22, 24, 26)]
    sizes = 64, 128, 192, 256, 512, 768, 1024, 2048, 4096
    return made + [Row("matmul/cupy/cublas", Matmul(n, n, n), on) for n in sizes]


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    kept = [REPORTS / "local" / name for name in ("rigorous-1", "rigorous-2")]
    flags.add_argument("runs", nargs="*", type=Path, default=kept, help="folders; a run that is not there is measured")
    flags.add_argument("--stop-after", default="300", help="seconds of each run that is measured")
    args = flags.parse_args()
    for folder in (f for f in args.runs if not f.exists()):
        words = ["--rigorous", "--min-time", VISIT_S, "--stop-after", args.stop_after, "-o", str(folder), "-q"]
        measuring = matmul.parse(words).measuring
        header = sweep.header(f"make bench NAME=rigorous ARGS={folder.name}", measuring.seed)
        sweep.sweep(rows(), measuring, "matmul", header)
    runs = [records.read(folder) for folder in args.runs]
    pairs = itertools.combinations(runs, 2)
    found = [row for pair in pairs for row in comparison.comparison(*pair).rows if row.clock == "device"]
    words, itself = Counter(row.word for row in found), Counter[str]()
    for run in runs:
        itself.update(row.word for row in comparison.comparison(run, run).rows)
    same = 100 * words["same"] / max(1, len(found))
    figures = [
        at_least(f"device times of two runs called the same at 5 %, of {len(found)}", 80, same, "%"),
        at_most("called different", 0, words["slower"] + words["faster"]),
        at_most("a run against itself, not the same", 0, itself.total() - itself["same"]),
    ]
    lines = [
        f"- {row.word}: {row.name} {row.verdict.ratio.low:.4f} .. {row.verdict.ratio.high:.4f}, "
        f"{row.old.samples[0].stop_reason} and {row.new.samples[0].stop_reason}"
        for row in sorted(found, key=lambda row: row.name)
    ]
    return table("rigorous", "Rigorous runs that are alike", figures, lines, of=runs[0].runs[0].machine)


if __name__ == "__main__":
    sys.exit(main())
