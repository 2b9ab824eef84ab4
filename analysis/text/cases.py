"""The articles' cases and real complaints, answered: what was said, what was measured, and the points that an answer needs."""

from collections.abc import Callable

from analysis.explain.explanation import GPU, Explanation, Sources, predictor, settings_of
from analysis.predict.what_if import WhatIf
from analysis.roofline import overheads
from analysis.text import data_parallel, inference, published, verdicts
from analysis.text.explanation import Section, answer_sentence, likeliest, unsure
from analysis.text.explanation_tables import OVERHEAD, PARTS
from analysis.training import side_by_side
from analysis.training.break_even import BY_STEP
from analysis.units import about, digits, join, percent, seconds, size, times
from kernels import networks
from kernels.problems import Training
from workloads.records.published_cases import Case, Complaint, Question

_BELIEFS = {
    "S0": ("flops", "copy", "batch"),
    "S1a": ("flops", "batch"),
    "S1b": ("flops", "batch"),
    "S2": ("flops", "copy", "batch"),
    "S4": ("copy", "flops"),
    "keras-249": ("copy", "batch"),
    "tensorflow-5995": ("copy", "batch"),
    "indepth-mnist": ("flops", "copy"),
}


def sections(case: Case | Question | Complaint, e: Explanation, of: Sources) -> tuple[Section, ...]:
    """What a case's answer has beside a training's own."""
    rows = (of.gpu or of.cpu).measurements
    if isinstance(case, Question):
        return ((f"{case.name}: {case.title}", _QUESTIONS[case.name](e, of)),)
    if isinstance(case, Case):
        told = [published.sentence(b) for b in published.comparisons(rows, (case,))]
        told += _POINTS[case.name](e, of, case) if case.name in _POINTS else []
        return ((f"{case.name}: {case.title}; published beside what was measured", told),)
    seen = [verdicts.sentence(r, verdicts.measured(r, rows)) for r in case.reported]
    return (
        (f"{case.name}: {case.title}", _said(case)),
        ("Measured", seen),
        ("What answers it", _POINTS[case.name](e, of, case)),
    )


def _said(case: Complaint) -> list[str]:
    blamed = f" Blamed: {case.blames}." if case.blames else ""
    return [f"Reported: {case.said}.{blamed}", *([f"Otherwise here: {case.apart}."] if case.apart else [])]


def checked(case: Case | Question | Complaint | None, e: Explanation, of: Sources) -> list[str]:
    """The beliefs that belong to a case, checked; of a user's own model all of them."""
    found = published.check(e, of.cpu, of.gpu, predictor(e.asked, of))
    if case is not None:
        wanted = case.beliefs if isinstance(case, Question) else _BELIEFS.get(case.name, ())
        found = [b for b in found if b.name in wanted]
    return [b.sentence for b in found]


# ---------------------------------------------------------------- points, each from an explanation or from rows


def floor(e: Explanation, of: Sources) -> str:
    """The least that a step takes on the GPU, however small the model."""
    if not (e.gpu and of.gpu):
        return "The least that a step takes on the GPU is not known: no GPU was measured."
    parts = {n: e.gpu.parts[n].value for n in OVERHEAD if n in e.gpu.parts}
    named = join(f"{PARTS[n]} ({seconds(v)})" for n, v in parts.items() if v)
    own = f"of this model's step {seconds(sum(parts.values()))} are {named}"
    constant = verdicts.step_constant(of.gpu.constants, GPU)
    cpu = overheads.find(of.cpu.constants, "keras-step", "cpu")
    if not constant:
        return f"A step has a floor on the GPU: {own}."
    beside = f", on the CPU {seconds(cpu.seconds.value)}" if cpu else ""
    return (
        f"A step on the GPU has a floor of {about(constant.seconds)} (measured on a model with almost no "
        f"work{beside}): less no network takes; {own}."
    )


def flips(e: Explanation, varies: str) -> str:
    """Where the winner changes along a size."""
    found = next((a for a in e.crossovers if a.family.varies == varies and a.form.mode == BY_STEP), None)
    if found is None:
        return f"From which {varies} the GPU wins needs both devices' rows."
    said, end = answer_sentence(found), {"gpu-at-smallest": 0, "cpu-throughout": -1}.get(likeliest(found).kind)
    if end is None or unsure(found):
        return said
    p, least = found.points[end], "already" if end == 0 else "still"
    likely = "likely " * bool(found.bands)
    return (
        f"{said} It {likely}does not flip here: {least} at {varies} = {p.n:,} a step takes "
        f"{seconds(p.gpu.seconds.value)} on the GPU and {seconds(p.cpu.seconds.value)} on the CPU."
    )


def copies(e: Explanation) -> str:
    """What copying each batch takes."""
    if not e.gpu:
        return "What copying a batch takes needs a GPU's rows."
    calls, moved = (e.gpu.parts[n].value if n in e.gpu.parts else 0.0 for n in ("transfer calls", "transfer bytes"))
    t = e.asked.training
    nbytes = min(t.batch, t.samples) * networks.sample_bytes(e.asked.of, t.dtype)
    return (
        f"Copying each batch ({size(nbytes)}) takes {seconds(calls)} for the calls and {seconds(moved)} for the "
        f"bytes: {percent((calls + moved) / e.gpu.step_s.value)} of the GPU's step of "
        f"{seconds(e.gpu.step_s.value)}."
    )


def _what_if(e: Explanation, residence: str) -> "WhatIf | None":
    return next((w for w in e.what_ifs if w.change.settings.keras.residence == residence), None)


def kept_on_device(e: Explanation) -> str:
    """What keeping the data on the GPU would save."""
    found = _what_if(e, "resident")
    if found is None or found.job_saved is None or found.step_saved is None:
        return f"Keeping the data on the device could not be predicted{f': {found.why}' if found else ''}."
    return (
        f"Keeping the data on the device saves {about(found.step_saved)} of each step and "
        f"{about(found.job_saved)} of the job."
    )


def dispatch_not_pcie(e: Explanation) -> str:
    """Starting and launching set against the link; the calls that copy are of neither."""
    if not e.gpu:
        return "Dispatch and launch against PCIe need a GPU's rows."
    parts = e.gpu.parts
    host = sum(parts[n].value for n in ("dispatch", "launches") if n in parts)
    link = parts["transfer bytes"].value if "transfer bytes" in parts else 0.0
    step = e.gpu.step_s.value
    word = "not PCIe" if link < host else "PCIe"
    return (
        f"It is {'dispatch and launch, ' if link < host else ''}{word}: starting the step and its kernels takes "
        f"{seconds(host)} ({percent(min(1.0, host / step))} of the step), the bytes on the link {seconds(link)} "
        f"({percent(link / step)})."
    )


def larger_batch(e: Explanation, of: Sources) -> str:
    """What a bigger batch does to a sample's time."""
    if not (e.gpu and e.cpu):
        return "What a bigger batch does needs both devices' rows."
    return published.batch(e, predictor(e.asked, of)).sentence


def a_kernel(training: "Training") -> tuple[float, int]:
    """(FLOPs of a step's products for each of its operations, how many operations)."""
    works = networks.step(networks.find(training.model), min(training.batch, training.samples))
    return sum(w.flops for w in works if w.kind in ("dense", "conv")) / len(works), len(works)


def arithmetic_a_launch(e: Explanation, of: Sources, case: Complaint) -> list[str]:
    """FLOPs for each operation of the reported trainings beside each other, and who is predicted to win each."""
    each = {r.training.model: a_kernel(r.training) for r in case.reported}
    (small, few), (large, many) = ((name, each[name]) for name in each)
    told = [
        f"Arithmetic for each operation of a step: {digits(few[0] / 1e6)} MFLOP in {small} ({few[1]} "
        f"operations), {digits(many[0] / 1e6)} MFLOP in {large} ({many[1]}): {digits(many[0] / few[0])} times as "
        "much, while launching an operation costs the same."
    ]
    predict = predictor(e.asked, of)
    for r in case.reported:
        if not (e.cpu and e.gpu):
            break
        cpu, gpu = (predict(r.training, settings_of(e.asked, device)).step_s for device in ("cpu", GPU))
        ratio = cpu.value / gpu.value
        told.append(
            f"{r.training.model} at batch {r.training.batch}: predicted {seconds(gpu.value)} a step on the "
            f"GPU and {seconds(cpu.value)} on the CPU, the {'GPU' if ratio > 1 else 'CPU'} "
            f"{times(max(ratio, 1 / ratio))} as fast (reported: {r.words})."
        )
    return told


def attributed(e: Explanation, of: Sources) -> list[str]:
    """The dispatch of a step, measured, call by call."""
    told = []
    for profile, device in ((of.gpu, GPU), (of.cpu, "cpu")):
        for jit, how in (("on", "compiled"), ("off", "operation by operation")):
            constants = profile.constants if profile else ()
            step = overheads.find(constants, "keras-step", device, jit=jit)
            call = overheads.find(constants, "tf-jit-call" if jit == "on" else "tf-function-call", device)
            if step:
                where = "GPU" if device == GPU else "CPU"
                takes = f"takes {about(step.seconds)} {how}"
                rest = (
                    "of it is the call of a TensorFlow function, the rest Keras's own Python, its metrics and the batch"
                )
                inner = f"; {seconds(call.seconds.value)} {rest}" if call and call.seconds.value > 0 else ""
                told.append(f"Measured on the {where}: a Keras step of a model with almost no work {takes}{inner}.")
    if e.gpu:
        share = min(1.0, sum(e.gpu.parts[n].value for n in OVERHEAD if n in e.gpu.parts) / e.gpu.step_s.value)
        told.append(f"Of this step on the GPU {percent(share)} are such dispatch; a faster GPU shortens only the rest.")
    return told or ["The dispatch of a step was not measured: python -m workloads.launch --backends tensorflow"]


_POINTS: dict[str, Callable] = {
    "so-42097115": lambda e, of, case: [floor(e, of), flips(e, "width")],
    "keras-249": lambda e, of, case: [flips(e, "batch"), copies(e), kept_on_device(e)],
    "tensorflow-5995": lambda e, of, case: [dispatch_not_pcie(e), larger_batch(e, of)],
    "mxnet-2898": arithmetic_a_launch,
    "indepth-mnist": lambda e, of, case: attributed(e, of),
    "cntk-751": lambda e, of, case: [flips(e, "width"), floor(e, of)],
    "S4": lambda e, of, case: [dispatch_not_pcie(e), copies(e)],
}


# ---------------------------------------------------------------- articles' questions


def _residence(e: Explanation, of: Sources) -> list[str]:
    t = e.asked.training
    whole = t.samples * networks.sample_bytes(e.asked.of, t.dtype)
    return [
        f"The whole set is {size(whole)}; sent once it takes {_sent(of, whole)}.",
        copies(e),
        kept_on_device(e),
        larger_batch(e, of),
    ]


def _sent(of: Sources, nbytes: int) -> str:
    found = of.gpu.copying(nbytes, GPU) if of.gpu else None
    return seconds(found.value) if found else "a time that was not measured (python -m workloads.transfer)"


def _several(e: Explanation, of: Sources) -> list[str]:
    parts = e.sides[-1].parts
    host = sum(parts[n].value for n in OVERHEAD if n in parts)
    return [
        larger_batch(e, of),
        "TensorFlow uses one GPU unless a tf.distribute strategy shares each batch among several. Then each does a part of the "
        f"batch, and the dispatch of a step ({seconds(host)} here) stays: no gain without larger batches.",
        "More layers than fit one GPU are not helped by it: every GPU holds the whole model.",
        *(
            data_parallel.lines(of.gpu.measurements if of.gpu else ())
            or [
                "What more GPUs buy is not in these rows; python -m workloads.training --study data-parallel measures it on two "
                "or more"
            ]
        ),
    ]


def _counted(e: Explanation, of: Sources) -> list[str]:
    rest = "what was measured is below" if e.cpu and e.gpu else "to set a count beside steps takes both devices' rows"
    return [f"Lanes count only where arithmetic is the largest part of a step; {rest}."]


_QUESTIONS: dict[str, Callable] = {
    "S3a": _residence,
    "S3c": _several,
    "S3e": _counted,
    "S3b": lambda e, of: _inference(of),
    "S3d": lambda e, of: _teacher(of),
}


def _inference(of: Sources) -> list[str]:
    rows = [m for m in (of.gpu or of.cpu).measurements if m.problem.op == "inference"]
    return inference.lines(rows) or [
        "No answers were measured here: python -m workloads.inference --model inception-v3 --batch 1 8 32"
    ]


def _teacher(of: Sources) -> list[str]:
    rows = [m for m in (of.gpu or of.cpu).measurements if m.ok]
    return side_by_side.student_sentences(rows) or ["Not measured here: python -m workloads.training --study teacher"]


# ---------------------------------------------------------------- complaints about no training


def apart(case: Complaint, of: Sources) -> list[str]:
    """The answer to a complaint about no training, from transfer, stream and launch rows alone."""
    return [*_said(case), *verdicts.APART[case.name](case, (of.gpu or of.cpu).measurements)]
