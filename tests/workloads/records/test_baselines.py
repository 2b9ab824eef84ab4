"""Named baselines: which rows of a workload a command is compared with when it names none."""

import os

import pytest

from workloads import options, stored_runs
from workloads.records import baselines

LINE = b'{"schema":%d,"seconds":[1]}\n'


@pytest.fixture
def local(monkeypatch, tmp_path):
    """An empty folder of this machine's runs, with the baselines inside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stored_runs, "LOCAL", tmp_path / "local")
    monkeypatch.setattr(stored_runs, "SAVED", tmp_path / "local" / "saved")
    monkeypatch.setattr(baselines, "FOLDER", tmp_path / "local" / "saved")
    return tmp_path / "local"


def stored(folder, workload: str, at: int) -> None:
    """A result file of a workload, written at that time."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{workload}.jsonl"
    file.write_bytes(LINE % stored_runs.SCHEMA)
    os.utime(file, (at, at))
    os.utime(folder, (at, at))


def test_rows_compare_with_the_newest_baseline(local):
    assert baselines._comparable("matmul") == ""
    stored(local / "machine" / "1", "matmul", at=10)
    stored(local / "machine" / "2", "matmul", at=30)
    stored(local / "machine" / "3", "stream", at=40)
    assert baselines._comparable("matmul") == "local/machine/2"
    stored(local / "saved" / "older", "matmul", at=5)
    stored(local / "saved" / "newer", "matmul", at=20)
    stored(local / "saved" / "other", "stream", at=50)
    assert baselines._comparable("matmul") == "newer"
    assert baselines._comparable("stream") == "other"


def test_a_baselines_long_name_is_refused_early(local):
    with pytest.raises(options.Usage, match="is no name for a baseline: at most 100 letters") as refused:
        baselines.require_free("a" * 300)
    assert refused.value.right == "a" * 100 and len(str(refused.value)) < 150


@pytest.mark.parametrize(("saves", "right"), [(False, "--save before"), (True, "")])
def test_a_rule_without_rows_proposes_saving(local, saves, right):
    stop = baselines.not_named("matmul", saves=saves)
    assert (stop.wrong, stop.right) == ("--fail-on", right)
    stop = baselines.unknown("las t", similar="", workload="matmul", saves=saves)
    assert (stop.wrong, stop.right) == ("--against --fail-on", "" if saves else "--save las-t")


def test_a_rule_is_corrected_to_existing_rows(local):
    stored(local / "saved" / "older", "matmul", at=5)
    assert baselines.not_named("matmul", saves=True).right == "--against older"
    stop = baselines.unknown("last", similar="", workload="matmul", saves=True)
    assert (stop.wrong, stop.right, stop.similar) == ("last", "older", "")
    stop = baselines.unknown("last", similar="least", workload="matmul", saves=True)
    assert (stop.wrong, stop.right, stop.similar) == ("last", "least", "baseline")
