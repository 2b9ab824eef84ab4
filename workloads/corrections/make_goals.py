"""The error for goals and variables of `make` that the Makefile does not have, with the command that was meant. The Makefile
starts it, with its names in the environment."""

import contextlib
import dataclasses
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from workloads import ROOT, help_screen, hints
from workloads.corrections.likeness import closest, misspelled

VARIABLES = ("ARGS", "NAME", "VENV", "PYTHON", "EXTRAS", "RUN", "CANDIDATES")
_MAKE_VARIABLES = ("SHELL", "MAKEFLAGS", "MFLAGS", "PAGES")
_SUITE = "workloads.suite"  # which make run starts
_SWITCHED_ON = ("", "1", "yes", "true", "on")
_LIKENESS = 0.6
# What other Makefiles call a target -> the one here that does it, or does it first.
_USUAL_NAMES = {"check": "test", "install": "run", "setup": "run", "all": "run", "format": "lint", "distclean": "clean"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrongLine:
    """Why `make` cannot do what was typed, and the command that can."""

    #: What is wrong, without `error:`.
    message: str
    #: A command that works, as a shell takes it.
    command: str
    #: Whether the command does something else than was typed, as nobody can know what was meant.
    is_example: bool = False

    def lines(self) -> list[str]:
        """The two lines for stderr."""
        label = "try, for example" if self.is_example else "try"
        return [f"error: {self.message}", f"  {label}: {self.command}"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeLine:
    """The words behind `make`, and the names that the Makefile knows."""

    #: The goals, as they were typed.
    goals: Sequence[str]
    #: The variables that were typed, by name.
    variables: Mapping[str, str]
    #: The targets of the Makefile.
    targets: Sequence[str]
    #: The targets that want a NAME -> the names that there are.
    names: Mapping[str, Sequence[str]]
    #: The Python that runs this, as a shell takes it.
    python: str

    def wrong_line(self) -> WrongLine:
        """What is wrong with the first goal or variable that is not known."""
        targets = [goal for goal in self.goals if goal in self.targets]
        for name in self.variables:
            known = _variable(name)
            if known != name:
                variables = {known: self.variables[name], **self._variables_without(name)}
                return WrongLine(
                    message=f"no variable {name!r}: it is {known}", command=self._make(self.goals, variables)
                )
            if targets and name not in (*VARIABLES, *_MAKE_VARIABLES):
                return self._unknown_variable(name, targets)
        others = [goal for goal in self.goals if goal not in (*self.targets, *VARIABLES)]
        named = [target for target in targets if target in self.names]
        if named:
            return self._wrong_name(named[0], others)
        if not others:
            return self._variable_without_value(targets)
        if targets:
            return self._with_known_target(targets, others[0])
        return self._unknown(others[0])

    def _make(self, goals: Sequence[str], variables: Mapping[str, str]) -> str:
        """A command of `make` with these goals and variables."""
        definitions = [f"{name}={shlex.quote(value) if value else ''}" for name, value in variables.items()]
        return " ".join(["make", *map(shlex.quote, goals), *definitions])

    def _variables_without(self, *names: str) -> dict[str, str]:
        return {name: value for name, value in self.variables.items() if name not in names}

    def _unknown_variable(self, name: str, targets: Sequence[str]) -> WrongLine:
        """The error for a variable that is none here: of make run a flag of the suite, FAST=1, if there is one; else left out."""
        message = f"no variable {name!r}; known: {' '.join(VARIABLES)}"
        words = shlex.split(self.variables.get("ARGS", ""))
        others = self._variables_without(name, "ARGS")
        suite = hints.hints_for(shlex.join(["python", "-m", _SUITE]))
        if "run" in targets and suite is not None and _flag(name) in suite.parser.flag_names():
            words += _as_flag(name, self.variables[name])
            message = f"no variable {name!r}; what make run takes is typed ARGS=..."
        is_example = not words
        variables = {"ARGS": " ".join(words), **others} if words else others
        return WrongLine(message=message, command=self._make(self.goals, variables), is_example=is_example)

    def _variable_without_value(self, targets: Sequence[str]) -> WrongLine:
        """The error for `make run VENV`, a variable without `=`; only VENV means something without a value."""
        name = next(goal for goal in self.goals if goal in VARIABLES)
        message = f"{name!r} is a variable, which is typed {name}=..."
        definitions = {"VENV": ""} if name == "VENV" else {}
        command = self._make(targets or ["run"], {**definitions, **self.variables})
        return WrongLine(message=message, command=command, is_example=not definitions)

    def _wrong_name(self, target: str, others: Sequence[str]) -> WrongLine:
        """The error for `make bench` without a NAME, or with one that is not known; `others`: goals that may be meant for it."""
        known = self.names[target]
        typed_name = self.variables.get("NAME", "") or " ".join(others[:1])
        message = f"make {target} takes NAME=..., one of: {' '.join(known)}"
        for other, other_names in self.names.items():
            if typed_name in other_names and typed_name not in known:
                variables = {"NAME": typed_name, **self._variables_without("NAME")}
                return WrongLine(message=f"{typed_name!r} is a {other}", command=self._make([other], variables))
        if typed_name and typed_name not in known:
            message = f"no {target} {typed_name!r}; known: {' '.join(known)}"
        similar = closest(typed_name, known, _LIKENESS) if typed_name else ""
        alike = [name for name in known if typed_name and misspelled(typed_name, name.split("_"))]
        if len(alike) > 1:
            return self._several_meant(target, typed_name, alike)
        variables = {"NAME": similar or known[0], **self._variables_without("NAME")}
        return WrongLine(message=message, command=self._make([target], variables), is_example=not similar)

    def _several_meant(self, target: str, word: str, names: Sequence[str]) -> WrongLine:
        """The error for a NAME that is a part of several; the first that runs without a GPU is shown."""
        without_gpu = [name for name in names if "on_gpu(" not in _source(target, name)]
        shown = without_gpu[0] if without_gpu else names[0]
        variables = {"NAME": shown, **self._variables_without("NAME")}
        message = f"no {target} {word!r}, but {' and '.join(names)}"
        return WrongLine(message=message, command=self._make([target], variables), is_example=True)

    def _with_known_target(self, targets: Sequence[str], word: str) -> WrongLine:
        """The error for an unknown word beside a known target: tests to select, a misspelled target, or nothing."""
        message = f"no target {word!r}"
        arguments = self.variables.get("ARGS", "")
        if targets[0] in ("test", "test-all", "lint") and not self._similar(word):
            selected = word if (ROOT / word).exists() else f"-k {shlex.quote(word)}"
            variables = {"ARGS": f"{arguments} {selected}".strip(), **self._variables_without("ARGS")}
            message = f"{message}; what make {targets[0]} takes is typed ARGS=..."
            return WrongLine(message=message, command=self._make(targets, variables))
        corrected = [goal if goal in self.targets else self._similar(goal) for goal in self.goals]
        goals = [goal for goal in dict.fromkeys(corrected) if goal]
        return WrongLine(message=message, command=self._make(goals, self.variables))

    def _unknown(self, word: str) -> WrongLine:
        """The error for a goal that is no target: a bench without `bench`, a command of ours, or a misspelled target."""
        message = f"no target {word!r}"
        command = help_screen.similar_command(word, "analysis")
        if command.rpartition(".")[2] == word:
            return self._command(word)
        for target, known in self.names.items():
            if word in known:
                variables = {"NAME": word, **self._variables_without("NAME")}
                return WrongLine(message=f"{message}; it is a {target}", command=self._make([target], variables))
        similar = self._similar(word)
        if similar in self.names and self.variables.get("NAME") not in self.names[similar]:
            return self._wrong_name(similar, self.goals[1:])
        if similar:
            goals = [self._similar(goal) or goal for goal in self.goals]
            known_goals = [goal for goal in dict.fromkeys(goals) if goal in self.targets]
            installs = _USUAL_NAMES.get(word) == "run"
            message += "; make run first installs what it needs" if installs else ""
            return WrongLine(message=message, command=self._make(known_goals, self.variables), is_example=installs)
        if command:
            return self._command(word, command.rpartition(".")[2])
        return WrongLine(message=f"{message}; known: {' '.join(self.targets)}", command="make help", is_example=True)

    def _command(self, word: str, name: str = "") -> WrongLine:
        """The error for a command of ours as a goal, and for a word that is most like its name."""
        words = shlex.split(self.variables.get("ARGS", ""))
        words += [goal for goal in self.goals if goal != word]
        for variable in self._variables_without(*VARIABLES, *_MAKE_VARIABLES):
            words += _as_flag(variable, self.variables[variable])
        module = help_screen.similar_command(name or word, "analysis")
        proposal = hints.Proposal(line=shlex.join(["python", "-m", module, *words]))
        with contextlib.suppress(ImportError):  # of a package that is not installed
            proposal = hints.corrected_line(proposal.line) if words else proposal
        short = f"{self.python} -m crossover {module.rpartition('.')[2]}"
        corrected_words = shlex.split(proposal.line)[3:] or ["-h"]
        return WrongLine(
            message=f"no target {word!r}; {name or word} is a command without make",
            command=f"{short} {shlex.join(corrected_words)}",
            is_example=proposal.is_example,
        )

    def _similar(self, word: str) -> str:
        """The target that is most like a word, or has another name in other Makefiles; "" for none."""
        if word in self.targets:
            return word
        return _USUAL_NAMES.get(word) or closest(word, self.targets, 0.75)


def _source(target: str, name: str) -> str:
    """The text of a bench or a stress test."""
    return (ROOT / "tests" / target / f"{name}.py").read_text()


def _variable(name: str) -> str:
    """The variable of the Makefile that a name is, or is most like; the name itself where it is like none."""
    return closest(name, VARIABLES, 0.7) or name


def _flag(variable: str) -> str:
    """The flag that has the name of a variable: --batch-size of BATCH_SIZE."""
    return f"--{'-'.join(variable.lower().split('_'))}"


def _as_flag(variable: str, value: str) -> list[str]:
    """A variable as the flag of its name with its value; 1 and the like only switch it on."""
    return [_flag(variable)] if value.lower() in _SWITCHED_ON else [_flag(variable), *shlex.split(value)]


def typed_variables(flags: str) -> dict[str, str]:
    """The variables in what make puts into MAKEFLAGS: `n -- ARGS=-k\\ stream VENV=`. The last of each counts."""
    _, _, definitions = f" {flags}".partition(" -- ")
    variables = {}
    for word in re.findall(r"(?:\\.|[^\\\s])+", definitions):
        name, _, value = re.sub(r"\\(.)", r"\1", word).partition("=")
        variables[name.rstrip(":+?")] = "$".join(value.split("$$"))
    return variables


def main() -> int:
    """Prints the error for what the environment says was typed; exit code 2."""
    environment = os.environ
    line = MakeLine(
        goals=environment["GOALS"].split(),
        variables=typed_variables(environment.get("MAKEFLAGS", "")),
        targets=environment["TARGETS"].split(),
        names={"bench": environment["BENCHES"].split(), "stress": environment["STRESSES"].split()},
        python=hints.python(),
    )
    print(*line.wrong_line().lines(), sep="\n", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
