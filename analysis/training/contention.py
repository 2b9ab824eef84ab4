"""Work that runs at the same time on one machine: the slowdown of each part and the gain of all. Also the seconds of a trial,
which has a process of its own or shares one."""

from statistics import median

import msgspec

from analysis.stats import Estimate, covering, median_of, samples_on, verdict
from workloads.records import Measurement, Samples

TRIAL = "training/keras/trial"
#: The clock of the process that waits for the work.
_CLOCK = "host-latency"


def slowdown(alone: Measurement, together: Measurement, clock: str = _CLOCK) -> Estimate:
    """The time of a training step while other work runs on the machine, over its time alone.

    `clock`: the clock of the time beside other work; the time alone is always waited for by the host. The value is the ratio of
    the medians, as tables show them. Both were measured in every round, so the interval is that of the ratios by round.
    """
    alone_samples = samples_on(alone, _CLOCK)
    together_samples = samples_on(together, clock)
    value = median_of(together_samples).value / median_of(alone_samples).value
    ratio_by_round = verdict(alone_samples, together_samples, paired=True).ratio
    return covering(value, ratio_by_round.low, ratio_by_round.high)


class Taught(msgspec.Struct, frozen=True, kw_only=True):
    """A student network that trains in one process while a teacher network, in another, answers the student's batches
    (distillation)."""

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
    """The first student of each batch size for which student and teacher were both measured alone and together."""
    by_batch: dict[int, Taught] = {}
    for student in rows:
        if student.experiment.companion != "teacher" or student.problem.batch in by_batch:
            continue
        pair = _pair(student, rows)
        if pair is not None:
            by_batch[student.problem.batch] = pair
    return list(by_batch.values())


def _teacher_of(student: Measurement, rows: list[Measurement]) -> Measurement | None:
    """The teacher's row of the same batch size, measured while the student trained."""
    for row in rows:
        if row.experiment.companion == "student" and row.problem.batch == student.problem.batch:
            return row
    return None


def _pair(student: Measurement, rows: list[Measurement]) -> Taught | None:
    """A student with its teacher. None unless both were measured together and alone.

    student: its row that was measured while the teacher worked. rows: where the others are looked up.
    """
    teacher = _teacher_of(student, rows)
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
    together = (samples_on(student, _CLOCK), samples_on(teacher, _CLOCK))
    slower = max(together, key=lambda samples: median_of(samples).value)
    after = median_of(step).value + median_of(answer).value
    at_once = median_of(slower).value
    ratio_by_round = verdict(slower, _sums(step, answer), paired=True).ratio
    return Taught(
        student=student,
        teacher=teacher,
        slower=(slowdown(student_alone, student), slowdown(teacher_alone, teacher)),
        after=after,
        at_once=at_once,
        gain=covering(after / at_once, ratio_by_round.low, ratio_by_round.high),
    )


def _sums(step: Samples, answer: Samples) -> Samples:
    """Samples of a step followed by an answer: for each round of measuring, the sum of the round's two medians."""
    medians = zip(step.medians.values(), answer.medians.values(), strict=True)
    seconds = tuple(step_s + answer_s for step_s, answer_s in medians)
    return Samples(clock=_CLOCK, seconds=seconds, calls=1, block_sizes=(1,) * len(seconds), stop_reason="")


def _alone(measurement: Measurement, rows: list[Measurement]) -> Measurement | None:
    """The row of the same kernel, problem, device and threads that was measured with nothing else running; None without one."""
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
    """The gain of running several copies of a training at once on one device, for each training that was measured so and alone:
    the steps a second of all copies together over those of one copy alone."""
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
    """Median seconds of a trial (a training with one choice of hyperparameters). Of trials that share a process the first is left
    out, as it also starts the framework."""
    samples = measurement.on(_CLOCK)
    seconds = samples.seconds if samples else ()
    if measurement.process == "fresh" or len(seconds) == 1:
        return median(seconds)
    return median(seconds[1:])
