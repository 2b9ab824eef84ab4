"""Trains models on the CPU and the GPU, and says what a step, an epoch, a fit and a whole training cost, and who wins."""

import dataclasses
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from workloads import help_screen, options, shared_flags, terminal
from workloads.command_line.parsing import CommandParser
from workloads.session import MeasuringPlan, print_no_row, resume_command, unfinished
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
        """Adds the flags that this command alone takes."""
        group = parser.add_argument_group("the model and its data")
        _add_model_flags(group)
        _add_sample_flags(group)
        _add_fit_flags(parser)
        _add_study_flags(parser)

    @classmethod
    def from_flags(cls, flags: Namespace) -> "TrainingPlan":
        """The plan of the typed flags: every combination of them, or the trainings of --study, or those of --predicted.

        Raises: Usage for what trains nothing, for an unknown study and for a file that holds no predictions; Missing for a
        library that is named and is not here.
        """
        from workloads.frameworks import several_gpus

        studies = _studies(flags)
        predictions = _predictions(flags)
        is_grid = not studies and not predictions
        return cls(
            measuring=shared_flags.measuring(flags),
            grid=_grid(flags) if is_grid else None,
            studies=tuple(studies),
            several_gpus=several_gpus.Study() if is_grid else several_gpus.study(vars(flags)),
            file=flags.predicted or "",
            predictions=tuple(predictions),
        )

    def rows(self, machine: "Machine") -> "list[Row]":
        """The trainings. The matrix products that their steps consist of are rows of `refine`, once the trainings have run.

        Raises: Usage for what trains nothing; Missing for a device that is not here.
        """
        from workloads.frameworks import several_gpus
        from workloads.harness import plan

        on = plan.devices(self.measuring.devices, machine, require_gpu=self.measuring.require_gpu)
        several_gpus.require(self._most_gpus(), machine)
        if self.grid is None:
            return self._predicted(on) if self.predictions else self._studied(on, len(machine.gpus))
        if "replicas" in self.grid.switches:
            libraries = self.grid.switches.get("keras_backend", [])
            on = several_gpus.devices(self.measuring.devices, on, libraries)
        return self.grid.rows(on, self.measuring.threads)

    def _most_gpus(self) -> int:
        """The largest number of GPUs that share a batch in one training."""
        from workloads.frameworks import studies

        if self.grid is not None:
            return max(map(int, self.grid.switches.get("replicas", ["1"])))
        return max(self.several_gpus.gpus, default=2 if studies.DATA_PARALLEL in self.studies else 1)

    def _studied(self, on: list[str], gpus: int) -> "list[Row]":
        """The rows of the studies, but for studies that time two trainings side by side, whose rows `measure` adds.

        on: devices, such as gpu:0. gpus: how many GPUs are here; with two, `all` includes the study of several GPUs.
        """
        from workloads.frameworks import studies

        rows = studies.rows(self.studies, on)
        if studies.DATA_PARALLEL in self.studies or ("all" in self.studies and gpus > 1):
            rows += self.several_gpus.rows(gpus)
        return rows

    def _predicted(self, on: list[str]) -> "list[Row]":
        """The trainings of saved predictions that are for these devices. A note on stderr counts the others.

        on: devices, such as gpu:0.

        Raises: Usage where all are for other devices, and for a model that is not known.
        """
        from analysis.predict import saved_predictions
        from workloads.frameworks import grid, studies
        from workloads.records import Row, distinct

        file, devices = self.file, ", ".join(on)
        others = Counter(p.settings.device for p in self.predictions if p.settings.device not in on)
        if others.total() == len(self.predictions):
            raise options.Usage(
                f"{file} has predictions for {', '.join(others)}; asked for: {devices}", tip=saved_predictions.MAKES
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
                raise options.Usage(f"{file}: {error}", tip=saved_predictions.MAKES) from error
            resident = predicted.settings.keras.residence == "resident"
            kernel = studies.RESIDENT if resident else studies.FIT
            rows.append(Row(kernel=kernel, problem=predicted.training, settings=predicted.settings))
        return distinct(rows)

    def refine(self, machine: "Machine", done: "list[Measurement]") -> "list[Row]":
        """The matrix products that the timed steps consist of, which show what a step is made of. Of a study there
        are none, as it has too many rows.

        done: the rows that have been timed so far.
        """
        return [] if self.grid is None else products(machine, done)

    def require_room(self, rows: "list[Row]", machine: "Machine") -> None:
        """Refuses nothing: only the process that builds a model knows how much memory it needs, and skips its row."""

    def require_models(self, rows: "list[Row]") -> None:
        """Builds the user's own models, so that one that cannot be built ends the command before it measures."""
        from workloads.frameworks import forecast

        forecast.build_models(rows)

    def dry_run(self, rows: "list[Row]", machine: "Machine") -> None:
        """Builds the user's own models, and prints the trainings and how long they take."""
        from workloads.frameworks import forecast
        from workloads.harness import plan

        forecast.build_models(rows)
        planned = forecast.forecast(rows, self.measuring, self.studies, machine)
        if self.measuring.format == "json":
            print(plan.plan_as_json(planned.rows, planned.largest_bytes, planned.seconds))
        else:
            print(*forecast.lines(planned, rigorous=self.measuring.rigorous), sep="\n")

    def measure(
        self,
        run: "Run",
        rows: "list[Row]",
        print_row: "Callable[[Measurement], None]" = print_no_row,
        processes: "Workers | None" = None,
    ) -> "Outcome":
        """Runs the trainings, those that share a process and its settings after each other, then their matrix products; then the
        studies that time two trainings side by side. Parameters as every measuring command's.

        Raises: Missing without TensorFlow, or when real data was asked for and cannot be had.
        """
        from workloads.frameworks import forecast, grid, studies
        from workloads.records import settings

        grid.require_keras({settings.checked_keras(row).keras_backend for row in rows} or {"tensorflow"})
        # The study of several GPUs goes case by case, so that a stopped run has whole cases; its two processes live together.
        in_order = rows if self.studies == (studies.DATA_PARALLEL,) else forecast.in_turns(rows)
        experiments = studies.experiments(self.studies)
        if not experiments:
            return self.sweep(run, in_order, print_row, processes)
        outcome = self.sweep(run, in_order, print_row, processes) if rows else None
        return self._side_by_side(experiments, outcome, run, print_row)

    def _side_by_side(
        self, names: list[str], outcome: "Outcome | None", run: "Run", print_row: "Callable[[Measurement], None]"
    ) -> "Outcome":
        """Measures studies that time two trainings side by side, each into its own file, within what is left of --stop-after.

        names: the studies. outcome: of what was measured before, None where nothing was. Returns all rows in one Outcome.
        """
        from workloads.frameworks import side_by_side

        begin_s = time.monotonic()
        measuring = self.measuring
        for name in names:
            if outcome is not None:
                measuring = dataclasses.replace(measuring, output=str(outcome.path.parent))
                if outcome.stopped:
                    outcome.left += len(side_by_side.rows(name, measuring, run.machine))
                    continue
                if self.measuring.stop_after_s:
                    left_s = self.measuring.stop_after_s - (time.monotonic() - begin_s)
                    measuring = dataclasses.replace(measuring, stop_after_s=max(1e-3, left_s))  # 0 would be no limit
            outcome = side_by_side.measure(name, measuring, run, print_row).after(outcome)
        assert outcome is not None, "no study was named"
        return outcome

    def table(self, machine: "Machine") -> "TrainingTable":
        """Prints a line for each training."""
        from workloads.tables.training_table import TrainingTable

        return TrainingTable(markdown=self.measuring.format == "md")

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints what the trainings took and who wins, then what a step is made of: with --verbose for each training, else where
        the parts add up to what the step took.
        """
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
        all_budgets = []
        if any(m.problem.op == "matmul" for m in done):
            all_budgets = budgets(profile.Profile(done))
        shown_budgets = [one for one in all_budgets if self.measuring.verbose or one.sound]
        about_steps = [budget.sentence(one) for one in shown_budgets]
        if len(shown_budgets) < len(all_budgets):
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
    """A sentence for each model that was not compiled by its user: the loss and the optimizer that were chosen for it."""
    by_model = {m.problem.model: m.notes["compiled"] for m in done if "compiled" in m.notes}
    return [f"{model}: {choice}." for model, choice in by_model.items()]


def _studies(flags: Namespace) -> list[str]:
    """The studies of --study by name, each once; [] where it is not typed.

    Raises: Usage for an unknown one, and for flags whose values a study sets itself.
    """
    from workloads.frameworks import several_gpus, studies
    from workloads.harness import plan

    names = plan.known("study", flags.study, (*studies.NAMES, "all"))
    if names:
        obeyed = several_gpus.TAKES if names == [studies.DATA_PARALLEL] else ()
        _refuse_training_flags(flags, "--study", obeyed=obeyed)
        options.refuse(flags, ["predicted"], "--study brings its own rows")
    return names


def _predictions(flags: Namespace) -> "list[Prediction]":
    """The predictions in the file of --predicted; [] where it is not typed.

    Raises: Usage for a file that holds none, and for flags of other trainings.
    """
    from analysis.predict import saved_predictions

    if flags.predicted is None or flags.study:
        return []
    saved = saved_predictions.load(flags.predicted)
    _refuse_training_flags(flags, "--predicted")
    return saved


def _refuse_training_flags(flags: Namespace, flag: str, *, obeyed: tuple[str, ...] = ()) -> None:
    """Raises Usage for flags that choose trainings where `flag` (--study or --predicted) brings its own trainings.

    obeyed: flags by name, such as batch, that go together with `flag`.
    """
    from workloads.records.settings import KNOWN

    names = [*_SHAPES, "jit", *KNOWN, *_WAYS]
    if flags.data == "synthetic":  # which it is where the flag is not typed
        names.remove("data")
    options.refuse(flags, [name for name in names if name not in obeyed], f"{flag} brings its own rows")


def _grid(flags: Namespace) -> "Grid":
    """The trainings in every combination of the typed flags: models, batches, epochs, libraries, options of Keras and TensorFlow.

    Raises: Usage for an unknown model, kind of training or option; Missing for a library that is named and is not here.
    """
    from workloads.frameworks import data, grid
    from workloads.frameworks.user_fit import script_flag
    from workloads.harness import plan

    backends, variants = options.words(flags.backends), options.words(flags.variants)
    kernels = grid.kernels(backends, variants)
    switches = grid.switches(vars(flags))
    if flags.script:
        names = [script_flag.training_name(flags.script, flags.fit)]
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


def _require_data(name: str, models: list[str]) -> None:
    """Raises Usage for data that do not go with the models.

    name: synthetic, real, or file.py:function of the user's, which gives the samples of the user's own models alone.
    """
    from workloads.records import model_files, settings

    if name in ("synthetic", "real"):
        return
    if not settings.is_user_model(name):
        raise options.unknown("value", name, ("synthetic", "real"), more=", file.py:function")
    model_files.require(name)
    built_in = [model for model in models if not settings.is_user_model(model)]
    if built_in:
        raise options.Usage(f"{built_in[0]} has its own data; --data {name} is for your model", wrong="--data")


def products(here: "Machine", done: "list[Measurement]") -> "list[Row]":
    """The rows of the matrix products, by the library of each device, that the timed training steps consist of.

    here: the machine. done: the rows that have been timed so far; products among them are left out.
    """
    from analysis.predict import budget
    from workloads.records import Row, Settings, distinct

    rows = []
    for m in done:
        if m.problem.op == "training" and m.ok:
            kernel = "matmul/cupy/cublas" if m.on_gpu else "matmul/numpy/blas"
            settings = Settings(device=m.device, threads=None if m.on_gpu else m.threads or here.cores)
            rows += [Row(kernel=kernel, problem=problem, settings=settings) for problem in budget.gemms(m)]
    return distinct(rows, done)


parser = TrainingPlan.parser
parse = TrainingPlan.parse
main = TrainingPlan.main
run = TrainingPlan.run

if __name__ == "__main__":
    sys.exit(main())
