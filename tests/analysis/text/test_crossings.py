"""Crossings in words."""

import pytest
from fake_crossovers import only, resident_and_copies
from fake_measurements import laws

from analysis.crossover.families import SQUARES, rows_of
from analysis.crossover.forms import Form
from analysis.crossover.time_split import why
from analysis.text import crossings


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({128: (1.0, 1.2), 134: (1.2, 1.0)}, "the GPU wins from n = 131."),
        ({64: (2.0, 1.0), 128: (4.0, 1.0)}, "the GPU wins from n = 64, the smallest measured."),
        ({64: (1.0, 1.0), 128: (2.0, 1.0)}, "the GPU surely wins from n = 128. At 64 it can't be told."),
        (
            {64: (1.0, 4.0), 100: (4.0, 1.0), 104: (1.0, 4.0)},
            "the CPU wins from n = 102; below, the winner changes once.",
        ),
    ],
)
def test_an_answer_of_square_products_in_words(times, words):
    answer = only(laws(lambda n: times[n][0], lambda n: times[n][1], times))
    assert crossings.crossing_sentence(answer) == f"Square float32 products, resident on the GPU: {words}"


def test_why_names_the_largest_part():
    rows = resident_and_copies()
    others = [m for m in rows if m.settings.mode != "resident" or m.settings.device == "cpu"]
    form, took = Form("roundtrip"), "Why: at n = 64 a GPU call with its copies takes 100 µs, the CPU 50.0 µs. "
    for given, what in ((rows, "76 % of the GPU's is copies."), (others, "All of the GPU's is not explained.")):
        assert crossings.why_sentence(why(rows_of(given, SQUARES), only(given, form))[0], form) == took + what
