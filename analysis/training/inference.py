"""Answers of a model in batches on the CPU and the GPU, with copies and without, and the batch from which the GPU wins."""

from collections.abc import Iterable

import msgspec

from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.families import Family
from analysis.crossover.fastest_row import FastestRow
from analysis.crossover.forms import Form
from analysis.crossover.refinement import refine
from analysis.crossover.sign_changes import classify
from analysis.stats import Estimate, group_by, median_of, quickest
from workloads.records import Measurement, settings

KERAS = "inference/keras"


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is called with a batch of inputs."""

    #: The kernel: Keras's `call` or `predict`.
    kernel: str
    #: How inputs and outputs are copied: resident (not at all) or roundtrip.
    mode: str
    #: The clock of the GPU's seconds.
    clock: str
    #: Its name in words.
    words: str

    @property
    def form(self) -> Form:
        """The same as the form of a crossover."""
        return Form(self.mode, self.clock, framework="keras")


RESIDENT = CallForm(kernel=f"{KERAS}/call", mode="resident", clock="host-latency", words="resident")
QUEUED = CallForm(kernel=f"{KERAS}/call", mode="resident", clock="host-throughput", words="resident, calls queued")
ROUNDTRIP = CallForm(kernel=f"{KERAS}/call", mode="roundtrip", clock="host-latency", words="array to array")
PREDICT = CallForm(kernel=f"{KERAS}/predict", mode="roundtrip", clock="host-latency", words="model.predict")
CALL_FORMS = (RESIDENT, QUEUED, ROUNDTRIP, PREDICT)
SERVE = f"{KERAS}/serve"


class InferenceCase(msgspec.Struct, frozen=True, kw_only=True):
    """A model with its input type and precision: its rows differ in batch, device, threads and compilation."""

    model: str
    #: Type of the inputs.
    dtype: str
    #: Keras's precision.
    precision: str

    @property
    def name(self) -> str:
        """The model, its precision and its inputs; both only if they are not float32."""
        words = [self.model]
        if self.precision != "float32":
            words.append(self.precision)
        if self.dtype != "float32":
            words.append(f"{self.dtype} inputs")
        return ", ".join(words)


def cases(measurements: Iterable[Measurement]) -> dict[InferenceCase, list[Measurement]]:
    """Model, input type and precision -> its rows of inference, without fresh processes and work beside other work."""
    answered = [row for row in measurements if row.problem.op == "inference"]
    warm = [row for row in answered if row.process == "warm" and settings.ordinary(row)]
    return group_by(warm, _case)


def _case(row: Measurement) -> InferenceCase:
    """The model, input type and precision of a row."""
    return InferenceCase(model=row.problem.model, dtype=row.problem.dtype, precision=row.keras.precision)


def fastest_calls(
    rows: Iterable[Measurement], call: CallForm, *, gpu: bool, batch: int
) -> tuple[Measurement, Estimate] | None:
    """(the fastest row of a batch size on the GPU, or if not `gpu` on the CPU, in that form of call; its seconds of a call). None
    without a row."""
    clock = call.clock if gpu else "host-latency"  # a CPU's call has ended when it returns: nothing queues
    calls = _rows_of(rows, call)
    fastest = quickest((row for row in calls if row.problem.batch == batch and row.on_gpu == gpu), clock)
    if fastest is None:
        return None
    row, samples = fastest
    return (row, median_of(samples))


def _rows_of(rows: Iterable[Measurement], call: CallForm) -> list[Measurement]:
    """The rows that called the model in that form."""
    return [row for row in rows if row.kernel == call.kernel and row.mode == call.mode]


def crossovers(measurements: Iterable[Measurement]) -> list[tuple[InferenceCase, CallForm, Answer]]:
    """(model, form of call, from which batch the GPU answers faster) for each model and form that was measured on both devices. A
    device's time is its fastest row over threads, ways to compile and libraries."""
    every = []
    for case, rows in cases(measurements).items():
        for call in CALL_FORMS:
            answer = _crossover(case, rows, call)
            if answer is not None:
                every.append((case, call, answer))
    return every


def _crossover(case: InferenceCase, rows: list[Measurement], call: CallForm) -> Answer | None:
    """From which batch the GPU answers faster in one form of call; None if no batch was measured on both devices. rows: of the
    case."""
    points = []
    for batch in sorted({row.problem.batch for row in rows}):
        cpu = fastest_calls(rows, call, gpu=False, batch=batch)
        gpu = fastest_calls(rows, call, gpu=True, batch=batch)
        if cpu and gpu:
            points.append(CrossoverPoint(n=batch, cpu=_fastest_row(case, *cpu), gpu=_fastest_row(case, *gpu)))
    if not points:
        return None
    family = Family("inference", "batch", ("batch",), (("model", case.model), ("dtype", case.dtype)))
    answer = classify(case.precision, call.form, points, family=family)
    tried = sorted({row.problem.batch for row in _rows_of(rows, call)})
    return msgspec.structs.replace(answer, tried=tuple(tried))


def _fastest_row(case: InferenceCase, row: Measurement, seconds: Estimate) -> FastestRow:
    """A row and its seconds as one side of a crossover."""
    return FastestRow(kernel=row.kernel, device=row.device, threads=row.threads, math=case.precision, seconds=seconds)


def wanted(measurements: Iterable[Measurement]) -> list[tuple[Measurement, int]]:
    """(row, batch): rows to measure again at another batch, so that each crossover lies between closer batches. They are the
    fastest row of each device at the measured batch nearest to it."""
    measurements = list(measurements)
    by_case = cases(measurements)
    rows: dict[tuple, tuple[Measurement, int]] = {}
    for case, call, answer in crossovers(measurements):
        for batch in refine(answer):
            nearest = min((point.n for point in answer.points), key=lambda n: abs(n / batch - 1))
            for gpu in (False, True):
                fastest = fastest_calls(by_case[case], call, gpu=gpu, batch=nearest)
                if fastest is not None:
                    row, _ = fastest
                    rows[row.kernel, row.settings.device, call.mode, case, batch] = (row, batch)
    return list(rows.values())
