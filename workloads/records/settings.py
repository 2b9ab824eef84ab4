"""The options of a training or an inference: `Settings.switches`, name to text, those absent having their default.

Only `data` is always written out, so that every row says what it was trained on.
"""

from kernels import networks
from workloads.corrections.nearest import nearest
from workloads.options import Usage, unknown, usage_errors
from workloads.records import Row, model_files, switches
from workloads.records.switches import KNOWN, Keras, is_variable

JIT: dict[str, bool | str] = {"auto": "auto", "on": True, "off": False}
PARTS = "CROSSOVER_CPU_PARTS"  # the variable that tells TensorFlow's worker to cut its CPU into so many devices
FOLDER = "CROSSOVER_FOLDER"  # the variable that tells a worker where the command was typed
#: The switch of a row whose visits begin with a load that lasts until a GPU's clock comes down.
SUSTAINED = {"load": "held"}
# trace, match: of stored rows, see tests/validation; a match is timed as another benchmark times it.
_STUDIED = {"load", "beside", "at_once", "clear_session", "strategy", "replicas", "trace", "match"}


def ordinary(row: Row) -> bool:
    """Whether a row (or a Measurement) gives the cost of a call by itself on one device.

    It is not if something ran at the same time, if several devices shared the work, if it was made for its trace, or if it is a
    trial, which times a whole training with its compilation.
    """
    return not _STUDIED & set(row.settings.switches) and row.variant != "trial"


def is_sustained(row: Row) -> bool:
    """Whether a row is timed under sustained load: a GPU first works until power and heat have brought its clock down. Pages
    prefer rows without such a load."""
    return row.settings.switches.get("load") == SUSTAINED["load"]


def default(name: str) -> str:
    """The value that an option of a training (a name in KNOWN) has where a row does not name it."""
    allowed_values = KNOWN[name]
    return allowed_values[0] if allowed_values else "1"  # no list: a whole number


def checked_keras(row: Row) -> Keras:
    """The row's options of Keras, after a check that all options of the row are known and will be obeyed.

    Raises: ValueError for an option that the code which trains does not obey: the row would claim what was not done.
    """
    chosen = row.settings.switches
    marks = switches.MARKS.keys() & chosen.keys()  # options that only say what a row was made for
    if marks:
        raise ValueError(f"nothing here obeys {', '.join(sorted(marks))}")
    fault = switches.fault(chosen)
    if fault:
        raise ValueError(fault)
    return row.keras


def dtype_in_fit(dtype: str) -> str:
    """The type that samples of this type (NumPy's names) have in the data set that Keras's fit makes from NumPy arrays.

    TensorFlow copies that data set to its device as a whole.
    """
    return dtype if dtype == "uint8" else "float32"


def without_defaults(chosen: dict[str, str]) -> dict[str, str]:
    """The options of a training as a row stores them: without options that have their default, but always with `data`."""
    written = {}
    for name, text in chosen.items():
        if name == "data" or is_variable(name) or text != default(name):
            written[name] = text
    return written


_LIKE_A_MODEL = 0.75  # a name less like one than that is another model: mobilenet is no lenet


def is_user_model(name: str) -> bool:
    """Whether the name of a model means one of a user's files (`file.py:function`, `package.module:function`, `file.keras`), not
    one that this project knows."""
    return ":" in name or "/" in name or name.endswith((".py", ".keras", ".h5"))


def network(name: str, or_user_model: bool = False) -> networks.Network:
    """The known network (its layers) of this name.

    or_user_model: whether the command also takes a user's own model; then the error may propose a file of the user's.
    Raises: Usage for an unknown name, corrected to the most similar one.
    """
    with usage_errors():
        known = networks.known(name)
    if known:
        return known
    similar_file = ""
    if or_user_model:
        unreadable = model_files.other_format(name)
        if unreadable:
            raise model_files.unusable(unreadable, name)
        similar_file = model_files.similar(name)
    similar_name = nearest(name.removeprefix("keras.applications."), networks.names(), _LIKE_A_MODEL)
    similar_name = similar_name or similar_file
    if similar_name == name:  # several known names with commas
        raise Usage(f"one model at a time, not {name}", wrong=name, right=name.partition(",")[0])
    if similar_name:
        raise Usage(f"unknown model {name!r}", wrong=name, right=similar_name, similar="model")
    other_forms = ", file.py:function, file.keras" if or_user_model else ""
    raise unknown("model", name, networks.names(), more=other_forms, likeness=_LIKE_A_MODEL)
