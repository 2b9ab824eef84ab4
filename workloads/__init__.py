"""The command lines: problems x kernels on this machine, into result files."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # the folder of kernels, workloads and analysis


def _results() -> Path:
    """The folder of result files: reports/ of a checkout, or one in the user's data where the packages are installed."""
    if (ROOT / "pyproject.toml").is_file():
        return ROOT / "reports"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "crossover" / "reports"


REPORTS = _results()
SCHEMA = 3  # of the result files that this program writes and reads

if sys.argv[:1] == ["-m"]:  # Python still looks for the module of `python -m ...`
    from workloads import misspelled

    misspelled.leave_if_unknown(sys.orig_argv)
