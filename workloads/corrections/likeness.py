"""The known word, or the path, that was meant by one that is not known. Standard library only."""

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePath

DASHES = "-–—"  # the last two come from pages that print two dashes as one
_NEARLY_THE_SAME = 0.85
# What other tools have and nothing here is like: int8 is no misspelled uint8.
_UNLIKE_ALL = ("tpu", "npu", "xpu", "mps", "rocm", "hip", "opencl", "metal", "int8", "int4", "uint4", "i8")
# Names that other tools give to what is known here by another word, or by several with commas.
ALIASES = {
    "half": "float16",
    "single": "float32",
    "float": "float32",
    "double": "float64",
    "e4m3": "float8_e4m3",
    "mixed_half": "mixed_float16",
    "true": "on",
    "yes": "on",
    "false": "off",
    "no": "off",
    "cuda": "gpu",
    "precision": "dtype",
    "data-type": "dtype",
    "datatype": "dtype",
    "amp": "mixed_float16",
    "16-mixed": "mixed_float16",
    "markdown": "md",
    "text": "table",
    "np": "numpy",
    "j": "threads",
    "forward": "fprop",
    "forwards": "fprop",
    "fwd": "fprop",
    "backward": "dgrad,wgrad",
    "backwards": "dgrad,wgrad",
    "bwd": "dgrad,wgrad",
    "backprop": "dgrad,wgrad",
    "backpropagation": "dgrad,wgrad",
    "bprop": "dgrad,wgrad",
    "backward-data": "dgrad",
    "backward-input": "dgrad",
    "backward-inputs": "dgrad",
    "bwd-data": "dgrad",
    "bwd_d": "dgrad",
    "data-grad": "dgrad",
    "input-grad": "dgrad",
    "backward-filter": "wgrad",
    "backward-filters": "wgrad",
    "backward-weight": "wgrad",
    "backward-weights": "wgrad",
    "bwd-filter": "wgrad",
    "bwd-weights": "wgrad",
    "bwd_w": "wgrad",
    "weight-grad": "wgrad",
    "filter-grad": "wgrad",
    "padding": "pad",
    "zero-padding": "pad",
    "group": "groups",
    "data-format": "layout",
    "data_format": "layout",
    "memory-format": "layout",
    "channels_last": "nhwc",
    "channels-last": "nhwc",
    "channels_first": "nchw",
    "channels-first": "nchw",
    "hot": "warm",
    "both": "all",
    "time": "stop-after",
    "timeout": "stop-after",
    "ops": "operations",
    "op": "operations",
    "tf": "tensorflow",
    "type": "dtype",
    "n": "sizes",
    "network": "model",
    "library": "backends",
    "lib": "backends",
    "framework": "backends",
    "cores": "threads",
    "cpus": "threads",
    "num-cpus": "threads",
    "nproc": "threads",
    "jobs": "threads",
    "n-jobs": "threads",
    "workers": "threads",
    "baseline": "against",
    "jit_compile": "jit",
    "jit-compile": "jit",
    "xla": "jit",
    "benchmark": "run",
    "bench": "run",
    "quick": "run",
    "check": "doctor",
    "test": "doctor",
    "multiply": "matmul",
    "gemm": "matmul",
    "matrix": "matmul",
    "matrices": "matmul",
    "convolution": "conv",
    "convolutions": "conv",
    "memory": "stream",
    "bandwidth": "stream",
    "copies": "transfer",
    "copy": "transfer",
    "kernel": "empty",
    "kernels": "empty",
    "sizes": "batch",
    "host2device": "h2d",
    "host-to-device": "h2d",
    "host_to_device": "h2d",
    "hosttodevice": "h2d",
    "htod": "h2d",
    "cpu2gpu": "h2d",
    "cpu-to-gpu": "h2d",
    "cpu_to_gpu": "h2d",
    "device2host": "d2h",
    "device-to-host": "d2h",
    "device_to_host": "d2h",
    "devicetohost": "d2h",
    "dtoh": "d2h",
    "gpu2cpu": "d2h",
    "gpu-to-cpu": "d2h",
    "gpu_to_cpu": "d2h",
    "device2device": "d2d",
    "device-to-device": "d2d",
    "device_to_device": "d2d",
    "dtod": "d2d",
    "gpu2gpu": "d2d",
    "json": "google-benchmark",
    "diff": "compare",
    "plot": "report",
    "visualize": "report",
    "show": "report",
    "view": "report",
    "profile": "explain",
    "advise": "explain",
    "recommend": "explain",
    "estimate": "predict",
    "forecast": "predict",
    "cublas": "cupy",
    "openblas": "numpy",
    "blas": "numpy",
    "yaml": "json",
    "toml": "json",
    "xml": "json",
    "html": "md",
    "tsv": "csv",
    "excel": "csv",
    "xlsx": "csv",
}


def closest(word: str, known: Iterable[str], likeness: float = 0.65) -> str:
    """The known word that is this one or an alias of it, begins with it, contains it, has its parts in another order, is most
    similar to it, or is a part of it; several with commas where an alias means several; "" without one."""
    by_small = {name.lower().lstrip("-"): name for name in known}
    plain = word.lower().lstrip(DASHES)
    small = usual_name(plain)
    for exact in (plain, small, f"{small}s"):
        if exact in by_small:
            return by_small[exact]
    if plain in _UNLIKE_ALL:
        return ""
    parts = re.split(r"[\s,;|+&/]+", small.strip())
    if len(parts) > 1 and by_small.keys() >= set(parts):
        return ",".join([by_small[part] for part in parts])
    near = _beginning_with(small, by_small) or _beginning_with(plain, by_small)
    if not near and small == plain:  # what has another name here, and is not known, is like no other
        usual_parts = sorted(map(usual_name, _parts(small)))
        reordered = [name for name in by_small if _parts(name) in (_parts(small), usual_parts)]
        candidates = [name for name in by_small if _may_be_number(small, name)]
        near = reordered or _most_similar(small, candidates, likeness) or _contained(small, by_small)
    return by_small[near[0]] if near else ""


def misspelled(word: str, known: Iterable[str]) -> str:
    """The known word that differs from this one in a few letters; "" without one."""
    by_small = {name.lower().lstrip("-"): name for name in known}
    near = _most_similar(word.lower().lstrip(DASHES), by_small, _NEARLY_THE_SAME)
    return by_small[near[0]] if near else ""


def _most_similar(word: str, known: Iterable[str], likeness: float) -> list[str]:
    """The known name that is most similar to this word, where any is at least so similar (1: the same)."""
    import difflib

    return difflib.get_close_matches(word, known, 1, likeness)


def _beginning_with(word: str, known: Iterable[str]) -> list[str]:
    """The known names that begin with this word, else those one of whose parts does; the shortest first."""
    by_length = sorted(known, key=len)
    beginning = [name for name in by_length if len(word) > 1 and name.startswith(word)]
    part = re.compile(rf"[-_.:]{re.escape(word)}")
    return beginning or [name for name in by_length if len(word) > 2 and part.search(name)]


def _may_be_number(word: str, name: str) -> bool:
    """Whether a name has the numbers of a word, or the word none: float16 is no misspelled float64."""
    numbers = re.findall(r"\d+", word)
    return not numbers or numbers == re.findall(r"\d+", name)


def _parts(name: str) -> list[str]:
    """The words of a name in alphabetic order: gpu-price and price_gpu have the same."""
    return sorted(re.split("[-_]", name))


def _letters(name: str) -> set[str]:
    """The words of a name without its numbers: vgg of vgg-16 and of vgg19."""
    return set(re.findall("[a-z]{2,}", name))


def sharing_a_word(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one among those with a word in common: mnist-cnn of mnist_mlp, vgg-16 of vgg19; ""
    without one."""
    words = _letters(name.lower())
    sharing = [other for other in known if words & _letters(other)]
    similar = _most_similar(name.lower(), sharing, 0.0)
    return similar[0] if similar else ""


def _contained(word: str, known: Iterable[str]) -> list[str]:
    """The known names that are one of the words of this one: epochs of num-epochs."""
    return [name for name in known if len(name) > 3 and name in re.split("[-_]", word)]


def usual_name(word: str) -> str:
    """A word without its device number, by the name that it has here: `cuda:0` is gpu, `bf16` bfloat16."""
    numbered = re.fullmatch(r"(b?)fp?(\d+)", word)
    if numbered:
        word = f"{numbered[1]}float{numbered[2]}"
    plain = word.partition(":")[0]
    return ALIASES.get(plain) or ALIASES.get("-".join(plain.split("_")), word)


def similar_path(text: str) -> str:
    """The path that is there and most like this one; "" where none is."""
    path = PurePath(text)
    similar = Path(path.anchor)
    for part in path.relative_to(path.anchor).parts:
        near = part
        try:
            if not (similar / part).exists():
                near = closest(part, os.listdir(similar) if similar.is_dir() else (), 0.75)
        except OSError:  # a folder that may not be looked into
            near = ""
        if not near:
            return ""
        similar /= near
    return str(similar)
