"""One training explained on both devices: predictions side by side, crossover, memory, cost, and what would help.

A record of numbers, which analysis.text.explanation puts into words.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from analysis.crossover import crossover
from analysis.crossover.crossover import Answer
from analysis.crossover.families import Family
from analysis.explain import doubts, sides, used_rows
from analysis.explain.doubts import Assumption
from analysis.explain.sides import Side
from analysis.finding import Warning
from analysis.predict import what_if
from analysis.predict.borrowed_gpu import completed, host_factor, rescaled, start_factor
from analysis.predict.combine import HOST, total_of
from analysis.predict.memory import Memory, memory
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Lacking, Profile, all_of
from analysis.predict.step_work import UnknownShare, unknown_share
from analysis.predict.what_if import WhatIf
from analysis.stats import Estimate, faster
from analysis.training import break_even
from analysis.training.break_even import BY_JOB, BY_STEP, Trained
from analysis.training.costs import TrainingCost
from analysis.training.measured_training import measured_training, ran_all_samples, tells_whole
from analysis.training.price import Cost, cost
from kernels import networks
from kernels.networks import Network
from kernels.networks.layers import unknown as unknown_layers
from kernels.problems import Training
from workloads.records import Measurement, Row, Settings
from workloads.records import settings as switches
from workloads.records.script_fit import ScriptFit

GPU = "gpu:0"
_MOST_BATCH, _BATCH_STEP = 4096, 4
_HALVINGS = 5  # of the space between two sizes where the winner changes: from a factor of 10 to 1.07


class Request(msgspec.Struct, frozen=True):
    """A training to explain. `network`: of a user's own model. `prices`: device (cpu, gpu) -> money an hour. `validation`:
    samples evaluated after each epoch. `varies`, `sizes`: a crossover wanted beside the batch's. `assumed`: which of batch,
    samples and epochs nobody gave. `starting_s`: seconds that building the model just took, TensorFlow's import among them.
    `script`: the first fit of the script that this is, with its own numbers; None of other trainings."""

    training: Training
    network: "Network | None" = None
    switches: dict[str, str] = {}
    validation: int = 0
    prices: dict[str, float] = {}
    varies: str = ""
    sizes: tuple[int, ...] = ()
    assumed: tuple[str, ...] = ()
    starting_s: float = 0.0
    script: ScriptFit | None = None

    @property
    def model(self) -> Network:
        """The layers of the model that is trained."""
        return self.network or networks.find(self.training.model)

    @property
    def unknown_share(self) -> UnknownShare | None:
        """The share of a step in layers of unknown kinds; None if all are known."""
        return unknown_share(self.model, min(self.training.batch, self.training.samples))


class Explanation(msgspec.Struct, frozen=True):
    """Everything that is known of a training. sides: its cost on each device that it fits on, measured or predicted. cpu,
    gpu: the predictions, None without rows of that side; lacks: what is missing. measured: device -> the cost by a row of
    this training. borrowed: the machine of a stored GPU, whose host terms are scaled by host_factor. assumed: numbers that nobody
    gave. warnings: reasons to believe the answer less."""

    asked: Request
    cpu: "Prediction | None"
    gpu: "Prediction | None"
    measured: dict[str, TrainingCost]
    crossovers: tuple[Answer, ...]
    memory: tuple[Memory, ...]
    costs: tuple[Cost, ...]
    what_ifs: tuple[WhatIf, ...]
    lacks: tuple[str, ...] = ()
    borrowed: str = ""
    host_factor: Estimate | None = None
    sides: tuple[Side, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    warnings: tuple[Warning, ...] = ()

    @property
    def predictions(self) -> "tuple[Prediction, ...]":
        return tuple(p for p in (self.cpu, self.gpu) if p)

    @property
    def main(self) -> "Prediction | None":
        """The prediction that changes are set against: the GPU's where there is one."""
        return self.gpu or self.cpu

    @property
    def both(self) -> tuple[Side, Side] | tuple[()]:
        """(CPU side, GPU side); empty unless the cost is known on both."""
        return (self.sides[0], self.sides[1]) if len(self.sides) == 2 else ()

    @property
    def swept(self) -> dict[str, float]:
        """Samples -> the count from which the winner finishes first, if it was measured by a sweep."""
        last = ((a.family.varies, a.crossings[-1]) for a in self.crossovers if a.form.mode == BY_JOB and a.crossings)
        return {varies: c.at.value for varies, c in last if not c.wide and c.to == sides.turns(*self.both)[0]}

    @property
    def turns(self) -> tuple[str, dict[str, float]]:
        """(device that wins with more samples or epochs, count of each from which it wins): measured, else from costs."""
        to, found = sides.turns(*self.both)
        return to, self.swept | found | self.swept  # what was swept comes first, and is as measured

    @property
    def actions(self) -> list[WhatIf]:
        """The changes sure to save a hundredth of the whole training, the surest first; of several batches the best."""
        sure = (w for w in self.what_ifs if self.sides and w.surely_s > 0.01 * self.sides[-1].whole.value)
        ranked = sorted(sure, key=lambda w: -w.surely_s)
        batches = [w for w in ranked if w.change.learns]
        return [w for w in ranked if w not in batches[1:]]

    @property
    def larger(self) -> WhatIf | None:
        """The larger batch that saves most of the whole training."""
        return next((w for w in self.what_ifs if w.change.learns and w.job_saved), None)

    @property
    def partial(self) -> tuple[str, ...]:
        """The gaps of the predictions, in words; first the layers that are only estimated."""
        first = [self.asked.unknown_share.words] if self.asked.unknown_share else []
        return tuple(dict.fromkeys((*first, *(text for p in self.predictions for text in p.partial))))

    @property
    def disturbances(self) -> tuple[Warning, ...]:
        """The warnings of rows that were measured beside other work or throttled."""
        return tuple(warning for warning in self.warnings if warning.disturbs)

    @property
    def undisturbed(self) -> "Explanation":
        """The explanation without the devices whose rows were disturbed: what is to be measured again is missing in it."""
        loud = {warning.device for warning in self.disturbances}
        quiet_sides = tuple(side for side in self.sides if side.device not in loud)
        return replace(
            self,
            cpu=None if "cpu" in loud else self.cpu,
            gpu=None if GPU in loud else self.gpu,
            sides=quiet_sides,
        )

    @property
    def winner(self) -> str:
        """cpu or gpu: the device that surely finishes first; neither if the intervals overlap or rows were disturbed."""
        if not self.both or self.disturbances:
            return "neither"
        cpu, gpu = self.both
        return faster(cpu.whole, gpu.whole)

    @property
    def withheld(self) -> bool:
        """Whether its seconds would be guesses: most of the arithmetic is in layers of unknown kinds."""
        return bool(self.asked.unknown_share and self.asked.unknown_share.most)

    def told(self) -> "Explanation":
        """The explanation as it is shown; if its seconds are withheld, without predictions and everything derived from them."""
        if not self.withheld:
            return self
        return replace(self, cpu=None, gpu=None, crossovers=(), costs=(), what_ifs=())


class Sources(msgspec.Struct, frozen=True):
    """Where predictions come from: the CPU's and the GPU's profile (the same one, or a stored machine's), and the function that
    predicts."""

    cpu: "Profile"
    gpu: "Profile | None"
    predict: Callable

    @property
    def borrowed(self) -> "Profile | None":
        """The GPU's profile where it is another machine's."""
        return None if self.gpu is self.cpu else self.gpu

    def profile(self, device: str) -> Profile:
        """The profile with the rows of a device."""
        return self.cpu if device == "cpu" or self.gpu is None else self.gpu


def settings_of(asked: Request, device: str) -> Settings:
    """Settings of the training on a device: the requested options that have a meaning there."""
    given = {"data": "synthetic", **asked.switches}
    if device == "cpu":
        given |= {"residence": "tf.data"} if given.get("residence") == "prefetch" else {}
        given = {name: text for name, text in given.items() if name not in ("tf32", "precision")}
    return Settings(device, switches=switches.changed(given))


def explain(request: Request, profiles: Sources) -> Explanation:
    """The whole explanation. What a profile lacks is said, with the commands that measure it; only when neither device can be
    predicted is that an error.

    Raises: profile.Lacking; ValueError for a model that is not known.
    """
    predict = predictor(request, profiles)
    predictions, lacking = _predictions(request, profiles, predict)
    trained = measured(request, profiles)
    sides = _sides(request, predictions, trained)
    if not predictions and not sides:
        raise all_of(lacking.values())
    memories = _memories(request, profiles, predictions)
    too_small = {one.device for one in memories if one.too_big}
    sides = tuple(side for side in sides if side.device not in too_small)
    cpu = predictions.get("cpu")
    gpu = predictions.get(GPU)
    main = gpu or cpu
    what_ifs = tuple(_what_ifs(main, sides, predict)) if main else ()
    crossovers: tuple[Answer, ...] = ()
    if cpu and gpu:
        crossovers = _crossovers(request, predict, _swept(request, trained, profiles))
    explanation = Explanation(
        asked=request,
        cpu=cpu,
        gpu=gpu,
        measured={device: row.cost for device, row in trained.items()},
        crossovers=crossovers,
        memory=memories,
        costs=_costs(request, profiles, sides),
        what_ifs=what_ifs,
        lacks=tuple(f"{where}: {error}" for where, error in lacking.items()),
        sides=sides,
    )
    stored = profiles.borrowed
    if stored:
        explanation = replace(explanation, borrowed=stored.key, host_factor=host_factor(profiles.cpu, stored))
    return replace(explanation, assumed=_assumed(explanation), warnings=_warnings(explanation, trained, profiles))


def _predictions(
    request: Request, profiles: Sources, predict: "Callable[..., Prediction]"
) -> "tuple[dict[str, Prediction], dict[str, Lacking]]":
    """(device -> its prediction, device in words -> what its profile lacks)."""
    predictions: dict[str, Prediction] = {}
    lacking: dict[str, Lacking] = {}
    devices = {"cpu": "the CPU"} if profiles.gpu is None else {"cpu": "the CPU", GPU: "the GPU"}
    for device, name in devices.items():
        try:
            predictions[device] = predict(request.training, settings_of(request, device))
        except Lacking as error:
            lacking[name] = error
    return predictions, lacking


def _memories(request: Request, profiles: Sources, devices: Iterable[str]) -> tuple[Memory, ...]:
    """The memory that the training needs at its peak on each device."""
    memories = []
    for device in devices:
        rows = profiles.profile(device)
        memories.append(
            memory(request.model, request.training, device, measurements=rows.measurements, machine=rows.machine)
        )
    return tuple(memories)


def _costs(request: Request, profiles: Sources, sides: Iterable[Side]) -> tuple[Cost, ...]:
    """The money and the energy of the whole training on each side."""
    costs_of_sides = []
    for side in sides:
        rows = profiles.profile(side.device).measurements
        costs_of_sides.append(cost(request.training, side.whole, side.device, prices=request.prices, measurements=rows))
    return tuple(costs_of_sides)


def _assumed(e: Explanation) -> tuple[Assumption, ...]:
    """The assumed numbers of the training, with the counts at which the winner changes."""
    to, counts = e.turns if e.both else ("", {})
    training = e.asked.training
    return tuple(doubts.assumption(name, getattr(training, name), to, counts) for name in e.asked.assumed)


def _warnings(e: Explanation, trained: dict[str, Trained], profiles: Sources) -> tuple[Warning, ...]:
    """The reasons to believe the answer less: disturbed rows, estimated layers, parts without a row, and a loss chosen here."""
    warnings = []
    for side in e.sides:
        warnings += doubts.disturbances(side.device, _used(e.asked, side, trained, profiles))
    unknown = e.asked.unknown_share
    if unknown and any(side.cost.source == "predicted" for side in e.sides):
        layers = tuple(layer.name for layer in unknown_layers(e.asked.model))
        warnings.append(Warning(kind="estimated-layers", share=unknown.arithmetic, names=layers))
    for side in e.sides:
        if side.unknown:
            warnings.append(Warning(kind="no-row", device=side.device, names=side.unknown))
    if e.asked.model.compiled_for_user:
        warnings.append(Warning(kind="not-compiled", names=(e.asked.model.optimizer, e.asked.model.loss)))
    return tuple(warnings)


def _used(request: Request, side: Side, trained: dict[str, Trained], profiles: Sources) -> list[Measurement]:
    """The rows that a side's seconds come from: the training's own row, or those of its prediction. The dispatch of a stored GPU
    is scaled by launches of this machine's CPU too."""
    if side.cost.source == "measured":
        return [trained[side.device].row]
    settings = settings_of(request, side.device)
    rows = used_rows.predicting(request.training, settings, request.model, profiles.profile(side.device))
    if profiles.borrowed and settings.on_gpu:
        rows += used_rows.launches(profiles.cpu, "cpu")
    return rows


def _sides(request: Request, predictions: "dict[str, Prediction]", trained: dict[str, Trained]) -> tuple[Side, ...]:
    """The cost of the training on each device, the CPU first: measured here, else predicted. A prediction of mostly unknown
    layers is ignored."""
    training = request.training
    guessed = request.unknown_share is not None and request.unknown_share.most
    sides = []
    for device in ("cpu", GPU):
        prediction = None if guessed else predictions.get(device)
        row = trained.get(device)
        if row and not tells_whole(row):
            row = None
        if row:
            cost = row.cost
        elif prediction:
            cost = prediction.cost
        else:
            continue
        if request.validation and device in predictions:
            more = validating(request, predictions[device])
            cost = replace(cost, epoch=cost.epoch + more, whole_epoch=cost.whole_epoch and cost.whole_epoch + more)
        ran = row is not None and ran_all_samples(row, training) and row.row.problem.epochs == training.epochs
        sides.append(
            Side(
                device=device,
                training=training,
                cost=cost,
                unknown=prediction.untold if prediction and not row else (),
                ran=ran and not request.validation,
            )
        )
    return tuple(sides)


def _what_ifs(main: Prediction, both: tuple[Side, ...], predict: Callable) -> Iterable[WhatIf]:
    """The changes with the time that each saves, at most that of the whole training."""
    whole = next((side.whole for side in both if side.device == main.settings.device), main.job_s)
    return (replace(w, job_saved=w.job_saved and w.job_saved.at_most(whole)) for w in what_if.what_ifs(main, predict))


def predictor(asked: Request, of: Sources) -> Callable[..., Prediction]:
    """predict(training, settings, kernel): from the profile of the settings' device, a stored GPU driven by this machine's
    host."""
    factor = host_factor(of.cpu, of.borrowed) if of.borrowed else None
    start = start_factor(of.cpu, of.borrowed) if of.borrowed else None

    def predict(training: Training, settings: Settings, kernel: str = what_if.FIT) -> Prediction:
        made = of.predict(training, settings, of.profile(settings.device), asked.network, kernel=kernel)
        if factor is None:
            return made
        if settings.on_gpu:
            return rescaled(made, factor, start)
        with contextlib.suppress(Lacking):  # then what this machine's rows do not tell stays untold
            if made.untold and kernel == what_if.FIT:
                stored = of.predict(training, settings, of.gpu, asked.network, kernel=kernel)
                return completed(made, stored, factor, start)
        return made

    return predict


def measured(request: Request, profiles: Sources) -> "dict[str, Trained]":
    """Device -> the best-ranked row of this very training; never a stored GPU's. It stands beside the prediction and never
    enters it."""
    rows_by_device = {}
    devices = ("cpu", GPU) if profiles.gpu is profiles.cpu else ("cpu",)
    for device in devices:
        rows = break_even.trained(profiles.profile(device).measurements)
        row = measured_training(rows, request.training, settings_of(request, device))
        if row:
            rows_by_device[device] = row
    return rows_by_device


# ---------------------------------------------------------------- where the winner changes


def _swept(asked: Request, trained: dict[str, Trained], of: Sources) -> dict[str, Answer]:
    """Varied size -> the measured crossover along it, in the type with the most sizes. Along samples it is by the whole
    training, if that has the model's epochs and no validation; along other sizes by the step."""
    if len(trained) < 2:
        return {}
    setup, found = break_even.setup_of(trained[GPU].row), {}
    own = {v: at[1] for v in break_even.VARIES if (at := break_even.size_of(setup, v))}
    for a in sorted(break_even.answers(of.cpu.measurements, own), key=lambda a: len(a.points)):
        varies, there = a.family.varies, replace(break_even.setup_in(a.family), dtype=setup.dtype)
        whole = varies == "samples" and setup.batch < setup.samples
        alike = a.form.mode == (BY_JOB if whole else BY_STEP) and there == own[varies]
        planned = not asked.validation and asked.training.epochs == break_even.planned(setup, varies)[1]
        if alike and (planned or not whole):
            found[varies] = a
    return found


def _crossovers(asked: Request, predict: Callable, swept: dict[str, Answer]) -> tuple[Answer, ...]:
    """The crossovers along each size: measured where it was swept; else predicted by the step, along the batch, along samples
    if all are one batch, and along `asked.varies`."""
    t = asked.training
    most = min(_MOST_BATCH, 64 * t.batch)
    sizes: dict[str, Iterable[int]] = {"batch": {t.batch, *(b for i in range(7) if (b := _BATCH_STEP**i) <= most)}}
    sizes |= {asked.varies: asked.sizes} if asked.varies else {}
    if t.batch >= t.samples:
        sizes["samples"] = {t.samples, *(n for i in range(2, 8) if (n := 10**i) <= 10 * t.samples)}
    found = {varies: over(asked, varies, at, predict) for varies, at in sizes.items() if varies not in swept} | swept
    return tuple(filter(None, found.values()))


def _at(t: Training, varies: str, size: int) -> Training:
    """The training at a size along what varies.

    Raises: ValueError for a model that has no such size.
    """
    if varies == "batch":
        return replace(t, batch=size, samples=max(t.samples, size))
    made = break_even.at(break_even.sized(t, varies)[1], varies, size)
    return replace(t, model=made.model, batch=made.batch, samples=made.samples or t.samples)


def over(asked: Request, varies: str, sizes: Iterable[int], predict: Callable) -> Answer | None:
    """The crossover of a step along a size: predicted at the sizes, then between neighbors with different likely winners until
    they lie close; None with fewer than two possible sizes."""
    sides: dict[int, tuple[Trained, Trained]] = {}

    def add(size: int) -> None:
        with contextlib.suppress(ValueError):
            training = _at(asked.training, varies, size)
            cpu, gpu = (predict(training, settings_of(asked, device)) for device in ("cpu", GPU))
            sides[size] = _trained(cpu), _trained(gpu)

    def answer() -> Answer:
        return break_even.crossing(family, BY_STEP, sides, lambda size: (1, 1))

    for size in sizes:
        add(size)
    family = Family("training", varies, (varies,))
    for _ in range(_HALVINGS if len(sides) > 1 else 0):
        for a, b in itertools.pairwise(answer().points):
            if (a.ratio.value > 1) != (b.ratio.value > 1) and b.n > crossover.FINE * a.n:
                add(round(math.sqrt(a.n * b.n)))
    return answer() if len(sides) > 1 else None


def _trained(p: Prediction) -> Trained:
    return Trained(Row(what_if.FIT, p.training, p.settings).result("skipped", "predicted"), p.cost)


# ---------------------------------------------------------------- validation, money, joules


def validating(asked: Request, made: Prediction) -> Estimate:
    """Seconds that evaluating the validation samples adds to each epoch: forward passes, by their share of a step's FLOPs, each
    at least half the host's seconds of a step."""
    network, t = asked.model, asked.training
    share = networks.inference_flops(network) / max(1, networks.training_flops(network))
    steps = -(-asked.validation // t.batch)
    host = total_of(made.parts, HOST)
    least = Estimate(max(host.value / 2, made.step_s.value * share), made.step_s.low * share, made.step_s.high)
    return least * steps
