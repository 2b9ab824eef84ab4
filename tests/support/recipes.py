"""The recipes of docs/recipes.md as edits that can be carried out, and the files that each touches."""

import os
import pathlib
import re
import shutil
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent.parent
#: Recipe -> the most files that it may touch.
LIMITS = {
    "a kernel": 1,
    "a backend": 2,
    "an operation": 5,
    "a Keras study": 1,
    "an option": 3,
    "a dtype": 3,
    "a check": 1,
}
_BLOCK = re.compile(r"(?P<head>[^\n]*)\n```(?:python)?\n(?P<text>.*?)```\n", re.DOTALL)
_NEW = re.compile(r"New file `(?P<path>[^`]+)`:")
_EDIT = re.compile(r"In `(?P<path>[^`]+)`, (?P<where>after|before|instead of) the line `(?P<line>.+)`:")


class Edit(NamedTuple):
    """One block of a recipe: a new file's text, or lines after, before or instead of one that is there."""

    path: str
    text: str
    where: str = "new"
    line: str = ""

    def apply(self, root: pathlib.Path) -> None:
        """Raises: ValueError when the file is there already, or the line is not there exactly once."""
        file = root / self.path
        if self.where == "new":
            if file.exists():
                raise ValueError(f"{self.path} is there already")
            file.parent.mkdir(exist_ok=True)
            file.write_text(self.text)
            return
        lines = file.read_text().splitlines(keepends=True)
        found = [i for i, line in enumerate(lines) if line.strip() == self.line]
        if len(found) != 1:
            raise ValueError(f"{self.path} has {len(found)} lines {self.line!r}, not one")
        start, stop = found[0] + (self.where == "after"), found[0] + (self.where != "before")
        file.write_text("".join([*lines[:start], self.text, *lines[stop:]]))


def read(name: str) -> tuple[list[Edit], list[list[str]]]:
    """The edits of a recipe and the commands that it ends with, as words.

    Raises: ValueError for a block of code whose heading says no file.
    """
    text = (ROOT / "docs/recipes.md").read_text()
    _, found, section = text.partition(f"\n## {name[0].upper()}{name[1:]}\n")
    if not found:
        raise ValueError(f"docs/recipes.md has no recipe for {name}")
    edits, section = [], re.split(r"^#{1,3} ", section, maxsplit=1, flags=re.MULTILINE)[0]
    for block in _BLOCK.finditer(section):
        if match := _NEW.fullmatch(block["head"]):
            edits.append(Edit(match["path"], block["text"]))
        elif match := _EDIT.fullmatch(block["head"]):
            edits.append(Edit(match["path"], block["text"], match["where"], match["line"]))
        else:
            raise ValueError(f"the recipe for {name} has code under {block['head']!r}, which names no file")
    tried = (line for line in section.splitlines() if line.startswith("Try: "))
    return edits, [command.split() for line in tried for command in re.findall("`([^`]+)`", line)]


def files(name: str) -> list[str]:
    """The files that a recipe touches, each once."""
    return list(dict.fromkeys(edit.path for edit in read(name)[0]))


def carry_out(name: str, root: pathlib.Path) -> list[list[str]]:
    """Copies the code to `root` and carries a recipe out there; its commands."""
    for package in ("kernels", "workloads", "analysis"):
        shutil.copytree(ROOT / package, root / package)
    shutil.copy2(ROOT / "pyproject.toml", root)
    edits, commands = read(name)
    for edit in edits:
        edit.apply(root)
    return commands


def environment() -> dict[str, str]:
    """os.environ with a PYTHONPATH on which tests and benches find what they share."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])}
