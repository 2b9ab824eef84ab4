"""How often nominal 95 % intervals hold the true time: the real scheduler on a virtual clock, under known noise."""

import argparse
import math
import statistics
import sys
import time

import virtual_sweep
from must_reach import Figure, exactly, table

from analysis import stats
from workloads import shared_flags
from workloads.harness.timing import Limits
from workloads.machine import facts

SWEEPS = {120: 30, 40: 60, 10: 200, 1: 1000}  # rows of a sweep -> how many sweeps
# the latter: --fast, two modes, and what wanders as slowly as a sweep of 40 rows lasts
LEAST, LEAST_OF_FEW = 0.90, 0.75
WIDEST = 1.3


def covered(rows: int, name: str, limits: Limits, sweeps: int, share: float = 0.0) -> tuple[float, float, float]:
    """(coverage, coverage with the stored number added, half-width over that of the interval of known variance)."""
    plain = added = count = 0
    halves, errors = [], []
    for seed in range(1, sweeps + 1):
        measured, truth = virtual_sweep.sweep(rows, name, limits, 1000 * rows + seed)
        for m in measured:
            e, wide = stats.seconds_of(m), virtual_sweep.widened(m, share)
            plain += e.low <= truth <= e.high
            added += wide.low <= truth <= wide.high
            halves.append(math.log(e.high / e.low) / 2)
            errors.append(math.log(e.value / truth))
            count += 1
    return plain / count, added / count, statistics.median(halves) / (1.96 * statistics.pstdev(errors))


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--scale", type=float, default=1.0, help="more sweeps, or fewer")
    args = flags.parse_args()
    fine, fast = shared_flags.FINE, shared_flags.FAST
    begin, figures, beside = time.process_time(), [], []
    for name in virtual_sweep.NOISES:
        share = virtual_sweep.share(name, fine, 1)
        for rows, count in SWEEPS.items():
            plain, added, wide = covered(rows, name, fine, max(2, round(args.scale * count)), share)
            slow = name == "two modes" or (name.endswith("tau 5 s") and rows == 40)
            least, got = LEAST_OF_FEW if slow else LEAST, plain if rows >= 40 else added
            more = "" if rows >= 40 else ", stored number added"
            figures.append(Figure(f"{name}: {rows} rows{more}", f">= {least:.2f}", exactly(got), got >= least))
            if rows < 40:
                beside.append(f"{name}, {rows} rows: {plain:.2f}")
            if rows == 120 and not name.startswith("drift"):
                what = f"{name}: half-width over that of known variance"
                figures.append(Figure(what, f"<= {WIDEST}", exactly(wide), wide <= WIDEST))
        got = covered(40, name, fast, max(2, round(args.scale * SWEEPS[40])))[0]
        figures.append(Figure(f"{name}: 40 rows, --fast", f">= {LEAST_OF_FEW}", exactly(got), got >= LEAST_OF_FEW))
        print(f"{name}: {time.process_time() - begin:.0f} s", file=sys.stderr, flush=True)
    notes = [
        f"Calls of {virtual_sweep.CALL_S * 1e3:g} ms, one a sample; a visit takes {virtual_sweep.BESIDE_S:g} s beside its "
        f"{fine.visit_s:g} s of samples. The number that is added to sweeps of 10 rows and 1 is what doctor --noise finds "
        "under the same noise in ten sweeps of ten rows. Known variance: that of the estimates themselves, over all sweeps "
        "of 120 rows.",
        f"Without that number: {'; '.join(beside)}.",
        f"{time.process_time() - begin:.0f} s of CPU time.",
    ]
    return table("intervals", "Coverage of the nominal 95 % interval", figures, notes, of=facts.describe())


if __name__ == "__main__":
    sys.exit(main())
