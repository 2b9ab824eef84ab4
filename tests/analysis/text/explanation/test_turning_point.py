"""Where another device wins, in words."""

import pytest
from finding_words import words

from analysis.text.explanation import turning_point


@pytest.mark.parametrize(
    ("counts", "sure", "said"),
    [
        ({"samples": 7200.0}, True, "about 7,200 samples on, the GPU finishes first."),
        (
            {"samples": 7200.0, "epochs": 3.0},
            False,
            "about 7,200 samples or 3 epochs on, the GPU probably finishes first.",
        ),
        ({"epochs": 0.2}, True, "about 1 epoch on, the GPU finishes first."),
        ({}, True, "the first epoch on, the GPU finishes first, and it stays so."),
    ],
)
def test_from_how_many_samples_or_epochs(counts, sure, said):
    assert words(turning_point, "turning-point", "gpu", counts=counts, sure=sure) == said


@pytest.mark.parametrize(
    ("counts", "below", "said"),
    [
        ({"samples": 7200.0}, True, "Below about 7,200 samples the CPU probably wins: how many have you?"),
        ({"epochs": 12.0}, False, "From about 12 epochs the CPU probably wins: how many will you train?"),
    ],
)
def test_where_the_other_device_wins_as_a_question(counts, below, said):
    assert words(turning_point, "question", "cpu", counts=counts, below=below) == said
