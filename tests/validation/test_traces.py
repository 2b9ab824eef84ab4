"""Traces of trainings: what of an XSpace counts for which step and part, by hand-made events; and budgets held against them."""

from types import SimpleNamespace as Made

import msgspec
import pytest
from fake_measurements import row

from analysis.predict import profile
from analysis.predict.budget import Budget, Part
from analysis.stats import Estimate
from kernels.problems import Training
from tests.validation import traces, xspace
from tests.validation.xspace import Op, Trace
from workloads.records import Measurement
from workloads.records import settings as switches

US = 1_000_000  # ps
MS = 1e-3


class Stat(Made):
    def WhichOneof(self, _):
        return self.kind


class Plane:
    """A plane built line by line; names and stats get their numbers as they come."""

    def __init__(self, name: str):
        self.name, self.lines, self.event_metadata, self.stat_metadata = name, [], {}, {}

    def _key(self, known: dict, name: str) -> int:
        found = next((key for key, meta in known.items() if meta.name == name), len(known) + 1)
        known.setdefault(found, Made(name=name, stats=[]))
        return found

    def stat(self, name: str, value: str | bytes) -> Stat:
        key = self._key(self.stat_metadata, name)
        if isinstance(value, str):
            return Stat(metadata_id=key, kind="ref_value", ref_value=self._key(self.stat_metadata, value))
        return Stat(metadata_id=key, kind="bytes_value", bytes_value=value)

    def line(self, name: str, *events: tuple) -> "Plane":
        """events: (name, begin in us, us, stats)."""
        made = []
        for what, begin, us, *more in events:
            stats = [self.stat(*s) for given in more for s in given.items()]
            key = self._key(self.event_metadata, what)
            made.append(Made(metadata_id=key, offset_ps=begin * US, duration_ps=us * US, stats=stats))
        self.lines.append(Made(name=name, timestamp_ns=0, events=made))
        return self


def read(*planes, optimizer: str = "adam") -> Trace:
    return xspace.steps_of(Made(planes=planes), optimizer)


def us(seconds: float) -> float:
    return round(seconds * 1e6, 6)


def steps(count: int = 4) -> Plane:
    """The main thread of a fit of so many steps of 100 us."""
    return Plane("/host:CPU").line("python", *(("multi_step_on_iterator", 100 * i, 90) for i in range(count)))


def test_of_steps_count_each_operations_own_time():
    """Of steps of 100 us the first and the last, whose end is not known, are left out: those from 100 to 300 us count. In each a
    product of 40 us, 20 us later beside it an update of 40 us; within the product 10 us of another operation."""
    host = steps()
    for lane, ops in (
        ("tf_Compute/1", [("model/dense/MatMul:_MklMatMul", 10, 40), ("model/dense/Relu:Relu", 12, 10)]),
        ("tf_Compute/2", [("sgd/Sub_1:Sub", 30, 40)]),
    ):
        host.line(lane, *((name, begin + at, long) for name, begin, long in ops for at in (0, 100, 200, 300)))
    found = read(host, optimizer="sgd")
    assert (found.steps, found.traced_s) == (2, pytest.approx(1e-4))
    expected = {"_MklMatMul": ("forward", 1.0, 30.0), "Relu": ("forward", 1.0, 10.0), "Sub": ("optimizer", 1.0, 40.0)}
    assert {op.name: (op.scope, op.calls, us(op.seconds)) for op in found.ops if op.where == xspace.OP} == expected
    assert found.busy_s["op"] == pytest.approx(60e-6)  # 10 to 70 us


def test_operations_of_the_pipeline_and_what_is_no_operation_are_left_out():
    host = steps()
    host.line("tf_data_private_threadpool/7", *(("GatherV2:GatherV2", at + 5, 20) for at in (0, 100, 200, 300)))
    others = ("ExecutorState::Process", "EagerExecute: Sum", "Iterator::Root")
    host.line("tf_Compute/1", *((name, 110, 50) for name in others))
    found = read(host)
    assert (found.ops, found.busy_s) == ((), {})


def test_a_trace_without_enough_steps_says_so():
    with pytest.raises(xspace.Untold, match="the trace has 3 of Keras's steps"):
        read(steps(count=3))
    lost = traces.also(lambda samples, epochs: 1 / 0, 32, 60 * 32, "adam")
    assert lost == {"notes": {traces.UNTOLD: "ZeroDivisionError: division by zero"}}
    noted = traces.also(lambda samples, epochs: None, 32, 5 * 32, "adam")
    assert noted == {"notes": {traces.UNTOLD: "Untold: 5 steps are too few to trace: 6"}}


def test_a_gpus_kernels_are_told_by_their_hlo_their_operation_or_their_name():
    """HLO says that a fusion with operations of the optimizer is an update; of a CUDA graph's kernel there is its name alone."""
    gpu = Plane("/device:GPU:0")
    hlo = {"hlo_module": "step", "hlo_op": "fusion.7"}
    for at in (100, 200):
        gpu.line(
            "Stream #13(Compute)",
            ("loop_sub_fusion_7", at, 10, hlo),
            ("loop_add_fusion_2", at + 10, 5, {}),
            ("sm90_xmma_gemm_f32f32_tf32f32", at + 15, 20, {"tf_op": "model/dense/MatMul:MatMul"}),
            ("nvjet_tst_128x64", at + 35, 5, {}),
        )
        gpu.line("Stream #14(MemcpyH2D)", ("MemcpyH2D", at + 30, 10, {}))
        gpu.line("TensorFlow Ops", ("model/dense/MatMul:MatMul", at, 99, {}))
    known = {
        "step": [
            ("fusion.7", "fusion", "", [("subtract", "adam/Sub"), ("multiply", "gradient_tape/mul")]),
            ("loop_add_fusion.2", "fusion", "", [("reduce", "model/dense/Sum")]),
            ("gemm.1", "custom-call", "__cublas$gemm", []),
        ]
    }
    found = read(steps(), gpu, metadata(known))
    kernels = {(op.where, op.scope, op.name): us(op.seconds) for op in found.ops if op.where in ("kernel", "copy")}
    assert kernels == {
        ("kernel", "optimizer", "fusion"): 10.0,
        ("kernel", "forward", "fusion reduce"): 5.0,
        ("kernel", "forward", "MatMul"): 20.0,
        ("kernel", "", "nvjet_tst_128x64"): 5.0,
        ("copy", "", "MemcpyH2D"): 10.0,
    }
    assert found.busy_s["device"] == pytest.approx(40e-6)  # the copy is beside kernels
    parts = traces.by_part(found, (xspace.KERNEL, xspace.COPY))
    expected = {"optimizer": 10.0, "element-wise": 5.0, "matmul": 25.0, "copies": 10.0}
    assert {name: us(s) for name, s in parts.items()} == expected


def metadata(modules: dict) -> Plane:
    """The plane that holds HLO protos; `_hlo` is faked, so that the bytes name the module."""
    made = Plane("/host:metadata")
    made.event_metadata = {1: Made(name="", stats=[made.stat("Hlo Proto", name.encode()) for name in modules])}
    KNOWN.clear()
    KNOWN.update(modules)
    return made


KNOWN: dict = {}


@pytest.fixture(autouse=True)
def faked_hlo(monkeypatch):
    """HLO modules as the reader sees them, without TensorFlow: a computation of the instructions, one for each fusion."""

    def instruction(name, opcode, target="", called=(), path=""):
        about = {"custom_call_target": target, "called_computation_ids": called, "metadata": Made(op_name=path)}
        return Made(name=name, opcode=opcode, **about)

    def module(written: bytes):
        entry, computations = [], []
        for i, (name, opcode, target, inside) in enumerate(KNOWN[written.decode()], 1):
            fused = [instruction(f"{name}.{j}", o, path=p) for j, (o, p) in enumerate(inside)]
            computations.append(Made(id=i, instructions=fused))
            entry.append(instruction(name, opcode, target, [i]))
        return Made(name=written.decode(), computations=[*computations, Made(id=0, instructions=entry)])

    monkeypatch.setattr(xspace, "_hlo", module)


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
    parts = tuple(Part(name, Estimate(value * MS, value * MS, value * MS), "") for name, value in ms.items())
    monkeypatch.setattr(traces, "budget", lambda training, of: Budget(training, ten, parts, ten))
    return traces.held(profile.profile(rows))


def compared(of: traces.Held) -> dict[str, tuple]:
    return {p.name: (round(p.told / MS, 6), round(p.traced / MS, 6), p.near) for p in of.parts}


def test_a_cpus_parts_are_held_against_one_operation_at_a_time(monkeypatch):
    """Traced at once 10 ms, one at a time 12: products 6 and updates 3 beyond the shortest operation's 0.1 ms, which each has."""
    ops = [
        Op("op", "forward", "MatMul", 2, 6.2 * MS),
        Op("op", "optimizer", "Mul", 1, 3.1 * MS),
        Op("op", "", "Sum", 1, 0.1 * MS),
    ]
    rows = [traced_row(made_trace(10, op=9)), traced_row(made_trace(12, ops, 1.0, op=9.4), TF_NUM_INTEROP_THREADS="1")]
    budgeted = {"dispatch": 1, "launches": 1.5, "matmul": 7, "optimizer": 2.2, "at the same time": -1.7}
    ((h,), _) = held(monkeypatch, budgeted, *rows)
    assert compared(h) == {
        "matmul": (7.0, 6.0, True),  # 17 % of 6 ms
        "optimizer": (2.2, 3.0, False),  # 27 % of 3 ms, 8 % of the step
        "dispatch and launches": (2.5, 3.0, True),  # 5 % of the step
        "at the same time": (-1.7, -2.0, True),
    }
    said = traces.lines(profile.profile(rows))
    assert "mlp-784-500x2-10 at batch 128 on the CPU, 10.0 ms a step (tracing adds 2.00 %)" in said
    assert "| optimizer | 2.20 ms | 3.00 ms | -8.00 % | apart |" in said
    assert "3 of 4 parts are within 20.0 % of the part or 5.00 % of the step, 3 within 20.0 % of the part." in said[-1]
    ((h,), _) = held(monkeypatch, budgeted, rows[0])
    assert [p.name for p in h.parts] == ["work", "dispatch and launches"]
    assert "TF_NUM_INTEROP_THREADS=1" in h.untold[0]


def test_a_gpus_parts_are_held_against_its_own_clock(monkeypatch):
    ops = [
        Op("kernel", "backward", "__cublas$gemm", 3, 2 * MS),
        Op("copy", "", "MemcpyH2D", 2, 1 * MS),
        Op("kernel", "", "what", 1, 0.5 * MS),
        Op("op", "forward", "MatMul", 1, 5 * MS),
    ]
    budgeted = {"dispatch": 7, "transfer calls": 0.2, "transfer bytes": 0.5, "matmul": 2.1, "at the same time": -2.8}
    ((h,), _) = held(monkeypatch, budgeted, traced_row(made_trace(10, ops, device=3.5), device="gpu:0"))
    expected = {"matmul": (2.1, 2.0, True), "copies": (0.7, 1.0, True), "dispatch and launches": (4.2, 6.5, False)}
    assert compared(h) == expected
    assert h.untold == ("5.00 % of the step in kernels whose names say nothing",)


def test_a_gpus_step_is_the_untraced_one_with_what_its_fit_does_with_the_samples(monkeypatch):
    """Tracing slows the host, not the GPU's clock: of 10 ms untraced the GPU is busy in 4, the host has the other 6."""
    monkeypatch.setattr(traces, "_fed", lambda m, of: 1.5 * MS)
    slow = made_trace(10, [Op("kernel", "backward", "__cublas$gemm", 3, 4 * MS)], device=4, slower=1.45)
    ((h,), _) = held(monkeypatch, {"dispatch": 4, "matmul": 4}, traced_row(slow, device="gpu:0"))
    assert compared(h) == {"matmul": (4.0, 4.0, True), "dispatch and launches": (5.5, 6.0, True)}


def test_what_tracing_made_much_longer_is_held_against_nothing(monkeypatch):
    slow = traced_row(made_trace(10, slower=1.3))
    assert held(monkeypatch, {"matmul": 4}, slow) == ([], [slow])
    apart = [traced_row(made_trace(12, slower=s), TF_NUM_INTEROP_THREADS="1") for s in (1.2, 1.3)]
    (own,), useless = held(
        monkeypatch, {"matmul": 4}, slow, apart[0]
    )  # its step is untraced, its parts are the other's
    assert (own.trace, useless) == (made_trace(10, slower=1.3), [])
    assert held(monkeypatch, {"matmul": 4}, slow, apart[1]) == ([], [slow])


def test_a_traced_row_is_no_ordinary_one_and_keeps_its_trace():
    made = traced_row(made_trace(10))
    assert not switches.ordinary(made)
    assert traces.trace_of(made) == made_trace(10)
    assert traces.trace_of(row("training/keras/fit", made.problem, 1.0)) is None


def test_stored_traces_are_read_and_are_of_the_rows_to_trace():
    """Rows of schema 1, whose operations have a share of the time besides."""
    stored = profile.read(str(traces.REPORTS / "nvidia-h200" / traces.FOLDER)).trainings
    assert len(stored) == 5 and not any(map(switches.ordinary, stored))
    assert all(made and made.ops for made in map(traces.trace_of, stored))
    to_trace = {traces._switched(r, r.settings.switches | traces.SWITCH).key for r in traces.rows(["gpu:0"])}
    assert {m.key for m in stored} <= to_trace


def test_a_real_trace_has_the_products_and_the_updates_of_each_step(inside):
    assert inside("a_real_trace") == ("ok", "")
