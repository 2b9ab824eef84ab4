"""Chooses what to run: devices, kernels and settings from the words of a command line, and the plan that --dry-run prints."""

import argparse
import sys
from collections.abc import Iterable, Iterator

import msgspec

from kernels import registry
from kernels.problems import Peak, Stream
from kernels.registry import Kernel
from workloads import machine, options
from workloads.results import Machine, Row, Settings

RIGOROUS_PROCESSES = 5
FMA_MATHS = ("float32", "float64")


def devices(args: argparse.Namespace, here: Machine) -> list[str]:
    """The devices asked for, else the CPU and the first GPU.

    Raises: Usage for an unknown word; Missing for a GPU asked for by name that is not there.
    """
    every = ["cpu"] + [f"gpu:{i}" for i in range(len(here.gpus))]
    if args.require_gpu and not here.gpus:
        raise options.Missing(f"no GPU here: {machine.gpu_problem()}", "python -m workloads.doctor")
    asked = options.words(args.device)
    if not asked:
        return every[:2]
    found: list[str] = []
    for word in asked:
        name = "gpu:0" if word == "gpu" else word
        if name == "all":
            found += every
        elif name in every:
            found.append(name)
        elif name.startswith("gpu:") and name[4:].isdigit():
            reason = f"there are {len(here.gpus)}" if here.gpus else machine.gpu_problem()
            raise options.Missing(f"no {name} here: {reason}", "python -m workloads.doctor")
        else:
            raise options.Usage(f"unknown device {word!r}; known: cpu, gpu, gpu:1, all")
    return list(dict.fromkeys(found))


def kernels(
    op: str, args: argparse.Namespace, on: list[str], ladder: bool = False, on_request: Iterable[str] = ()
) -> list[Kernel]:
    """The kernels of an operation for the backends, variants and devices asked for; those `on_request` only when named.

    A backend that is not installed, or whose device is not here, is left out with a note, unless asked for by name.
    Raises: Usage for an unknown backend or variant; Missing for a named backend that cannot run.
    """
    known, asked = registry.backends(op), options.words(args.backends)
    for name in asked or []:
        if name not in known:
            raise options.Usage(f"unknown backend {name!r} for {op}; known: {', '.join(known)}")
    found: list[Kernel] = []
    for backend in asked or [name for name in known if name not in on_request]:
        try:
            if not usable(registry.BACKENDS[backend], on):
                raise options.Missing(*no_device(backend))
            found += [k for k in registry.load(op, backend) if usable(k, on)]
        except (registry.NotInstalled, options.Missing) as error:
            if asked:
                raise options.Missing(str(error), getattr(error, "tip", "")) from error
            note(args, f"{backend} left out: {error}")
    variants = options.words(args.variants)
    for name in variants or []:
        if name not in {k.variant for k in found}:
            raise options.Usage(f"unknown variant {name!r}; known: {', '.join(sorted({k.variant for k in found}))}")
    return [k for k in found if (k.variant in variants if variants else ladder or not k.rung)]


def usable(what: Kernel | registry.Backend, on: list[str]) -> bool:
    """Whether a kernel or backend runs on one of these devices."""
    return any(device.partition(":")[0] in what.devices for device in on)


def no_device(backend: str) -> tuple[str, str]:
    """(message, command that helps) for a backend none of whose devices is here or asked for."""
    wants = registry.BACKENDS[backend].devices[0]
    problem = machine.gpu_problem() if wants == "gpu" else "the CPU was not asked for"
    install = f"{options.python()} -m pip install {registry.BACKENDS[backend].install}"
    tip = install if "not installed" in problem else f"{install}  (on a machine with an NVIDIA GPU and its driver)"
    return f"{backend} needs a {wants.upper()}: {problem or 'none was asked for'}", tip


def thread_counts(args: argparse.Namespace) -> list[int]:
    """The CPU thread counts to run: those asked for, else 1, 2, 4, ... all."""
    return options.sizes(args.threads) if args.threads else list(machine.threads_to_try())


def settings(
    kernel: Kernel, on: list[str], args: argparse.Namespace, modes: list[str] | None = None
) -> Iterator[Settings]:
    """The settings to run a kernel in: every thread count on the CPU, every copy mode on a GPU."""
    for device in on:
        if device.partition(":")[0] not in kernel.devices:
            continue
        if device != "cpu":
            yield from (Settings(device=device, mode=mode) for mode in modes or ["resident"])
        else:
            own = kernel.backend in registry.FRAMEWORKS and not args.threads  # a framework chooses its threads itself
            counts = [None] if own else thread_counts(args) if kernel.parallel else [1]
            yield from (Settings(device="cpu", threads=t) for t in counts)


def note(args: argparse.Namespace, text: str) -> None:
    """A line on stderr, unless --quiet."""
    if not args.quiet:
        print(text, file=sys.stderr)


def name(row: Row) -> str:
    """A row in a few words."""
    shape = " ".join(f"{k}={v}" for k, v in msgspec.structs.asdict(row.problem).items() if isinstance(v, int))
    how = row.settings.device if row.settings.device != "cpu" else f"{row.settings.threads or 'default'} threads"
    model = getattr(row.problem, "model", "")
    return f"{row.kernel} {model} {shape} {getattr(row.problem, 'math', '')} {how} {row.settings.mode}"


def dry_run(rows: Iterable[Row], args: argparse.Namespace) -> None:
    """Prints the plan: rows, the largest footprint, the seconds it can take at most."""
    rows = list(rows)
    limits = options.limits(args)
    clocks = sum(1 if r.settings.device == "cpu" or r.settings.mode != "resident" else 3 for r in rows)
    own = sum(getattr(r.problem, "patience_s", 0.0) for r in rows)
    seconds = (clocks * limits["max_time"] + len(rows) * 0.2 + own) * (RIGOROUS_PROCESSES if args.rigorous else 1)
    largest = max((r.problem.footprint_bytes for r in rows), default=0)
    for row in rows:
        print(name(row))
    print(f"{len(rows)} rows, at most {largest / 2**20:.4g} MiB of arrays at a time, at most about {seconds:.0f} s")


def roof_rows(maths: Iterable[str], on: list[str], here: Machine, threads: Iterable[int]) -> list[Row]:
    """A short look at the roofs that rows in this arithmetic stand under: FMA peaks and the memory's bandwidth.

    The triad's arrays are four times the last cache, at least 256 MiB, and at most an eighth of the free memory.
    """
    rows: list[Row] = []
    for device in on:
        cpu = device == "cpu"
        cache = max(here.caches_bytes.values(), default=0) if cpu else here.gpus[int(device[4:])].l2_bytes
        nbytes = min(max(4 * cache, 1 << 28 if cpu else 1 << 30), machine.memory_available(device) // 8)
        for backend in ("numba",) if cpu else ("cupy",):
            peaks, streams = _or_none("peak", backend), _or_none("stream", backend)
            counts = list(dict.fromkeys((*threads, here.cores))) if cpu else [None]
            for count in counts:
                wanted = Settings(device=device, threads=count)
                rows += [Row(k.name, peak_problem(m, wanted), wanted) for k in peaks for m in maths if m in FMA_MATHS]
            rows += [Row(k.name, Stream("triad", nbytes), Settings(device=device, threads=counts[-1])) for k in streams]
    return rows


def peak_problem(math: str, settings: Settings) -> Peak:
    """A peak that takes some milliseconds there: 2^30 FLOPs a CPU thread, 2^37 on a GPU."""
    return Peak(math, settings.threads << 30 if settings.threads else 1 << 37)


def _or_none(op: str, backend: str) -> list[Kernel]:
    try:
        return [k for k in registry.load(op, backend) if not k.rung]
    except registry.NotInstalled:
        return []
