"""Writing result files: one writer, torn and lost files, other machines."""

import shutil
import types
from pathlib import Path

import msgspec
import pytest
from small_result_files import HERE, row, run, write

from workloads import records
from workloads.records import Machine


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
