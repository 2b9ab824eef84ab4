"""Result files: what is written is what is read; torn, foreign and newer files; one writer."""

import msgspec
import pytest
from small_result_files import HERE, row, run, write

from workloads import records
from workloads.records import Settings


@pytest.mark.parametrize(
    ("switches", "is_read"),
    [
        ({"data": "synthetic", "jit_compile": "on", "in_flight": "4", "beside": "fits"}, True),
        ({"load": "held"}, True),
        ({"trace": "on"}, True),
        ({"match": "mlperf"}, True),
        ({"TF_NUM_INTEROP_THREADS": "one"}, True),
        ({"jit_compile": "maybe"}, False),
        ({"load": "half"}, False),
        ({"nonsense": "on"}, False),
        ({"in_flight": "many"}, False),
        ({"steps_per_execution": "0"}, False),
        ({"replicas": "²"}, False),
        ({"replicas": "9" * 5000}, False),
    ],
)
def test_a_row_with_an_unknown_switch_is_refused(tmp_path, switches, is_read):
    path = tmp_path / "training.jsonl"
    settings = Settings(switches=switches)
    write(path, row(1), msgspec.structs.replace(row(2), settings=settings))
    loaded = records.read(path)
    assert (len(loaded.measurements), loaded.bad_lines) == ((2, 0) if is_read else (1, 1))


def test_a_leading_byte_order_mark_is_ignored(tmp_path):
    path = tmp_path / "matmul.jsonl"
    write(path, row(1))
    marked = b"\xef\xbb\xbf" + path.read_bytes()
    path.write_bytes(marked)
    assert records.read(path) == records.Loaded((run(),), (row(1),), 0, (str(path),))
    assert write(path, row(2), resume=True) == [row(1)]
    assert path.read_bytes().startswith(marked)
    assert records.read(path).measurements == (row(1), row(2))
    path.write_bytes(marked.replace(b'"schema":%d' % records.SCHEMA, b'"schema":1'))
    with pytest.raises(records.Refused, match="has schema 1, older"):
        records.read(path)


def test_files_of_other_programs_alone_are_named(tmp_path):
    for number in (1, 2):
        (tmp_path / f"train{number}.jsonl").write_text('{"text": "cat"}\n')
        files = "train1.jsonl" if number == 1 else "each of its 2 files"
        with pytest.raises(records.NoRows) as refused:
            records.read(tmp_path)
        assert str(refused.value) == f"no rows in {tmp_path}: {files} has no line that Crossover wrote"


def test_a_file_of_two_machines_is_refused(tmp_path):
    path = tmp_path / "matmul.jsonl"
    write(path, row(1))
    other = msgspec.structs.replace(HERE, key="another")
    with open(path, "ab") as file:
        file.write(msgspec.json.encode(run(other)) + b"\n")
    for read in (records.read, records.by_machine):
        with pytest.raises(records.Refused, match=r"holds runs of several machines \(intel-avx512-2c, another\)"):
            read(path)


def test_garbage_lines_are_counted(tmp_path, capsys):
    path = tmp_path / "matmul.jsonl"
    write(path, row(1, "failed"), row(1, seconds=0.5), row(1))
    with open(path, "ab") as file:
        file.write(
            b'garbage\n\n \r\n{"type":"matmul"}\n\xff\xfe\n{"type":"measurement"}\n[]\n' + b'{"a":' * 10_000 + b"\n"
        )
    loaded = records.read(path)
    assert loaded.measurements == (row(1),) and loaded.bad_lines == 6
    assert capsys.readouterr().err == f"warning: 6 lines of {path} cannot be read; 1 row read\n"


@pytest.mark.parametrize(
    "change",
    [
        {"samples": ()},  # ok, and without a time
        {"samples": tuple(msgspec.structs.replace(s, clock="sundial") for s in row(1, seconds=0.5).samples)},
        {"values": {"steal_fraction": -0.5}},
        {"values": {"other_load_fraction": 1.5}},
        {"values": {"cpu_clock_hz": -1.0}},
        {"at": "not a date"},
        {"at": "2026-02-30T00:00:00Z"},
        {"at": "99999-01-01T00:00:00Z"},
    ],
)
def test_an_impossible_measurement_is_no_row(tmp_path, capsys, change):
    path = tmp_path / "matmul.jsonl"
    sound = row(1, seconds=0.5)
    write(path, sound, msgspec.structs.replace(row(2, seconds=0.5), **change))
    loaded = records.read(path)
    assert loaded.measurements == (sound,) and loaded.bad_lines == 1
    capsys.readouterr()


def test_a_long_reasons_beginning_and_end_are_read(tmp_path):
    path = tmp_path / "matmul.jsonl"
    write(path, msgspec.structs.replace(row(1, "failed"), reason="begin" + "x" * 5_000_000 + "end"))
    (failed,) = records.read(path).measurements
    assert len(failed.reason) == 2000 and failed.reason[:5] == "begin" and failed.reason[-3:] == "end"


def test_a_run_without_a_time_is_no_run(tmp_path, capsys):
    path = tmp_path / "matmul.jsonl"
    lines = [run(at="tomorrow"), row(1)]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    loaded = records.read(path)
    assert (loaded.runs, loaded.measurements, loaded.bad_lines) == ((), (row(1),), 1)
    capsys.readouterr()


def test_an_older_file_names_its_last_reader(tmp_path):
    path = tmp_path / "old.jsonl"
    with records.Writer(path, run(schema=1)) as writer:
        writer.append(row(1))
    older = f"has schema 1, older than the {records.SCHEMA} that this program reads"
    said = f"{path} {older}; Crossover 0.1.0 is the last that reads it"
    with pytest.raises(records.Refused) as refused:
        records.read(path)
    assert str(refused.value) == said
    before = path.read_bytes()
    with pytest.raises(records.Refused) as refused:
        write(path, resume=True)
    assert str(refused.value) == f"{said}; choose another folder with -o" and path.read_bytes() == before
    assert (refused.value.wrong, refused.value.right) == ("-o --resume", f"-o {tmp_path}-new")


def test_a_folders_older_file_is_left_out(tmp_path, capsys):
    with records.Writer(tmp_path / "old.jsonl", run(schema=1)) as writer:
        writer.append(row(1))
    with pytest.raises(records.Refused):
        records.read(tmp_path)
    write(tmp_path / "new.jsonl", row(2))
    assert [m.problem.n for m in records.read(tmp_path).measurements] == [2]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {tmp_path}/old.jsonl has schema 1") and line.endswith("its rows are left out")
