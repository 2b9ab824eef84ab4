"""The command that writes a page: what it prints and refuses."""

import fake_measurements as fake
import pytest
from result_files import write

from analysis.report import command, page
from analysis.roofline import __main__ as roofline_command
from workloads import options


def test_commands_print_answer_roofs_and_paths(tmp_path, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64,)))
    assert command.main([str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "report.html")
    assert roofline_command.main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "peak/numba/fma, float32, 2 threads" in out and out.splitlines()[-1] == str(tmp_path / "roofline.svg")


def test_a_page_of_several_folders_lies_in_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(page, "LOCAL", tmp_path / "local")
    of = {name: tmp_path / machine / name for machine, name in (("gpu", "a"), ("cpu", "b"), ("cpu", "c"))}
    for name, folder in of.items():
        folder.mkdir(parents=True)
        write(folder, fake.gpu_run(sizes=(64,)) if name == "a" else fake.cpu_run(sizes=(64,)))
    before = {name: sorted(folder.iterdir()) for name, folder in of.items()}
    assert command.main([str(of["a"]), str(of["b"])]) == 0
    made = tmp_path / "local" / "beside" / "gpu-a-beside-cpu-b" / "report.html"
    assert capsys.readouterr().out.splitlines()[-1] == str(made) and made.is_file()
    assert {name: sorted(folder.iterdir()) for name, folder in of.items()} == before
    assert page.place(of.values()) == tmp_path / "local" / "beside" / "gpu-a-beside-2-more"
    assert page.place(of.values(), tmp_path / "out") == tmp_path / "out"
    assert page.place([of["b"] / "0.jsonl", of["b"] / "0.jsonl", of["b"]]) == of["b"]


@pytest.mark.parametrize("entry", [command.main, roofline_command.main])
def test_bad_input_is_one_error_line(entry, tmp_path, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64,)))
    other = tmp_path / "other"
    other.mkdir()
    write(other, fake.gpu_run(sizes=(64,)))
    (tmp_path / "file").write_text("")
    kept = other / "report.md"
    bad = [([str(tmp_path / "nowhere")], "no result file")]
    bad.append(([str(other), "-o", str(tmp_path / "file" / "x")], "cannot write"))
    if entry is roofline_command.main:
        bad.append(([str(tmp_path / "0.jsonl"), str(other)], "machines (intel-avx512-2c, nvidia-h200)"))
    else:
        bad.append(([str(kept)], "report.md is no result file"))
    for words, message in bad:
        if words == [str(kept)]:
            kept.write_text("# A page")
        assert entry(words) == 2
        error, *more, tip = capsys.readouterr().err.splitlines()
        assert message in error
        assert not more or (words == [str(kept)] and "was not written by Crossover" in more[0])
        assert tip.startswith("  try") and f": {options.python()} -m " in tip
    if entry is command.main:
        assert kept.read_text() == "# A page"
        assert f".report {other} -o " in tip
