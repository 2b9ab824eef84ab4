"""Words that name nothing in an identifier: the one list, for tests/test_words.py and tests/test_style.py."""

import re

#: They say nothing, or say in a private way what the field has a word for.
EMPTY_NAMES = {
    "apart",
    "asked",
    "beside",
    "each",
    "ends",
    "fed",
    "feed",
    "feeding",
    "foretold",
    "found",
    "gathered",
    "given",
    "held",
    "holding",
    "kept",
    "made",
    "occasions",
    "of",
    "own",
    "passing",
    "said",
    "seen",
    "strange",
    "there",
    "those",
    "told",
    "turn",
    "way",
}


def words(name: str) -> list[str]:
    """The words of a name in either style: `by_own_epochs`, `OwnEpochs`."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def empty_words(name: str) -> set[str]:
    """The words of a name that name nothing. `of` after a noun does: `layers_of`; in front it stands for the noun: `of_keras`."""
    parts = words(name)
    after_a_noun = parts[1:]
    empty = EMPTY_NAMES.intersection(parts)
    if "of" in after_a_noun and parts[0] != "of":
        empty.discard("of")
    return empty
