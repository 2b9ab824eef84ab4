"""The errors for what argparse refuses and for words that are not known, with the wrong word. Standard library only."""

import re
import shlex
from collections.abc import Iterable, Sequence

from workloads import help_screen
from workloads.command_line import invocation
from workloads.corrections.grammar import Grammar
from workloads.corrections.nearest import ALIKE, DASHES, nearest, plain, sharing_a_part
from workloads.stops import Usage

_FEW = 8  # up to so many known words are listed even if one is similar
# Why a command has no flag like these of other tools: (their names, a flag of the commands meant, the reason).
_REASONS = (
    (
        "iterations iters iter repeat repeats repetitions rounds reps trials loops count runs ntimes number",
        "--max-noise",
        "a row is repeated until --max-noise is met",
    ),
    ("warmup warm-up warmups", "--max-noise", "every row warms up by itself"),
    ("steps-per-epoch", "--samples", "an epoch is told by its samples, --samples"),
    ("skip exclude except without", "--only", "what is to be measured is named with --only"),
    ("layer layers", "--shapes", "a layer is measured by its --shapes; the layers of a model are timed by layer"),
    ("input-shape input-size input-dim image-size img-size resolution", "--epochs", "a model has its own input shape"),
    ("format title theme template", "--readme", "a report is always a page, report.html"),
    (
        "optimizer opt lr learning-rate loss momentum weight-decay metrics",
        "--epochs",
        "compile() in your own model has it",
    ),
)


def refusal(message: str, words: Sequence[str], grammar: Grammar) -> Usage:
    """The error for a message of argparse."""
    extra = re.match(r"unrecognized arguments: (\S+)", message)
    if extra:
        why = reason(extra[1], grammar) or _other_commands(extra[1], grammar)
        return Usage(f"unexpected argument {extra[1]!r}" + (f"; {why}" if why else ""), wrong=extra[1])
    lacking = re.match(r"the following arguments are required: (.*)", message)
    if lacking:
        error = Usage(message)
        error.lacking = tuple(name.split("/")[-1] for name in lacking[1].split(", "))
        return error
    flag = re.match(r"argument (?:.*/)?(-[\w-]+)", message)
    return _wrong_value(flag[1], message.partition(": ")[2], words, grammar) if flag else Usage(message)


def _wrong_value(name: str, why: str, words: Sequence[str], grammar: Grammar) -> Usage:
    """The error for a flag without a value, with one that it cannot take, or beside one that excludes it; `why` is argparse's."""
    choice = re.search(r"choice: '(.*?)' \(", why)
    if choice:
        error = unknown("value", choice[1], grammar.words_listed(name))
        error.flag = name
        return error
    if why.startswith("ignored explicit argument"):
        return Usage(f"{name} takes no value", wrong=name, right=name)
    if why.startswith("not allowed with argument"):
        return Usage(f"{name}: {why}", wrong=name)
    behind = "".join(words[words.index(name) + 1 :][:1]) if name in words else ""
    if re.match(r"-\.?\d", behind):  # which argparse takes for a flag
        error = Usage(f"{behind!r} is below 0", wrong=behind, right=behind[1:])
        error.flag = name
        return error
    example = shlex.join(grammar.example(name))
    message = f"{name}: {why}"
    if why.startswith("expected"):
        message = f"{name} takes a value" + (f", such as {example}" if example else "")
    error = Usage(message, wrong=name, right=f"{name} {example}" if example else "")
    error.is_example = bool(example)
    return error


def reason(word: str, grammar: Grammar) -> str:
    """Why a command has no flag like this one of other tools; "" of any other word."""
    name = plain(word.partition("=")[0])
    reasons = [why for names, needed, why in _REASONS if name in names.split() and needed in grammar.flags]
    return reasons[0] if reasons and word[:1] in DASHES else ""


def _other_commands(word: str, grammar: Grammar) -> str:
    """The commands that have a flag to which no flag here is similar, as a part of a sentence; "" of any other word."""
    name = word.partition("=")[0]
    if name[:2] != "--" or nearest(name, grammar.flags):
        return ""
    having = [invocation.name_typed(command) for command in help_screen.commands_with(name, grammar.module)[:2]]
    return f"a flag of {' and '.join(having)}" if having else ""


def unknown(
    what: str, word: str, known: Iterable[str], where: str = "", more: str = "", *, likeness: float = ALIKE
) -> Usage:
    """The error for a word that is not known: those that are (`more`: others that may be written), and the one that is meant."""
    names = list(known)
    meant = nearest(word, names, likeness)
    listed = f"; known: {', '.join(names)}{more}" if not meant or len(names) <= _FEW else ""
    kind = what if meant in names else ""
    message = f"unknown {what} {word!r}{where}{listed}"
    if meant and not kind:  # several, which a synonym means
        message += f"; {word} is {' and '.join(meant.split(','))} here"
    error = Usage(message, wrong=word, right=meant or sharing_a_part(word, names), similar=kind)
    error.is_example = not meant and bool(error.right)
    return error
