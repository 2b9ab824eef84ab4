"""The suite: its plan, its parts in one folder, its exit code, and what a machine without a GPU is told."""

import pathlib
import re
from collections import Counter
from types import SimpleNamespace

import pytest
import readme
from fake_measurements import GPU_MACHINE

from analysis import noise
from analysis.analysis import Analysis
from analysis.report import material
from analysis.report import page as report_page
from analysis.text import summary
from kernels import registry
from workloads import conv, matmul, options, records, session, shared_flags, suite, training
from workloads.harness import plan, worker
from workloads.machine import facts
from workloads.suite_parts import suite_steps

GPU = ["gpu:0"]
QUICK = ["--fast", "--max-time", "0.05", "--min-time", "0.005", "--threads", "1", "-q"]


def parsed(*argv):
    return suite.parse(argv)


def test_plans_of_parts_and_flags():
    parts = []
    for gpu in (GPU, []):
        parts += suite_steps.parts(True, gpu) + suite_steps.parts(False, gpu)
    for name, flags in parts:
        plan = suite_steps.step_plan(parsed("--seed", "7", "--threads", "2"), suite_steps.SuitePart(name, flags))
        part = suite_steps.SuiteStep(name=name, words="", plan=plan)
        measuring = part.plan_in(pathlib.Path("x"), left_s=5.0, resume=False).measuring
        assert (measuring.seed, measuring.output, measuring.stop_after_s) == (7, "x", 5.0)
        assert measuring.devices == tuple(flags.get("device", ()))
        assert measuring.threads == (() if "threads" in flags else (2,))
        assert measuring.fast == flags.get("fast", False) == (measuring.limits == shared_flags.FAST)
    assert {name for name, _ in suite_steps.parts(False, GPU)} > {name for name, _ in suite_steps.parts(True, GPU)}
    sizes = ([flags for name, flags in suite_steps.parts(False, gpu) if name == "matmul"] for gpu in (GPU, []))
    with_gpu, without = ([flags for flags in own if "sizes" in flags] for own in sizes)
    assert len(with_gpu) == 2 and "bfloat16" in with_gpu[0]["dtypes"] and with_gpu[1]["device"] == GPU
    assert [flags["dtypes"] for flags in without] == [["float32", "float64"]]
    assert [name for name, _ in suite_steps.chosen_parts(parsed("--only", "peak,stream"), [])] == [
        "peak",
        "stream",
        "stream",
    ]
    with pytest.raises(options.Usage, match="unknown workload 'nope'"):
        suite_steps.chosen_parts(parsed("--only", "nope"), [])


def test_a_part_that_is_not_installed_is_skipped(capsys):
    """A training has processes of its own; those of the others go on."""
    missing = {"conv": options.Missing("no cudnn"), "training": options.Missing("no keras", "pip install keras")}
    workers = []

    def measured(name, plan, run, processes):
        workers.append(processes)
        if name in missing:
            raise missing[name]
        return 0

    steps = [
        suite_steps.SuiteStep(name=name, words="", plan=matmul.parse([])) for name in ("conv", "matmul", "training")
    ]
    codes = suite_steps.measure_steps(steps, parsed().measuring, None, folder=pathlib.Path("x"), measured_by=measured)
    assert codes == [3, 0, 3]
    said = ["conv left out: no cudnn", "training left out: no keras", "  to have it: pip install keras"]
    assert capsys.readouterr().err.splitlines() == said
    assert workers[0] is workers[1] and workers[::2] == [{}, None]


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ([], [None] * 3),
        (["--stop-after", "600"], [600.0, 350.0, 100.0]),
        (["--stop-after", "500"], [500.0, 250.0]),
        (["--stop-after", "200"], [200.0]),
    ],
)
def test_a_part_has_the_remaining_seconds(monkeypatch, flags, left):
    """Parts of 250 s each; none begins when the time is over."""
    now = [0.0]
    seconds: list[float | None] = []

    def measured(name, plan, run, processes):
        seconds.append(plan.measuring.stop_after_s)
        now[0] += 250.0
        return options.OK

    monkeypatch.setattr(suite_steps, "time", SimpleNamespace(monotonic=lambda: now[0]))
    steps = [suite_steps.SuiteStep(name=name, words="", plan=matmul.parse([])) for name in ("peak", "stream", "matmul")]
    codes = suite_steps.measure_steps(
        steps, parsed(*flags).measuring, None, folder=pathlib.Path("x"), measured_by=measured
    )
    assert codes == [options.OK] * len(left)
    assert seconds == left


@pytest.mark.parametrize(
    ("flags", "resumes"), [([], [False, False, True, False]), (["--resume"], [True, True, True, True])]
)
def test_a_workloads_second_part_extends_its_file(flags, resumes):
    seen: list[bool] = []

    def measured(name, plan, run, processes):
        seen.append(plan.measuring.resume)
        return options.OK

    names = ("matmul", "conv", "matmul", "stream")
    steps = [suite_steps.SuiteStep(name=name, words="", plan=matmul.parse([])) for name in names]
    suite_steps.measure_steps(steps, parsed(*flags).measuring, None, folder=pathlib.Path("x"), measured_by=measured)
    assert seen == resumes


def test_a_step_is_one_line_with_remaining_time(monkeypatch, capsys):
    """Steps of 30, 20 and 40 s: the first takes 60 s, so the other two are taken for 120 s; both take 120 s, so the last is taken
    for 160 s."""
    planned = {"matmul": 30.0, "training": 20.0, "conv": 40.0}
    now = iter([0.0, 60.0, 200.0, 360.0])
    run = SimpleNamespace(machine=GPU_MACHINE)
    words = {"matmul": "matrix products", "training": "a training", "conv": "convolutions"}
    plans = {"matmul": matmul.parse([]), "training": training.parse([]), "conv": conv.parse([])}
    steps = [suite_steps.SuiteStep(name=name, words=words[name], plan=plan) for name, plan in plans.items()]
    monkeypatch.setattr(suite_steps, "longest_seconds", lambda plan, here: planned[plan.command_line.name])
    monkeypatch.setattr(suite, "time", SimpleNamespace(monotonic=lambda: next(now)))
    for kind in (matmul.MatmulPlan, training.TrainingPlan, conv.ConvPlan):
        monkeypatch.setattr(kind, "rows", lambda self, machine: [])
        monkeypatch.setattr(kind, "measure", lambda self, run, rows, processes: self.measuring.quiet)
    monkeypatch.setattr(session, "analyzed", lambda outcome: None)
    monkeypatch.setattr(session, "sum_up", lambda outcome, analysis, quiet: outcome)
    step_lines = suite.StepLines(steps, GPU_MACHINE, quiet=False)
    assert [step_lines.measure(part.name, part.plan, run, None) for part in steps] == [False] * 3
    step_lines.end()
    assert capsys.readouterr().err.splitlines() == [
        "measure  3 steps, about 2 minutes",
        "         1/3  matrix products                          about 2 minutes left",
        "         2/3  a training                               about 2 minutes left",
        "         3/3  convolutions                             about 3 minutes left",
        "         done in 6 minutes",
    ]
    now = iter([0.0])
    step_lines = suite.StepLines(steps, GPU_MACHINE, quiet=True)
    assert step_lines.measure("matmul", plans["matmul"], run, None) is True and not capsys.readouterr().err


def test_visits_of_quick_products_on_16_cores(monkeypatch):
    """Of five sizes NumPy's kernels on 1 and 16 threads and CuPy's in four modes; peaks of threads and GPU; three triads."""
    numba = {"matmul": "simd parallel", "peak": "fma", "stream": "nontemporal"}
    gpu = {"matmul": "cublas operator", "peak": "fma", "stream": "wide elementwise"}

    def load(op, backend):
        names = {"numba": numba, "cupy": gpu, "numpy": {"matmul": "blas operator"}}.get(backend, {}).get(op, "").split()
        return [registry.Kernel(op, backend, v, None, registry.BACKENDS[backend].devices) for v in names]

    monkeypatch.setattr(registry, "load", load)
    monkeypatch.setattr(facts, "usable_cores", lambda: 16)
    monkeypatch.setattr(facts, "usable_threads", lambda: 16)
    monkeypatch.setattr(facts, "memory_available", lambda device: 1 << 36)
    products = suite_steps.step_plan(parsed(), suite_steps.parts(True, GPU)[0])
    rows = products.rows(GPU_MACHINE)
    assert len(rows) == 5 * (2 * 2 + 2 * 4) + 3 + 3
    assert not products.refines and products.measuring.limits.rounds * len(rows) == 198


@pytest.mark.parametrize(
    ("codes", "code"), [([0, 0], 0), ([0, 3], 0), ([3, 3], 3), ([0, 1, 3], 1), ([2, 0], 2), ([1, 2], 1)]
)
def test_exit_code(codes, code):
    assert session.worst(codes) == code


@pytest.mark.slow
def test_one_folder_with_a_report_and_its_answer(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(plan, "_FAST_CACHES", 0.0)  # roofs of a memory of 256 MiB: gone through, and no more
    assert suite.main([*QUICK, "--quick", "--only", "matmul", "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "\nNext  " in out and "n = 1,024" in out
    assert pathlib.Path(out.splitlines()[-1].removeprefix("Page  ")).resolve() == tmp_path / "report.html"
    assert {p.name for p in tmp_path.iterdir()} >= {"matmul.jsonl", "report.md"}
    assert all(m.status == "ok" for m in records.read(tmp_path).measurements)
    assert suite.main([*QUICK, "--quick", "--only", "matmul", "-o", str(tmp_path)]) == 2  # nothing is overwritten
    assert "add --resume" in capsys.readouterr().err


def test_a_dry_run_names_every_part(capsys):
    assert suite.main(["--quick", "--format", "json"]) == suite.main(["--quick", "--backends", "numpy"]) == 2
    assert "--only" in capsys.readouterr().err
    assert suite.main(["--dry-run", "--quick", "-q"]) == 0
    out = capsys.readouterr().out
    assert out.count(" of arrays at a time") == 6 and "\nmatmul\n" in out and "\ntraining\n" in out


def test_the_stored_gpu_for_comparison_is_complete():
    stored = records.read(worker.ROOT / "reports" / "nvidia-h200")
    assert stored.bad_lines == 0
    every = {m.problem.op for m in stored.measurements}
    assert every >= {"conv", "inference", "launch", "matmul", "peak", "stream", "training", "transfer"}
    assert not [m for m in stored.measurements if m.status in ("failed", "wrong")]


def quoted(page: str, mark: str) -> list[str]:
    """The lines between a page's mark and its end."""
    text = (worker.ROOT / page).read_text(encoding="utf-8")
    assert f"<!-- {mark}" in text, mark
    return text.partition(f"<!-- {mark}")[2].partition("-->\n")[2].partition("<!-- /")[0].splitlines()


@pytest.mark.parametrize("run", ["nvidia-h200-x4/peers", "nvidia-h200-x4/training-data-parallel"])
def test_the_results_page_matches_the_stored_files(run):
    told = summary.answer(Analysis.from_loaded(records.read(worker.ROOT / "reports" / run)))
    block = quoted("docs/results.md", f"answer: python -m analysis.report reports/{run} ")
    assert block == [f"- {sentence}" for sentence in told]


def test_the_readme_is_short_and_matches_stored_files(monkeypatch):
    monkeypatch.setattr(noise, "REPORTS", worker.ROOT / "reports")
    assert len((worker.ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900
    of = material.Material(Analysis.from_loaded(records.read(worker.ROOT / "reports/nvidia-h200")))
    assert quoted("README.md", "trainings: python -m analysis.report reports/nvidia-h200 ") == of.table_of_trainings
    block = quoted("README.md", "findings: python -m analysis.report reports/nvidia-h200 ")
    assert block == of.findings and len(block) == 5


def test_quoted_output_is_what_commands_print(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = (worker.ROOT / "docs/guides.md").read_text(encoding="utf-8")
    assert text.count("<!-- /output -->") == 2 and readme.filled(text) == text


def test_every_machines_readme_matches_its_rows():
    pages = sorted((worker.ROOT / "reports").glob("*/README.md"))
    assert len(pages) >= 6
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 200 and page.parent.name in text
        told = re.findall(r"^\| ([\w-]+) \| .* \| (\d[^|]*) \|$", text, re.MULTILINE)
        assert [run for run, _ in told] == sorted({file.parents[1].name for file in page.parent.glob("*/*/*.jsonl")})
        for run, counted in told:
            rows = Counter(m.status for m in records.read(page.parent / run).measurements)
            assert {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", counted)} == rows, (page, run)
        assert all((page.parent / name).is_file() for name in re.findall(r"\]\(([\w-]+\.svg)\)", text))


def test_a_machines_readme_is_the_reports_output(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(worker.ROOT)
    run = "reports/intel-avx512-2c"
    begin, _, rest = (worker.ROOT / run / "README.md").read_text(encoding="utf-8").partition("\n")
    assert begin == f"<!-- page: python -m analysis.report {run} --readme {run}/README.md -->"
    assert rest == "\n".join([*report_page.short(material.shown([run]), run), "<!-- /page -->", ""])


def test_a_suite_stopped_early_ends_without_a_page(tmp_path):
    words = ["--quick", "--only", "matmul", "--device", "cpu", "--stop-after", "1e-9", "-q", "-o", str(tmp_path)]
    assert suite.main(words) == options.OK
    assert [file.name for file in tmp_path.iterdir()] == ["matmul.jsonl"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (89.4, "89 s"), (90.0, "2 minutes"), (600.0, "10 minutes")]
)
def test_a_duration_is_in_seconds_up_to_90(seconds, words):
    assert suite._duration(seconds) == words


@pytest.mark.parametrize(
    ("flags", "output"),
    [(["--resume"], "newest"), (["--resume", "-o", "mine"], "mine"), (["-o", "mine"], "mine"), ([], "")],
)
def test_a_fleets_newest_run_is_resumed(monkeypatch, flags, output):
    from workloads.fleet import nodes

    seen = []
    monkeypatch.setattr(nodes, "newest_run", lambda command, same_rows: "newest")
    monkeypatch.setattr(nodes, "run", lambda measuring, where, limit_s: seen.append((measuring.output, where)) or 0)
    assert suite._on_cluster(parsed("--ray", "auto", *flags)) == 0
    assert seen == [(output, "auto")]
