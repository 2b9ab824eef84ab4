"""Commands of ours in the form in which the user started this one: `crossover matmul` or `python -m workloads.matmul`. Standard
library only."""

import os
import re
import shlex
import shutil
import sys
from pathlib import PurePath

from workloads.terminal import near

SCRIPT = "crossover"  # the console command that starts every other
_OURS = re.compile(
    r"(?<!\S)python -m (?:crossover(?=\s|$)|(?:workloads|analysis)(?:\.(?P<name>\w+)(?P<quick> --quick)?)?)"
)


def python() -> str:
    """The word to type for this interpreter: `python` if that runs it, else its path, relative if it lies below here."""
    found = shutil.which("python") or ""
    same = os.path.realpath(found) == os.path.realpath(sys.executable) and os.path.dirname(found) in sys.executable
    return "python" if found and same else shlex.quote(near(sys.executable))


def started_as() -> str:
    """The words before a command's short name as the user typed them: `crossover`, the path to it, or `python -m crossover`; ""
    of a command that was started as `python -m workloads.matmul`."""
    program = PurePath(sys.argv[0])
    if program.stem != SCRIPT:
        return ""
    if program.suffix:  # crossover.py, or the module crossover.explain, which is not there
        return f"{python()} -m {SCRIPT}"
    on_path = shutil.which(SCRIPT)
    same = on_path is not None and os.path.realpath(on_path) == os.path.realpath(program)
    return SCRIPT if same else shlex.quote(near(program))


def by_script(text: str) -> str:
    """The text with its commands of ours as the console command takes them, if that started this process."""
    start = started_as()
    if not start:
        return text

    def short(match: re.Match) -> str:
        if match["name"] is None:
            return start
        if match["name"] == "suite" and match["quick"]:
            return f"{start} run"
        return f"{start} {match['name']}{match['quick'] or ''}"

    return _OURS.sub(short, text)


def typed(command: str) -> str:
    """A command of ours, or a line with one, as it can be typed here and in the form that was typed: `crossover matmul ...`, or
    `python -m workloads.matmul ...` with the interpreter that works."""
    return re.sub(r"(?<!\S)python(?= -m )", lambda _: python(), by_script(command))
