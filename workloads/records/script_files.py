"""A user's training script by the word that names it, as far as its file says: nothing of it is run."""

from pathlib import Path

from workloads import options
from workloads.corrections.likeness import similar_path
from workloads.records import regular_files

ENDINGS = (".py", ".ipynb")


def is_script(word: str) -> bool:
    """Whether a word names a script or a notebook."""
    return word.endswith(ENDINGS)


def require(script: str) -> None:
    """Raises Usage for a script that is not there or cannot be read, with the similar one that is there."""
    path = Path(script)
    if not path.exists():
        near = similar_path(script)
        right = near if is_script(near) else ""
        raise options.Usage(f"there is no file {script}", wrong=script, right=right, similar="file" if right else "")
    try:
        regular_files.require_regular(path)
    except regular_files.Unreadable as error:
        raise options.Usage(str(error), wrong=script) from error


def without_fit(script: str) -> options.Usage:
    """The error for a script that ends without fit: what to write."""
    line = "model.fit(x, y, batch_size=32, epochs=10)"
    return options.Usage(f"{script} ends without fit", first=f"write {line} where its training begins")


def measured_by_function(flag: str) -> options.Usage:
    """The error for a flag that measures: workers build a model anew, so that they need a function."""
    message = f"{flag} takes --model FILE:FUNCTION in place of a script, as it builds the model anew"
    first = "write a function that returns the model into FILE"
    return options.Usage(message, instead=f"python -m analysis.explain --model FILE:FUNCTION {flag}", first=first)
