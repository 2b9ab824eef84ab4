"""Traces of trainings: what of an XSpace counts for which step and part, by hand-made events; and budgets held against them."""

import types

import msgspec
import pytest
from fake_measurements import row

from analysis.predict import profile
from analysis.predict.budget import Budget, Part
from analysis.stats import Estimate
from kernels.problems import Training
from tests.validation import traces, xspace
from tests.validation.xspace import Op, Trace
from workloads.records import settings as switches

US = 1_000_000  # ps
MS = 1e-3


class Stat(types.SimpleNamespace):
    def WhichOneof(self, _):
        return self.kind


class Plane:
    """A plane built line by line; names and stats get their numbers as they come."""

    def __init__(self, name: str):
        self.name, self.lines, self.event_metadata, self.stat_metadata = name, [], {}, {}

    def _key(self, known: dict, name: str, **more) -> int:
        found = next((key for key, meta in known.items() if meta.name == name), len(known) + 1)
        known.setdefault(found, types.SimpleNamespace(name=name, stats=[], **more))
        return found

    def stat(self, name: str, value) -> Stat:
        key, kind = self._key(self.stat_metadata, name), "int64_value" if isinstance(value, int) else "bytes_value"
        if isinstance(value, str):
            return Stat(metadata_id=key, kind="ref_value", ref_value=self._key(self.stat_metadata, value))
        return Stat(metadata_id=key, kind=kind, int64_value=0, uint64_value=0, bytes_value=b"") | {kind: value}

    def line(self, name: str, *events: tuple, at_us: int = 0) -> "Plane":
        """events: (name, begin in us, us, stats)."""
        made = []
        for what, begin, us, *more in events:
            key, stats = (
                self._key(self.event_metadata, what),
                [self.stat(*s) for s in (more[0] if more else {}).items()],
            )
            span = {"offset_ps": round(begin * US), "duration_ps": round(us * US)}
            made.append(types.SimpleNamespace(metadata_id=key, **span, stats=stats))
        self.lines.append(types.SimpleNamespace(name=name, timestamp_ns=at_us * 1000, events=made))
        return self


def _or(self, more: dict):
    self.__dict__.update(more)
    return self


Stat.__or__ = _or


def space(*planes) -> types.SimpleNamespace:
    return types.SimpleNamespace(planes=planes)


def steps(every_us: int = 100, count: int = 4, **more) -> Plane:
    """The main thread of a fit of so many steps."""
    calls = [("multi_step_on_iterator", every_us * i, 90) for i in range(count)]
    return Plane("/host:CPU").line("python", *calls, **more)


def test_of_steps_count_each_operations_own_time():
    """Of steps of 100 us the first and the last, whose end is not known, are left out: those from 100 to 300 us count. In each a
    product of 40 us, 20 us later beside it an update of 40 us; within the product 10 us of another operation."""
    host = steps()
    for lane, name, begin, us in (
        ("tf_Compute/1", "model/dense/MatMul:_MklMatMul", 10, 40),
        ("tf_Compute/1", "model/dense/Relu:Relu", 12, 10),
        ("tf_Compute/2", "sgd/Sub_1:Sub", 30, 40),
    ):
        host.line(lane, *((name, begin + at, us) for at in (0, 100, 200, 300)))
    host.lines[1].events = [*host.lines[1].events, *host.lines[2].events]  # of one thread, one within the other
    del host.lines[2]
    found = xspace.steps_of(space(host), "sgd")
    assert (found.steps, found.traced_s) == (2, pytest.approx(1e-4))
    ops = {op.name: op for op in found.ops if op.where == xspace.OP}
    expected = {"_MklMatMul": ("forward", 1.0, 30.0), "Relu": ("forward", 1.0, 10.0), "Sub": ("optimizer", 1.0, 40.0)}
    assert {name: (op.scope, op.calls, round(op.seconds * 1e6, 6)) for name, op in ops.items()} == expected
    assert found.busy_s["op"] == pytest.approx(60e-6)  # 10 to 70 us


def test_operations_of_the_pipeline_and_what_is_no_operation_are_left_out():
    host = steps()
    host.line("tf_data_private_threadpool/7", *(("GatherV2:GatherV2", at + 5, 20) for at in (0, 100, 200, 300)))
    host.line(
        "tf_Compute/1", *((name, 110, 50) for name in ("ExecutorState::Process", "EagerExecute: Sum", "Iterator::Root"))
    )
    found = xspace.steps_of(space(host), "adam")
    assert (found.ops, found.busy_s) == ((), {})


def test_a_trace_without_enough_steps_says_so():
    with pytest.raises(xspace.Untold, match="the trace has 3 of Keras's steps"):
        xspace.steps_of(space(steps(count=3)), "adam")
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
    found = xspace.steps_of(space(steps(), gpu, metadata(known)), "adam")
    kernels = {
        (op.where, op.scope, op.name): round(op.seconds * 1e6, 6) for op in found.ops if op.where in ("kernel", "copy")
    }
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
    assert {name: round(s * 1e6, 6) for name, s in parts.items()} == expected


def metadata(modules: dict) -> Plane:
    """The plane that holds HLO protos; `_hlo` is faked, so that the bytes name the module."""
    made = Plane("/host:metadata")
    for name in modules:
        stat = made.stat("Hlo Proto", name.encode())
        made.event_metadata[len(made.event_metadata) + 1] = types.SimpleNamespace(name=name, stats=[stat])
    KNOWN.clear()
    KNOWN.update(modules)
    return made


KNOWN: dict = {}


@pytest.fixture(autouse=True)
def faked_hlo(monkeypatch):
    """HLO modules as the reader sees them, without TensorFlow: a computation of the instructions, one for each fusion."""

    def instruction(name, opcode, target="", called=(), path=""):
        of = types.SimpleNamespace(op_name=path)
        about = {"custom_call_target": target, "called_computation_ids": called, "metadata": of}
        return types.SimpleNamespace(name=name, opcode=opcode, **about)

    def module(written: bytes):
        entry, computations = [], []
        for i, (name, opcode, target, inside) in enumerate(KNOWN[written.decode()], 1):
            computations.append(
                types.SimpleNamespace(
                    id=i, instructions=[instruction(f"{name}.{j}", o, path=p) for j, (o, p) in enumerate(inside)]
                )
            )
            entry.append(instruction(name, opcode, target, [i]))
        computations.append(types.SimpleNamespace(id=0, instructions=entry))
        return types.SimpleNamespace(name=written.decode(), computations=computations)

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


def traced_row(of: Trace, problem=None, device="cpu", **more):
    given = {"data": "synthetic", "trace": "on", **more}
    of_ = problem or Training("mlp-784-500x2-10", 128, 2048)
    notes = {traces.NOTE: msgspec.json.encode(of).decode()}
    made = row("training/keras/fit", of_, of.step_s, device=device, notes=notes)
    return msgspec.structs.replace(made, settings=msgspec.structs.replace(made.settings, switches=given))


class Budgeted:
    """Stands for analysis.predict.budget.budget: parts in ms."""

    def __init__(self, **ms: float):
        self.ms = {name.replace("_", " "): value for name, value in ms.items()}

    def __call__(self, training, of):
        parts = [Part(name, Estimate(ms * MS, ms * MS, ms * MS), "") for name, ms in self.ms.items()]
        step = Estimate(10 * MS, 10 * MS, 10 * MS)
        return Budget(training, step, tuple(parts), step)


def profiled(*rows):
    # nothing else in it: what a fit does with its samples is not known, and counts as nothing
    return profile.profile(rows)


def test_a_cpus_parts_are_held_against_one_operation_at_a_time(monkeypatch):
    """Traced at once 10 ms, one at a time 12: products 6 and updates 3 beyond the shortest operation's 0.1 ms, which each has."""
    ops = [
        Op("op", "forward", "MatMul", 2, 6.2 * MS),
        Op("op", "optimizer", "Mul", 1, 3.1 * MS),
        Op("op", "", "Sum", 1, 0.1 * MS),
    ]
    rows = [traced_row(made_trace(10, op=9)), traced_row(made_trace(12, ops, 1.0, op=9.4), TF_NUM_INTEROP_THREADS="1")]
    budgeted = Budgeted(dispatch=1, launches=1.5, matmul=7, optimizer=2.2, **{"at the same time": -1.7})
    monkeypatch.setattr(traces, "budget", budgeted)
    ((h,), _) = traces.held(profiled(*rows))
    assert {p.name: (round(p.told / MS, 6), round(p.traced / MS, 6), p.near) for p in h.parts} == {
        "matmul": (7.0, 6.0, True),  # 17 % of 6 ms
        "optimizer": (2.2, 3.0, False),  # 27 % of 3 ms, 8 % of the step
        "dispatch and launches": (2.5, 3.0, True),  # 5 % of the step
        "at the same time": (-1.7, -2.0, True),
    }
    assert traces.sentence(h) == (
        "mlp-784-500x2-10 at batch 128 on the CPU, 10.0 ms a step: 3 of 4 parts of the budget are as traced; apart: optimizer "
        "(2.20 ms instead of 3.00 ms); tracing made the step 2.00 % longer."
    )
    assert traces.table(h)[3] == "| optimizer | 2.20 ms | 3.00 ms | -8.00 % | apart |"
    del rows[1]
    ((h,), _) = traces.held(profiled(*rows))
    assert [p.name for p in h.parts] == ["work", "dispatch and launches"]
    assert "TF_NUM_INTEROP_THREADS=1" in h.untold[0]


def test_a_gpus_parts_are_held_against_its_own_clock(monkeypatch):
    ops = [
        Op("kernel", "backward", "__cublas$gemm", 3, 2 * MS),
        Op("copy", "", "MemcpyH2D", 2, 1 * MS),
        Op("kernel", "", "what", 1, 0.5 * MS),
        Op("op", "forward", "MatMul", 1, 5 * MS),
    ]
    budgeted = Budgeted(dispatch=7, transfer_calls=0.2, transfer_bytes=0.5, matmul=2.1, **{"at the same time": -2.8})
    monkeypatch.setattr(traces, "budget", budgeted)
    ((h,), _) = traces.held(profiled(traced_row(made_trace(10, ops, device=3.5), device="gpu:0")))
    expected = {"matmul": (2.1, 2.0, True), "copies": (0.7, 1.0, True), "dispatch and launches": (4.2, 6.5, False)}
    assert {p.name: (round(p.told / MS, 6), round(p.traced / MS, 6), p.near) for p in h.parts} == expected
    assert h.untold == ("5.00 % of the step in kernels whose names say nothing",)


def test_a_gpus_step_is_the_untraced_one_with_what_its_fit_does_with_the_samples(monkeypatch):
    """Tracing slows the host, not the GPU's clock: of 10 ms untraced the GPU is busy in 4, the host has the other 6."""
    monkeypatch.setattr(traces, "budget", Budgeted(dispatch=4, matmul=4))
    monkeypatch.setattr(traces, "_fed", lambda m, of: 1.5 * MS)
    ops = [Op("kernel", "backward", "__cublas$gemm", 3, 4 * MS)]
    ((h,), _) = traces.held(profiled(traced_row(made_trace(10, ops, device=4, slower=1.45), device="gpu:0")))
    expected = {"matmul": (4.0, 4.0), "dispatch and launches": (5.5, 6.0)}
    assert {p.name: (round(p.told / MS, 6), round(p.traced / MS, 6)) for p in h.parts} == expected


def test_what_tracing_made_much_longer_is_held_against_nothing(monkeypatch):
    monkeypatch.setattr(traces, "budget", Budgeted(matmul=4))
    slow = traced_row(made_trace(10, slower=1.3))
    assert traces.held(profiled(slow)) == ([], [slow])
    apart = [traced_row(made_trace(12, slower=s), TF_NUM_INTEROP_THREADS="1") for s in (1.2, 1.3)]
    (held,), useless = traces.held(profiled(slow, apart[0]))  # its step is of untraced fits, its parts are the other's
    assert (held.trace, useless) == (made_trace(10, slower=1.3), [])
    assert traces.held(profiled(slow, apart[1])) == ([], [slow])


def test_a_traced_row_is_no_ordinary_one_and_keeps_its_trace():
    made = traced_row(made_trace(10))
    assert not switches.ordinary(made)
    assert traces.trace_of(made) == made_trace(10)
    assert traces.trace_of(row("training/keras/fit", made.problem, 1.0)) is None


def test_stored_traces_are_read_and_held():
    """Rows of schema 1, whose operations have a share of the time besides."""
    of = profile.read(str(traces.REPORTS / "nvidia-h200" / traces.FOLDER))
    assert len(of.trainings) == 5 and not any(map(switches.ordinary, of.trainings))
    found = [traces.trace_of(m) for m in of.trainings]
    assert all(made and made.ops for made in found)


def test_the_rows_to_trace_are_those_that_are_stored():
    stored = {m.key for m in profile.read(str(traces.REPORTS / "nvidia-h200" / traces.FOLDER)).trainings}
    assert stored <= {traces._switched(r, r.settings.switches | traces.SWITCH).key for r in traces.rows(["gpu:0"])}


def test_a_real_trace_has_the_products_and_the_updates_of_each_step(inside):
    assert inside("a_real_trace") == ("ok", "")
