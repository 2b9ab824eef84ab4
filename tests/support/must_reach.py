"""Prints a "Must reach" table and writes it under reports/: target, figure, interval, pass or short."""

import pathlib
from datetime import UTC, datetime

import msgspec

from analysis.stats import Estimate
from analysis.stats import exact as exactly
from workloads.machine import facts

REPORTS = pathlib.Path(__file__).parent.parent.parent / "reports"


class Figure(msgspec.Struct, frozen=True):
    """One row: what was measured, its target in words, the figure, and whether it was reached."""

    what: str
    target: str
    figure: Estimate
    reached: bool
    unit: str = ""


def cells(f: Figure) -> list[str]:
    def text(value: float) -> str:
        return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e12 else f"{value:.4g}"

    interval = "" if f.figure.low == f.figure.high else f"{text(f.figure.low)} .. {text(f.figure.high)}"
    return [f.what, f.target, f"{text(f.figure.value)} {f.unit}".strip(), interval, "pass" if f.reached else "short"]


def table(name: str, title: str, figures: list[Figure], notes=(), kind="bench", of=None, args: str = "") -> int:
    """Prints the table, writes reports/<machine>/<kind>-<name>.md; 0 when every row passes, else 1. `of`: the Machine whose
    stored rows the figures are of; None: this one. args: the words that chose a part, which has a page of its own."""
    here = of or facts.describe()
    head = ["what", "target", "figure", "95 % interval", "result"]
    rows = [head, ["---"] * len(head), *map(cells, figures)]
    about = f"{here.cpu}, {here.cores} cores" + (f"; {here.gpus[0].name}" if here.gpus else "; no GPU")
    stamp = "printed " * bool(of) + datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    lines = [
        f"# {title}",
        "",
        f"`make {kind} NAME={name}{f' ARGS={args!r}' * bool(args)}` on {about}, {stamp}, commit {short(facts.commit())}.",
        "",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        *notes,
    ]
    text = "\n".join(lines).rstrip() + "\n"
    path = REPORTS / here.key / ("-".join([kind, name, *(w for w in args.split() if w[0] != "-")]) + ".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(text, end="")
    return 0 if all(f.reached for f in figures) else 1


def short(commit: str) -> str:
    """The first 12 digits, and whether files differed."""
    head, plus, rest = commit.partition("+")
    return head[:12] + plus + rest


def added(path: pathlib.Path | None, told: dict[str, int]) -> dict[str, int]:
    """Counts, with those that a file keeps of earlier parts of the same run; the file then has the sums."""
    if path is None:
        return told
    before = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    sums = {name: before.get(name, 0) + told.get(name, 0) for name in {**before, **told}}
    path.write_bytes(msgspec.json.encode(sums))
    return sums


def printed(what: str, value: Estimate | float, unit: str = "") -> Figure:
    """A figure without a target."""
    return at_least(what, None, value, unit)


def at_least(what: str, least: float | None, value: Estimate | float, unit: str = "") -> Figure:
    """A figure whose value has to reach a number (None: it is printed alone)."""
    figure = exactly(value)
    target = "printed" if least is None else f">= {least} {unit}".strip()
    return Figure(what, target, figure, least is None or figure.value >= least, unit)


def at_most(what: str, most: float, value: Estimate | float, unit: str = "") -> Figure:
    """A figure whose value must not pass a number."""
    figure = exactly(value)
    return Figure(what, f"<= {most} {unit}".strip(), figure, figure.value <= most, unit)
