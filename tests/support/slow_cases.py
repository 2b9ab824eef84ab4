"""Cases of a parametrized test of which `make test` runs a few."""

import pytest


def every(step: int, cases: list) -> list:
    """The cases: each `step`th one as it is, from the first one on, the others marked slow."""
    return [case if i % step == 0 else _slow(case) for i, case in enumerate(cases)]


def _slow(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
