"""`Settings.switches` as typed records; an absent switch has its default, the first of its values."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec


class Keras(msgspec.Struct, frozen=True):
    """How a model is compiled, fed and trained.

    data: synthetic, real, `script` (those of a user's script), or the function that gives a user's own. length: that of open
    sizes, 1 where nobody gave one.
    gpu: whether TensorFlow sees the GPU in a CPU row, where it must not use it. residence: where the samples live. precision:
    Keras's dtype policy. targets: of a regression (S4's were float64).
    """

    data: Literal["synthetic", "real", "script"] = "synthetic"
    jit_compile: Literal["auto", "on", "off"] = "auto"
    gpu: Literal["hidden", "visible"] = "hidden"
    residence: Literal["numpy", "tf.data", "prefetch", "generator", "fed", "resident"] = "numpy"
    steps_per_execution: int = 1
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    tf32: Literal["on", "off"] = "on"
    dropout: Literal["on", "off"] = "on"
    targets: Literal["float32", "float64"] = "float32"
    keras_backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    shuffle: Literal["on", "off"] = "on"
    length: int = 1


class Experiment(msgspec.Struct, frozen=True):
    """The experiment that a row was made for, besides its cost.

    replicas: devices that each train a part of every batch under `strategy`, the row's device the first of them. in_flight:
    requests that a server answers at the same time. beside: what ran at the same time. at_once: processes that do the same,
    this one among them. clear_session: before each further model that a process makes.
    """

    strategy: Literal["none", "DataParallel", "MirroredStrategy"] = "none"
    replicas: int = 1
    in_flight: int = 1
    beside: Literal["", "nothing", "student", "teacher", "fits"] = ""
    at_once: int = 1
    clear_session: Literal["off", "on"] = "off"


# name -> the texts it may have, the default first; (): a whole number, 1 by default
KNOWN: dict[str, tuple[str, ...]] = {
    field.name: getattr(field.type, "__args__", ())
    for record in (Keras, Experiment)
    for field in msgspec.structs.fields(record)
}
# Switches that no option sets: of rows that a load or a validation made. name -> the texts it may have; (): any.
MARKS: dict[str, tuple[str, ...]] = {"load": ("held",), "trace": ("on",), "match": ()}
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
VARIABLES = "TF_"  # switches that begin so are environment variables, set before TensorFlow is imported


def is_variable(name: str) -> bool:
    """Whether a switch is an environment variable."""
    return name.startswith(VARIABLES)


def fault(switches: Mapping[str, str]) -> str:
    """Why a row cannot have these switches: a name that is not known, or a text that the name cannot have; "" where it can."""
    for name, text in switches.items():
        if is_variable(name) or (name == "data" and ":" in text):  # a user's function
            continue
        if name in MARKS:
            allowed, counts = MARKS[name], False
        elif name in KNOWN:
            allowed, counts = KNOWN[name], not KNOWN[name]
        else:
            return f"unknown switch: {name}"
        if allowed and text not in allowed:
            return f"{name} can be {', '.join(allowed)}, not {text!r}"
        if counts and not _COUNT.fullmatch(text):
            return f"{name} takes a whole number of at least 1, not {text!r}"
    return ""


def typed(record: Any, given: dict[str, str]) -> Any:
    own = ((name, given[name]) for name in record.__struct_fields__ if name in given)
    return record(**{name: text if KNOWN[name] else int(text) for name, text in own})
