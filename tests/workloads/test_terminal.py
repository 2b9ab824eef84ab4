"""The terminal's width, lines that wrap and tables that fit."""

import io
import subprocess

import pytest

from analysis.table import Best, Printed, Table, shown
from workloads import options, terminal

COMMAND = (
    "  try: /some/where/.venv/bin/python -m workloads.matmul --sizes 64:4096:x2 --fail-on 'slower > 5%' -o a/folder"
)


@pytest.mark.parametrize("most", [20, 40, 60, 80])
def test_lines_wrap_between_words_and_commands_can_be_copied(most):
    said = "ok    CPU        AMD EPYC, 2 cores, AVX-512, virtual, with a clock of 3.8 GHz that moved by more than 3 %"
    told = terminal.wrapped(said, most)
    assert max(map(len, told)) <= most and " ".join(" ".join(told).split()) == " ".join(said.split())
    copied = terminal.wrapped(COMMAND, most)
    assert max(map(len, copied)) <= most
    script = "\n".join(copied).replace("try:", "", 1).replace("/some/where/.venv/bin/python", "printf '%s,'", 1)
    if "/some/where/.venv/bin/python" in "\n".join(copied):
        shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
        assert shown == "-m,workloads.matmul,--sizes,64:4096:x2,--fail-on,slower > 5%,-o,a/folder,"
    assert terminal.wrapped(COMMAND, 0) == [COMMAND] and terminal.wrapped("short", 40) == ["short"]


def test_lines_that_follow_stand_under_their_text_and_tables_in_markdown_are_fitted():
    assert terminal.wrapped("- one two three four five", 20) == ["- one two three four", "  five"]
    assert terminal.wrapped("ok  CPU  one two three four", 20) == ["ok  CPU  one two", "         three four"]
    lines = ["Errors:", "", *Table("a | b", [("x|y <1>", "10"), ("z", "2")]).md(), "end"]
    with_width = shown(lines)
    assert with_width == ["Errors:", "", "a         b", "x|y <1>  10", "z         2", "", "end"]


ROWS = [("matmul/numpy/operator", "1.5", "-", "fine"), ("a", "22.25", "-", "other-load cpu-clock")]


def test_a_table_fits_drops_and_shortens():
    made = Table("kernel | ms | empty | notes", ROWS, optional="empty", least="ms", last=True)
    assert made.text(0) == [
        "kernel                    ms  notes",
        "matmul/numpy/operator    1.5  fine",
        "a                      22.25  other-load cpu-clock",
    ]
    assert made.text(45)[1] == "matmul/numpy/operator  fine"
    assert made.text(30)[1:] == ["matmul/nu…ator  fine", "a               other-loa…lock"]
    for most in (20, 40, 60):
        assert max(map(len, made.text(most))) <= most
    assert made.md()[:3] == [
        "| kernel | ms | notes |",
        "| --- | ---: | --- |",
        "| matmul/numpy/operator | 1.5 | fine |",
    ]


def test_rows_are_printed_as_they_come_with_room_where_there_is_some(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    made = Printed("kernel 12< | ms 6")
    made.show(["numpy/a-long-name", "1.0"])
    made.show(["numpy/one-that-is-much-too-long", "1.0"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "kernel            ms"
    assert printed[1] == "numpy/a-long-name     1.0"[:24] or len(printed[1]) <= 24
    assert len(printed[2]) <= 24 and "…" in printed[2]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_color_only_on_a_terminal_that_wants_it(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.paint("CPU", "best", Terminal()) == "\x1b[1;32mCPU\x1b[0m"
    assert terminal.length(terminal.paint("CPU", "best", Terminal())) == 3
    assert terminal.paint("CPU", "best", io.StringIO()) == "CPU"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert terminal.paint("CPU", "best", Terminal()) == "CPU"
    monkeypatch.setattr(terminal.sys, "stdout", Terminal())
    assert Table("a | b", [(Best("x"), "1")]).text(0)[1] == "\x1b[1;32mx\x1b[0m  1"


def test_what_a_command_prints_wraps_unless_it_is_for_machines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    made = options.parser("workloads.x", "", "python -m workloads.x")
    options.add(made, "--format {table,json} =table  what")

    def body(args):
        print("one two three four five six seven")
        return 0

    assert options.command(made, [], body) == 0 and options.command(made, ["--format", "json"], body) == 0
    assert capsys.readouterr().out.splitlines() == [
        "one two three four five six",
        "seven",
        "one two three four five six seven",
    ]
    monkeypatch.delenv("COLUMNS")
    assert terminal.width(io.StringIO()) == 0
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.Wrapping(plain, terminal.Waiting(plain)).write("█░ 3 µs ±1 %…\n")
    plain.flush()
    assert plain.buffer.getvalue() == b"#. 3 us ~1 %~\n"


def test_a_command_that_says_nothing_shows_that_it_works(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    waiting = terminal.Waiting(stream)
    waiting.show(waiting._last + 0.3)
    assert stream.getvalue() == ""
    waiting.show(waiting._last + 2)
    assert stream.getvalue() == "\r\x1b[K[2 s] working ..."
    out = terminal.Wrapping(stream, waiting)
    out.write("one\n")
    assert stream.getvalue().endswith("...\r\x1b[Kone\n")
    out.write("half a line")
    out.flush()
    waiting.show(waiting._last + 9)
    assert stream.getvalue().endswith("half a line")
    out.write("\nThe GPU: 61 s against 126 s on the CPU\n")
    assert stream.getvalue().endswith("\n\x1b[1;32mThe GPU\x1b[0m: 61 s against 126 s on the CPU\n")
