"""What the pages and pictures of reports may replace: earlier ones and links, never somebody's own files."""

import pathlib

import fake_measurements as fake
import pytest
from test_results_load import write

from analysis.report import command, replacing
from analysis.roofline import __main__ as roofline_command
from workloads import options


def test_a_report_replaces_itself_and_keeps_the_target_of_a_link(tmp_path):
    write(tmp_path, fake.cpu_run(sizes=(64, 128)))
    precious = tmp_path / "precious"
    precious.write_text("precious")
    page = tmp_path / "report.html"
    page.symlink_to(precious)
    for _ in range(2):
        assert command.main([str(tmp_path)]) == options.OK
    assert precious.read_text() == "precious"
    assert page.is_file() and not page.is_symlink()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("entry", [command.main, roofline_command.main])
def test_somebody_s_own_file_is_not_replaced(entry, tmp_path, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64, 128)))
    names = ("report.md", "report.html", "roofline.svg")
    for name in names:
        (tmp_path / name).write_text("my own notes")
    assert entry([str(tmp_path)]) == options.USAGE
    assert "was not written by Crossover" in capsys.readouterr().err
    assert {(tmp_path / name).read_text() for name in names} == {"my own notes"}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    page = tmp_path / "report.md"
    replacing.write(page, b"# What was measured: a machine")
    monkeypatch.setattr(pathlib.Path, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        replacing.write(page, b"# What was measured: another")
    assert page.read_bytes() == b"# What was measured: a machine"
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
