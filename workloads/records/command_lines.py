"""Command lines as result files store them, `python -m MODULE ...`: their arguments, and how they are typed another time."""

import os
import shlex
from pathlib import PurePath

#: Flags that stop and resume a run -> the number of values that follow the flag.
STOPPING = {"--stop-after": 1, "--resume": 0}
_OUTPUT = ("-o", "--output")
#: Characters that end a command in a page -> what stands for them.
_IN_A_PAGE = {ord("`"): None, ord("\n"): " "}


def arguments(command: str, module: str) -> list[str] | None:
    """The words behind `python -m MODULE` in a command; None where it runs another module."""
    words = _words(command)
    beginning = ["python", "-m", module]
    if words[: len(beginning)] != beginning:
        return None
    return words[len(beginning) :]


def has_output(command: str) -> bool:
    """Whether a command names the folder of its results, with -o or --output."""
    return any(_flag(word) in _OUTPUT for word in _words(command))


def without(command: str, flags: dict[str, int]) -> str:
    """The command without these flags and their values.

    flags: name, such as `--stop-after` -> the number of words that follow it as its values. `--stop-after=60` is one word.
    """
    remaining: list[str] = []
    values_to_skip = 0
    for word in _words(command):
        if values_to_skip:
            values_to_skip -= 1
        elif word in flags:
            values_to_skip = flags[word]
        elif _flag(word) not in flags:
            remaining.append(word)
    return shlex.join(remaining)


def resumed(command: str, folder: str) -> str:
    """The command that measures those rows of this command that the result files in a folder lack: with `-o FOLDER --resume`.

    "" for a command other than `python -m workloads.NAME`.
    """
    interpreter_and_package = [word.partition(".")[0] for word in _words(command)[:3]]
    if interpreter_and_package != ["python", "-m", "workloads"]:
        return ""
    output_flags = dict.fromkeys(_OUTPUT, 1)  # -o and --output take one value
    from_the_start = without(command, {**STOPPING, **output_flags})
    return shlex.join([*_words(from_the_start), "-o", folder, "--resume"])


def with_new_folder(command: str) -> str:
    """The command without --resume, and with a new folder for its results: `-o DIR-new` for `-o DIR`."""
    changed: list[str] = []
    word_before = ""
    for word in _words(without(command, {"--resume": 0})):
        flag, equals, folder = word.partition("=")
        if word_before in _OUTPUT:
            changed.append(new_folder(word))
        elif flag in _OUTPUT and equals:
            changed.append(f"{flag}={new_folder(folder)}")
        else:
            changed.append(word)
        word_before = word
    return shlex.join(changed)


def new_folder(folder: str) -> str:
    """A path like this folder's where nothing exists: DIR-new, DIR-new-2 and so on."""
    return _new_name(folder.rstrip("/"), ending="")


def unused(path: str) -> str:
    """The path if nothing exists at it, else one like it where nothing exists: FILE-new.csv for FILE.csv."""
    if not os.path.lexists(path):
        return path
    stem, ending = os.path.splitext(path)
    return _new_name(stem, ending=ending)


def _new_name(stem: str, *, ending: str) -> str:
    """The first of STEM-new, STEM-new-2, STEM-new-3, ... with this file name ending at which nothing exists."""
    name = f"{stem}-new{ending}"
    number = 1
    while os.path.lexists(name):
        number += 1
        name = f"{stem}-new-{number}{ending}"
    return name


def portable(command: str) -> str:
    """The command in one line as another machine may show it: of each absolute path only the last name stays.

    Backticks and line breaks are left out, as they would end the command on a Markdown page.
    """
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
    """The words of a command as a shell splits them; split at blanks where a quote is not closed."""
    try:
        return shlex.split(command)
    except ValueError:  # a quote is not closed
        return command.split()


def _flag(word: str) -> str:
    """The flag of `--flag=value`; any other word as it is."""
    return word.partition("=")[0]
