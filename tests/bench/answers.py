"""make bench NAME=answers: what a person gets of the commands: how soon, how long, how wide, in what words, and how alike."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import house
import msgspec
import on_terminal
import plain_words
import rendered_words
from must_reach import Figure, at_most, exactly, table

from analysis.explain.sides import Side
from analysis.text import sentences as say
from kernels import networks

H200 = "reports/nvidia-h200"
MODELS = ("cifar10-cnn", "cifar10-mlp", "fashion-mlp", "mnist-cnn", "peaks", "resnet-50")
OWN = """import keras
from keras import layers


def build():
    shape = [keras.Input((28, 28, 1)), layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten()]
    return keras.Sequential([*shape, layers.Dense(64, activation="relu"), layers.Dense(10, activation="softmax")])
"""
VERDICT = re.compile(r"^(Probably the|The|Can't tell:) ?(CPU|GPU)?.*\d+ m?s.* (against|on the)", re.MULTILINE)


def lines(words: list[str]) -> list[str]:
    """What stays on a terminal of 80 columns: of a line that is written anew its last text."""
    text = on_terminal._CONTROL.sub("", on_terminal.run(words, 80).text)
    return [last for line in text.split("\n") if (last := line.rstrip("\r").split("\r")[-1]).strip()]


def lengths() -> list[Figure]:
    """The most lines of an answer, of a model and of a case."""
    models = [lines(["analysis.explain", "--model", model, H200]) for model in MODELS]
    cases = [lines(["analysis.explain", "--case", case, H200]) for case in on_terminal.CASES]
    return [
        at_most(f"lines of explain at 80 columns, {len(each)} {what}", most, max(map(len, each)))
        for what, most, each in (("models", 12, models), ("cases", 18, cases))
    ]


def answered() -> list[str]:
    """The sentences of explain, of models and of cases."""
    verdicts = [line for model in MODELS for line in json.loads(explained(["--model", model, H200], "json"))["verdict"]]
    whole = [line for line in verdicts if line.endswith(".") and not line.startswith("Do ")]
    said = [re.sub(r"^ *(\w+ {2,})?", "", line) for line in whole]
    replies = json.loads(explained(["--case", "all", H200], "json")).values()
    return said + [text for reply in replies for text in (reply["answer"], *reply["more"])]


def sentences() -> list[Figure]:
    """Words a sentence over all stored machines, and how many sentences, pages and answers break a rule."""
    said = [text for machine in rendered_words.MACHINES for text in rendered_words.rendered(machine)]
    said += [*rendered_words.predicted_errors(), *answered()]
    pages = [(p, text) for p in rendered_words.PAGES for text in plain_words.prose(p.read_text(encoding="utf-8"))]
    words = [plain_words.words(sentence) for text in said for sentence in plain_words.split(text)]
    faults = [fault for text in said for fault in plain_words.faults(text)]
    faults += [f for p, text in pages for f in plain_words.faults(text, p.name not in rendered_words.DEVELOPERS)]
    mean, count = sum(words) / len(words), len([f for f in faults if "the model's name" not in f])
    return [
        at_most(f"words a sentence, mean of {len(words)}", plain_words.MEAN_WORDS, mean),
        at_most("words of the longest sentence", plain_words.MOST_WORDS, max(words)),
        at_most("sentences that break a rule: all stored machines, README and docs", 0, count),
    ]


def alike() -> tuple[Figure, list[str]]:
    """How many facts (winner, both whole trainings, both steps, from how many samples the winner changes) of README's trainings
    differ on the machine's page, on the terminal, as Markdown or in JSON."""
    files = (house.ROOT / folder / "README.md" for folder in ("", H200))
    readme, page = (file.read_text().replace("&nbsp;", " ") for file in files)
    block = readme.partition("<!-- trainings:")[2].partition("<!-- /trainings")[0]
    apart, facts = [], 0
    lines_ = (line for line in block.splitlines() if line.startswith("|") and "---" not in line)
    for row in (line.strip("| ").split(" | ") for line in lines_):
        name, batch = row[0].split(", ")[0], re.search(r"batch (\d+)|([\d,]+) samples in one", row[0])
        network = next((n for n in networks.NETWORKS.values() if say.title(n.name) == name), None)
        if network is None or batch is None:
            continue
        size = (batch[1] or batch[2]).replace(",", "")
        asked = ["--model", network.name, "--batch", size, *(["--samples", size] * bool(batch[2])), H200]
        told, terminal, markdown = json.loads(explained(asked, "json")), explained(asked), explained(asked, "md")
        sides = [msgspec.convert(one, Side) for one in told["explanation"]["sides"]]
        steps = (s.cost.step for s in sides)
        both = [*map(say.timed, steps), *(say.timed(s.whole) for s in sides)]
        best, verdict = min(sides, key=lambda side: side.whole.value).name, told["verdict"][1]
        found = [*zip(row[1:], [*both, best], strict=True), (verdict.split()[1].rstrip(":"), row[5])]
        places = [(verdict, terminal.splitlines()[1]), (f"**{verdict}**", markdown)]
        places += [(f"| {s.name} | {say.timed(s.whole)} |", markdown) for s in sides]
        both_told = (verdict, *re.findall(f"- {row[0]}: (.*)", page))
        places += [(say.time(s.whole), text) for s in sides for text in both_told]
        if turn := re.search(rf"{name}, batch {size}, .*: the \wPU wins from about ([\d,]+ samples)", readme):
            samples = say.counted(told["finishes_first_from"][1]["samples"], "samples")
            places += [
                (turn[1], samples),
                (f"From  about {turn[1]} or", terminal),
                (f"**From.** about {turn[1]} or", markdown),
            ]
        found += [(part, part if part in text else "none") for part, text in places]
        facts += len(found)
        apart += [f"{row[0]}: README {a}, here {b}" for a, b in found if a != b]
    return at_most(f"facts of {facts} that differ between README, page, terminal, Markdown, JSON", 0, len(apart)), apart


def explained(words: list[str], format_: str = "table") -> str:
    command = [sys.executable, "-m", "analysis.explain", *words, "--format", format_]
    return subprocess.run(command, cwd=house.ROOT, capture_output=True, text=True, check=True).stdout


def student() -> list[Figure]:
    """Seconds of `make run` after its set-up, and then of an answer for a model of one's own, in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "own.py").write_text(OWN)
        suite, ran = timed(["workloads.suite", "--quick"], folder)
        model = ["--model", "own.py:build", "--batch", "32", "--samples", "5000", "--epochs", "5"]
        explain, told = timed(["analysis.explain", *model, "--measure"], folder)
    rows = []
    for what, most, taken, out in (
        ("make run after set-up, with a training's verdict", 180, suite, ran),
        ("then explain --measure on a CNN of one's own, with a verdict", 90, explain, told),
    ):
        reached = taken <= most and VERDICT.search(out) is not None
        rows.append(Figure(what, f"<= {most} s", exactly(taken), reached, "s"))
    return rows


def timed(words: list[str], folder: str) -> tuple[float, str]:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = str(house.ROOT)
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True)
    return time.monotonic() - begin, done.stdout


def main(argv: list[str]) -> int:
    """Without arguments all rows; `quick` leaves out what measures, and terminals of three widths."""
    same, apart = alike()
    readme = len((house.ROOT / "README.md").read_text().split())
    figures = [*lengths(), *sentences(), same, at_most("words of README", 1000, readme)]
    faults: list[str] = []
    if argv != ["quick"]:
        wide, faults = on_terminal.figures()
        figures = [*student(), *figures, *wide]
    return table("answers", "Answers on a terminal", figures, [f"- `{fault}`" for fault in (*apart, *faults)])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
