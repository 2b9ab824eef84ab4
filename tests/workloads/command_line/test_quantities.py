"""The number, range or duration that is meant by a word that is none."""

import pytest

from workloads import options
from workloads.command_line import quantities

COUNTS = {
    "1..64": "1:64:x2",
    "1-64": "1:64:x2",
    "64k-1m": "64k:1m:x2",
    "2^6-2^10": "2^6:2^10:x2",
    "64:4096:*4": "64:4096:x4",
    "64:4096:64": "64:4096:+64",
    "64:4096:16": "64:4096:x16",
    "64:4096:17": "64:4096:+17",
    "4096:64:x4": "64:4096:x4",
    "64:4096:x0": "64:4096:x2",
    "2**10": "1024",
    "1e6": "1000000",
    "64MB": "64",
    "-64": "64",
    "0": "1",
    "512x256": "512",
    "fast": "",
    "64:": "64",
    "64::x2": "64",
    "64:128:256:512": "64:128:x2",
}
BYTES = {"4k-256M": "4k:256M:x4", "64KiB..1GiB": "64KiB:1GiB:x4", "1.5k": "1536"}
CALLS = {
    "range(64, 1024, 64)": "64:1024:+64",
    "range(64,1024)": "64:1024:x2",
    "np.arange(64,1024,2)": "64:1024:x2",
    "64,4096,x4": "64:4096:x4",
    "64,4096": "",
}


@pytest.mark.parametrize(("word", "meant"), COUNTS.items())
def test_the_number_or_range_that_a_word_means(word, meant):
    assert quantities.meant_number(word, options.COUNTS, several=True) == meant


@pytest.mark.parametrize(("word", "meant"), BYTES.items())
def test_the_bytes_that_a_word_means(word, meant):
    assert quantities.meant_number(word, options.BYTES, several=True) == meant


@pytest.mark.parametrize(("text", "meant"), CALLS.items())
def test_a_range_in_another_languages_notation(text, meant):
    assert quantities.meant_range(text, options.COUNTS) == meant


SECONDS = {"1h30m": "5400s", "2 min 30 s": "150s", "1:30:00": "5400s", "1:30": "90s", "90": "", "5s": "", "1h30x": ""}


@pytest.mark.parametrize(("text", "meant"), SECONDS.items())
def test_the_seconds_that_several_units_mean(text, meant):
    assert quantities.meant_seconds(text, options.SECONDS) == meant


def test_brackets_around_sizes_say_nothing():
    assert options.sizes(["[64,", "128]"]) == options.sizes(["(64, 128)"]) == [64, 128]
