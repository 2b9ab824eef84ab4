"""compare, what runs differ by, and named baselines: verdicts worked out by hand, refusals, exit codes."""

import csv
import io
import json
import shlex
from pathlib import Path

import fake_measurements as fake
import msgspec
import pytest
from fake_comparisons import RUN, loaded, steady, timed
from fake_measurements import CPU_MACHINE, GPU_MACHINE
from msgspec.structs import replace

from analysis.compare import command, comparison
from analysis.metrics import COMPARED
from analysis.text import comparisons
from workloads import matmul, options, records, session
from workloads.records import Samples, baselines


@pytest.mark.parametrize(
    ("rule", "code"),
    [(["slower>2%"], 0), (["slower>2%", "--strict"], options.UNSEEN), (["slower>5%", "--strict"], 0), (["slower"], 0)],
)
def test_a_rule_hidden_by_noise_warns_strictly_fails(rule, code, tmp_path, capsys):
    """Rows that show 3 % and more: a rule of 2 % says nothing of them."""
    old, new = (write(tmp_path / name, timed(steady(center, 0.0))) for name, center in (("a", 1.0), ("b", 1.001)))
    assert command.main([old, new, "--fail-on", *rule]) == code
    warned = "warning: 2.0 % slower would not have been seen in 1 of 1 row" in capsys.readouterr().err
    assert warned == (rule[0] == "slower>2%")


def test_strict_asks_for_a_share(runs, capsys):
    assert (
        command.main([*runs, "--strict"]) == command.main([*runs, "--strict", "--fail-on", "slower"]) == options.USAGE
    )
    assert "--strict needs --fail-on" in capsys.readouterr().err


def test_one_sample_and_lone_rows():
    one = Samples("host-latency", (1.0,), 1, (1,), "max-time")
    old = loaded(timed(one), timed(steady(1.0), n=2), timed(steady(1.0), n=3), timed(one, n=4, status="failed"))
    untimed = timed(one, n=6, status="failed")  # a new row without a time is none of the lone ones
    failed = timed(steady(1.0), n=3, status="failed")
    new = loaded(timed(replace(one, seconds=(3.0,))), failed, timed(steady(1.0), n=5), untimed)
    made = comparison.comparison(old, new)
    assert [(r.old.problem.n, r.word) for r in made.rows] == [(64, "can't tell")]
    assert [m.problem.n for m in made.broken] == [3]
    assert [m.problem.n for m in made.only_old] == [2] and [m.problem.n for m in made.only_new] == [5]
    assert command.verdict(made, 0.05) == options.REGRESSION and command.verdict(made, None) == options.OK
    assert comparisons.summary(made) == "0 slower, 0 faster, 0 the same within 5 %, 1 can't tell, 1 broken: of 2 rows."


def test_differences_of_machines_come_first():
    gpus = (replace(GPU_MACHINE.gpus[0], uuid="GPU-1", power_limit_w=600.0),)
    one, two = (replace(RUN, machine=m) for m in (GPU_MACHINE, replace(GPU_MACHINE, gpus=gpus, driver="590.1")))
    two = replace(two, software={"numpy": "2.5"}, sources="xyz")
    made = comparison.comparison(loaded(timed(steady(1.0)), run=one), loaded(timed(steady(1.0)), run=two))
    told = "driver: 580.0 -> 590.1; gpu:0 power_limit_w: 700.0 -> 600.0; numpy: 2.4 -> 2.5; sources: def -> xyz"
    assert list(made.differences) == told.split("; ")
    notes = comparisons.notes(made)
    assert "differs: driver: 580.0 -> 590.1" in notes and "... and 2 other differences (-v)" in notes
    assert "differs: sources: def -> xyz" in comparisons.notes(made, verbose=True)


def write(folder, *measurements, machine=CPU_MACHINE):
    fake.write(folder / "matmul.jsonl", replace(RUN, machine=machine), measurements)
    return str(folder)


@pytest.fixture
def runs(tmp_path):
    old = write(tmp_path / "old", timed(steady(1.0)), timed(steady(1.0), n=128), timed(steady(1.0), n=512))
    return old, write(tmp_path / "new", timed(steady(1.07)), timed(steady(0.9), n=128), timed(steady(1.0), n=512))


@pytest.mark.parametrize(
    ("rule", "code"),
    [(["--fail-on", "slower>5%"], 4), (["--fail-on", "slower>10%"], 0), (["--fail-on", "slower"], 4), ([], 0)],
)
def test_the_exit_code(runs, rule, code, capsys):
    assert command.main([*runs, *rule]) == code
    out, err = capsys.readouterr()
    first, _, head, *rows = out.splitlines()
    assert first == "1 slower, 1 faster, 1 the same within 5 %, 0 can't tell: of 3 rows."
    assert ("regression: 1 row" in err) == (code == 4) and head.split()[:4] == ["row", "old", "new", "change"]
    assert rows[0].startswith("matmul/numpy/blas n=64 ") and "+7.0 % slower" in rows[0]
    assert " -10.0 % faster" in rows[1] and rows[2] == ""


@pytest.mark.parametrize("nameless", ["old", "new"])
def test_a_run_without_its_machine_matches_no_other(runs, nameless, capsys):
    file = Path(runs[nameless == "new"], "matmul.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[1:]))
    assert command.main([*runs]) == 2
    error, tried = capsys.readouterr().err.splitlines()
    assert f"{nameless.upper()} has no line that names its machine" in error and error.count("intel-avx512-2c") == 1
    assert "same:" not in error and tried.endswith(" --any-machine")
    assert command.main([*runs, "--any-machine"]) == 0


def test_two_machines_are_refused_unless_asked_for(runs, tmp_path, capsys):
    other = write(tmp_path / "gpu", timed(steady(1.0)), machine=GPU_MACHINE)
    assert command.main([runs[0], other]) == 2
    err = capsys.readouterr().err.splitlines()
    assert "intel-avx512-2c" in err[0]
    assert "nvidia-h200" in err[0] and err[1].endswith(f"{runs[0]} {other} --any-machine")
    assert command.main([runs[0], other, "--any-machine"]) == 0
    assert "differs: machine: intel-avx512-2c -> nvidia-h200" in capsys.readouterr().out


def test_formats_hold_the_same_rows(runs, capsys):
    assert command.main([*runs, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert command.main([*runs, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [r["row"] for r in told] == [r["row"] for r in rows] and list(told[0]) == list(COMPARED)
    assert [r["verdict"] for r in told] == ["slower", "faster", "same"]
    assert told[0]["ratio"] == pytest.approx(1.07, abs=2e-3)
    assert command.main([*runs, "--format", "md", "-v"]) == 0
    assert sum(line.startswith("| ") for line in capsys.readouterr().out.splitlines()) == 5


def test_runs_without_a_row_in_common(runs, tmp_path, capsys):
    assert command.main([runs[0], write(tmp_path / "x", timed(steady(1.0), n=7))]) == 2
    assert "no row in common" in capsys.readouterr().err
    no_time = write(tmp_path / "y", timed(steady(1.0), status="failed"))
    assert command.main([no_time, runs[1]]) == 2
    (error, _) = capsys.readouterr().err.splitlines()
    assert error == f"error: no row in {no_time} has a time"
    assert command.main([runs[0], no_time, "--fail-on", "slower>5%"]) == options.REGRESSION
    assert "regression: 1 row" in capsys.readouterr().err


class TestBaselines:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr(baselines, "FOLDER", tmp_path / "saved")

    def test_a_saved_name_is_never_overwritten(self, runs, tmp_path):
        kept = baselines.save("before", records.files_of(runs[0]))
        assert records.read("before").measurements == records.read(runs[0]).measurements
        assert baselines.names() == ["before"]
        with pytest.raises(options.Usage, match="exists"):
            baselines.save("before", [])
        assert kept == tmp_path / "saved" / "before"

    def test_a_stored_machines_name_cannot_be_taken(self):
        with pytest.raises(options.Usage, match="'nvidia-h200' names a stored machine"):
            baselines.require_free("nvidia-h200")

    @pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "-x", "a b", "x" * 101])
    def test_names_that_are_paths_are_none(self, name):
        with pytest.raises(options.Usage, match="no name"):
            baselines.folder(name)
        assert baselines.find(name) is None

    def test_a_folder_that_cannot_be_written(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setattr(baselines, "FOLDER", tmp_path / "file" / "saved")
        with pytest.raises(options.Usage, match="cannot save"):
            baselines.save("x", [])

    def test_an_incomplete_or_foreign_baseline_is_left_alone(self, runs, tmp_path, monkeypatch):
        with pytest.raises(options.Usage, match="cannot save"):
            baselines.save("half", [*records.files_of(runs[0]), tmp_path / "nosuch"])
        assert baselines.names() == []
        baselines.save("other", records.files_of(runs[0]))
        # made by another between the question and the copy
        monkeypatch.setattr(baselines, "require_free", lambda name: None)
        with pytest.raises(options.Usage, match="cannot save"):
            baselines.save("other", [])
        assert len(records.read("other").measurements) == 3

    def measuring(self, *argv):
        return matmul.parse(["-q", *argv]).measuring

    def test_flags_are_checked_before_anything_is_measured(self, runs):
        baselines.save("before", records.files_of(runs[0]))
        for argv, message in (
            (["--fail-on", "slower>5%"], "needs --against"),
            (["--save", "before"], "exists"),
            (["--against", "nosuch"], "no baseline or run 'nosuch'; saved: before"),
            (["--save", "../../x"], "no name for a baseline"),
            (["--save", ""], "names nothing"),
            (["--against", ""], "names nothing"),
        ):
            with pytest.raises(options.Usage, match=message):
                session.check_files(self.measuring(*argv))
            with pytest.raises(options.Usage, match=message):
                session.carry_out(matmul.parse(["-q", "--dry-run", *argv]))
        session.check_files(self.measuring("--save", "after", "--against", "before", "--fail-on", "slower>5%"))

    def test_at_the_end_rows_are_saved_and_compared(self, runs, capsys):
        baselines.save("before", records.files_of(runs[0]))
        files = records.files_of(runs[1])
        measuring = self.measuring("--save", "after", "--against", "before", "--fail-on", "slower>5%")
        assert session.save_and_compare(measuring, files, options.OK) == options.REGRESSION
        out, err = capsys.readouterr()
        assert "against before:" in out
        assert "1 slower" in out and "regression" in err and baselines.names() == ["after", "before"]
        measuring = self.measuring("--against", "before", "--fail-on", "slower>5%", "--format", "json")
        assert (
            session.save_and_compare(measuring, files, options.OK) == options.REGRESSION and not capsys.readouterr().out
        )
        assert session.save_and_compare(measuring, files, options.FAILED) == options.FAILED
        assert session.save_and_compare(measuring, files, options.INTERRUPTED) == options.INTERRUPTED
        assert session.save_and_compare(self.measuring(), files, options.OK) == options.OK

    def test_another_machines_baseline_needs_its_own_command(self, runs, tmp_path, monkeypatch, capsys):
        other = write(tmp_path / "a gpu", timed(steady(1.0)), machine=GPU_MACHINE)
        measuring = self.measuring("--against", other)
        with pytest.raises(options.Usage) as refused:
            session.save_and_compare(measuring, records.files_of(runs[1]), options.OK)
        assert refused.value.instead == f"python -m analysis.compare '{other}' {runs[1]} --any-machine"
        assert command.main(shlex.split(refused.value.instead)[3:]) == options.OK

    def test_a_function_does_not_compare(self):
        with pytest.raises(TypeError, match="flag of the command"):
            matmul.run(save="x")


def test_a_row_unreadable_in_the_later_run_regresses(tmp_path, capsys):
    """The second row of NEW has a time of 1e999 seconds, which no float holds."""
    old = write(tmp_path / "old", timed(steady(1.0)), timed(steady(1.5), n=128))
    new = write(tmp_path / "new", timed(steady(1.0)))
    rule = [old, new, "--fail-on", "slower>5%"]
    assert command.main(rule) == options.OK
    lost = msgspec.json.encode(timed(steady(1.5), n=128)).replace(b"1.5", b"1e999")
    (file,) = records.files_of(new)
    with open(file, "ab") as lines:
        lines.write(lost + b"\n")
    assert command.main(rule) == options.REGRESSION
    assert capsys.readouterr().err.count(f"warning: 1 line of {file} cannot be read") == 1
    made = comparison.comparison(records.read(old), records.read(new))
    assert [m.problem.n for m in made.lost] == [128]


@pytest.mark.parametrize(
    ("text", "share"),
    [("slower>5%", 0.05), ("slower > 2.5 %", 0.025), ("slower>5", 0.05), ("5%", 0.05), ("slower", 0.0)],
)
def test_rules(text, share):
    assert options.regression(text) == pytest.approx(share)
