"""Flags of fleet as fields of a record."""

from analysis.fleet import command as fleet
from analysis.fleet.plan import FleetPlan


def test_fleet():
    words = "a --against b --fail-on slower>3% --save before --format md -v"
    plan = FleetPlan.from_flags(fleet.parser().parse_args(words.split()))
    assert plan == FleetPlan(run="a", against="b", fail_on=0.03, save="before", format="md", verbose=True)
    assert plan.for_people
    plan = FleetPlan.from_flags(fleet.parser().parse_args(["a", "--format", "csv"]))
    assert plan == FleetPlan(run="a", against="", fail_on=None, save="", format="csv", verbose=False)
    assert not plan.for_people
