"""STREAM in Numba: the passes of a call, the instructions the compiler made, the slices; and the command's rows and table."""

import fake_measurements as fake
import pytest

from analysis.analysis import Analysis
from kernels import registry
from kernels.problems import Stream
from workloads import options, peak, printing, stream
from workloads.harness import plan
from workloads.keywords import words_of

LOOP, NONTEMPORAL = (registry.find(f"stream/numba/{name}") for name in ("loop", "nontemporal"))


@pytest.mark.parametrize(
    ("kernel", "problem", "reason"),
    [
        (NONTEMPORAL, Stream("read", 8000), "a read stores nothing"),
        (LOOP, Stream("relu", 8000), "no relu of float64 in Numba's vectors; they have copy, scale"),
        (LOOP, Stream("copy", 8000, "bfloat16"), "no copy of bfloat16"),
    ],
)
def test_what_it_cannot_do_is_refused(kernel, problem, reason):
    with pytest.raises(ValueError, match=reason):
        kernel.bind(problem, *problem.inputs(1))


def planned(module, **keywords):
    """The rows of a command with these flags on a machine without a GPU."""
    words = words_of(module.parser(), **{"device": ["cpu"], "threads": ["1"], "quiet": True, **keywords})
    return module.parse(words).rows(fake.CPU_MACHINE)


def test_every_operation_has_its_kernels_rows(monkeypatch):
    assert stream.OPERATIONS.split() == [*Stream.WEIGHTS]
    rows = planned(stream, sizes=["1MiB"], operations=["triad", "read"])
    assert {(r.kernel, r.problem.operation) for r in rows} == {
        ("stream/numpy/ufunc", "triad"),
        ("stream/numba/loop", "triad"),
        ("stream/numba/nontemporal", "triad"),
        ("stream/numpy/ufunc", "read"),
        ("stream/numba/loop", "read"),
    }
    with pytest.raises(options.Usage, match="no relu of float64") as stop:
        planned(stream, operations=["relu"])
    assert stop.value.tip == "python -m workloads.stream --operations relu --backends tensorflow"
    seen = {}
    monkeypatch.setattr(plan, "kernels", lambda op, measuring, on, **more: seen.update(more) or [LOOP])
    planned(stream, sizes=["1MiB"])
    assert seen == {"on_request": ("tensorflow",)}


def test_peaks_are_those_that_this_chip_has(monkeypatch):
    from kernels.simd import amx

    def maths(**words):
        return {(r.kernel.split("/")[2], r.problem.math) for r in planned(peak, **words)}

    monkeypatch.setattr(amx.llvm, "get_host_cpu_features", dict)
    plain = {("fma", "float32"), ("fma", "float64")}
    assert maths() == plain
    monkeypatch.setattr(amx.llvm, "get_host_cpu_features", lambda: {"avx512f": True, "avx512bf16": True})
    assert maths() == plain | {("dot", "bfloat16")} and maths(dtypes=["float32"]) == {("fma", "float32")}
    assert maths(dtypes=["tf32"]) == {(v, "tf32") for v in ("fma", "dot", "tiles")}  # asked for: rows that say why not
    with pytest.raises(options.Usage, match="unknown dtype 'half'"):
        maths(dtypes=["half"])


def test_the_table_and_the_answer_in_lines(capsys):
    gib = Stream("triad", 3 << 30)
    rows = [
        fake.row("stream/numba/loop", Stream("triad", 1 << 20), 1e-5, threads=1),
        fake.row("stream/numba/loop", Stream("triad", 1 << 30), 0.5, threads=2),
        fake.row("stream/numba/loop", gib, gib.nbytes / 30e9, threads=2),
        fake.row("stream/numba/nontemporal", gib, gib.nbytes / 40e9, threads=2),
        fake.row("stream/numba/loop", Stream("read", 1 << 30), 0.1, threads=2),
    ]
    stream.parse([]).answer(None, Analysis.from_rows(rows, fake.CPU_MACHINE))
    assert capsys.readouterr().out == (
        "with write-allocate: triad of float64, 3.00 GiB, 2 threads: 40.0 GB/s on the bus, when each line of the output is read "
        "before it is written; STREAM counts 30.0 GB/s\n"
    )
    table = printing.Lines()
    table.add(fake.row("stream/numba/loop", Stream("triad", 24 << 10), 24576e-9, threads=1))
    for size in (1, 2):
        table.add(fake.row("stream/cupy/wide", Stream("relu", size << 20), None, status="skipped", reason="no relu"))
    table.finish()
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[1].split()) == "numba/loop triad 24.0 KiB float64 cpu x1 24.6 µs 0 1.00 GB/s"
    assert len(lines) == 2
