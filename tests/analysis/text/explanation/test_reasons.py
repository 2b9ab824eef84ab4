"""Why a device is first, in words."""

import pytest
from finding_words import words

from analysis.stats import Estimate, exact
from analysis.text.explanation import reasons


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"later_s": 0, "is_bound": False}, "The GPU's steps are 3.0x faster."),
        ({"later_s": 0, "is_bound": True}, "The GPU's steps are at least 2.0x faster."),
        ({"later_s": 14.0, "is_bound": False}, "The GPU's steps are 3.0x faster; it starts 14.0 s later."),
        (
            {"later_s": -14.0, "is_bound": False, "mostly": "build and compile"},
            "The GPU's steps are 3.0x faster; it starts 14.0 s earlier (compilation).",
        ),
    ],
)
def test_why_a_device_is_first(numbers, said):
    given = {"speedup": Estimate(3.0, 2.0, 4.0), "mostly": "", **numbers}
    assert words(reasons, "steps", **given) == said


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (exact(2.0), "Dispatch is 2.0x slower than with H200's own CPU."),
        (exact(0.5), "Dispatch is 2.0x faster than with H200's own CPU."),
        (Estimate(1.1, 0.8, 1.5), "Dispatch is as fast as with H200's own CPU, or can't be told from it."),
        (None, "Dispatch is taken as with H200's own CPU: no call was measured on both."),
    ],
)
def test_the_host_beside_that_of_a_stored_gpu(factor, said):
    assert words(reasons, "host", "H200", factor=factor) == said


def test_where_most_time_is_has_both_devices_seconds():
    assert words(reasons, "most-elsewhere", "start-up", cpu=exact(2.0), gpu=exact(5.0)) == (
        "Most time is start-up: 2.00 s on the CPU, 5.00 s on the GPU."
    )
