"""Times matrix products on the CPU and the GPU and says from which size the GPU wins, in which form, and why."""

import dataclasses
import itertools
import re
import shlex
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from workloads import options, printing, shared_flags, terminal
from workloads.command_line.parsing import CommandParser
from workloads.session import MeasuringPlan, print_ladder, rows_around_crossovers
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from analysis.analysis import Analysis
    from analysis.crossover.answer import Answer
    from kernels.networks import Work
    from kernels.problems import Matmul
    from workloads.harness.plan import CallForms
    from workloads.harness.sweep import Outcome
    from workloads.records import Machine, Measurement, Row

QUESTION = "From which size on is a GPU faster at matrix products?"
EXAMPLES = (
    "python -m workloads.matmul --sizes 64:4096:x2",
    "python -m workloads.matmul --model cifar10-cnn --batch 1:1024:x4",
)
LONG = """C = A B on the CPU (NumPy's BLAS, Numba) and the GPU (cuBLAS through CuPy): resident on the device and with each
kind of copy, under measured roofs: square products, any shapes, or those of a network's dense layers. Ends with the
crossover in words."""

COMMAND = CommandLine(
    name="matmul",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--sizes", "--model", "--dtypes"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatmulPlan(MeasuringPlan):
    """The products to time."""

    command_line = COMMAND
    #: The network whose dense layers are timed; "" of products by size or shape.
    model: str
    #: The products of these layers, by batch, layer, direction and precision; () of products by size or shape.
    layers: "tuple[Work, ...]"
    #: The products, each once: those of the layers, else by count in one launch, shape, layout and precision.
    problems: "tuple[Matmul, ...]"
    #: Copy modes, states of the caches, and teaching rungs.
    forms: "CallForms"
    #: Whether sizes are added around a crossover.
    refines: bool

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        """Adds the flags that this command alone takes."""
        parser.add_argument(
            "--sizes",
            metavar="N",
            nargs="+",
            action="extend",
            help="square sizes: 256 512 | 1k | 64:8192:x2 | 512:4096:+512 | 2^6:2^13 (default 64:2048:x2)",
        )
        parser.add_argument(
            "--shapes",
            metavar="MxNxK",
            nargs="+",
            action="extend",
            help="products of other shapes, such as 4096x1024x512",
        )
        parser.add_argument(
            "--model", metavar="NAME", help="the products of this network's dense layers in a training step"
        )
        parser.add_argument(
            "--batch",
            metavar="N",
            nargs="+",
            action="extend",
            help="products in one launch: 16 256 | 1:4096:x4 (1); samples a step of --model (32)",
        )
        parser.add_argument(
            "--direction", metavar="WAY", nargs="+", action="extend", help="of --model: fprop dgrad wgrad all (fprop)"
        )
        parser.add_argument(
            "--dtypes",
            metavar="TYPE",
            nargs="+",
            action="extend",
            default=["float32"],
            help="float64 float32 tf32 float16 bfloat16 float8_e4m3 (default float32)",
        )
        parser.add_argument(
            "--layouts",
            metavar="LAYOUT",
            nargs="+",
            action="extend",
            help="which operand is stored transposed: nn nt tn (nn)",
        )
        parser.add_argument(
            "--epilogue",
            metavar="bias-relu",
            help="max(A B + bias, 0) in one call, a dense layer's forward step (the product alone)",
        )
        parser.add_argument(
            "--modes",
            metavar="MODE",
            nargs="+",
            action="extend",
            help=f"copy modes on a GPU (default: {' '.join(options.MODES)})",
        )
        parser.add_argument(
            "--cache",
            metavar="STATE",
            nargs="+",
            action="extend",
            default=["warm"],
            help="warm cold: before each call (warm)",
        )
        parser.add_argument(
            "--no-refine", action="store_true", help="only the sizes named, none added around a crossover"
        )
        parser.add_argument(
            "--ladder", action="store_true", help="the teaching rungs too, from three plain loops upward"
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "MatmulPlan":
        """The plan of the typed flags.

        Raises: Usage for a word that is no size, shape, dtype, mode or model.
        """
        from workloads.harness import plan

        layers = _layers(flags)
        problems: list[Any] = [layer.problem for layer in layers] if layers else _products(flags)
        return cls(
            measuring=shared_flags.measuring(flags),
            model=flags.model or "",
            layers=tuple(layers),
            problems=tuple(dict.fromkeys(problems)),  # layers may have the same product
            forms=plan.call_forms(flags.modes, flags.cache, ladder=flags.ladder),
            refines=not flags.no_refine,
        )

    def rows(self, machine: "Machine") -> "list[Row]":
        """The roofs first, then product by product every kernel in every form."""
        from workloads.harness import plan

        return plan.under_roofs("matmul", self.problems, forms=self.forms, measuring=self.measuring, here=machine)

    def refine(self, machine: "Machine", done: "list[Measurement]") -> "list[Row]":
        """The rows to add so that the size, or the batch of a layer, from which the GPU wins is known more closely.

        done: the rows that have been timed so far.
        """
        from analysis.crossover import crossover
        from analysis.crossover.forms import COPIES, LATENCY
        from analysis.text import crossings

        if not self.refines:
            return []
        forms = [LATENCY, *COPIES]
        layer_answers = crossover.layer_crossovers(done, "matmul", forms=forms, machine=machine)
        if self.layers:
            answers = [answer for answer in layer_answers if answer.family.varies == "batch"]
        else:
            answers = []
            for pair in crossover.forms_of(m for m in done if m.problem.op == "matmul"):
                answers += crossover.crossovers(done, forms, *pair, machine=machine)
            answers += [answer for answer in layer_answers if crossings.at_once(answer.family)]
        return rows_around_crossovers(done, answers, op="matmul", problem_order=_size_order)

    def table(self, machine: "Machine") -> printing.Printer:
        """A line a product, its layers' names first where those of a model are timed."""
        from workloads.tables import problem_tables

        return problem_tables.Matmuls(
            machine,
            names=problem_tables.layer_names(self.layers, directions=True) if self.layers else None,
            planned=self.problems,
            cold="cold" in self.forms.caches,
            markdown=self.measuring.format == "md",
        )

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints from which size the GPU wins: of square products, then of a model's layers, of frameworks and with cold
        caches."""
        from analysis.crossover import crossover
        from analysis.text import answers, crossings, summary

        done, machine = analysis.rows, analysis.machine
        squares: tuple[Answer, ...] = ()
        if self.layers:
            lines = answers.together(self.layers, done, f"products of the dense layers of {self.model}")
        elif not any(m.on_gpu for m in done):
            lines = summary.answer(analysis)
        else:
            squares = analysis.crossovers
            lines = summary.products(analysis) if squares else []
        others = crossover.layer_crossovers(done, "matmul", machine=machine)
        if not self.layers:
            others = [answer for answer in others if answer.family.varies == "n"]
        any_timed = any(answer.kind != "no-gpu" for answer in others)
        if self.layers or any_timed or not lines:  # else the sentences on square products say why there is no crossover
            lines += answers.lines(others, done, machine)
        lines += crossings.noise_sentences([*squares, *others], machine)
        if self.forms.ladder:
            print_ladder(analysis, "matmul")
        if lines:
            terminal.show(["", *lines])


def _layers(flags: Namespace) -> "list[Work]":
    """The products of the dense layers of --model, in every batch and precision; [] without a model.

    Raises: Usage for an unknown model or direction, and for flags that layers do not take.
    """
    from msgspec.structs import replace

    from workloads.frameworks import grid
    from workloads.harness import plan

    if flags.model is None:
        options.refuse(flags, ["direction"], "layers of a --model have directions")
        return []
    options.refuse(flags, ("sizes", "shapes", "layouts"), "the layers of a --model have their own shapes")
    options.refuse(flags, ["epilogue"], "the layers of a --model are timed as plain products")
    layers: list[Any] = grid.layers(
        flags.model,
        "dense",
        directions=plan.directions(flags.direction),
        batches=plan.counts(flags.batch, grid.BATCH),
        precisions=plan.precisions(flags.dtypes),
    )
    return [replace(layer, problem=_as_float8(layer.problem)) for layer in layers]


def _products(flags: Namespace) -> "list[Matmul]":
    """The products of --sizes and --shapes in every combination of --batch, --layouts and --dtypes.

    Raises: Usage for a word that is no size, shape or dtype.
    """
    from kernels.problems import Matmul
    from workloads.harness import plan

    _refuse_shapes_as_sizes(flags)
    squares = flags.sizes or ([] if flags.shapes else ["64:2048:x2"])
    shapes = [(n, n, n) for n in options.sizes(squares)] if squares else []
    for text in plan.shapes(flags.shapes):
        m, n, k = plan.shape(text)
        shapes.append((m, n, k))
    counts = plan.counts(flags.batch, 1)  # of products in one launch
    layouts = options.words(flags.layouts) or ["nn"]
    epilogue = ""
    if flags.epilogue:
        (epilogue,) = plan.known("epilogue", [flags.epilogue], ["bias-relu"])
        options.refuse(flags, ["batch"], "an epilogue is of one product a call")
    products = []
    with options.usage_errors(tip="python -m workloads.matmul --sizes 1024 --layouts nn nt tn"):
        combinations = itertools.product(counts, shapes, layouts, plan.precisions(flags.dtypes))
        for count, (m, n, k), layout, (dtype, math) in combinations:
            product = Matmul(m=m, n=n, k=k, dtype=dtype, math=math, layout=layout, batch=count, epilogue=epilogue)
            products.append(_as_float8(product))
    return products


def _refuse_shapes_as_sizes(flags: Namespace) -> None:
    """Raises Usage for --sizes that are shapes, such as 1000x500x200; a square one, 256x256, is the size 256."""
    typed_sizes = " ".join(flags.sizes or ()).lower()
    with_x = "x".join(re.split(r"(?<=\w)\*(?=\w)", typed_sizes))  # 1000*500 is typed for 1000x500
    words = re.split("[ ,]+", with_x)
    shapes = [word for word in words if re.fullmatch(r"\d+[km]?(?:x\d+[km]?){1,2}", word)]
    oblong = [word for word in shapes if len(set(word.split("x"))) > 1]
    if not oblong:
        return
    sizes = [word for word in words if word not in oblong]
    right = ["--shapes", *[_with_three_numbers(word) for word in oblong], *(flags.shapes or ())]
    if sizes:
        right += ["--sizes", *sizes]
    message = f"{oblong[0]} is no size of a square product; --shapes takes MxNxK"
    error = options.Usage(message, wrong="--sizes --shapes", right=shlex.join(right))
    error.is_example = any(word.count("x") == 1 for word in oblong)  # whose third number nobody has typed
    raise error


def _with_three_numbers(shape: str) -> str:
    """MxNxK; the last number again where only two are there."""
    return shape if shape.count("x") == 2 else f"{shape}x{shape.rpartition('x')[2]}"


def _as_float8(problem: "Matmul") -> "Matmul":
    """A float8 product in the one form that libraries have: B stored transposed, C in bfloat16. Others as they are."""
    from msgspec.structs import replace

    if problem.dtype != "float8_e4m3":
        return problem
    return replace(problem, layout="nt", out="bfloat16")


def _size_order(problem: "Matmul") -> tuple:
    """A sort key: products in one launch, then the size of a square product; other shapes by layout and sizes, before squares."""
    if problem.m == problem.n == problem.k:
        return problem.count, problem.n
    return problem.count, 0, problem.layout, problem.m, problem.n, problem.k


parser = MatmulPlan.parser
parse = MatmulPlan.parse
main = MatmulPlan.main
run = MatmulPlan.run

if __name__ == "__main__":
    sys.exit(main())
