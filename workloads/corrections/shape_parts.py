"""A shape or a range that was typed as several flags, as other tools have them: -m 64 -n 64 -k 32, --kernel-size 3, --min 8 --max
64. Standard library only."""

import re
from collections.abc import Mapping, Sequence

from workloads.corrections.likeness import DASHES

_PRODUCT = {"m": "M", "n": "N", "k": "K"}
# Flags of other tools for the numbers of a convolution -> these in NxHxWxC:KxRxS.
_CONVOLUTION = {
    "batch-size": "N",
    "n": "N",
    "height": "H",
    "width": "W",
    "input-size": "HW",
    "image-size": "HW",
    "img-size": "HW",
    "imgsz": "HW",
    "resolution": "HW",
    "h": "H",
    "w": "W",
    "in-channels": "C",
    "input-channels": "C",
    "channels": "C",
    "c": "C",
    "in": "C",
    "cin": "C",
    "out-channels": "K",
    "output-channels": "K",
    "filters": "K",
    "out": "K",
    "cout": "K",
    "k": "K",
    "kernel-size": "RS",
    "kernel": "RS",
    "filter-size": "RS",
    "r": "R",
    "y": "R",
    "s": "S",
    "x": "S",
}
_USUAL = {"N": "32", "H": "32", "W": "32", "C": "3", "K": "64", "R": "3", "S": "3"}
_RANGE = {
    "min": "first",
    "min-size": "first",
    "minbytes": "first",
    "start": "first",
    "from": "first",
    "begin": "first",
    "b": "first",
    "max": "last",
    "max-size": "last",
    "maxbytes": "last",
    "stop": "last",
    "end": "last",
    "to": "last",
    "e": "last",
    "factor": "factor",
    "stepfactor": "factor",
    "f": "factor",
    "step": "step",
    "stepbytes": "step",
    "i": "step",
}


def joined(words: Sequence[str], flags: Mapping[str, object]) -> tuple[list[str], bool]:
    """(the words with one flag in place of those that are parts of its value, whether some part was not typed); ([], False) where
    the command has no such flag, or too few parts are there."""
    if "--sizes" not in flags:
        return [], False
    numbers, left = _parts(words, flags, _RANGE)
    if {"first", "last"} <= numbers.keys():
        return [*left, "--sizes", _range(numbers)], False
    images: dict[str, str] = {}
    if "--stride" in flags:
        images, words = _images_without_filters(words)
    if "--shapes" not in flags or "--shapes" in words:
        return [], False
    if "--stride" in flags:
        numbers, left = _parts(words, flags, _CONVOLUTION)
        if not numbers.keys() & set("HWCKRS"):
            return [], False
        numbers = {**images, **numbers}
        every = {**_USUAL, **numbers}
        shape = "{N}x{H}x{W}x{C}:{K}x{R}x{S}".format(**every)
        return [*left, "--shapes", shape], not numbers.keys() >= set("NHWCKRS")
    numbers, left = _parts(words, flags, _PRODUCT)
    if len(numbers) < 2:
        return [], False
    every = {**dict.fromkeys("MNK", numbers.get("N", numbers.get("M", ""))), **numbers}
    return [*left, "--shapes", "{M}x{N}x{K}".format(**every)], len(numbers) < 3


def _images_without_filters(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """(part -> its number, of a --shapes with images alone, 8x32x32x3, or one image, 32x32x3; the other words); ({}, the words)
    without one."""
    for position, word in enumerate(words[:-1]):
        images = re.fullmatch(r"[(\[]?\d+([x,]\d+){2,3}[)\]]?", words[position + 1], re.IGNORECASE)
        if word in ("--shapes", "--shape") and images:
            numbers = re.findall(r"\d+", images[0])
            letters = "NHWC"[-len(numbers) :]
            return dict(zip(letters, numbers, strict=True)), [*words[:position], *words[position + 2 :]]
    return {}, list(words)


def _range(numbers: Mapping[str, str]) -> str:
    """The range from its ends and its step, which is a factor of 2 where none is there."""
    step = f"+{numbers['step']}" if "step" in numbers else f"x{numbers.get('factor', '2')}"
    return f"{numbers['first']}:{numbers['last']}:{step}"


def _parts(
    words: Sequence[str], flags: Mapping[str, object], names: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """(part -> its number, of the unknown flags with these names; the other words)."""
    numbers: dict[str, str] = {}
    left: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        name, equals, value = word.partition("=")
        part = names.get("-".join(name.lstrip(DASHES).lower().split("_")), "")
        if name[:1] not in DASHES or name in flags or not part:
            left.append(word)
            position += 1
            continue
        values = [value] if equals else []
        position += 1
        while not equals and position < len(words) and re.match(r"[(\[]?\d", words[position]):
            values.append(words[position])
            position += 1
        typed_numbers = re.findall(r"\d+[kmg]?i?b?", ",".join(values), re.IGNORECASE)
        is_kernel = part == "K" and "K" in numbers  # --out 64 -k 3
        letters = "RS" if is_kernel else part if len(part) <= 2 else [part]
        for place, letter in enumerate(letters):
            if typed_numbers:
                numbers[letter] = typed_numbers[min(place, len(typed_numbers) - 1)]
    return numbers, left
