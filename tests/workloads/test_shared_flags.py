"""The flags that every measuring command shares, as one record."""

import dataclasses
import shlex

import pytest

from workloads import keywords, options, shared_flags, stream
from workloads.shared_flags import FINE, Limits, Measuring

TYPED = "--device cpu,gpu:1 --threads 4,1 --fast --max-time 2 --seed 7 --stop-after 2min -o runs --against before -q"


def test_flags_are_read_once_into_a_record():
    words = [*shlex.split(TYPED), "--fail-on", "slower>5%", "--backends", "numpy", "numba"]
    assert stream.parse(words).measuring == Measuring(
        command=shlex.join(["python", "-m", "workloads.stream", *words]),
        devices=("cpu", "gpu:1"),
        backends=("numpy", "numba"),
        threads=(1, 4),
        fast=True,
        limits=Limits(0.025, 3, 0.05, 2.0, slow_step_s=0.1),
        seed=7,
        stop_after_s=120.0,
        output="runs",
        against="before",
        fail_on=0.05,
        quiet=True,
    )
    assert stream.parse([]).measuring == Measuring(command="python -m workloads.stream", limits=FINE)
    assert Limits() == FINE == Limits(visit_s=0.075, rounds=5, max_noise=0.01, max_time=2.0, slow_step_s=None)
    assert stream.parse(["--rigorous"]).measuring.limits == dataclasses.replace(FINE, rounds=10)
    assert stream.parse(["--fast"]).measuring.limits == Limits(0.025, 3, 0.05, 0.25, slow_step_s=0.1)


def test_keywords_ask_for_what_their_words_ask_for():
    words = keywords.words_of(stream.parser(), sizes=["8KiB", "1MiB"], min_time=1e-05, device="cpu", fast=True)
    typed = shlex.split("--sizes 8KiB 1MiB --min-time 0.00001 --device cpu --fast")
    by_keywords, by_words = stream.parse(words), stream.parse(typed)
    assert by_keywords.problems == by_words.problems
    assert by_keywords.with_measuring(command="") == by_words.with_measuring(command="")


@pytest.mark.parametrize(("words", "message"), [("--device ,", "names nothing"), ("--threads many", "whole number")])
def test_an_empty_flag_is_refused_before_planning(words, message):
    with pytest.raises(options.Usage, match=message):
        stream.parse(words.split())


def test_a_noise_limit_of_100_percent_is_allowed():
    """As the sweeps of `doctor --noise` ask for."""
    assert shared_flags._noise("1") == 1.0 and shared_flags._noise("100%") == 1.0
