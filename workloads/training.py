"""Trains models on the CPU and the GPU, and says what a step, an epoch, a fit and a whole training cost, and who wins."""

import dataclasses
import shlex
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from workloads import help_screen, options, shared_flags, terminal
from workloads.command_line.parsing import CommandParser
from workloads.session import MeasuringPlan, hidden, resume_command, unfinished
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from analysis.analysis import Analysis
    from analysis.predict.prediction import Prediction
    from workloads.frameworks import several_gpus
    from workloads.frameworks.grid import Grid
    from workloads.harness.sweep import Outcome, Workers
    from workloads.records import Machine, Measurement, Row, Run
    from workloads.tables.training_table import TrainingTable

QUESTION = "Does a GPU train a model sooner, start-up included?"
EXAMPLE = "python -m workloads.training --model cifar10-cnn --samples 1000 --epochs 2"
EXAMPLES = (EXAMPLE, "python -m workloads.training --model file.py:function --batch 32 256")
LONG = """Trains models on the CPU and on the GPU, a process for each device and set of options: milliseconds a step, an epoch
and a fit, told by later epochs of many and of few steps, what compilation and start-up cost, and the whole training. A model
is NAME (unknown names list those that there are), mlp with --inputs --width --depth --outputs, fashion-mlp with --hidden-layers,
file.py:function, package.module:function, or file.keras. Flags that take several words run every combination."""

# Flags of trainings, beside those of options in records/switches.py: a study and saved predictions have their own of them.
_SHAPES = (
    "model",
    "inputs",
    "width",
    "depth",
    "outputs",
    "hidden_layers",
    "batch",
    "samples",
    "steps",
    "epochs",
    "dtypes",
)
_WAYS = ("onednn", "variants", "backends", "threads", "gpus")

COMMAND = CommandLine(
    name="training",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--model", "--batch", "--samples", "--epochs"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan(MeasuringPlan):
    """The trainings to time: every combination of flags, or those of studies, or those of saved predictions."""

    command_line = COMMAND
    #: Every combination of the flags; None where a study or predictions bring the trainings.
    grid: "Grid | None"
    #: Studies by name; () for none.
    studies: tuple[str, ...]
    #: The cases of the study of several GPUs.
    several_gpus: "several_gpus.Study"
    #: The file of saved predictions; "" for none.
    file: str
    #: The saved predictions of it.
    predictions: "tuple[Prediction, ...]"

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        group = parser.add_argument_group("the model and its data")
        _add_model_flags(group)
        _add_sample_flags(group)
        _add_fit_flags(parser)
        _add_study_flags(parser)

    @classmethod
    def from_flags(cls, flags: Namespace) -> "TrainingPlan":
        """Raises: Usage for what trains nothing, for an unknown study and for a file that holds no predictions; Missing for a
        library that is named and is not here."""
        from workloads.frameworks import several_gpus

        names = _studies(flags)
        predictions = _predictions(flags)
        by_flags = not names and not predictions
        return cls(
            measuring=shared_flags.measuring(flags),
            grid=_grid(flags) if by_flags else None,
            studies=tuple(names),
            several_gpus=several_gpus.Study() if by_flags else several_gpus.study(vars(flags)),
            file=flags.predicted or "",
            predictions=tuple(predictions),
        )

    def rows(self, machine: "Machine") -> "list[Row]":
        """The trainings; the products for their budget are known when they have run.

        Raises: Usage for what trains nothing; Missing for a device that is not here.
        """
        from workloads.frameworks import several_gpus
        from workloads.harness import plan

        on = plan.devices(self.measuring.devices, machine, self.measuring.require_gpu)
        several_gpus.require(self._most_gpus(), machine)
        if self.grid is None:
            return self._predicted(on) if self.predictions else self._studied(on, len(machine.gpus))
        if "replicas" in self.grid.switches:
            libraries = self.grid.switches.get("keras_backend", [])
            on = several_gpus.devices(self.measuring.devices, on, libraries)
        return self.grid.rows(on, self.measuring.threads)

    def _most_gpus(self) -> int:
        """The largest number of GPUs that share a batch."""
        from workloads.frameworks import studies

        if self.grid is not None:
            return max(map(int, self.grid.switches.get("replicas", ["1"])))
        return max(self.several_gpus.gpus, default=2 if studies.DATA_PARALLEL in self.studies else 1)

    def _studied(self, on: list[str], gpus: int) -> "list[Row]":
        """The rows of the studies, without those whose rows run side by side. `all` includes the study of several GPUs if any."""
        from workloads.frameworks import studies

        rows = studies.rows(self.studies, on)
        if studies.DATA_PARALLEL in self.studies or ("all" in self.studies and gpus > 1):
            rows += self.several_gpus.rows(gpus)
        return rows

    def _predicted(self, on: list[str]) -> "list[Row]":
        """The trainings of saved predictions, unchanged, on these devices. A note counts those of other devices.

        Raises: Usage for none of these devices, and for a model that is not known.
        """
        from analysis.predict import saved_predictions
        from workloads.frameworks import grid, studies
        from workloads.records import Row, distinct

        file, devices = self.file, ", ".join(on)
        others = Counter(p.settings.device for p in self.predictions if p.settings.device not in on)
        if others.total() == len(self.predictions):
            raise options.Usage(
                f"{file} has predictions for {', '.join(others)}; asked for: {devices}", saved_predictions.MAKES
            )
        if not self.measuring.quiet:
            for device, count in others.items():
                left_out = f"{count} of {len(self.predictions)} predictions left out"
                terminal.note(f"{file}: {left_out}, being for {device}; taken: {devices}")
        rows = []
        for predicted in self.predictions:
            if predicted.settings.device not in on:
                continue
            try:
                grid.known_model(predicted.training.model)
            except options.Usage as error:
                raise options.Usage(f"{file}: {error}", saved_predictions.MAKES) from error
            resident = predicted.settings.keras.residence == "resident"
            kernel = studies.RESIDENT if resident else studies.FIT
            rows.append(Row(kernel, predicted.training, predicted.settings))
        return distinct(rows)

    def refine(self, machine: "Machine", done: "list[Measurement]") -> "list[Row]":
        """The products that the steps are made of. A study measures none: its rows are many, and their budgets are another
        command's."""
        return [] if self.grid is None else products(machine, done)

    def require_room(self, rows: "list[Row]", machine: "Machine") -> None:
        """Nothing: each process says itself whether it has room."""

    def require_models(self, rows: "list[Row]") -> None:
        from workloads.frameworks import forecast

        forecast.build_models(rows)

    def dry_run(self, rows: "list[Row]", machine: "Machine") -> None:
        from workloads.frameworks import forecast

        forecast.build_models(rows)
        print(*forecast.lines(rows, self.measuring, self.studies, machine), sep="\n")

    def measure(
        self,
        run: "Run",
        rows: "list[Row]",
        shown: "Callable[[Measurement], None]" = hidden,
        processes: "Workers | None" = None,
    ) -> "Outcome":
        """Runs the trainings, those of one environment together, and then their products; then the studies whose rows run side
        by side.

        Raises: Missing without TensorFlow, or when real data was asked for and cannot be had.
        """
        from workloads.frameworks import forecast, grid, studies
        from workloads.records import settings

        grid.require_keras({settings.checked_keras(row).keras_backend for row in rows} or {"tensorflow"})
        # The study of several GPUs goes case by case, so that a stopped run has whole cases; its two processes live together.
        in_order = rows if self.studies == (studies.DATA_PARALLEL,) else forecast.in_turns(rows)
        experiments = studies.experiments(self.studies)
        if not experiments:
            return self.sweep(run, in_order, shown, processes)
        outcome = self.sweep(run, in_order, shown, processes) if rows else None
        return self._side_by_side(experiments, outcome, run, shown)

    def _side_by_side(
        self, names: list[str], outcome: "Outcome | None", run: "Run", shown: "Callable[[Measurement], None]"
    ) -> "Outcome":
        """Measures these studies, each into its own file; all rows with those of `outcome` in one Outcome."""
        from workloads.frameworks import side_by_side

        begin = time.monotonic()
        measuring = self.measuring
        for name in names:
            if outcome is not None:
                measuring = dataclasses.replace(measuring, output=str(outcome.path.parent))
                if outcome.stopped:
                    outcome.left += len(side_by_side.rows(name, measuring, run.machine))
                    continue
                if self.measuring.stop_after_s:
                    left_s = self.measuring.stop_after_s - (time.monotonic() - begin)
                    measuring = dataclasses.replace(measuring, stop_after_s=max(1e-3, left_s))
            outcome = side_by_side.measure(name, measuring, run, shown).after(outcome)
        assert outcome is not None, "no study was named"
        return outcome

    def table(self, machine: "Machine") -> "TrainingTable":
        from workloads.tables.training_table import TrainingTable

        return TrainingTable(self.measuring.format == "md")

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints the sentences on trainings, then the budgets of steps that are sound; with --verbose all budgets."""
        from analysis.predict import profile
        from analysis.predict.budget import budgets
        from analysis.report.sections.several_gpus import trainings
        from analysis.text import budget, several_gpus, training

        done = analysis.rows
        lines = unfinished(outcome)
        for sentences in (training.lines, training.side_by_side, several_gpus.training_lines):
            lines += sentences(done)
        lines += _compiled_here(done)
        several = trainings(done)
        if several:
            lines += ["", *several.text()]
        every = []
        if any(m.problem.op == "matmul" for m in done):
            every = budgets(profile.Profile(done))
        wanted = [one for one in every if self.measuring.verbose or one.sound]
        about_steps = [budget.sentence(one) for one in wanted]
        if len(wanted) < len(every):
            command = f"{options.typed(resume_command(outcome.run.command, outcome.path.parent))} -v"
            about = "What a step is made of, from these rows, nothing measured again: "
            about_steps.append(terminal.Line(about, command=command))
        if lines and about_steps:
            lines.append("")
        lines += about_steps
        if lines:
            terminal.show(["", *lines])


def _add_model_flags(group: "argparse._ArgumentGroup") -> None:
    """Adds the flags of the model: its name or script, and the sizes of the families mlp and fashion-mlp."""
    group.add_argument("--model", metavar="NAME", nargs="+", action="extend", help="the models to train (cifar10-cnn)")
    group.add_argument(
        "--script",
        metavar="COMMAND",
        help="a training script with its arguments, in place of --model: 'train.py --lr 0.1'",
    )
    group.add_argument(
        "--fit",
        metavar="PLACE",
        help="of --script: the line of its fit; 3.2: line 2 of a notebook's third code cell",
    )
    group.add_argument("--inputs", metavar="N", nargs="+", action="extend", help="inputs of mlp (784)")
    group.add_argument("--width", metavar="N", nargs="+", action="extend", help="units of its hidden layers (500)")
    group.add_argument("--depth", metavar="N", nargs="+", action="extend", help="its hidden layers (2)")
    group.add_argument("--outputs", metavar="N", nargs="+", action="extend", help="its classes (10)")
    group.add_argument(
        "--hidden-layers", metavar="N", nargs="+", action="extend", help="hidden layers of fashion-mlp (5)"
    )


def _add_sample_flags(group: "argparse._ArgumentGroup") -> None:
    """Adds the flags of the samples: how many, in what batches, how often, and of what type."""
    group.add_argument(
        "--batch",
        metavar="N",
        nargs="+",
        action="extend",
        help=help_screen.help_text("samples a step", rest=" (32; peaks: all of them)"),
    )
    epoch_length = group.add_mutually_exclusive_group()
    epoch_length.add_argument(
        "--samples",
        metavar="N",
        nargs="+",
        action="extend",
        help=help_screen.help_text("samples an epoch", rest=" (default: as --steps says)"),
    )
    epoch_length.add_argument(
        "--steps",
        metavar="N",
        type=options.number,
        help="steps an epoch (those of 2,048 samples, 8 to 256; peaks: 1)",
    )
    group.add_argument(
        "--epochs",
        metavar="N",
        nargs="+",
        action="extend",
        help=help_screen.help_text("epochs a fit", rest=" (1; peaks: 100)"),
    )
    group.add_argument(
        "--dtypes",
        metavar="TYPE",
        nargs="+",
        action="extend",
        help="of the inputs: float32, float64 (the articles'), uint8 (float32)",
    )
    group.add_argument(
        "--data",
        metavar="WORD",
        default="synthetic",
        help="synthetic (made up), real (downloaded), or file.py:function: your model's own (synthetic)",
    )
    group.add_argument(
        "--length",
        metavar="N",
        nargs="+",
        action="extend",
        help="of your model's open sizes, such as words in a text",
    )
    group.add_argument(
        "--targets",
        metavar="TYPE",
        nargs="+",
        action="extend",
        help="of a regression's targets: float32, float64 (float32)",
    )


def _add_fit_flags(parser: CommandParser) -> None:
    """Adds the flags of where the samples live and how TensorFlow runs the steps."""
    training = parser.add_argument_group("how it is trained")
    training.add_argument(
        "--residence",
        metavar="WORD",
        nargs="+",
        action="extend",
        help="where the samples live: numpy tf.data prefetch generator; resident (the whole set on the "
        "device); fed (to a bare loop, each step) (numpy)",
    )
    training.add_argument("--jit", metavar="WORD", nargs="+", action="extend", help="auto on off: XLA (auto)")
    training.add_argument(
        "--steps-per-execution",
        metavar="WORD",
        nargs="+",
        action="extend",
        help="steps that Keras runs in one call (1)",
    )
    training.add_argument(
        "--precision",
        metavar="WORD",
        nargs="+",
        action="extend",
        help="float32 mixed_bfloat16 mixed_float16 (float32)",
    )
    training.add_argument("--tf32", metavar="WORD", nargs="+", action="extend", help="on off: on a GPU (on)")
    training.add_argument("--dropout", metavar="WORD", nargs="+", action="extend", help="on off (on)")
    training.add_argument("--shuffle", metavar="WORD", nargs="+", action="extend", help="on off (on)")
    training.add_argument(
        "--keras-backend", metavar="WORD", nargs="+", action="extend", help="tensorflow jax torch (tensorflow)"
    )
    training.add_argument(
        "--onednn",
        metavar="WORD",
        nargs="+",
        action="extend",
        help="on off: TF_ENABLE_ONEDNN_OPTS, on the CPU (TensorFlow's default)",
    )
    training.add_argument(
        "--gpus",
        metavar="N",
        nargs="+",
        action="extend",
        help="GPUs that share each batch, by keras.distribution.DataParallel with --keras-backend jax "
        "or tf.distribute.MirroredStrategy with tensorflow (1)",
    )


def _add_study_flags(parser: CommandParser) -> None:
    """Adds the flags that choose a whole list of trainings by its name or file."""
    rows = parser.add_argument_group("rows of a study or of predictions")
    rows.add_argument(
        "--study",
        metavar="NAME",
        nargs="+",
        action="extend",
        help="rows made for a question, instead of the above, such as batches (an unknown one lists them), or all",
    )
    rows.add_argument(
        "--predicted",
        metavar="FILE",
        help="the trainings of predictions that `analysis.predict --save FILE` wrote, instead of the "
        "above; `analysis.predict --check FILE RUN` then compares them",
    )


def _compiled_here(done: "Iterable[Measurement]") -> list[str]:
    """A sentence for each model that came without a loss and an optimizer: those that were chosen for it."""
    chosen = {m.problem.model: m.notes["compiled"] for m in done if "compiled" in m.notes}
    return [f"{model}: {words}." for model, words in chosen.items()]


def _studies(flags: Namespace) -> list[str]:
    """The studies of --study, each once.

    Raises: Usage for an unknown one, and for flags whose values a study sets itself.
    """
    from workloads.frameworks import several_gpus, studies
    from workloads.harness import plan

    names = plan.known("study", flags.study, (*studies.NAMES, "all"))
    if names:
        obeyed = several_gpus.TAKES if names == [studies.DATA_PARALLEL] else ()
        _refuse_trainings(flags, "--study", obeyed)
        options.refuse(flags, ["predicted"], "--study brings its own rows")
    return names


def _predictions(flags: Namespace) -> "list[Prediction]":
    """The saved predictions of --predicted.

    Raises: Usage for a file that holds none, and for flags of other trainings.
    """
    from analysis.predict import saved_predictions

    if flags.predicted is None or flags.study:
        return []
    saved = saved_predictions.load(flags.predicted)
    _refuse_trainings(flags, "--predicted")
    return saved


def _refuse_trainings(flags: Namespace, flag: str, obeyed: tuple[str, ...] = ()) -> None:
    """Raises Usage for flags of trainings beside one that brings its own, but for those that it obeys."""
    from workloads.records.settings import KNOWN

    every = [*_SHAPES, "jit", *KNOWN, *_WAYS]
    if flags.data == "synthetic":  # which it is where the flag is not typed
        every.remove("data")
    options.refuse(flags, [name for name in every if name not in obeyed], f"{flag} brings its own rows")


def _grid(flags: Namespace) -> "Grid":
    """Every combination of the flags.

    Raises: Usage for an unknown model, way of training or switch; Missing for a library that is named and is not here.
    """
    from workloads.frameworks import data, grid
    from workloads.harness import plan

    backends, variants = options.words(flags.backends), options.words(flags.variants)
    kernels = grid.kernels(backends, variants)
    switches = grid.switches(vars(flags))
    if flags.script:
        names = [_script_training(flags)]
        flags_data = "script"
    else:
        names = grid.models(options.words(flags.model) or [grid.MODEL], vars(flags))
        flags_data = flags.data
        _require_data(flags.data, names)
    problems = grid.problems(
        names,
        data_set=flags_data,
        batches=plan.counts(flags.batch),
        samples=plan.counts(flags.samples),
        steps=flags.steps,
        epochs=plan.counts(flags.epochs),
        dtypes=plan.known("type", flags.dtypes, data.DTYPES) or ["float32"],
    )
    return grid.Grid(
        problems=tuple(problems),
        kernels=tuple(kernels),
        kernels_named=bool(backends or variants),
        residences=tuple(grid.residences(flags.residence)),
        switches=switches,
        data=flags_data,
    )


def _script_training(flags: Namespace) -> str:
    """The name of the training of a script's fit.

    Raises: Usage for a fit that is not named, and for a script that is not there.
    """
    from workloads.records import script_files

    script, *arguments = script_files.typed_words(flags.script)
    script_files.require(script)
    fit = flags.fit or _only_fit(script)
    _require_fit(script, fit)
    return script_files.ScriptTraining(script=script, fit=fit, arguments=tuple(arguments)).name


def _only_fit(script: str) -> str:
    """The place of the only fit that a script's text shows.

    Raises: Usage where it shows none, or several.
    """
    from workloads.frameworks.user_fit import fit_places
    from workloads.records import source_trees

    places = fit_places.places(script)
    if len(places) == 1:
        return places[0]
    function = "" if places else source_trees.function_without_fit(script)
    if function:
        message = f"{script} calls no fit itself; its model is typed --model {function}"
        raise options.Usage(message, wrong="--script", right=shlex.join(["--model", function]))
    if not places:
        message = f"{script} calls no fit itself; explain shows the first one that it comes to"
        error = options.Usage(message, instead=shlex.join(["python", "-m", "analysis.explain", script]))
    else:
        called = ", ".join(places)
        message = f"--script takes the line of its fit too; it calls one at {called}"
        error = options.Usage(message, right=f"--fit {places[0]}")
    error.is_example = True
    raise error


def _require_fit(script: str, fit: str) -> None:
    """Raises Usage for a place of a script where its text has no line, or a line without fit though another has one."""
    from workloads.frameworks.user_fit import fit_places
    from workloads.records import script_files

    places = fit_places.places(script)
    if places and not fit_places.may_call_fit(script, fit):
        raise script_files.no_such_fit(script, fit, places)


def _require_data(name: str, models: list[str]) -> None:
    """Raises Usage for data that are neither made up, nor real, nor of a user's function for a user's model."""
    from workloads.records import model_files, settings

    if name in ("synthetic", "real"):
        return
    if not settings.is_user_model(name):
        raise options.unknown("value", name, ("synthetic", "real"), more=", file.py:function")
    model_files.require(name)
    named = [model for model in models if not settings.is_user_model(model)]
    if named:
        raise options.Usage(f"{named[0]} has its own data; --data {name} is for your model", wrong="--data")


def products(here: "Machine", done: "list[Measurement]") -> "list[Row]":
    """The library products that the steps measured so far are made of and that have no row yet."""
    from analysis.predict import budget
    from workloads.records import Row, Settings, distinct

    rows = []
    for m in done:
        if m.problem.op == "training" and m.ok:
            kernel = "matmul/cupy/cublas" if m.on_gpu else "matmul/numpy/blas"
            settings = Settings(m.device, None if m.on_gpu else m.threads or here.cores)
            rows += [Row(kernel, problem, settings) for problem in budget.gemms(m)]
    return distinct(rows, done)


parser = TrainingPlan.parser
parse = TrainingPlan.parse
main = TrainingPlan.main
run = TrainingPlan.run

if __name__ == "__main__":
    sys.exit(main())
