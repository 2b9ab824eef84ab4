"""The size grammar, errors and exit codes; the terminal's width, lines that wrap and tables that fit."""

import argparse
import io

import pytest

from analysis import export
from analysis.explain.__main__ import price
from analysis.report import command as report
from workloads import ROOT, describe, doctor, help_screen, keywords, options, shared_flags, stops, stored_runs, terminal
from workloads.command_line import invocation, running
from workloads.command_line.parsing import CommandParser
from workloads.harness import plan
from workloads.records.run_files import NoRun


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("256", [256]),
        ("64:500", [64, 128, 256]),
        ("512:2048:+512", [512, 1024, 1536, 2048]),
        ("2^6:2^8", [64, 128, 256]),
        ("4KiB:16KiB:x2", [4096, 8192, 16384]),
        ("10:23 x1.5", [10, 15, 22]),
        ("512,256,512", [256, 512]),
        ("64, 128,", [64, 128]),
        ("64kb,50k,2MB,1g", [51_200, 65_536, 1 << 21, 1 << 30]),
        ("50k,2m,10,000,40_000", [10_000, 40_000, 50_000, 2_000_000]),
        ("1.5kib,0.25MB", [1536, 262_144]),
        ("100:100", [100]),
    ],
)
def test_sizes(text, sizes):
    assert options.sizes(text.split(), options.BYTES if "b" in text.lower() else options.COUNTS) == sizes


def test_only_byte_units_may_stand_apart():
    assert options.sizes(["256", "MB"], options.BYTES) == [256 << 20]
    assert options.sizes(["64", "kb,1", "MiB", "5"], options.BYTES) == [5, 64 << 10, 1 << 20]
    with pytest.raises(options.Usage, match="'MB' is no whole number"):
        options.sizes(["256", "MB"])


@pytest.mark.parametrize("text", ["0", "-5", "-2^2"])
def test_a_number_below_one_is_out_of_range(text):
    with pytest.raises(options.Usage, match="out of range: numbers here start at 1"):
        options.number(text)


TOO_LARGE = ("2^60", "2^99", "1" + 30 * "0")


@pytest.mark.parametrize("text", TOO_LARGE)
def test_too_large_a_number_is_called_that(text):
    with pytest.raises(options.Usage, match="is too large: numbers here are below 2"):
        options.number(text)


@pytest.mark.parametrize("text", ["1e300", "1e-300", "2.5e+300s", "1e-999"])
def test_seconds_out_of_range_are_called_so(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is too large or too small"):
        options.positive(text)


def test_times_have_the_same_units_everywhere():
    assert doctor.parser().parse_args(["--over", "15min"]).over == 900


NO_SIZES = """64kb 64 4kib 4 1g 1 0 1 1.5 1 50.000 50000
512:256 256:512:x2 1:8:x1 1:8:x2 1:8:x0 1:8:x2 1:8:-1 1:8:x2 1:8:+0 1:8:x2 1:2:3:4
1:2:x2 1:1000000000:+1 1:1000000000:x2 1: 1 1.5k 1500 1e3 1000 64-256 64:256:x2 64..256 64:256:x2 -1
1 64:256:2 64:256:x2 2**10 1024 512x512 512 0:64 1:64:x2 1KiB-1MiB 1KiB:1MiB:x4 1.555GB 1555GB 256MBytes 256MB"""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("x", ""),
        (":", ""),
        ("nan", ""),
        ("2^99", ""),
        ("2^62", ""),
        ("1.5.2GiB", ""),
        ("1" + 30 * "0", ""),
        *zip(*[iter(NO_SIZES.split())] * 2, strict=True),
    ],
)
def test_an_invalid_size_is_corrected(text, meant):
    units = options.BYTES if "B" in text else options.COUNTS
    with pytest.raises(options.Usage) as error:
        options.sizes(["32", text], units)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200
    assert (error.value.wrong, error.value.right) == (text, meant)
    assert not meant or options.sizes([meant], units)


def test_limits_and_keywords_of_a_call():
    made = CommandParser(module="workloads.x", examples=["x"])
    shared_flags.add_measuring_flags(made)
    plain, fast = made.parse_args([]), made.parse_args(["--fast", "--max-time", "7"])
    assert shared_flags.measuring(plain).limits == shared_flags.FINE
    assert shared_flags.measuring(fast).limits == shared_flags.Limits(0.025, 3, 0.05, 7, slow_step_s=0.1)
    given = made.parse_args(["--max-time", "2min", "--min-time", "50ms", "--max-noise", "5%", "--stop-after", "1.5"])
    assert (given.max_time, given.min_time, given.max_noise, given.stop_after) == (120, 0.05, 0.05, 1.5)
    empty = {"backends": None, "device": [], "quiet": False}
    words = keywords.words_of(made, threads=[1, 2], fast=True, seed=0, output="x y", **empty)
    assert words == ["--threads", "1", "2", "--fast", "--seed=0", "--output=x y"]
    args = keywords.namespace(made, threads=[1, 2], fast=True)
    assert (args.threads, args.fast, args.seed) == (["1", "2"], True, 1)
    assert keywords.namespace(made, threads=1, backends="numpy").threads == ["1"]
    assert keywords.namespace(made, backends="numpy").backends == ["numpy"]
    with pytest.raises(TypeError, match="unknown option 'threds'; did you mean 'threads'"):
        keywords.namespace(made, threds=[1])
    with pytest.raises(TypeError, match=r"seed takes one value, not \[1, 2\]"):
        keywords.namespace(made, seed=[1, 2])
    assert plan.shape("4kx1024x512") == (4000, 1024, 512)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5s", 1.5),
        ("50ms", 0.05),
        ("2m", 120),
        ("2min", 120),
        ("2h", 7200),
        ("0.5h", 1800),
        ("1,5 s", 1.5),
    ],
)
def test_a_number_of_seconds_has_its_unit(text, seconds):
    assert options.positive(text) == pytest.approx(seconds)


WRONG = {
    "max-time 0 -v": " --max-time 2.0 -v",
    "threads 2 --min-time x": " --threads 2 --min-time 0.075",
    "format fancy -q": " --format table -q",
    "fast --rigorous -v": " --fast -v",
    "max-time=inf": " --max-time 2.0",
    "seed -1": " --seed 1",
    "nope": "",
    "purple csv": " --format csv",
    "purple cvs": "",
}


@pytest.mark.parametrize(("words", "tip"), WRONG.items())
def test_usage_errors_exit_2_with_a_correction(words, tip, capsys):
    made = CommandParser(module="workloads.x", examples=["python -m workloads.x --fast"])
    shared_flags.add_measuring_flags(made)
    assert running.run_command(made, f"--{words}".split(), make_plan=running.no_plan, carry_out=lambda plan: 0) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("error: ")
    label, _, line = error[1].partition(": ")
    assert label in ("  try", "  try, for example") and len(error) == 2
    assert line == f"{options.python()} -m workloads.x{tip}"


def test_a_flag_is_named_once_in_its_error(capsys):
    made = CommandParser(module="workloads.x", examples=["python -m workloads.x --fast"])
    shared_flags.add_measuring_flags(made)
    running.run_command(made, ["--seed", "-1"], make_plan=running.no_plan, carry_out=lambda plan: 0)
    assert capsys.readouterr().err.splitlines()[0] == "error: --seed: '-1' is below 0"


def test_commands_are_shown_with_the_interpreter_that_works(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(invocation.sys, "executable", str(tmp_path / ".venv/bin/python"))
    assert options.typed("python -m workloads.matmul") == ".venv/bin/python -m workloads.matmul"
    assert options.typed("make run") == "make run"
    monkeypatch.setattr(invocation.sys, "executable", "/opt/a b/python3")
    assert options.typed("python -m x") == "'/opt/a b/python3' -m x"
    monkeypatch.setattr(invocation.shutil, "which", lambda name: "/opt/a b/python3")
    assert options.typed("python -m x") == "python -m x"


def test_a_repeated_flag_replaces_only_its_default():
    made = CommandParser(module="x", examples=["python -m x"])
    group = made.add_argument_group("a group")
    group.add_argument("--sizes", nargs="+", action="extend", default=["1", "2"])
    group.add_argument("--kind", choices=("a", "b"), default="b")
    assert vars(made.parse_args([])) == {"sizes": ["1", "2"], "kind": "b", "command": "python -m x"}
    typed = made.parse_args(["--sizes", "3", "5", "--kind", "a", "--sizes", "4"])
    assert (typed.sizes, typed.kind) == (["3", "5", "4"], "a")
    assert made.parse_args([]).sizes == ["1", "2"]
    with pytest.raises(options.Usage, match="unknown value 'c'; known: a, b"):
        made.parse_args(["--kind", "c"])


def test_an_interrupt_is_one_line(capsys):
    def run(plan):
        raise KeyboardInterrupt

    parser = CommandParser(module="workloads.x", examples=["x"])
    assert running.run_command(parser, [], make_plan=running.no_plan, carry_out=run) == 130
    assert len(capsys.readouterr().err.splitlines()) == 1


def refused(made, words, capsys, run=lambda plan: 0):
    assert running.run_command(made, words.split(), make_plan=running.no_plan, carry_out=run) == 2
    return capsys.readouterr().err.splitlines()


def test_near_misses_are_corrected_as_typed(capsys, tmp_path, monkeypatch):
    made = CommandParser(module="workloads.x", examples=["python -m workloads.x --fast"])
    shared_flags.add_measuring_flags(made)
    error, tip, tried = refused(made, "--thread 2 --format=csv", capsys)
    assert (error, tip) == ("error: unexpected argument '--thread'", "  tip: a similar argument exists: '--threads'")
    assert tried.endswith("-m workloads.x --threads 2 --format=csv")
    assert refused(made, "--format=csb --fast", capsys)[1:] == [
        "  tip: a similar value exists: 'csv'",
        f"  try: {options.python()} -m workloads.x --format=csv --fast",
    ]

    for unlike in ("--fast --zzz 3 4 --seed 1", "--zzz=3 --fast --seed 1"):
        assert refused(made, unlike, capsys)[1].endswith("-m workloads.x --fast --seed 1")
    assert refused(made, "--zzz 3", capsys)[1].endswith("-m workloads.x")
    lone = CommandParser(module="workloads", examples=["python -m workloads"])
    assert refused(lone, "matmull --sizes 4", capsys)[1].endswith("-m workloads.matmul --sizes 4")

    def body(args):
        raise options.unknown("variant", "bals", ["blas", "loop"])

    error, _, tried = refused(made, "--variants loop,bals", capsys, body)
    assert error.endswith("known: blas, loop") and tried.endswith("--variants loop,blas")
    made.add_argument("--price", metavar="WORD")
    assert refused(made, "--price abc -q", capsys, lambda args: price("abc"))[-1].endswith("--price 3.50 -q")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports" / "machine").mkdir(parents=True)

    def told(run: str, *saved: str) -> tuple:
        return (lost := NoRun(run, saved)).similar, lost.wrong, lost.right

    assert issubclass(NoRun, FileNotFoundError) and told("befre", "before")[2] == "before"
    assert all(told(run) == ("path", run, "reports/machine") for run in ("reprots/machne", "machine"))
    (tmp_path / "reports/machine/run").mkdir()
    with open(ROOT / "reports/nvidia-h200/suite/2026-11-22/matmul.jsonl", "rb") as stored:
        line = b"".join(stored.readlines(400_000))
    (tmp_path / "reports/machine/run/rows.jsonl").write_bytes(line)
    assert told("reports/machine/runs") == ("path", "reports/machine/runs", "reports/machine/run")
    monkeypatch.setattr(stored_runs, "LOCAL", tmp_path / "reports/local")
    elsewhere = str(ROOT / "reports/nvidia-h200/suite")
    assert told("other/zzz") == ("", "other/zzz", elsewhere)
    assert told("zzz", "before") == ("", "zzz", elsewhere)
    (tmp_path / "reports/local/here/run").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "reports/local/here/run"):
        (folder / "rows.jsonl").write_bytes(line)
    assert export.main(["rows", "--to", "excel"]) == 2 and capsys.readouterr().err.endswith(" --to csv\n")
    assert report.main(["", "-o", "page"]) == options.USAGE  # a variable that is not set: not the current folder
    assert "-m analysis.report reports/local/here/run -o page" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "money"), [("3,50", 3.5), ("$3", 3), ("0.9 EUR/h", 0.9), ("€2", 2), ("2/hour", 2)])
def test_prices_as_people_write_them(text, money):
    assert price(text) == money


@pytest.mark.parametrize("text", ["", "-3", "inf", "1,000", "three", "3.5.1"])
def test_what_is_no_price_is_refused_in_words(text):
    with pytest.raises(options.Usage, match=r"no price|may be 1000 or 1\.000"):
        price(text)


def test_output_wraps_unless_it_is_for_machines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    made = CommandParser(module="workloads.x", examples=["python -m workloads.x"])
    made.add_argument("--format", choices=("table", "json"), default="table")

    def run(plan):
        print("one two three four five six seven")
        return 0

    for words in ([], ["--format", "json"]):
        assert running.run_command(made, words, make_plan=running.no_plan, carry_out=run) == 0
    wrapped = "one two three four five six\nseven\n"
    assert capsys.readouterr().out == f"{wrapped}one two three four five six seven\n"
    monkeypatch.delenv("COLUMNS")
    assert terminal.width(io.StringIO()) == 0
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.Wrapping(plain, terminal.Waiting(plain)).write("█░ 3 µs ±1 %…\n")
    plain.flush()
    assert plain.buffer.getvalue() == b"#. 3 us ~1 %~\n"


def test_a_long_error_is_cut(capsys):
    model = f"{'x' * 5_000}.py:{'y' * 10_000}"
    assert describe.main(["--model", model]) == options.USAGE
    error = capsys.readouterr().err.splitlines()[0]
    assert len(error) == len("error: ") + 4000
    assert "…" in error


@pytest.mark.parametrize(("limit_mib", "is_enough"), [(383, False), (384, True), (-1, True)])
def test_a_command_needs_address_space(monkeypatch, capsys, limit_mib, is_enough):
    """Below 384 MiB the libraries that it imports end its process, or wait for ever."""
    limit = limit_mib << 20 if limit_mib > 0 else stops.resource.RLIM_INFINITY
    monkeypatch.setattr(stops.resource, "getrlimit", lambda resource: (limit, limit))
    code = describe.main(["--model", "mnist-cnn"])
    assert code == (options.OK if is_enough else options.USAGE)
    if not is_enough:
        error, tip = capsys.readouterr().err.splitlines()
        assert error.startswith("error: a process may have 383 MiB of address space here (ulimit -v)")
        assert tip.startswith("  raise the limit with `ulimit -v unlimited`, then: ")


def test_a_command_without_memory_ends_with_an_error(capsys):
    def use_all_memory(plan: None) -> int:
        raise MemoryError

    code = running.run_command(
        describe.parser(), ["--model", "mnist-cnn"], make_plan=running.no_plan, carry_out=use_all_memory
    )
    assert code == options.USAGE
    assert capsys.readouterr().err.startswith("error: this machine has too little free memory for this command\n")


def test_a_removed_folder_leaves_paths_absolute(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert options.near("/usr/bin/python3") == "/usr/bin/python3"


def test_any_name_gives_a_one_line_error(capsys):
    assert report.main(["no\nerror: such"]) == options.USAGE
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert errors == ["error: no result file in no\\nerror: such"]


def test_h_is_brief_and_help_complete(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    made = CommandParser(
        module="workloads.x", examples=["python -m workloads.x"], question="What?", brief_flags=["--noise"]
    )
    noise_help = help_screen.help_text("within 5 %%", rest=" (default: 1 %%); slower")
    made.add_argument("--noise", metavar="F", type=float, help=noise_help)
    made.add_argument("--size", metavar="N", help="a size")
    for flag, words in (("-h", "within 5 %"), ("--help", "within 5 % (default: 1 %); slower")):
        with pytest.raises(SystemExit):
            made.parse_args([flag])
        lines = capsys.readouterr().out.splitlines()
        assert [line.partition("--noise F")[2].strip() for line in lines if line.startswith("  --noise F")] == [words]
        assert any(line.startswith("  --size N") for line in lines) == (flag == "--help")
