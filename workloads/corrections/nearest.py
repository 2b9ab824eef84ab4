"""The allowed word that is meant by one that is not allowed at its place, and the path meant by one that is not there. Standard
library only."""

import functools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

DASHES = "-–—"  # the last two come from pages that print two dashes as one
ALIKE = 0.65  # from here on a word is taken for a misspelled one
NEARLY_THE_SAME = 0.85
# A word here: the words of other tools and of everyday speech for it. A word may stand in several lines; the one that is allowed
# counts. Flags and values stand together. `device cpu`: a flag with its value.
SYNONYMS = """
float64: double fp64 f64
float32: single float fp32 f32
float16: half fp16 f16
bfloat16: bf16
float8_e4m3: fp8 e4m3
mixed_float16: half fp16 float16 amp mixed_half mixed_fp16 16-mixed
mixed_bfloat16: bf16 bfloat16 mixed_bf16 bf16-mixed
precision mixed_float16: amp fp16 half float16 mixed-precision
precision mixed_bfloat16: bf16 bfloat16
on: true yes
off: false no
gpu: cuda
device cpu: cpu-only no-gpu no-cuda
device gpu: cuda gpu
jit on: xla
numpy: np openblas blas
cupy: cublas
tensorflow: tf
table: text pretty
md: markdown html
json: yaml toml xml
csv: tsv excel xlsx
google-benchmark: json
fprop: forward forwards fwd
dgrad,wgrad: backward backwards bwd backprop backpropagation bprop
dgrad: backward-data backward-input backward-inputs bwd-data bwd-d data-grad input-grad
wgrad: backward-filter backward-filters backward-weight backward-weights bwd-filter bwd-weights bwd-w weight-grad filter-grad
nhwc: channels-last
nchw: channels-first
warm: hot
all: both
scale: mul multiply
h2d: host2device host-to-device hosttodevice htod cpu2gpu cpu-to-gpu
d2h: device2host device-to-host devicetohost dtoh gpu2cpu gpu-to-cpu
d2d: device2device device-to-device dtod gpu2gpu
empty: kernel kernels
dtypes: precision data-type datatype type types
dtype: precision data-type datatype type
sizes: n batch length size bytes
batch: sizes
pad: padding zero-padding
groups: group
layout: data-format memory-format
operations: ops op
model: network net arch architecture
backends: library lib libs framework
threads: j cores cpus num-cpus nproc jobs n-jobs workers
against: baseline reference
fail-on: threshold tolerance max-regression
jit: jit-compile xla
stop-after: duration max-duration time time-limit time-budget timeout
fast: quick short smoke
rigorous: thorough full precise accurate
dry-run: simulate plan noop list
quiet: silent
verbose: debug
output: outdir out dest results-dir save-dir log-dir outfile
resume: continue
min-time: benchmark-min-time
host-memory: memory
length: seq-len seqlen seq-length sequence-length max-length maxlen timesteps
price-gpu: hourly-price cost
gpu-profile: gpu machine card hardware gpu-name
profile: gpu gpu-profile machine card hardware gpu-name
h: help
run: benchmark bench quick install setup all
doctor: check test diagnose
test: check
lint: format
clean: distclean
matmul: multiply gemm matrix matrices
conv: convolution convolutions
stream: memory bandwidth
transfer: copies copy
compare: diff
report: plot visualize show view
explain: profile advise recommend
predict: estimate forecast
MODEL: network net
N: batch-size
C: in-channels input-channels channels cin in
K: out-channels output-channels filters cout out
H: height
W: width
HW: input-size image-size img-size imgsz resolution
RS: kernel-size kernel filter-size
first: min min-size minbytes start from begin b
last: max max-size maxbytes stop end to e
factor: stepfactor f
step: stepbytes i
"""
# What nothing here is like: int8 is no misspelled uint8.
_UNLIKE_ALL = ("tpu", "npu", "xpu", "mps", "rocm", "hip", "opencl", "metal", "int8", "int4", "uint4", "i8")


@functools.cache
def _words_here() -> dict[str, list[str]]:
    """Word of another tool -> the words here for it."""
    by_word: dict[str, list[str]] = {}
    for line in SYNONYMS.strip().splitlines():
        here, _, others = line.partition(": ")
        for other in others.split():
            by_word.setdefault(other, []).append(here)
    return by_word


def plain(word: str) -> str:
    """A word without its dashes, in small letters, with a dash between its parts."""
    return "-".join(word.lower().lstrip(DASHES).split("_"))


def synonyms(word: str) -> list[str]:
    """The words here for one of another tool."""
    return _words_here().get(plain(word), [])


def nearest(word: str, allowed: Iterable[str], likeness: float = ALIKE) -> str:
    """The allowed word that is meant: the same but for case and plural, a synonym, else the most similar one; "" without one.

    likeness: how similar it is at least, 1 for the same; a word with a device number counts without, `cuda:0`.
    """
    names = {plain(name): name for name in allowed}
    small = plain(word)
    without_number = small.partition(":")[0]
    singular = re.sub("ies$", "y", small).removesuffix("s")
    spellings = [small, without_number, *synonyms(small), *synonyms(without_number), f"{small}s", singular]
    same = _one_of(spellings, names)
    parts = re.split(r"[\s,;|+&/]+", small.strip())
    if not same and len(parts) > 1 and names.keys() >= set(parts):
        same = ",".join(names[part] for part in parts)
    if same or small in _UNLIKE_ALL or not names:
        return same
    best = max(sorted(names, key=len), key=lambda name: _likeness(small, name))
    if _likeness(small, best) >= NEARLY_THE_SAME:
        return names[best]
    misspelled = max(_words_here(), key=lambda other: _likeness(small, other) if len(other) > 4 else 0)
    meant = _one_of(synonyms(misspelled), names) if _likeness(small, misspelled) >= NEARLY_THE_SAME else ""
    return meant or (names[best] if _likeness(small, best) >= likeness else "")


def _one_of(spellings: Iterable[str], names: Mapping[str, str]) -> str:
    """The first of these words, or of lists with commas, that is among the names; "" where none is."""
    for spelling in spellings:
        parts = [names.get(plain(part), "") for part in spelling.split(",")]
        if all(parts):
            return ",".join(parts)
    return ""


def _likeness(word: str, name: str) -> float:
    """How much a word is like a name, 1 for the same: it begins it, has its parts in another order, or most of its letters."""
    import difflib

    numbers = re.findall(r"\d+", word)
    parts, name_parts = re.split("[-.:]", word), re.split("[-.:]", name)
    if len(word) > 1 and name.startswith(word):
        return 0.98
    if sorted(parts) == sorted(name_parts):
        return 0.97
    if len(word) > 2 and any(part.startswith(word) for part in name_parts):
        return 0.84
    if numbers and numbers != re.findall(r"\d+", name):  # float16 is no misspelled float64
        return 0.0
    likeness = difflib.SequenceMatcher(a=name, b=word).ratio()
    is_one_of_its_parts = len(name) > 3 and name in parts
    return max(likeness, ALIKE) if is_one_of_its_parts else likeness


def sharing_a_part(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one among those with a part in common, whatever their numbers: vgg-16 of vgg19; ""
    without one."""
    import difflib

    words = set(re.findall("[a-z]{2,}", name.lower()))
    sharing = [other for other in known if words & set(re.findall("[a-z]{2,}", other))]
    return next(iter(difflib.get_close_matches(name.lower(), sharing, 1, 0.0)), "")


def nearest_path(text: str) -> str:
    """The path that is there and most like this one; "" where none is."""
    path = PurePath(text)
    similar = Path(path.anchor)
    for part in path.relative_to(path.anchor).parts:
        near = part
        try:
            if not (similar / part).exists():
                near = nearest(part, os.listdir(similar) if similar.is_dir() else (), 0.75)
        except OSError:  # a folder that may not be looked into
            near = ""
        if not near:
            return ""
        similar /= near
    return str(similar)
