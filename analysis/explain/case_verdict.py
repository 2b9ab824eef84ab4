"""Whether the claim of an article or a bug report holds on rows measured here, by the finding that answers its question
(analysis.explain.evidence)."""

from analysis.finding import Finding
from analysis.stats import Estimate

HOLDS = "holds"
PARTLY = "partly"
FAILS = "does not hold"
CANT_TELL = "can't tell"
_MOST = 0.5  # a copy that takes more of a step decides it


def verdict(finding: Finding) -> str:
    """The verdict on a claim by all of its parts."""
    parts = parts_that_hold(finding)
    if all(parts):
        return HOLDS
    if any(parts):
        return PARTLY
    return FAILS if False in parts else CANT_TELL


def parts_that_hold(finding: Finding) -> list[bool | None]:
    """Whether each part of the claim holds, None where it can't be told: a winner, a cause or a gain; by how much is not
    judged."""
    numbers = finding.numbers
    match finding.kind:
        case "winner":
            return [_comes_back(one.claim.faster, one.faster) for one in numbers["claims"]]
        case "pair" | "flip" | "cause":
            return [_comes_back(one.reported.faster, one.faster) for _, one in numbers["reported"]]
        case "home":  # the larger batch is faster
            return [_is_gain(numbers["gpu"].whole / numbers["other"].whole)]
        case "bound":  # the copy decides: from pageable memory, as it was reported, and from pinned memory
            reported = numbers["theirs"]
            from_pageable = reported["copy_s"] / reported["step_s"]
            from_pinned = numbers["pinned"] / numbers["step"]
            return [from_pageable > _MOST, from_pinned > _MOST]
        case "clock":  # the copy is slow by itself: when it begins, no pass that was issued before still runs
            return [numbers["ran"] <= numbers["issued"]]
        case "inference":  # without batching both are alike
            gain = numbers["one"]["gain"]
            return [gain.low <= 1 <= gain.high]
        case "gpus":  # no gain
            return [gain.low <= 1 for _, _, gain in numbers["gains"]]
        case "teacher":  # at once is faster than one after the other
            return [_is_gain(numbers["pair"].gain)]
        case "peaks":  # lanes tell the speedup of a step
            reported = numbers["theirs"]
            return [reported["low"] <= numbers["step"].high and numbers["step"].low <= reported["high"]]
    raise ValueError(f"no rule for a finding of kind {finding.kind!r}")


def _comes_back(reported: str, measured: str) -> bool | None:
    """Whether the device that was reported to be faster is faster here; where neither was, the GPU must not be. None where a
    device was reported and neither is faster here."""
    if reported == "neither":
        return measured != "gpu"
    return None if measured == "neither" else measured == reported


def _is_gain(gain: Estimate) -> bool | None:
    """Whether it is more than 1; None where the interval holds 1."""
    return None if gain.low <= 1 <= gain.high else gain.value > 1
