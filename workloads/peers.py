"""Times what several GPUs of one host do with each other: copies between them, sums over all, the same work on all at once."""

import sys
from argparse import Namespace

from workloads import options
from workloads.printing import Lines, number, scaled, timed
from workloads.session import Workload

QUESTION = "How fast do several GPUs of one host work together?"
EXAMPLE = "python -m workloads.peers --fast"
EXAMPLES = (EXAMPLE, "python -m workloads.peers --only copies")
LONG = """Copies from every GPU to every other (both ways and at once), all-reduces over all of them by NCCL and, for small ones,
by a kernel of ours, and the same work on each GPU alone and on all at once. Takes two GPUs or more."""
STORED = "reports/nvidia-h200-x4/peers"  # a run with rows of several GPUs, which comes with the project
SIZES = "4KiB:256MiB:x4"
COPIED = ("4B", "256MiB")
VARIANTS = {
    "copies": ("direct", "staged"),
    "all-reduce": ("nccl", "nccl_graph", "one_shot", "one_shot_graph", "one_shot_early_graph"),
}
PARTS = {"copies": "peer", "all-reduce": "collective", "at-once": "at-once"}  # -> the operation of its rows
FLAGS = f"""
--only PART ...     only these: {" ".join(PARTS)}
--sizes BYTES ...   bytes of each GPU's array in an all-reduce, like 64k, 64kb or 64KiB ({SIZES})
--copied BYTES ...  bytes of a copy between GPUs ({" ".join(COPIED)})
--dtypes TYPE ...   float32 float16 bfloat16 (default: float32 and bfloat16)"""


def _parts(args: Namespace) -> list[str]:
    from workloads.harness import plan

    return plan.known("part", args.only, list(PARTS)) or list(PARTS)


def gpus(args: Namespace, here) -> list[int]:
    """The numbers of the GPUs that work with each other: those of --device, else all.

    Raises: Usage; Missing where they are fewer than two.
    """
    from workloads.harness import plan
    from workloads.machine import facts

    takes = "every row of peers takes two GPUs or more"
    if not here.gpus:
        raise options.Missing(f"{takes}: {facts.gpu_problem()}", f"python -m analysis.report {STORED}")
    asked = Namespace(**{**vars(args), "device": args.device or ["all"]})
    found = [int(device[4:]) for device in plan.devices(asked, here) if device != "cpu"]
    if len(found) < 2:
        named = args.device and len(here.gpus) > 1
        chosen = f"--device names {len(found)}" if named else f"there is one, {here.gpus[0].name}"
        raise options.Missing(f"{takes}: {chosen}", "python -m workloads.suite --quick")
    return sorted(found)


def rows(args: Namespace, here) -> list:
    """The rows of the sweep: copies pair by pair, then sums over all GPUs by type, form and kernel.

    Raises: Usage; Missing without two GPUs.
    """
    from workloads.harness import plan

    members, parts = gpus(args, here), _parts(args)
    every = [v for part, names in VARIANTS.items() if part in parts for v in names]
    kernels = plan.known("variant", args.variants, every) or every
    made = _copies(args, members, kernels) if "copies" in parts else []
    return made + (_sums(args, members, kernels) if "all-reduce" in parts else [])


def _copies(args: Namespace, members: list[int], kernels: list[str]) -> list:
    from kernels.problems import PeerCopy
    from workloads.records import Row, Settings

    sizes = options.sizes(args.copied or list(COPIED), options.BYTES)
    pairs = [(i, j) for i in members for j in members if i != j]
    copies = [PeerCopy(i, j, n) for n in sizes for i, j in pairs]
    copies += [PeerCopy(i, j, sizes[-1], 2) for i, j in pairs if i < j]
    return [
        Row(f"peer/cupy/{variant}", p, Settings(f"gpu:{p.source}"))
        for variant in VARIANTS["copies"]
        if variant in kernels
        for p in copies
        if variant == "direct" or p.ways == 1
    ]


def _sums(args: Namespace, members: list[int], kernels: list[str]) -> list:
    """The rows of all-reduces. One-shot kernels have sizes up to ONE_SHOT_BYTES; only plain NCCL has every form."""
    from kernels.problems import ONE_SHOT_BYTES, AllReduce
    from workloads.records import Row, Settings

    dtypes, every = options.words(args.dtypes) or ["float32", "bfloat16"], ",".join(map(str, members))
    made = []
    with options.usage_errors(EXAMPLE):
        for dtype in dtypes:
            for variant in (v for v in VARIANTS["all-reduce"] if v in kernels):
                forms = AllReduce.FORMS if variant == "nccl" else AllReduce.FORMS[:1]
                sizes = options.sizes(args.sizes or [SIZES], options.BYTES)
                sums = [AllReduce(n, every, dtype, form) for form in forms for n in sizes]
                made += [
                    Row(f"collective/cupy/{variant}", p, Settings(f"gpu:{members[0]}"))
                    for p in sums
                    if variant == "nccl" or p.nbytes <= ONE_SHOT_BYTES
                ]
    return made


def _measured(args: Namespace, run, shown):
    """Measures copies and sums into one file, then every GPU alone and all at once into another beside it; one sweep.Outcome."""
    from workloads.harness import concurrent, sweep

    members, parts, outcome = gpus(args, run.machine), _parts(args), None
    if not args.output and not args.resume:
        args.output = str(sweep.place(args, WORKLOAD.name, run).parent)
    if parts != ["at-once"]:
        outcome = WORKLOAD.sweep(args, run, shown)
    if "at-once" not in parts or (outcome and outcome.stopped):
        return outcome
    return concurrent.every_gpu(args, run, members, shown).after(outcome)


def _dry_run(rows: list, args: Namespace, here) -> None:
    from workloads.harness import concurrent, plan

    at_once = concurrent.every_gpu_rows(gpus(args, here)) if "at-once" in _parts(args) else []
    plan.dry_run([*rows, *at_once], args)


def _op(args: Namespace) -> str:
    """The operation of the one part that was asked for.

    Raises: Usage for more than one: a table for machines has rows of one.
    """
    parts = _parts(args)
    if len(parts) != 1:
        tip = f"{EXAMPLES[1]} --format {args.format if args.format in ('csv', 'json') else 'json'}"
        raise options.Usage("a table for machines has one part; name it with --only", tip)
    return PARTS[parts[0]]


class Table(Lines):
    """A line a row: µs of a call that is waited for and, for copies and sums, of a queued one. GB/s is the rate of queued
    calls; for a sum it is the bus bandwidth."""

    HEAD = "kernel 26< | what 40< | µs waited 9 | ±% 4 | µs queued 9 | GB/s 7 | notes 5<"
    LEAST = "±% | µs waited"

    def wanted(self, m) -> bool:
        return True

    def cells(self, m) -> list[str]:
        from analysis import labels
        from analysis.roofline.peers import bandwidth
        from analysis.stats import of

        p = m.problem
        what = labels.problem(p) + (f" on {m.device}" if p.op == "at-once" else "")
        head = [m.kernel, what]
        if not m.ok:
            return [*head, m.status, "", "", "", m.reason]
        waited, queued = of(m.samples[0]), m.on("host-throughput")
        return [
            *head,
            *timed(waited, 1e6),
            scaled(queued and of(queued), 1e6),
            number(bandwidth(m).value / 1e9 if p.rated == "bytes_moved" else None),
            " ".join(m.flags),
        ]


def answer(args: Namespace, outcome) -> None:
    from analysis.text import several_gpus

    print("\n".join(["", *several_gpus.lines(outcome.measurements)]))


COMMAND = "peers", QUESTION, LONG, EXAMPLES, "only sizes", FLAGS
WORKLOAD = Workload(*COMMAND, rows, Table, answer, own=_measured, dry_run=_dry_run, op=_op)
main, parser, run = WORKLOAD.entry_points

if __name__ == "__main__":
    sys.exit(main())
