"""The allowed word that is meant by one that is not allowed."""

import pytest

from workloads.corrections import nearest

FLAGS = ["--model", "--modes", "--jit", "--price-gpu", "--epochs", "--sizes", "--dtypes"]
MEANT = {
    "--mode": "--modes",
    "--jit_compile": "--jit",
    "--gpu-price": "--price-gpu",
    "--num-epochs": "--epochs",
    "--n": "--sizes",
    "--type": "--dtypes",
    "--optimizer": "",
}
# What differs by a number is no misspelling.
OTHER_NUMBERS = {"float16": "", "floot64": "float64", "flaot": "float64"}
TYPES = ["float64", "float32", "uint8"]


@pytest.mark.parametrize(("word", "meant"), OTHER_NUMBERS.items())
def test_words_with_different_numbers_are_unlike(word, meant):
    assert nearest.nearest(word, TYPES) == meant


@pytest.mark.parametrize(("word", "meant"), MEANT.items())
def test_the_known_flag_that_is_closest(word, meant):
    assert nearest.nearest(word, FLAGS) == meant


VOCABULARIES = {
    "direction": ["fprop", "dgrad", "wgrad", "all"],
    "copy": ["h2d", "d2h", "d2d", "both"],
    "call": ["empty", "elementwise", "matmul", "copy", "step"],
    "command": ["conv", "matmul", "stream", "transfer", "compare"],
    "format": ["google-benchmark", "bencher", "github", "csv"],
    "table": ["table", "md", "csv", "json"],
    "flag": ["--batch", "--modes"],
}
TRANSLATED = {
    ("bwd", "direction"): "dgrad,wgrad",
    ("Backwards", "direction"): "dgrad,wgrad",
    ("backprop", "direction"): "dgrad,wgrad",
    ("forward", "direction"): "fprop",
    ("host2device", "copy"): "h2d",
    ("htod", "copy"): "h2d",
    ("cpu2gpu", "copy"): "h2d",
    ("device2host", "copy"): "d2h",
    ("gpu2cpu", "copy"): "d2h",
    ("dtod", "copy"): "d2d",
    ("kernel", "call"): "empty",
    ("copy", "call"): "copy",
    ("convolution", "command"): "conv",
    ("convolutions", "command"): "conv",
    ("matrix", "command"): "matmul",
    ("gemm", "command"): "matmul",
    ("memory", "command"): "stream",
    ("copy", "command"): "transfer",
    ("json", "format"): "google-benchmark",
    ("json", "table"): "json",
    ("--sizes", "flag"): "--batch",
}


@pytest.mark.parametrize(("typed", "meant"), TRANSLATED.items())
def test_a_word_of_another_vocabulary(typed, meant):
    word, vocabulary = typed
    assert nearest.nearest(word, VOCABULARIES[vocabulary]) == meant
