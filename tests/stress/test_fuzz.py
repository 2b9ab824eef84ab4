"""A few hundred made-up inputs a target; `make stress NAME=fuzz` takes 100,000."""

import re

import fuzzing
import pytest
from hypothesis import HealthCheck, given, settings


def few(count: int):
    how = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=count, derandomize=True, **how)


@few(150)
@given(fuzzing.SIZES)
def test_words_of_a_command_line(words):
    fuzzing.sizes(words)


@few(120)
@given(fuzzing.FILES)
def test_lines_of_a_file(lines):
    fuzzing.reader(lines)


@few(30)
@given(fuzzing.PAGES)
def test_a_folder_that_a_sweep_goes_on_in(lines):
    fuzzing.resumed(lines)


@few(60)
@given(fuzzing.RESUMED_RUNS)
def test_runs_that_resume_by_other_methods(runs):
    fuzzing.methods(runs)


@few(60)
@given(fuzzing.FOLDERS)
def test_files_of_any_kind(case):
    fuzzing.special(case)


@few(100)
@given(fuzzing.OUTPUTS)
def test_where_a_report_writes(case):
    fuzzing.outputs(case)


@few(8)
@given(fuzzing.PAGES)
def test_what_a_report_is_made_from(lines):
    fuzzing.page(lines)


@few(4)
@given(fuzzing.PAGES)
def test_what_commands_print(lines):
    fuzzing.printed(lines)


def test_an_escape_that_is_printed_is_seen(monkeypatch):
    monkeypatch.setattr("workloads.terminal.printable", lambda text, painted=False: text)
    sound, failed = b'"samples":', b'"status":"failed","reason":"\\u001b[2J","samples":'
    with pytest.raises(AssertionError):
        fuzzing.printed([line.replace(sound, failed) for line in fuzzing.LINES])


def test_the_lines_that_are_changed_are_sound_ones():
    assert fuzzing.reader(fuzzing.LINES).bad_lines == 0
    assert len(fuzzing.reader(fuzzing.LINES).measurements) == len(fuzzing.LINES) - 1


def test_a_target_that_breaks_is_seen(monkeypatch):
    monkeypatch.setattr(fuzzing.options, "sizes", lambda words: [0])
    with pytest.raises(AssertionError):
        fuzzing.sizes(["1"])
    monkeypatch.setattr("workloads.records.result_lines.sound", lambda line: True)
    wrong = [
        re.sub(rb'"block_sizes":\[[^]]*', b'"block_sizes":[', line.replace(b"/numpy/", b"/mkl/"))
        for line in fuzzing.LINES
    ]
    with pytest.raises(ValueError, match="zip"):
        fuzzing.page(wrong)
