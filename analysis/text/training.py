"""Rows in words: what was computed, how, and how fast; of trainings their names, options, and what they learned."""

from collections.abc import Callable, Iterable

import msgspec

from analysis import labels, units
from analysis.stats import of, quick_seconds
from analysis.text import peers, sentences
from analysis.training import break_even, side_by_side
from analysis.training.break_even import Pair, Setup
from analysis.training.costs import TrainingCost
from analysis.units import about, count, digits, percent, seconds, size
from kernels.problems import Conv, Inference, Matmul, Training, Transfer
from workloads.records import SAMPLES, Measurement

# Switches that have no words of their own: name -> how it is said, {} its text.
_SAID = {
    "steps_per_execution": "{} steps an execution",
    "tf32": "TF32 {}",
    "precision": "{}",
    "dropout": "dropout {}",
    "targets": "{} targets",
    "shuffle": "shuffle {}",
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
    "clear_session": "clear_session {}",
}


_OTHER = 2.0  # losses this many times apart are not alike
_LEARNED = 0.05  # of the first loss: what is left when nearly all is learned
_FALL = 0.005  # of the first loss: a last one that is no farther below has not fallen
_NO_LOSS = 1e-6
_NOISY = 0.05  # of a step: noise worth a word
_LOOPS = {"tensorflow": "tf loop", "jax": "jax loop"}
_TEXTS = {
    "residence": {
        "resident": "the whole set on the device",
        "generator": "a Python generator",
        "fed": "fed each step",
        "prefetch": "tf.data prefetched to the device",
    },
    "beside": {
        "nothing": "alone",
        "student": "beside a student",
        "teacher": "beside a teacher",
        "fits": "beside its like",
    },
}


def step_words(cost: TrainingCost) -> str:
    """Seconds of a step, with its interval where that is wide; `at most` where it is an upper bound."""
    return "at most " * cost.bound + about(cost.step)


def switch_words(given: "Iterable", without: Iterable[str] = ()) -> list[str]:
    """Switches that are not their default, in words."""
    named = {
        name: text
        for name, text in dict(given).items()
        if name not in without and (name, text) != ("data", "synthetic")
    }
    return [
        _TEXTS.get(name, {}).get(text) or _SAID.get(name, f"{name} {{}}").format(text) for name, text in named.items()
    ]


def subject(setup: Setup, varies: str = "") -> str:
    """`CIFAR-10 CNN, batch 32, 50,000 samples`, and how it was trained where that is not Keras's fit of NumPy arrays; what varies
    is left out."""
    if setup.batch == setup.samples and varies != "batch":
        sizes = [f"{setup.samples:,} samples in one batch" if setup.samples else "all samples in one batch"]
    else:
        sizes = [f"batch {setup.batch:,}"] * bool(setup.batch) + [f"{setup.samples:,} samples"] * bool(setup.samples)
    given = dict(setup.switches)
    _, backend, variant = setup.kernel.split("/")
    loop = variant.endswith("loop")
    how = [] if variant == "fit" else [f"{backend} loop" if loop else "one loop on the device"]
    home = {"numpy": [], "fed": ["fed each step"], "resident": ["data resident"] * loop}
    how += home.get(given.get("residence", "numpy"), [str(given.get("residence"))])
    how += switch_words(given, ("residence",)) + [f"{setup.dtype} inputs"] * (setup.dtype not in ("float32", "float64"))
    return ", ".join([sentences.title(setup.model), *sizes, *how])


def whole_job(setup: Setup, varies: str = "") -> tuple[str, Setup]:
    """(`10 epochs`, or `60,000 samples, 10 epochs, from its parts`, the setup without its own samples): which whole training a
    setup is judged by; the setup as it is where that has its samples."""
    samples, epochs = break_even.planned(setup, varies)
    words = sentences.counted(epochs, "epochs")
    if samples == setup.samples:
        return words, setup
    return f"{samples:,} samples, {words}, from its parts", msgspec.structs.replace(setup, samples=0)


def where_word(m: "Measurement") -> str:
    """The device, its form and threads, for a table: `cpu jit x4`, `cpu visible`, `gpu:0`."""
    form = break_even.form_of(m)
    jit, seen = form.endswith("jit on"), form.startswith("GPU visible")
    threads = f"x{m.threads}" if m.threads else ""
    return " ".join(filter(None, (m.device, "seen" * seen, "jit" * jit, threads)))


def way_word(m: "Measurement") -> str:
    """How it was trained and where the samples lived: fit, prefetch, resident, jax loop, jax fed."""
    backend, variant = m.backend, m.variant
    home = m.keras.residence
    if not variant.endswith("loop"):
        return variant if home == "numpy" else home
    return _LOOPS[backend].replace("loop", "fed") if home == "fed" else _LOOPS[backend]


def notes(m: "Measurement") -> list[str]:
    """What else a row should say: how it was compiled, further switches, its noise where it is wide, flags."""
    said = ["jit" if m.values["jit_compile"] else "op by op"] if "jit_compile" in m.values else []
    said += switch_words(m.settings.switches, ("residence", "jit_compile", "gpu"))
    said += [m.problem.dtype] * (m.problem.dtype != "float32")
    timed = m.on("host-latency")  # None where fresh processes started alone
    if m.kernel == side_by_side.TRIAL and timed:
        apart = "a process each" if m.process == "fresh" else "one process"
        said += [f"{len(timed.seconds)} trials", apart, f"{seconds(side_by_side.trial_seconds(m))} each"]
    noise = of(timed).noise if timed and m.kernel != side_by_side.TRIAL else 0.0
    said += [f"{len(m.series.get('import_s', ()))} starts"] * ("import_s" in m.series and not timed)
    return [*said, *[f"+-{percent(noise)}"] * (noise > _NOISY), *m.flags]


def _last_losses(a: "Measurement", b: "Measurement") -> tuple[str, float, float] | None:
    """(after what, each one's last loss) of two rows of one training: of their own fits where both have as many epochs."""
    if "job_loss" in a.series and "job_loss" in b.series and a.problem.epochs == b.problem.epochs:
        return f"after {count(a.problem.epochs, 'epoch')}", a.series["job_loss"][-1], b.series["job_loss"][-1]
    if a.series.get("loss") and b.series.get("loss"):
        return (
            f"after {count(len(a.series['loss']), 'epoch')} of few samples",
            a.series["loss"][-1],
            b.series["loss"][-1],
        )
    return None


def loss_sentence(pair: Pair, measurements: "Iterable[Measurement]" = ()) -> str:
    """Where the two devices end at losses that differ by more than a factor after learning from the same samples: by how much,
    and what could be why, if none of the `measurements` says that it is not; "" where they agree, or both have learned nearly
    all that there is."""
    gpu = pair.gpu.row
    cpu = next((side.row for side in pair.cpus if _same_samples(side.row, gpu)), None)
    if not (cpu and (found := _last_losses(cpu, gpu))):
        return ""
    when, a, b = found
    if not _apart(a, b) or max(a, b) < _LEARNED * max(cpu.series["loss"][0], gpu.series["loss"][0]):
        return ""
    why = _why_apart(pair, cpu, measurements)
    return f"{subject(pair.setup)}: {when} the loss is {digits(a)} on the CPU, {digits(b)} on the GPU. {why}".strip()


def _same_samples(a: "Measurement", b: "Measurement") -> bool:
    return a.notes.get(SAMPLES) == b.notes.get(SAMPLES)


def _apart(a: float, b: float) -> bool:
    return max(a, b) > _OTHER * min(a, b)


def _why_apart(pair: Pair, cpu: "Measurement", measurements: "Iterable[Measurement]") -> str:
    """TF32, where the GPU uses it and the same training without it is not known to end as far from the CPU."""
    gpu = pair.gpu.row
    if not gpu.values.get("tf32"):
        return ""
    plain = msgspec.structs.replace(pair.setup, switches=tuple(sorted((*pair.setup.switches, ("tf32", "off")))))
    for m in measurements:
        if m.problem.op == "training" and m.device == gpu.settings.device and break_even.setup_of(m) == plain:
            found = _last_losses(cpu, m) if m.ok and _same_samples(cpu, m) else None
            if found and _apart(*found[1:]):
                return f"With --tf32 off it is {digits(found[2])} on the GPU too."
    return "The GPU's products are in TF32, which may be why. Try --tf32 off."


def losses(m: "Measurement") -> str:
    """What a row learned: its own fit's losses, first and last, and those of a short run from the first weights; that it does
    not learn where they do not fall."""
    said = []
    for name, epochs in (("job_", m.problem.epochs), ("", len(m.series.get("loss", ())))):
        if taken := m.series.get(f"{name}loss"):
            right = m.series.get(f"{name}accuracy", ())
            accuracy = f", accuracy {percent(right[0])} to {percent(right[-1])}" if right else ""
            what = "" if name else " of few samples"
            stuck = "" if _falls(taken, right) else "does not learn: "
            said.append(
                f"{stuck}loss {_loss(taken[0])} to {_loss(taken[-1])}{accuracy} in {count(epochs, 'epoch')}{what}"
            )
    return "; ".join(said)


def _falls(taken: tuple[float, ...], right: tuple[float, ...]) -> bool:
    """Whether the losses of several epochs fall by more than next to nothing; where nearly all is learned they need not."""
    learned = right[-1] > 1 - _LEARNED if right else taken[-1] < _LEARNED
    return len(taken) < 2 or learned or taken[-1] < (1 - _FALL) * taken[0]


def _loss(value: float) -> str:
    return digits(value) if value >= _NO_LOSS else f"under {_NO_LOSS:f}"


def problem(m: "Measurement") -> str:
    """What was computed, in a few words: with the arithmetic beside it no two problems say the same."""
    return _PROBLEMS[m.problem.op](m.problem)


def _products(p: "Matmul | Conv") -> str:
    return labels.shape(p) + f" to {p.out}" * (p.out != p.dtype)


def _model(p: "Training | Inference") -> str:
    inputs = f", {p.dtype} inputs" * (p.dtype != "float32")
    if isinstance(p, Inference):
        return f"{p.model}, batch {p.batch}{inputs}"
    samples = f"{p.samples:,} {'samples' if p.samples != 1 else 'sample'}"
    return f"{p.model}, batch {p.batch}, {samples}, {count(p.epochs, 'epoch')}{inputs}"


def _copy(p: "Transfer") -> str:
    beside = f"beside {p.compute} in {count(p.chunks, 'chunk')} on {count(p.streams, 'stream')}" if p.compute else ""
    return " ".join(filter(None, (p.direction, p.host_memory, _exactly(p.nbytes), beside)))


_PROBLEMS: dict[str, Callable] = {
    "matmul": _products,
    "conv": _products,
    "stream": lambda p: f"{p.operation} {_exactly(p.nbytes)} {p.dtype}",
    "peak": lambda p: f"{p.flops:,} FLOP",
    "training": _model,
    "inference": _model,
    "feeding": lambda p: f"{p.batch:,} of {p.samples:,} samples of {p.width:,} {p.dtype} values",
    "transfer": _copy,
    "launch": lambda p: p.call + f" x{p.count} together" * (p.count > 1),
    **dict.fromkeys(("peer", "collective", "at-once"), peers.words),
}


def _exactly(nbytes: int) -> str:
    """In KiB, MiB or GiB where three digits say it all."""
    number, unit = size(nbytes).split()
    whole = float(number) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}.get(unit, 1)
    return size(nbytes) if whole == nbytes else f"{nbytes:,} bytes"


def how(m: "Measurement") -> str:
    """How it was run, beside device and threads: how data get there, what lies in the caches; of whole models the CPU's form and
    the switches that are not their default. `-` where nothing is but as usual."""
    s, whole = m.settings, bool(m.problem.model)
    words = [s.mode] * (s.mode != "resident" or m.problem.op != "training") + [f"{s.reuse} uses"] * (s.reuse > 1)
    words += [s.cache] * (s.cache != "warm") + ["a fresh process each"] * (s.process == "fresh")
    form = break_even.form_of(m) if whole else ""
    said = ("gpu", "jit_compile")[: 1 + (s.keras.jit_compile == "on")] if form else ()
    return ", ".join([*words, *[form] * bool(form), *switch_words(s.switches, said)]) or "-"


def rate(m: "Measurement") -> str:
    """GB/s of what moves bytes, FLOP/s of what computes, on the clock that rooflines use."""
    time = quick_seconds(m)
    return "-" if time is None else units.rate(m.problem, time)
