"""How far the predicted gain of several GPUs is off the measured one, and their losses off one GPU's, of stored trainings."""

import argparse
import sys

from must_reach import Figure, exactly, table

from analysis.stats import Estimate, is_gpu
from analysis.text import several_gpus
from analysis.training import data_parallel
from workloads import options, records

OFF = 0.15
RUN = "reports/nvidia-h200-x4"


def figures(cases: list[data_parallel.DataParallelCase]) -> list[Figure]:
    """A row for each case that was predicted, and one for all losses."""
    found, apart = [], []
    for c in cases:
        p, gain, told = c.several.problem, c.gain, c.predicted_gain
        if gain and told:
            ratio = Estimate(*(told.value / end for end in (gain.value, gain.high, gain.low)))
            how = several_gpus.setting_name(c.several)
            what = f"{p.model}, batch {p.batch}, {c.count} GPUs, {how}: predicted {told.value:.3g}, measured {gain.value:.3g}"
            found.append(Figure(what, f"1 to {OFF:.0%}", ratio, abs(ratio.value - 1) <= OFF))
        if (difference := data_parallel.loss_difference(c)) is not None:
            apart.append(difference)
    if apart:
        most, least = max(apart), data_parallel.SAME_LOSS
        what = f"losses of the first {data_parallel.FIRST} steps of {len(apart)} trainings, largest difference to one GPU's"
        found.append(Figure(what, f"<= {least:g}", exactly(most), most <= least))
    return found


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("run", nargs="?", default=RUN, help=f"result files with trainings on several GPUs ({RUN})")
    run = made.parse_args().run
    try:
        read = records.read(run)
    except FileNotFoundError as error:
        raise SystemExit(f"error: {error}") from error
    found = figures([c for c in data_parallel.cases(read.measurements) if is_gpu(c.several.settings.device)])
    if not found:
        print(f"error: {run} has no training on several GPUs beside one", file=sys.stderr)
        return options.MISSING
    return table("data_parallel", "Training on several GPUs", found, of=read.runs[-1].machine)


if __name__ == "__main__":
    raise SystemExit(main())
