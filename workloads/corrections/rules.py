"""The rules of --fail-on: by how much a row must be slower to count."""

import argparse
import re

from workloads import terminal
from workloads.stops import Usage


def regression(text: str) -> float:
    """The share by which a row must be slower to count, of a rule like `slower>5%` or `5%`: 0.05; of `slower` 0."""
    match = re.fullmatch(r"(?:slower>)?(\d{1,4}(?:\.\d{1,6})?)%?|slower", text.replace(" ", ""))
    if not match:
        message = f"{text!r} is no rule; rules are like 'slower>5%', 5% or slower"
        number_in_rule = re.search(r"\d{1,4}(?:\.\d{1,6})?", text.replace(",", "."))
        if number_in_rule:
            raise Usage(message, wrong=text, right=f"slower>{number_in_rule[0]}%")
        raise argparse.ArgumentTypeError(message)
    share = float(match[1] or 0)
    if 0 < share < 1 and "%" not in text:
        ambiguous = Usage(
            f"{text!r} may be {share:g} % or a share; write the percent", wrong=text, right=f"slower>{100 * share:g}%"
        )
        ambiguous.is_example = True
        raise ambiguous
    if text == "slower" and terminal.output_file().endswith("%"):  # as after `slower>5%` without quotes
        raise Usage("the shell took >5% as a file for the output; quote 'slower>5%'", wrong=text, right="slower>5%")
    return share / 100
