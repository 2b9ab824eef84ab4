"""The switches of a training or an inference: `Settings.switches`, name to text. A switch that is absent has its default.

Only `data` is always written out, so that every row says what it was trained on.
"""

from workloads.results import Row

# name -> the texts it may have, the default first; (): a whole number, 1 by default
KNOWN: dict[str, tuple[str, ...]] = {
    "data": ("synthetic", "real"),
    "jit_compile": ("auto", "on", "off"),
    "gpu": ("hidden", "visible"),  # of a CPU row: whether TensorFlow sees the GPU that it is kept from using
    "residence": ("numpy", "tf.data", "prefetch", "generator", "fed", "resident"),  # where the samples live, see feeds
    "steps_per_execution": (),
    "precision": ("float32", "mixed_bfloat16", "mixed_float16"),  # Keras's dtype policy
    "tf32": ("on", "off"),
    "dropout": ("on", "off"),
    "targets": ("float32", "float64"),  # of a regression: S4's were float64
    "keras_backend": ("tensorflow", "jax", "torch"),
    "shuffle": ("on", "off"),
}
JIT: dict[str, bool | str] = {"auto": "auto", "on": True, "off": False}
VARIABLES = "TF_"  # switches that begin so are environment variables, set before TensorFlow is imported


def default(name: str) -> str:
    """What a switch is when a row does not say."""
    return KNOWN[name][0] if KNOWN[name] else "1"


def of(row: Row) -> dict[str, str]:
    """Every switch of a row, the defaults filled in, environment variables left out.

    Raises: ValueError for one that nothing here obeys, since its row would claim what was not done.
    """
    given = {name: text for name, text in row.settings.switches.items() if not name.startswith(VARIABLES)}
    if unknown := set(given) - set(KNOWN):
        raise ValueError(f"unknown switches: {', '.join(sorted(unknown))}")
    for name, text in given.items():
        allowed = KNOWN[name]
        if allowed and text not in allowed:
            raise ValueError(f"{name} can be {', '.join(allowed)}, not {text!r}")
        if not allowed and not (text.isdigit() and int(text)):
            raise ValueError(f"{name} takes a whole number of at least 1, not {text!r}")
    return {name: default(name) for name in KNOWN} | given


def changed(given: dict[str, str]) -> dict[str, str]:
    """The switches to write into a row: `data`, and those that are not their default."""
    return {name: text for name, text in given.items()
            if name == "data" or name.startswith(VARIABLES) or text != default(name)}  # fmt: skip
