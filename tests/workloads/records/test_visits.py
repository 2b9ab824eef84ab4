"""Visits of a row: one line each in a result file, one row on reading."""

import msgspec
import pytest
from fake_measurements import CPU_MACHINE, run

from kernels.problems import Matmul
from workloads import records
from workloads.records import Measurement, Samples, Settings, visits

ROW = Measurement("matmul/numpy/blas", Matmul(8, 8, 8), Settings(threads=1), "ok", at="2026-01-01T00:00:00Z")


def visit(i, *seconds, clock="host-latency", at=None, **fields):
    """The row's visit of round i, which ended at second 100 + 2 i."""
    fields = {"samples": (Samples(clock, seconds, 4, (len(seconds),), "visit"),) if seconds else ()} | fields
    series = {"visit_at_s": (100.0 + 2 * i if at is None else at,)}
    return msgspec.structs.replace(ROW, series=series, visit=i, **fields)


def decoded(*lines):
    return records.decode([msgspec.json.encode(line) for line in lines]).measurements


def test_visits_of_a_row_become_one_measurement():
    """A block is its visit's round: the second one's line was lost."""
    one = visit(1, 1.0, 2.0, check="exact", max_error=0.0, phases_s={"first_call": 9.0}, values={"watts": 1.0})
    two, three = visit(2, 4.0, flags=("other-load",), values={"watts": 2.0}), visit(3, 3.0, 5.0, values={"watts": 5.0})
    (row,) = decoded(one, two, three)
    assert row.samples == (Samples("host-latency", (1.0, 2.0, 4.0, 3.0, 5.0), 4, (2, 1, 2), "3 visits"),)
    assert (row.visit, row.visits, row.span_s, row.series) == (0, 3, 4.0, {"visit_at_s": (102.0, 104.0, 106.0)})
    assert (row.check, row.max_error, row.phases_s) == ("exact", 0.0, {"first_call": 9.0})
    assert row.flags == ("other-load",) and row.values == {"watts": 2.0} and row.key == ROW.key
    both = msgspec.structs.replace(visit(3, 3.0), samples=visit(3, 3.0).samples + visit(3, 0.5, clock="device").samples)
    (row,) = decoded(visit(1, 1.0), both)
    assert row.on("host-latency").block == (0, 2) and row.on("device").block == (2,)


def test_a_visit_that_failed_is_the_rows_reason():
    bad = visit(2, status="failed", reason="died")
    for lines in ([visit(1, 1.0), bad], [visit(1, 1.0), bad, visit(3, 1.0)]):
        (row,) = decoded(*lines)
        assert (row.status, row.reason, row.visit) == ("failed", "died", 0)


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ([visit(1, 1.0), visit(2, 2.0), visit(1, 3.0)], (3.0,)),  # a round not above the last one begins anew
        ([visit(1, 1.0), visit(2, 2.0), visit(2, 3.0)], (3.0,)),
        ([visit(2, 1.0), visit(3, 2.0)], (1.0, 2.0)),  # a size added after the first round
        ([visit(1, 1.0), visit(4, 2.0)], (1.0, 2.0)),  # a torn line between them
        ([visit(1, 1.0), msgspec.structs.replace(visit(1, 7.0), visit=0)], (7.0,)),  # a whole row replaces visits
        ([msgspec.structs.replace(visit(1, 7.0), visit=0), visit(1, 1.0)], (1.0,)),
    ],
)
def test_which_visits_are_one_series(lines, seconds):
    (row,) = decoded(*lines)
    assert row.samples[0].seconds == seconds


def test_rows_keep_the_order_of_first_visits():
    other = visit(1, 5.0, problem=Matmul(9, 9, 9))
    assert [m.problem.n for m in decoded(visit(1, 1.0), other, visit(2, 1.0))] == [8, 9]
    whole = msgspec.structs.replace(visit(1, 1.0, 2.0), visit=0, series={})
    assert decoded(whole) == [whole] and (whole.visits, whole.span_s) == (0, None)
    own = lambda i: Samples("host-latency", (float(i),), 4, (1,), "visit", is_by_process=True)  # noqa: E731
    (row,) = decoded(*(visit(i, samples=(own(i),), phases_s={"import": i + 1.0}) for i in (1, 2)))
    assert row.samples[0].stop_reason == "2 processes" and row.samples[0].is_by_process
    assert row.series["import_s"] == (2.0, 3.0)
    assert row.phases_s == {"import": 3.0}


@pytest.mark.parametrize(
    ("taken", "said"), [((100.0, 103.2), " within 3 s"), ((1.0, 1.2), " within 1 s"), ((0, 31), "")]
)
def test_a_short_span_is_said(taken, said):
    (row,) = decoded(*(visit(i + 1, 1.0, at=float(at)) for i, at in enumerate(taken)))
    assert visits.span(row) == said and visits.span(ROW) == ""


def test_a_resumed_files_newer_row_wins(tmp_path):
    """File a begins first and is resumed last: what was added then is the newest, though the other run began later.

    While n = 6 was measured anew another tenant took time: the older row stands. Both of n = 5 were disturbed: the newer does.
    """
    stolen = [("2026-01-03T00:00:00Z", 6, 3.0, "steal"), ("2026-01-03T00:00:00Z", 5, 3.0, "other-load")]
    for name, at, rows in (
        ("a", "2026-01-01T00:00:00Z", [("2026-01-01T00:00:01Z", 8, 1.0), ("2026-01-03T00:00:00Z", 9, 3.0), *stolen]),
        (
            "b",
            "2026-01-02T00:00:00Z",
            [(f"2026-01-02T00:00:0{10 - n}Z", n, 2.0, *["steal"] * (n == 5)) for n in (8, 9, 6, 5)],
        ),
    ):
        begun = msgspec.structs.replace(run(CPU_MACHINE), started_at=at)
        with records.Writer(tmp_path / name / "matmul.jsonl", begun) as writer:
            for when, n, seconds, *flags in rows:
                of = {"problem": Matmul(n, n, n), "at": when, "flags": tuple(flags)}
                writer.append(msgspec.structs.replace(visit(1, seconds, at=1.0), **of))
            writer.append(
                msgspec.structs.replace(ROW.row, problem=Matmul(7, 7, 7)).result("skipped", f"in {name}")
            )  # without a time it is as old as its run
    *loaded, untimed = sorted(records.read(tmp_path).measurements, key=lambda m: (m.status == "skipped", m.problem.n))
    assert {m.problem.n: m.samples[0].seconds for m in loaded} == {8: (2.0,), 9: (3.0,), 6: (2.0,), 5: (3.0,)}
    assert untimed.reason == "in b"
