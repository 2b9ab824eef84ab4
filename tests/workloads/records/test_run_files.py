"""Files of a run, a study and a machine."""

from small_result_files import HERE, row, write

from workloads import records


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
