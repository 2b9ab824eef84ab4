"""Budgets of trainings held against traces of their steps."""

import msgspec
import pytest
from fake_measurements import row

from analysis.predict import profile
from analysis.predict.budget import Budget, BudgetPart
from analysis.stats import Estimate
from kernels.problems import Training
from tests.validation import traces
from tests.validation.traces import Op, Trace
from workloads.records import Measurement
from workloads.records import settings as switches

MS = 1e-3


@pytest.mark.parametrize(
    ("where", "scope", "name", "part"),
    [
        ("op", "forward", "_MklNativeFusedConv2D", "conv"),
        ("op", "backward", "MatMul", "matmul"),
        ("op", "optimizer", "Mul", "optimizer"),
        ("op", "backward", "ReluGrad", "element-wise"),
        ("op", "backward", "BiasAddGrad", "element-wise"),
        ("kernel", "backward", "__cudnn$convBackwardFilter", "conv"),
        ("kernel", "forward", "__cublas$gemm", "matmul"),
        ("kernel", "forward", "fusion dot", "matmul"),
        ("kernel", "", "cutlass_80_wmma_tensorop", "matmul"),
        ("kernel", "", "void something", ""),
        ("kernel", "forward", "convert", "element-wise"),
        ("copy", "", "MemcpyH2D", "copies"),
        ("copy", "", "MemcpyD2H", "copies"),
        ("copy", "", "MemcpyD2D", "element-wise"),
    ],
)
def test_which_part_an_operation_is_of(where, scope, name, part):
    assert traces.part_of(Op(where, scope, name, 1, 1e-3)) == part


def made_trace(step_ms: float, ops=(), slower: float = 1.02, **busy_ms) -> Trace:
    return Trace(20, step_ms * MS, step_ms * MS * slower, {name: ms * MS for name, ms in busy_ms.items()}, tuple(ops))


def traced_row(of: Trace, device="cpu", **more) -> Measurement:
    notes = {traces.NOTE: msgspec.json.encode(of).decode()}
    made = row("training/keras/fit", Training("mlp-784-500x2-10", 128, 2048), of.step_s, device=device, notes=notes)
    return traces._switched(made, {"data": "synthetic", "trace": "on", **more})


def held(monkeypatch, ms: dict[str, float], *rows: Measurement):
    """The rows held against a budget of these parts in ms. Nothing else is known: what a fit does with its samples is nothing."""
    ten = Estimate(10 * MS, 10 * MS, 10 * MS)
    parts = tuple(
        BudgetPart(name=name, seconds=Estimate(value * MS, value * MS, value * MS), why="")
        for name, value in ms.items()
    )
    monkeypatch.setattr(
        traces, "budget", lambda training, of: Budget(training=training, step=ten, parts=parts, remainder=ten)
    )
    return traces.held(profile.Profile(rows))


def compared(of: traces.Held) -> dict[str, tuple]:
    return {p.name: (round(p.told / MS, 6), round(p.traced / MS, 6), p.near) for p in of.parts}


def test_a_cpus_parts_compare_with_single_operations(monkeypatch):
    """Traced at once 10 ms, one at a time 12: products 6 and updates 3 beyond the shortest operation's 0.1 ms, which each has."""
    ops = [Op("op", "forward", "MatMul", 2, 6.2 * MS), Op("op", "optimizer", "Mul", 1, 3.1 * MS)]
    ops.append(Op("op", "", "Sum", 1, 0.1 * MS))
    rows = [traced_row(made_trace(10, op=9)), traced_row(made_trace(12, ops, 1.0, op=9.4), TF_NUM_INTEROP_THREADS="1")]
    budgeted = {"dispatch": 1, "launches": 1.5, "matmul": 7, "optimizer": 2.2, "at the same time": -1.7}
    ((h,), _) = held(monkeypatch, budgeted, *rows)
    assert compared(h) == {
        "matmul": (7.0, 6.0, True),  # 17 % of 6 ms
        "optimizer": (2.2, 3.0, False),  # 27 % of 3 ms, 8 % of the step
        "dispatch and launches": (2.5, 3.0, True),  # 5 % of the step
        "at the same time": (-1.7, -2.0, True),
    }
    said = traces.lines(profile.Profile(rows))
    assert "mlp-784-500x2-10, batch 128 on the CPU, 10.0 ms a step (tracing adds 2.00 %)" in said
    assert "| optimizer | 2.20 ms | 3.00 ms | -8.00 % | apart |" in said
    assert "3 of 4 parts are within 20.0 % of the part or 5.00 % of the step, 3 within 20.0 % of the part." in said[-1]
    ((h,), _) = held(monkeypatch, budgeted, rows[0])
    assert [p.name for p in h.parts] == ["work", "dispatch and launches"] and "TF_NUM_INTEROP_THREADS=1" in h.untold[0]


def test_a_gpus_parts_compare_with_its_clock(monkeypatch):
    ops = [
        Op("kernel", "backward", "__cublas$gemm", 3, 2 * MS),
        Op("copy", "", "MemcpyH2D", 2, 1 * MS),
        Op("kernel", "", "what", 1, 0.5 * MS),
        Op("op", "forward", "MatMul", 1, 5 * MS),
    ]
    budgeted = {"dispatch": 7, "transfer calls": 0.2, "transfer bytes": 0.5, "matmul": 2.1, "at the same time": -2.8}
    ((h,), _) = held(monkeypatch, budgeted, traced_row(made_trace(10, ops, device=3.5), device="gpu:0"))
    expected = {"matmul": (2.1, 2.0, True), "copies": (0.7, 1.0, True), "dispatch and launches": (4.2, 6.5, False)}
    assert compared(h) == expected and h.untold == ("5.00 % of the step in kernels whose names say nothing",)
    # tracing slows the host, not the GPU's clock: of 10 ms untraced the GPU is busy in 4, the host has the other 6
    monkeypatch.setattr(traces, "_fed", lambda m, of: 1.5 * MS)
    slow = made_trace(10, [Op("kernel", "backward", "__cublas$gemm", 3, 4 * MS)], device=4, slower=1.45)
    ((h,), _) = held(monkeypatch, {"dispatch": 4, "matmul": 4}, traced_row(slow, device="gpu:0"))
    assert compared(h) == {"matmul": (4.0, 4.0, True), "dispatch and launches": (5.5, 6.0, True)}


def test_distorted_traces_are_compared_with_nothing(monkeypatch):
    slow = traced_row(made_trace(10, slower=1.3))
    assert held(monkeypatch, {"matmul": 4}, slow) == ([], [slow])
    apart = [traced_row(made_trace(12, slower=s), TF_NUM_INTEROP_THREADS="1") for s in (1.2, 1.3)]
    # its step is untraced, its parts are the other's
    (own,), useless = held(monkeypatch, {"matmul": 4}, slow, apart[0])
    assert (own.trace, useless) == (made_trace(10, slower=1.3), [])
    assert held(monkeypatch, {"matmul": 4}, slow, apart[1]) == ([], [slow])


def test_a_traced_row_is_no_ordinary_one():
    made = traced_row(made_trace(10))
    assert not switches.ordinary(made) and traces.trace_of(made) == made_trace(10)
    assert traces.trace_of(row("training/keras/fit", made.problem, 1.0)) is None
    # rows of schema 1, whose operations have a share of the time besides
    stored = profile.read(str(traces.REPORTS / "nvidia-h200" / traces.FOLDER)).trainings
    assert len(stored) == 5 and not any(map(switches.ordinary, stored))
    assert all(made and made.ops for made in map(traces.trace_of, stored))
