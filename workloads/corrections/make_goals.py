"""The error for words behind `make` that the Makefile does not know, with the command that was meant. The Makefile starts it,
with its names in the environment."""

import contextlib
import importlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workloads import ROOT, help_screen, hints
from workloads.command_line import invocation
from workloads.corrections.nearest import ALIKE, NEARLY_THE_SAME, nearest
from workloads.stops import OK, USAGE, Stop

VARIABLES = ("ARGS", "NAME", "VENV", "PYTHON", "EXTRAS", "RUN", "CANDIDATES")
_MAKE_VARIABLES = ("SHELL", "MAKEFLAGS", "MFLAGS", "PAGES")
_SUITE = "workloads.suite"  # which make run starts, with --quick
_LIKELY = ("workloads.training", "analysis.explain", "workloads.matmul")  # what people want of those with a flag
_SWITCHED_ON = ("", "1", "yes", "true", "on")
_LIKE_A_TARGET = 0.75
_MOST = 8  # mistakes of a line that are corrected


class MakeLine(NamedTuple):
    """The words behind `make`."""

    #: The goals, as they were typed.
    goals: tuple[str, ...]
    #: The variables that were typed, by name.
    variables: Mapping[str, str]

    def command(self) -> str:
        """The line as it is typed."""
        definitions = [f"{name}={shlex.quote(value) if value else ''}" for name, value in self.variables.items()]
        return " ".join(["make", *map(shlex.quote, self.goals), *definitions])

    def with_variables(self, first: Mapping[str, str], *left_out: str) -> "MakeLine":
        """The line with these variables first, and without others."""
        others = {name: value for name, value in self.variables.items() if name not in (*first, *left_out)}
        return self._replace(variables={**first, **others})

    def with_arguments(self, arguments: Sequence[str]) -> "MakeLine":
        """The line with more words in ARGS, as a shell takes them."""
        return self.with_variables({"ARGS": " ".join([self.variables.get("ARGS", ""), *arguments]).strip()})


class Correction(NamedTuple):
    """What is wrong with a line, and what may be meant."""

    #: What is wrong, without `error:`.
    message: str
    #: The line without this mistake; None where a command without make is meant.
    line: MakeLine | None = None
    #: That command, as a shell takes it.
    command: str = ""
    #: Whether it does something else than was typed.
    is_example: bool = False


class Makefile(NamedTuple):
    """The names that the Makefile knows."""

    #: Its targets.
    targets: Sequence[str]
    #: The targets that want a NAME -> the names that there are.
    names: Mapping[str, Sequence[str]]

    def lines(self, typed: MakeLine) -> list[str]:
        """The lines for stderr: the error, what else is wrong, and a command that works; [] where nothing is wrong."""
        line = typed
        corrections: list[Correction] = []
        while len(corrections) < _MOST:
            correction = self.correction(line)
            if correction is None:
                break
            corrections.append(correction)
            if correction.line is None:
                break
            line = correction.line
        if not corrections:
            return []
        label = "try, for example" if any(one.is_example for one in corrections) else "try"
        messages = [one.message for one in corrections]
        others = [f"  and: {message}" for message in messages[1:]]
        return [f"error: {messages[0]}", *others, f"  {label}: {corrections[-1].command or line.command()}"]

    def correction(self, line: MakeLine) -> Correction | None:
        """The first mistake of a line with what is meant; None where the Makefile knows all of it."""
        unknown_goals = [goal for goal in line.goals if goal not in self.targets]
        for name in line.variables:
            meant = nearest(name, VARIABLES, 0.7)
            if meant and meant != name and name not in _MAKE_VARIABLES:
                renamed = line.with_variables({meant: line.variables[name]}, name)
                return Correction(f"no variable {name!r}: it is {meant}", renamed)
        unknown_names = [name for name in line.variables if name not in (*VARIABLES, *_MAKE_VARIABLES)]
        wanting = [goal for goal in line.goals if goal in self.names]
        if wanting and line.variables.get("NAME") not in self.names[wanting[0]]:
            return self._wrong_name(line, wanting[0], [goal for goal in unknown_goals if goal not in VARIABLES])
        if unknown_goals and not (unknown_names and set(line.goals) & set(self.targets)):
            return self._unknown_goal(line, unknown_goals[0])
        if unknown_names:
            return self._unknown_variables(line, unknown_names)
        return _wrong_arguments(line) if "run" in line.goals else None

    def _unknown_goal(self, line: MakeLine, goal: str) -> Correction:
        """A goal that is no target: a variable, a bench, a script, a command of ours, a test to select, a misspelled target."""
        message = f"no target {goal!r}"
        known_goals = tuple(one for one in line.goals if one in self.targets)
        meant = nearest(goal, self.targets, _LIKE_A_TARGET)
        if goal in VARIABLES:
            message = f"{goal!r} is a variable, which is typed {goal}=..."
            defined = line.with_variables({"VENV": ""} if goal == "VENV" else {})
            return Correction(message, defined._replace(goals=known_goals or ("run",)), is_example=goal != "VENV")
        if goal.partition(":")[0].endswith((".py", ".ipynb")) and set(known_goals) <= {"run"}:
            subject = ["--model", goal] if ":" in goal else [goal]
            return _without_make(message, line, "analysis.explain", [*subject, *_as_flags(line.variables)])
        if known_goals and known_goals[0] in ("test", "test-all", "lint") and not meant:
            selected = goal if (ROOT / goal).exists() else f"-k {shlex.quote(goal)}"
            message = f"{message}; what make {known_goals[0]} takes is typed ARGS=..."
            return Correction(message, line.with_arguments([selected])._replace(goals=known_goals))
        command = help_screen.similar_command(goal, "analysis")
        is_command = command.rpartition(".")[2] == goal
        if not is_command:
            for target, names in self.names.items():
                if goal in names and not known_goals:
                    named = line.with_variables({"NAME": goal})._replace(goals=(target,))
                    return Correction(f"{message}; it is a {target}", named)
        if is_command or (command and not meant and not known_goals):
            words = [*_as_flags(line.variables), *[one for one in line.goals if one != goal]]
            return _without_make(
                f"{message}; {command.rpartition('.')[2]} is a command without make", line, command, words
            )
        if meant:
            installs = meant == "run" and "install" in nearest(goal, ("install", "setup", "all"))
            message += "; make run first installs what it needs" if installs else ""
            goals = tuple(dict.fromkeys(meant if one == goal else one for one in line.goals))
            return Correction(message, line._replace(goals=goals), is_example=installs)
        message = f"{message}; known: {' '.join(self.targets)}"
        return Correction(message, line._replace(goals=known_goals or ("help",)), is_example=True)

    def _unknown_variables(self, line: MakeLine, names: Sequence[str]) -> Correction:
        """Variables that are none here: of make run flags of the suite, FAST=1, else flags of another command; else left out."""
        listed = " ".join(map(repr, names))
        flags = _as_flags({name: line.variables[name] for name in names})
        names_of_flags = [flag for flag in flags if flag[:2] == "--"]
        if "run" in line.goals:
            having = [set(help_screen.commands_with(flag, _SUITE)) for flag in names_of_flags]
            suite = hints.hints_for(shlex.join(["python", "-m", _SUITE]))
            if suite is not None and suite.grammar.flags.keys() >= set(names_of_flags):
                message = f"no variable {listed}; what make run takes is typed ARGS=..."
                return Correction(message, line.with_variables({}, *names).with_arguments(flags))
            commands = sorted(set.intersection(*having))
            likely = [command for command in (*_LIKELY, *commands) if command in commands]
            if likely:
                message = f"no variable {listed}; a command without make has flags for it"
                return _without_make(message, line, likely[0], flags)
        message = f"no variable {listed}; known: {' '.join(VARIABLES)}"
        return Correction(message, line.with_variables({}, *names), is_example=True)

    def _wrong_name(self, line: MakeLine, target: str, others: Sequence[str]) -> Correction:
        """A target without a NAME, or with one that is not known; `others`: goals that may be meant for it."""
        known = self.names[target]
        typed_name = line.variables.get("NAME", "") or " ".join(others[:1])
        for other, other_names in self.names.items():
            if typed_name in other_names and other != target and typed_name not in known:
                named = line.with_variables({"NAME": typed_name})._replace(goals=(other,))
                return Correction(f"{typed_name!r} is a {other}", named)
        message = f"make {target} takes NAME=..., one of: {' '.join(known)}"
        if typed_name and typed_name not in known:
            message = f"no {target} {typed_name!r}; known: {' '.join(known)}"
        alike = [name for name in known if typed_name and nearest(typed_name, name.split("_"), NEARLY_THE_SAME)]
        if len(alike) > 1:
            message = f"no {target} {typed_name!r}, but {' and '.join(alike)}"
            alike.sort(key=lambda name: "on_gpu(" in (ROOT / "tests" / target / f"{name}.py").read_text())
        meant = typed_name if typed_name in known else nearest(typed_name, known, ALIKE) if typed_name else ""
        shown = alike[0] if len(alike) > 1 else meant or known[0]
        named = line.with_variables({"NAME": shown})._replace(goals=(target,))
        return Correction(message, named, is_example=len(alike) > 1 or not meant)


def _wrong_arguments(line: MakeLine) -> Correction | None:
    """What the suite does not take of ARGS; None where it takes all. Only its grammar is asked: nothing may be installed."""
    suite = hints.hints_for(shlex.join(["python", "-m", _SUITE]))
    if suite is None:
        return None
    parser = importlib.import_module(_SUITE).parser()
    arguments = hints.Hints(parser, ["--quick", *shlex.split(line.variables.get("ARGS", ""))], parser.parse_args)
    mistake: Stop | None = arguments.mistake(arguments.words)
    if mistake is None or mistake.code != USAGE:
        return None
    proposal = arguments.best(mistake)
    words = [word for word in shlex.split(proposal.line)[3:] if word != "--quick"]
    message = "; ".join([arguments.message(mistake), *proposal.notes])
    if shlex.split(proposal.line)[2] != _SUITE:
        return Correction(message, command=invocation.by_script(proposal.line), is_example=proposal.is_example)
    corrected = line.with_variables({"ARGS": shlex.join(words)} if words else {}, "ARGS")
    return Correction(message, corrected, is_example=proposal.is_example)


def _without_make(message: str, line: MakeLine, command: str, words: Sequence[str]) -> Correction:
    """A command of ours in place of make, with what stands in ARGS and these words, corrected."""
    typed = [*shlex.split(line.variables.get("ARGS", "")), *words]
    proposal = hints.Proposal(line=shlex.join(["python", "-m", command, *typed]))
    with contextlib.suppress(ImportError):  # of a package that is not installed
        proposal = hints.corrected_line(proposal.line) if typed else proposal
    module, *corrected = shlex.split(proposal.line)[2:]
    start = f"{invocation.python()} -m crossover {module.rpartition('.')[2]}"
    return Correction(message, command=f"{start} {shlex.join(corrected or ['-h'])}", is_example=proposal.is_example)


def _as_flags(variables: Mapping[str, str]) -> list[str]:
    """Variables that the Makefile does not know as flags with their values, BATCH_SIZE=8 as --batch-size 8; 1 and the like only
    switch one on."""
    words: list[str] = []
    for name, value in variables.items():
        if name not in (*VARIABLES, *_MAKE_VARIABLES):
            words.append(f"--{'-'.join(name.lower().split('_'))}")
            words += [] if value.lower() in _SWITCHED_ON else shlex.split(value)
    return words


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
    environment = os.environ
    typed = MakeLine(
        goals=tuple(environment["GOALS"].split()), variables=typed_variables(environment.get("MAKEFLAGS", ""))
    )
    makefile = Makefile(
        targets=environment["TARGETS"].split(),
        names={"bench": environment["BENCHES"].split(), "stress": environment["STRESSES"].split()},
    )
    lines = makefile.lines(typed)
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
    return USAGE if lines else OK


if __name__ == "__main__":
    sys.exit(main())
