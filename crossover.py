"""The console command `crossover`: every command of the project by its short name; `explain()` for notebooks.

It stands above all packages, and nothing imports it.
"""

import importlib
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workloads import ROOT, help_screen, keywords, options, terminal
from workloads.command_line import requirements, running
from workloads.command_line.parsing import CommandParser
from workloads.corrections.nearest import nearest
from workloads.stops import HELP_WORDS

if TYPE_CHECKING:
    from analysis.explain.training_answer import TrainingAnswer
    from kernels.networks import Network

LONG = "Starts a command by its short name: crossover matmul is python -m workloads.matmul."
FIRST = ("explain", "run", "doctor", "report")  # the commands that people need most
VERSION_WORDS = ("--version", "-V", "version")
QUICK_FLAGS = ("--quick",)  # of `crossover run`, which is the suite as `make run` starts it


def commands() -> dict[str, str]:
    """Short name of a command -> its module, such as matmul -> workloads.matmul; those of FIRST come first."""
    modules = {module.rpartition(".")[2]: module for module in help_screen.commands()}
    modules["run"] = "workloads.suite"
    first = {name: modules[name] for name in FIRST}
    return first | modules


def version() -> str:
    """The version of the package; of a checkout that is not installed, of its pyproject.toml."""
    import importlib.metadata
    import tomllib

    project = ROOT / "pyproject.toml"
    if project.exists():
        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    return importlib.metadata.version("crossover-bench")


def overview() -> list[str]:
    """The lines that list the commands, each by the question that it answers."""
    questions = help_screen.commands()
    lines: list[str] = ["What do you want to know?"]
    for name, module in commands().items():
        only_quick = " (the quick suite)" if name == "run" else ""
        lines.append(terminal.Line(f"{questions[module]}{only_quick}", label=f"  {name:<10} "))
    command = f"{options.typed('python -m crossover')} COMMAND -h"
    lines.append(terminal.Line("To see what a command takes: ", command=command))
    return lines


def unknown(words: Sequence[str]) -> options.Usage:
    """The error for a command line whose first word is no command: it proposes a similar command, or what takes such a word."""
    name, *others = words
    if name in HELP_WORDS:
        command = nearest(others[0], commands()) if others else ""
        instead = _line(command, ["-h"]) if command else "python -m crossover"
        return options.Usage("the help of a command is typed -h", instead=instead)
    if name[:1] == "-":
        return _after_flags(words)
    similar = nearest(name.rpartition(".")[2], commands())
    if not similar and _is_model_name(name):
        return options.Usage(f"no command {name!r}: explain takes a model", instead=_line("explain", words))
    if not similar and name.partition(":")[0].endswith((".py", ".ipynb")):
        return options.Usage(f"no command {name!r}: explain takes a script", instead=_line("explain", words))
    if not similar:
        return options.Usage(f"no command {name!r}", tip="python -m crossover")
    return options.Usage(f"no command {name!r}", instead=_line(similar, others), right=similar, similar="command")


def _is_model_name(word: str) -> bool:
    """Whether a word is the name of a model that comes with the project; False where packages are not installed."""
    try:
        from kernels import networks
    except ImportError:
        return False
    return word in networks.names()


def _after_flags(words: Sequence[str]) -> options.Usage:
    """The error for words that begin with a flag. It proposes the command among the other words, else one that has the flag."""
    flag = words[0].partition("=")[0]
    without_dashes = flag.lstrip("-")
    if without_dashes in commands():
        message = f"{flag!r} is a command: it is typed {without_dashes}"
        return options.Usage(message, instead=_line(without_dashes, words[1:]))
    message = f"the command comes first, before {words[0]!r}"
    typed_commands = [word for word in words if word in commands()]
    if not typed_commands and len(words) == 1:
        return options.Usage(message, tip="python -m crossover")
    with_flag = [module.rpartition(".")[2] for module in help_screen.commands_with(flag, near="analysis")]
    likely = [name for name in (*FIRST, "matmul") if name in with_flag]
    candidates = [*typed_commands, *likely, *with_flag]
    if not candidates:
        return options.Usage(message, tip="python -m crossover")
    name = candidates[0]
    others = list(words)
    if typed_commands:
        others.remove(name)
    return options.Usage(message, instead=_line(name, others))


def _line(name: str, others: Sequence[str]) -> str:
    """The line of a command with these words after it. name: its short name."""
    flags = QUICK_FLAGS if name == "run" else ()
    return shlex.join(["python", "-m", commands()[name], *flags, *others])


def explain(
    model: Any,
    *,
    batch: int | None = None,
    samples: int | None = None,
    epochs: int | None = None,
    measure: bool = False,
    **flags: Any,
) -> "TrainingAnswer":
    """Whether a GPU is worth it for a training, as an object with the winner, the seconds and the lines of the answer.

    Args:
        model: a known name, `file.py:function`, `file.keras`, a Keras model, or a function that builds one.
        batch, samples, epochs: of the training; numbers that are not given are assumed, as the answer says.
        measure: first measure here what the answer lacks; takes a model by name or file.
        flags: other flags of `crossover explain` by their names, such as gpu_profile="nvidia-h200" or price_gpu=3.5.

    Raises: ImportError for packages that are not installed; options.Missing where no row tells it; options.Usage for an
    unknown model or one that cannot be built; TypeError for a model or a flag of another kind.
    """
    try:
        requirements.require_packages()
    except options.Missing as missing:
        raise ImportError(f"{missing}; {missing.tip}") from missing
    from analysis.explain import __main__, command
    from analysis.explain.plan import ExplainPlan
    from analysis.explain.training_request import USUAL_BATCH

    if not isinstance(model, str) and measure:
        raise TypeError("measure=True takes a name, 'file.py:function' or 'file.keras': workers build the model anew")
    values = {"batch": batch, "samples": samples, "epochs": epochs, **flags}
    if isinstance(model, str):
        named = keywords.namespace(__main__.parser(), model=model, measure=measure, **values)
        return command.answered(ExplainPlan.from_flags(named, _command(model, values)))
    network = described(model, batch or USUAL_BATCH, flags.get("time_limit", __main__.DESCRIBING_S))
    described_flags = keywords.namespace(__main__.parser(), model=network.name, **values)
    return command.answered(ExplainPlan.from_flags(described_flags, network=network))


def _command(model: str, flags: dict[str, Any]) -> str:
    """The command line that asks the same as a call of `explain`.

    model: its name or file. flags: name of a keyword -> its value; None where it was left out.
    """
    words = ["python", "-m", "analysis.explain", "--model", model]
    runs = flags.get("runs") or ()
    words += [runs] if isinstance(runs, str) else runs
    for name, value in flags.items():
        if name == "runs" or value is None or value is False:
            continue
        words.append("--" + "-".join(name.split("_")))
        if value is not True:
            words.append(str(value))
    return options.typed(shlex.join(words))


def described(model: Any, batch: int, time_limit_s: float) -> "Network":
    """A Keras model with its layers and the operations of a training step. The model is saved to a temporary file, and traced by
    another process.

    model: a Keras model, or a function that builds one. batch: samples in a batch. time_limit_s: how long tracing may take.

    Raises: TypeError for what is neither; options.Missing for a model that cannot be described.
    """
    import tempfile

    import msgspec

    from analysis.predict import described_model

    built = model() if callable(model) and not _is_model(model) else model
    if not _is_model(built):
        kinds = "a name, 'file.py:function', 'file.keras', a Keras model or a function that builds one"
        raise TypeError(f"model is {kinds}, not {type(built).__name__}")
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/{built.name}.keras"
        built.save(file)
        request = described_model.ModelRequest(model=file, batch=batch)
        network = described_model.described(request, time_limit_s)
    return msgspec.structs.replace(network, name=f"{built.name} (notebook)")


def _is_model(thing: Any) -> bool:
    """Whether a value is a Keras model, judged by its attributes, so that Keras need not be imported."""
    return hasattr(thing, "save") and hasattr(thing, "layers") and not isinstance(thing, type)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that the first word names with the other words; lists the commands without a word."""
    words = list(sys.argv[1:] if argv is None else argv)
    module = commands().get(words[0]) if words else None
    if module:
        flags = QUICK_FLAGS if words[0] == "run" else ()
        package = help_screen.starts(module)
        return importlib.import_module(package).main([*flags, *words[1:]])

    def run(plan: None) -> int:
        """Prints the version, or the commands, or raises the error for the first word."""
        if words[:1] and words[0] in VERSION_WORDS:
            print(f"crossover {version()}")
            return options.OK
        if words and words[0] not in ("-h", "--help"):
            raise unknown(words)
        terminal.show(overview())
        return options.OK

    command_parser = CommandParser(module="crossover", description=LONG, examples=("python -m crossover",))
    return running.run_command(command_parser, [], make_plan=running.no_plan, carry_out=run)


if __name__ == "__main__":
    sys.exit(main())
