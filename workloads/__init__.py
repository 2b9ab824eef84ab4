"""The command lines: problems x kernels on this machine, into result files."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # the checkout: kernels, workloads, analysis, reports

if sys.argv[:1] == ["-m"]:  # Python still looks for the module of `python -m ...`
    from workloads import misspelled

    misspelled.leave_if_unknown(sys.orig_argv)
