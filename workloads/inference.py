"""Times what a Keras model needs to answer samples, one by one and in batches, on the CPU and the GPU."""

import dataclasses
import itertools
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, NamedTuple

from workloads import help_screen, options, shared_flags
from workloads.command_line.parsing import CommandParser
from workloads.printing import Lines, number, scaled, timed, where
from workloads.session import MeasuringPlan, print_no_row, unfinished
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analysis.analysis import Analysis
    from workloads.harness.sweep import Outcome, Workers
    from workloads.records import Machine, Measurement, Row, Run

QUESTION = "Does a GPU answer sooner once a model is trained?"
EXAMPLE = "python -m workloads.inference --model cifar10-cnn --batch 1:256:x4"
EXAMPLES = (EXAMPLE, "python -m workloads.inference --model file.py:function --batch 1 32")
LONG = """Answers batches of samples by model.predict and by a tf.function of the model, on the CPU and the GPU: with the samples
on the device already, and array to array with both copies; single requests with several in flight; joules a sample where
a counter is readable. It ends with samples a second and with the batch from which the GPU wins."""
SEEDS = ("cifar10-cnn", "cifar10-mlp", "fashion-mlp", "mnist-cnn", "peaks", "inception-v3")
VARIANTS = ("predict", "call", "serve")
MODES = ("resident", "roundtrip")
BATCHES, IN_FLIGHT = "1:256:x4", ("1", "4", "16")

COMMAND = CommandLine(
    name="inference",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--model", "--batch", "--modes"),
)


class Call(NamedTuple):
    """One way to have samples answered."""

    #: predict, call or serve.
    variant: str
    #: resident or roundtrip.
    mode: str
    #: Samples a call.
    batch: int
    #: Single requests at a time; 1 where one waits for the other.
    in_flight: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferencePlan(MeasuringPlan):
    """The answers to time."""

    command_line = COMMAND
    #: Models by the names that rows have.
    models: tuple[str, ...]
    #: The calls, batch by batch every way to answer, then the single requests.
    calls: tuple[Call, ...]
    #: Switch -> the texts that it takes in turn.
    switches: dict[str, list[str]]
    #: synthetic or real.
    data: str
    #: Whether batches are added around the one from which the GPU wins.
    refines: bool

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        """Adds the flags that this command alone takes. Of a help in two parts, -h shows the first and --help both."""
        parser.add_argument(
            "--model",
            metavar="NAME",
            nargs="+",
            action="extend",
            default=["cifar10-cnn"],
            help=help_screen.help_text(
                "the models that answer, also file.py:function and file.keras",
                rest="; `seeds`: the articles' and inception-v3 (cifar10-cnn)",
            ),
        )
        parser.add_argument(
            "--batch", metavar="N", nargs="+", action="extend", default=[BATCHES], help=f"samples a call ({BATCHES})"
        )
        parser.add_argument(
            "--modes",
            metavar="MODE",
            nargs="+",
            action="extend",
            default=list(MODES),
            help="resident (samples and answers stay on the device) roundtrip (array to array) (both)",
        )
        parser.add_argument(
            "--in-flight",
            metavar="N",
            nargs="+",
            action="extend",
            help=f"so many single requests at a time, by the variant `serve` ({' '.join(IN_FLIGHT)})",
        )
        parser.add_argument(
            "--jit",
            metavar="WORD",
            nargs="+",
            action="extend",
            default=["auto"],
            help="jit_compile: auto on off (auto: Keras's choice)",
        )
        parser.add_argument(
            "--onednn",
            metavar="WORD",
            nargs="+",
            action="extend",
            help="TF_ENABLE_ONEDNN_OPTS of CPU rows: on off (TensorFlow's own choice)",
        )
        parser.add_argument(
            "--precision",
            metavar="NAME",
            nargs="+",
            action="extend",
            default=["float32"],
            help="Keras's dtype policy: float32 mixed_bfloat16 mixed_float16 (float32)",
        )
        parser.add_argument(
            "--data",
            choices=("synthetic", "real"),
            default="synthetic",
            help="made-up samples of the same shape, or the real ones, downloaded (synthetic)",
        )
        parser.add_argument(
            "--no-refine", action="store_true", help="only the batches named, none added around a crossover"
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "InferencePlan":
        """The plan of the typed flags.

        Raises: Usage for an unknown model, variant, mode or switch.
        """
        from workloads.frameworks import grid
        from workloads.harness import plan

        plan.known("backend", flags.backends, ("keras",))  # refuses others
        calls = _calls(flags)
        switches = grid.switches(vars(flags))
        switches.pop("in_flight", None)  # it is a part of the calls
        return cls(
            measuring=shared_flags.measuring(flags),
            models=tuple(grid.models(_model_names(flags), {})),
            calls=tuple(calls),
            switches=switches,
            data=flags.data,
            refines=not flags.no_refine,
        )

    def rows(self, machine: "Machine") -> "list[Row]":
        """Every call of every model, in every combination of the options that have an effect on the device. Devices take
        turns, so that a run that ends early has both sides of its rows.

        Raises: Missing for a device that is not here.
        """
        from workloads.frameworks import forecast, grid
        from workloads.harness import plan

        rows: list[Row] = []
        for device in plan.devices(self.measuring.devices, machine, require_gpu=self.measuring.require_gpu):
            effective = [
                switch
                for switch in self.switches
                if grid.applies(switch, device, "inference/keras/call", regression=False)
            ]
            combinations = itertools.product(*(self.switches[switch] for switch in effective))
            thread_counts: Sequence[int | None] = [None]  # Keras's own choice
            if device == "cpu" and self.measuring.threads:
                thread_counts = self.measuring.threads
            for threads, model, texts in itertools.product(thread_counts, self.models, combinations):
                chosen = dict(zip(effective, texts, strict=True))
                for call in self.calls:
                    rows.append(self._row(call, model=model, device=device, threads=threads, switches=chosen))
        return forecast.in_turns(rows)

    def _row(self, call: Call, *, model: str, device: str, threads: int | None, switches: dict[str, str]) -> "Row":
        """The row of a call on a device. threads: None for Keras's own choice. switches: option -> its text, such as
        {"jit_compile": "on"}."""
        from kernels.problems import Inference
        from workloads.records import Row, Settings, settings

        switches = {"data": self.data, **switches}
        if call.variant == "serve":
            switches["in_flight"] = str(call.in_flight)
        row_settings = Settings(
            device=device, threads=threads, mode=call.mode, switches=settings.without_defaults(switches)
        )
        return Row(
            kernel=f"inference/keras/{call.variant}",
            problem=Inference(model=model, batch=call.batch),
            settings=row_settings,
        )

    def refine(self, machine: "Machine", done: "list[Measurement]") -> "list[Row]":
        """The rows to add so that the batch from which the GPU wins is known more closely.

        done: the rows that have been timed so far.
        """
        from msgspec.structs import replace

        from analysis.training import inference
        from workloads.records import distinct

        if not self.refines:
            return []
        wanted = [replace(m.row, problem=replace(m.problem, batch=batch)) for m, batch in inference.wanted(done)]
        return sorted(distinct(wanted, done), key=lambda row: (row.problem.model, row.problem.batch, row.device))

    def require_room(self, rows: "list[Row]", machine: "Machine") -> None:
        """Refuses nothing: only the process that builds a model knows how much memory it needs, and skips its row."""

    def require_models(self, rows: "list[Row]") -> None:
        """Builds the user's own models, so that one that cannot be built ends the command before it measures."""
        from workloads.frameworks import forecast

        forecast.build_models(rows)

    def dry_run(self, rows: "list[Row]", machine: "Machine") -> None:
        """Builds the user's own models, and prints the rows and how long they take."""
        from workloads.frameworks import forecast

        forecast.build_models(rows)
        super().dry_run(rows, machine)

    def measure(
        self,
        run: "Run",
        rows: "list[Row]",
        print_row: "Callable[[Measurement], None]" = print_no_row,
        processes: "Workers | None" = None,
    ) -> "Outcome":
        """As every measuring command's.

        Raises: Missing without TensorFlow.
        """
        from workloads.frameworks import grid

        grid.require_keras()
        return self.sweep(run, rows, print_row, processes)

    def table(self, machine: "Machine") -> "InferenceTable":
        return InferenceTable(markdown=self.measuring.format == "md")

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints samples a second, and the batch from which the GPU wins."""
        from analysis.text import inference

        lines = unfinished(outcome) + inference.lines(analysis.rows, analysis.machine)
        if lines:
            print("", *lines, sep="\n")


def _model_names(flags: Namespace) -> list[str]:
    """The models of --model; `seeds` stands for those of the articles and one more."""
    names: list[str] = []
    for word in options.words(flags.model):
        if word in ("seed", "seeds"):
            names += SEEDS
        else:
            names.append(word)
    return names


def _calls(flags: Namespace) -> list[Call]:
    """The calls of the typed flags: for each batch model.predict and model(), then the single requests of the variant `serve`.

    Raises: Usage for an unknown variant or mode, for no size, and for predict without a round trip.
    """
    from workloads.harness import plan

    variants = plan.known("variant", flags.variants, VARIANTS)
    if not variants:
        variants = [variant for variant in VARIANTS if variant != "serve" or flags.in_flight]
    named_modes = plan.known("mode", flags.modes, MODES)
    modes = {"call": named_modes, "predict": [mode for mode in named_modes if mode == "roundtrip"]}
    if variants == ["predict"] and not modes["predict"]:
        raise options.Usage(
            "predict answers arrays with arrays: it has no resident mode",
            tip="python -m workloads.inference --variants predict --modes roundtrip",
        )
    calls: list[Call] = []
    for batch in options.sizes(flags.batch):
        for variant in variants:
            calls += [Call(variant=variant, mode=mode, batch=batch) for mode in modes.get(variant, ())]
    if "serve" in variants:
        counts = options.sizes(flags.in_flight or IN_FLIGHT)
        calls += [Call(variant="serve", mode="roundtrip", batch=1, in_flight=count) for count in counts]
    return calls


class InferenceTable(Lines):
    """Prints a line for each row: the call, its device, milliseconds a call, samples a second and joules a sample."""

    HEAD = (
        "model 12< | batch 5 | call 7< | mode 9< | device 9< | ms/call 8 | ±% 4 | queued ms 9 | samples/s 9 | "
        "J/sample 8 | first call s 12 | notes 5<"
    )
    LEAST = "±% | first call s | J/sample | queued ms | notes"

    def wanted(self, m: "Measurement") -> bool:
        """Whether a row has a line: those of this command that were not skipped."""
        return m.problem.op == "inference" and super().wanted(m)

    def cells(self, m: "Measurement") -> list[str]:
        """The texts of a row's line, in the order of HEAD."""
        from analysis.stats import median_of

        s = m.settings
        start = [m.problem.model, str(m.problem.batch), m.variant, s.mode, where(m)]
        first = number(m.phases_s.get("first_call"))
        notes = [f"{name}={text}" for name, text in s.switches.items() if name not in ("data", "jit_compile")]
        if not m.ok:
            return [*start, m.status, "-", "-", "-", "-", first, " ".join([*notes, m.reason])]
        waited = median_of(m.on("host-latency"))  # of a call that is waited for
        queued_samples = m.on("host-throughput")
        queued = median_of(queued_samples) if queued_samples else None  # of one of many calls in a row
        best_s = queued.value if queued else waited.value
        notes = ["jit compiled" if m.values.get("jit_compile") else "op by op", *notes, *m.flags]
        return [
            *start,
            *timed(waited, 1e3),
            scaled(queued, 1e3),
            number(m.problem.batch / best_s),
            number(m.values.get("joules_per_sample")),
            first,
            " ".join(notes),
        ]


parser = InferencePlan.parser
parse = InferencePlan.parse
main = InferencePlan.main
run = InferencePlan.run

if __name__ == "__main__":
    sys.exit(main())
