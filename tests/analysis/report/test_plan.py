"""What the flags of commands on result files become: each flag is a field of a frozen record."""

import argparse

import pytest

from analysis.report.plan import ReportPlan, RooflinePlan
from workloads import options


def test_report_and_roofline(stored_run, tmp_path):
    page = tmp_path / "page.md"
    flags = argparse.Namespace(runs=[stored_run], out="out", open=True, readme=str(page))
    with pytest.raises(options.Usage) as stop:
        ReportPlan.from_flags(flags)
    assert stop.value.wrong == "--readme"
    page.write_text(f"<!-- answer: python -m analysis.report {stored_run} -->\n<!-- /answer -->\n")
    assert ReportPlan.from_flags(flags) == ReportPlan(runs=(stored_run,), out="out", opens=True, readme=page)
    flags = argparse.Namespace(runs=[stored_run], out=None)
    assert RooflinePlan.from_flags(flags) == RooflinePlan(runs=(stored_run,), out="")
