"""Verdicts in words, and their bars."""

import pytest
from finding_words import words

from analysis.stats import Estimate, exact
from analysis.text.explanation import verdict
from analysis.text.sentences import MEASURED, PREDICTED


@pytest.mark.parametrize(
    ("kind", "subject", "numbers", "said"),
    [
        (
            "too-big",
            "gpu",
            {"peak": exact(2**31), "capacity": 2**30},
            "It needs 2.00 GiB of memory on the GPU, which has 1.00 GiB",
        ),
        (
            "withheld",
            "",
            {"names": "attention", "share": 0.75},
            "No verdict: attention not known, 75 % of the arithmetic",
        ),
        ("not-measured", "cpu", {}, "No verdict yet: the CPU was not measured"),
        ("not-measured", "gpu", {}, "No verdict yet: no GPU was measured"),
        (
            "untraced",
            "gpu",
            {"reason": "it is compiled with run_eagerly=True"},
            "No verdict: no GPU was measured, and it is compiled with run_eagerly=True",
        ),
        ("time", "cpu", {"whole": exact(12.0), "source": PREDICTED}, "On the CPU it takes 12.0 s (predicted)."),
        (
            "winner",
            "",
            {"cpu": exact(30.0), "gpu": exact(10.0), "source": MEASURED},
            "The GPU: 10.0 s against 30.0 s on the CPU, 3.0x faster.",
        ),
    ],
)
def test_verdicts(kind, subject, numbers, said):
    assert words(verdict, kind, subject, **numbers).startswith(said)


def test_bars_are_as_long_as_times():
    """36 blocks for 18 s: 9 s [6, 12] are 12 full, 6 light to the mark and 6 light behind it."""
    cpu, gpu = verdict.bars(exact(18.0), Estimate(9.0, 6.0, 12.0))
    assert cpu.startswith("  CPU  " + "█" * 36 + "|") and gpu.startswith("  GPU  " + "█" * 12 + "░" * 6 + "|" + "░" * 6)
    (cut, _) = verdict.bars(Estimate(10.0, 10.0, 1000.0), exact(1.0))
    assert cut.count("█") == 14 and cut.count("░") == 22  # 10 s of 25, and its interval to the end
