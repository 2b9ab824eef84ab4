"""Times calls that do almost nothing: what a launch, a library call, a Keras step and a process's start cost."""

import sys
from argparse import Namespace

from analysis import units
from kernels import registry
from workloads import options
from workloads.printing import Lines, scaled, timed
from workloads.session import Workload

QUESTION = "What does a call cost before it does any work?"
EXAMPLES = ("python -m workloads.launch --backends numpy numba", "python -m workloads.launch --calls step epoch --fast")
LONG = """NumPy, Numba, CuPy and TensorFlow calls, GPU launches and graph nodes, a step and an epoch of a Keras model with almost
no work; and what happens once in a process: imports, the device's start, first compilations. The costs of one call, node, step
or epoch are worked out from rows of several counts."""
# call -> how many in a row. Several counts separate the cost of one from the cost of the call around them.
COUNTS = {
    "empty": (1, 64),
    "elementwise": (1, 16, 64),
    "matmul": (1,),
    "copy": (1,),
    "step": (1, 64, 256),
    "epoch": (1, 4, 16),
    "predict": (1, 64),
    "train_on_batch": (1,),
}
FAST_COUNTS = {**COUNTS, "elementwise": (1, 64), "step": (1, 64), "epoch": (1, 8)}
# backend -> what happens once in a process, with its switches. `import tensorflow` brings Keras with it.
ONCE = {
    "numba": (("import", {}), ("compile", {})),
    "cupy": (("import", {}), ("device_start", {}), ("compile", {})),
    "tensorflow": (
        ("import", {}),
        ("device_start", {}),
        ("compile", {"jit_compile": "on"}),
        ("compile", {"jit_compile": "off"}),
    ),
    "keras": (("compile", {"jit_compile": "auto"}),),
}
# Left out with --fast unless named: Keras with another jit_compile than its own choice, nine slow rows each.
NOT_FAST = ("fit_jit", "fit_op_by_op")
FLAGS = """
--calls CALL ...  empty elementwise matmul copy step epoch predict train_on_batch import device_start compile (default: all;
                  --fast: of TensorFlow's once-in-a-process calls only the import)
--counts N ...    so many of a call in a row (default: by call, 1 and more)"""


def rows(args: Namespace, here) -> list:
    """The rows of the sweep, by device, backend, kernel, call and count; then what happens once in a process.

    Raises: Usage for an unknown call or variant; Missing for a backend or device asked for that is not here.
    """
    from kernels.problems import Launch
    from workloads.harness import plan

    calls = plan.known("call", args.calls, Launch.CALLS) or list(Launch.CALLS)
    on = plan.devices(args, here)
    variants = options.words(args.variants)
    once = not variants or "once" in variants
    rest = [v for v in variants if v != "once"]
    repeated = [c for c in calls if c not in Launch.ONCE]
    kernels = plan.kernels("launch", Namespace(**{**vars(args), "variants": rest or None}), on)
    if variants and not rest:
        repeated = []
    if args.fast and not variants:
        kernels = [k for k in kernels if k.variant not in NOT_FAST]
    made = [row for device in on for k in kernels for row in _repeated(k, repeated, device, args)]
    backends = list(dict.fromkeys(k.backend for k in kernels))
    made += [row for device in on for row in _once(backends, calls, device, on, args)] if once else []
    if not made:
        raise options.Usage(
            f"none of these kernels has {' or '.join(calls)}; try other --calls, --backends or --variants"
        )
    return made


def _repeated(kernel, calls: list[str], device: str, args: Namespace):
    """The rows of a kernel on a device: every call it has, every count, every number of threads."""
    from kernels.problems import Launch
    from workloads.harness import plan
    from workloads.records import Row

    has = getattr(kernel.bind, "calls", calls)  # a kernel that does not say is asked when it is bound
    counts = FAST_COUNTS if args.fast else COUNTS
    asked = options.sizes(args.counts) if args.counts else None
    for call in (c for c in calls if c in has):
        for count in asked or counts[call]:
            for settings in plan.settings(kernel, [device], args):
                yield Row(kernel.name, Launch(call, count), settings)


def _once(backends: list[str], calls: list[str], device: str, on: list[str], args: Namespace):
    """The rows of what happens once in a process, five fresh processes each. An import needs no device: it has one row."""
    from kernels.problems import Launch
    from workloads.harness import plan
    from workloads.records import Row, Settings

    named = [*backends, *(["keras"] if "tensorflow" in backends else [])]
    for backend in (b for b in named if plan.usable(registry.BACKENDS[b], [device])):
        first = next(d for d in on if plan.usable(registry.BACKENDS[backend], [d]))
        for call, switches in ONCE.get(backend, ()):
            again = call == "import" and device != first
            slow = args.fast and backend in registry.FRAMEWORKS and call != "import" and not args.calls
            if call in calls and not again and not slow:
                settings = Settings(device=device, process="fresh", switches=switches)
                yield Row(f"launch/{backend}/once", Launch(call), settings)


class Table(Lines):
    """A line a row: µs of the whole call (`step x64`: 64 steps together), waited for, queued, only issued, and on the device's
    clock."""

    HEAD = "kernel 19< | call 15< | where 9< | µs in all 9 | ±% 4 | queued 7 | issue 7 | device 7 | notes 5<"
    LEAST = "±% | issue | where | queued | device"

    ABOUT = "µs in all: the time of a whole row; of `step x64` that is 64 steps together"

    def cells(self, m) -> list[str]:
        from analysis.stats import of

        p, s = m.problem, m.settings
        call = p.call if p.once else f"{p.call} x{p.count}"
        where = units.count(s.threads, "thread") if s.device == "cpu" and s.threads else s.device
        head = [m.label, call, where]
        if not m.ok:
            return [*head, m.status, "", "", "", "", m.reason]
        clocks = {taken.clock: of(taken) for taken in m.samples}
        waited = clocks["host-latency"]
        others = [scaled(clocks.get(clock), 1e6) for clock in ("host-throughput", "host-issue", "device")]
        jit = s.switches.get("jit_compile")
        notes = [f"jit_compile {jit}"] if jit else []
        return [*head, *timed(waited, 1e6), *others, " ".join([*notes, *m.flags])]


def answer(args: Namespace, outcome) -> None:
    from analysis.roofline import overheads

    if told := overheads.constants(outcome.measurements):
        print("\nWhat one of each costs (with its 95 % interval):")
        print(*overheads.table(told).text(), sep="\n")


WORKLOAD = Workload("launch", QUESTION, LONG, EXAMPLES, "calls", FLAGS, rows, Table, answer, answers_in_suite=True)
main, parser, run = WORKLOAD.entry_points

if __name__ == "__main__":
    sys.exit(main())
