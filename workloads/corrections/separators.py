"""Flags and values with the wrong characters between them: `--batch = 32`, `--batch: 32`, `--batch32`, `--epochs=3,--batch=32`.
Standard library only."""

import re
from collections.abc import Collection, Sequence


def separated(words: Sequence[str], flags: Collection[str]) -> list[str]:
    """The words with flags and values as they are typed here, `--batch 32`; the same words where they are."""
    split_words: list[str] = []
    for word in words:
        split_words += re.split(r",(?=--[a-z])", word)
    typed: list[str] = []
    for position, word in enumerate(split_words):
        before = split_words[position - 1] if position else ""
        has_value = bool(split_words[position + 1 : position + 2]) and split_words[position + 1][:1] != "-"
        joined = re.fullmatch(r"(--[a-z-]*[a-z])(?::|(?=\d))(\w[\w.%:-]*)", word)
        if word == "=" and before in flags:
            continue
        if word[:1] == "=" and before in flags:
            typed.append(word[1:])
        elif word[-1:] in ("=", ":") and word[:-1] in flags and has_value:
            typed.append(word[:-1])
        elif joined and joined[1] in flags and word not in flags:
            typed += [joined[1], joined[2]]
        else:
            typed.append(word)
    return typed
