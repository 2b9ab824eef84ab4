"""Trainings beside others: rows of windows and rounds."""

import msgspec
from fake_measurements import answer as made

from kernels.problems import Inference, Training
from workloads.records import Measurement, Row, Samples, Settings

STUDENT = Row("training/keras/fit", Training("lenet", 4, 8), Settings("gpu:0"))
TEACHER = Row("inference/keras/call", Inference("vgg-small", 4), Settings())


def four(make, *taken, **given) -> list:
    """The student alone, the teacher alone, the student beside the teacher and the teacher beside the student."""
    rows = (STUDENT, "nothing"), (TEACHER, "nothing"), (STUDENT, "teacher"), (TEACHER, "student")
    return [make(row, *of, beside=beside, **given) for (row, beside), of in zip(rows, taken, strict=True)]


def timed(row: Row, clocks: dict[str, float], **given: str) -> Measurement:
    """A measurement of three equal rounds."""
    samples = tuple(Samples(clock, (s,) * 3, 1, (1, 1, 1), "") for clock, s in clocks.items())
    return made(msgspec.structs.replace(row, settings=msgspec.structs.replace(row.settings, switches=given)), *samples)


def rounds(row: Row, *seconds: float, clock: str = "host-latency", **given: str) -> Measurement:
    """A round a number, on the clock of its own and on that of every row."""
    block_sizes, clocks = (1,) * len(seconds), dict.fromkeys((clock, "host-latency"))
    taken = tuple(Samples(name, seconds, 1, block_sizes, "") for name in clocks)
    return msgspec.structs.replace(timed(row, {}, **given), samples=taken)
