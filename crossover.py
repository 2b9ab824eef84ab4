"""The console command `crossover`: every command of the project by its short name.

It stands above all packages, and nothing imports it.
"""

import importlib
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence

from workloads import help_screen, options

LONG = "Starts a command by its short name: crossover matmul is python -m workloads.matmul."
FIRST = ("explain", "run", "doctor", "report")  # the commands that people need most
QUICK_SUITE = ("workloads.suite", "--quick")  # crossover run, as make run


def commands() -> dict[str, str]:
    """Short name of a command -> its module; those of FIRST come first."""
    modules = {module.rpartition(".")[2]: module for module in help_screen.commands()}
    modules["run"] = QUICK_SUITE[0]
    first = {name: modules[name] for name in FIRST}
    return first | modules


def overview() -> list[str]:
    """The lines that list the commands, each by the question that it answers."""
    questions = help_screen.commands()
    lines = ["What do you want to know?"]
    for name, module in commands().items():
        only_quick = " (the quick suite)" if name == "run" else ""
        lines.append(f"  {name:<10} {questions[module]}{only_quick}")
    lines.append(f"To see what a command takes: {options.typed('python -m crossover')} COMMAND -h")
    return lines


def unknown(words: Sequence[str]) -> options.Usage:
    """The error for words that begin with no command."""
    name, *others = words
    if name[:1] == "-":
        message, similar = f"a command comes before {name!r}", "explain"
        return options.Usage(message, shlex.join(["python", "-m", "crossover", similar, *words]), options.OVERVIEW)
    similar = options.closest(name.rpartition(".")[2], commands())
    if not similar:
        return options.Usage(f"no command {name!r}", "python -m crossover")
    corrected = shlex.join(["python", "-m", "crossover", similar, *others])
    return options.Usage(f"no command {name!r}", corrected, options.OVERVIEW, similar, "command")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that the first word names with the other words; lists the commands without a word."""
    words = list(sys.argv[1:] if argv is None else argv)
    module = commands().get(words[0]) if words else None
    if module:
        flags = QUICK_SUITE[1:] if words[0] == "run" else ()
        package = help_screen.starts(module)
        return importlib.import_module(package).main([*flags, *words[1:]])

    def body(args: Namespace) -> int:
        if words and words[0] not in ("-h", "--help"):
            raise unknown(words)
        print(*overview(), sep="\n")
        return options.OK

    return options.command(options.parser("crossover", LONG, "python -m crossover"), [], body)


if __name__ == "__main__":
    sys.exit(main())
