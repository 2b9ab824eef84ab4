"""Which of the user's files a trace depends on."""

from workloads.frameworks.tracing import user_files


def test_files_that_are_opened_or_imported_are_noted(tmp_path, monkeypatch):
    opened = user_files.OpenedFiles()
    for name in ("before", "inside"):
        (tmp_path / name).write_text(name)
    (tmp_path / "crossover_noted.py").write_text("x = 1\n")
    (tmp_path / "before").read_text()
    monkeypatch.syspath_prepend(tmp_path)
    with opened.noting():
        (tmp_path / "inside").read_text()
        __import__("crossover_noted")
    noted = opened.hashes()
    assert str(tmp_path / "inside") in noted
    assert str(tmp_path / "crossover_noted.py") in noted
    assert str(tmp_path / "before") not in noted
    # of the text `inside`
    assert noted[str(tmp_path / "inside")].startswith("106b0862")
