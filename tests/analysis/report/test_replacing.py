"""What the pages and pictures of reports may replace: earlier ones and links, never somebody's own files."""

import os
import pathlib

import fake_measurements as fake
import pytest
from result_files import write

from analysis import table
from analysis.report import command, replacing
from analysis.roofline import __main__ as roofline_command
from workloads import options


def test_a_report_replaces_itself(tmp_path):
    write(tmp_path, fake.cpu_run(sizes=(64, 128)))
    for _ in range(2):
        assert command.main([str(tmp_path)]) == options.OK
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("target", ["precious", "nothing", "report.old.md"])
def test_a_link_is_not_replaced(target, tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "report.old.md").write_text("# What was measured: a machine")
    page = tmp_path / "report.md"
    page.symlink_to(tmp_path / target)
    with pytest.raises(options.Usage, match="was not written by Crossover"):
        replacing.write(page, b"# What was measured: another")
    assert page.readlink() == tmp_path / target
    assert (tmp_path / "report.old.md").read_text() == "# What was measured: a machine"


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder", "no text in UTF-8"])
def test_an_irregular_page_is_refused_in_a_line(kind, tmp_path, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64,)))
    page = tmp_path / "page.md"
    if kind == "a pipe":
        os.mkfifo(page)
    elif kind == "a device":
        page.symlink_to("/dev/zero")
    elif kind == "a folder":
        page.mkdir()
    else:
        page.write_bytes(b"\xff\xfe")
    assert command.main([str(tmp_path), "--readme", str(page)]) == options.USAGE
    error, _ = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: cannot read {page}: it is {kind}")


def test_lines_outside_the_markers_keep_their_ends(tmp_path):
    page = tmp_path / "page.md"
    marker = b"<!-- answer: python -m analysis.report RUN --readme page.md -->"
    page.write_bytes(b"one\r\n" + marker + b"\r\nold\r\n<!-- /answer -->\r\ntwo\nthree\r\n")
    table.put_blocks(page, {"answer": ["new"]}, "RUN", "analysis.report RUN --readme page.md")
    expected = b"one\r\n" + marker + b"\r\nnew\r\n<!-- /answer -->\r\ntwo\nthree\r\n"
    assert page.read_bytes() == expected


@pytest.mark.parametrize("entry", [command.main, roofline_command.main])
def test_somebody_s_own_file_is_not_replaced(entry, tmp_path, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64, 128)))
    names = ("report.md", "report.html", "roofline.svg")
    for name in names:
        (tmp_path / name).write_text("my own notes")
    assert entry([str(tmp_path)]) == options.USAGE
    assert "was not written by Crossover" in capsys.readouterr().err
    assert {(tmp_path / name).read_text() for name in names} == {"my own notes"}


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    page = tmp_path / "report.md"
    replacing.write(page, b"# What was measured: a machine")
    monkeypatch.setattr(pathlib.Path, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        replacing.write(page, b"# What was measured: another")
    assert page.read_bytes() == b"# What was measured: a machine"
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
