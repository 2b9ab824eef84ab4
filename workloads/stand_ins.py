"""What an example of a command has in the place of a value or a run. Standard library only."""

import argparse
import os
import re

from workloads import REPORTS, ROOT
from workloads.terminal import near

STORED_RUNS = "reports/nvidia-h200/suite", "reports/nvidia-h200/ladder"  # of one machine
LOCAL = REPORTS / "local"  # MACHINE/TIME/*.jsonl, and the saved baselines
SAVED = LOCAL / "saved"
PLACE = "crossover-results"  # the folder that a hint names where another cannot be written
# By a flag or by what it takes, where neither its default nor its help shows a value.
_EXAMPLES = {
    "--backends": "numpy",
    "--model": "cifar10-cnn",
    "--save": "before",
    "BYTES": "64KiB",
    "CALL": "step",
    "DEV": "cpu",
    "DIR": PLACE,
    "ID": "S4",
    "KIND": "pinned",
    "MODE": "resident",
    "MONEY": "3.50",
    "N": "10",
    "PART": "copies",
    "RULE": "slower>5%",
    "S": "60",
    "TYPE": "float32",
    "WAY": "both",
    "WHERE": "auto",
    "WORD": "on",
    "WORKLOAD": "matmul",
}
_NAMES_OF_RUNS = ("RUN", "OLD", "NEW")  # in the usage of commands
# `such as 50000`, `like 64k`, `(32)`, `(default 64:2048:x2)` in a flag's help.
_SHOWN = re.compile(r"\b(?:such as|like) '?([\w.:+*>%-]+)|\((?:default:? )?(?!none)([\w.:-]+)\)")


def value(action: argparse.Action) -> str:
    """A value that a flag takes: its default, the first of its choices, or one that its help shows; "" where these have none."""
    if action.nargs == 0:
        return ""
    if isinstance(action.default, list):
        return " ".join(action.default)
    if action.default is not None:
        return str(action.default)
    if action.choices:
        return str(next(iter(action.choices)))
    if action.metavar in _NAMES_OF_RUNS:
        return run_named(str(action.metavar))
    shown = _SHOWN.search("%".join((action.help or "").split("%%")))
    if shown:
        return shown[1] or shown[2]
    names = [*action.option_strings, str(action.metavar)]
    known = [_EXAMPLES[name] for name in names if name in _EXAMPLES]
    return known[0] if known else ""


def run_named(name: str) -> str:
    """The folder that stands for OLD, NEW or another name of a run in the usage of a command."""
    if name in ("OLD", "NEW"):
        new, old = _two_runs()
        return old if name == "OLD" else new
    return run()


def run() -> str:
    """The folder of this machine's newest run, else of one that comes with the project."""
    local = local_runs()
    return local[0] if local else stored_run()


def _two_runs() -> tuple[str, str]:
    """Two runs of one machine, the newer one first: this machine's two newest that measured the same, else two that come with
    the project."""
    by_file: dict[tuple[str, str], str] = {}  # (machine, file name) -> folder
    for folder in local_runs():
        machine = os.path.dirname(folder)
        for name in os.listdir(folder):
            before = by_file.setdefault((machine, name), folder)
            if before != folder and name.endswith(".jsonl"):
                return before, folder
    return stored_run(1), stored_run(0)


def local_folder() -> str:
    """The folder of this machine's runs, as the help of a flag has it: that of the checkout whose packages these are, else one in
    the user's data."""
    return "%%".join(near(LOCAL).split("%"))


def local_runs(workload: str = "*") -> list[str]:
    """The folders of this machine's runs, the newest first; only those with a file of that workload where one is named."""
    newest: dict[str, float] = {}
    for file in LOCAL.glob(f"*/*/{workload}.jsonl"):
        folder = str(file.parent)
        if file.parent.parent != SAVED:
            newest[folder] = max(newest.get(folder, 0.0), file.stat().st_mtime)
    return sorted(newest, key=lambda folder: newest[folder], reverse=True)


def stored_run(position: int = 0) -> str:
    """The folder of a run that comes with the project; the second is of the same machine as the first."""
    return str(ROOT / STORED_RUNS[position])
