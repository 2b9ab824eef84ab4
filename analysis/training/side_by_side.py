"""Costs and gains of running things side by side: a teacher beside a student, several trainings on one device, and trials in
one process or in many."""

from statistics import median

import msgspec

from analysis.stats import Estimate, covering, median_of, verdict
from workloads.records import Measurement, Samples

TRIAL = "training/keras/trial"


def slowdown(alone: "Measurement", together: "Measurement", clock: str = "host-latency") -> Estimate:
    """The slowdown of a step: together over alone."""
    a, b = alone.on("host-latency"), together.on(clock)
    return _by_rounds(median_of(b).value / median_of(a).value, a, b)


def _by_rounds(value: float, old: "Samples | None", new: "Samples | None") -> Estimate:
    """A ratio of medians, as tables show them. Its interval is that of the rounds' own ratios, as both took turns in each
    round."""
    rounds = verdict(old, new, paired=True).ratio
    return covering(value, rounds.low, rounds.high)


class Taught(msgspec.Struct, frozen=True):
    """A student that trains while a teacher answers its batches: rows of both, the slowdown of a step of each, seconds of both
    one after the other and at once, and the speedup of that."""

    student: Measurement
    teacher: Measurement
    slower: tuple[Estimate, Estimate]
    after: float
    at_once: float
    gain: Estimate


def taught(done: "list[Measurement]") -> list[Taught]:
    """Each student with a teacher at the same time and both alone, one for each batch. At once, both take as long as the
    slower."""
    found: dict[int, Taught] = {}
    for student in (m for m in done if m.experiment.companion == "teacher" and m.problem.batch not in found):
        batch = student.problem.batch
        teacher = next((m for m in done if m.experiment.companion == "student" and m.problem.batch == batch), None)
        alone = [a for m in (student, teacher) if m and (a := _alone(m, done))]
        if teacher and len(alone) == 2:
            slower = slowdown(alone[0], student), slowdown(alone[1], teacher)
            both = max((m.on("host-latency") for m in (student, teacher)), key=lambda samples: median_of(samples).value)
            each = [samples for m in alone if (samples := m.on("host-latency"))]
            sums = tuple(map(sum, zip(*(samples.medians.values() for samples in each), strict=True)))
            after, at_once = sum(median_of(samples).value for samples in each), median_of(both).value
            gain = _by_rounds(after / at_once, both, Samples("host-latency", sums, 1, (1,) * len(sums), ""))
            found[batch] = Taught(student, teacher, slower, after, at_once, gain)
    return list(found.values())


def _alone(m: "Measurement", done: "list[Measurement]") -> "Measurement | None":
    """The row of the same work alone; None where there is none."""
    wanted = (m.kernel, m.problem, m.device, m.threads, "nothing", 1)
    ways = ((o, (o.kernel, o.problem, o.device, o.threads, o.experiment.companion, o.experiment.at_once)) for o in done)
    return next((o for o, way in ways if way == wanted), None)


def gains(done: "list[Measurement]") -> "dict[str, tuple[Measurement, list[tuple[int, Estimate]]]]":
    """Key of the row alone -> (that row, [(processes, speedup in steps a second)]) of those that ran at once."""
    found: dict = {}
    for m in done:
        if m.experiment.companion == "fits" and m.on("host-throughput") and (alone := _alone(m, done)):
            gain = 1 / slowdown(alone, m, "host-throughput")
            found.setdefault(alone.key, (alone, []))[1].append((m.experiment.at_once, gain))
    return {alone.key: (alone, sorted(pairs, key=lambda pair: pair[0])) for alone, pairs in found.values()}


def trial_seconds(m: "Measurement") -> float:
    """Median seconds of a trial; in one process without the first, which starts the framework."""
    samples = m.on("host-latency")
    took = samples.seconds if samples else ()
    return median(took if m.process == "fresh" else took[1:] or took)
