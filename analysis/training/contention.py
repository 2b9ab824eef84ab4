"""Work that runs at the same time on one machine: the slowdown of each part and the gain of all. Also the seconds of a trial,
which has a process of its own or shares one."""

from statistics import median

import msgspec

from analysis.stats import Estimate, covering, median_of, verdict
from workloads.records import Measurement, Samples

TRIAL = "training/keras/trial"
_CLOCK = "host-latency"


def slowdown(alone: Measurement, together: Measurement, clock: str = _CLOCK) -> Estimate:
    """The slowdown of a step: its time together, on that clock, over its time alone."""
    before = alone.on(_CLOCK)
    after = together.on(clock)
    return _ratio(after, before)


def _ratio(numerator: Samples | None, denominator: Samples | None) -> Estimate:
    """The ratio of two medians, as tables show them. Its interval is that of the ratios of each round, as both were measured in
    every round."""
    value = median_of(numerator).value / median_of(denominator).value
    ratio_by_round = verdict(denominator, numerator, paired=True).ratio
    return covering(value, ratio_by_round.low, ratio_by_round.high)


class Taught(msgspec.Struct, frozen=True, kw_only=True):
    """A student that trains while a teacher answers its batches."""

    #: The student's row with the teacher at work.
    student: Measurement
    #: The teacher's row with the student at work.
    teacher: Measurement
    #: Slowdown of the student's step and of the teacher's answer.
    slower: tuple[Estimate, Estimate]
    #: Seconds of a step and an answer, one after the other.
    after: float
    #: Seconds of both at the same time: those of the slower one.
    at_once: float
    #: Speedup of both at the same time over one after the other.
    gain: Estimate


def taught(rows: list[Measurement]) -> list[Taught]:
    """One pair for each batch of which a student and a teacher were measured alone and together."""
    by_batch: dict[int, Taught] = {}
    for student in rows:
        if student.experiment.companion != "teacher" or student.problem.batch in by_batch:
            continue
        pair = _pair(student, rows)
        if pair is not None:
            by_batch[student.problem.batch] = pair
    return list(by_batch.values())


def _pair(student: Measurement, rows: list[Measurement]) -> Taught | None:
    """A student with its teacher; None where one of them lacks a row, alone or together."""
    teacher = None
    for row in rows:
        if row.experiment.companion == "student" and row.problem.batch == student.problem.batch:
            teacher = row
            break
    if teacher is None:
        return None
    student_alone = _alone(student, rows)
    teacher_alone = _alone(teacher, rows)
    if student_alone is None or teacher_alone is None:
        return None
    step = student_alone.on(_CLOCK)
    answer = teacher_alone.on(_CLOCK)
    if step is None or answer is None:
        return None
    together = max((student.on(_CLOCK), teacher.on(_CLOCK)), key=lambda samples: median_of(samples).value)
    after = median_of(step).value + median_of(answer).value
    at_once = median_of(together).value
    ratio_by_round = verdict(together, _sums(step, answer), paired=True).ratio
    return Taught(
        student=student,
        teacher=teacher,
        slower=(slowdown(student_alone, student), slowdown(teacher_alone, teacher)),
        after=after,
        at_once=at_once,
        gain=covering(after / at_once, ratio_by_round.low, ratio_by_round.high),
    )


def _sums(step: Samples, answer: Samples) -> Samples:
    """Seconds of a step and an answer, one after the other: a sample a round, the sum of both medians."""
    medians = zip(step.medians.values(), answer.medians.values(), strict=True)
    seconds = tuple(step_s + answer_s for step_s, answer_s in medians)
    return Samples(clock=_CLOCK, seconds=seconds, calls=1, block_sizes=(1,) * len(seconds), stop_reason="")


def _alone(measurement: Measurement, rows: list[Measurement]) -> Measurement | None:
    """The row of the same work alone; None where there is none."""
    wanted = (measurement.kernel, measurement.problem, measurement.device, measurement.threads)
    for row in rows:
        is_alone = row.experiment.companion == "nothing" and row.experiment.at_once == 1
        if is_alone and (row.kernel, row.problem, row.device, row.threads) == wanted:
            return row
    return None


class GainsOfSeveral(msgspec.Struct, frozen=True, kw_only=True):
    """The same training several times at once on one device."""

    #: The row of one training alone.
    alone: Measurement
    #: Number of trainings -> speedup in steps a second of all of them; the fewest first.
    gains: dict[int, Estimate]


def several_at_once(rows: list[Measurement]) -> list[GainsOfSeveral]:
    """The speedups of each training that was measured alone and several times at once."""
    alone_rows: dict[str, Measurement] = {}
    gains: dict[str, dict[int, Estimate]] = {}
    for row in rows:
        if row.experiment.companion != "fits" or not row.on("host-throughput"):
            continue
        alone = _alone(row, rows)
        if alone is None:
            continue
        alone_rows[alone.key] = alone
        gains.setdefault(alone.key, {})[row.experiment.at_once] = 1 / slowdown(alone, row, "host-throughput")
    return [GainsOfSeveral(alone=alone, gains=dict(sorted(gains[key].items()))) for key, alone in alone_rows.items()]


def trial_seconds(measurement: Measurement) -> float:
    """Median seconds of a trial; in one process without the first, which starts the framework."""
    samples = measurement.on(_CLOCK)
    seconds = samples.seconds if samples else ()
    if measurement.process == "fresh" or len(seconds) == 1:
        return median(seconds)
    return median(seconds[1:])
