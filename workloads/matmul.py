"""Times matrix products on the CPU and the GPU and says from which size the GPU wins, in which form, and why."""

import sys
from argparse import Namespace

from workloads import options
from workloads.session import Workload, refined, say

QUESTION = "From which size on is a GPU faster at matrix products?"
EXAMPLES = (
    "python -m workloads.matmul --sizes 64:4096:x2",
    "python -m workloads.matmul --model cifar10-cnn --batch 1:1024:x4",
)
LONG = """C = A B on the CPU (NumPy's BLAS, Numba) and the GPU (cuBLAS through CuPy): resident on the device and with each
kind of copy, under measured roofs: square products, any shapes, or those of a network's dense layers. Ends with the
crossover in words."""
FLAGS = f"""
--sizes N ...              square sizes: 256 512 | 1k | 64:8192:x2 | 512:4096:+512 | 2^6:2^13 (default 64:2048:x2)
--shapes MxNxK ...         products of other shapes, such as 4096x1024x512
--model NAME               the products of this network's dense layers in a training step
--batch N ...              products in one launch: 16 256 | 1:4096:x4 (1); samples a step of --model (32)
--direction WAY ...        of --model: fprop dgrad wgrad all (fprop)
--dtypes TYPE ... =float32  float64 float32 tf32 float16 bfloat16 float8_e4m3 (default float32)
--layouts LAYOUT ...       which operand is stored transposed: nn nt tn (nn)
--epilogue bias-relu       max(A B + bias, 0) in one call, a dense layer's forward step (the product alone)
--modes MODE ...           copy modes on a GPU (default: {" ".join(options.MODES)})
--cache STATE ... =warm    warm cold: before each call (warm)
--no-refine                only the sizes named, none added around a crossover
--ladder                   the teaching rungs too, from three plain loops upward"""


def works(args: Namespace) -> list:
    """The products of the model's dense layers, in every batch and precision asked for; [] without a model.

    Raises: Usage.
    """
    from msgspec.structs import replace

    from workloads.frameworks import grid

    if args.model is None:
        options.refuse(args, ["direction"], "layers of a --model have directions")
        return []
    options.refuse(args, ("sizes", "shapes", "layouts"), "the layers of a --model have their own shapes")
    options.refuse(args, ["epilogue"], "the layers of a --model are timed as plain products")
    return [replace(w, problem=_as_float8(w.problem)) for w in grid.layers(args, "dense")]


def _as_float8(problem):
    """A float8 product in the one form that libraries have: B stored transposed, C in bfloat16. Others as they are."""
    from msgspec.structs import replace

    if problem.dtype != "float8_e4m3":
        return problem
    return replace(problem, layout="nt", out="bfloat16")


def problems(args: Namespace) -> list:
    """The products asked for, each once, ordered by count in one launch, shape, layout and precision; those of a --model by
    batch, layer, direction and precision.

    Raises: Usage for a word that is no size, shape or dtype.
    """
    from kernels.problems import Matmul
    from workloads.harness import plan

    if found := works(args):
        return list(dict.fromkeys(w.problem for w in found))
    squares = args.sizes or ([] if args.shapes else ["64:2048:x2"])
    shapes = [(n, n, n) for n in options.sizes(squares)] if squares else []
    for text in plan.shapes(args.shapes):
        m, n, k = plan.shape(text)
        shapes.append((m, n, k))
    layouts = options.words(args.layouts) or ["nn"]
    epilogue = plan.known("epilogue", args.epilogue and [args.epilogue], ["bias-relu"])
    if epilogue:
        options.refuse(args, ["batch"], "an epilogue is of one product a call")
    with options.usage_errors("python -m workloads.matmul --sizes 1024 --layouts nn nt tn"):
        made = [
            Matmul(m, n, k, dtype, math, layout=way, batch=count, epilogue="".join(epilogue))
            for count in plan.counts(args.batch, 1)
            for m, n, k in shapes
            for way in layouts
            for dtype, math in plan.precisions(args)
        ]
    return list(dict.fromkeys(map(_as_float8, made)))


def rows(args: Namespace, here) -> list:
    """The rows of the sweep on this machine: the roofs first, then size by size every kernel in every setting.

    Raises: Usage, Missing.
    """
    from workloads.harness import plan

    return plan.under_roofs("matmul", problems(args), args, here)


def refine(args: Namespace, here, done: list) -> list:
    """The rows still needed to pin down each crossover of the square sizes, or in batch of the products of a --model's layers."""
    from analysis.crossover import crossover
    from analysis.text import crossings

    forms = [crossover.LATENCY, *crossover.COPIES]
    dense = crossover.layer_crossovers(done, "matmul", forms=forms, machine=here)
    if args.model is not None:
        found = [a for a in dense if a.family.varies == "batch"]
    else:
        pairs = crossover.forms_of(m for m in done if m.problem.op == "matmul")
        found = [a for pair in pairs for a in crossover.crossovers(done, forms, *pair, machine=here)]
        found += [a for a in dense if crossings.at_once(a.family)]
    return refined(done, found, "matmul", _size)


def _size(p) -> tuple:
    return (p.count, p.n) if p.m == p.n == p.k else (p.count, 0, p.layout, p.m, p.n, p.k)


def table(args: Namespace, here):
    """Prints a line a product, its layers' names first where a model is asked for."""
    from workloads import tables
    from workloads.harness import plan

    found = works(args)
    named = tables.layer_names(found, directions=True) if found else None
    return tables.Matmuls(here, named, problems(args), "cold" in plan.caches(args), args.format == "md")


def answer(args: Namespace, outcome) -> None:
    """The crossover in words: of square products called by themselves, then of layers, frameworks and cold caches."""
    from analysis.crossover import crossover
    from analysis.text import answers, crossings, summary

    squares: tuple = ()
    done, works_ = outcome.measurements, works(args)
    if works_:
        said = answers.together(works_, done, f"products of the dense layers of {args.model}")
    elif not any(m.on_gpu for m in done):
        said = summary.answer(done, outcome.run.machine)
    else:
        squares = crossover.crossovers(done, machine=outcome.run.machine)
        said = summary.products(done, squares, (), outcome.run.machine) if squares else []
    more = crossover.layer_crossovers(done, "matmul", machine=outcome.run.machine)
    more = [a for a in more if works_ or a.family.varies == "n"]
    said += [line for line in answers.lines(more, done, outcome.run.machine) if line not in said]
    said += crossings.noise_sentences([*squares, *more], outcome.run.machine)
    say(said, args, outcome)


COMMAND = "matmul", QUESTION, LONG, EXAMPLES, "sizes model dtypes", FLAGS
WORKLOAD = Workload(*COMMAND, rows, table, answer, refine)
main, parser, run = WORKLOAD.entry_points

if __name__ == "__main__":
    sys.exit(main())
