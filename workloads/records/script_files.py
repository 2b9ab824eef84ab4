"""A user's training script by the word that names it, as far as its file says: nothing of it is run."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from workloads import options
from workloads.corrections.nearest import nearest_path
from workloads.records import other_libraries, regular_files

ENDINGS = (".py", ".ipynb")


def is_script(word: str) -> bool:
    """Whether a word names a script or a notebook."""
    return word.endswith(ENDINGS)


def require(script: str) -> None:
    """Raises Usage for a script (or notebook) that does not exist or cannot be read, corrected to one with a similar name.

    script: what was typed; for the name of a module nothing is checked here, as only the process that runs it can look for it.
    """
    if re.fullmatch(r"\S+\.py:[A-Za-z_]\w*", script):
        right = shlex.join(["--model", script])
        raise options.Usage(f"{script!r} is a function, which is typed {right}", wrong="--script", right=right)
    if not is_script(script):
        return
    try:
        if not regular_files.exists(script):
            raise _no_script(script)
        if script.endswith(".py"):
            regular_files.require_source(script)
        regular_files.require_readable(script)
    except regular_files.Unreadable as error:
        mends_it = error.first  # what the user can do first, so that the same command works; "" where nothing helps
        raise options.Usage(str(error), wrong=script, right=script if mends_it else "", first=mends_it) from error


def _no_script(script: str) -> options.Usage:
    """The error for a script that does not exist, corrected to one with a similar name where there is one."""
    near = nearest_path(script)
    right = near if is_script(near) else ""
    error = options.Usage(f"there is no file {script}", wrong=script, right=right, similar="file" if right else "")
    error.is_example = Path(right).suffix != Path(script).suffix
    return error


def without_fit(script: str) -> options.Usage:
    """The error for a training script that ended without a call of Keras's `fit`: what to write into it."""
    library = other_libraries.library_imported(Path(script))
    if library:
        return another_library(script, library)
    line = "model.fit(x, y, batch_size=32, epochs=10)"
    return options.Usage(f"{script} ends without fit", first=f"write {line} where its training begins")


def another_library(script: str, library: str) -> options.Usage:
    """The error for a script that trains with this library in place of Keras."""
    return options.Usage(other_libraries.refusal(script, library), first=other_libraries.remedy(script))


def no_such_fit(script: str, fit: str, places: Sequence[str]) -> options.Usage:
    """The error for a script that does not call Keras's `fit` where --fit says.

    fit: what was typed, a line number, or of a notebook CELL.LINE. places: where the script calls `fit`, written likewise.
    """
    if not places:
        return options.Usage(f"{script} calls no fit at {fit}", wrong="--fit")
    called_at = ", ".join(places)
    return options.Usage(f"{script} calls no fit at {fit}; it calls one at {called_at}", wrong=fit, right=places[0])


def verified_by_function(flag: str) -> options.Usage:
    """The error for a script with a flag that measures changed models: workers build those anew, for which they need a function
    that returns the model."""
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
    """The training in a user's script, from a row's name of the model such as `train.py:41 --lr 0.1`; None for any other
    name."""
    try:
        words = shlex.split(name)
    except ValueError:  # a quotation that does not end
        return None
    if not words:
        return None
    script_and_fit = re.fullmatch(r"(?P<script>.*):(?P<fit>\d+(\.\d+)?)", words[0])
    if script_and_fit is None:
        return None
    return ScriptTraining(script=script_and_fit["script"], fit=script_and_fit["fit"], arguments=tuple(words[1:]))


def typed_words(command: str) -> list[str]:
    """The words of a command such as 'train.py --lr 0.1': the script, then its arguments.

    Raises: Usage for an empty command, and for a quotation that does not end.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        message = f"{command!r} cannot be split into words: {error}"
        raise options.Usage(message, wrong=command, right="train.py") from error
    if not words:
        raise options.Usage(f"{command!r} names no script", wrong=command, right="train.py")
    return words
