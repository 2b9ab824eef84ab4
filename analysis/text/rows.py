"""A row in words: how it was run and how fast. A training's row also says where the samples lived and what it learned."""

from collections.abc import Iterable

from analysis import units
from analysis.numbers import share
from analysis.stats import Estimate, median_of, quick_seconds
from analysis.training import break_even, side_by_side
from analysis.units import count, percent, seconds
from workloads.records import Measurement

_LEARNED = 0.05  # of the first loss: what is left when nearly all is learned
_FALL = 0.005  # of the first loss: a last one that is no farther below has not fallen
_NOISY = 0.05  # of a step: noise worth a word
_LOOPS = {"tensorflow": "tf", "jax": "jax"}
# Options by their names, {} the text that was given; one that is not here is said as `name text`.
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


def option_words(given: Iterable, without: Iterable[str] = ()) -> list[str]:
    """Options that are not their default, in words."""
    shown = [(n, text) for n, text in dict(given).items() if n not in without and (n, text) != ("data", "synthetic")]
    return [_OPTIONS.get(n, f"{n} {{}}").format(text) for n, text in shown]


def way(m: Measurement) -> str:
    """How it was trained and where the samples lived: fit, prefetch, resident, jax loop, jax fed."""
    home = m.keras.residence
    if m.variant.endswith("loop"):
        return f"{_LOOPS[m.backend]} {'fed' if home == 'fed' else 'loop'}"
    return m.variant if home == "numpy" else home


def notes(m: Measurement, step: Estimate | None = None) -> list[str]:
    """Notes on a training's row: how it was compiled, further options, its step's noise where that is wide, flags."""
    said = ["jit" if m.values["jit_compile"] else "op by op"] if "jit_compile" in m.values else []
    said += option_words(m.settings.switches, ("residence", "jit_compile"))
    said += [m.problem.dtype] * (m.problem.dtype != "float32")
    said += [f"batches of {m.problem.samples}"] * (m.problem.samples < m.problem.batch)
    if last := m.phases_s.get("compile_last"):
        said.append(f"last batch of {m.problem.samples % m.problem.batch} compiled in {seconds(last)}")
    timed = m.on("host-latency")  # None where fresh processes started alone
    if not timed:
        said += [f"{len(m.series['import_s'])} starts"]
    elif m.kernel == side_by_side.TRIAL:
        apart = "a process each" if m.process == "fresh" else "one process"
        said += [f"{len(timed.seconds)} trials", apart, f"{seconds(side_by_side.trial_seconds(m))} each"]
    elif (noise := (step or median_of(timed)).noise) > _NOISY:
        said.append(f"±{share(noise)}")
    return [*said, *m.flags]


def losses(m: Measurement) -> str:
    """First and last losses of a row's own fit, and of a short run from the first weights. Marked `does not learn` where they
    do not fall."""
    said = []
    for name, epochs, what in (("job_", m.problem.epochs, ""), ("", len(m.series.get("loss", ())), " of few samples")):
        taken, right = (m.series.get(name + kind, ()) for kind in ("loss", "accuracy"))
        if taken:
            learned = right[-1] > 1 - _LEARNED if right else taken[-1] < _LEARNED
            falls = len(taken) < 2 or learned or taken[-1] < (1 - _FALL) * taken[0]
            accuracy = f", accuracy {percent(right[0])} to {percent(right[-1])}" if right else ""
            loss = f"loss {taken[0]:.3g} to {taken[-1]:.3g}{accuracy} in {count(epochs, 'epoch')}{what}"
            said.append(loss if falls else f"does not learn: {loss}")
    return "; ".join(said)


def how(m: Measurement) -> str:
    """How a row was run, besides device and threads: copy mode, caches, process, for whole models the CPU's form and
    options; for the feeding study, that its time is an epoch's share. Defaults are left out; `-` where nothing is left."""
    s, form = m.settings, break_even.form_of(m) if m.problem.model else ""
    words = [s.mode] * (s.mode != "resident" or m.problem.op not in ("training", "feeding"))
    words += ["an epoch's share"] * (m.problem.op == "feeding")
    words += [s.cache] * (s.cache != "warm") + ["a fresh process each"] * (s.process == "fresh")
    said = ("gpu", "jit_compile")[: 1 + (s.keras.jit_compile == "on")] if form else ()
    return ", ".join([*words, *[form] * bool(form), *option_words(s.switches, said)]) or "-"


def rate(m: Measurement) -> str:
    """The rate on the clock that rooflines use: GB/s of rows that move bytes, FLOP/s of those that compute; `-` without a
    time."""
    time = quick_seconds(m)
    return "-" if time is None else units.rate(m.problem, time)
