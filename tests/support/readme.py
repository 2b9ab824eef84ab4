"""Writes what the pages named quote (`make readme`): each marked part begins with the command that gives it.

`<!-- output: COMMAND -->` holds what the command prints; of other marks the command writes the part itself. A page that says
"`COMMAND > PAGE` writes this page" is what the command prints.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys

WHOLE = re.compile(r"^`python (.*) > \S+` writes this page", re.MULTILINE)
MARK = re.compile(r"^<!-- (?P<kind>[a-z]+): python (?P<words>.*) -->$", re.MULTILINE)


def printed(words: str) -> str:
    """What a command prints 80 columns wide where this Python is what `python` means, as its lines are as long as its name."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    command = [sys.executable, *shlex.split(words)]
    how = {"capture_output": True, "text": True, "check": True, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, **how, env={**os.environ, "PATH": path}).stdout


def filled(text: str) -> str:
    """A page with what its `output` commands print."""

    def part(found: re.Match) -> str:
        return f"{found[1]}\n```\n{printed(found[2]).rstrip()}\n```\n<!-- /output -->"

    return re.sub(r"(<!-- output: python (.*?) -->)\n.*?<!-- /output -->", part, text, flags=re.DOTALL)


def main(pages: list[str]) -> int:
    for page in map(pathlib.Path, pages):
        marks = MARK.findall(page.read_text(encoding="utf-8"))
        for words in dict.fromkeys(words for kind, words in marks if kind != "output"):
            print(f"{page}: python {words}", flush=True)
            printed(words)
        text = page.read_text(encoding="utf-8")
        whole = WHOLE.search(text)
        page.write_text(printed(whole[1]) if whole else filled(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
