"""The flags that every workload shares, and how long a row is timed by them. Standard library only."""

import argparse
import dataclasses
import re
from argparse import Namespace

from workloads import options


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long a row is timed: in `rounds` visits of `visit_s` seconds on each clock, or one call where that is longer.

    After those, rows whose interval's half-width is above `max_noise` of the median are visited again. `max_time`: seconds
    after which what is timed in one go, such as trainings, is not begun again. `slow_step_s`: a training's steps that take
    longer are timed in epochs of a few; None: all in the row's own epochs.
    """

    visit_s: float = 0.075
    rounds: int = 5
    max_noise: float = 0.01
    max_time: float = 2.0
    slow_step_s: float | None = None


FINE, FAST = Limits(), Limits(0.025, 3, 0.05, 0.25, slow_step_s=0.1)
RIGOROUS_ROUNDS = 10
_MEASURING = f"""
# what to run, and where
--backends NAME ...  which libraries (default: all that are here)
--device DEV ...     cpu, gpu, gpu:1, all (default: CPU and first GPU)
--variants NAME ...  only these kernels, teaching rungs among them
--threads N ...      CPU threads (default: 1, 2, 4, ... all; what a framework takes by itself)
--require-gpu        exit 3 when there is no GPU
# how to measure
--min-time S     seconds of each of a row's {FINE.rounds} visits ({FINE.visit_s})
--max-noise F    more visits of a row until its interval is within this share of its time ({FINE.max_noise})
--max-time S     but none once its calls have taken so many seconds ({FINE.max_time}); a training takes longer
# or
--fast           a quick look: {FAST.rounds} visits, 5 %% noise; 1 and all threads
--rigorous       {RIGOROUS_ROUNDS} visits, each in a process of its own (a training: five); slower; another hour may still differ
# how to measure
--seed N =1      seed of the data and of the order (1)
# running and output
--wait-quiet      first wait until other programs use little of the CPUs, at most 10 minutes; then measure all the same
--dry-run         print the plan (rows, bytes, seconds) and measure nothing
--stop-after S    begin no visit that may end after so many seconds, exit 0 and print how to resume
--resume          finish the newest run (or the one in -o DIR): what it lacks of this command's plan
--format {{{",".join(options.FORMATS)}}} =table  what stdout gets (table)
-o --output DIR   folder of the result file (reports/local/MACHINE/TIME)
--save NAME       keep the rows as the baseline NAME
--against RUN     then say what is faster or slower than a baseline or another run
--fail-on RULE    with --against: exit 4 when a row is past this, such as 'slower>5%%'
-q --quiet        no progress on stderr
-v --verbose      a line on stderr for every row"""


def add_measuring(made: options.Parser) -> None:
    """Adds the flags that every workload shares; -h shows those that people need."""
    made.needs += ("device", "fast", "dry-run", "format", "output") if made.needs else ()
    options.add(made, _MEASURING, N=_seed, F=_noise)


def limits(args: Namespace) -> Limits:
    """The limits as given, else of --fast, else the usual ones."""
    given = {"visit_s": args.min_time, "max_noise": args.max_noise, "max_time": args.max_time}
    if args.rigorous:
        given["rounds"] = RIGOROUS_ROUNDS
    return dataclasses.replace(FAST if args.fast else FINE, **{name: n for name, n in given.items() if n is not None})


def _noise(text: str) -> float:
    if (share := options.positive(text, {"": 1, "%": 0.01})) > 1:
        raise options.Usage(f"{text} is a share above 1", wrong="--max-noise", right=f"--max-noise {share:g}%")
    return share


def _seed(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text) or int(text) > 1 << 31:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 0 to {1 << 31}")
    return int(text)
