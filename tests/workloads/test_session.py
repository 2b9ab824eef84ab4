"""What trainings and inference say last: how much of a plan is here, and errors with a command that works."""

import importlib
import pathlib

import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row, run, square
from msgspec.structs import replace

from analysis.crossover import crossover
from analysis.crossover.forms import LATENCY
from kernels.problems import Inference, Training
from workloads import inference, matmul, options, session, training
from workloads.harness import sweep
from workloads.records.rows import VISITS_AT


def outcome(*rows, left=0, stopped="", workload="training"):
    of = run(CPU_MACHINE, "python -m workloads.training")
    return sweep.Outcome(of, pathlib.Path(f"{workload}.jsonl"), list(rows), stopped, left)


def trained(model="cifar10-cnn", status="failed", reason="no luck", samples=320, device="cpu", **fields):
    seconds = 0.1 if status == "ok" else None
    fields |= {"device": device, "status": status, "reason": reason}
    return row("training/keras/fit", Training(model, 32, samples), seconds, **fields)


def test_a_stopped_plan_names_its_progress():
    expected = ["2 of 5 rows are here, and what follows is said of these."]
    assert session.unfinished(outcome(trained(), trained(), left=3, stopped="stop-after")) == expected
    assert session.unfinished(outcome(trained())) == []


TRAIN = "python -m workloads.training"


@pytest.mark.parametrize(
    ("fields", "tip"),
    [
        ({"cause": "does-not-fit", "samples": 10**8}, f"{TRAIN} --model cifar10-cnn --samples 1000"),
        ({"cause": "no-gpu"}, f"{TRAIN} --device cpu"),
        ({"cause": "not-installed", "notes": {"install": "pip install torch"}}, "pip install torch"),
        ({"cause": ""}, training.EXAMPLE),
    ],
)
def test_a_wholly_skipped_run_names_a_working_command(fields, tip):
    m = trained(status="skipped", reason="for a reason", **fields)
    with pytest.raises(options.Missing, match="nothing could be measured: ") as nothing:
        session.require_measured(outcome(m), "training", training.EXAMPLE)
    assert (m.reason in str(nothing.value), nothing.value.tip, nothing.value.code) == (True, tip, 3)
    session.require_measured(outcome(m, trained(status="ok")), "training", training.EXAMPLE)
    big = row("inference/keras/call", Inference("lenet", 10**9), None, status="skipped", cause="does-not-fit")
    with pytest.raises(options.Missing) as nothing:
        session.require_measured(outcome(big, workload="inference"), "inference", inference.EXAMPLE)
    assert nothing.value.tip == "python -m workloads.inference --model lenet --batch 1"


@pytest.mark.parametrize(
    "words", ["workloads.stream --sizes 1TB --device cpu", "workloads.matmul --sizes 1000000 --device cpu"]
)
def test_rows_beyond_memory_end_before_the_roofs(words, tmp_path, capsys):
    command, *flags = words.split()
    main = importlib.import_module(command).main
    assert main([*flags, "-o", str(tmp_path / "w")]) == options.MISSING
    error, tried = capsys.readouterr().err.splitlines()
    assert error.startswith("error: nothing can be measured: a row needs ") and command in tried
    assert not (tmp_path / "w").exists()


def test_all_rows_skipped_is_one_error(tmp_path, capsys):
    words = ["--dtypes", "tf32", "--device", "cpu", "--threads", "1", "--fast", "-o", str(tmp_path / "w")]
    assert importlib.import_module("workloads.peak").main(words) == options.MISSING
    assert capsys.readouterr().err.count("error: nothing could be measured: ") == 1


def test_a_dry_run_names_peaks_without_kernels(capsys):
    words = ["--dtypes", "tf32", "float32", "--device", "cpu", "--threads", "1", "--variants", "fma", "--dry-run"]
    assert importlib.import_module("workloads.peak").main(words) == options.OK
    planned, total, left_out = capsys.readouterr().out.splitlines()
    assert "float32 1 thread" in planned and total.startswith("1 row, ")
    assert left_out.startswith("left out: peak/numba/fma ") and " tf32 " in left_out


@pytest.mark.parametrize(
    ("flags", "again"),
    [
        ("--sizes 64 -o runs/a", "--sizes 64 -o runs/a --resume"),
        ("--sizes 64 --output=runs/a", "--sizes 64 --output=runs/a --resume"),
        ("--stop-after 5 --sizes 64", "--sizes 64 -o elsewhere --resume"),
        ("", "-o elsewhere --resume"),
    ],
)
def test_a_run_is_resumed_where_it_was_begun(monkeypatch, tmp_path, flags, again):
    monkeypatch.chdir(tmp_path)
    command = f"python -m workloads.matmul {flags}".strip()
    assert session.resume_command(command, tmp_path / "elsewhere") == f"python -m workloads.matmul {again}"


def test_an_added_size_uses_its_neighbors_winners():
    """The GPU takes 1 ms; another kernel of the CPU is the fastest at each size, and the GPU begins to win between 128 and 256,
    whose geometric middle is 181: 192 in steps of 32."""
    cpu = {
        64: ("numpy/operator", 1e-4),
        128: ("numpy/blas", 5e-4),
        256: ("numba/parallel", 4e-3),
        512: ("mkl/gemm", 3e-2),
    }
    done = [row(f"matmul/{kernel}", square(n), seconds) for n, (kernel, seconds) in cpu.items()]
    done += [row("matmul/cupy/cublas", square(n), 1e-3) for n in cpu]
    added = session.rows_around_crossovers(done, crossover.crossovers(done, [LATENCY]), "matmul", matmul._size_order)
    assert sorted((one.problem.n, one.kernel) for one in added) == [
        (192, "matmul/cupy/cublas"),
        (192, "matmul/numba/parallel"),
        (192, "matmul/numpy/blas"),
    ]


@pytest.mark.parametrize(("terminal", "printed"), [(True, [["matmul/numpy/blas"]]), (False, [])])
def test_provisional_rows_are_printed_once(monkeypatch, terminal, printed):
    """The second time rows are refined, nothing is printed, though there are rows of one visit."""
    one = replace(row("matmul/numpy/blas", square(64), 1e-3), series={VISITS_AT: (1.0,)})
    whole = row("matmul/numpy/operator", square(64), 1e-3)
    lines = []

    def swept(rows, measuring, workload, run, *, shown, refine, processes):
        refine([one, whole])
        refine([one, whole])
        return outcome(one, whole)

    monkeypatch.setattr(sweep, "sweep", swept)
    monkeypatch.setattr(session, "_print_provisional", lambda table, once: lines.append([m.kernel for m in once]))
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    plan = matmul.MatmulPlan.parse(["--sizes", "64", "--no-refine"])
    plan.sweep(run(GPU_MACHINE), [], print_row=print)
    assert lines == printed
