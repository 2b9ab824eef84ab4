"""The training that an answer is about, what was assumed of it, and where its times come from."""

from analysis.explain.doubts import FLAGS
from analysis.explain.explanation import Explanation
from analysis.text import training
from analysis.text.explanation.lines import WIDTH
from analysis.text.rows import option_words
from analysis.text.sentences import MEASURED, PREDICTED, counted
from analysis.training.break_even import Setup
from analysis.training.costs import FIT
from analysis.units import count
from workloads.records.script_fit import ScriptFit


def subject(explanation: Explanation) -> str:
    """The training in words: `CIFAR-10 CNN, batch 32, 50,000 samples, 10 epochs`. Numbers that were assumed, as nobody gave
    them, stand at the end: `mine.py:build, batch 32, assumed: 50,000 samples, 10 epochs`.
    """
    request = explanation.request
    if request.script is not None:
        return script_subject(explanation, request.script)
    assumed = {one.name: counted(one.value, one.name) for one in explanation.assumed}
    size = request.training
    setup = Setup(
        kernel=FIT,
        model=size.model,
        batch=0 if "batch" in assumed else min(size.batch, size.samples),
        samples=0 if "samples" in assumed else size.samples,
        dtype=size.dtype,
        switches=tuple(request.switches.items()),
    )
    # Without both numbers training.subject would say that all samples are one batch; as for a crossover along the batch it does
    # not.
    is_batch_unknown = setup.batch == setup.samples == 0
    words = [training.subject(setup, "batch" if is_batch_unknown else "")]
    if "epochs" not in assumed:
        words.append(counted(size.epochs, "epochs"))
    words += _inputs(explanation)
    if assumed:
        words.append(f"assumed: {', '.join(assumed.values())}")
    return ", ".join(words)


def script_subject(explanation: Explanation, fit: ScriptFit) -> str:
    """A script's training in words: `train.py, fit at line 41: 1 input, 8,000 samples, batch 64, at most 20 epochs (from your
    script)`. Numbers that flags changed are named by these flags: `(from your script, but for --batch)`. fit: what the script
    says.
    """
    request = explanation.request
    size = request.training
    epochs = counted(size.epochs, "epochs")
    if fit.stops_early and size.epochs == fit.epochs:
        epochs = f"at most {epochs}"
    words = [
        count(fit.inputs, "input"),
        counted(size.samples, "samples"),
        f"batch {min(size.batch, size.samples):,}",
        epochs,
        *option_words(request.switches, without=("data",)),
        *_inputs(explanation),
    ]
    changed = []
    for name in ("batch", "samples", "epochs"):
        if getattr(size, name) != getattr(fit, name):
            changed.append(FLAGS[name])
    source = f"from your script, but for {', '.join(changed)}" if changed else "from your script"
    return f"{fit.head}: {', '.join(words)} ({source})"


def _inputs(explanation: Explanation) -> list[str]:
    """Words on float64 inputs and on validation, where the training has them."""
    words = []
    if explanation.request.training.dtype == "float64":
        words.append("float64 inputs")
    if explanation.request.validation:
        words.append(f"validated on {explanation.request.validation:,}")
    return words


def flags(explanation: Explanation) -> str:
    """`(--samples, --epochs)`: the flags that give what was assumed; "" where nothing was."""
    if not explanation.assumed:
        return ""
    return f"({', '.join(one.flag for one in explanation.assumed)})"


def sources(explanation: Explanation) -> str:
    """Where the times come from: `measured`, `predicted`, `GPU predicted`, or `from measured parts` where no row ran as many
    samples and epochs. The machine of a borrowed GPU is named too. "" without a time.
    """
    sides = explanation.sides
    if not sides:
        return ""
    predicted = [side.name for side in sides if side.cost.source == PREDICTED]
    if len(predicted) == len(sides):
        source = PREDICTED
    elif predicted:
        source = " ".join([*predicted, PREDICTED])
    elif all(side.ran for side in sides):
        source = MEASURED
    else:
        source = f"from {MEASURED} parts"
    return f"{source}, {explanation.borrowed}" if explanation.borrowed else source


def head(explanation: Explanation) -> list[str]:
    """The first line of an answer on a terminal: the training and the flags for what was assumed, and at the right end where
    its times come from. It is two lines where one is too short.
    """
    left = subject(explanation)
    right = sources(explanation)
    assumed_flags = flags(explanation)
    with_flags = f"{left} {assumed_flags}" if assumed_flags else left
    if not right:
        return [with_flags]
    gap = WIDTH - len(with_flags) - len(right)
    if gap > 1:
        return [with_flags + " " * gap + right]
    return [left, assumed_flags + right.rjust(WIDTH - len(assumed_flags))]


def heading(explanation: Explanation) -> str:
    """The same in one line, for Markdown."""
    words = f"{subject(explanation)} {flags(explanation)}" if explanation.assumed else subject(explanation)
    return f"{words}, {sources(explanation)}" if explanation.sides else words
