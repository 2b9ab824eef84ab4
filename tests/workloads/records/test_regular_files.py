"""Only regular files are read, line by line: folders, links, pipes, devices and endless lines are refused in one line."""

import gzip
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from fake_measurements import gpu_run, write

from workloads import ROOT, records
from workloads.records import regular_files
from workloads.records.regular_files import Unreadable


def sound_run():
    loaded = gpu_run(sizes=(64,))
    return loaded.runs[0], loaded.measurements


def make_folder(path: pathlib.Path) -> None:
    path.mkdir()


def make_socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def make_long_line(path: pathlib.Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room


SPECIAL = {
    "a folder": make_folder,
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to what is not there": lambda path: path.symlink_to(path.parent / "nothing"),
    "Too many levels of symbolic links": lambda path: path.symlink_to(path),
    "longer than 16 MiB": make_long_line,
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_an_irregular_file_is_refused_without_waiting(tmp_path, kind):
    path = tmp_path / "matmul.jsonl"
    SPECIAL[kind](path)
    named = (tmp_path,) if path.is_dir() else (tmp_path, path)  # a folder is a run's
    for run in named:
        for read in (records.read, records.by_machine):
            with pytest.raises(Unreadable, match=kind) as refused:
                read(run)
            assert str(path) in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises((Unreadable, records.Refused), match=kind):
        records.Writer(path, gpu_run(sizes=(64,)).runs[0], resume=True)


def test_lines_keep_their_ends(tmp_path, monkeypatch):
    path = tmp_path / "file"
    monkeypatch.setattr(regular_files, "LONGEST_LINE_BYTES", 4)
    path.write_bytes(b"abc\n\nab\r\nlast")
    assert regular_files.lines(path) == [b"abc\n", b"\n", b"ab\r\n", b"last"]
    path.write_bytes(b"abc\nabcd\n")
    with pytest.raises(Unreadable, match="line 2 is longer"):
        regular_files.lines(path)


def without_rights(*words: str) -> subprocess.CompletedProcess:
    """A command that obeys the modes of files and folders, also where root runs these tests."""
    start: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root obeys no mode of a file, and setpriv is not installed")
        start = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    return subprocess.run(
        [*start, sys.executable, "-m", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def refusal(done: subprocess.CompletedProcess) -> str:
    """The one error line of a command that ended with exit code 2."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    return line


@pytest.fixture
def locked(tmp_path):
    """A folder that nobody may enter, with a run in it."""
    folder = tmp_path / "locked"
    write(folder / "run" / "matmul.jsonl", *sound_run())
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("command", ["analysis.compare", "analysis.export", "workloads.doctor", "analysis.report"])
def test_an_unreadable_run_is_one_line(tmp_path, locked, command):
    more = {"analysis.compare": ["reports/nvidia-h200/roofs"], "analysis.export": ["--to", "csv"]}.get(command, [])
    unreadable = tmp_path / "run" / "matmul.jsonl"
    write(unreadable, *sound_run())
    unreadable.chmod(0)
    for run in (locked / "run", unreadable.parent):
        line = refusal(without_rights(command, str(run), *more))
        assert line.startswith(f"error: cannot read {run}") and line.endswith("Permission denied")


@pytest.mark.parametrize(
    "command",
    [
        "workloads.stream --sizes 64KiB --fast -o",
        "workloads.suite --quick --only matmul -o",
        "workloads.suite --ray auto -o",
        "analysis.export reports/nvidia-h200/roofs --to csv -o",
        "analysis.report reports/nvidia-h200/roofs -o",
        "analysis.roofline reports/nvidia-h200/roofs -o",
    ],
)
def test_an_output_in_a_forbidden_folder_is_refused(locked, command):
    line = refusal(without_rights(*command.split(), str(locked / "new")))
    assert "Permission denied" in line and str(locked) in line


def test_a_readonly_file_system_is_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (tmp_path / "old.csv").touch()
    for flags, reason in ((0, "Permission denied"), (os.ST_RDONLY, "Read-only file system")):
        monkeypatch.setattr(os, "statvfs", lambda path, flags=flags: SimpleNamespace(f_flag=flags))
        assert regular_files.unwritable(tmp_path / "old.csv") == reason
        assert regular_files.unwritable(tmp_path / "new.csv") == reason
        assert regular_files.unwritable_folder(tmp_path / "a" / "b") == reason


def test_an_exploding_compressed_file_is_not_read(tmp_path):
    """17 MiB of zeros are 17 kB compressed; of bytes that hardly compress, 17 MiB are read."""
    line = bytes((1 << 20) - 1) + b"\n"
    bomb = tmp_path / "bomb.jsonl.gz"
    with gzip.open(bomb, "wb") as file:
        file.writelines([line] * 17)
    with pytest.raises(Unreadable, match=r"bomb\.jsonl\.gz: it unpacks to more than 200 times its size"):
        regular_files.lines(bomb)
    with gzip.open(bomb, "wb") as file:
        file.writelines([line] * 16)
    assert regular_files.lines(bomb) == [line] * 16
    noise = bytes(range(1, 10)) * 116_508 + b"\n"
    with gzip.open(bomb, "wb", compresslevel=0) as file:
        file.writelines([noise] * 17)
    assert len(regular_files.lines(bomb)) == 17


def test_a_broken_compressed_file_is_refused(tmp_path):
    path = tmp_path / "matmul.jsonl.gz"
    whole = gzip.compress(b"one\ntwo\n")
    path.write_bytes(whole)
    assert regular_files.lines(path) == [b"one\n", b"two\n"]
    for broken in (b"no gzip file", whole[:-10], whole[:12] + b"\xff\xff" + whole[14:]):
        path.write_bytes(broken)
        with pytest.raises(Unreadable, match="cannot read"):
            regular_files.lines(path)
