"""Fixtures of the analysis."""

import pytest
from fake_measurements import gpu_run, write


@pytest.fixture
def stored_run(tmp_path) -> str:
    """A folder with a run of a machine with a GPU."""
    loaded = gpu_run(sizes=(64,))
    (tmp_path / "run").mkdir()
    write(tmp_path / "run" / "matmul.jsonl", loaded.runs[0], loaded.measurements)
    return str(tmp_path / "run")
