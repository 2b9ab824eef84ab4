"""Which runs a page shows, each by itself: a machine is one, and so is a run that measured again what an earlier one of its
machine has. Runs of one machine that have little in common belong together."""

import os
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from analysis.report.material import Material
from workloads.records import by_machine, read

if TYPE_CHECKING:
    from workloads.records import Loaded

AGAIN = 0.5  # of the smaller run's timed rows, the roofs' aside: more of them in both are a run measured again
_UNKNOWN = "an unknown machine"
_ROOFS = ("peak", "stream")  # what every command measures for its own roofs


def shown(paths: "Iterable[str | os.PathLike]") -> list[Material]:
    """What the page shows, the first machine first; several of them have a letter and a name each.

    Raises: FileNotFoundError when there is no result file; ValueError for an unreadable one.
    """
    groups: list[tuple[str, list[str], Loaded, str]] = []  # machine, files, what they hold, a name
    for path in paths:
        for key, loaded in by_machine(path).items():
            own = [i for i, group in enumerate(groups) if group[0] == key]
            if own and not any(_again(groups[i][2], loaded) for i in own):
                _, files, _, name = groups[own[0]]
                files = [*files, *loaded.files]
                groups[own[0]] = key, files, read(*files), name
            else:
                groups.append((key, list(loaded.files), loaded, _name(path)))
    machines = [key for key, *_ in groups]
    if len(groups) == 1:
        return [Material(groups[0][2])]
    return [
        Material(loaded, letter(i), (key or _UNKNOWN) if machines.count(key) == 1 else name)
        for i, (key, _, loaded, name) in enumerate(groups)
    ]


def letter(i: int) -> str:
    """A, B, C ..., after Z numbers."""
    return chr(ord("A") + i) if i < 26 else str(i + 1)


def _again(a: "Loaded", b: "Loaded") -> bool:
    """Whether most of the smaller one's timed rows are in both."""
    keys = [
        {m.key for m in loaded.measurements if m.status == "ok" and m.samples and m.problem.op not in _ROOFS}
        for loaded in (a, b)
    ]
    least = min(map(len, keys))
    return bool(least) and len(keys[0] & keys[1]) > AGAIN * least


def _name(path: "str | os.PathLike") -> str:
    """The last two names of a path: a machine's folder and its run, a run and its file."""
    return "/".join(pathlib.Path(path).resolve().parts[-2:])
