"""What a check of the machine's health complains of."""

from workloads.machine.health import CheckResult


def complains(finding: CheckResult, level: str, *words: str) -> bool:
    """The level is as expected, the words are in what was seen or in the fix, and it says why and what to type."""
    text = f"{finding.state} {finding.fix}"
    return finding.level == level and all(word in text for word in words) and bool(finding.why and finding.fix)
