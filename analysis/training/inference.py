"""Answers of a model in batches on the CPU and the GPU, with copies and without, and the batch from which the GPU wins."""

from collections.abc import Iterable

import msgspec

from analysis.crossover.crossover import Answer, CrossoverPoint, FastestRow, Form, classify, refine
from analysis.crossover.families import Family
from analysis.stats import Estimate, group_by, median_of, quickest
from workloads.records import Measurement, settings

KERAS = "inference/keras"


class Way(msgspec.Struct, frozen=True):
    """How a batch is answered: the kernel, the copy mode, the GPU's clock, and a name in words."""

    kernel: str
    mode: str
    clock: str
    words: str

    @property
    def form(self) -> Form:
        return Form(self.mode, self.clock, framework="keras")


RESIDENT = Way(f"{KERAS}/call", "resident", "host-latency", "resident")
QUEUED = Way(f"{KERAS}/call", "resident", "host-throughput", "resident, calls queued")
ROUNDTRIP = Way(f"{KERAS}/call", "roundtrip", "host-latency", "array to array")
PREDICT = Way(f"{KERAS}/predict", "roundtrip", "host-latency", "model.predict")
WAYS = (RESIDENT, QUEUED, ROUNDTRIP, PREDICT)
SERVE = f"{KERAS}/serve"


class Case(msgspec.Struct, frozen=True):
    """A model with its input type and precision: rows of a case differ in batch, device, threads and compilation."""

    model: str
    dtype: str
    precision: str

    @property
    def name(self) -> str:
        more = [self.precision] * (self.precision != "float32") + [f"{self.dtype} inputs"] * (self.dtype != "float32")
        return ", ".join([self.model, *more])


def cases(measurements: "Iterable[Measurement]") -> "dict[Case, list[Measurement]]":
    """Case -> its inference rows from warm processes that ran by themselves."""
    own = (m for m in measurements if m.problem.op == "inference" and m.process == "warm" and settings.ordinary(m))
    return group_by(own, lambda m: Case(m.problem.model, m.problem.dtype, m.keras.precision))


def side(rows: "Iterable[Measurement]", way: Way, gpu: bool, batch: int) -> "tuple[Measurement, Estimate] | None":
    """The fastest row of a side at a batch, and its seconds a call."""
    clock = way.clock if gpu else "host-latency"  # a CPU's call has ended when it returns: nothing queues
    wanted = (way.kernel, way.mode, batch, gpu)
    found = quickest((m for m in rows if (m.kernel, m.mode, m.problem.batch, m.on_gpu) == wanted), clock)
    return (found[0], median_of(found[1])) if found else None


def crossovers(measurements: "Iterable[Measurement]") -> list[tuple[Case, Way, Answer]]:
    """The crossover along the batch (`point.n`) for each case and way with rows of both sides. A side is its fastest row over
    threads, ways to compile and libraries."""
    found = []
    for case, rows in cases(measurements).items():
        family = Family("inference", "batch", ("batch",), (("model", case.model), ("dtype", case.dtype)))
        batches = sorted({m.problem.batch for m in rows})
        for way in WAYS:
            points = []
            for batch in batches:
                cpu = side(rows, way, False, batch)
                gpu = side(rows, way, True, batch)
                if cpu and gpu:
                    points.append(CrossoverPoint(n=batch, cpu=_fastest_row(case, *cpu), gpu=_fastest_row(case, *gpu)))
            if points:
                tried = tuple(sorted({m.problem.batch for m in rows if (m.kernel, m.mode) == (way.kernel, way.mode)}))
                answer = classify(case.precision, way.form, points, family=family)
                found.append((case, way, msgspec.structs.replace(answer, tried=tried)))
    return found


def _fastest_row(case: Case, row: Measurement, seconds: Estimate) -> FastestRow:
    """A row as a side of a crossover."""
    return FastestRow(kernel=row.kernel, device=row.device, threads=row.threads, math=case.precision, seconds=seconds)


def wanted(measurements: "Iterable[Measurement]") -> "list[tuple[Measurement, int]]":
    """(row, batch): rows to measure at one more batch, the fastest of each side near each crossover."""
    measurements, found = list(measurements), {}
    for case, way, answer in crossovers(measurements):
        rows = cases(measurements)[case]
        for batch in refine(answer):
            near = min((p.n for p in answer.points), key=lambda n: abs(n / batch - 1))
            for gpu in (False, True):
                if best := side(rows, way, gpu, near):
                    found[best[0].kernel, best[0].settings.device, way.mode, case, batch] = (best[0], batch)
    return list(found.values())
