"""Flags of other programs, without dashes, that mean a flag here or nothing. Standard library only."""

# What other programs call a flag -> its name here.
OTHER_NAMES = {
    "quick": "--fast",
    "short": "--fast",
    "smoke": "--fast",
    "thorough": "--rigorous",
    "full": "--rigorous",
    "precise": "--rigorous",
    "accurate": "--rigorous",
    "simulate": "--dry-run",
    "plan": "--dry-run",
    "noop": "--dry-run",
    "list": "--dry-run",
    "silent": "--quiet",
    "debug": "--verbose",
    "outdir": "--output",
    "out": "--output",
    "dest": "--output",
    "results-dir": "--output",
    "save-dir": "--output",
    "log-dir": "--output",
    "continue": "--resume",
    "benchmark-min-time": "--min-time",
    "memory": "--host-memory",
    "arch": "--model",
    "architecture": "--model",
    "net": "--model",
    "baseline": "--against",
    "threshold": "--fail-on",
    "tolerance": "--fail-on",
    "max-regression": "--fail-on",
    "seq-len": "--length",
    "seqlen": "--length",
    "seq-length": "--length",
    "sequence-length": "--length",
    "max-length": "--length",
    "maxlen": "--length",
    "timesteps": "--length",
    "duration": "--stop-after",
    "max-duration": "--stop-after",
    "time-limit": "--stop-after",
    "time-budget": "--stop-after",
    "hourly-price": "--price-gpu",
    "cost": "--price-gpu",
}
# What other programs call mixed precision, without a value.
MIXED = {
    "amp": "mixed_float16",
    "fp16": "mixed_float16",
    "half": "mixed_float16",
    "float16": "mixed_float16",
    "mixed-precision": "mixed_float16",
    "bf16": "mixed_bfloat16",
    "bfloat16": "mixed_bfloat16",
}
# What takes the number of a GPU.
GPU_NUMBERS = ("gpu", "gpus", "gpu-id", "gpu-index", "device-id", "device-index", "cuda", "cuda-device")
# Flags of other programs that nothing here does: (their names, a flag of the commands meant, why these do without).
NEEDLESS = (
    (
        (
            *("iterations", "iters", "iter", "niter", "repeat", "repeats", "repetitions", "rounds", "reps", "trials"),
            *("loops", "count", "runs", "nruns", "ntimes", "nrepeat", "invocations"),
        ),
        "--max-noise",
        "a row is repeated until --max-noise is met",
    ),
    (
        ("warmup", "warm-up", "warmups"),
        "--max-noise",
        "every row warms up by itself",
    ),
    (("overwrite", "force", "no-cache"), "--max-noise", "every run has a folder of its own"),
    (
        ("layer", "layers"),
        "--shapes",
        "a layer is measured by its shape, --shapes; the layers of a model are timed by layer",
    ),
    (
        *(("input-shape", "input-size", "input-dim", "image-size", "img-size", "resolution"), "--epochs"),
        "a model has its own input shape",
    ),
    (
        ("validation-data", "val-data", "val-set"),
        "--epochs",
        "a validation is told by its samples: --validation N of explain",
    ),
    (("format", "title", "theme", "template"), "--readme", "a report is always a page, report.html"),
    (
        ("transpose", "trans", "transa", "transb", "trans-a", "trans-b"),
        "--layouts",
        "transposed operands are --layouts",
    ),
    (("algo", "algorithm", "tactic"), "--ladder", "every algorithm is a kernel of --variants"),
    (
        ("optimizer", "opt", "lr", "learning-rate", "loss", "momentum", "weight-decay", "metrics"),
        "--epochs",
        "your own is compiled in a function: --model file.py:function",
    ),
)
# What asks for the version.
VERSION = ("version",)
# What takes a run.
RUNS = (
    *("input", "run", "runs", "file", "files", "path", "dir", "folder", "results", "result", "log", "i", "r", "f"),
    *("old", "new", "before", "after", "base", "baseline", "contender", "candidate", "reference", "a", "b"),
)
# What names a machine.
MACHINES = ("gpu", "gpu-profile", "machine", "card", "hardware", "gpu-name")
# What takes a time in a unit -> the unit.
TIME_UNITS = {"seconds": "s", "secs": "s", "minutes": "min", "mins": "min", "hours": "h"}
