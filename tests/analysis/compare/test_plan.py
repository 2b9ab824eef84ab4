"""Flags of compare as fields of a record."""

from analysis.compare import command as compare
from analysis.compare.plan import ComparePlan


def test_compare():
    words = "a b --clock device --fail-on slower>5% --strict --any-machine --format json -v"
    assert ComparePlan.from_flags(compare.parser().parse_args(words.split())) == ComparePlan(
        old="a", new="b", clock="device", fail_on=0.05, strict=True, any_machine=True, format="json", verbose=True
    )
    plan = ComparePlan.from_flags(compare.parser().parse_args(["a", "b"]))
    assert (plan.clock, plan.fail_on, plan.strict, plan.format) == ("", None, False, "table")
    assert plan.on_any_machine == "python -m analysis.compare a b --any-machine"
