"""Command lines as result files store them, `python -m MODULE ...`: their arguments, and how they are typed another time."""

import os
import shlex
from pathlib import PurePath

#: Flags that stop and resume a run -> how many values each has.
STOPPING = {"--stop-after": 1, "--resume": 0}
_OUTPUT = ("-o", "--output")
#: Characters that end a command in a page -> what stands for them.
_IN_A_PAGE = {ord("`"): None, ord("\n"): " "}


def arguments(command: str, module: str) -> list[str] | None:
    """The arguments of a command of a module; None of another module's."""
    words = _words(command)
    return words[3:] if words[:3] == ["python", "-m", module] else None


def has_output(command: str) -> bool:
    """Whether a command names the folder of its results."""
    return any(_flag(word) in _OUTPUT for word in _words(command))


def without(command: str, flags: dict[str, int]) -> str:
    """The command without these flags (name -> how many values it has)."""
    left: list[str] = []
    skipped = 0
    for word in _words(command):
        if skipped:
            skipped -= 1
        elif word in flags:
            skipped = flags[word]
        elif _flag(word) not in flags:
            left.append(word)
    return shlex.join(left)


def resumed(command: str, folder: str) -> str:
    """The command that measures what a folder lacks of this one's rows; "" of one that is no workload's."""
    words = _words(command)
    is_workload = [word.partition(".")[0] for word in words[:3]] == ["python", "-m", "workloads"]
    if not is_workload:
        return ""
    begun = without(command, {**STOPPING, **dict.fromkeys(_OUTPUT, 1)})
    return shlex.join([*_words(begun), "-o", folder, "--resume"])


def with_new_folder(command: str) -> str:
    """The command without --resume, and with a new folder: DIR-new for `-o DIR`."""
    changed: list[str] = []
    before = ""
    for word in _words(without(command, {"--resume": 0})):
        flag, equals, folder = word.partition("=")
        if before in _OUTPUT:
            changed.append(new_folder(word))
        elif flag in _OUTPUT and equals:
            changed.append(f"{flag}={new_folder(folder)}")
        else:
            changed.append(word)
        before = word
    return shlex.join(changed)


def new_folder(folder: str) -> str:
    """A name like that of a folder under which nothing is: DIR-new, DIR-new-2 and so on."""
    return _new_name(folder.rstrip("/"), ending="")


def unused(path: str) -> str:
    """The path if nothing is there, else a new one like it: FILE-new.csv of FILE.csv."""
    if not os.path.lexists(path):
        return path
    stem, ending = os.path.splitext(path)
    return _new_name(stem, ending=ending)


def _new_name(stem: str, *, ending: str) -> str:
    name = f"{stem}-new{ending}"
    number = 1
    while os.path.lexists(name):
        number += 1
        name = f"{stem}-new-{number}{ending}"
    return name


def portable(command: str) -> str:
    """The command in one line without folders of the machine that ran it: absolute paths keep their last name. Without
    backticks, which would end it on a page."""
    shown: list[str] = []
    for word in _words(command.translate(_IN_A_PAGE)):
        flag, equals, value = word.partition("=")
        if equals and os.path.isabs(value):
            shown.append(f"{flag}={PurePath(value).name}")
        elif os.path.isabs(word):
            shown.append(PurePath(word).name)
        else:
            shown.append(word)
    return shlex.join(shown)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote without its end
        return command.split()


def _flag(word: str) -> str:
    """The flag of `--flag=value`; any other word as it is."""
    return word.partition("=")[0]
