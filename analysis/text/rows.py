"""A row in words: what was computed, how, how fast; of a training where and how it ran and what it learned."""

from collections.abc import Callable, Iterable

from analysis import labels, units
from analysis.stats import of, quick_seconds
from analysis.text.sentences import counted
from analysis.training import break_even, side_by_side
from analysis.units import count, digits, percent, seconds, size
from kernels.problems import AtOnce, Conv, Inference, Matmul, Problem, Training, Transfer
from workloads.records import Measurement

_LEARNED = 0.05  # of the first loss: what is left when nearly all is learned
_FALL = 0.005  # of the first loss: a last one that is no farther below has not fallen
_NO_LOSS = 1e-6
_NOISY = 0.05  # of a step: noise worth a word
_LOOPS = {"tensorflow": "tf", "jax": "jax"}
# Options by their names, {} the text that was given; one that is not here is said as `name text`.
_OPTIONS = {
    "steps_per_execution": "{} steps an execution",
    "tf32": "TF32 {}",
    "precision": "{}",
    "targets": "{} targets",
    "TF_ENABLE_ONEDNN_OPTS": "TF_ENABLE_ONEDNN_OPTS={}",
    "gpu": "GPU {}",
    "keras_backend": "Keras on {}",
    "jit_compile": "jit {}",
    "residence": "{}",
    "data": "{} data",
    "replicas": "{} GPUs",
    "strategy": "{}",
    "in_flight": "{} in flight",
    "at_once": "{} at once",
}
_TEXTS = {
    ("residence", "resident"): "the whole set on the device",
    ("residence", "generator"): "a Python generator",
    ("residence", "fed"): "fed each step",
    ("residence", "prefetch"): "tf.data prefetched to the device",
    ("beside", "nothing"): "alone",
    ("beside", "student"): "beside a student",
    ("beside", "teacher"): "beside a teacher",
    ("beside", "fits"): "beside its like",
}


def option_words(given: Iterable, without: Iterable[str] = ()) -> list[str]:
    """Options that are not their default, in words."""
    shown = [(n, text) for n, text in dict(given).items() if n not in without and (n, text) != ("data", "synthetic")]
    return [_TEXTS.get((n, text)) or _OPTIONS.get(n, f"{n} {{}}").format(text) for n, text in shown]


def where(m: Measurement) -> str:
    """The device, the CPU's form and threads, for a table: `cpu jit x4`, `cpu seen`, `gpu:0`."""
    form = break_even.form_of(m)
    words = (m.device, "seen" * form.startswith("GPU visible"), "jit" * form.endswith("jit on"))
    return " ".join(filter(None, (*words, f"x{m.threads}" if m.threads else "")))


def way(m: Measurement) -> str:
    """How it was trained and where the samples lived: fit, prefetch, resident, jax loop, jax fed."""
    home = m.keras.residence
    if m.variant.endswith("loop"):
        return f"{_LOOPS[m.backend]} {'fed' if home == 'fed' else 'loop'}"
    return m.variant if home == "numpy" else home


def notes(m: Measurement) -> list[str]:
    """What else a training's row should say: how it was compiled, further options, its noise where it is wide, flags."""
    said = ["jit" if m.values["jit_compile"] else "op by op"] if "jit_compile" in m.values else []
    said += option_words(m.settings.switches, ("residence", "jit_compile", "gpu"))
    said += [m.problem.dtype] * (m.problem.dtype != "float32")
    timed = m.on("host-latency")  # None where fresh processes started alone
    if not timed:
        said += [f"{len(m.series['import_s'])} starts"] * ("import_s" in m.series)
    elif m.kernel == side_by_side.TRIAL:
        apart = "a process each" if m.process == "fresh" else "one process"
        said += [f"{len(timed.seconds)} trials", apart, f"{seconds(side_by_side.trial_seconds(m))} each"]
    elif of(timed).noise > _NOISY:
        said.append(f"+-{percent(of(timed).noise)}")
    return [*said, *m.flags]


def losses(m: Measurement) -> str:
    """What a row learned: its own fit's losses, first and last, and those of a short run from the first weights; that it does
    not learn where they do not fall."""
    said = []
    for name, epochs, what in (("job_", m.problem.epochs, ""), ("", len(m.series.get("loss", ())), " of few samples")):
        if taken := m.series.get(f"{name}loss"):
            right = m.series.get(f"{name}accuracy", ())
            accuracy = f", accuracy {percent(right[0])} to {percent(right[-1])}" if right else ""
            learned = right[-1] > 1 - _LEARNED if right else taken[-1] < _LEARNED
            falls = len(taken) < 2 or learned or taken[-1] < (1 - _FALL) * taken[0]
            first, last = (digits(x) if x >= _NO_LOSS else f"under {_NO_LOSS:f}" for x in (taken[0], taken[-1]))
            stuck = "" if falls else "does not learn: "
            said.append(f"{stuck}loss {first} to {last}{accuracy} in {count(epochs, 'epoch')}{what}")
    return "; ".join(said)


def problem(p: Problem) -> str:
    """What was computed, in a few words: with the arithmetic beside it no two problems say the same."""
    return _PROBLEMS[p.op](p)


def _exactly(nbytes: int) -> str:
    """In KiB, MiB or GiB where three digits say it all."""
    number, unit = size(nbytes).split()
    whole = float(number) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}.get(unit, 1)
    return size(nbytes) if whole == nbytes else f"{nbytes:,} bytes"


def _products(p: Matmul | Conv) -> str:
    return labels.shape(p) + f" to {p.out}" * (p.out != p.dtype)


def _inference(p: Training | Inference, *sizes: str) -> str:
    return ", ".join([p.model, f"batch {p.batch}", *sizes, *[f"{p.dtype} inputs"] * (p.dtype != "float32")])


def _copy(p: Transfer) -> str:
    beside = f"beside {p.compute} in {count(p.chunks, 'chunk')} on {count(p.streams, 'stream')}" if p.compute else ""
    return " ".join(filter(None, (p.direction, p.host_memory, _exactly(p.nbytes), beside)))


def _at_once(p: AtOnce) -> str:
    what = f"{p.math} product of side {p.size}" if p.operation == "matmul" else f"{p.operation} of {size(p.size)}"
    return f"{what} while {p.gpus} work" if p.together > 1 else f"{what} alone"


_PROBLEMS: dict[str, Callable] = {
    "matmul": _products,
    "conv": _products,
    "stream": lambda p: f"{p.operation} {_exactly(p.nbytes)} {p.dtype}",
    "peak": lambda p: f"{p.flops:,} FLOP",
    "training": lambda p: _inference(p, counted(p.samples, "samples"), counted(p.epochs, "epochs")),
    "inference": _inference,
    "feeding": lambda p: f"{p.batch:,} of {p.samples:,} samples of {p.width:,} {p.dtype} values",
    "transfer": _copy,
    "launch": lambda p: p.call + f" x{p.count} together" * (p.count > 1),
    "peer": lambda p: f"gpu-{p.source} {'<->' if p.ways == 2 else '->'} gpu-{p.target} {size(p.nbytes)}",
    "collective": lambda p: f"{p.form} {p.dtype} {size(p.nbytes)} over {p.gpus}",
    "at-once": _at_once,
}


def how(m: Measurement) -> str:
    """How it was run, beside device and threads: how data get there, what lies in the caches; of whole models the CPU's form and
    the options that are not their default. `-` where nothing is but as usual."""
    s, form = m.settings, break_even.form_of(m) if m.problem.model else ""
    words = [s.mode] * (s.mode != "resident" or m.problem.op != "training") + [f"{s.reuse} uses"] * (s.reuse > 1)
    words += [s.cache] * (s.cache != "warm") + ["a fresh process each"] * (s.process == "fresh")
    said = ("gpu", "jit_compile")[: 1 + (s.keras.jit_compile == "on")] if form else ()
    return ", ".join([*words, *[form] * bool(form), *option_words(s.switches, said)]) or "-"


def rate(m: Measurement) -> str:
    """GB/s of what moves bytes, FLOP/s of what computes, on the clock that rooflines use."""
    time = quick_seconds(m)
    return "-" if time is None else units.rate(m.problem, time)
