"""The rules that sentences for people keep: short, few numbers, the field's words, no impossible range, predictions named."""

import re

MOST_WORDS, MEAN_WORDS, MOST_NUMBERS, MOST_BRACKETS = 25, 18, 3, 1
# What was said in a private way: retired phrase -> what the field says.
RETIRED = {
    r"times as (fast|long|many)\b|times the speed|times (less|more|fewer|slower|faster)": "3.2x faster",
    r"in the middle\b(?! of)|the middle of all": "median",
    r"known to \+-|is only known|can(no|')t be told from nothing": "a 95 % interval; can't tell",
    r"foretold": "predicted",
    r"pa(y|id|ys) (it|its start|their start)? ?back": "break-even",
    r"at the same time|waits for what": "overlap; critical path",
    r"data already (there|on the GPU)|already on the device": "resident on the GPU",
    r"the whole job": "whole training",
    r"held up|by all at once|hold each other": "contention",
    r"of this moment|\boccasions\b": "between-process noise",
    r"(?<!--case )\bS[0-4][a-e]?\b": "the model's name",
    r"beside its like|so many times": "a plain number",
}
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_UNITS = r"(?:s|ms|µs|ns|J|x|%|GB/s|TFLOP/s|GFLOP/s|TB/s|KiB|MiB|GiB|bytes|samples/s|times)"
# Digits that name the case or a size are not counted: models, kernels, n = 64, batch 32, 4 GPUs, 10 epochs, [17, 35].
_NAMES = re.compile(
    rf"`[^`]*`|\[[^\]]*\]|\b[\w.-]*[A-Za-z_][\w./-]*\d[\w./-]*|\b\d+(?:x\d+)+\S*|\b(?:n|image side) = {_NUMBER}"
    rf"|\b(?:batch|batches of|stride|pad|width|depth|GPU|gpu|level|n =|first|From|Between|At) {_NUMBER}(?: (?:to|and) {_NUMBER})?"
    rf"|{_NUMBER}(?:st|nd|rd|th)?[ -](?:samples?|epochs?|steps?|GPUs?|cores?|threads?|rows?|trainings?|layers?|processes"
    rf"|float\d+|uint8|sizes|channels?|fresh|uses|more|products|convolutions|models?|machines?|visits|KiB|MiB|GiB|bytes)\b|\b(?:19|20)\d\d(?:-\d\d-\d\d)?\b"
)


def prose(text: str) -> list[str]:
    """The paragraphs and points of a Markdown page, without code, tables, links, headings and comments."""
    text = re.sub(r"```.*?```|<!--.*?-->|<[a-z/][^>]*>", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    return [" ".join(b.split()).lstrip("-* ") for b in blocks if b.strip() and b.lstrip()[0] not in "|#"]


def split(text: str) -> list[str]:
    """The sentences of a text, what is to be typed left out."""
    text = re.sub(r"`[^`]*`|python3? -m \S+( +(-{1,2}[\w-]+|[^\s.]+(?=\s)))*", "X", text)
    return [s for s in re.split(r"(?<=[.!?])\s+(?=[A-Z\d'\"`(])", text.strip()) if re.search(r"[a-zA-Z]{2}", s)]


def words(sentence: str) -> int:
    """Words, without numbers, units, and names with digits in them."""
    tokens = re.sub(r"\[[^\]]*\]", " ", sentence).split()
    return sum(
        bool(re.search(r"[A-Za-z]", t)) and not re.search(r"\d", t) and not re.fullmatch(_UNITS + r"[.,;:]?", t)
        for t in tokens
    )


def numbers(sentence: str) -> int:
    """Numbers that are claims: those that name a case or a size are none."""
    without_shapes = re.sub(r"\b\d+(?:x\d+)+\S*", " ", sentence)
    return len(re.findall(_NUMBER, _NAMES.sub(" ", without_shapes)))


def faults(text: str, measured: bool = True) -> list[str]:
    """What is wrong with a text, a line each; `measured`: sentences that must be short and have few numbers."""
    found = [f"says {m[0]!r}: {good}" for bad, good in RETIRED.items() if (m := re.search(bad, text))]
    found += ["writes us for µs"] * bool(re.search(r"\d us\b", text))
    found += [f"a negative time: {m[0]}" for m in re.finditer(rf"(?<![\w.-])-{_NUMBER} (?:s|ms|µs|ns)\b", text)]
    found += [f"an impossible range: {m[0]}" for m in re.finditer(r"\[-\d[^\]]*\]", text)]
    found += [
        f"too many digits: {m[0]}"
        for m in re.finditer(r"(?<![\w.,])\d(?:[,.]?\d){3,} (?:s|ms|µs|%)(?!\w)", text)
        if len(re.sub(r"\D", "", m[0]).strip("0")) > 3
    ]
    if not measured:
        return found
    for sentence in split(text):
        counted = {"words": (words(sentence), MOST_WORDS), "numbers": (numbers(sentence), MOST_NUMBERS)}
        counted["brackets"] = sentence.count(" ("), MOST_BRACKETS
        found += [f"{n} {what} of {most}: {sentence}" for what, (n, most) in counted.items() if n > most]
    return found
