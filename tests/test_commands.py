"""Every command answers --help quickly because it imports nothing heavy, and refuses nonsense in one line."""

import importlib
import os
import shlex
import subprocess
import sys

import msgspec
import pytest
from fake_measurements import gpu_run

from workloads import ROOT, help_screen, options, records

MAIN = 'if __name__ == "__main__":\n    sys.exit(main())'
MODULES = [file for top in ("workloads", "analysis") for file in sorted((ROOT / top).rglob("*.py"))]
RUN = [
    file.relative_to(ROOT).with_suffix("") for file in MODULES if file.stem == "__main__" or MAIN in file.read_text()
]
# Started by a command or by the Makefile, without words.
CHILDREN = {"workloads.serve", "workloads.corrections.make_goals"}
STARTED = [".".join(file.parts).removesuffix(".__main__") for file in RUN]
COMMANDS = [module for module in STARTED if module not in CHILDREN]
HEAVY = ("numpy", "pandas", "scipy", "numba", "cupy", "tensorflow", "keras", "matplotlib", "plotly", "msgspec")
# Of Python's own modules, those that take about as long to import as all that the help of a LIGHT command needs.
SLOW = ("dataclasses", "difflib", "importlib.metadata", "inspect", "subprocess", "tomllib")
LIGHT = [name for name in COMMANDS if name.startswith("analysis") or name == "workloads.describe"]
HELP = f"""import sys, runpy
sys.argv = ["x", "--help"]
try: runpy.run_module(sys.modules["__main__"].COMMAND, run_name="__main__")
except SystemExit: pass
print(*[m for m in {(*HEAVY, *SLOW)} if m in sys.modules], file=sys.stderr)"""


def with_main(command: str):
    """The module that starts a command."""
    module = importlib.import_module(command)
    return module if hasattr(module, "main") else importlib.import_module(f"{command}.__main__")


def heavy(command: str) -> list[str]:
    """The heavy and the slow modules that a command's --help imports."""
    words = [sys.executable, "-c", f"COMMAND = {command!r}\n{HELP}"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stderr.split()


@pytest.mark.parametrize("command", [*COMMANDS, "kernels.problems.arrays"])
def test_help_imports_nothing_heavy(command):
    imported = heavy(command)
    assert [name for name in imported if name in HEAVY] == ([] if command in COMMANDS else ["numpy", "msgspec"])
    if command in LIGHT:
        assert not imported


def test_every_command_is_listed_by_its_question(capsys):
    listed = help_screen.commands()
    assert listed.keys() == {*COMMANDS} - {"workloads", "analysis"}
    assert all(question.endswith("?") and len(question) < 60 for question in listed.values())
    assert importlib.import_module("analysis.__main__").main([]) == options.OK
    printed = capsys.readouterr().out
    assert all(f"{command} " in printed and question in printed for command, question in listed.items())


def test_commands_with_a_flag_list_their_package_first():
    of_workloads, of_analysis = "workloads.describe", "analysis.explain"
    assert help_screen.commands_with("--time-limit", "workloads.conv") == [of_workloads, of_analysis]
    assert help_screen.commands_with("--time-limit", "analysis.fleet") == [of_analysis, of_workloads]


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", sorted(help_screen.commands()))
def test_h_is_one_screen(command, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    module = with_main(command)
    for flag, most in (("-h", 24), ("--help", 1000)):
        with pytest.raises(SystemExit):
            module.main([flag])
        out = capsys.readouterr().out
        lines = out.splitlines()
        assert len(lines) <= most and max(map(len, lines)) <= columns and out.count("(") == out.count(")")
        assert sum("-m " in line for line in lines) >= 2  # its examples


# Words that a command refuses, what the error says, and what the command shown has besides.
REFUSED = {
    "workloads.matmul": """
        --sizes 512:256 => it starts above its end => --sizes 256:512:x2
        --sizes 0 => numbers here start at 1 => --sizes 1
        --sizes 1:8:x1 => the step 'x1'
        --sizes 64x => is no whole number => --sizes 64
        --variants nope --backends numpy => unknown variant 'nope'; known: blas, operator
        --dtypes float8 => unknown dtype 'float8' => --dtypes float8_e4m3
        --threads 99 --sizes 64 --backends numba => at most => --sizes 64 --backends numba
        --fail-on much => no rule
        --shapes 64-64-64 => not a shape => --shapes 64x64x64
        --sizes 64 --modes psychic => unknown mode 'psychic'
        --direction dgrad => leave --direction out
        --sizes 9999 --threads 9999 --max-noise 5% => has  => --sizes 9999 --threads => --max-noise 5% --dry-run
        --model lenet --sizes 64 => leave --sizes out => --model lenet
        --model lenet --direction back => unknown direction 'back'
        --sizes 64 --cache hot => unknown cache 'hot'""",
    "workloads.conv": """
        --shapes 1x8 => is not a shape
        --direction up => unknown direction 'up'
        --shapes 1x2x2x3:4x5x5 --pad valid => a filter of 5 x 5 is larger than the padded image of 2 x 2
        --shapes 1x8x8x4:4x3x3x3 => filters of 3 channels do not go with images of 4 channels
        --shapes 1x8x8x3:4x3x3 --groups 2 => 2 groups do not divide c_in = 3
        --shapes 8x8x3:4x3x3 => is not a shape NxHxWxC:KxRxS => --shapes 8x8x3x4:3x3x3
        --shapes 1x8x8x3:4x3x3 --pad -1 => '-1' is no padding
        --shapes 1x8x8x3:4x3x3 --pad some => 'some' is no padding
        --vary channels --groups 8 => at channels 4: 8 groups do not divide
        --vary batch --batch 4 => --sizes has what --vary goes through
        --shapes 1x8x8x3:4x3x3 --sizes 4 => --sizes needs --vary
        --model cifar10-cnn --stride 2 => leave --stride out
        --model cifar10-mlp => cifar10-mlp has no convolutions => workloads.matmul
        --dtypes int4 => unknown dtype 'int4'
        --modes psychic => unknown mode 'psychic'""",
    "workloads.training": """
        --batch 0 => numbers here start at 1 => --batch 1
        --study nope => unknown study 'nope'
        --model a/b => there is no file a/b, and no model is downloaded => then: => --model b.py:build
        --model my.py: => 'my.py:' is no file.py:function => then: => --model my.py:build
        --model nopkg.mod:build => there is no module nopkg (looked in  => write nopkg/mod.py => --model nopkg.mod:build
        --model json:nothing => json has no function nothing => mend the file, then: => --model json:nothing
        --model x.keras => there is no file x.keras => then: => --model x.keras
        --model mlp-3-0x1-3 => must be at least 1 => --model cifar10-cnn
        --width 3 => --width is for the model mlp => --width 3 --dry-run -q --model mlp
        --model mlp --hidden-layers 3 => --hidden-layers is for the model fashion-mlp => --model mlp --depth 3 --dry-run -q
        --targets float64 => --targets is for a regression => --targets float64 --dry-run -q --model peaks
        --model peaks --dtypes uint8 => not as uint8 => --model peaks --dtypes float32
        --model mlp-3-3x3-3 --data real => mlp-3-3x3-3 has no real data set => --model mlp-3-3x3-3
        --jit maybe => unknown jit 'maybe'; known: auto, on, off
        --dtypes int8 => unknown type 'int8'
        --residence moon => unknown residence 'moon'
        --variants fit --residence fed => nothing asked for trains with --residence fed => --variants resident loop
        --backends tensorflow --variants fit => no fit of tensorflow trains here => tensorflow --variants loop
        --study seeds --batch 3 --jit on => leave --batch --jit out => --study seeds
        --samples 100 --steps 3 => not allowed with""",
    "workloads.inference": """
        --variants guess => unknown variant 'guess'; known: predict, call, serve
        --modes pinned => unknown mode 'pinned'; known: resident, roundtrip
        --variants predict --modes resident => it has no resident mode
        --precision int8 => unknown precision 'int8'
        --onednn maybe => known: on, off""",
    "workloads.transfer": """
        --directions up => unknown direction 'up'; known: h2d, d2h, d2d, both
        --host-memory paged => unknown host memory 'paged'
        --host-memory managed --sizes 2GiB => managed memory; at most 1073741824
        --sizes 4KiB --overlap 16B --chunks 32 => 16 bytes cannot be cut into 32 chunks
        --study small-dataset --sizes 4KiB => --study brings its own rows; leave --sizes out""",
    "workloads.suite": """
        --quick --format json => --format json takes one table => --quick => --dry-run => --only matmul  => --format json
        --only matmul stream --format csv => --format csv takes one table => --only matmul => --format csv => --dry-run""",
    "workloads.launch": """
        --calls nap => unknown call 'nap'; known: empty,
        --variants fastest => unknown variant 'fastest'
        --backends numpy --calls empty => no kernel of numpy has empty""",
    "analysis.compare": """
        --fail-on faster>5% a b => no rule""",
    "workloads.peak": """
        --device tpu => unknown device 'tpu'""",
    "workloads.stream": """
        --sizes 64x => '64x' is no number of bytes => --sizes 64""",
    "analysis.explain": """
        --case S9 => unknown case
        --case S0 --model peaks => --case brings its own model => --model peaks
        --case S0 --batch 0 => numbers here start at 1 => --batch 1
        --fit 3 --model cifar10-cnn nvidia-h200 => --fit is for a script => --model cifar10-cnn nvidia-h200
        --case S0 --fit 3 => --fit is for a script => --case S0
        --case S0 --price-gpu -1 => is no price of an hour => --price-gpu 3.50
        --model peeks => unknown model 'peeks' => --model peaks""",
    "analysis.fleet": """
        nowhere => no result file in nowhere""",
    "analysis.predict": """
        --model lenet => say with --profile
        --model , --profile reports/nvidia-h200 => ',' names nothing
        --model lenet --profile nowhere --dtype float99 => --dtype: unknown value 'float99'
        --check nowhere.json reports/nvidia-h200/roofs => holds no predictions""",
}
BAD = [(command, line) for command, lines in REFUSED.items() for line in map(str.strip, lines.strip().splitlines())]


@pytest.mark.parametrize(("command", "line"), BAD)
def test_bad_words_are_one_error_with_a_correction(command, line, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    words, message, *more = (part.strip() for part in line.split("=>"))
    module, dry = (command, ["--dry-run", "-q"]) if command.startswith("workloads.") else (f"{command}.__main__", [])
    assert importlib.import_module(module).main([*words.split(), *dry]) == options.USAGE
    out, err = capsys.readouterr()
    error, *tip, tried = err.splitlines()
    assert all(line.startswith(("  tip: a similar ", "  and: ")) for line in tip)
    assert not out and error.startswith("error: ")
    assert message in (err if command == "workloads.transfer" else error)  # without a GPU that is the error
    assert f": {options.python()} -m " in tried and all(part in tried for part in more)
    shown, *flags = tried.partition(" -m ")[2].split()
    instead = "workloads.stream" if command == "workloads.transfer" else command  # without a GPU
    assert shown in (command, instead, *more)
    if command in ("workloads.matmul", "workloads.conv", "workloads.training") and tried.startswith("  try: "):
        quick = [] if command == "workloads.training" else ["--backends", "numpy"]
        assert importlib.import_module(shown).main([*flags, *quick, *dry]) == options.OK


def to_full_disk(*words: str) -> subprocess.CompletedProcess:
    """The command as a user starts it: what it prints is written when a buffer is full, or at its end."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )


RUN_OF_ROOFS = "reports/nvidia-h200/roofs"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        *(f"{command} --help" for command in help_screen.commands()),
        "crossover",
        "analysis",
        f"analysis.export {RUN_OF_ROOFS} --to csv",
        f"analysis.compare {RUN_OF_ROOFS} {RUN_OF_ROOFS} --format csv",
        f"workloads.doctor {RUN_OF_ROOFS}",
        f"analysis.fleet {RUN_OF_ROOFS} -v",
        "workloads.stream --sizes 64KiB --dry-run --format json",
    ],
)
def test_output_that_cannot_be_written_is_one_line(words):
    done = to_full_disk(*words.split())
    assert done.returncode == options.USAGE
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert errors == ["error: cannot write the output: No space left on device; send it to another place"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_unwritten_help_is_no_run_to_resume():
    done = to_full_disk("workloads.matmul", "--help")
    assert done.stderr.splitlines()[-1].endswith(" -m workloads.matmul --help")


def test_a_full_stderr_loses_lines():
    compare = [sys.executable, "-m", "analysis.compare", RUN_OF_ROOFS, RUN_OF_ROOFS, "--format", "csv"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(compare, cwd=ROOT, stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.returncode == options.OK and done.stdout.count(b"\n") > 10


@pytest.mark.parametrize("words", ["workloads.doctor RUN", "analysis.export RUN --to csv", "analysis.compare RUN RUN"])
def test_a_closed_stdout_is_one_line(words):
    typed = [RUN_OF_ROOFS if word == "RUN" else word for word in words.split()]
    closed = f"exec {shlex.join([sys.executable, '-m', *typed])} >&-"
    done = subprocess.run(["sh", "-c", closed], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert errors == ["error: cannot write the output: stdout is closed; send it to another place"]
    assert done.returncode == options.USAGE and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "analysis.compare RUN RUN",
        "analysis.export RUN --to csv",
        "analysis.explain --model lenet RUN",
        "analysis.fleet RUN",
        "analysis.report RUN",
        "analysis.roofline RUN",
        "workloads.doctor RUN",
    ],
)
def test_a_run_without_a_row_is_one_line(tmp_path, capsys, words):
    """Killed before its first visit: its file has the line of the run, and the beginning of a row."""
    (tmp_path / "matmul.jsonl").write_bytes(msgspec.json.encode(gpu_run(sizes=(64,)).runs[0]) + b'\n{"type":"mea')
    command, *rest = [str(tmp_path) if word == "RUN" else word for word in words.split()]
    assert with_main(command).main(rest) == options.USAGE
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if line.startswith("error:")]
    assert line == f"error: no rows in {tmp_path}: 1 line of its files cannot be read" and said.out == ""


@pytest.mark.parametrize("schema", ["99", 99.5, True, None])
def test_a_fractional_schema_is_one_line(tmp_path, capsys, schema):
    loaded = gpu_run(sizes=(64,))
    header = {**msgspec.json.decode(msgspec.json.encode(loaded.runs[0])), "schema": schema}
    lines = [msgspec.json.encode(line) for line in (header, *loaded.measurements)]
    file = tmp_path / "matmul.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    assert with_main("analysis.export").main([str(tmp_path), "--to", "csv"]) == options.USAGE
    said = capsys.readouterr()
    error = said.err.splitlines()[0]
    typed = msgspec.json.encode(schema).decode()
    assert error == f"error: {file} has schema {typed}, not the {records.SCHEMA} that this program reads"
    assert said.out == ""


@pytest.mark.parametrize("words", ["workloads.doctor RUN", "analysis.export RUN --to csv", "analysis.report RUN"])
def test_a_file_of_another_schema_is_one_line(tmp_path, capsys, words):
    loaded = gpu_run(sizes=(64,))
    run = msgspec.structs.replace(loaded.runs[0], schema=99)
    lines = [msgspec.json.encode(line) for line in (run, *loaded.measurements)]
    (tmp_path / "matmul.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    command, *rest = [str(tmp_path) if word == "RUN" else word for word in words.split()]
    assert with_main(command).main(rest) == options.USAGE
    error = capsys.readouterr().err.splitlines()[0]
    assert (
        error
        == f"error: {tmp_path / 'matmul.jsonl'} has schema 99, newer than the {records.SCHEMA} that this program reads"
    )
