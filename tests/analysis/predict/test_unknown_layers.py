"""How much of a step is unknown layers."""

import pytest

from analysis.predict.unknown_layers import UnknownShare


@pytest.mark.parametrize(("arithmetic", "moved", "most"), [(0.6, 0.2, True), (0.4, 0.9, False)])
def test_an_unknown_step_is_guessed_by_its_arithmetic(arithmetic, moved, most):
    assert UnknownShare(names="lambda", arithmetic=arithmetic, moved=moved).most is most
