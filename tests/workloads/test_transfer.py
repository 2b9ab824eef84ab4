"""`python -m workloads.transfer`: its rows, its table and words, what it refuses before anything is allocated."""

import re

import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row

from analysis.analysis import Analysis
from analysis.crossover import transfer_study
from kernels import registry
from kernels.problems import Transfer
from kernels.registry import Kernel
from workloads import options, results, suite, transfer
from workloads.harness import memory_needs, one_row, plan
from workloads.machine import facts
from workloads.records import Row, Settings

VARIANTS = {
    "cupy": ("array", "asarray", "memcpy_async", "overlap_copy", "overlap_both"),
    "tensorflow": ("constant", "dataset"),
}


@pytest.fixture
def kernels(monkeypatch):
    """Kernels that are there by name only."""
    monkeypatch.setattr(registry, "backends", lambda op: list(VARIANTS))

    def bind(variant):
        made = lambda problem, data: None  # noqa: E731
        made.takes = lambda problem: bool(problem.compute) == variant.startswith("overlap_")
        return made

    named = {b: [Kernel("transfer", b, v, bind(v), ("gpu",)) for v in variants] for b, variants in VARIANTS.items()}
    monkeypatch.setattr(registry, "load", lambda op, backend: named[backend])


def planned(*words, here=GPU_MACHINE):
    return transfer.parse([*words, "--quiet"]).rows(here)


def test_without_a_gpu_it_exits_3(monkeypatch, capsys, kernels):
    monkeypatch.setattr(facts, "describe", lambda: CPU_MACHINE)
    monkeypatch.setattr(facts, "gpu_problem", lambda: "no NVIDIA driver")
    assert transfer.main(["--sizes", "4KiB:256MiB:x4", "--fast"]) == 3
    error, *_, tip = capsys.readouterr().err.splitlines()
    assert error.startswith("error: no GPU here (no NVIDIA driver), and every row of transfer copies to or from a GPU")
    assert tip.startswith("  try, for example: ") and "-m workloads.stream" in tip
    with pytest.raises(options.Usage, match="--device names none"):
        planned("--device", "cpu")
    with pytest.raises(options.Missing, match="every row of transfer copies to or from a GPU"):
        planned(here=CPU_MACHINE)


def test_default_rows_omit_managed_memory(kernels):
    rows = planned()
    assert {r.settings.device for r in rows} == {"gpu:0"} and {r.settings.mode for r in rows} == {"resident"}
    assert {r.kernel.split("/")[1] for r in rows} == {"cupy"}, "TensorFlow takes seconds to start: on request"
    one = [r.problem for r in rows if r.kernel == "transfer/cupy/array"]
    assert len(one) == (3 * 4 + 1) * 15, "h2d d2h both x four memories, d2d once, 4 B ... 1 GiB"
    assert len({r.key for r in rows}) == len(rows)
    assert {p.host_memory for p in one} == {"", "pageable", "pinned", "write-combined", "registered"}
    assert sorted({p.nbytes for p in one}) == [4 << 2 * i for i in range(15)]
    assert not any(r.problem.compute for r in rows)
    assert not any("overlap" in r.kernel for r in rows), "without --overlap there is nothing to overlap"
    first = [(r.kernel, r.problem.direction, r.problem.host_memory) for r in rows]
    assert first == [way for way in dict.fromkeys(first) for _ in range(15)], "each way over its sizes in one go"


def test_overlap_adds_a_kernel_beside_chunked_copies(kernels):
    rows = [r for r in planned("--sizes", "4KiB", "--directions", "d2d", "--overlap") if r.problem.compute]
    assert {r.kernel for r in rows} == {"transfer/cupy/overlap_copy", "transfer/cupy/overlap_both"}
    assert {r.problem for r in rows} == {
        Transfer("h2d", 256 << 20, "pinned", compute, 32, streams)
        for compute in ("fma", "triad")
        for streams in (1, 2, 4)
    }
    words = "--sizes 4KiB --directions h2d --host-memory managed --overlap 1MiB --chunks 64"
    rows = planned(*words.split())
    assert {(r.problem.nbytes, r.problem.chunks) for r in rows if r.problem.compute} == {(1 << 20, 64)}
    assert {r.problem.host_memory for r in rows if not r.problem.compute} == {"managed"}


def test_the_study_has_both_libraries_once_per_size(kernels):
    rows = planned("--study", "small-dataset")
    ways = {(r.kernel, r.problem.host_memory) for r in rows}
    assert ways == {
        ("transfer/cupy/array", "pageable"),
        ("transfer/cupy/array", "pinned"),
        ("transfer/cupy/asarray", "pageable"),
        ("transfer/tensorflow/constant", "pageable"),
        ("transfer/tensorflow/dataset", "pageable"),
    }
    assert ways <= set(transfer_study.METHODS), "each has its words"
    assert len(rows) == len(ways) * len(transfer_study.sizes()) == len({r.key for r in rows})
    assert {r.problem.direction for r in rows} == {"h2d"}
    expected = {"transfer/cupy/memcpy_async"}
    assert {r.kernel for r in planned("--study", "small-dataset", "--variants", "memcpy_async")} == expected


def copy(seconds, n=1 << 20, direction="h2d", memory="pinned", kernel="transfer/cupy/memcpy_async", **fields):
    return row(kernel, Transfer(direction, n, memory), seconds, device="gpu:0", **fields)


def test_the_table(capsys):
    clocks = {"host-latency": 30e-6, "host-issue": 4e-6, "device": 20e-6}
    table = transfer.TransferTable()
    table.add(copy(clocks))
    table.add(copy({"host-latency": 2e-3}, memory="pageable", kernel="transfer/cupy/array", flags=("other-tenant",)))
    table.add(copy({"host-latency": 1e-3, "device": 1e-6}, direction="d2d", memory="", kernel="transfer/cupy/wide"))
    table.add(row("transfer/cupy/overlap_both", Transfer("h2d", 1 << 28, "pinned", "fma", 32, 2), 5e-3))
    for n in (8, 16):
        table.add(copy(None, n, kernel="transfer/cupy/staged", status="skipped", reason="pageable only"))
    table.finish()
    head, *lines = capsys.readouterr().out.splitlines()
    expected = ["way", "host", "memory", "size", "kernel", "µs", "waited", "±%", "enqueue", "µs", "GB/s", "notes"]
    assert head.split() == expected
    assert lines[0].split() == ["h2d", "pinned", "1.00", "MiB", "cupy/memcpy_async", "30.0", "0", "4.00", "52.4"]
    expected = ["h2d", "pageable", "1.00", "MiB", "cupy/array", "2000", "0", "-", "0.524", "other-tenant"]
    assert lines[1].split() == expected
    assert lines[2].split()[-1] == "2100", "on the device a byte is read and written"
    assert lines[3].endswith("fma, 32 chunks, 2 streams")
    assert len(lines) == 5 and lines[4].endswith("pageable only"), "what a kernel cannot do is said once"


def test_the_table_and_its_notes_follow_the_law(capsys):
    rows = [copy(10e-6 + n / 50e9, n) for n in (1 << k for k in range(2, 31, 2))]
    analysis = Analysis.from_rows(rows)
    transfer.parse([]).answer(None, analysis)
    _, _, law = capsys.readouterr().out.splitlines()
    assert law.split()[:8] == ["h2d", "pinned", "cupy/memcpy_async", "10.0", "µs", "50.0", "GB/s", "0"]
    assert "488 KiB" in law
    transfer.parse(["--study", "small-dataset"]).answer(None, analysis)
    assert "MNIST in float32 by cupy/memcpy_async of pinned memory, an epoch: " in capsys.readouterr().out
    assert "transfer" not in suite.ANSWERED, "within a suite its report says it"
    table = results.frame([copy({"host-latency": 30e-6, "device": 20e-6}), copy(None, status="skipped", reason="no")])
    expected = ["h2d", 1 << 20, "pinned", 20e-6, 1 << 20]
    assert table[["direction", "nbytes", "host_memory", "device_median_s", "bytes_moved"]].iloc[0].tolist() == expected
    kernel = "transfer/cupy/array"
    assert "h2d pinned nbytes=4096" in plan.name(Row(kernel, Transfer("h2d", 4096, "pinned"), Settings("gpu:0")))


class CUDARuntimeError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (64 << 20, "`ulimit -l` allows 64.0 MiB: raise it with `ulimit -l unlimited`"),
        (None, "`ulimit -l` sets no limit"),
    ],
)
def test_memory_the_driver_cannot_lock_is_skipped(monkeypatch, limit, said):
    monkeypatch.setattr(memory_needs, "lock_limit", lambda: limit)

    def fails(text="cudaErrorMemoryAllocation: out of memory"):
        raise CUDARuntimeError(text)

    asked = Row("transfer/cupy/memcpy", Transfer("h2d", 256 << 20, "registered"), Settings("gpu:0"))
    done = one_row.guarded(asked, fails)
    why = "the driver gave no 256 MiB of registered host memory (cudaErrorMemoryAllocation: out of memory); "
    assert (done.status, done.reason) == ("skipped", why + said)
    assert one_row.guarded(asked, lambda: fails("cudaErrorInvalidValue: no")).status == "failed"
    pageable = Row("transfer/cupy/memcpy", Transfer("h2d", 256 << 20), Settings("gpu:0"))
    assert one_row.guarded(pageable, fails).status == "failed", "nothing was locked"


def test_the_feeding_study_has_cupys_bytes_too():
    made = planned("--study", "feeding")
    fed = [row for row in made if row.problem.op == "feeding"]
    assert {row.variant for row in fed if row.on_gpu} == {"numpy", "tf.data", "generator", "prefetch", "resident"}
    assert {row.variant for row in fed if not row.on_gpu} == {"numpy", "tf.data", "generator", "resident"}
    # 8 sizes by 5 ways on the GPU and 4 on the CPU; two other types in 5 sizes by 2 ways on each
    assert len(fed) == 8 * (5 + 4) + 2 * 5 * 2 * 2
    copied = {row.problem.nbytes for row in made if row.problem.op == "transfer"}
    assert copied == {row.problem.nbytes for row in fed if row.problem.dtype == "float32"}
    assert max(row.problem.footprint_bytes for row in fed) == 16 * 8 * 2048 * 3072
    here = planned("--study", "feeding", "--variants", "numpy", here=CPU_MACHINE)
    assert {(row.kernel, row.device) for row in here} == {("feeding/keras/numpy", "cpu")}


@pytest.mark.parametrize(
    ("words", "said", "tip"),
    [
        (["--threads", "2"], "leave --threads out", ""),
        (["--variants", "numpyy"], "unknown way 'numpyy'; known: numpy, tf.data", ""),
        (["--backends", "torch"], "unknown backend 'torch' for feeding; known: keras, cupy", ""),
        (["--backends", "cupy"], "CuPy's copies are to a GPU", "--study feeding --backends keras"),
    ],
)
def test_impossible_feeding_studies_are_corrected(words, said, tip):
    with pytest.raises(options.Stop, match=re.escape(said)) as stop:
        planned("--study", "feeding", *words, here=CPU_MACHINE)
    assert tip in stop.value.tip
