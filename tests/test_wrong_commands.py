"""What newcomers type wrong: every command ends with exit code 2 or 3 and one error line, and the command shown works.

A hint is run as far as that takes no time: a workload with --dry-run, any other command up to its check.
"""

import importlib
import os
import shlex
import subprocess
import sys

import pytest

from workloads import ROOT, help_screen, options, stored_runs
from workloads.command_line import running
from workloads.records import baselines

MODELS = """
import keras

def data():
    return 3

def build():
    return keras.Sequential([keras.Input((20,)), keras.layers.Dense(3, activation="softmax")])

def sized(width):
    return keras.Sequential([keras.Input((20,)), keras.layers.Dense(width)])
"""
SUITE = ROOT / "reports/nvidia-h200/suite"
# command: what is typed => what the hint has, "" where nothing is left but the command.
WRONG = {
    "workloads.matmul": """
        --size 256 => --sizes 256
        -sizes 256 => --sizes 256
        —sizes 256 => --sizes 256
        sizes=256 => --sizes=256
        1024 => --sizes 1024
        --sizes 256x256 => --sizes 256
        --sizes 1000x500x200 --fast => --shapes 1000x500x200 --fast
        --sizes 64 1000x500,256x256 => --shapes 1000x500x500 --sizes 64 256
        --sizes 64 -o times.csv => --sizes 64 -o times
        --sizes 64-4096 => --sizes 64:4096:x2
        --sizes 4KB --fast => --sizes 4 --fast
        --sizes big => --sizes 64:2048:x2
        --sizes "" => --sizes 64:2048:x2
        --sizes --fast => --sizes 64:2048:x2 --fast
        --sizes N => --sizes 64:2048:x2
        --sizes 1.000 --fast => --sizes 1000 --fast
        --dtypes half => --dtypes float16
        --dtypes double,single => --dtypes float64,float32
        --dtypes fp32 bf16 => --dtypes float32 bfloat16
        --dtypes fp16,int8 => --dtypes float16
        --backend numpy => --backends numpy
        --backends nunpy => --backends numpy
        --backends pytorch => --backends numpy
        --backends --fast => --backends numpy --fast
        --variants operater => --variants operator
        --cpu => --device cpu
        --float64 => --dtypes float64
        --json => --format json
        --threads all => --threads
        --threads 9999 => --threads
        --shapes 1024x1024 => --shapes 1024x1024x1024
        --fast --rigorous => --fast
        --epochs 3 => workloads.training --epochs 3
        --format yaml => --format json
        --format pretty => --format table
        --max-time 5sec => --max-time 5s
        --max-noise 5 => --max-noise 5%
        --save "my run" => --save my-run
        --against befor --fail-on 5 => --save befor
        --fail-on 5 => --save before
        --against --fast => --against
        --model cifar10-cnm => --model cifar10-cnn
        --seed abc => --seed 1
        --seed 1 --seed 2 --fast => --seed 2 --fast
        --resume=yes => --resume
        --dtype=half --size=128 => --dtypes=float16 --sizes=128
        --sizes 64 to 512 => --sizes 64:512
        --output => --output crossover-results
        --batch ten --sizes 64 => --sizes 64
        --modes pinned => --modes roundtrip-pinned
        --layouts NN => --layouts nn
        --resume -o photos/none => -o photos/none
        --stop-after 1day => --stop-after 1d
        --sizes 512×256*128 --fast => --shapes 512x256x128 --fast
        --sizes 1e3,2.5e3 => --sizes 1000,2500
        --sizes = 64 --fast => --sizes 64 --fast
        --sizes 64 --seed: 3 => --sizes 64 --seed 3
        --seed=3,--fast => --seed=3 --fast
        --axis n=256,512 => --sizes 256,512
        --max-noise '±5 percent' => --max-noise 5%
        --device tpu => --device cpu
        --dtypes int8 => --dtypes float32
        explain --sizes 64 => --sizes 64
        -m 1024 -n 512 -k 256 --fast => --fast --shapes 1024x512x256
        --min 64 --max 512 --fast => --fast --sizes 64:512:x2
        --min 64 --max 512 --factor 4 => --sizes 64:512:x4
        --min 64 --max 512 --step 64 => --sizes 64:512:+64
        --sizes 64 --iterations 100 --warmup 3 => --sizes 64
        --sizes 64 --quick => --sizes 64 --fast
        --sizes 64 --outdir res => --sizes 64 --output res
        --sizes 64 --benchmark_min_time=0.5 => --sizes 64 --min-time=0.5
        --sizes 64 --json out.json => --sizes 64 --format json""",
    "workloads.conv": """
        --size 224 => workloads.conv --sizes 224 --vary size
        --sizes 8:128:x2 => --sizes 8:128:x2 --vary size
        224 => --batch 224
        --model cifar10-cnn --batch 0 => --model cifar10-cnn --batch 1
        --shapes 8x3x32x32:16x3x3x3 --direction forward --fast => --shapes 8x32x32x3:16x3x3 --direction fprop --fast
        --direction backward-data --fast => --direction dgrad --fast
        --direction backward_filter => --direction wgrad
        --shapes 32,3,224,224:64x7x7 --stride 2 --layout NCHW => --shapes 32x224x224x3:64x7x7 --stride 2 --layout NCHW
        --shapes 8x8x8x3:4x3x3x5 --stride 2 --fast => --shapes 32x32x32x3:64x3x3 --stride 2 --fast
        --shapes 8x32x32x3:16x3x3 --padding same --strides 2 => --shapes 8x32x32x3:16x3x3 --pad same --stride 2
        --in-channels 3 --out-channels 8 --kernel_size 5 --input-size 16 --stride 2 => --stride 2 --shapes 32x16x16x3:8x5x5
        --shapes 8x32x32x3 --kernel 5x5 --fast => --fast --shapes 8x32x32x3:64x5x5
        --shapes '(8,32,32,3)' --filters 16 --kernel_size '(3,3)' => --shapes 8x32x32x3:16x3x3
        --shapes N=8,H=32,W=16,C=3,K=16,R=5 --fast => --shapes 8x32x16x3:16x5x3 --fast
        --shape 32x32x3 --filters 64 --kernel 3 --fast => -m workloads.conv --fast --shapes 32x32x32x3:64x3x3
        --model cifar10-cnn --layer conv2 --fast => python -m workloads.layer --model cifar10-cnn --layer conv2 --fast
        --modes residnt => --modes resident""",
    "workloads.training": """
        --model cifar-cnn => --model cifar10-cnn
        --model ResNet50 => --model resnet-50
        mine.py:build => --model mine.py:build
        --model mine.py => --model mine.py:build
        --model mine.py:build --epoch 3 => --model mine.py:build --epochs 3
        --model mine.py:sized => --model mine.py:build
        “--model” cifar10-cnn => --model cifar10-cnn
        --model mine.py:build --data rael => --model mine.py:build
        --batch-size 32 => --batch 32
        --study batchs => --study batches
        --jit true => --jit on
        --samples 1000 --steps 3 => --samples 1000
        --optimizer adam =>
        --arch resnet50 => --model resnet-50
        --model mlp --hidden-layers 3 --width 9 --jit true => --model mlp --depth 3 --width 9 --jit on
        --script fits.py --fit 41 --epochs 2 => --script fits.py --fit 4 --epochs 2
        --model lenet --amp => --model lenet --precision mixed_float16
        --model lenet --precision bf16-mixed => --model lenet --precision mixed_bfloat16
        --model mine.py:build --input-shape 32,32,3 => --model mine.py:build
        --model mine.py build --epochs 3 => --model mine.py:build --epochs 3
        --model mine.py:build --samples -5 => --samples 5
        mine.py 32 --epochs 3 => -m workloads.training --model mine.py:build --epochs 3
        fits.py --epochs 3 => --script fits.py --epochs 3
        --script mine.py --epochs 3 => -m workloads.training --model mine.py:build --epochs 3
        --script train.py => -m analysis.explain train.py
        --model vgg19 => --model vgg-16
        --model ResNet18 --epochs 3 => --model resnet-50 --epochs 3""",
    "workloads.inference": """
        --precision bf16 => --precision mixed_bfloat16
        fits.py => -m analysis.explain fits.py
        main.py --batch 8 => -m analysis.explain main.py --batch 8""",
    "workloads.layer": "Conv2D --input 8x8x3 --filters 4 --kernel-size 3 => --layer Conv2D --input 8x8x3 --filters 4 --kernel 3",
    "workloads.launch": """
        --calls stepp => --calls step
        --kernels 100 --fast => --fast""",
    "workloads.peak": "--dtypes float8 => --dtypes float8_e4m3",
    "workloads.stream": """
        --sizes 4TB --operations traid --fast => --operations triad --fast
        --operations triadd => --operations triad
        --sizes 1e6kb => --sizes
        --sizes 1.5.2GiB --threads -1 => --sizes 256MiB --threads 1
        --sizes 8 --operations add => --sizes 256MiB --operations add
        --backends numpy --threads 1000000 => --backends numpy --threads""",
    "workloads.suite": """
        --only matmull => --only matmul
        --quik => --quick
        --only training,matmull => --only training,matmul
        matmul --fast => --only matmul --fast
        --minutes 5 => --stop-after 5min
        --sizes 256 --dry-run => python -m workloads.matmul --sizes 256 --dry-run
        doctor => python -m workloads.doctor
        --only transfer,matmul --device cpu --fast => --only matmul --device cpu --fast
        --ray 10.0.0.1 --quick => --ray 10.0.0.1:6379 --quick
        mine.py => -m analysis.explain --model mine.py:build
        --model mine.py:build --epochs 3 => -m workloads.training --model mine.py:build --epochs 3
        --model cifar10-cnn --epochs 5 => -m workloads.training --model cifar10-cnn --epochs 5""",
    "workloads.doctor": """
        --dtype half =>
        --over -5 --noise => --noise
        reports/nvidia-h200/sute => reports/nvidia-h200/suite""",
    "workloads.describe": """
        --model mine.py:biuld => --model mine.py:build
        mine.py --summary => -m workloads.describe --model mine.py:build
        --script mine.py:build --batch 32 => --model mine.py:build --batch 32 --operations
        --model variable.py => --model variable.py:model""",
    "workloads": """
        matmull --sizes 64 => python -m workloads.matmul --sizes 64
        explain --model lenet => python -m analysis.explain --model lenet""",
    "analysis": "workloads.doctor => python -m workloads.doctor",
    "analysis.explain": """
        => --model cifar10-cnn
        224 => --batch 224 --model cifar10-cnn
        mine.py:build => --model mine.py:build
        mine.py build => --model mine.py:build
        --model mine => --model mine.py:build
        --model mine.build => --model mine.py:build
        --model mine.py:biuld => --model mine.py:build
        --model mine.py:sized => --model mine.py:build
        --model broken.py:build --batch 64 => then: --model broken.py:build --batch 64
        --model empty.py:build => then: --model empty.py:build
        --model nowhere.py:build => then: --model nowhere.py:build
        --model /dev/zero:f => then: --model zero.py:f
        --model photos/m/:build => then: --model photos/m.py:build
        --model nowhere/m:build => then: --model m.py:build
        --model ../m/:build => then: --model ../m.py:build
        --model 'a b/:f' => then: --model 'a b.py:f'
        --model :build => then: --model model.py:build
        --model photos:f => then: --model photos:f
        --model mine.h5 => then: --model mine.keras
        --model old.h5 --batch 64 => then: --model old.keras --batch 64
        --model old.onnx => then: --model old.keras
        --model notebook.ipynb => then: --model notebook.py:build
        --model photos => then: --model photos.keras
        --model net.json --batch 64 => then: --model net.keras --batch 64
        --model rows.csv => then: --model model.py:build
        --model https://models.org/net => then: --model model.py:build
        --model org/net-7b => then: --model net-7b.py:build
        --model torchvision.models:mobilenet => then: --model model.py:mobilenet
        --model resnet50.pt --batch 64 => --model resnet-50 --batch 64
        --model torchnet.py --batch 64 => then: --model torchnet.py:build --batch 64
        --model photos/ => then: --model photos.keras
        --model garbage.keras => then: --model garbage.keras
        garbage.keras => then: --model garbage.keras
        'photos\\mine.py:build' --batch 64 => --model mine.py:build --batch 64
        model=lenet --batch 64 => --model lenet --batch 64
        --model lenet,vgg-16 --batch 64 => --model lenet --batch 64
        ../m/net.weights.h5 --batch 64 => then: --model net.keras --batch 64
        --model ../m/net.h5 => then: --model net.keras
        train.py --lr=0.1 -- --epochs 5 => train.py -- --lr=0.1 --epochs 5
        --model lenet --samples 50 000 nvidia-h200 => --samples 50000 nvidia-h200
        matmul => python -m workloads.matmul
        train.py --lr 0.1 --epochs 5 => train.py --epochs 5 -- --lr 0.1
        train.py --epochs 5 SUITE --lr 0.1 => train.py SUITE --epochs 5 -- --lr 0.1
        nvidia-h200 --model lenet SUITE => nvidia-h200 SUITE --model lenet
        --model lenet --steps-per-epoch 100 --batch 64 => --model lenet --batch 64
        --model lenet --mixed_precision => --model lenet --precision mixed_float16
        --model lenet --validation 20% => --model lenet --validation 12000
        --model weights.keras => then: --model weights.keras
        --model S4 nvidia-h200 => --case S4 nvidia-h200
        --case cifar10-cnn nvidia-h200 => --model cifar10-cnn nvidia-h200
        --case mine.py:build => --model mine.py:build
        --model lenet --batch => --model lenet --batch 32
        --model lenet --batch 32 --batch 256 => --model lenet --batch 256
        --model lenet --price-gpu => --model lenet --price-gpu 3.50
        --model lenet RUN => --model lenet
        --model lenet --format yaml => --model lenet --format json
        --model lenet --batch 32 64 => --model lenet --batch 32
        --model lenet --batchsize 32 => --model lenet --batch 32
        --model lenet --epochs ten => --model lenet --epochs 10
        --model lenet --epochs 0 => --model lenet --epochs 1
        --model lenet --samples 50,000, => --model lenet --samples 50000
        --model lenet --precision fp16 => --model lenet --precision mixed_float16
        --model lenet --gpu-profile t4 => --gpu-profile nvidia-h200
        --model lenet --gpu-profile h200 => --gpu-profile nvidia-h200
        --model lenet --case S4 => --model lenet
        --model lenet nowhere => --model lenet
        --model lenet --dry-run nvidia-h200 => --model lenet nvidia-h200
        --model lenet --dry-run SUITE => --model lenet SUITE
        --model lenet nvidia-h200 reports/intel-avx512-2c => --model lenet nvidia-h200
        --model lenet --fast => --model lenet
        --model lenet --dtype half => --model lenet
        --model lenet --input tfdata => --input tf.data
        --model lenet --verify all => --model lenet
        --model lenet --price-gpu free => --price-gpu 3.50
        --model ../mine.py:build => --model mine.py:build
        photos --model mine.py:build => --model mine.py:build
        --model => --model cifar10-cnn
        --model sub/args.py:build => then: --model sub/args.py:build
        --model cifar10-cnn --validation-split 0.2 => --model cifar10-cnn --validation 10000
        --model cifar10-cnn --samples 5000 --validation 20% => --samples 5000 --validation 1000
        --case S9 => --case S""",
    "analysis.report": """
        photos => suite
        'reports\\nvidia-h200\\suite' -o new => reports/nvidia-h200/suite -o new
        notes.txt => suite
        train.jsonl => suite
        . => suite
        => suite
        SUITE --readme nofile.md -o photos => suite -o photos
        SUITE -o page.html => SUITE -o page
        SUITE -o notes.txt => SUITE -o crossover-results
        SUITE -o notes.txt/new => SUITE -o crossover-results
        SUITE -o photos/notes => SUITE -o crossover-results
        SUITE --readme notes.txt => suite
        SUITE --format pdf => SUITE
        --input SUITE => SUITE
        SUITE -o new nvidia-h200 => SUITE nvidia-h200 -o new""",
    "analysis.roofline": """
        photos => suite
        SUITE -o notes.txt/new => SUITE -o crossover-results
        SUITE --output roof.svg => SUITE --output roof""",
    "analysis.fleet": """
        SUITE --fail-on 'slower>3percent' => SUITE --save before
        SUITE --against nvidia-h200 --fail-on 'slower>3%' => SUITE --against
        SUITE --baseline nvidia-h200 --treshold '3 percent' => --fail-on 'slower>3%'""",
    "analysis.compare": """
        => SUITE LADDER
        OLD NEW => SUITE LADDER
        SUITE NEW => ladder
        a b => suite
        SUITE reports/amd-avx512-2c => --any-machine
        SUITE SUITE --fail-on 10%% => --fail-on 'slower>10%'
        photos --fail-on 5% => SUITE LADDER --fail-on 5%
        reports/nvidia-h200/training-width --fail-on 5% => /reports/nvidia-h200 --fail-on 5%
        SUITE SUITE --treshold 5% => SUITE SUITE --fail-on 5%
        SUITE SUITE --threshold 0.05 => SUITE SUITE --fail-on 'slower>5%'
        SUITE SUITE --fail-on '3,5 percent' => --fail-on 'slower>3.5%'""",
    "analysis.export": """
        SUITE --to excel => -h
        SUITE => --to google-benchmark
        SUITE --to cvs => --to csv
        SUITE --csv => --to csv
        SUITE --to csv -o photos => -o photos/rows.csv
        SUITE --to github -o photos => -o photos/rows.json
        SUITE --to csv -o nowhere/e.csv => -o rows.csv
        SUITE --to csv -o notes.txt => -o rows.txt""",
    "analysis.predict": """
        --model lenet --profile SUITE --save nowhere/p => --save predictions.ndjson
        --model lenet --profile SUITE --save photos => --save predictions.ndjson
        --model cifar10-cnn => --profile nvidia-h200
        --model lenet --gpu h200 => --profile reports/nvidia-h200
        nvidia-h200 --model lenet --switch jit=on => --profile nvidia-h200 --model lenet --switch jit_compile=on
        --model cifar10-cnm --profile SUITE => --model cifar10-cnn
        --model lenet --profile SUITE --switch jit=on => --switch jit_compile=on
        fits.py --gpu-profile nvidia-h200 => -m analysis.explain fits.py --gpu-profile nvidia-h200
        mine.py --profile SUITE => --model mine.py:build --profile
        --model lenet --profile SUITE --switch precision=bf16 => --switch precision=mixed_bfloat16
        --model lenet --profile SUITE --device tpu => --model lenet --profile""",
}
CASES = [(command, *line.split("=>")) for command, lines in WRONG.items() for line in lines.strip().splitlines()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A newcomer's folder: models, a text, a folder of no results, and rows of another program."""
    (tmp_path / "mine.py").write_text(MODELS)
    (tmp_path / "broken.py").write_text("def build(:")
    (tmp_path / "empty.py").write_text("x = 3")
    (tmp_path / "torchnet.py").write_text("import torch\n\ndef build():\n    return torch.nn.Linear(3, 3)\n")
    (tmp_path / "variable.py").write_text("import keras\nmodel = keras.Sequential([keras.layers.Dense(3)])\n")
    for name in ("old.h5", "old.onnx", "notebook.ipynb", "garbage.keras", "garbages.keras"):
        (tmp_path / name).write_text("hello")
    (tmp_path / "train.py").write_text("import keras")
    (tmp_path / "fits.py").write_text("import keras\n\nmodel = keras.Sequential()\nmodel.fit([1], [2], epochs=3)\n")
    (tmp_path / "main.py").write_text(MODELS + "\ndef main():\n    build().fit(data())\n\nmain()\n")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/args.py").write_text("def build(units):\n    return units\n")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/notes").mkdir()
    (tmp_path / "photos/notes/report.md").write_text("hello")
    (tmp_path / "photos/train.jsonl").write_text('{"text": "cat"}\n')
    (tmp_path / "train.jsonl").write_text('{"text": "cat"}\n')
    (tmp_path / "reports").mkdir()
    for machine in (ROOT / "reports").iterdir():
        if machine.name != "local":  # runs of the machine that tests this would be offered before the stored ones
            (tmp_path / "reports" / machine.name).symlink_to(machine)
    monkeypatch.setattr(stored_runs, "LOCAL", tmp_path / "none")
    monkeypatch.setattr(baselines, "FOLDER", tmp_path / "none" / "saved")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def main_of(command: str):
    return importlib.import_module(help_screen.starts(command)).main


def hint(error: str) -> list[str]:
    """The words after `python -m` of the command shown."""
    line = error.splitlines()[-1]
    assert line.startswith(("  try: ", "  try, for example: ")) or ", then: " in line
    words = shlex.split(line.partition(": ")[2])
    assert words[1] == "-m"
    return words[2:]


@pytest.mark.parametrize(("command", "typed", "right"), CASES)
def test_a_wrong_command_is_corrected_in_one_error(command, typed, right, folder, capsys, monkeypatch):
    if "--ray" in typed:
        pytest.importorskip("ray")
    words = shlex.split(typed.replace("SUITE", str(SUITE)))
    before = {path.name for path in folder.iterdir()}
    assert main_of(command)(words) in (options.USAGE, options.MISSING)
    output, error = capsys.readouterr()
    assert not output and error.count("error: ") == 1 and error.startswith("error: ")
    module, *corrected = hint(error)
    assert "cifar10-cnn" not in error.splitlines()[-1] or "mine" not in typed
    shown = shlex.join(["python", "-m", module, *corrected])
    expected = right.strip().removeprefix("python -m ").removeprefix("then: ")
    expected = expected.replace("SUITE", str(SUITE)).replace("LADDER", str(SUITE.with_name("ladder")))
    assert right.strip().startswith("then: ") == (", then: " in error)
    assert shown.endswith(f"-m {command}") if not expected else expected in shown
    assert {path.name for path in folder.iterdir()} == before
    if "-h" in corrected or module in help_screen.OVERVIEWS or ", then: " in error:
        return
    measures = hasattr(importlib.import_module(module), "parse") and module != "workloads.suite"
    if measures and "mine.py" not in shown:
        assert main_of(module)([*corrected, "--dry-run"]) == options.OK
    else:
        monkeypatch.setattr(running, "run_command", only_checked)
        assert main_of(module)(corrected) == options.OK


def test_a_script_with_one_fit_needs_no_line(folder):
    plan = importlib.import_module("workloads.training").parse(["--script", "fits.py", "--epochs", "2"])
    assert {problem.model for problem in plan.grid.problems} == {"fits.py:4"}


def test_a_hint_names_this_machines_newest_like_runs(folder, monkeypatch, capsys):
    local = folder / "local"
    monkeypatch.setattr(stored_runs, "LOCAL", local)
    rows = (SUITE / "2026-11-22" / "matmul.jsonl").read_bytes()
    header = rows.splitlines(keepends=True)[0]
    contents = {"older/matmul": rows, "newer/matmul": rows, "failed/matmul": header, "other/launch": rows}
    for second, (name, lines) in enumerate(contents.items()):
        file = local / "here" / f"{name}.jsonl"
        file.parent.mkdir(parents=True)
        file.write_bytes(lines)
        os.utime(file, (second, second))
    assert main_of("analysis.compare")(["OLD", "NEW"]) == options.USAGE
    assert hint(capsys.readouterr().err) == ["analysis.compare", "local/here/older", "local/here/newer"]
    for wrong in (["--fail-on", "5"], ["--against", "yesterday"]):
        assert main_of("workloads.matmul")(wrong) == options.USAGE
        assert hint(capsys.readouterr().err)[-2:] == ["--against", "local/here/newer"]
    assert main_of("analysis.roofline")([]) == options.USAGE
    assert hint(capsys.readouterr().err)[-1] == "local/here/other"


def only_checked(parser, argv, *, make_plan, carry_out, check=running.no_check) -> int:
    """A command up to where its plan would be carried out: what it names is there."""
    check(make_plan(parser.parse_args(argv)))
    return options.OK


MISSPELLED = {
    "workloads.matmull --sizes 64": "workloads.matmul --sizes 64",
    "analysis.matmul": "workloads.matmul",
    "analysis.repotr reports/nvidia-h200/suite": "analysis.report reports/nvidia-h200/suite",
    "workloads.zzz": "workloads",
    "workloads.matmul.py --sizes 64": "workloads.matmul --sizes 64",
    "analysis.text": "analysis",
    "crossover.explain --model lenet": "crossover explain --model lenet",
    "crossover.matmull": "crossover matmul",
    "crossover.zzz": "crossover",
}


@pytest.mark.parametrize(("typed", "right"), MISSPELLED.items())
def test_a_misspelled_module_is_corrected_in_one_error(typed, right):
    words = [sys.executable, "-m", *typed.split()]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    error, tried = ended.stderr.splitlines()
    assert ended.returncode == options.USAGE and error == f"error: no command {typed.split()[0]!r}"
    assert tried.endswith(f"-m {right}")


def test_a_rule_cut_by_the_shell_is_quoted(tmp_path):
    rule = "--fail-on slower>" + str(tmp_path / "5%")
    words = f"{shlex.quote(sys.executable)} -m analysis.compare {SUITE} {SUITE} {rule}"
    ended = subprocess.run(words, shell=True, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    error, tried = ended.stderr.splitlines()
    assert ended.returncode == options.USAGE and "quote 'slower>5%'" in error
    assert tried.endswith(" --fail-on 'slower>5%'") and (tmp_path / "5%").read_text() == ""


def test_resume_names_a_folder_that_has_no_run(tmp_path, capsys):
    for command in ("workloads.training", "workloads.suite"):
        assert main_of(command)(["--resume", "-o", str(tmp_path / "none")]) == options.USAGE
        error, tried = capsys.readouterr().err.splitlines()
        assert (
            error == f"error: no run of {command.partition('.')[2]} in {tmp_path / 'none'} to resume"
            and "--resume" not in tried
        )
        assert not (tmp_path / "none").exists()


def test_a_readme_page_is_checked_before_the_work(tmp_path, capsys):
    assert main_of("analysis.report")([str(SUITE), "--readme", str(tmp_path / "no.md"), "-o", str(tmp_path / "w")]) == 2
    error, tried = capsys.readouterr().err.splitlines()
    assert "No such file" in error and f"<!-- answer: python -m analysis.report {SUITE} --readme" in error
    assert "--readme" not in tried and not (tmp_path / "w").exists()


def test_a_run_without_rooflines_proposes_another(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main_of("analysis.roofline")(["reports/nvidia-h200-x4/training-data-parallel"]) == options.MISSING
    errors = capsys.readouterr().err.splitlines()
    assert [line for line in errors if line.startswith("error: ")] == errors[:1]
    assert hint("\n".join(errors))[-1] == "reports/nvidia-h200/suite"
