"""The size grammar, errors and exit codes."""

import pytest

from workloads import options


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("256", [256]),
        ("256,512", [256, 512]),
        ("64:512:x2", [64, 128, 256, 512]),
        ("64:500", [64, 128, 256]),
        ("512:2048:+512", [512, 1024, 1536, 2048]),
        ("2^6:2^8", [64, 128, 256]),
        ("4KiB:16KiB:x2", [4096, 8192, 16384]),
        ("10:23:x1.5", [10, 15, 22]),
        ("512,256,512", [256, 512]),
        ("1GiB", [1 << 30]),
        ("100:100", [100]),
    ],
)
def test_sizes(text, sizes):
    assert options.sizes([text]) == sizes


NO_SIZES = "0 -1 x 1.5 512:256 1:8:x1 1:8:x0 1:8:-1 1:8:+0 1:2:3:4 2^99 1:1000000000:+1 : 1: 5KB nan 1e3"


@pytest.mark.parametrize("text", ["", *NO_SIZES.split()])
def test_bad_sizes_are_one_clear_error(text):
    with pytest.raises(options.Usage) as error:
        options.sizes([text])
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_limits_and_keywords_of_a_call():
    made = options.parser("workloads.x", "", "x")
    options.add_measuring(made)
    assert options.limits(made.parse_args([])) == options.FINE
    assert options.limits(made.parse_args(["--fast", "--max-time", "7"])) == {**options.FAST, "max_time": 7.0}
    made = options.parser("workloads.x", "", "x")
    options.add_measuring(made)
    args = options.namespace(made, threads=[1, 2], fast=True)
    assert (args.threads, args.fast, args.seed) == (["1", "2"], True, 1)
    assert options.namespace(made, threads=1, backends="numpy").threads == ["1"]
    assert options.namespace(made, backends="numpy").backends == ["numpy"]
    with pytest.raises(TypeError, match="unknown option 'sizez'"):
        options.namespace(made, sizez=[1])
    assert options.shape("4096x1024x512") == (4096, 1024, 512)
    with pytest.raises(options.Usage):
        options.shape("4096x")


@pytest.mark.parametrize("words", ["max-time 0", "max-time inf", "nope", "form csv", "min-time x", "seed -1"])
def test_usage_errors_exit_2_with_a_command_that_works(words, capsys):
    made = options.parser("workloads.x", "", "python -m workloads.x --fast")
    options.add_measuring(made)
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
