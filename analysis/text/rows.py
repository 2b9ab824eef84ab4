"""A row in words: how it was run and how fast. A training's row also says where the samples lived and what it learned."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from analysis import units
from analysis.numbers import share
from analysis.stats import Estimate, median_of, quick_seconds
from analysis.training import break_even, contention
from analysis.units import count, percent, seconds
from workloads.records import Measurement

_LEARNED = 0.05  # of the first loss: what is left when nearly all is learned
_FALL = 0.005  # of the first loss: a last one that is no farther below has not fallen
_NOISY = 0.05  # of a step: noise worth a word
_LOOPS = {"tensorflow": "tf", "jax": "jax"}
# Options by their names, {} its text; one that is not here is written as `name text`.
_OPTIONS = {
    "steps_per_execution": "{} steps an execution",
    "tf32": "TF32 {}",
    "precision": "{}",
    "gpu": "GPU {}",
    "keras_backend": "Keras on {}",
    "jit_compile": "jit {}",
    "residence": "{}",
    "data": "{} data",
    "replicas": "{} GPUs",
    "strategy": "{}",
}


def option_words(options: Mapping[str, str] | Iterable[tuple[str, str]], without: Collection[str] = ()) -> list[str]:
    """Options that differ from their defaults, in words: `jit on`, `2 GPUs`. options: by name; rows store no defaults, but for
    data that are made up. without: names that are left out.
    """
    words = []
    for name, text in dict(options).items():
        if name in without or (name, text) == ("data", "synthetic"):
            continue
        template = _OPTIONS.get(name, f"{name} {{}}")
        words.append(template.format(text))
    return words


def loop_name(m: Measurement) -> str:
    """How a row was trained in a word or two: `jax loop` by bare steps on samples that are on the GPU, `jax fed` by bare steps to
    which batches are copied, else the place of the samples of Keras's fit (prefetch, resident), or fit for NumPy arrays.
    """
    home = m.keras.residence
    if m.variant.endswith("loop"):
        return f"{_LOOPS[m.backend]} {'fed' if home == 'fed' else 'loop'}"
    return m.variant if home == "numpy" else home


def notes(m: Measurement, step: Estimate | None = None) -> list[str]:
    """Notes on a training's row: how it was compiled, options that are no defaults, how noisy its step is, flags. step: the
    seconds of its step; None to take them from the row's samples.
    """
    problem = m.problem
    notes = []
    if "jit_compile" in m.values:
        notes.append("jit" if m.values["jit_compile"] else "op by op")
    notes += option_words(m.settings.switches, ("residence", "jit_compile"))
    if problem.dtype != "float32":
        notes.append(problem.dtype)
    if problem.samples < problem.batch:
        notes.append(f"batches of {problem.samples}")
    compile_last = m.phases_s.get("compile_last")
    if compile_last:
        notes.append(f"last batch of {problem.samples % problem.batch} compiled in {seconds(compile_last)}")
    return [*notes, *_timing_notes(m, step), *m.flags]


def _timing_notes(m: Measurement, step: Estimate | None) -> list[str]:
    """A note on a row's times: of a row that only started processes their number, of trials (short trainings of a search) their
    number and seconds, of a step its noise if that is above _NOISY.
    """
    timed = m.on("host-latency")
    if not timed:
        return [f"{len(m.series['import_s'])} starts"]
    if m.kernel == contention.TRIAL:
        processes = "a process each" if m.process == "fresh" else "one process"
        return [f"{len(timed.seconds)} trials", processes, f"{seconds(contention.trial_seconds(m))} each"]
    noise = (step or median_of(timed)).noise
    return [f"±{share(noise)}"] if noise > _NOISY else []


def losses(m: Measurement) -> str:
    """The first and the last loss of a row's fit, and of the short run on few samples that each row makes from its first
    weights; "" without losses. They are marked `does not learn` where they do not fall.
    """
    fit = _losses(m.series.get("job_loss", ()), m.series.get("job_accuracy", ()), count(m.problem.epochs, "epoch"))
    short = m.series.get("loss", ())
    run = _losses(short, m.series.get("accuracy", ()), f"{count(len(short), 'epoch')} of few samples")
    return "; ".join(filter(None, (fit, run)))


def _losses(losses: Sequence[float], accuracies: Sequence[float], epochs: str) -> str:
    """`loss 2.3 to 0.9, accuracy 10 % to 68 % in 10 epochs`: the first and last of each list; "" without losses. epochs: the
    number of epochs in words.
    """
    if not losses:
        return ""
    accuracy = ""
    learned = losses[-1] < _LEARNED
    if accuracies:
        accuracy = f", accuracy {percent(accuracies[0])} to {percent(accuracies[-1])}"
        learned = accuracies[-1] > 1 - _LEARNED
    falls = len(losses) < 2 or learned or losses[-1] < (1 - _FALL) * losses[0]
    words = f"loss {losses[0]:.3g} to {losses[-1]:.3g}{accuracy} in {epochs}"
    return words if falls else f"does not learn: {words}"


def how(m: Measurement) -> str:
    """How a row was run, without device and threads: its copy mode, caches and process; of models also whether the CPU ran with
    the GPU hidden and compiled, and options. Defaults are left out; `-` where nothing is left. The times of the input
    pipeline's study (operation feeding) are a batch's share of an epoch, which is said too.
    """
    settings = m.settings
    operation = m.problem.op
    words = []
    if settings.mode != "resident" or operation not in ("training", "feeding"):
        words.append(settings.mode)
    if operation == "feeding":
        words.append("an epoch's share")
    if settings.cache != "warm":
        words.append(settings.cache)
    if settings.process == "fresh":
        words.append("a fresh process each")
    form = break_even.form_of(m) if m.problem.model else ""
    in_form: tuple[str, ...] = ()
    if form:
        words.append(form)
        in_form = ("gpu", "jit_compile") if settings.keras.jit_compile == "on" else ("gpu",)
    words += option_words(settings.switches, in_form)
    return ", ".join(words) or "-"


def rate(m: Measurement) -> str:
    """The rate on the clock that rooflines use: GB/s of rows that move bytes, FLOP/s of those that compute; `-` without a
    time."""
    time = quick_seconds(m)
    return "-" if time is None else units.rate(m.problem, time)
