"""Is a timing even true? Every check sees its fault and nothing else; what a worker sees of what it timed."""

import importlib
import pathlib

import msgspec
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, gpu_run, row, run, square, write

from analysis import checks
from analysis.analysis import Analysis
from analysis.checks import Context
from kernels.problems import Peak, Stream, Training
from workloads import doctor, options, records, session
from workloads.harness import sweep
from workloads.records import Measurement, Samples, Settings, row_flags
from workloads.records.rows import VISITS_AT

BY_FLAG = {check.flag: check for check in checks.CHECKS}
VIRTUAL = msgspec.structs.replace(CPU_MACHINE, virtual=True)


def gpu(waited: float, worked: float, **fields) -> Measurement:
    return row("matmul/cupy/cublas", square(1024), {"host-latency": waited, "device": worked}, **fields)


def first(*seconds: float, calls: int = 10, first_call: float = 0.0, stop: str = "steady") -> Measurement:
    samples = Samples("host-latency", seconds, calls, (1,) * len(seconds), stop)
    phases_s = {"first_call": first_call}
    kernel = "matmul/numpy/blas"
    return Measurement(kernel, square(64), Settings(threads=1), "ok", samples=(samples,), phases_s=phases_s)


def stream(seconds: float, cache: str, nbytes: int = 8 << 20, device: str = "cpu") -> Measurement:
    return row("stream/numba/loop", Stream("triad", nbytes), seconds, device=device, cache=cache)


WARM = stream(1e-3, "warm")
ROOFED = [  # a product at 110 GFLOP/s above a peak of 100
    row("peak/numba/fma", Peak("float32", 10**9), 10**9 / 100e9, threads=1),
    row("matmul/numpy/blas", square(1000), 2e9 / 110e9, threads=1),
]


# Twenty times that peak, more than any virtual CPU is lent.
IMPOSSIBLE = [ROOFED[0], row("matmul/numpy/blas", square(1000), 2e9 / 2000e9, threads=1)]


def spread(count, second):
    """A training on so many GPUs whose first losses were 2 and `second`."""
    over = {"strategy": "DataParallel", "replicas": str(count)} if count > 1 else {}
    of = {"device": "gpu:0", "switches": {"data": "synthetic", **over}, "series": {"step_loss": (2.0, second)}}
    return row("training/keras/fit", Training("lenet", 8, 64), 0.1, **of)


# flag -> (the row it is seen on, those it was measured beside, machine), (a row like it on which it is not, beside, machine)
LONG = 1.01, 0.01, 0.01, 0.01
LONGER = first(*LONG, first_call=10.0, stop="max-blocks")
ON_CPU = "the model's variables are on /device:CPU:0, not on a GPU"
FAILS = {"device": "gpu:0", "status": "failed"}
LOST = row("training/keras/fit", square(1), None, reason=ON_CPU, cause="on-cpu", **FAILS)
OTHER = row("training/keras/fit", square(1), None, reason="no memory", **FAILS)
CASES = {
    "no-wait": ((gpu(1e-5, 4e-4), [], GPU_MACHINE), (gpu(3.9e-4, 4e-4), [], GPU_MACHINE)),
    "first-call": ((LONGER, [], None), (first(0.05, 0.01, 0.01, 0.01, first_call=10.0), [], None)),
    "above-roof": ((ROOFED[1], ROOFED, CPU_MACHINE), (ROOFED[1], ROOFED, VIRTUAL)),
    "lent-more": ((ROOFED[1], ROOFED, VIRTUAL), (ROOFED[1], ROOFED, CPU_MACHINE)),
    "not-cold": ((stream(1e-3, "cold"), [WARM], CPU_MACHINE), (stream(2e-3, "cold"), [WARM], CPU_MACHINE)),
    "long-visit": ((first(1e-5, 1e-5, 1.01e-4), [], None), (first(1e-5, 1e-5, 0.99e-4), [], None)),
    "ran-on-cpu": ((LOST, [], GPU_MACHINE), (OTHER, [], None)),
    "other-losses": ((spread(2, 1.03), [spread(1, 1.0)], None), (spread(2, 1.0009), [spread(1, 1.0)], None)),
}


@pytest.mark.parametrize("flag", CASES)
def test_each_check_sees_its_fault_alone(flag):
    (bad, beside, machine), (good, others, elsewhere) = CASES[flag]
    assert [one.check for one in Analysis.from_rows([bad, *beside], machine).doubts if one.check == flag] == [flag]
    assert not [one for one in Analysis.from_rows([good, *others], elsewhere).doubts if one.check == flag]


@pytest.mark.parametrize(
    ("device", "check", "level"), [("gpu:0", "above-roof", "problem"), ("cpu", "lent-more", "warn")]
)
def test_a_virtual_machine_lends_cpus_but_no_gpu(device, check, level):
    """110 GFLOP/s above a peak of 100, in a virtual machine."""
    peak = row("peak/cupy/fma", Peak("float32", 10**9), {"device": 10**9 / 100e9})
    product = row("matmul/cupy/cublas", square(1000), {"host-latency": 1.0, "device": 2e9 / 110e9})
    rows = [peak, product] if device == "gpu:0" else ROOFED
    assert GPU_MACHINE.virtual
    assert [(one.check, one.level) for one in Analysis.from_rows(rows, GPU_MACHINE).doubts] == [(check, level)]


@pytest.mark.parametrize("machine", [CPU_MACHINE, VIRTUAL])
def test_a_row_far_above_its_roof_is_doubted(machine):
    (doubt,) = Analysis.from_rows(IMPOSSIBLE, machine).doubts
    assert (doubt.check, doubt.level) == ("above-roof", "problem")
    assert "20.0 times its roof, float32 compute" in doubt.state


def test_a_row_of_a_nanosecond_is_doubted():
    (doubt,) = Analysis.from_rows([row("matmul/numpy/blas", square(8), 1e-9, threads=1)], VIRTUAL).doubts
    assert doubt.check == "above-roof"
    assert "1.00 ns a call, less than any hardware takes" in doubt.state


@pytest.mark.parametrize("flag", [flag for flag in BY_FLAG if flag not in CASES])
def test_a_rows_flag_is_put_in_words(flag):
    m = msgspec.structs.replace(first(0.1, 0.1, 0.1), flags=(flag,), values={"gpu_power_w": 700.0})
    (found,) = Analysis.from_rows([m]).doubts
    assert found.check == flag
    assert found.state.startswith("matmul/numpy/blas m=64") and found.why and found.fix and "nan" not in found.fix
    assert Analysis.from_rows([msgspec.structs.replace(m, flags=())]).doubts == []


def test_every_telemetry_flag_has_words():
    flags = {"cpu-clock", "steal", "quota", "other-load", "gpu-clock", "power-cap", "thermal", "other-tenant"}
    assert flags | {"cold-clocked", "hold-ended"} <= set(BY_FLAG)
    loaded = gpu_run()
    assert Analysis.from_rows(loaded.measurements, loaded.runs[0].machine).doubts == []
    bad = row_flags.flagged(gpu(1e-5, 4e-4))
    assert bad.flags == ("no-wait",) and row_flags.flagged(bad) is bad and row_flags.flagged(ROOFED[1]).flags == ()
    doubtful = [bad, bad, msgspec.structs.replace(ROOFED[1], flags=("quota",))]
    said = checks.lines(Analysis.from_rows(doubtful, GPU_MACHINE).doubts, "a b.jsonl")
    assert said[0].startswith("doubtful (no-wait): 2 of 3 rows, such as matmul/cupy/cublas m=1024")
    assert said[1].endswith("doctor 'a b.jsonl'") and "; try: " in said[0]
    again = "python -m workloads.training --model lenet --rigorous"
    stolen, held_back = (msgspec.structs.replace(spread(1, 1.0), flags=(flag,)) for flag in ("steal", "quota"))
    assert [one.fix for one in Analysis.from_rows([stolen]).doubts] == [again]
    assert [one.fix for one in Analysis.from_rows([held_back]).doubts] != [again]
    for words in (check.fix.split() for check in checks.CHECKS if check.fix.startswith("python -m workloads.")):
        importlib.import_module(words[2]).parser().parse_args(words[3:])


@pytest.mark.parametrize(
    ("flag", "m", "beside", "why"),
    [
        ("first-call", first(*LONG, first_call=0.02), [], "the first call was no longer than the others"),
        ("first-call", msgspec.structs.replace(LONGER, series={"first_call_s": (10.0, 10.1)}), [], "two processes"),
        ("first-call", msgspec.structs.replace(LONGER, series={VISITS_AT: (0.0, 9.0)}), [], "two visits"),
        ("first-call", first(0.01, 1.01, 0.01, 0.01, first_call=10.0), [], "it is not the first"),
        ("first-call", first(1.0, 0.1, first_call=9.0), [], "two samples"),
        ("not-cold", stream(1e-3, "cold", 1 << 10), [stream(1e-3, "warm", 1 << 10)], "too small to show"),
        ("not-cold", stream(1e-3, "cold", 1 << 28), [stream(1e-3, "warm", 1 << 28)], "no cache holds it"),
        ("not-cold", stream(1e-3, "cold"), [], "no twin"),
    ],
)
def test_a_slow_first_sample_may_have_another_reason(flag, m, beside, why):
    assert not BY_FLAG[flag].symptom_of(m, Context(rows=tuple(beside), machine=CPU_MACHINE)), why


def test_the_doctor_times_a_few_rows(monkeypatch):
    here = records.Machine("x", "cpu", "intel", "avx512", 1, 1, 1 << 34, {"L3": 1 << 22})
    done = doctor.trials(here)
    assert [(m.kernel, m.status) for m in done] == [("matmul/numpy/blas", "ok"), ("stream/numba/loop", "ok")]
    failed = msgspec.structs.replace(done[0], status="failed", reason="no")
    monkeypatch.setattr(doctor, "trials", lambda here: [failed, gpu(1e-5, 4e-4)])
    found = {one.check: one for one in doctor.timings()}
    assert "1 rows timed" in found["timings"].state or found["timings"].level == "problem"
    assert found["no-wait"].level == "problem"
    assert [one.level for one in doctor.timings()].count("problem") == 2


def test_the_doctor_looks_at_stored_rows(tmp_path, capsys):
    write(tmp_path / "matmul.jsonl", run(GPU_MACHINE), [gpu(5e-4, 4e-4)])
    assert doctor.main([str(tmp_path)]) == options.OK
    assert "1 rows of nvidia-h200" in capsys.readouterr().out
    with open(tmp_path / "matmul.jsonl", "ab") as file:
        file.write(msgspec.json.encode(gpu(1e-5, 4e-4, mode="x")) + b"\ngarbage\n")
    assert doctor.main([str(tmp_path)]) == options.FAILED
    out = capsys.readouterr().out
    for words in ("problem  no-wait", "bad lines", "These rows are not sound: ", "mend it: "):
        assert words in out
    assert doctor.main([str(tmp_path / "none")]) == options.USAGE


def test_the_sweeps_end_explains_its_flags(capsys):
    doubtful = gpu(1e-5, 4e-4, flags=("power-cap",), values={"gpu_power_w": 700.0})
    outcome = sweep.Outcome(run(GPU_MACHINE), pathlib.Path("x.jsonl"), [doubtful])
    analysis = session.analyzed(outcome)
    assert session.sum_up(outcome, analysis) == 0
    err = capsys.readouterr().err
    assert "1 warning (power-cap): " in err and "doubtful (no-wait)" in err
    assert err.count("-m workloads.doctor x.jsonl") == 1
    session.sum_up(outcome, analysis, verbose=True)
    err = capsys.readouterr().err
    assert "doubtful (power-cap)" in err and "700 W" in err and "1 warning" not in err
    session.sum_up(outcome, analysis, quiet=True)
    assert "doubtful" not in capsys.readouterr().err


@pytest.mark.parametrize(("cold_s", "checks_seen"), [(1.01e-3, ["not-cold"]), (1.03e-3, [])])
def test_a_cold_row_may_be_2_percent_faster(cold_s, checks_seen):
    rows = [stream(cold_s, "cold"), WARM]
    assert [one.check for one in Analysis.from_rows(rows, CPU_MACHINE).doubts] == checks_seen
