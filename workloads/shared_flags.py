"""The flags that every workload shares, and how long a row is timed by them. Standard library only."""

import argparse
import re
from typing import Any

from workloads import options

FINE = {"visit_s": 0.075, "rounds": 5, "max_noise": 0.01, "max_time": 2.0}
FAST = {"visit_s": 0.025, "rounds": 3, "max_noise": 0.05, "max_time": 0.25}
RIGOROUS_ROUNDS = 10
_MEASURING = f"""
# what to run, and where
--backends NAME ...  which libraries (default: all that are here)
--device DEV ...     cpu, gpu, gpu:1, all (default: CPU and first GPU)
--variants NAME ...  only these kernels, teaching rungs among them
--threads N ...      CPU threads (default: 1, 2, 4, ... all; what a framework takes by itself)
--require-gpu        exit 3 when there is no GPU
# how to measure
--min-time S     seconds of each of a row's {FINE["rounds"]} visits ({FINE["visit_s"]})
--max-noise F    more visits of a row until its interval is within this share of its time ({FINE["max_noise"]})
--max-time S     but none once its calls have taken so many seconds ({FINE["max_time"]}); a training takes longer
# or
--fast           a quick look: {FAST["rounds"]} visits, 5 %% noise; 1 and all threads
--rigorous       {RIGOROUS_ROUNDS} visits, each in a process of its own (a training: five); slower; another hour may still differ
# how to measure
--seed N =1      seed of the data and of the order (1)
# running and output
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
    """The flags that every workload shares; -h shows those that people need."""
    made.needs += ("device", "fast", "dry-run", "format", "output") if made.needs else ()
    options.add(made, _MEASURING, N=_seed, F=_noise)


def limits(args: argparse.Namespace) -> dict[str, Any]:
    """visit_s (--min-time), rounds, max_noise, max_time: as given, else of --fast, else of the default."""
    given = {"visit_s": args.min_time, "max_noise": args.max_noise, "max_time": args.max_time}
    rounds = {"rounds": RIGOROUS_ROUNDS} if args.rigorous else {}
    return (FAST if args.fast else FINE) | rounds | {name: value for name, value in given.items() if value is not None}


def _noise(text: str) -> float:
    if (share := options.positive(text, {"": 1, "%": 0.01})) > 1:
        raise options.Usage(f"{text} is a share above 1", similar=("", "--max-noise", f"--max-noise {share:g}%"))
    return share


def _seed(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text) or int(text) > 1 << 31:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 0 to {1 << 31}")
    return int(text)
