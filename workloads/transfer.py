"""Times copies between host and device, and on the device: what a call costs, and what its bytes do."""

import sys
from argparse import Namespace

from analysis import units
from analysis.table import shown
from workloads import options
from workloads.printing import Lines, number, scaled, timed
from workloads.session import Workload

QUESTION = "What does it cost to copy data to a GPU and back?"
EXAMPLE = "python -m workloads.transfer --sizes 4KiB:256MiB:x4 --fast"
EXAMPLES = (EXAMPLE, "python -m workloads.transfer --study small-dataset")
LONG = """Copies between host and device, and on the device: latency, bandwidth, what enqueueing one costs, and how well copies
hide behind kernels."""
SIZES = "4B:1GiB:x4"
# Managed memory is measured only when named: the driver moves it at any time, and needs it twice meanwhile.
HOST_MEMORIES = ("pageable", "pinned", "write-combined", "registered")
# The ways of the study, as people copy batches, and the host memories that each takes.
STUDY = {"array": ("pageable", "pinned"), **dict.fromkeys(("asarray", "staged", "constant", "dataset"), ("pageable",))}
_STUDY_HAS = ("sizes", "directions", "host_memory", "overlap")  # flags that a study has its own of
FEEDING = "feeding"
FLAGS = f"""
--sizes BYTES ...       bytes of a copy, each way, like 64k, 64kb or 64KiB ({SIZES})
--directions WAY ...    h2d d2h d2d both (all four)
--host-memory KIND ...  {" ".join(HOST_MEMORIES)} (these four), managed (only when named; 1 GiB at most)
--overlap [BYTES] =256MiB  also a copy beside a kernel of its length, alone and overlapped (256MiB)
--chunks N ... =32      pieces of an overlapped copy (32)
--streams N ... =1,2,4  streams they share (1 2 4)
--study {{small-dataset,feeding}}  instead of --sizes: the copies of the articles' data sets and batches, by CuPy and by
                         TensorFlow; or what it takes to get a batch into Keras's training step, by every way, on CPU and GPU
--dtypes TYPE ...       of what is fed by --study feeding: float32, uint8, float64 (all three)"""


def problems(args: Namespace) -> list:
    """The copies asked for: way by way, then by size; those with a kernel beside them last.

    Raises: Usage for a word that is no size, direction or host memory, and for what cannot be copied.
    """
    from kernels.problems import Transfer

    if args.study:
        from analysis.crossover import transfer_study

        options.refuse(args, _STUDY_HAS, "--study brings its own rows")
        return [Transfer("h2d", n, memory) for memory in ("pageable", "pinned") for n in transfer_study.sizes()]
    directions = options.words(args.directions) or list(Transfer.DIRECTIONS)
    memories = options.words(args.host_memory) or list(HOST_MEMORIES)
    sizes = options.sizes(args.sizes or [SIZES], options.BYTES)
    with options.usage_errors():
        ways = [(d, m) for d in directions for m in ([""] if d == "d2d" else memories)]
        made = [Transfer(d, n, m) for d, m in ways for n in sizes]
        if args.overlap:
            made += [
                Transfer("h2d", options.number(args.overlap, options.BYTES), "pinned", compute, chunks, streams)
                for compute in Transfer.COMPUTES
                for chunks in options.sizes(args.chunks)
                for streams in options.sizes(args.streams)
            ]
    return made


def feeding_rows(args: Namespace, here) -> list:
    """The rows of --study feeding: each type's sizes by every way on every device asked for, then CuPy's copies of as many bytes.

    Raises: Usage for an unknown device, backend or way; Missing without TensorFlow, and for a device that is not here.
    """
    from analysis.training import feeding
    from kernels.problems import Feeding, Transfer
    from workloads.frameworks import grid
    from workloads.harness import plan
    from workloads.records import Row, Settings

    options.refuse(args, (*_STUDY_HAS, "threads"), "--study brings its own rows")
    on = plan.devices(args, here)
    backends = plan.known("backend", args.backends, ("keras", "cupy"), " for feeding") or ["keras", "cupy"]
    ways = plan.known("way", args.variants, Feeding.WAYS) or list(Feeding.WAYS)
    dtypes = plan.known("type", args.dtypes, feeding.DTYPES) or list(feeding.DTYPES)
    found = []
    if "keras" in backends:
        grid.require_keras()
        more = {feeding.DTYPES[0]: feeding.HELD_OUT}  # sorted between the others: what changes meanwhile is in both
        sizes = [(dtype, *size) for dtype in dtypes for size in sorted((*feeding.SIZES, *more.get(dtype, ())))]
        found += [
            Row(f"feeding/keras/{way}", Feeding(batch, width, feeding.steps(batch, width), dtype), Settings(device))
            for device in on
            for dtype, batch, width in sizes
            for way in ways
            if feeding.tells(device, way, dtype)
        ]
    if "cupy" in backends and not args.variants:
        nbytes = sorted({4 * batch * width for batch, width in (*feeding.SIZES, *feeding.HELD_OUT)})
        found += [
            Row("transfer/cupy/array", Transfer("h2d", n, memory), Settings(device))
            for device in on
            if device != "cpu"
            for memory in STUDY["array"]
            for n in nbytes
        ]
    if not found:
        raise options.Missing(
            "CuPy's copies are to a GPU, and none was asked for or is here",
            f"python -m workloads.transfer --study {args.study} --backends keras",
        )
    return found


def rows(args: Namespace, here) -> list:
    """The rows of the sweep: kernel by kernel, each way over all its sizes, as a law is read off them.

    Raises: Usage; Missing without a GPU, which every copy needs.
    """
    from workloads.harness import plan
    from workloads.machine import facts
    from workloads.records import Row

    if args.study == FEEDING:
        return feeding_rows(args, here)
    options.refuse(args, ("dtypes",), "copies are of bytes; only --study feeding has types")
    wanted = problems(args)
    on = [device for device in plan.devices(args, here) if device != "cpu"]
    why = "every row of transfer copies to or from a GPU"
    if not here.gpus:
        raise options.Missing(f"{why}: {facts.gpu_problem()}", plan.no_device("cupy")[1])
    if not on:
        raise options.Usage(f"{why}; --device names none", f"{EXAMPLE} --device gpu")
    kernels = plan.kernels("transfer", args, on, on_request=() if args.study else ("tensorflow",))
    if args.study and not args.variants:
        kernels = [k for k in kernels if k.variant in STUDY]

    def fits(kernel, problem) -> bool:
        if args.study:
            return problem.host_memory in STUDY.get(kernel.variant, ("pageable",))
        return getattr(kernel.bind, "takes", lambda problem: not problem.compute)(problem)

    return [Row(k.name, p, s) for k in kernels for p in wanted if fits(k, p) for s in plan.settings(k, on, args)]


class Table(Lines):
    """A line a copy: µs of a call that is waited for, µs to enqueue it, and the rate on the device's clock, if there is one.
    The rate counts the bytes of both ways, on the device those read and written. A kernel's reason to skip copies is printed
    once."""

    HEAD = "way 4< | host memory 14< | size 9 | kernel 20< | µs waited 9 | ±% 4 | enqueue µs 10 | GB/s 6 | notes 5<"
    LEAST = "±% | enqueue µs | notes"

    def __init__(self, args=None, here=None):
        super().__init__(args)
        self._said: set[tuple[str, str]] = set()

    def wanted(self, m) -> bool:
        new = m.status != "skipped" or (m.kernel, m.reason) not in self._said
        self._said.add((m.kernel, m.reason))
        return new

    def cells(self, m) -> list[str]:
        from analysis import stats

        p = m.problem
        start = [p.direction, p.host_memory or "-", units.size(p.nbytes), m.label]
        if not m.ok:
            return [*start, m.status, "", "", "", m.reason]
        waited, issued = (m.on(clock) and stats.of(m.on(clock)) for clock in ("host-latency", "host-issue"))
        beside = (
            f"{p.compute}, {units.count(p.chunks, 'chunk')}, {units.count(p.streams, 'stream')}" if p.compute else ""
        )
        moves = not m.kernel.endswith("overlap_compute")
        rate = number(p.bytes_moved / seconds.value / 1e9) if moves and (seconds := stats.seconds_of(m)) else "-"
        return [
            *start,
            *timed(waited, 1e6),
            scaled(issued, 1e6),
            rate,
            " ".join(filter(None, (beside, *m.flags))),
        ]


class FeedingTable(Lines):
    """A line a row: milliseconds of a step with next to no arithmetic, by the way and the bytes of its batch."""

    HEAD = "way 14< | where 6< | type 7< | batch 5 | values 6 | bytes 9 | ms a step 9 | ±% 4 | notes 5<"
    LEAST = "±% | values"
    ABOUT = "ms a step: of Keras's fit around a model that does next to nothing; CuPy's copies are of as many bytes"

    def cells(self, m) -> list[str]:
        from analysis import stats
        from analysis.training import feeding

        p = m.problem
        if p.op == "transfer":
            start, seconds = [f"CuPy, {p.host_memory}", m.device, "-", "-", "-"], stats.seconds_of(m)
        else:
            start = [m.variant, m.device, p.dtype, str(p.batch), str(p.width)]
            seconds = feeding.step(m) if m.ok else None
        start.append(units.size(p.nbytes))
        if seconds is None:
            return [*start, m.status, "", m.reason]
        return [*start, *timed(seconds, 1e3), " ".join(m.flags)]


def table(args=None, here=None) -> Lines:
    """The table of the copies, or of the feeding study."""
    return (FeedingTable if args and args.study == FEEDING else Table)(args, here)


def answer(args: Namespace, outcome) -> None:
    """Prints the fitted laws of copies, or the answers of a study."""
    from analysis.crossover import transfer_study
    from analysis.roofline import links
    from analysis.text import feeding

    of = {"small-dataset": transfer_study, FEEDING: feeding}.get(args.study, links)
    print("", *shown(of.lines(outcome.measurements)), sep="\n")


COMMAND = "transfer", QUESTION, LONG, EXAMPLES, "sizes directions study", FLAGS
WORKLOAD = Workload(*COMMAND, rows, table, answer, op=lambda args: FEEDING if args.study == FEEDING else "")
main, parser, run = WORKLOAD.entry_points

if __name__ == "__main__":
    sys.exit(main())
