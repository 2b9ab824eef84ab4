"""The error for words behind `make` that the Makefile does not know, with one line to type instead. The Makefile starts it, with
its names in the environment."""

import contextlib
import importlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workloads import help_screen, hints
from workloads.command_line import invocation
from workloads.corrections.nearest import nearest
from workloads.stops import OK, USAGE

VARIABLES = ("ARGS", "NAME", "VENV", "PYTHON", "EXTRAS", "RUN", "CANDIDATES")
_KNOWN_VARIABLES = (*VARIABLES, "SHELL", "MAKEFLAGS", "MFLAGS", "PAGES")
_SUITE = "workloads.suite"  # which make run starts, with --quick
_ALIKE = 0.75  # from here on a word is taken for a misspelled one


class Makefile(NamedTuple):
    """The names that the Makefile knows."""

    #: Its targets.
    targets: Sequence[str]
    #: The targets that want a NAME -> the names that exist.
    names: Mapping[str, Sequence[str]]


def meaning(word: str, typed_targets: Sequence[str], makefile: Makefile) -> list[str]:
    """What is meant by a goal that is no target: words behind make, or crossover and its command; [] where nothing is like it.

    typed_targets: the targets in the line; with others than run nothing but make is meant.
    """
    is_command_likely = set(typed_targets) <= {"run"}
    if word.endswith((".py", ".ipynb")) and is_command_likely:
        return ["crossover", "explain", word]
    meanings: dict[str, list[str]] = {}
    for target, names in makefile.names.items():
        if target in typed_targets or not typed_targets:
            for name in names:
                meanings[name] = [target, f"NAME={name}"]
    for command in help_screen.commands() if is_command_likely else ():
        name = command.rpartition(".")[2]
        meanings[name] = ["crossover", name]
    for variable in VARIABLES:
        meanings[variable] = [*(typed_targets or ["run"]), f"{variable}="]
    for target in makefile.targets:
        meanings[target] = [target]
    meant = word if word in meanings else nearest(word, makefile.targets, _ALIKE) or nearest(word, meanings, _ALIKE)
    return meanings.get(meant, [])


def _words(arguments: str) -> list[str]:
    """The words of ARGS; split at spaces where a quote is not closed."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


class CorrectedLine:
    """The line to type in place of the one that was typed, and what was wrong with that."""

    def __init__(self, makefile: Makefile):
        self.makefile = makefile
        self.errors: list[str] = []
        self.goals: list[str] = []
        self.variables: dict[str, str] = {}
        self.is_example = False  # whether something typed is left out, or a value only works

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Takes the known variables and the misspelled ones; all unknown ones are one error."""
        unknown = [name for name in variables if name not in _KNOWN_VARIABLES]
        if unknown:
            self.errors.append(f"no variable {' '.join(map(repr, unknown))}; known: {' '.join(VARIABLES)}")
        for name, value in variables.items():
            meant = nearest(name, VARIABLES) if name in unknown else name
            if meant:
                self.variables[meant] = value
            else:
                self.is_example = True

    def add_goals(self, goals: Sequence[str]) -> None:
        """Takes the targets, and the words that are meant by the other goals."""
        targets = self.makefile.targets
        typed_targets = [goal for goal in goals if goal in targets]
        for goal in goals:
            words = [goal] if goal in targets else meaning(goal, typed_targets, self.makefile)
            if goal not in targets:
                self.errors.append(
                    f"no target {goal!r}" if words else f"no target {goal!r}; known: {' '.join(targets)}"
                )
                self.is_example = self.is_example or not words
            for word in words:
                name, is_variable, value = word.partition("=")
                if is_variable:
                    self.variables[name] = value
                elif name not in self.goals:
                    self.goals.append(name)

    def check_name(self) -> None:
        """Corrects the NAME of a bench or a stress run."""
        typed = self.variables.get("NAME", "")
        for target, known in self.makefile.names.items():
            if target in self.goals and typed not in known:
                meant = nearest(typed, known) if typed else ""
                self.errors.append(f"make {target} takes NAME=..., one of: {' '.join(known)}")
                self.is_example = self.is_example or not meant
                self.variables["NAME"] = meant or known[0]

    def check_arguments(self) -> None:
        """Corrects the ARGS of run by the parser of the suite alone: nothing may be installed yet."""
        if "run" not in self.goals:
            return
        parser = importlib.import_module(_SUITE).parser()
        words = ["--quick", *_words(self.variables.get("ARGS", ""))]
        suite = hints.Hints(parser, words, parser.parse_args)
        mistake = suite.mistake(words)
        if mistake is None or mistake.code != USAGE:
            return
        self.errors.append(suite.message(mistake))
        proposal = hints.Proposal(line="", is_example=True)
        with contextlib.suppress(ImportError):  # of a package that is not installed
            proposal = suite.best(mistake)
        words = shlex.split(proposal.line)[2:]
        right = [word for word in words[1:] if word != "--quick" and words[0] == _SUITE]
        self.is_example = self.is_example or proposal.is_example
        self.variables["ARGS"] = shlex.join(right)

    def lines(self) -> list[str]:
        """The lines for stderr; [] where nothing was wrong."""
        if not self.errors:
            return []
        words = [shlex.quote(goal) for goal in self.goals or ["help"]]
        words += [f"{name}={shlex.quote(value) if value else ''}" for name, value in self.variables.items()]
        others = [f"  and: {error}" for error in self.errors[1:]]
        label = "try, for example" if self.is_example else "try"
        return [f"error: {self.errors[0]}", *others, f"  {label}: make {' '.join(words)}"]


def command_without_make(goals: Sequence[str], variables: Mapping[str, str], makefile: Makefile) -> str:
    """The command that a goal means, with the other words and unknown variables as flags; "" where none means a command."""
    typed_targets = [goal for goal in goals if goal in makefile.targets]
    unknown = [goal for goal in goals if goal not in typed_targets]
    words = meaning(unknown[0], typed_targets, makefile) if unknown else []
    if words[:1] != ["crossover"]:
        return ""
    words += [*unknown[1:], *_words(variables.get("ARGS", ""))]
    for name, value in variables.items():
        if name not in _KNOWN_VARIABLES:
            words += [f"--{name.lower()}", value]
    if len(words) == len(["crossover", "COMMAND"]):
        words.append("-h")
    return f"{invocation.python()} -m {shlex.join(words)}"


def error_lines(goals: Sequence[str], variables: Mapping[str, str], makefile: Makefile) -> list[str]:
    """The lines for stderr: what is wrong, and one line to type; [] where nothing is wrong."""
    command = command_without_make(goals, variables, makefile)
    if command:
        return [f"error: make {' '.join(goals)}: a command without make is meant", f"  try: {command}"]
    line = CorrectedLine(makefile)
    line.add_variables(variables)
    line.add_goals(goals)
    line.check_name()
    line.check_arguments()
    return line.lines()


def typed_variables(flags: str) -> dict[str, str]:
    """The variables in what make puts into MAKEFLAGS: `n -- ARGS=-k\\ stream VENV=`. The last of each counts."""
    _, _, definitions = f" {flags}".partition(" -- ")
    variables = {}
    for word in re.findall(r"(?:\\.|[^\\\s])+", definitions):
        name, _, value = re.sub(r"\\(.)", r"\1", word).partition("=")
        variables[name.rstrip(":+?")] = "$".join(value.split("$$"))
    return variables


def main() -> int:
    """Prints the error for what the environment says was typed, exit code 2; 0 where nothing is wrong."""
    goals = os.environ["GOALS"].split()
    names = {"bench": os.environ["BENCHES"].split(), "stress": os.environ["STRESSES"].split()}
    makefile = Makefile(targets=os.environ["TARGETS"].split(), names=names)
    lines = error_lines(goals, typed_variables(os.environ.get("MAKEFLAGS", "")), makefile)
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
    return USAGE if lines else OK


if __name__ == "__main__":
    sys.exit(main())
