"""The order of a sweep's visits, on a clock that only the visits move."""

import pytest
import virtual_sweep
from msgspec.structs import replace

from analysis import stats
from analysis.roofline import roofs
from kernels.problems import Launch, Matmul, Peak, Training
from workloads import printing, shared_flags
from workloads.harness import rounds
from workloads.harness.timing import Limits
from workloads.records import Row, Samples, Settings, settings, visits
from workloads.tables import problem_tables

LIMITS = Limits(visit_s=0.5, rounds=5, max_noise=0.01, max_time=100.0)
SMALL = Matmul(8, 8, 8)


def row(n=8, variant="blas", threads=1, **settings):
    return Row(f"matmul/numpy/{variant}", Matmul(n, n, n), Settings(threads=threads, **settings))


def visit(row, number, *seconds, clock="host-latency", **fields):
    samples = (Samples(clock, seconds or (1.0,), 1, (max(1, len(seconds)),), "visit"),)
    return row.result("ok", samples=samples, series={"visit_at_s": (1e9 + number,)}, visit=number, **fields)


def swept(wanted, answer=visit, refine=lambda done: [], kept=None, limits=LIMITS, seed=1, stop=10_000):
    """([(row, round)] as they were asked for, the Rounds): a visit takes half a second, `answer` says what it gives."""
    around, asked, now = rounds.Rounds(wanted, limits, seed, kept or {}), [], [0.0]
    for to_make in around.visits(refine, lambda: now[0], lambda seconds: now.append(now.pop() + seconds)):
        one, number = to_make.row, to_make.round
        if len(asked) == stop:
            break
        asked.append((one, number))
        now[0] += limits.visit_s
        around.add(answer(one, number) if number else replace(visit(one, 0), series={}))
    return asked, around


def test_every_row_has_a_visit_each_round():
    wanted = [row(n, variant, threads) for n in (8, 16, 32) for variant in ("blas", "operator") for threads in (1, 2)]
    asked, around = swept(wanted)
    by_round = [[r for r, i in asked if i == number] for number in range(1, 6)]
    assert [sorted(r.key for r in one) for one in by_round] == [sorted(r.key for r in wanted)] * 5
    assert len({tuple(r.key for r in one) for one in by_round}) == 5  # another order each round
    assert swept(wanted)[0] == asked and swept(wanted, seed=2)[0] != asked
    for one in by_round:  # the rows of a group go one after the other
        threads = [r.settings.threads for r in one]
        assert threads in ([1] * 6 + [2] * 6, [2] * 6 + [1] * 6)
    assert [m.key for m in around.measurements] == [r.key for r in wanted]  # as planned, whatever the shuffles
    assert {m.samples[0].stop_reason for m in around.measurements} == {"5 visits"}
    (m,) = swept([row(8)])[1].measurements
    assert m.visits == 5 and m.span_s == 4.0
    seen = []

    def refine(done):
        seen.append([(m.problem.n, m.visits) for m in done])
        return {2: [row(24)], 3: [row(20), row(24)]}.get(len(done), [])

    asked, _ = swept([row(16), row(32)], refine=refine)
    assert seen == [[(16, 1), (32, 1)], [(16, 1), (32, 1), (24, 1)], [(16, 1), (32, 1), (24, 1), (20, 1)]]
    assert [(r.problem.n, i) for r, i in asked[2:4]] == [(24, 1), (20, 1)]
    assert sorted((r.problem.n, i) for r, i in asked[4:]) == [(n, i) for n in (16, 20, 24, 32) for i in range(2, 6)]


def test_sizes_rise_in_the_first_round():
    wanted = [row(n, variant) for n in (64, 8, 32, 16) for variant in ("blas", "operator")]
    first = [r for r, i in swept(wanted)[0] if i == 1]
    for variant in ("blas", "operator"):
        assert [r.problem.n for r in first if r.variant == variant] == [8, 16, 32, 64]
    training = [Row("training/keras/fit", Training("lenet", 4, n), Settings()) for n in (16, 8)]
    fresh, once = row(8, process="fresh"), Row("launch/cupy/raw", Launch("import"), Settings("gpu:0"))
    asked, _ = swept([row(8), *training, fresh, once])
    assert asked[:4] == [(one, 0) for one in (*training, fresh, once)]
    assert [number for _, number in asked[4:]] == [1, 2, 3, 4, 5]


def test_noisy_rows_get_more_rounds_within_limits(monkeypatch):
    """Visits of half a second to six rows: 30 planned ones take 15 s, so noisy rows have another 2.25 s: four visits, two to
    each of the two that are noisiest."""

    def answer(one, number):
        return visit(one, number, 1.0 + {8: 0.1, 16: 0.05, 32: 0.2}.get(one.problem.n, 0.0) * (number % 2))

    asked, around = swept([row(n) for n in (8, 16, 32, 64, 128, 256)], answer)
    assert rounds.EXTRA == 0.15
    assert sorted((r.problem.n, i) for r, i in asked[30:]) == [(8, 6), (8, 7), (32, 6), (32, 7)]
    assert [m.visits for m in around.measurements] == [7, 5, 7, 5, 5, 5]
    # 25 planned visits leave 1.875 s: 1 s for the noisiest, and too little for two visits to the other.
    asked, _ = swept([row(n) for n in (8, 32, 64, 128, 256)], answer)
    assert [(r.problem.n, i) for r, i in asked[25:]] == [(32, 6), (32, 7)]
    monkeypatch.setattr(rounds, "EXTRA", 1e9)
    asked, _ = swept([row(8)], lambda one, number: visit(one, number, 1.0 + number % 2))
    assert len(asked) == rounds.MOST_VISITS - 1  # by twos from five


@pytest.mark.parametrize(
    ("limits", "extra"),
    [
        (Limits(0.5, max_time=4.0), 0),  # five calls of about a second have taken it
        (Limits(0.5, max_noise=0.2, max_time=100.0), 0),
        (Limits(0.5, max_time=6.0), 2),  # the first of two may pass it
    ],
)
def test_what_ends_the_extra_rounds(limits, extra, monkeypatch):
    monkeypatch.setattr(rounds, "EXTRA", 0.5)
    noisy = [row(8)], lambda one, number: visit(one, number, 1.0 + 0.1 * (number % 2))
    assert len(swept(*noisy, limits=limits)[0]) == 5 + extra
    around = swept(*noisy, limits=limits, stop=4 + extra)[1]
    assert not around.settled(row(8).key) and around.extra_to_go() == (extra > 0)  # shown only with its last visit


@pytest.mark.parametrize(
    ("count", "begins"), [(1, [0, 6, 12, 18, 24]), (2, [0, 6, 12, 18, 24]), (16, [0, 8, 16, 24, 32])]
)
def test_a_short_round_waits_between_its_visits(count, begins):
    """Visits of half a second: a round lasts twelve of them, six seconds, however few rows there are."""
    around, now, began = rounds.Rounds([row(n) for n in range(1, count + 1)], LIMITS, 1, {}), [0.0], {}
    for to_make in around.visits(lambda done: [], lambda: now[0], lambda s: now.append(now.pop() + s)):
        began.setdefault(to_make.round, now[0])
        now[0] += 0.5
        around.add(visit(to_make.row, to_make.round))
    assert list(began.values()) == begins


@pytest.mark.parametrize("status", ["failed", "wrong", "skipped"])
def test_a_failed_visit_ends_only_its_row(status):
    def answer(one, number):
        return one.result(status, "why", visit=number) if one.problem.n == 8 and number == 2 else visit(one, number)

    asked, around = swept([row(8), row(16)], answer)
    assert [i for r, i in asked if r.problem.n == 8] == [1, 2] and len(asked) == 7
    assert [(m.status, m.reason) for m in around.measurements] == [(status, "why"), ("ok", "")]
    assert all(map(around.complete, around.rows)) and around.to_go() == 0


def test_kept_visits_are_not_repeated():
    """Killed in the middle of the third round: one row has three visits, one two, one none; a fourth is whole."""
    wanted = [row(n) for n in (8, 16, 32, 64)]
    kept = {r.key: [visit(r, i) for i in range(1, count + 1)] for r, count in zip(wanted, (3, 2, 0), strict=False)}
    kept = {key: made for key, made in kept.items() if made}
    kept[wanted[3].key] = [replace(visit(wanted[3], 0), series={})]
    asked, around = swept(wanted, kept=kept)
    assert [i for r, i in asked if r == wanted[0]] == [4, 5] and [i for r, i in asked if r == wanted[1]] == [3, 4, 5]
    assert [i for r, i in asked if r == wanted[2]] == [1, 2, 3, 4, 5] and len(asked) == 10
    assert [m.visits for m in around.measurements] == [5, 5, 5, 0]
    assert swept(wanted, kept={m.key: around._lines[m.key] for m in around.measurements})[0] == []  # nothing is left
    added = row(24)
    kept = {added.key: [visit(added, 1), visit(added, 2)]}
    asked, _ = swept([row(16)], refine=lambda done: [added] * (len(done) == 1), kept=kept)
    assert [i for r, i in asked if r == added] == [3, 4, 5]


def test_how_much_is_left_when_it_is_stopped():
    wanted = [row(8), row(16), row(8, process="fresh")]
    asked, around = swept(wanted, stop=4)
    assert [i for _, i in asked] == [0, 1, 1, 2]
    assert around.to_go() == 7 and [around.complete(r.key) for r in wanted] == [False, False, True]
    assert sorted(m.visits for m in around.measurements) == [0, 1, 2]


def on_gpu(seconds, kernel="matmul/cupy/cublas", problem=SMALL, **switches):
    taken = Row(kernel, problem, Settings("gpu:0", switches=switches))
    return visits.together([visit(taken, 1, seconds, clock="device")])


def test_gpu_rows_are_measured_again_under_load(capsys):
    """A GPU's peak under a load of its own, the higher one here, is no roof; it is a line of its own where rows are listed."""
    long, short = on_gpu(2e-3), on_gpu(0.5e-3)
    (twin,) = rounds.sustained_rows([long, short, visits.together([visit(row(8), 1)])])
    assert twin.settings.switches == {"load": "held"} and twin.problem == long.problem and settings.is_sustained(twin)
    loaded = replace(long, settings=twin.settings)
    assert rounds.sustained_rows([long, loaded]) == [twin] and rounds.sustained_rows([loaded]) == []
    fma = "peak/cupy/fma", Peak("float32", 1 << 30)
    burst, loaded = on_gpu(2e-3, *fma), on_gpu(1e-3, *fma, **settings.SUSTAINED)
    (roof,) = [r for r in roofs.roofs_of([burst, loaded]) if r.kind == "compute"]
    assert roof.rate.value == (1 << 30) / 2e-3
    table = printing.Lines()
    for m in (burst, loaded):
        table.add(m)
    plain, held = capsys.readouterr().out.splitlines()[1:]
    assert held.endswith(" held") and not plain.endswith(" held")
    products = problem_tables.Matmuls()
    long = on_gpu(2e-3)
    products.add(replace(long, settings=rounds.sustained_rows([long])[0].settings))
    products.finish()
    assert not capsys.readouterr().out


@pytest.mark.parametrize("name", ["independent", "Pareto", "levels of 0.5 s", "OU, tau 1 s"])
def test_intervals_cover_the_truth_as_promised(name):
    """A small part of bench intervals: six sweeps of forty rows."""
    limits = shared_flags.FINE
    held = [
        (e := stats.seconds_of(m)).low <= truth <= e.high
        for seed in range(6)
        for measured, truth in [virtual_sweep.sweep(40, name, limits, seed)]
        for m in measured
    ]
    assert len(held) == 240 and 0.88 <= sum(held) / len(held) <= 0.99
