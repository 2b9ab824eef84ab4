"""The size grammar, errors and exit codes."""

import argparse

import pytest

from workloads import options, shared_flags


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("256", [256]),
        ("64:500", [64, 128, 256]),
        ("512:2048:+512", [512, 1024, 1536, 2048]),
        ("2^6:2^8", [64, 128, 256]),
        ("4KiB:16KiB:x2", [4096, 8192, 16384]),
        ("10:23:x1.5", [10, 15, 22]),
        ("512,256,512", [256, 512]),
        ("1GiB", [1 << 30]),
        ("64kb,50k,2MB", [50_000, 65_536, 1 << 21]),
        ("100:100", [100]),
    ],
)
def test_sizes(text, sizes):
    assert options.sizes([text]) == sizes


NO_SIZES = "0 -1 x 1.5 512:256 1:8:x1 1:8:x0 1:8:-1 1:8:+0 1:2:3:4 2^99 1:1000000000:+1 : 1: 10,000 8iB 1.5k nan 1e3"


@pytest.mark.parametrize("text", ["", *NO_SIZES.split()])
def test_bad_sizes_are_one_clear_error(text):
    with pytest.raises(options.Usage) as error:
        options.sizes([text])
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_limits_and_keywords_of_a_call():
    made = options.parser("workloads.x", "", "x")
    shared_flags.add_measuring(made)
    assert shared_flags.limits(made.parse_args([])) == shared_flags.FINE
    assert shared_flags.limits(made.parse_args(["--fast", "--max-time", "7"])) == {**shared_flags.FAST, "max_time": 7.0}
    made = options.parser("workloads.x", "", "x")
    shared_flags.add_measuring(made)
    args = options.namespace(made, threads=[1, 2], fast=True)
    assert (args.threads, args.fast, args.seed) == (["1", "2"], True, 1)
    assert options.namespace(made, threads=1, backends="numpy").threads == ["1"]
    assert options.namespace(made, backends="numpy").backends == ["numpy"]
    with pytest.raises(TypeError, match="unknown option 'sizez'"):
        options.namespace(made, sizez=[1])
    assert options.shape("4096x1024x512") == (4096, 1024, 512)
    with pytest.raises(options.Usage):
        options.shape("4096x")


@pytest.mark.parametrize("words", ["max-time 0", "max-time inf", "nope", "purple csv", "min-time x", "seed -1"])
def test_usage_errors_exit_2_with_a_command_that_works(words, capsys):
    made = options.parser("workloads.x", "", "python -m workloads.x --fast")
    shared_flags.add_measuring(made)
    assert options.command(made, f"--{words}".split(), lambda args: 0) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("error: ")
    assert error[1] == f"  try: {options.python()} -m workloads.x --fast" and len(error) == 2


def test_commands_are_shown_with_the_interpreter_that_works(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options.sys, "executable", str(tmp_path / ".venv/bin/python"))
    assert options.typed("python -m workloads.matmul") == ".venv/bin/python -m workloads.matmul"
    assert options.typed("make run") == "make run"
    monkeypatch.setattr(options.sys, "executable", "/opt/a b/python3")
    assert options.typed("python -m x") == "'/opt/a b/python3' -m x"
    monkeypatch.setattr(options.shutil, "which", lambda name: "/opt/a b/python3")
    assert options.typed("python -m x") == "python -m x"


def test_flags_are_declared_by_a_text_and_an_interrupt_is_one_line(capsys):
    made = options.parser("x", "does", "python -m x")
    text = """
--sizes N ... =1,2  sizes (1 2),
                    in order
--kind {a,b} =b     one of two
--count N           a whole number
--share S =5        what `S` makes of it
-q --quiet          says nothing"""
    options.add(made, text, S=float)
    assert vars(made.parse_args([])) == {"sizes": ["1", "2"], "kind": "b", "count": None, "share": 5.0, "quiet": False}
    given = made.parse_args(["--sizes", "3", "4", "--kind", "a", "--count", "2^3", "-q"])
    assert (given.sizes, given.kind, given.count, given.quiet) == (["3", "4"], "a", 8, True)
    assert "sizes (1 2), in order" in made.format_help()
    with pytest.raises(options.Usage, match="invalid choice: 'c'"):
        made.parse_args(["--kind", "c"])

    def body(args):
        raise KeyboardInterrupt

    assert options.command(options.parser("workloads.x", "", "x"), [], body) == 130
    assert len(capsys.readouterr().err.splitlines()) == 1


def refused(made, words, capsys, body=lambda args: 0):
    assert options.command(made, words.split(), body) == 2
    return capsys.readouterr().err.splitlines()


def test_what_is_nearly_right_is_corrected_in_the_command_that_was_typed(capsys, tmp_path, monkeypatch):
    made = options.parser("workloads.x", "", "python -m workloads.x --fast")
    shared_flags.add_measuring(made)
    error, tip, tried = refused(made, "--thread 2 --format=csv", capsys)
    assert (error, tip) == ("error: unexpected argument '--thread'", "  tip: a similar argument exists: '--threads'")
    assert tried.endswith("-m workloads.x --threads 2 --format=csv")
    assert refused(made, "--format=csb --fast", capsys)[1:] == [
        "  tip: a similar value exists: 'csv'",
        f"  try: {options.python()} -m workloads.x --format=csv --fast",
    ]

    lone = options.parser("workloads", "", "python -m workloads")
    assert refused(lone, "matmull", capsys)[1].endswith("-m workloads.matmul -h")

    def body(args):
        raise options.unknown("variant", "bals", ["blas", "loop"])

    error, _, tried = refused(made, "--variants loop,bals", capsys, body)
    assert error.endswith("known: blas, loop") and tried.endswith("--variants loop,blas")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports" / "machine").mkdir(parents=True)
    lost = options.NoRun("reprots/machne", ())
    assert lost.similar == ("path", "reprots/machne", "reports/machine") and isinstance(lost, FileNotFoundError)
    assert options.NoRun("befre", ["before"]).similar[2] == "before" and options.NoRun("x", ["before"]).similar is None


@pytest.mark.parametrize(("text", "money"), [("3,50", 3.5), ("$3", 3), ("0.9 EUR/h", 0.9), ("€2", 2), ("2/hour", 2)])
def test_prices_as_people_write_them(text, money):
    assert options.price(text) == money


@pytest.mark.parametrize("text", ["", "-3", "inf", "1,000", "three", "3.5.1"])
def test_what_is_no_price_is_refused_in_words(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"no price|may be 1000 or 1\.000"):
        options.price(text)
