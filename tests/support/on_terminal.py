"""Commands run on a terminal of a chosen width: what they print, how soon, and how wide. For `make bench NAME=answers`."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time

import msgspec
from must_reach import Figure, at_most, printed

from workloads import ROOT, help_screen
from workloads.records import published_cases

WIDTHS = (60, 80, 120)
_CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
H200 = "reports/nvidia-h200"
CASES = [*published_cases.EVERY]
# Every command once or more; what measures does so for seconds. OUT is a folder that goes.
SHOWN = f"""
workloads
workloads.conv --model cifar10-cnn --batch 2 --fast --no-refine -o OUT
workloads.describe --model resnet-50
workloads.doctor
workloads.doctor {H200}/suite
workloads.inference --model lenet --batch 1 --fast --device cpu -o OUT
workloads.launch --backends numpy --fast -o OUT
workloads.matmul --sizes 64 96 --fast --no-refine -o OUT
workloads.matmul --sizes 64 --fast --no-refine --ladder -v -o OUT
workloads.peak --fast --device cpu -o OUT
workloads.stream --sizes 1MiB --fast --device cpu -o OUT
workloads.suite --quick --only matmul -o OUT
workloads.training --model lenet --samples 320 --fast --device cpu -o OUT
workloads.training --study seeds --dry-run
analysis
analysis.compare {H200}/suite {H200}/ladder
analysis.explain --model cifar10-cnn {H200}
analysis.explain --model cifar10-cnn --gpu-profile {H200} --all
analysis.export {H200}/suite --to bencher -o OUT/bencher.json
analysis.fleet {H200}-x4/peers -v
analysis.predict --model cifar10-cnn --batch 32 256 --profile {H200}
analysis.report {H200}/suite -o OUT
analysis.roofline {H200}/suite -o OUT"""
REFUSED = f"""
workloads.matmul --sizes 64 --dtype float32
workloads.matmul --sizes some
workloads.matmul --model lent
workloads.matmul --variants bals --backends numpy
workloads.peers
workloads.peak --device gpu
workloads.training --model nowhere.py:build
workloads.training --model lenet --residence moon
workloads.stream --against nowhere
analysis.compare {H200}/suit {H200}/suite
analysis.compare {H200}/suite reports/intel-avx512-2c/suite
analysis.explain --case S5
analysis.explain --model lenet --price-gpu 1,000
analysis.report nowhere"""


class Shown(msgspec.Struct, frozen=True):
    """What a command printed, seconds until it began and of its longest silence, and its exit code."""

    text: str
    first_s: float
    silent_s: float
    code: int

    def over(self, columns: int) -> list[str]:
        """The lines that went beyond so many columns."""
        lines = re.split(r"[\r\n]+", _CONTROL.sub("", self.text))
        return [line for line in lines if len(line) > columns]


def run(words: list[str], columns: int, limit_s: float = 300) -> Shown:
    """`python -m` these words on a terminal that is so wide."""
    command = [sys.executable, "-m", *words]
    env = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        os.execve(sys.executable, command, {**env, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)})
    begin = time.monotonic()
    at, out = [begin], b""
    while select.select([terminal], [], [], limit_s)[0]:
        try:
            out += os.read(terminal, 1 << 16)
        except OSError:  # its end, on Linux
            break
        at.append(time.monotonic())
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    gaps = [b - a for a, b in zip(at, [*at[1:], time.monotonic()], strict=True)]
    return Shown(out.decode(errors="replace"), gaps[0], max(gaps), os.waitstatus_to_exitcode(status))


def every() -> list[list[str]]:
    """The words of every command: help, answers, cases and errors."""
    helped = [[command, flag] for command in help_screen.commands() for flag in ("-h", "--help")]
    told = [line.split() for line in (SHOWN + REFUSED).strip().splitlines()]
    return helped + told + [["analysis.explain", "--case", case, H200] for case in CASES]


def figures(commands: list[list[str]] | None = None) -> tuple[list[Figure], list[str]]:
    """(lines over the width, the first output of any command, lines of -h; the commands at fault)."""
    wide, first, silent, screen, faults = dict.fromkeys(WIDTHS, 0), [], [], 0, []
    for words in commands or every():
        for columns in WIDTHS:
            with tempfile.TemporaryDirectory() as out:
                shown = run([word.replace("OUT", out) for word in words], columns)
            beyond = shown.over(columns)
            wide[columns] += len(beyond)
            first.append((shown.first_s, " ".join(words)))
            silent.append((shown.silent_s, " ".join(words)))
            screen = max(screen, len(shown.text.splitlines()) if words[-1] == "-h" else 0)
            faults += [f"{' '.join(words)}: {line.strip()}" for line in beyond[:1]]
            faults += [f"{' '.join(words)}: exit code {shown.code}, a traceback"] * ("Traceback" in shown.text)
            took = f"{shown.first_s:5.1f} s {shown.silent_s:5.1f} s"
            print(took, f"{len(beyond):3} {columns:3}", *words, file=sys.stderr)
    what = "lines over the terminal's width at {}: all commands, cases, errors"
    rows = [at_most(what.format(columns), 0, count) for columns, count in wide.items()]
    rows.append(at_most(f"first output of any command ({max(first)[1]})", 1, max(first)[0], "s"))
    rows.append(printed(f"longest silence ({max(silent)[1]})", max(silent)[0], "s"))
    return [*rows, at_most("lines of -h at 60, 80 and 120 columns", 24, screen)], faults
