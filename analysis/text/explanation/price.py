"""What a training costs on each device, or how much more the GPU may cost."""

from analysis.finding import Finding
from analysis.text.sentences import CANT_TELL, NAMES, say

_TEMPLATES = {
    "price": "CPU {cpu:number}, GPU {gpu:number}, in your currency. Cheapest: {cheapest}. Fastest: {fastest}.",
    "worth": "The GPU pays while its machine costs less than {ratio:gain} the CPU's an hour.",
}


def price(finding: Finding) -> str:
    """The sentence on the money of the training on each device, the cheapest one and the fastest one (cpu, gpu or neither)."""
    numbers = finding.numbers
    return say(
        _TEMPLATES["price"],
        cpu=numbers["cpu"],
        gpu=numbers["gpu"],
        cheapest=NAMES.get(numbers["cheapest"], CANT_TELL),
        fastest=NAMES.get(numbers["fastest"], CANT_TELL),
    )


def worth(finding: Finding) -> str:
    return say(_TEMPLATES["worth"], **finding.numbers)


SENTENCES = {"price": price, "worth": worth}
