"""`Settings.switches` as typed records; an absent switch has its default, the first of its values."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec


class Keras(msgspec.Struct, frozen=True):
    """How a model is compiled, gets its samples and is trained."""

    #: The samples: synthetic, real, those of a user's script, or the name of a user's function that gives them.
    data: Literal["synthetic", "real", "script"] = "synthetic"
    #: Whether XLA compiles the step; auto is Keras's choice.
    jit_compile: Literal["auto", "on", "off"] = "auto"
    #: Whether TensorFlow sees the GPU in a CPU row, where it must not use it.
    gpu: Literal["hidden", "visible"] = "hidden"
    #: Where the samples live.
    residence: Literal["numpy", "tf.data", "prefetch", "generator", "fed", "resident"] = "numpy"
    #: Steps that one call of the compiled function does.
    steps_per_execution: int = 1
    #: Keras's dtype policy.
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    #: Whether products of float32 may be computed in tf32.
    tf32: Literal["on", "off"] = "on"
    #: Whether layers of dropout drop anything.
    dropout: Literal["on", "off"] = "on"
    #: Type of the targets of a regression (S4's were float64).
    targets: Literal["float32", "float64"] = "float32"
    #: The library that Keras computes with.
    keras_backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    #: Whether each epoch has the samples in another order.
    shuffle: Literal["on", "off"] = "on"
    #: The length of sizes that the model leaves open; 1 where nobody gave one.
    length: int = 1


class Experiment(msgspec.Struct, frozen=True):
    """The experiment that a row was made for, besides its cost."""

    #: How TensorFlow spreads a training over several devices.
    strategy: Literal["none", "DataParallel", "MirroredStrategy"] = "none"
    #: Devices that each train a part of every batch, the row's device the first of them.
    replicas: int = 1
    #: Requests that a server answers at the same time.
    in_flight: int = 1
    #: What ran at the same time; the switch `beside` of a row.
    companion: Literal["", "nothing", "student", "teacher", "fits"] = msgspec.field(default="", name="beside")
    #: Processes that do the same at the same time, this one among them.
    at_once: int = 1
    #: Whether Keras's session is cleared before each further model that a process makes.
    clear_session: Literal["off", "on"] = "off"


#: Record -> its fields; `encode_name` is the name of a switch.
_FIELDS = {record: msgspec.structs.fields(record) for record in (Keras, Experiment)}
#: Name -> the texts it may have, the default first; (): a whole number, 1 by default.
KNOWN: dict[str, tuple[str, ...]] = {
    field.encode_name: getattr(field.type, "__args__", ()) for field in (*_FIELDS[Keras], *_FIELDS[Experiment])
}
#: Switches that no option sets: of rows that a load or a validation made. Name -> the texts it may have; (): any.
MARKS: dict[str, tuple[str, ...]] = {"load": ("held",), "trace": ("on",), "match": ()}
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
#: Switches that begin so are environment variables, set before TensorFlow is imported.
_VARIABLE = re.compile("TF_")


def is_variable(name: str) -> bool:
    """Whether a switch is an environment variable."""
    return _VARIABLE.match(name) is not None


def fault(switches: Mapping[str, str]) -> str:
    """Why a row cannot have these switches (name of an option -> its value as text), in words; "" where it can.

    A name may be unknown, or a value none that the option can have.
    """
    for name, text in switches.items():
        is_user_function = name == "data" and ":" in text
        if is_variable(name) or is_user_function:
            continue
        if name not in MARKS and name not in KNOWN:
            return f"unknown switch: {name}"
        allowed = MARKS[name] if name in MARKS else KNOWN[name]
        if allowed and text not in allowed:
            return f"{name} can be {', '.join(allowed)}, not {text!r}"
        is_count = name in KNOWN and not allowed
        if is_count and not _COUNT.fullmatch(text):
            return f"{name} takes a whole number of at least 1, not {text!r}"
    return ""


def typed(record: Any, switches: Mapping[str, str]) -> Any:
    """A record of this class, Keras or Experiment, with its fields from a row's switches (name -> text).

    A field whose switch is absent has its default. Switches of the other class are left out.
    """
    fields: dict[str, str | int] = {}
    for field in _FIELDS[record]:
        switch = field.encode_name
        if switch not in switches:
            continue
        text = switches[switch]
        is_number = not KNOWN[switch]
        fields[field.name] = int(text) if is_number else text
    return record(**fields)
