"""False alarms and missed alarms: 200 triples of fresh processes, two of them alike and one with 5 % planted."""

import argparse
import sys
import time

from must_reach import REPORTS, Figure, exactly, table

from analysis import stats
from kernels.problems import Matmul, Peak
from workloads.harness import sweep
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Row, Settings

ONE = Settings(threads=1)
CASES = [
    Row("matmul/numpy/blas", Matmul(96, 96, 96), ONE),
    Row("matmul/numpy/operator", Matmul(128, 128, 128), ONE),
    Row("matmul/numba/parallel", Matmul(64, 64, 64), ONE),
    Row("matmul/numba/reordered", Matmul(64, 64, 64), ONE),
    Row("peak/numba/fma", Peak("float32", 1 << 23), ONE),
]
PLANTED = 0.05


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--pairs", type=int, default=200)
    args = flags.parse_args()
    limits = Limits(visit_s=0.02, max_noise=0.008)
    false, found, words, lines = [], 0, [], []
    begin = time.monotonic()
    for i in range(args.pairs):
        row = CASES[i % len(CASES)]
        one, two, slow = sweep.alternate([row] * 3, limits, seed=i + 1, handicaps=[0.0, 0.0, PLANTED])
        if one.status != "ok":
            raise SystemExit(f"{row.kernel}: {one.reason}")
        same, planted = (stats.verdict(one.samples[0], other.samples[0], paired=True) for other in (two, slow))
        words.append(same.word)
        if same.word in ("faster", "slower"):
            false.append(
                f"{row.kernel} {same.word} {same.ratio.value:.4f} ({same.ratio.low:.4f} .. {same.ratio.high:.4f})"
            )
        found += planted.word == "slower"
        lines.append(
            f"{i},{row.kernel},{same.word},{same.ratio.value:.5f},{same.ratio.low:.5f},{same.ratio.high:.5f},"
            f"{planted.word},{planted.ratio.value:.5f},{planted.ratio.low:.5f},{planted.ratio.high:.5f},"
            f"{len(set(one.samples[0].block))}"
        )
        print(f"[{i + 1}/{args.pairs}] {lines[-1]}", file=sys.stderr, flush=True)
    head = "pair,kernel,aa_word,aa_ratio,aa_low,aa_high,planted_word,planted_ratio,planted_low,planted_high,rounds"
    (REPORTS / facts.describe().key).mkdir(parents=True, exist_ok=True)
    (REPORTS / facts.describe().key / "bench-verdicts.csv").write_text("\n".join([head, *lines]) + "\n")
    allowed = 4 * args.pairs // 200
    untold = len(words) - words.count("same") - len(false)
    share = found / args.pairs
    reached = len(false) <= allowed
    figures = [
        Figure(f"false verdicts over {args.pairs} A/A pairs", f"<= {allowed}", exactly(len(false)), reached),
        Figure(f"planted {PLANTED:.0%} called slower", ">= 99 %", exactly(100 * share), share >= 0.99, "%"),
    ]
    about = (
        f"Fresh processes in alternating blocks; {words.count('same')} pairs were called the same, {untold} could not be told. "
        f"{time.monotonic() - begin:.0f} s in all. Every pair: bench-verdicts.csv. Not in the table: rows that "
        "differ by more from process to process than a verdict claims (a triad of an L2's worth, calls of 2 us that are mostly "
        "interpreter); they need --rigorous."
    )
    notes = [about, *(f"- false: {f}" for f in false)]
    return table("verdicts", "False and missed alarms", figures, notes)


if __name__ == "__main__":
    sys.exit(main())
