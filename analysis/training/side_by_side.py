"""What running things side by side costs and brings: a teacher beside a student, several trainings on one device, and trials
in one process or in many."""

from collections.abc import Iterable
from statistics import median

import msgspec

from analysis.stats import Estimate, group_by, of, verdict
from analysis.units import around, count, digits, join, seconds
from workloads.records import Measurement, Samples

TRIAL = "training/keras/trial"


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """A sentence or two for each such experiment among the rows."""
    done = [m for m in measurements if m.ok]
    return student_sentences(done) + at_once_sentences(done) + trial_sentences(done)


def slowdown(alone: "Measurement", together: "Measurement", clock: str = "host-latency") -> Estimate:
    """How many times as long a step takes together as alone."""
    a, b = alone.on("host-latency"), together.on(clock)
    return _by_rounds(of(b).value / of(a).value, a, b)


def _by_rounds(value: float, old: "Samples | None", new: "Samples | None") -> Estimate:
    """A ratio of medians, those that tables show, with the interval of the rounds' own ratios: they took turns."""
    rounds = verdict(old, new, paired=True).ratio
    return Estimate(value, min(value, rounds.low), max(value, rounds.high))


def _beside(m: "Measurement") -> str:
    return m.experiment.beside


def _where(m: "Measurement") -> str:
    return m.side


class Taught(msgspec.Struct, frozen=True):
    """A student that trains while a teacher answers its batches: rows of both, how many times as long a step of each takes as
    alone, seconds of both one after the other and at once, and how many times as fast that is."""

    student: Measurement
    teacher: Measurement
    alone: tuple[Measurement, Measurement]
    slower: tuple[Estimate, Estimate]
    after: float
    at_once: float
    gain: Estimate


def taught(done: "list[Measurement]", batch: int | None = None) -> Taught | None:
    """The first student of that batch, or of any, with a teacher beside it and both alone; None without one."""
    for student in (m for m in done if _beside(m) == "teacher" and batch in (None, m.problem.batch)):
        teacher = next((m for m in done if _beside(m) == "student" and m.problem.batch == student.problem.batch), None)
        alone = [a for m in (student, teacher) if m and (a := _alone(m, done))]
        if teacher is None or len(alone) < 2:
            continue
        ratios = [slowdown(a, m) for a, m in zip(alone, (student, teacher), strict=True)]
        each = [of(m.on("host-latency")).value for m in alone]
        longer = max((student, teacher), key=lambda m: of(m.on("host-latency")).value)
        both, gain = of(longer.on("host-latency")).value, _gain_of(alone, longer)
        return Taught(student, teacher, (alone[0], alone[1]), (ratios[0], ratios[1]), sum(each), both, gain)
    return None


def student_sentences(done: "list[Measurement]") -> list[str]:
    """The slowdown of teacher and student, and what both at once bring against one after the other."""
    said = []
    for batch in dict.fromkeys(m.problem.batch for m in done if _beside(m) == "teacher"):
        if (found := taught(done, batch)) is None:
            continue
        student, teacher, slower = found.student, found.teacher, found.slower
        step, answer = (of(m.on("host-latency")) for m in found.alone)
        said.append(
            f"A frozen teacher ({teacher.problem.model}) answering on the {_where(teacher)} while the student "
            f"({student.problem.model}, batch {student.problem.batch}) trains on the {_where(student)}: the student's step takes "
            f"{around(slower[0])} times as long as alone{_doubt(slower[0])}, the teacher's answer {around(slower[1])} times"
            f"{_doubt(slower[1])}."
        )
        said.append(
            f"A step and the teacher's answer to its batch take {seconds(step.value + answer.value)} one after the other "
            f"({seconds(step.value)} and {seconds(answer.value)}) and {seconds(found.at_once)} at once: "
            f"{_gain(found.gain)}."
        )
    return said


def _doubt(ratio: Estimate) -> str:
    return " (can't tell)" if ratio.low <= 1 <= ratio.high else ""


def _gain_of(alone: "list[Measurement]", longer: "Measurement") -> Estimate:
    """How many times as fast both at once, which take as long as the longer of them, are as one after the other."""
    both = longer.on("host-latency")
    sums = tuple(map(sum, zip(*(_rounds(m.on("host-latency")) for m in alone), strict=True)))
    after = Samples("host-latency", sums, 1, tuple(range(len(sums))), "")
    return _by_rounds(sum(of(m.on("host-latency")).value for m in alone) / of(both).value, both, after)


def _gain(gain: Estimate) -> str:
    if gain.low <= 1 <= gain.high:
        return f"can't tell which is quicker, {around(gain)} times as fast"
    return f"{around(gain)} times as fast" if gain.low > 1 else f"{around(1 / gain)} times as long"


def _rounds(samples) -> list[float]:
    """The median of each round of a Samples record."""
    return list(samples.medians.values())


def _alone(m: "Measurement", done: "list[Measurement]") -> "Measurement | None":
    wanted = (m.kernel, m.problem, m.device, m.threads)
    return next(
        (
            o
            for o in done
            if (o.kernel, o.problem, o.device, o.threads) == wanted
            and _beside(o) == "nothing"
            and o.experiment.at_once == 1
        ),
        None,
    )


def gains(done: "list[Measurement]") -> "dict[str, tuple[Measurement, list[tuple[int, Estimate]]]]":
    """Key of the row alone -> that row and (processes, steps a second of all against one) of those that ran at once."""
    found: dict = {}
    for m in done:
        if _beside(m) == "fits" and m.on("host-throughput") and (alone := _alone(m, done)):
            gain = 1 / slowdown(alone, m, "host-throughput")
            found.setdefault(alone.key, (alone, []))[1].append((m.experiment.at_once, gain))
    return {alone.key: (alone, sorted(pairs, key=lambda pair: pair[0])) for alone, pairs in found.values()}


def at_once_sentences(done: "list[Measurement]") -> list[str]:
    """What several trainings at once bring."""
    said = []
    for alone, pairs in gains(done).values():
        step = of(alone.on("host-latency")).value
        told = [f"{k} at once make {around(gain)} times as many steps a second in all" for k, gain in pairs]
        p = alone.problem
        said.append(
            f"Trainings of {p.model} at batch {p.batch} on one {_where(alone)}, each in its process: one makes "
            f"{digits(1 / step)} steps a second, {join(told)}."
        )
    return said


def trial_sentences(done: "list[Measurement]") -> list[str]:
    """Trials in one process, with clear_session and without, against as many fresh processes; what one more costs in either."""
    said = []
    groups = group_by((m for m in done if m.kernel == TRIAL), lambda m: (m.problem, m.side))
    for (problem, side), rows in groups.items():
        told, steps = "; ".join(map(_trial_words, rows)), count(problem.steps * problem.epochs, "step")
        said.append(
            f"{problem.model} built, compiled and fitted anew for each trial ({steps} of batch {problem.batch}) on the "
            f"{side}: {told}.{_one_more(rows)}"
        )
    return said


def trial_seconds(m: "Measurement") -> float:
    """Of a trial in the middle; in one process without the first, which starts the framework."""
    samples = m.on("host-latency")
    took = samples.seconds if samples else ()
    return median(took if m.process == "fresh" else took[1:] or took)


def _trial_words(m: "Measurement") -> str:
    trials, fresh = int(m.values["trials"]), m.process == "fresh"
    cleared = ", clear_session before each," * (m.experiment.clear_session == "on")
    how = f"{count(trials, 'trial')} in {'fresh processes' if fresh else 'one process'}{cleared}"
    traces = f"the train step traced {count(round(m.values['traces']), 'time')} in all"
    grown = m.series["rss_bytes"][-1] - m.series["rss_bytes"][0]
    memory = "" if fresh or trials < 2 else f", {digits(grown / (trials - 1) / 2**20)} MiB more memory each"
    each = f"{seconds(trial_seconds(m))} each{'' if fresh or trials < 2 else ' after the first'}"
    return f"{how} took {seconds(m.values['total_s'])} ({each}; {traces}{memory})"


def _one_more(rows: "list[Measurement]") -> str:
    """What one more trial takes in a process that is there and in one of its own."""
    there, own = (
        min((trial_seconds(m) for m in rows if (m.process == "fresh") is fresh), default=None)
        for fresh in (False, True)
    )
    if there is None or own is None:
        return ""
    return f" One more takes {seconds(there)} in a process that is there and {seconds(own)} in one of its own."
