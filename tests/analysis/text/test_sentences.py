"""The sentences that everything shares, on numbers whose words are worked out by hand."""

import math
from types import SimpleNamespace

import pytest
from fake_measurements import row

from analysis import labels, numbers, table
from analysis.crossover.answer import Answer, Crossing, CrossoverPoint
from analysis.crossover.fastest_row import FastestRow
from analysis.crossover.forms import LATENCY
from analysis.stats import Estimate, exact
from analysis.text import sentences
from analysis.text.sentences import MEASURED, PREDICTED
from kernels.problems import Training


def between(low, value, high) -> Estimate:
    return Estimate(value, low, high)


@pytest.mark.parametrize(
    ("e", "words"),
    [
        (between(17.4, 21.2, 35.1), "21 s [17, 35]"),  # half of it is 8.9: whole seconds
        (between(7.47e-3, 7.484e-3, 7.49e-3), "7.48 ms [7.47, 7.49]"),  # three digits at most
        (between(190, 213, 240), "210 s [190, 240]"),  # tens
        (between(5, 21, 80), "21 s [5, 80]"),  # two digits at least
        (between(0.4, 12, 25), "at most 25 s"),  # its low end would be 0
        (between(-4, 12, 25), "at most 25 s"),
        (between(999.6e-6, 999.6e-6, 999.6e-6), "1.00 ms"),
        (exact(42e-6), "42.0 µs"),
        (exact(1234.0), "1,230 s"),
        (exact(7100.0), "7,100 s"),
        (between(46_000, 56_000, 69_000), "16 h [13, 19]"),  # 12.8, 15.6, 19.2
        (exact(4.4e6), "50.9 days"),
        (exact(0.0), "0 s"),
    ],
)
def test_a_time_has_its_intervals_digits(e, words):
    assert numbers.timed(e) == words and numbers.time(e) == words.partition(" [")[0]


@pytest.mark.parametrize(
    ("cpu", "gpu", "source", "words"),
    [
        ((125, 126, 127), (60, 61, 62), MEASURED, "The GPU: 61 s against 126 s on the CPU, 2.1x faster."),
        ((9, 10, 11), (30, 32, 34), PREDICTED, "The CPU: 10 s against 32 s on the GPU, 3.2x faster (predicted)."),
        (
            (17, 21, 35),
            (19, 27, 43),
            PREDICTED,
            "Probably the CPU: 21 s against 27 s on the GPU (predicted; the ranges overlap).",
        ),
        (
            (17, 21, 35),
            (19, 22, 43),
            PREDICTED,
            "Can't tell: 21 s on the CPU, 22 s on the GPU (predicted; the ranges overlap).",
        ),
        ((17, 21, 35), (19, 27, 43), MEASURED, "Can't tell: 21 s on the CPU, 27 s on the GPU; the intervals overlap."),
        (
            (0, 100, 820),
            (300, 440, 600),
            PREDICTED,
            "Can't tell: at most 820 s on the CPU, 440 s on the GPU (predicted; the ranges overlap).",
        ),
        ((30, 32, 36), (0, 8, 10), MEASURED, "The GPU: at most 10 s against 32 s on the CPU, at least 3.0x faster."),
    ],
)
def test_the_winner_comes_first_with_both_times(cpu, gpu, source, words):
    assert sentences.winner(between(*cpu), between(*gpu), source) == words


def crossed(kind, *crossings, bands=(), kernel="numpy") -> Answer:
    cpu = FastestRow(kernel=kernel, device="cpu", threads=None, math="float32", seconds=exact(1.0))
    gpu = FastestRow(kernel=kernel, device="gpu:0", threads=None, math="float32", seconds=exact(1.0))
    return Answer(
        precision="float32",
        form=LATENCY,
        kind=kind,
        low_n=64,
        high_n=4096,
        points=(CrossoverPoint(n=64, cpu=cpu, gpu=gpu),),
        crossings=crossings,
        bands=bands,
    )


TO_GPU = Crossing(at=between(103.2, 108.0, 114.6), below=96, above=128, to="gpu")
SURE = Crossing(at=exact(300.0), below=256, above=512, to="gpu")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            crossed("gpu-from", TO_GPU, kernel="predicted"),
            ["S: the GPU wins from about n = 108 (103 to 115, predicted)."],
        ),
        (crossed("gpu-from", TO_GPU), ["S: the GPU wins from about n = 108 (103 to 115)."]),
        (crossed("gpu-from", SURE, bands=((512, 512),)), ["S: the GPU wins from n = 300.", "At 512 it can't be told."]),
        (
            crossed("gpu-from", SURE, bands=((400, 512),)),
            ["S: the GPU wins from n = 300.", "Between 400 and 512 it can't be told."],
        ),
        (
            crossed("gpu-from", SURE, bands=((400, 512), (64, 64))),
            ["S: the GPU wins from n = 300.", "At 64 and 400 to 512 it can't be told."],
        ),
        (
            crossed("cpu-throughout", kernel="predicted"),
            ["S: the CPU wins up to n = 4,096, the largest looked at (predicted)."],
        ),
        (crossed("cant-tell", bands=((64, 4096),)), ["S: can't tell which device wins at n = 64 to 4,096."]),
        (crossed("no-gpu"), ["S: the GPU was not timed."]),
        (
            crossed("gpu-from", Crossing(at=exact(900.0), below=100, above=10_000, to="gpu", widest_gap=100)),
            ["S: the GPU starts to win between n = 100 and 10,000."],
        ),
    ],
)
def test_a_crossover_names_its_unsure_sizes(answer, words):
    assert sentences.crossover(answer, "S") == words


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        (Estimate(0.0, 0.0, 2.0), "The GPU is ahead from the first epoch."),
        (None, "The GPU never catches up."),
        (exact(0.0), "The GPU is ahead from the first epoch."),
        (between(40, math.inf, math.inf), "Break-even after 40 epochs at the earliest."),
        (between(40, 65, math.inf), "Break-even after 65 epochs, if at all."),
        (between(0.1, 0.4, 0.9), "Break-even after 1 epoch."),
    ],
)
def test_the_break_even_is_in_whole_epochs(epochs, words):
    assert sentences.break_even(epochs) == words


def test_a_name_stays_on_its_line():
    hostile = "lenet\nINJECTED"
    assert sentences.say("{model} on {device:title}", model=hostile, device=hostile) == (
        "lenet\\nINJECTED on lenet\\nINJECTED"
    )
    shown = table.Table("model | seconds", [(hostile, 1.5)])
    assert shown.text(80)[1].split() == ["lenet\\nINJECTED", "1.5"]
    assert shown.md()[-2] == "| lenet\\nINJECTED | 1.5 |"
    measured = row("training/keras/fit", Training(hostile, 32, 32), 1.0)
    assert "\n" not in labels.row(measured) + labels.problem(measured.problem)


def test_unsure_sizes_begin_after_the_last_crossing():
    """Crossings from 10 to 20, at 50 sure, somewhere between 60 and 90, and the last from 100 to 200."""
    places = [(10.0, 20.0, False), (50.0, 50.0, False), (60.0, 90.0, True), (100.0, 200.0, False)]
    crossings = [SimpleNamespace(at=Estimate(low, low, high), wide=wide) for low, high, wide in places]
    answer = SimpleNamespace(crossings=crossings, bands=[(128, 128), (12, 16), (400, 512), (4, 4)])
    assert sentences.unsure_spans(answer) == [(4, 4), (10.0, 20.0), (400, 512)]


def test_of_five_unsure_sizes_three_are_named():
    answer = SimpleNamespace(crossings=[], bands=[(n, n) for n in (4, 8, 16, 32, 64)])
    assert sentences.unsure(answer) == ["4", "8", "16", "2 more"]
