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
    """How a batch is answered."""

    kernel: str
    #: The copy mode.
    mode: str
    #: The GPU's clock.
    clock: str
    #: Its name in words.
    words: str

    @property
    def form(self) -> Form:
        """The form of a crossover of such calls."""
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
    """Case -> its inference rows from warm processes that ran by themselves."""
    answered = [row for row in measurements if row.problem.op == "inference"]
    warm = [row for row in answered if row.process == "warm" and settings.ordinary(row)]
    return group_by(warm, _case)


def _case(row: Measurement) -> InferenceCase:
    return InferenceCase(model=row.problem.model, dtype=row.problem.dtype, precision=row.keras.precision)


def side(rows: Iterable[Measurement], call: CallForm, gpu: bool, batch: int) -> tuple[Measurement, Estimate] | None:
    """The fastest row of a side at a batch, and its seconds a call."""
    clock = call.clock if gpu else "host-latency"  # a CPU's call has ended when it returns: nothing queues
    calls = _rows_of(rows, call)
    fastest = quickest((row for row in calls if row.problem.batch == batch and row.on_gpu == gpu), clock)
    if fastest is None:
        return None
    row, samples = fastest
    return (row, median_of(samples))


def _rows_of(rows: Iterable[Measurement], call: CallForm) -> list[Measurement]:
    return [row for row in rows if row.kernel == call.kernel and row.mode == call.mode]


def crossovers(measurements: Iterable[Measurement]) -> list[tuple[InferenceCase, CallForm, Answer]]:
    """The crossover along the batch (`point.n`) for each case and form of call with rows of both sides. A side is its fastest row
    over threads, ways to compile and libraries."""
    every = []
    for case, rows in cases(measurements).items():
        for call in CALL_FORMS:
            answer = _crossover(case, rows, call)
            if answer is not None:
                every.append((case, call, answer))
    return every


def _crossover(case: InferenceCase, rows: list[Measurement], call: CallForm) -> Answer | None:
    """The crossover of a case along the batch; None where no batch has rows of both sides."""
    points = []
    for batch in sorted({row.problem.batch for row in rows}):
        cpu = side(rows, call, False, batch)
        gpu = side(rows, call, True, batch)
        if cpu and gpu:
            points.append(CrossoverPoint(n=batch, cpu=_fastest_row(case, *cpu), gpu=_fastest_row(case, *gpu)))
    if not points:
        return None
    family = Family("inference", "batch", ("batch",), (("model", case.model), ("dtype", case.dtype)))
    answer = classify(case.precision, call.form, points, family=family)
    tried = sorted({row.problem.batch for row in _rows_of(rows, call)})
    return msgspec.structs.replace(answer, tried=tuple(tried))


def _fastest_row(case: InferenceCase, row: Measurement, seconds: Estimate) -> FastestRow:
    """A row as a side of a crossover."""
    return FastestRow(kernel=row.kernel, device=row.device, threads=row.threads, math=case.precision, seconds=seconds)


def wanted(measurements: Iterable[Measurement]) -> list[tuple[Measurement, int]]:
    """(row, batch): rows to measure at one more batch, the fastest of each side near each crossover."""
    measurements = list(measurements)
    by_case = cases(measurements)
    rows: dict[tuple, tuple[Measurement, int]] = {}
    for case, call, answer in crossovers(measurements):
        for batch in refine(answer):
            nearest = min((point.n for point in answer.points), key=lambda n: abs(n / batch - 1))
            for gpu in (False, True):
                fastest = side(by_case[case], call, gpu, nearest)
                if fastest is not None:
                    row, _ = fastest
                    rows[row.kernel, row.settings.device, call.mode, case, batch] = (row, batch)
    return list(rows.values())
