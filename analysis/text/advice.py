"""Every change that an answer may advise as lines of Python, before and after; `python -m analysis.text.advice` prints all."""

import sys

import msgspec

from analysis.predict import what_if
from analysis.predict.what_if import Change
from analysis.training.costs import compiles
from kernels.problems import Training
from workloads.records import Settings

FIT = """model = {model}
model.compile({compile_options})
model.fit(x, y, batch_size={batch}, epochs={epochs})"""
WHOLE_BATCHES = """model = {model}
model.compile({compile_options})
rows = numpy.random.permutation(len(x))[:{samples}]  # whole batches of {batch}
model.fit(x[rows], y[rows], batch_size={batch}, epochs={epochs})"""
LOOP_ON_GPU = """model = {model}
model.compile({compile_options})
model.evaluate(x[:1], y[:1], verbose=0)  # makes the metrics
model.optimizer.build(model.trainable_variables)
with tf.device("{device}"):
    x_gpu, y_gpu = tf.constant(x), tf.constant(y)


@tf.function(jit_compile={compiled})
def train_epoch(order):
    model.reset_metrics()
    for rows in tf.reshape(order, ({steps}, {batch})):
        model.train_step((tf.gather(x_gpu, rows), tf.gather(y_gpu, rows)))
    return model.get_metrics_result()


for epoch in range({epochs}):
    print(train_epoch(tf.random.shuffle(tf.range({samples}))[:{trained}]))"""
PREFETCH = """model = {model}
model.compile({compile_options})
with tf.device("CPU:0"):  # the whole set stays in the host's memory
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle({samples})
data = data.batch({batch}, drop_remainder=True).repeat()
data = data.apply(tf.data.experimental.prefetch_to_device("{device}"))
model.fit(data, steps_per_epoch={steps}, epochs={epochs})"""
TF32 = "tf.config.experimental.enable_tensor_float_32_execution({})\n"
POLICY = 'keras.config.set_dtype_policy("{}")  # before the model is built\n'

PAGE = """# Advice, as code

`python -m analysis.text.advice > docs/advice.md` writes this page.

These are all changes that an answer may advise under `Do`. `explain ... --how 1` prints the first one of your answer, with your
model and sizes. `x`, `y`, `optimizer` and `loss` are yours; `numpy`, `keras` and `import tensorflow as tf` are imported."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A change as code to be filled in with a training's model and sizes."""

    #: Heading on the page of all advice.
    name: str
    #: Lines before the change.
    before: str = FIT
    #: Lines after the change.
    after: str = FIT
    #: What the change costs besides time, in a sentence.
    gives_up: str


#: Kind of a change -> its code.
ADVICE = {
    "batch": Advice(
        name="Larger batch",
        gives_up="It takes fewer, larger steps an epoch: look at the accuracy again.",
    ),
    "steps_per_execution": Advice(
        name="Several steps in one call",
        gives_up="Callbacks of a batch run once a call.",
    ),
    "without XLA": Advice(
        name="Without XLA",
        gives_up="Operations are not fused: a step launches more kernels.",
    ),
    "with XLA": Advice(
        name="With XLA",
        gives_up="The step is compiled once for each size of a batch.",
    ),
    "whole batches": Advice(
        name="Whole batches",
        after=WHOLE_BATCHES,
        gives_up="The samples of the smaller last batch are not trained on.",
    ),
    "own loop": Advice(
        name="Data on the GPU, own loop",
        after=LOOP_ON_GPU,
        gives_up="There are no callbacks, no validation and no smaller last batch; all samples must fit into the GPU's memory.",
    ),
    "prefetch": Advice(
        name="Prefetch to the GPU",
        after=PREFETCH,
        gives_up="An epoch has no smaller last batch, and the GPU holds a batch more.",
    ),
    "tf32": Advice(
        name="TF32 allowed",
        before=TF32.format(False) + FIT,
        after=TF32.format(True) + FIT,
        gives_up="Products of float32 have 10 bits of fraction, not 23.",
    ),
    "mixed_bfloat16": Advice(
        name="Mixed precision",
        before=POLICY.format("float32") + FIT,
        after=POLICY.format("mixed_bfloat16") + FIT,
        gives_up="Layers compute with 7 bits of fraction, not 23; weights stay float32. Keep the last layer in float32.",
    ),
}


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """An advice filled in for one training."""

    #: The change, in the words of the answer.
    change: str
    #: Python before the change.
    before: str
    #: Python after the change.
    after: str
    #: What the change costs besides time, in a sentence.
    gives_up: str

    def lines(self, markdown: bool = False) -> list[str]:
        """Both codes with a heading each, then what the change gives up."""
        lines = []
        for heading, code in (("Before", self.before), ("After", self.after)):
            if markdown:
                lines += [f"{heading}:", "", "```python", *code.splitlines(), "```", ""]
            else:
                lines += [f"{heading}:", *(f"    {line}".rstrip() for line in code.splitlines()), ""]
        return [*lines, self.gives_up]


def code(change: Change, training: Training, settings: Settings) -> Code:
    """The code of a change to a training, before and after, with its model and sizes. settings: those before the change."""
    advice = ADVICE[change.kind]
    return Code(
        change=change.words,
        before=_filled(advice.before, training, settings),
        after=_filled(advice.after, change.training, change.settings),
        gives_up=advice.gives_up,
    )


def _filled(template: str, training: Training, settings: Settings) -> str:
    """A template of Python code with the model, sizes and options of a training in its fields."""
    compile_options = ["optimizer=optimizer", "loss=loss"]
    keras = settings.keras
    if keras.jit_compile != "auto":
        compile_options.append(f"jit_compile={keras.jit_compile == 'on'}")
    if keras.steps_per_execution > 1:
        compile_options.append(f"steps_per_execution={keras.steps_per_execution}")
    batch = min(training.batch, training.samples)
    return template.format(
        model=_model(training.model),
        compile_options=", ".join(compile_options),
        batch=batch,
        epochs=training.epochs,
        samples=training.samples,
        steps=training.samples // batch,
        trained=training.samples - training.samples % batch,
        device=settings.device.upper(),
        compiled=compiles(settings),
    )


def _model(name: str) -> str:
    """Python that gives the model of this name: it loads a saved file, calls the function of a user's file (file.py:function), or
    calls `build()` for a model that comes with the project.
    """
    if name.endswith((".keras", ".h5")):
        return f'keras.models.load_model("{name}")'
    file, _, function = name.rpartition(":")
    return f"{function}()  # {file}" if file else f"build()  # {name}"


def examples() -> list[Code]:
    """The code of every kind of change, for one training on a GPU, in the order of ADVICE."""
    training = Training("mine.py:build", 32, 50_000, 10)
    by_kind: dict[str, Code] = {}
    for options in ({"tf32": "off"}, {"jit_compile": "off"}):
        settings = Settings("gpu:0", switches=options)
        for change in what_if.changes(training, settings):
            by_kind.setdefault(change.kind, code(change, training, settings))
    return [by_kind[kind] for kind in ADVICE]


def page() -> list[str]:
    """docs/advice.md as lines."""
    lines = PAGE.splitlines()
    for advice, example in zip(ADVICE.values(), examples(), strict=True):
        lines += ["", f"## {advice.name}", "", *example.lines(markdown=True)]
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()) + "\n")
