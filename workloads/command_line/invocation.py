"""The form in which a command was typed, and in which every other is shown: `crossover matmul` or `python -m workloads.matmul`.
Standard library only."""

import os
import re
import shlex
import shutil
import sys
from pathlib import PurePath

from workloads.terminal import near, quoted_controls

SCRIPT = "crossover"  # the console command that starts every other
_OURS = re.compile(
    r"(?<!\S)python -m (?:crossover(?=\s|$)|(?:workloads|analysis)(?:\.(?P<name>\w+)(?P<quick> --quick)?)?)"
)


def python() -> str:
    """The word to type for this interpreter: `python` if that runs it, else its path, relative if it lies below here."""
    on_path = shutil.which("python") or ""
    is_same_file = os.path.realpath(on_path) == os.path.realpath(sys.executable)
    is_same_folder = os.path.dirname(on_path) in sys.executable
    if on_path and is_same_file and is_same_folder:
        return "python"
    return shlex.quote(near(sys.executable))


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


def name_typed(command: str) -> str:
    """The name of a command of ours in the form that was typed: `matmul` after `crossover`, else `workloads.matmul`."""
    return command.rpartition(".")[2] if started_as() else command


def by_script(command: str) -> str:
    """A command of ours as the console command takes it, if that started this process."""
    start = started_as()
    if not start:
        return command

    def short(match: re.Match) -> str:
        if match["name"] is None:
            return start
        if match["name"] == "suite" and match["quick"] and "suite" not in sys.argv[1:2]:
            return f"{start} run"
        return f"{start} {match['name']}{match['quick'] or ''}"

    return _OURS.sub(short, command)


def program(command: str) -> str:
    """The beginning of a command in its usage, as it was typed: `crossover run` starts workloads.suite --quick."""
    quick = " --quick" if command == "workloads.suite" and started_as() and sys.argv[1:2] == ["run"] else ""
    return by_script(f"python -m {command}{quick}")


def typed(command: str) -> str:
    """A command of ours as it can be typed here and in the form that was typed: `crossover matmul ...`, or
    `python -m workloads.matmul ...` with the interpreter that works. Variables may stand before it."""
    command = quoted_controls(command)
    return re.sub(r"(?<!\S)python(?= -m )", lambda _: python(), by_script(command))
