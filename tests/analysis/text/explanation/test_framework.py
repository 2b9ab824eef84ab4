"""Whether a framework used the GPU, in words."""

import pytest
from finding_words import words

from analysis.text.explanation import framework


@pytest.mark.parametrize(
    ("problem", "begins"),
    [
        (None, "On box TensorFlow used the GPU in 1,200 rows, 7 of them trainings."),
        ("", "This machine has a GPU, which was left aside. On box"),
        ("no driver", "This machine has no GPU that can be measured (no driver). On box"),
    ],
)
def test_whether_the_framework_used_the_gpu(problem, begins):
    assert words(framework, "gpu-used", "box", rows=1200, trained=7, here_problem=problem).startswith(begins)
