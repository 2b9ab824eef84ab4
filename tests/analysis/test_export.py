"""Exports: what other tools read, worked out by hand; nothing that JSON cannot say."""

import csv
import io
import json
import math
import resource
import signal

import msgspec
import pytest
from fake_measurements import GPU_MACHINE, answer, gpu_run, row, run, square, write

from analysis import export, table
from analysis.export import ExportPlan
from analysis.roofline import frame
from workloads import options, printing
from workloads.records import Loaded, Row, Samples, Settings

RUN = run(GPU_MACHINE)
# Blocks' medians are 1, 3 and 2 microseconds.
TAKEN = Samples("host-latency", (0.9e-6, 1.1e-6, 3e-6, 3e-6, 1e-6, 3e-6), 7, (2, 2, 2), "steady")
ROW = answer(Row("matmul/numpy/blas", square(10), Settings(threads=2)), TAKEN, flags=("steal",))
FAILED = row("matmul/numpy/blas", square(11), None, status="failed")
LOADED = Loaded((RUN,), (ROW, FAILED), 0, ())
NAME = "matmul/numpy/blas/m:10/n:10/k:10/threads:2"


def test_google_benchmark_names_are_unique():
    made = export.google_benchmark(LOADED)
    entries = made["benchmarks"]
    assert [(e["name"], e["run_type"]) for e in entries] == [(NAME, "iteration")] * 3
    assert [e["real_time"] for e in entries] == pytest.approx([1000, 3000, 2000])
    assert {(e["run_name"], e["repetitions"], e["threads"], e["time_unit"]) for e in entries} == {(NAME, 3, 2, "ns")}
    assert [e["repetition_index"] for e in entries] == [0, 1, 2] and entries[0]["iterations"] == 7
    assert entries[0]["flops_per_s"] == pytest.approx(2 * 10**3 / 1e-6)
    assert entries[0]["bytes_per_second"] == pytest.approx(1200 / 1e-6)
    assert made["context"]["num_cpus"] == 16 and made["context"]["gpus"] == ["NVIDIA H200"]
    rows = [m for m in gpu_run().measurements if m.status == "ok"]
    told = [export.name(m) for m in rows]
    assert len(set(told)) == len({m.key for m in rows}) and not any(" " in name for name in told)


def test_bencher_and_github():
    told = export.bencher(LOADED)
    assert list(told) == [NAME] and set(told[NAME]) == {"latency", "flops-per-second"}
    latency, flops = told[NAME]["latency"], told[NAME]["flops-per-second"]
    assert latency["value"] == pytest.approx(2050) and latency["lower_value"] < 2050 < latency["upper_value"]
    assert flops["value"] == pytest.approx(2000 / 2.05e-6)
    assert flops["lower_value"] < flops["value"] < flops["upper_value"]
    (one,) = export.github(LOADED)
    assert (one["name"], one["unit"], one["value"]) == (NAME, "ns", pytest.approx(2050)) and one["range"][:2] == "± "
    assert one["extra"] == "host-latency, 6 samples in 3 blocks\nsteal"
    bad = msgspec.structs.replace(ROW, samples=(msgspec.structs.replace(ROW.samples[0], seconds=(math.inf,) * 6),))
    with pytest.raises(ValueError):
        export.text(Loaded((RUN,), (bad,), 0, ()), "bencher")


@pytest.mark.parametrize(("visits_us", "median_ns"), [((1, 2, 3, 4, 9), 3000), ((1, 6, 7, 8, 9), 7000)])
def test_githubs_range_reaches_the_farther_end(visits_us, median_ns):
    """The interval is the range of five visits: 2 µs below the median and 6 above, or 6 below and 2 above."""
    seconds = tuple(visit_us * 1e-6 for visit_us in visits_us)
    taken = Samples("host-latency", seconds, 1, (1,) * 5, "5 visits")
    (one,) = export.github(Loaded((RUN,), (msgspec.structs.replace(ROW, samples=(taken,)),), 0, ()))
    assert (one["value"], one["range"]) == (pytest.approx(median_ns), "± 6000")


@pytest.mark.parametrize("to", export.TO)
def test_every_format_of_a_whole_run(to):
    loaded = gpu_run()
    made = export.text(loaded, to)
    rows = frame.frame(loaded.measurements)
    if to == "csv":
        lines = list(csv.reader(io.StringIO(made)))
        assert lines[0] == list(rows.columns) and len(lines) == len(loaded.measurements) + 1
    else:
        told = json.loads(made, parse_constant=lambda word: pytest.fail(word))  # NaN and Infinity are no JSON
        count = len(export.timed(loaded))
        names = {e["run_name"] for e in told["benchmarks"]} if to == "google-benchmark" else told
        assert len(names) == count


def test_no_cell_is_a_formula(capsys):
    bad = [
        "=1+1",
        "@SUM(A1)",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "\t=1",
        "\n=1+1",
        "＝1+1",
        "＋1",
        "－1+1",
        "＠SUM(A1)",
        "-",
    ]
    rows = [row("matmul/numpy/blas", square(n), 0.5, reason=text) for n, text in enumerate(bad, 8)]
    told = list(csv.DictReader(io.StringIO(export.text(Loaded((), tuple(rows), 0, ()), "csv"))))
    assert [line["reason"] for line in told] == [f"'{text}" if len(text) > 1 else text for text in bad]
    table.records([{"said": bad[0], "number": -1.5, "text": "-1.5e-9"}], ("said", "number", "text"), "csv")
    printing.Rows("csv", "matmul")._print_line(bad[:1])
    assert capsys.readouterr().out == "said,number,text\n'=1+1,-1.5,-1.5e-9\n'=1+1\n"


def test_a_half_written_file_is_removed(tmp_path):
    full = tmp_path / "rows.csv"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(options.Usage, match="cannot write"):
            export._write(str(full), "a,b\n" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not full.exists()


def test_a_file_is_written_with_stdout_full(tmp_path, monkeypatch, capsys):
    write(tmp_path / "run" / "matmul.jsonl", RUN, [ROW])
    out = tmp_path / "out.json"
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert export.main([str(tmp_path / "run"), "--to", "bencher", "-o", str(out)]) == 0
    assert list(json.loads(out.read_text())) == [NAME]
    assert capsys.readouterr().err == f"{out}\n"


def test_the_command(tmp_path, capsys):
    write(tmp_path / "run" / "matmul.jsonl", RUN, [ROW])
    out = tmp_path / "out.json"
    assert export.main([str(tmp_path / "run"), "--to", "bencher", "-o", str(out)]) == 0
    assert list(json.loads(out.read_text())) == [NAME] and capsys.readouterr().out == f"{out}\n"
    assert export.main([str(tmp_path / "run"), "--to", "bencher", "-o", str(out)]) == 2  # never overwritten
    assert "exists" in capsys.readouterr().err
    assert export.main([str(tmp_path / "run"), "--to", "github"]) == 0 and json.loads(capsys.readouterr().out)
    assert export.main([str(tmp_path / "none"), "--to", "github"]) == 2 and export.main([str(tmp_path / "run")]) == 2
    other = msgspec.structs.replace(RUN, machine=msgspec.structs.replace(GPU_MACHINE, key="other"))
    write(tmp_path / "other" / "matmul.jsonl", other, [ROW])
    capsys.readouterr()
    assert export.main([str(tmp_path / "run"), str(tmp_path / "other"), "--to", "csv"]) == 2
    assert "several machines (nvidia-h200, other)" in capsys.readouterr().err


def test_export(stored_run, tmp_path):
    flags = export.parser().parse_args([stored_run, "--to", "csv", "-o", "rows.csv"])
    assert ExportPlan.from_flags(flags) == ExportPlan(runs=(stored_run,), to="csv", output="rows.csv")
    folder = export.parser().parse_args([stored_run, "--to", "bencher", "-o", str(tmp_path)])
    with pytest.raises(options.Usage) as stop:
        ExportPlan.from_flags(folder)
    assert stop.value.right == f"-o {tmp_path}/rows.json"
