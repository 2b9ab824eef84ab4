"""Parts that every command line shares: size grammar, flags, errors and exit codes. Standard library only."""

import argparse
import contextlib
import difflib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from workloads import help_screen, terminal

OK, FAILED, USAGE, MISSING, REGRESSION, UNSEEN, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 5, 130, 143
SIGNALED = {"SIGINT": INTERRUPTED, "SIGTERM": TERMINATED}  # the exit code after a signal
MODES = ("resident", "roundtrip", "roundtrip-pageable", "roundtrip-pinned")
FORMATS = ("table", "md", "csv", "json")
MOST_SIZES = 10_000
COUNTS = {"": 1, "k": 10**3, "m": 10**6}
SECONDS = {"": 1, "s": 1, "ms": 1e-3, "m": 60, "min": 60, "h": 3600}
BYTES = {"": 1, "b": 1, **{k + b: 1 << 10 * i for i, k in enumerate("kmgt", 1) for b in ("", "b", "ib")}}
_OTHERWISE = {"true": "on", "false": "off", "cuda": "gpu", "precision": "dtypes"}
_FEW = 8  # up to so many known words are listed even if one is similar
SCRIPT = "crossover"  # the console command that starts every other
_OURS = re.compile(
    r"(?<!\S)python -m (?:crossover(?=\s|$)|(?:workloads|analysis)(?:\.(?P<name>\w+)(?P<quick> --quick)?)?)"
)
# What every command needs, pyproject.toml's dependencies: package -> the name by which it is imported.
PACKAGES = {
    "ml_dtypes": "ml_dtypes",
    "msgspec": "msgspec",
    "numba": "numba",
    "numpy": "numpy",
    "nvidia-ml-py": "pynvml",
    "pandas": "pandas",
    "psutil": "psutil",
    "rich": "rich",
    "scipy": "scipy",
    "threadpoolctl": "threadpoolctl",
}


class Stop(Exception):
    """Ends a command with one `error:` line and this exit code; `tip` is a command that works. Where the typed words
    can be corrected, `wrong` and `right` are those of Parser.corrected. similar: their kind (flag, model), if alike."""

    code = USAGE

    def __init__(self, message: str, tip: str = "", wrong: str | None = None, right: str = "", similar: str = ""):
        self.tip, self.wrong, self.right, self.similar = tip, wrong, right, similar
        super().__init__(message)


class Usage(Stop):
    """The words of the command are off, or an output must not be touched."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


class Missing(Stop):
    """Something named in the command is not there, or nothing at all can be measured."""

    code = MISSING


@contextlib.contextmanager
def usage_errors(tip: str = "") -> Iterator[None]:
    """Turns a ValueError of its block into a Usage; `tip` is a command that works."""
    try:
        yield
    except ValueError as error:
        raise Usage(str(error), tip) from error


def closest(word: str, known: Iterable[str], likeness: float = 0.65) -> str:
    """The known word that begins with `word`, contains it, or is most similar to it; "" without one."""
    by_small = {name.lower().lstrip("-"): name for name in known}
    low = re.sub(r"^(b?)fp?(?=\d)", r"\1float", word.lower().lstrip("-"))  # bf16, fp32
    low = _OTHERWISE.get(low.partition(":")[0], low)
    holding = sorted((name for name in by_small if len(low) > 2 and low in name), key=len)
    begun = [name for name in holding if name.startswith(low)]
    near = begun or holding or difflib.get_close_matches(low, by_small, 1, likeness)
    return by_small[near[0]] if near else ""


def similar_path(text: str) -> str:
    """The path that is there and most like this one; "" where none is."""
    path = PurePath(text)
    found = Path(path.anchor)
    for part in path.relative_to(path.anchor).parts:
        near = part if (found / part).exists() else closest(part, os.listdir(found) if found.is_dir() else (), 0.75)
        if not near:
            return ""
        found /= near
    return str(found)


def unknown(what: str, word: str, known: Iterable[str], where: str = "", more: str = "") -> Usage:
    """The error for a word that is not known: those that are (`more`: others that may be written), and the most similar one."""
    names = list(known)
    right = closest(word, names)
    listed = f"; known: {', '.join(names)}{more}" if not right or len(names) <= _FEW else ""
    said = f"unknown {what} {word!r}{where}{listed}"
    return Usage(said, "", word, right or [*names, word][0], what if right else "")


def number(text: str, units: dict[str, int] = COUNTS) -> int:
    """A whole number: `512`, `2^9`, `50k` (50,000); in the units BYTES also `4KiB`, `64kb` and `64k` (65,536).

    Raises: Usage for anything else and for numbers below 1.
    """
    match = re.fullmatch(r"(\d{1,15})(?:\^(\d{1,2})|([a-z]{0,3}))", text.lower().replace("_", ""))
    if not match or (match[3] or "") not in units:
        like = "counts like 512, 2^9 or 50k, not bytes" if units is COUNTS else "bytes like 512, 64k, 64kb or 64KiB"
        raise _no_size(f"{text!r} is not a size; sizes here are {like}", text, units, 1)
    base, power, unit = match.groups()
    value = int(base) ** int(power) if power else int(base) * units[unit]
    if not 1 <= value < 1 << 60:
        raise _no_size(f"{text!r} is out of range; sizes start at 1", text, units, 1)
    return value


def _no_size(why: str, word: str, units: dict[str, int], most: int) -> Usage:
    """The error for a word that is no size, with a likely correction: its first number, or with `most` 2 a doubling range."""
    numbers = re.findall(r"(\d{1,15}(?:\.\d{1,9}|e\d)?)(?:(?:\^|\*\*)(\d{1,2})|([kmgt]i?b?))?", word.lower())
    found = [int(float(base) * units.get(unit, 1)) ** int(power or 1) for base, power, unit in numbers]
    ends = sorted({n for n in found[:most] if 0 < n < 1 << 60}) or [1 if units is COUNTS else 1 << 16]
    return Usage(why, "", word, ":".join(map(str, ends)) + (":x2" if len(ends) > 1 else ""))


def sizes(texts: Sequence[str], units: dict[str, int] = COUNTS) -> list[int]:
    """Sizes in rising order, each once, from words like `256`, `256,512`, `50,000`, `64:8192:x2`, `512:4096:+512`, `2^6:2^13`.

    A range holds both its ends when its steps meet them; without a step it doubles.
    Raises: Usage with the word at fault.
    """
    found: set[int] = set()
    text = re.sub(r"(:\S+) (?=[x+]\d)", r"\1:", " ".join(texts))  # a step apart from its range: 64:4096 x2
    for word in re.split("[ ,]", re.sub(r"(?<=\d),(?=0\d\d)", "", text)):
        try:
            more = _range(word, units) if ":" in word else (number(word, units),)
            if len(found) + len(more) > MOST_SIZES:
                raise Usage(f"{word!r} gives more than {MOST_SIZES} sizes; take a larger step")
        except Usage as error:
            raise _no_size(str(error), word, units, 2) from error
        found.update(more)
    return sorted(found)


def _range(word: str, units: dict[str, int]) -> Sequence[int]:
    first, last, step = [*word.split(":"), "x2"][:3] if word.count(":") <= 2 else ("", "", "")
    start, stop = number(first, units), number(last, units)
    if start > stop:
        raise Usage(f"the range {word!r} is empty: it starts above its end")
    if step.startswith("+"):
        return range(start, stop + 1, number(step[1:], units))
    if not re.fullmatch(r"x\d{1,9}(\.\d{1,9})?", step) or float(step[1:]) < 1.01:
        like = "neither a factor of at least 1.01 like x2 nor an amount like +512"
        raise Usage(f"the step {step!r} in {word!r} is {like}")
    values, value = [], float(start)
    while round(value) <= stop:
        values.append(round(value))
        value *= float(step[1:])
    return values


def words(values: Sequence[str] | None) -> list[str]:
    """The words of a flag that takes several, separated by blanks or commas; none when the flag was not given.

    Raises: Usage where it was given without a word.
    """
    found = [w for v in values or () for w in v.split(",") if w]
    if values and not found:
        raise Usage(f"{' '.join(values)!r} names nothing; leave the flag out or name something")
    return found


class _Several(argparse.Action):
    """A flag that takes several words, and all of them where it is given again."""

    def __call__(self, parser, namespace, values, option_string=None):
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if before is self.default else [*before, *values])


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one `error:` line and one command that works, with exit code 2. `-h` is one screen: the
    flags of `needs` and the examples; `--help` is all of them."""

    module, example, question = "", "", ""
    needs: tuple[str, ...] = ()

    def error(self, message: str):
        extra, choice = re.match(r"unrecognized arguments: (\S+)", message), re.search(r"choice: '(.*?)' \(", message)
        if extra:
            word, module = extra[1].partition("=")[0], self.module
            if module in ("workloads", "analysis") and (near := closest(f"{module}.{word}", help_screen.commands())):
                raise Usage(f"{word!r} is no argument; a command is typed with a dot", f"python -m {near} -h")
            known, first = self._option_string_actions, f"--{next(iter(self.needs), '')}"
            lacks_its_flag = re.match(r"(?![a-zA-Z]*$)[^-]", word) and getattr(known.get(first), "nargs", 0) != 0
            right = f"{first} {word}" if lacks_its_flag else closest(word, known)
            raise Usage(f"unexpected argument {word!r}", "", word, right, "argument" if right in known else "")
        flag = re.match(r"argument (?:.*/)?(-[\w-]+)", message)
        action = self._option_string_actions[flag[1]] if flag else None
        if choice and action and (right := closest(choice[1], action.choices or ())):
            raise Usage(message, "", choice[1], right, "value")
        raise Usage(message, wrong=flag[1] if flag and action and not action.required else None)

    def corrected(self, words: Sequence[str], wrong: str, right: str) -> list[str]:
        """The words of a command with a wrong one replaced; flags that are known, or like none, go with what they take."""
        flags = self._option_string_actions.keys()
        if wrong and flags >= {*wrong.split()}:
            return [*self.without(words, *wrong.split()), *right.split()] or [*words]
        if not right:
            return self.without(words, wrong) or [*words]
        if right.startswith("--") and wrong in words:  # no flag takes it
            i = min((i for i, w in enumerate(words) if w == wrong), key=lambda i: words[max(i, 1) - 1] in flags)
            return [*words[:i], *right.split(" ", 1), *words[i + 1 :]]
        word = re.compile(rf"(?<![\w.-]){re.escape(wrong or chr(0))}(?![\w.-])")  # an empty word is part of none
        return [right if w == wrong else word.sub(lambda _: right, w) for w in words]

    def without(self, words: Sequence[str], *flags: str) -> list[str]:
        """The words of a command without these flags and their values; an unknown flag's values go up to the next flag."""
        known = self._option_string_actions
        gone, kept, left, goes = {known.get(flag, flag) for flag in flags}, list[str](), 0, False
        for word in words:
            if left and not re.match(r"-\D", word):  # the flag before takes it
                left -= 1
            else:
                flag, given, _ = word.partition("=")
                goes = (action := known.get(flag, flag)) in gone
                takes = getattr(action, "nargs", "*") if word.startswith("-") and not given else 0
                left = {None: 1, "?": 1, 0: 0}.get(takes, len(words))
            kept += [word] * (not goes)
        return kept


def parser(
    command: str,
    description: str,
    *examples: str,
    question: str = "",
    needs: str = "",
    flags: str = "",
    **types: Callable,
) -> Parser:
    """A parser for `python -m <command>` with the flags that `add` reads; the first of the `examples` is also the command shown
    after errors. `needs`: the flags that -h shows."""
    made = Parser(
        prog=_by_script(f"python -m {command}"),
        description=f"{question} {description}".strip(),
        epilog=help_screen.EXAMPLES + "\n".join(f"  {typed(example)}" for example in examples),
        allow_abbrev=False,
        add_help=False,
        formatter_class=help_screen.Formatter,
    )
    made.module, made.example = command, examples[0]
    made.question, made.needs = question, tuple(needs.split())
    both = "-h: one screen; --help: every flag"
    made.add_argument("-h", "--help", action=help_screen.Help, nargs=0, dest=argparse.SUPPRESS, help=both)
    add(made, flags, **types)
    return made


def positive(text: str, units: dict[str, float] = SECONDS) -> float:
    """A number above 0, in seconds `90`, `1.5s`, `50ms` or `2min`."""
    match = re.fullmatch(r"(\d{0,15}\.?\d{1,9}(?:e-?\d)?) ?([a-z%]*)", text)
    if not match or match[2] not in units or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return float(match[1]) * units[match[2]]


def regression(text: str) -> float:
    """The share by which a row must be slower to count, of a rule like `slower>5%` or `5%`: 0.05; of `slower` 0."""
    match = re.fullmatch(r"(?:slower>)?(\d{1,4}(?:\.\d{1,6})?)%?|slower", text.replace(" ", ""))
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no rule; rules are like 'slower>5%' or 'slower'")
    return float(match[1] or 0) / 100


def add(made, text: str, **types: Callable) -> None:
    """Adds the flags of a text, which reads `--name WHAT ... =default  help`; a help may go on in lines that begin with blanks.

    `...`: several words; {a,b}: one of these; no WHAT: a switch; [WHAT] =word: one that may stand alone, which means the word.
    One WHAT is what `types` make of it; else N is a whole number, S seconds, RULE is a `regression`. A line
    `# title` begins a group of flags, `# or` those of which only one may be given; the next title ends these.
    """
    known, place = {"N": number, "S": positive, "RULE": regression, **types}, made
    groups: dict[str, Any] = {}
    for entry in re.split(r"\n(?=[-#])", text.strip()) if text else ():
        if entry.startswith("# "):
            if (title := entry[2:]) == "or":
                place = place.add_mutually_exclusive_group()
            else:
                place = groups[title] = groups.get(title) or made.add_argument_group(title)
            continue
        declared, about = re.split(r"\s{2,}", entry, maxsplit=1)
        words = declared.split()
        names = [word for word in words if word.startswith("-")]
        what, *rest = words[len(names) :] or [""]
        several, default = "..." in rest, next((word[1:] for word in rest if word.startswith("=")), None)
        if what.startswith("{"):
            how: dict[str, Any] = {"choices": tuple(what[1:-1].split(",")), "default": default}
        elif what.startswith("["):
            how = {"metavar": what[1:-1], "nargs": "?", "const": default}
        elif what:
            kind: dict[str, Any] = {"nargs": "+", "action": _Several} if several else {"type": known.get(what)}
            how = {"metavar": what, **kind}
            how["default"] = default.split(",") if several and default else default
        else:
            how = {"action": "store_true"}
        place.add_argument(*names, **how, help=" ".join(about.split()))


def namespace(made: Parser, **keywords) -> Namespace:
    """The arguments of a command called as a function: flags as keywords, defaults for the rest.

    Raises: TypeError for a keyword that is no flag, and for what a command does at its end.
    """
    args = made.parse_args([])
    for name, value in keywords.items():
        if name in ("save", "against", "fail_on"):
            raise TypeError(f"{name!r} is a flag of the command; save with output=DIR and use analysis.compare")
        if not hasattr(args, name):
            raise TypeError(f"unknown option {name!r}; known: {', '.join(sorted(vars(args)))}")
        several = isinstance(value, (list, tuple, range))
        takes_several = name in {a.dest for a in made._actions if a.nargs == "+"}
        if takes_several and value is not None and not several:
            value, several = [value], True
        setattr(args, name, [str(v) for v in value] if several else value)
    return args


def refuse(args: Namespace, names: Iterable[str], why: str) -> None:
    """Raises Usage, which says why, for those of these flags that are given; the command works without them."""
    if given := " ".join(f"--{n.replace('_', '-')}" for n in names if getattr(args, n, None) is not None):
        raise Usage(f"{why}; leave {given} out", wrong=given)


def command(made: Parser, argv: Sequence[str] | None, body: Callable[[Namespace], int]) -> int:
    """Parses, runs `body`, and turns a Stop into its one error line and exit code. The arguments have the `command` as it was
    typed; lines for people wrap at the terminal's width."""
    with terminal.wrapping() as out:
        try:
            with contextlib.suppress(ValueError):  # not the main thread: whoever owns it decides
                signal.signal(signal.SIGTERM, _terminated)
            args = made.parse_args(argv)
            args.command = command_line(made.module, argv)
            if not getattr(args, "quiet", False):
                terminal.show_waiting(made.question)
            out.wraps = {getattr(args, "format", None), getattr(args, "to", None)} <= {"table", None}
            require_packages()
            return body(args)
        except Stop as stop:
            _say(stop, made, sys.argv[1:] if argv is None else argv)
            return stop.code
        except KeyboardInterrupt as stop:
            terminal.note(f"stopped {str(stop) or 'before anything was measured'}")
            return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        except BrokenPipeError:  # the reader of our output left, as `| head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK


def entry(parser: Callable[[], Parser], body: Callable[[argparse.Namespace], int]) -> Callable[..., int]:
    """A command's main(argv=None): the exit code."""
    return lambda argv=None: command(parser(), argv, body)


def _terminated(number, frame) -> None:
    raise Terminated


def _say(stop: Stop, made: Parser, given: Sequence[str]) -> None:
    """Prints the error, a similar word where there is one, and a command that works: the one that was typed, corrected."""
    print(terminal.paint("error:", "bad", sys.stderr), stop, file=sys.stderr)
    tip, fixed = stop.tip or made.example, list(given)
    if listed := re.match(r"unknown (\w+) '(.+?)'; known: (.*)", str(stop)):
        stop = unknown(listed[1], listed[2], listed[3].split(", "))
    if stop.similar:
        terminal.note(f"  tip: a similar {stop.similar} exists: {stop.right!r}")
    if stop.wrong or (stop.wrong == "" and "" in given):
        fixed = made.corrected(given, stop.wrong, stop.right)
    if fixed != list(given):
        tip = shlex.join(["python", "-m", made.module, *fixed])
    terminal.note(f"  try: {typed(tip)}")


def python() -> str:
    """The word to type for this interpreter: `python` if that runs it, else its path, relative if it lies below here."""
    found = shutil.which("python") or ""
    same = os.path.realpath(found) == os.path.realpath(sys.executable) and os.path.dirname(found) in sys.executable
    return "python" if found and same else shlex.quote(near(sys.executable))


def near(path: str | os.PathLike) -> str:
    """A path as it is shown: from here where it lies below, else whole."""
    inside = os.path.relpath(path)
    return os.fspath(path) if inside.startswith("..") else inside


def started_as() -> str:
    """The words before a command's short name as the user typed them: `crossover`, the path to it, or `python -m crossover`; ""
    of a command that was started as `python -m workloads.matmul`."""
    program = PurePath(sys.argv[0])
    if program.stem != SCRIPT:
        return ""
    if program.suffix == ".py":
        return f"{python()} -m {SCRIPT}"
    on_path = shutil.which(SCRIPT)
    same = on_path is not None and os.path.realpath(on_path) == os.path.realpath(program)
    return SCRIPT if same else shlex.quote(near(program))


def _by_script(text: str) -> str:
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
    return re.sub(r"(?<!\S)python(?= -m )", lambda _: python(), _by_script(command))


def require_packages() -> None:
    """Raises Missing, which names all packages that are not installed."""
    lacking = [package for package, module in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if lacking:
        install = f"{python()} -m pip install {' '.join(lacking)}"
        raise Missing(f"not installed: {', '.join(lacking)}", install)


def command_line(module: str, argv: Sequence[str] | None) -> str:
    """The command as it was typed, for the record and for the line that resumes it."""
    given = sys.argv[1:] if argv is None else argv
    return shlex.join(["python", "-m", module, *given])
