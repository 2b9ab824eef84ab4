"""Times multiply-adds in registers: the arithmetic ceilings of the CPU and the GPU."""

import sys
from argparse import Namespace

from workloads import options
from workloads.session import Workload

QUESTION = "How fast can the CPU and the GPU compute at most?"
LONG = "Arithmetic ceilings: multiply-adds in registers (FMA, dots, tiles), no memory traffic."
EXAMPLES = ("python -m workloads.peak --dtypes float32", "python -m workloads.peak --fast")
FLAGS = """
--dtypes TYPE ...  float32 float64 tf32 float16 bfloat16 float8_e4m3 (default: all that this machine has a kernel for)"""


def rows(args: Namespace, here) -> list:
    """The rows of the sweep.

    Raises: Usage for an unknown dtype.
    """
    from kernels.problems.arrays import MATHS
    from workloads.harness import plan
    from workloads.records import Row, Settings

    on = plan.devices(args, here)
    kernels = plan.kernels("peak", args, on)
    asked = options.words(args.dtypes)
    every = asked or [math for maths in MATHS.values() for math in maths]
    found = []
    with options.usage_errors():
        for math in every:
            some = plan.peak_problem(math, Settings(threads=1))
            able = [k for k in kernels if not plan.refusal(k, some)]
            # what was asked for by name is refused in a row, with the reason
            chosen = able or (kernels if asked else [])
            found += [Row(k.name, plan.peak_problem(math, s), s) for k in chosen for s in plan.settings(k, on, args)]
    return found


WORKLOAD = Workload("peak", QUESTION, LONG, EXAMPLES, "dtypes", FLAGS, rows)
main, parser, run = WORKLOAD.entry_points

if __name__ == "__main__":
    sys.exit(main())
