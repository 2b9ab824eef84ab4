"""Times STREAM's element-wise passes and those of a training step: how fast the memory is, on the CPU and the GPU."""

import sys
from argparse import Namespace

from analysis import units
from workloads import options
from workloads.session import Workload

QUESTION = "How fast is the memory of the CPU and of the GPU?"
EXAMPLES = (
    "python -m workloads.stream --sizes 256MiB --operations triad",
    "python -m workloads.stream --sizes 8KiB:1GiB:x4 --fast",
)
# kernels.problems.Stream's, which is too heavy to import for --help; a test holds them together.
OPERATIONS = "copy scale add triad read relu relu_grad dropout maxpool maxpool_grad batchnorm batchnorm_grad sgd adam"
LONG = """Memory bandwidth by STREAM's copy, scale, add and triad on NumPy, Numba and CuPy, and by the passes of a training
step on TensorFlow (--backends tensorflow)."""
FLAGS = f"""
--sizes BYTES ... =256MiB   bytes of all arrays together, like 64k, 64kb or 64KiB (256MiB)
--operations OP ... =triad  {OPERATIONS} (default triad)
--dtypes TYPE ... =float64  float32 float64 (default float64)"""


def rows(args: Namespace, here) -> list:
    """The rows of the sweep, by size.

    Raises: Usage for an unknown operation, dtype or size, and where none of the kernels has any of the operations.
    """
    from kernels.problems import Stream
    from workloads.harness import plan
    from workloads.records import Row

    with options.usage_errors():
        problems = [
            Stream(operation, size, dtype)
            for size in options.sizes(args.sizes, options.BYTES)
            for operation in options.words(args.operations)
            for dtype in options.words(args.dtypes)
        ]
    on = plan.devices(args, here)
    kernels = plan.kernels("stream", args, on, on_request=("tensorflow",))
    kinds = {(p.operation, p.dtype): Stream(p.operation, 1 << 20, p.dtype) for p in problems}
    refused = {(k.name, *kind): plan.refusal(k, small) for k in kernels for kind, small in kinds.items()}
    found = [
        Row(k.name, p, s)
        for p in problems
        for k in kernels
        if not refused[k.name, p.operation, p.dtype]
        for s in plan.settings(k, on, args)
    ]
    if not found:
        tip = f"python -m workloads.stream --operations {' '.join(args.operations)} --backends tensorflow"
        raise options.Usage("; ".join(dict.fromkeys(filter(None, refused.values()))) or "no kernel is left", tip)
    return found


def answer(args: Namespace, outcome) -> None:
    """Prints the bytes/s on the memory bus with write-allocate: a cache reads each line before it is written. STREAM counts
    only the bytes that a program asks for."""
    from analysis import stats
    from analysis.roofline.roofs import last_cache_bytes

    rows = [m for m in outcome.measurements if m.kernel == "stream/numba/loop" and stats.seconds_of(m)]
    beyond = (m for m in rows if m.problem.footprint_bytes > last_cache_bytes(outcome.run.machine, "cpu"))
    largest = stats.best_by(
        beyond, lambda m: (m.problem.operation, m.problem.dtype, m.threads), lambda m: -m.problem.nbytes
    )
    for (operation, dtype, threads), m in largest.items():
        problem, seconds = m.problem, stats.call_s(m)
        read, written, _ = problem.WEIGHTS[operation]
        if written:
            counted = problem.bytes_moved / seconds
            what = f"{operation} of {dtype}, {units.size(problem.nbytes)}, {units.count(threads, 'thread')}"
            bus = units.bytes_rate(counted * (read + 2 * written) / (read + written))
            print(
                f"with write-allocate: {what}: {bus} on the bus, when each line of the output is read before it is written; "
                f"STREAM counts {units.bytes_rate(counted)}"
            )


WORKLOAD = Workload(
    "stream", QUESTION, LONG, EXAMPLES, "sizes operations", FLAGS, rows, answer=answer, answers_in_suite=True
)
main, parser, run = WORKLOAD.entry_points

if __name__ == "__main__":
    sys.exit(main())
