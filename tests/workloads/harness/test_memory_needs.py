"""Rows that memory cannot hold are refused by arithmetic."""

import json
import resource

import pytest
from fake_gpu import GIB

from kernels.problems import Matmul, Transfer
from workloads import matmul
from workloads.harness import bound_rows, memory_needs, one_row
from workloads.harness.timing import Limits
from workloads.records import Row, Settings

pytestmark = pytest.mark.usefixtures("no_roofs")


FAST = ["--fast", "--max-time", "0.05", "--min-time", "0.005", "--backends", "numpy", "--threads", "1", "-q"]


def test_a_matrix_beyond_memory_is_skipped_unallocated(tmp_path, capsys):
    needs = r"needs 24\.0 GiB of host memory, 1\.00 GiB are free"  # 3 x (2 + 2 + 4) GiB
    with pytest.raises(memory_needs.DoesNotFit, match=needs):
        memory_needs.require_memory(Matmul(1 << 15, 1 << 15, 1 << 14, "float32"), "cpu", lambda where: 1 << 30)
    with pytest.raises(memory_needs.DoesNotFit, match="GPU memory"):
        memory_needs.require_memory(
            Matmul(1024, 1024, 1024), "gpu:0", lambda where: 1 << 40 if where == "cpu" else 1 << 20
        )
    memory_needs.require_memory(Matmul(1024, 1024, 1024), "cpu", lambda where: 1 << 30)
    assert matmul.main(["--sizes", "16", "2^21", *FAST[:-1], "--format", "json", "-o", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    row = json.loads(out)[-1]
    assert row["status"] == "skipped" and "GiB of host memory" in row["reason"]
    said = [line for line in err.splitlines() if line.startswith("skipped: ")]
    assert len(said) == 1 and said[0].startswith("skipped: 2 rows: ")  # what is free differs from row to row


def memory(host, gpu=100 * GIB):
    return lambda where: host if where == "cpu" else gpu


@pytest.mark.parametrize("kind", ["pinned", "write-combined", "registered", "managed"])
def test_too_much_locked_memory_is_refused(kind):
    problem = Transfer("h2d", 1 << 30, kind)
    needs = f"needs 1.00 GiB of {kind} host memory; at most half of what is free, 1020 MiB"
    with pytest.raises(memory_needs.DoesNotFit, match=needs):
        memory_needs.require_memory(problem, "gpu:0", memory(2 * 1023 << 20))
    memory_needs.require_memory(problem, "gpu:0", memory(6 * GIB))
    with pytest.raises(memory_needs.DoesNotFit, match=f"needs 2.00 GiB of {kind} host memory"):
        memory_needs.require_memory(Transfer("both", 1 << 30, kind), "gpu:0", memory(4 * GIB - 2))


def test_an_oversized_copy_is_refused_before_its_input(monkeypatch):
    problem = Transfer("h2d", 1 << 30, "pageable")
    with pytest.raises(memory_needs.DoesNotFit, match=r"needs 6\.00 GiB of host memory, 6\.00 GiB are free"):
        memory_needs.require_memory(problem, "gpu:0", memory(6 * GIB - 1))
    memory_needs.require_memory(problem, "gpu:0", memory(6 * GIB))
    with pytest.raises(memory_needs.DoesNotFit, match=r"needs 2\.00 GiB of GPU memory"):
        memory_needs.require_memory(problem, "gpu:0", memory(6 * GIB, 2 * GIB - 1))
    memory_needs.require_memory(Matmul(1024, 1024, 1024), "gpu:0", memory(3 * 12 << 20))
    bound_rows.clear()
    monkeypatch.setattr(Transfer, "inputs", lambda *_: pytest.fail("something was allocated"))
    monkeypatch.setattr(memory_needs.require_memory, "__defaults__", (memory(GIB),))
    asked = Row("transfer/cupy/memcpy", Transfer("h2d", 1 << 30, "pinned"), Settings("gpu:0"))
    done = one_row.guarded(asked, lambda: one_row.visit(asked, Limits(), 1))
    assert (done.status, "pinned host memory" in done.reason) == ("skipped", True)


def test_the_lock_limit_is_the_systems(monkeypatch):
    for soft, limit in ((8 << 20, 8 << 20), (resource.RLIM_INFINITY, None)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, soft=soft: (soft, resource.RLIM_INFINITY))
        assert memory_needs.lock_limit() == limit
