"""Result files: what is written is what is read; torn, foreign and newer files; one writer."""

import shutil
import types
from pathlib import Path

import msgspec
import pytest

from kernels.problems import Matmul, Training
from workloads import records
from workloads.records import Machine, Measurement, Row, Run, Samples, Settings
from workloads.records.result_lines import DecodedLines
from workloads.records.settings import ordinary

HERE = Machine("intel-avx512-2c", "a CPU", "intel", "avx512", 2, 1, 1 << 34)


def run(machine=HERE, schema=records.SCHEMA, at="2026-01-01T00:00:00Z"):
    return Run(schema, machine, {"python": "3.11"}, "python -m workloads.matmul", 1, "abc", "def", at)


def row(n, status="ok", seconds=0.25):
    samples = (Samples("host-latency", (seconds,), 1, (1,), "max-time"),) if status == "ok" else ()
    return Measurement("matmul/numpy/blas", Matmul(n, n, n), Settings(threads=1), status, samples=samples)


def write(path, *lines, resume=False, machine=HERE):
    with records.Writer(path, run(machine), resume) as writer:
        for line in lines:
            writer.append(line)
        return writer.done


def test_a_torn_last_line_is_cut_off(tmp_path, capsys):
    path = tmp_path / "matmul.jsonl"
    write(path, row(1), row(2))
    path.write_bytes(path.read_bytes()[:-20])
    assert records.read(path).bad_lines == 1 and records.read(path).bad_lines == 1
    assert capsys.readouterr().err == f"warning: the last line of {path} is cut off; 1 row read\n"
    assert write(path, row(3), resume=True) == [row(1)]
    assert records.read(path) == records.Loaded((run(), run()), (row(1), row(3)), 0, (str(path),))
    with records.Writer(tmp_path / "short" / "matmul.jsonl", run()) as writer:
        file = writer._file
        torn = lambda data: file.write(data[:7])  # noqa: E731
        writer._file = types.SimpleNamespace(write=torn, fileno=file.fileno, close=file.close)
        writer.append(row(1))
    assert records.read(tmp_path / "short").measurements == (row(1),)


@pytest.mark.parametrize("name", ["a\nerror: fake", "a\rb", "a\x1b[31m", "a\u202eb"])
def test_control_characters_make_a_kernels_name_invalid(tmp_path, name):
    path = tmp_path / "matmul.jsonl"
    write(path, row(1), msgspec.structs.replace(row(2), kernel=f"matmul/numpy/{name}"))
    loaded = records.read(path)
    assert (loaded.measurements, loaded.bad_lines) == ((row(1),), 1)


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


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"notes", "is no result file"),
        (b'{"text": "cat"}\n', "is no result file"),
        (b'{"type":"run","schema":null}\n', "has schema null, not the"),
        (b'{"type":"run","schema":"\xc3\xa4"}\n', 'has schema "ä", not the'),
        (b'{"type":"run","schema":1}\n', "has schema 1, older"),
    ],
)
def test_an_unresumable_file_proposes_a_free_folder(tmp_path, text, why, resume):
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "matmul.jsonl").write_bytes(text)
    (tmp_path / "my run-new").mkdir()
    with pytest.raises(records.Refused, match=why) as refused:
        write(folder / "matmul.jsonl", row(1), resume=resume)
    assert (refused.value.wrong, refused.value.right) == ("-o --resume", f"-o '{tmp_path}/my run-new-2'")
    assert (folder / "matmul.jsonl").read_bytes() == text


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_writer_is_refused(tmp_path, resume):
    path = tmp_path / "matmul.jsonl"
    with records.Writer(path, run()), pytest.raises(records.Refused, match="is being written by another") as refused:
        records.Writer(path, run(), resume)
    assert (refused.value.wrong, refused.value.right) == ("-o --resume", f"-o {tmp_path}-new")


def test_files_of_other_programs_alone_are_named(tmp_path):
    for number in (1, 2):
        (tmp_path / f"train{number}.jsonl").write_text('{"text": "cat"}\n')
        files = "train1.jsonl" if number == 1 else "each of its 2 files"
        with pytest.raises(records.NoRows) as refused:
            records.read(tmp_path)
        assert str(refused.value) == f"no rows in {tmp_path}: {files} has no line that Crossover wrote"


def _remove(path):
    path.unlink()


def _replace(path):
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


def _cut(path):
    path.write_bytes(b"")


def _remove_folder(path):
    shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    ("lose", "reason"),
    [(_remove, "removed"), (_replace, "replaced"), (_cut, "was cut"), (_remove_folder, "removed")],
)
def test_a_file_lost_while_written_is_an_error(tmp_path, lose, reason):
    def write_and_lose(path, *later):
        with records.Writer(path, run()) as writer:
            writer.append(row(1))
            lose(path)
            for line in later:
                writer.append(line)

    with pytest.raises(records.Refused, match=reason):
        write_and_lose(tmp_path / "run" / "matmul.jsonl", row(2))
    with pytest.raises(records.Refused, match=reason):
        write_and_lose(tmp_path / "last" / "matmul.jsonl")


def test_an_output_that_is_no_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for folder in (tmp_path / "file", tmp_path / "link", Path("/dev/null")):
        with pytest.raises(records.Refused, match=f"{folder} is no folder; choose"):
            records.Writer(folder / "matmul.jsonl", run())


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


def test_resuming_with_other_sources_is_reported_once(tmp_path, capsys):
    path = tmp_path / "matmul.jsonl"
    write(path)
    for sources, lines in (("123", [row(1)]), ("123", []), ("456", [row(2)])):
        with records.Writer(path, msgspec.structs.replace(run(), sources=sources), True) as writer:
            for line in lines:
                writer.append(line)
    said = f"{path}: the last run in it was of sources 123, this one is of 456; its rows stay as they are\n"
    assert capsys.readouterr().err == said


def test_another_machine_or_schema_is_not_resumed(tmp_path):
    write(tmp_path / "matmul.jsonl")
    for cpu in ("b", HERE.cpu):  # the same CPU beside another GPU, say
        other = Machine("amd-avx2-8c", cpu, "amd", "avx2", 8, 1, 1 << 34)
        with pytest.raises(records.Refused, match="was measured on intel-avx512-2c, this is amd-avx2-8c"):
            write(tmp_path / "matmul.jsonl", resume=True, machine=other)
        with pytest.raises(records.Refused, match="was measured on intel-avx512-2c") as refused:
            write(tmp_path / "matmul.jsonl", machine=other)
        assert (refused.value.wrong, refused.value.right) == ("-o --resume", f"-o {tmp_path}-new")
    with records.Writer(tmp_path / "new.jsonl", run(schema=records.SCHEMA + 1)):
        pass
    with pytest.raises(records.Refused, match="newer"):
        write(tmp_path / "new.jsonl", resume=True)


def test_a_machines_folder_has_dated_studies(tmp_path):
    machine = tmp_path / HERE.key
    write(machine / "suite" / "2026-11-28" / "matmul.jsonl", row(1))
    write(machine / "suite" / "2026-11-29" / "matmul.jsonl", row(2))
    write(machine / "20261130T000000Z" / "matmul.jsonl", row(3))
    write(machine / "noise-1" / "01" / "matmul.jsonl", row(4))
    assert {m.problem.n for m in records.read(machine).measurements} == {1, 2, 3}
    assert {m.problem.n for m in records.read(machine / "suite").measurements} == {1, 2}
    dated, *_ = records.files_of(machine / "suite")
    assert records.study_folder(dated) == machine / "suite"
    assert records.study_folder(machine / "noise-1" / "01" / "matmul.jsonl") == machine / "noise-1" / "01"


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


def test_an_existing_file_is_never_overwritten(tmp_path):
    with pytest.raises(FileNotFoundError, match="no result file"):
        records.read(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(records.Refused, match="cannot write"):
        write(tmp_path / "file" / "matmul.jsonl")
    write(tmp_path / "matmul.jsonl")
    with pytest.raises(records.Refused, match="add --resume") as refused:
        write(tmp_path / "matmul.jsonl")
    assert refused.value.tip == f"{run().command} --resume"
    with records.Writer(tmp_path / "other.jsonl", run()), pytest.raises(records.Refused, match="being written"):
        records.Writer(tmp_path / "other.jsonl", run(), resume=True)


def test_the_key_ignores_how_a_row_was_made():
    problem = Matmul(3, 3, 3, "float32", "float32", "float32")
    assert row(3).key == Measurement("matmul/numpy/blas", problem, Settings(threads=1), "failed").key
    assert row(3).key != row(4).key


def test_a_line_is_short_without_its_samples(tmp_path):
    taken = Samples("host-latency", (1.23456789012, 2.5, 3.5), 1, (2, 0, 1), "3 visits")
    long = msgspec.structs.replace(
        row(3),
        samples=(taken,),
        phases_s={"import": 0.12345678912},
        values={"parameters": 95434.0, "cpu_clock_hz": 3118068769.2874303},
        series={"loss": (2.48228812217,), "visit_at_s": (1795379040.44,)},
    )
    write(tmp_path / "rows.jsonl", long)
    (read,) = records.read(tmp_path).measurements
    assert (read.samples, read.phases_s) == ((taken,), {"import": 0.123456789})
    assert read.samples[0].block == (0, 0, 2)
    assert read.values == {"parameters": 95434.0, "cpu_clock_hz": 3118068770.0}
    assert read.series == {"loss": (2.48228812,), "visit_at_s": (1795379040.44,)}
    line = (tmp_path / "rows.jsonl").read_text().splitlines()[1]
    assert '"settings":{"threads":1},"samples":' in line and '"status"' not in line and '"layout"' not in line


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"matmul/numpy/blas"', '"blas"'),
        ('"samples":', '"status":"fine","samples":'),
        ('"seconds":[0.25]', '"seconds":[0.25,0.5]'),
        ('"seconds":[0.25],"calls":1,"block_sizes":[1]', '"seconds":[],"calls":1,"block_sizes":[]'),
        ("[0.25]", "[0.0]"),
        ("[0.25]", "[-0.25]"),
        ("[0.25]", "[1e300]"),
        ("[0.25]", "[1e-300]"),
        ('"settings":{', '"settings":{"device":"gpu:x",'),
        ('"out":"float32"', '"out":"cold"'),
        ('"settings":{', '"settings":{"device":"gpu:0:0",'),
        ('"block_sizes":[1]', '"block_sizes":[2,-1]'),
        ('"calls":1', '"calls":0'),
        ('"threads":1', '"threads":-1'),
        ('"m":1', '"m":2305843009213693952'),
        ('"samples":', '"values":{"x":1e40},"samples":'),
        ('"samples":', '"phases_s":{"import":-0.01},"samples":'),
        ('"samples":', '"values":{"total_s":-0.01},"samples":'),
        ('"samples":', '"series":{"import_s":[1.0,-0.01]},"samples":'),
    ],
)
def test_a_line_nobody_measured_is_bad(old, new):
    line = msgspec.json.encode(row(1)).decode()
    assert old in line and records.decode([line.encode()]).bad_lines == 0
    assert records.decode([line.replace(old, new).encode()]) == DecodedLines(runs=[], rows={}, bad_lines=1)


def test_a_jax_row_names_its_library():
    training = Training("cifar10-cnn", 32, 320)
    loop = Row("training/jax/loop", training, Settings("cpu"))
    assert loop.library == "jax" and ordinary(loop)
    trial = Row("training/keras/trial", training, Settings("cpu"))
    assert trial.library == "tensorflow" and not ordinary(trial)
