"""Names of devices."""

import pytest

from analysis import labels


@pytest.mark.parametrize(("name", "words"), [("gpu:3", "GPU 3"), ("gpu:0", "GPU 0"), ("cpu", "CPU")])
def test_a_device_shows_its_number_if_any(name, words):
    assert labels.numbered(name) == words
