"""A user's training script by the word that names it, as far as its file says: nothing of it is run."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from workloads import options
from workloads.corrections.likeness import similar_path
from workloads.records import other_libraries, regular_files

ENDINGS = (".py", ".ipynb")


def is_script(word: str) -> bool:
    """Whether a word names a script or a notebook."""
    return word.endswith(ENDINGS)


def require(script: str) -> None:
    """Raises Usage for a script that is not there or cannot be read, with the similar one that is there. A module is looked for
    by the process that runs it."""
    if not is_script(script):
        return
    try:
        if not regular_files.exists(script):
            raise _no_script(script)
        if script.endswith(".py"):
            regular_files.require_source(script)
        regular_files.require_readable(script)
    except regular_files.Unreadable as error:
        raise options.Usage(str(error), wrong=script, right=script if error.first else "", first=error.first) from error


def _no_script(script: str) -> options.Usage:
    """The error for a script that is not there, with the similar one that is."""
    near = similar_path(script)
    right = near if is_script(near) else ""
    error = options.Usage(f"there is no file {script}", wrong=script, right=right, similar="file" if right else "")
    error.is_example = Path(right).suffix != Path(script).suffix
    return error


def without_fit(script: str) -> options.Usage:
    """The error for a script that ends without fit: what to write."""
    library = other_libraries.library_imported(Path(script))
    if library:
        return another_library(script, library)
    line = "model.fit(x, y, batch_size=32, epochs=10)"
    return options.Usage(f"{script} ends without fit", first=f"write {line} where its training begins")


def another_library(script: str, library: str) -> options.Usage:
    """The error for a script that trains with another library than Keras."""
    why, change = other_libraries.refusal(script, library)
    return options.Usage(why, first=change)


def no_such_fit(script: str, fit: str, places: Sequence[str]) -> options.Usage:
    """The error for a script that calls fits, at these places, but not at the one that was named."""
    if not places:
        return options.Usage(f"{script} calls no fit at {fit}", wrong="--fit")
    called = ", ".join(places)
    return options.Usage(f"{script} calls no fit at {fit}; it calls one at {called}", wrong=fit, right=places[0])


def verified_by_function(flag: str) -> options.Usage:
    """The error for a flag that measures changes: workers build a changed model anew, so that they need a function."""
    message = f"{flag} takes --model FILE:FUNCTION in place of a script, as it builds the model anew"
    first = "write a function that returns the model into FILE"
    return options.Usage(message, instead=f"python -m analysis.explain --model FILE:FUNCTION {flag}", first=first)


def fit_number(place: str) -> str:
    """A place in a script as --fit takes it: `41` of `line 41`, `3.2` of `cell 3, line 2`."""
    return ".".join(re.findall(r"\d+", place))


class ScriptTraining(msgspec.Struct, frozen=True, kw_only=True):
    """A training by the script that has it, as rows name it: `train.py:41 --lr 0.1`."""

    #: The script as it was typed; of a module its name.
    script: str
    #: Where its fit stands, as --fit takes it.
    fit: str
    #: The arguments of the script.
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return shlex.join((f"{self.script}:{self.fit}", *self.arguments))

    @property
    def command(self) -> str:
        """The script with its arguments, as it is typed."""
        return shlex.join((self.script, *self.arguments))


def script_training(name: str) -> ScriptTraining | None:
    """The training of a row's model; None where that is no script's."""
    try:
        words = shlex.split(name)
    except ValueError:  # a quotation that does not end
        return None
    placed = re.fullmatch(r"(?P<script>.*):(?P<fit>\d+(\.\d+)?)", words[0]) if words else None
    if placed is None:
        return None
    return ScriptTraining(script=placed["script"], fit=placed["fit"], arguments=tuple(words[1:]))


def typed_words(command: str) -> list[str]:
    """A script and its arguments, of a command such as 'train.py --lr 0.1'. Raises: Usage."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        message = f"{command!r} cannot be split into words: {error}"
        raise options.Usage(message, wrong=command, right="train.py") from error
    if not words:
        raise options.Usage(f"{command!r} names no script", wrong=command, right="train.py")
    return words
