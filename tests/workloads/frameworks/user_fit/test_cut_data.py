"""The data of a user's fit, cut to some steps: rows, a generator, and the rate of the data alone."""

import numpy as np
import pytest

from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.user_fit.cut_data import SharedGenerator, first_rows, seconds_of_a_batch
from workloads.harness.dispatch import Broken


def test_rows_begin_again_where_there_are_fewer():
    rows = np.arange(3)
    assert first_rows(rows, 2, 3).tolist() == [0, 1]
    assert first_rows(rows, 7, 3).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_several_fits_share_a_generator_that_may_end():
    shared = SharedGenerator(iter([1, 2, 3]))
    assert next(shared.batches()) == 1
    shared.require_more()
    assert list(shared.batches()) == [2, 3]
    with pytest.raises(Refusal, match="its generator ends after 3 batches") as refusal:
        shared.require_more()
    assert refusal.value.change == "let it go on: while True around its loop"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        # seconds at which the batches come; the first one fills a buffer
        ([2.0, 2.5, 3.0, 3.5, 4.0], 0.5),
        ([7.0, 8.0], 7.0),
        ([0.25], 0.25),
    ],
)
def test_the_data_rate_omits_the_first_batch(ends, expected):
    times = iter([0.0, *ends])
    assert seconds_of_a_batch(ends, lambda: next(times)) == expected


def test_data_without_a_batch_have_no_rate():
    with pytest.raises(Broken, match="its data give no batch"):
        seconds_of_a_batch([], lambda: 0.0)
