"""Trainings side by side in words: a teacher beside a student, several trainings on one device, and trials in one process or in
many."""

from collections.abc import Iterable

from analysis.stats import group_by
from analysis.text import sentences
from analysis.training.side_by_side import TRIAL, gains, taught, trial_seconds
from analysis.units import count, join
from workloads.records import Measurement

_SAID = {
    "teacher": "{student} trains on the {here} while a frozen {teacher} answers on the {there}, batch {batch}. "
    "Beside each other its step is {step}, the teacher's answer {answer}.",
    "both": "A step and the teacher's answer take {after} one after the other, {at_once} overlapped: {gain}.",
    "at once": "{training}, batch {batch}, on one {side}, a process each: {of} the steps a second of one.",
    "trial": "{training} on the {side}, {trials} in {how}: {each} each, {total} in all.",
    "trace": "Its train step was traced {traces}.",
    "memory": "Each one adds {memory} of memory.",
    "one more": "One more trial takes {there} in a process that is there, {own} in one of its own.",
}


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """A sentence or two for each such experiment among the rows."""
    done = [m for m in measurements if m.ok]
    return student_sentences(done) + at_once_sentences(done) + trial_sentences(done)


def student_sentences(done: "list[Measurement]") -> list[str]:
    """The slowdown of teacher and student, and what both at once bring against one after the other."""
    said = []
    for batch in dict.fromkeys(m.problem.batch for m in done if m.experiment.beside == "teacher"):
        if found := taught(done, batch):
            step, answer = (sentences.speed(1 / ratio, "alone") for ratio in found.slower)
            names = {"student": sentences.title(found.student.problem.model), "here": found.student.side}
            names |= {"teacher": sentences.title(found.teacher.problem.model), "there": found.teacher.side}
            said.append(_SAID["teacher"].format(batch=batch, step=step, answer=answer, **names))
            times = {"after": sentences.time(found.after), "at_once": sentences.time(found.at_once)}
            said.append(_SAID["both"].format(gain=sentences.speed(found.gain), **times))
    return said


def at_once_sentences(done: "list[Measurement]") -> list[str]:
    """What several trainings at once bring."""
    said = []
    for alone, pairs in gains(done).values():
        each = [f"{k} trainings make {sentences.factor(gain)}" for k, gain in pairs]
        p = alone.problem
        words = {"training": sentences.title(p.model), "batch": p.batch, "side": alone.side}
        said.append(_SAID["at once"].format(of=join(each), **words))
    return said


def trial_sentences(done: "list[Measurement]") -> list[str]:
    """Trials in one process, with clear_session and without, against as many fresh processes; what one more costs in either."""
    said = []
    groups = group_by((m for m in done if m.kernel == TRIAL), lambda m: (m.problem, m.side))
    for (problem, side), rows in groups.items():
        name = f"{sentences.title(problem.model)}, {count(problem.steps * problem.epochs, 'step')} of batch {problem.batch}"
        said += [_trial(m, name, side) for m in rows]
        ends = [_shortest(rows, fresh) for fresh in (False, True)]
        if None not in ends:
            there, own = (sentences.time(e) for e in ends)
            said.append(_SAID["one more"].format(there=there, own=own))
    return said


def _trial(m: "Measurement", name: str, side: str) -> str:
    trials, fresh = int(m.values["trials"]), m.process == "fresh"
    how = "fresh processes" if fresh else "one process"
    how += ", clear_session before each" * (m.experiment.clear_session == "on")
    times = {"each": sentences.time(trial_seconds(m)), "total": sentences.time(m.values["total_s"])}
    said = [_SAID["trial"].format(training=name, side=side, trials=count(trials, "trial"), how=how, **times)]
    said.append(_SAID["trace"].format(traces=count(round(m.values["traces"]), "time")))
    if not fresh and trials > 1:
        grown = (m.series["rss_bytes"][-1] - m.series["rss_bytes"][0]) / (trials - 1) / 2**20
        said.append(_SAID["memory"].format(memory=f"{sentences.number(max(0.0, grown), most=2)} MiB"))
    return " ".join(said)


def _shortest(rows: "list[Measurement]", fresh: bool) -> float | None:
    return min((trial_seconds(m) for m in rows if (m.process == "fresh") is fresh), default=None)
