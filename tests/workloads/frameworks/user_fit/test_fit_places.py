"""Where a script calls fit."""

import pytest

from workloads.frameworks.user_fit import fit_places

SOURCES = {
    "model.fit(x, y, epochs=2)\n": [1],
    "scaler.fit(x)\nmodel.fit(x, y, batch_size=8)\nmodel.fit(x, y)\n": [2, 3],
    "def train(m):\n    return m.fit(\n        x,\n        verbose=0,\n    )\n": [2],
    "scaler.fit(x)\n": [],
}


@pytest.mark.parametrize(("source", "lines"), SOURCES.items())
def test_keras_fits_are_recognized_by_their_arguments(source, lines):
    assert fit_places.lines(source) == lines
