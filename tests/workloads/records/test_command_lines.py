"""Stored command lines: flags left out, another folder, no folders of the machine."""

import pytest

from workloads.records import command_lines

MATMUL = "python -m workloads.matmul --sizes 64"


@pytest.mark.parametrize(
    "command",
    [
        f"{MATMUL} --resume --fast",
        f"{MATMUL} --stop-after 9 --fast",
        f"{MATMUL} --stop-after=5min --fast --resume",
        f"{MATMUL} --stop-after '10 s' --fast",
    ],
)
def test_flags_go_with_their_values(command):
    assert command_lines.without(command, command_lines.STOPPING) == f"{MATMUL} --fast"


@pytest.mark.parametrize(
    ("typed", "other"),
    [
        ("-o reports/x --resume", "-o reports/x-new"),
        ("--output=reports/x --fast", "--output=reports/x-new --fast"),
        ("--output 'my runs' --resume", "--output 'my runs-new'"),
        ("--resume --fast", "--fast"),
    ],
)
def test_a_command_begun_anew_has_another_folder(typed, other):
    assert command_lines.with_new_folder(f"{MATMUL} {typed}") == f"{MATMUL} {other}"


def test_whether_a_command_names_its_folder():
    assert command_lines.has_output(f"{MATMUL} -o x") and command_lines.has_output(f"{MATMUL} --output=x")
    assert not command_lines.has_output(f"{MATMUL} --variants -other")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (f"{MATMUL} -o /a/b/c --data=/x/y", f"{MATMUL} -o c --data=y"),
        ("python -m analysis.report reports/a/b", "python -m analysis.report reports/a/b"),
        (f"{MATMUL} --save 'a`b\nc'", f"{MATMUL} --save 'ab c'"),
    ],
)
def test_a_portable_command_names_no_folder(command, shown):
    assert command_lines.portable(command) == shown


def test_arguments_are_those_of_one_module():
    assert command_lines.arguments(f"{MATMUL} --fast", "workloads.matmul") == ["--sizes", "64", "--fast"]
    assert command_lines.arguments(MATMUL, "workloads.conv") is None


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (f"{MATMUL} --fast -o old --resume --stop-after 9", f"{MATMUL} --fast -o 'a folder' --resume"),
        (f"{MATMUL} --output=old", f"{MATMUL} -o 'a folder' --resume"),
        ("python -m", ""),
        ("", ""),
        ("make stress", ""),
        ("python -m workloads_of_others.matmul", ""),
    ],
)
def test_a_run_is_resumed_where_its_file_lies(command, shown):
    assert command_lines.resumed(command, "a folder") == shown
