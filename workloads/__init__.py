"""The command lines: problems x kernels on this machine, into result files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # the checkout: kernels, workloads, analysis, reports
