"""Where a training step's time goes, as far as it is measured: its parts, their sum, and the remainder, signed."""

from collections.abc import Iterable

import msgspec

from analysis.estimate import Estimate, of
from analysis.units import count, join, seconds, size
from kernels import networks
from kernels.networks import Network, Work
from kernels.problems import Problem, Training
from workloads import switches
from workloads.results import Measurement

OUR_OWN = ("numba", "cuda")  # kernels written here; every other backend is a library
NO_LAUNCH = "not measured yet: launches come with workloads.launch"
MORE_LAUNCHES = "not measured yet: beyond those of the small model's step, it takes how many kernels this model launches"
EPOCHS_OF = "epochs of "  # how the stop_reason of a long fit's samples begins, as workloads.fits writes it
FIT_SHARE = "fit and epochs around the steps"
SMALL_STEP = "Keras step of a model with almost no work"
NO_STREAM = "not measured yet: element-wise passes come with the layers' stream problems"
_TOTALS = {"sum": "explained", "step": "step", "remainder": "remainder"}  # the table's last lines and their fields


class Part(msgspec.Struct, frozen=True):
    """Seconds a step of one kind of work; None where they are not measured, and `why` says so or from what they come.

    `partial`: some of the part's operations have no measured row. `flags` are those of the rows that it comes from.
    """

    name: str
    seconds: Estimate | None
    why: str
    partial: bool = False
    flags: tuple[str, ...] = ()


class Budget(msgspec.Struct, frozen=True):
    """Seconds of one step on a device, what of them is accounted for, and the remainder: step minus the parts' sum."""

    training: Measurement
    step: Estimate
    parts: tuple[Part, ...]
    remainder: Estimate

    @property
    def device(self) -> str:
        return self.training.settings.device

    @property
    def explained(self) -> Estimate:
        return total(p.seconds for p in self.parts if p.seconds)

    @property
    def flags(self) -> list[str]:
        """What makes the budget doubtful: the flags of the step's row and of its parts' rows."""
        return list(dict.fromkeys((*self.training.flags, *(flag for p in self.parts for flag in p.flags))))

    @property
    def missing(self) -> list[str]:
        """The parts without a number."""
        return [p.name for p in self.parts if p.seconds is None]


def total(estimates: Iterable[Estimate]) -> Estimate:
    """The sum; the ends add too, so the interval holds however the parts hang together."""
    estimates = list(estimates)
    return Estimate(sum(e.value for e in estimates), sum(e.low for e in estimates), sum(e.high for e in estimates))


def difference(a: Estimate, b: Estimate) -> Estimate:
    return Estimate(a.value - b.value, a.low - b.high, a.high - b.low)


def budget(training: Measurement, measurements: Iterable[Measurement]) -> Budget:
    """The budget of a training row from the measured rows of the same device.

    Raises: ValueError for a row without samples.
    """
    samples = training.on("host-latency")
    if training.status != "ok" or not samples:
        raise ValueError(f"{training.kernel} has no time: {training.reason or training.status}")
    step = of(samples)
    parts = tuple(_parts(training, list(measurements)))
    return Budget(training, step, parts, difference(step, total(p.seconds for p in parts if p.seconds)))


def _problem(training: Measurement) -> Training:
    """What was trained; raises ValueError for a row that trains nothing."""
    if not isinstance(training.problem, Training):
        raise ValueError(f"{training.kernel} is not a training")
    return training.problem


def work(training: Measurement) -> tuple[Work, ...]:
    """The operations of one step of a training row, in the arithmetic that it was allowed; none for unknown models."""
    problem = _problem(training)
    if not networks.known(problem.model):
        return ()
    math = "tf32" if training.values.get("tf32") else "float32"
    return networks.step(networks.find(problem.model), min(problem.batch, problem.samples), "float32", math)


def gemms(training: Measurement) -> tuple[Problem, ...]:
    """The matrix products to measure for a training row's budget, each once."""
    return tuple(dict.fromkeys(w.problem for w in work(training) if w.problem and w.problem.op == "matmul"))


def _parts(training: Measurement, measurements: list[Measurement]) -> Iterable[Part]:
    every, device = work(training), training.settings.device
    network = networks.known(_problem(training).model)
    for name, kind in (("dense layers", "dense"), ("convolutions", "conv")):
        if network:
            yield _library_part(name, [w for w in every if w.kind == kind], device, measurements)
        else:
            yield Part(name, None, "not known: the model's layers are not in kernels.networks")
    yield Part("element-wise passes", None, NO_STREAM)
    if step := _small_step(training, measurements):
        yield step
    yield Part("launches", None, MORE_LAUNCHES if step else NO_LAUNCH)
    if share := _fit_share(training):
        yield share
    yield _copies(training, network, measurements)


def _fit_share(training: Measurement) -> Part | None:
    """What a fit and its epochs cost beyond their steps, shared among these; None where the row has no fits that tell."""
    from analysis import costs

    found, problem = costs.costs(training), _problem(training)
    if found is None or training.kernel.endswith("/loop"):  # a bare loop has neither
        return None
    steps, beyond = problem.epochs * problem.steps, found.epoch.scaled(problem.epochs)
    samples = training.on("host-latency")
    if samples and not samples.stop_reason.startswith(EPOCHS_OF):  # whose samples are its epochs: the fit around them is in none
        beyond = total((found.fit, beyond))
    if beyond.value <= 0:  # less than its noise
        return None
    why = f"shared by {count(steps, 'step')}; from fits that vary epochs and steps alone"
    return Part(FIT_SHARE, beyond.scaled(1 / steps), why)


def _small_step(training: Measurement, measurements: list[Measurement]) -> Part | None:
    """What Keras itself takes for a step, from a model with almost no work, compiled or not as the training was; None
    where that was not measured or the training does not say how it was compiled."""
    from analysis import overheads

    if "jit_compile" not in training.values:
        return None
    device, jit = training.settings.device, "on" if training.values["jit_compile"] else "off"
    found = overheads.find(overheads.constants(measurements), "keras-step", device, jit=jit)
    return Part(SMALL_STEP, found.seconds, f"measured with jit_compile {jit}: {found.source}") if found else None


def _library_part(name: str, every: list[Work], device: str, measurements: list[Measurement]) -> Part:
    """The sum of the fastest library kernel of each operation."""
    if not every:
        return Part(name, Estimate(0, 0, 0), "none in this network")
    found = [(w, fastest_library(w.problem, device, measurements)) for w in every]
    times = [_own_time(m) for _, m in found if m]
    if not times:
        return Part(name, None, next((w.why for w in every if w.why), _why_none(every, device, measurements)))
    used = join(dict.fromkeys(m.kernel for _, m in found if m))
    why = f"library kernels, measured: {used}"
    if flags := tuple(dict.fromkeys(flag for _, m in found if m for flag in m.flags)):
        why += f"; some rows are flagged {join(flags)}"
    if len(times) < len(every):
        why += f"; {len(every) - len(times)} of {len(every)} operations not measured"
    return Part(name, total(times), why, len(times) < len(every), flags)


def fastest_library(problem: Problem | None, device: str, measurements: Iterable[Measurement]) -> Measurement | None:
    """The quickest library row of a problem on a device, its data there already; None when there is none."""
    if problem is None:
        return None
    rows = [m for m in measurements if m.problem == problem and m.settings.device == device and _counts(m)]
    return min(rows, key=lambda m: _own_time(m).value, default=None)


def _counts(m: Measurement) -> bool:
    """Whether a row is a library's, with a time of the kernel alone."""
    timed = m.status == "ok" and m.settings.mode == "resident" and (m.on("device") or m.on("host-latency"))
    return bool(timed) and m.kernel.split("/")[1] not in OUR_OWN


def _own_time(m: Measurement) -> Estimate:
    """A kernel's own time: the device clock where there is one, since launches are a part of their own."""
    samples = m.on("device") or m.on("host-latency")
    assert samples
    return of(samples)


def _why_none(every: list[Work], device: str, measurements: list[Measurement]) -> str:
    wanted = {w.problem for w in every}
    reasons = [m.reason for m in measurements if m.problem in wanted and m.settings.device == device and m.reason]
    return f"not measured: {reasons[0]}" if reasons else "not measured yet: no library row for these sizes"


# Whose copies to the device count, the first that was measured: as Keras makes them, else plain ones of pageable memory.
_COPIERS = ("transfer/tensorflow/constant", "transfer/tensorflow/dataset", "transfer/cupy/array")


def _copies(training: Measurement, network: Network | None, measurements: list[Measurement]) -> Part:
    """The batch's way to the device by the law of its copies."""
    from analysis import links

    name, device, problem = "copies to the device", training.settings.device, _problem(training)
    if device == "cpu":
        return Part(name, Estimate(0, 0, 0), "none: the batch is in host memory")
    if not network:
        return Part(name, None, "not measured yet: copies come with workloads.transfer")
    nbytes = min(problem.batch, problem.samples) * networks.sample_bytes(network, problem.dtype)
    copies = [m for m in measurements if m.problem.op == "transfer" and m.settings.device == device and m.kernel in _COPIERS]
    fitted = links.fits(copies)
    law = next((x for kernel in _COPIERS if (x := links.find(fitted, "h2d", "pageable", kernel))), None)
    if law is None:
        return Part(name, None, f"not measured yet: {size(nbytes)} a batch; copies come with workloads.transfer")
    beyond = ", beyond the sizes measured" if law.extrapolates(nbytes) else ""
    return Part(name, law.seconds(nbytes), f"{size(nbytes)} a batch by the law of {law.kernel}{beyond}")


def budgets(measurements: Iterable[Measurement]) -> list[Budget]:
    """A budget for every training row that has a time."""
    rows = list(measurements)
    return [budget(m, rows) for m in rows
            if m.problem.op == "training" and m.status == "ok" and m.on("host-latency") and switches.ordinary(m)]  # fmt: skip


def device_words(device: str) -> str:
    """`the CPU`, `the GPU`, `GPU 1`."""
    return {"cpu": "the CPU", "gpu:0": "the GPU"}.get(device, f"GPU {device.partition(':')[2]}")


def where(training: Measurement) -> str:
    """The device of a row in words, with its threads when they were chosen."""
    threads = training.settings.threads
    return device_words(training.settings.device) + (f" ({count(threads, 'thread')})" if threads else "")


def subject(training: Measurement) -> str:
    """Model and batch in a few words."""
    problem = _problem(training)
    network = networks.known(problem.model)
    name = f"{problem.model} ({network.seed})" if network and network.seed else problem.model
    return f"{name} at batch {problem.batch}"


def sentence(made: Budget) -> str:
    """The budget in one or two sentences: the step, what accounts for it, and what is not explained."""
    known = [(p.name, f"{seconds(p.seconds.value)} ({_share(p.seconds, made.step)})") for p in made.parts
             if p.seconds and p.seconds.value > 0]  # fmt: skip
    accounts = [f"{_whose(name)} {'' if i else _accounts(name)}for {amount}" for i, (name, amount) in enumerate(known)]
    shared = ", with its share of the fit and its epochs" if any(p.name == FIT_SHARE for p in made.parts) else ""
    start = f"{subject(made.training)} takes {seconds(made.step.value)} a step{shared} on {where(made.training)}"
    doubt = f" (doubtful: rows are flagged {join(made.flags)})" if made.flags else ""
    return f"{start}{'; ' + join(accounts) if accounts else ''}; {_rest(made)}{doubt}."


def _whose(name: str) -> str:
    return f"a {name}" if name == SMALL_STEP else f"its {name}"


def _accounts(name: str) -> str:
    return "accounts " if name == SMALL_STEP else "account "


def _rest(made: Budget) -> str:
    amount, share = seconds(abs(made.remainder.value)), _share(made.remainder, made.step)
    verb = "is" if len(made.missing) == 1 else "are"
    missing = f": {join(made.missing)} {verb} not measured yet" if made.missing else ""
    if made.remainder.value < 0:
        high = "so they are counted too high" if made.device == "cpu" else "so some run at the same time or are counted too high"
        why = high if made.remainder.high < 0 else "which is within their noise"
        if made.flags and made.remainder.high < 0:
            why = "which cannot be: the machine was busy meanwhile, so measure again when it is quiet"
        return f"its parts come to {amount} more than the step ({share}), {why}"
    return f"{amount} ({share}) is not explained yet{missing}"


def _share(part: Estimate, whole: Estimate) -> str:
    return f"{100 * part.value / whole.value:.0f} %"


def sentences(measurements: Iterable[Measurement]) -> list[str]:
    """A sentence for every training row, those without a time included."""
    rows = list(measurements)
    said = [sentence(b) for b in budgets(rows)]
    lost = [m for m in rows if m.problem.op == "training" and m.status != "ok"]
    return said + [f"{subject(m)} has no time on {where(m)} ({m.status}): {m.reason}" for m in lost]


def table(made: list[Budget]) -> list[str]:
    """The budgets of one training side by side as a Markdown table: a line a part, then sum, step and remainder."""
    heads = [where(b.training).removeprefix("the ") for b in made]
    names = dict.fromkeys(p.name for b in made for p in b.parts)
    lines = [_line("a step", heads), "| --- |" + " ---: |" * len(made)]
    lines += [_line(name, [_cell(next(p for p in b.parts if p.name == name), b) for b in made]) for name in names]
    lines += [_line(name, [_amount(getattr(b, field), b) for b in made]) for name, field in _TOTALS.items()]
    return [*lines, _line("remainder's interval", [_ends(b.remainder) for b in made])]


def _line(name: str, cells: list[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in (name, *cells)) + " |"


def _cell(part: Part, of_: Budget) -> str:
    if part.seconds is None:
        return part.why.partition(":")[0]
    return _amount(part.seconds, of_) + (" (in part)" if part.partial else "")


def _amount(time: Estimate, of_: Budget) -> str:
    return f"{_signed(time.value)} ({_share(time, of_.step)})"


def _ends(time: Estimate) -> str:
    return f"{_signed(time.low)} to {_signed(time.high)}"


def _signed(time: float) -> str:
    return ("-" if time < 0 else "") + seconds(abs(time))


def notes(made: list[Budget]) -> list[str]:
    """Where each number comes from, or why there is none: a line a part, devices that say the same together."""
    said: dict[str, list[str]] = {}
    for b in made:
        texts = [f"{p.name}: {p.why}" for p in b.parts]
        texts += [f"step: its row is flagged {join(b.training.flags)}"] if b.training.flags else []
        for text in texts:
            said.setdefault(text, []).append(where(b.training))
    return [f"- {text}" + (f" ({join(on)})" if len(on) < len(made) else "") for text, on in said.items()]


def lines(measurements: Iterable[Measurement]) -> list[str]:
    """The Keras section as Markdown: the sentences, then for each training a small table of its devices."""
    rows = list(measurements)
    found = [line for text in sentences(rows) for line in (text, "")]
    groups: dict[tuple, list[Budget]] = {}
    for b in budgets(rows):
        switches = tuple(sorted(b.training.settings.switches.items()))
        groups.setdefault((b.training.problem, switches), []).append(b)
    for made in groups.values():
        found += [*table(made), "", *notes(made), ""]
    return found[:-1]
