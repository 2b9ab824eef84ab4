"""Whether the claims of an article or a bug report hold on rows measured here."""

from analysis.finding import Finding

HOLDS = "holds"
PARTLY = "partly"
FAILS = "does not hold"
CANT_TELL = "can't tell"


def verdict(finding: Finding) -> str:
    """The verdict on all claims of a finding of analysis.explain.evidence together. By how much one is missed does not count."""
    parts = [one.holds for one in finding.numbers["claims"] if one.is_claimed]
    if all(parts):
        return HOLDS
    if any(parts):
        return PARTLY
    return FAILS if False in parts else CANT_TELL
