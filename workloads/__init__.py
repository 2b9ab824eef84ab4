"""The command lines: problems x kernels on this machine, into result files."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent  # the checkout: kernels, workloads, analysis, reports
