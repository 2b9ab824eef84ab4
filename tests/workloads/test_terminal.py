"""The terminal's width: lines that wrap, tables that fit, colors, control characters."""

import io
import os
import shlex
import subprocess

import pytest

from analysis.table import Best, Printed, Table, shown
from workloads import terminal

PYTHON = "/some/where/.venv/bin/python"
COMMAND = f"{PYTHON} -m workloads.matmul --sizes 64:4096:x2 --fail-on 'slower > 5%' -o a/folder"


@pytest.mark.parametrize("most", [20, 40, 60, 80])
def test_lines_wrap_so_that_commands_can_be_copied(most):
    said = "ok    CPU        AMD EPYC, 2 cores, AVX-512, virtual, with a clock of 3.8 GHz that moved by more than 3 %"
    told = terminal.wrapped(said, most)
    assert max(map(len, told)) <= most and " ".join(" ".join(told).split()) == " ".join(said.split())
    line = terminal.Line(label="  try: ", command=COMMAND)
    copied = terminal.wrapped(line, most)
    assert max(map(len, copied)) <= most
    script = "\n".join(copied).replace("try:", "", 1).replace(PYTHON, "printf '%s,'", 1)
    if PYTHON in "\n".join(copied):
        shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
        assert shown == "-m,workloads.matmul,--sizes,64:4096:x2,--fail-on,slower > 5%,-o,a/folder,"
    warning = terminal.Line("1 warning: ", command=f"{PYTHON} -m a {'x' * (most - 2)}")
    assert terminal.wrapped(warning, most)[-1] == "x" * (most - 2)
    assert terminal.wrapped(line, 0) == [line] and terminal.wrapped("short", 40) == ["short"]


def test_following_lines_are_indented_and_tables_fitted():
    item = terminal.Line("one two three four five", label="- ")
    assert terminal.wrapped(item, 20) == ["- one two three four", "  five"]
    assert terminal.wrapped(terminal.Line(item, label="  "), 20) == ["  - one two three", "    four five"]
    result = terminal.Line("one two three four", label="ok  CPU  ")
    assert terminal.wrapped(result, 20) == ["ok  CPU  one two", "         three four"]
    assert terminal.wrapped("  one two three four five", 20) == ["  one two three four", "  five"]
    parts = ["Errors:", Table("a | b", [("x|y <1>", "10"), ("z", "2")]), "end"]
    assert shown(parts) == ["Errors:", "a         b", "x|y <1>  10", "z         2", "end"]
    assert shown(parts, True)[3:] == ["| x\\|y &lt;1&gt; | 10 |", "| z | 2 |", "end"]


ROWS = [("matmul/numpy/operator", "1.5", "-", "fine"), ("a", "22.25", "-", "other-load cpu-clock")]


def test_a_table_fits_drops_and_shortens():
    made = Table("kernel | ms | empty | notes", ROWS, optional="empty", least="ms", last=True)
    assert made.text(0) == [
        "kernel                    ms  notes",
        "matmul/numpy/operator    1.5  fine",
        "a                      22.25  other-load cpu-clock",
    ]
    assert made.text(45)[1] == "matmul/numpy/operator  fine"
    assert made.text(30)[1:] == [
        "matmul/numpy/o  fine",
        "perator",
        "a               other-load",
        "                cpu-clock",
    ]
    assert made.text(20)[:4] == ["matmul/numpy/operato", "r", "  ms: 1.5", "  notes: fine"]  # nothing is lost
    for most in (20, 40, 60):
        assert max(map(len, made.text(most))) <= most
    assert made.md()[:3] == [
        "| kernel | ms | notes |",
        "| --- | ---: | --- |",
        "| matmul/numpy/operator | 1.5 | fine |",
    ]


def test_rows_are_printed_as_they_come(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    made = Printed("kernel 12< | ms 6")
    made.show(["numpy/a-long-name", "1.0"])
    made.show(["numpy/one-that-is-much-too-long", "1.0"])
    head, *printed = capsys.readouterr().out.splitlines()
    assert head == "kernel            ms" and max(map(len, printed)) <= 24
    assert printed == ["numpy/a-long-     1.0", "name", "numpy/one-that-     1.0", "is-much-too-long"]
    Printed("kernel 12< | notes 5<").show(["numpy/blas", "it has 2 inputs and 1 output"])
    assert capsys.readouterr().out.splitlines()[1:] == ["numpy/blas", "  it has 2 inputs and 1", "  output"]


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


def test_a_printed_line_wraps_by_its_parts(monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    stream = io.StringIO()
    out = terminal.Wrapping(stream, terminal.Waiting(stream))
    line = terminal.Line("measure here: ", label="Do   ", command="python -m workloads.peak")
    print("Do", line, file=out)
    terminal.show([line, "end"], out)
    wraps = ["Do   measure here:", "     python -m \\", "      workloads.peak"]
    at_words = ["Do Do   measure here:", "python -m workloads.peak"]
    assert stream.getvalue().splitlines() == [*at_words, *wraps, "end"]
    assert line == "Do   measure here: python -m workloads.peak"


def test_a_silent_command_shows_that_it_works(monkeypatch):
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
    assert stream.getvalue().endswith("\nThe GPU: 61 s against 126 s on the CPU\n")


@pytest.mark.parametrize("word", ["a\x1bb.keras", "it's\n\u202eb", "caf\udcff", "'\x07'\\", "plain word"])
def test_a_command_with_control_characters_can_be_copied(word):
    command = terminal.quoted_controls(shlex.join(["printf", "%s", word]))
    assert command.isprintable()
    assert subprocess.run(["bash", "-c", command], capture_output=True).stdout == os.fsencode(word)


def test_control_characters_of_a_name_are_shown():
    assert terminal.on_one_line("a\x1bb\n\u202e µ") == "a\\x1bb\\n\\u202e µ"


CLEARS, TITLE, EIGHT_BIT, REVERSED = "\x1b[2J", "\x1b]0;mine\x07", "\x9b31m", "\u202e"


def test_what_a_terminal_would_obey_is_never_printed(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    hostile = f"a{CLEARS}b{TITLE}c{EIGHT_BIT}d{REVERSED}e\r\x00\x7ff µ\t"
    shown = "a[2Jb]0;minec31mdef µ\t"
    for stream, color in ((io.StringIO(), ""), (Terminal(), "\x1b[31m")):
        out = terminal.Wrapping(stream, terminal.Waiting(stream))
        out.write(f"{terminal.paint('!', 'bad', stream)}{hostile}\r\n")
        assert stream.getvalue() == (f"{color}!\x1b[0m" if color else "!") + f"{shown}\r\n"
    piped = io.StringIO()
    terminal.Wrapping(piped, terminal.Waiting(piped)).write("\x1b[31mred\n")  # our own color, out of a file
    assert piped.getvalue() == "[31mred\n"
    stream = Terminal()
    waiting = terminal.Waiting(stream)
    waiting.what = CLEARS
    waiting.show(waiting._last + 2)
    assert CLEARS not in stream.getvalue()
    with terminal.drawing(out):
        out.write("\x1b[1A\n")
    out.write("\x1b[1A\n")
    assert out.getvalue().endswith("\x1b[1A\n[1A\n")


def test_a_path_that_begins_with_a_dash(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert terminal.near("-dash/matmul.jsonl") == "./-dash/matmul.jsonl"
    assert terminal.near(tmp_path / "-dash" / "matmul.jsonl") == "./-dash/matmul.jsonl"
    assert terminal.near("runs/-dash/matmul.jsonl") == "runs/-dash/matmul.jsonl"
