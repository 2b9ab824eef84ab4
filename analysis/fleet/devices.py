"""The devices of a fleet's run, the quantity that each row measures, and earlier measurements of the same device."""

import contextlib
import pathlib
from collections.abc import Iterable

import msgspec

from analysis import stats
from analysis.roofline.roofs import BEYOND_CACHE, last_cache_bytes
from kernels.problems import AllReduce, AtOnce, Conv, Matmul, PeerCopy, Stream, Transfer
from workloads import options, records
from workloads.records import Loaded, Machine, Measurement, Row, baselines

LOST = "lost"  # flag of a row whose node died before it was measured
_LONG_S, _LARGE_BYTES = 1e-4, 1 << 20  # shorter calls and smaller copies are mostly latency: another quantity


class Device(msgspec.Struct, frozen=True):
    """One device of one node: its rows that have a time, by key, and those that have none because they were lost or failed.

    node: the folder's name, "" where rows lie in the run's own folder. model: the product; devices of one model are alike.
    """

    node: str
    device: str
    uuid: str
    model: str
    machine: Machine
    rows: dict[str, Measurement]
    broken: tuple[Measurement, ...]

    @property
    def is_gpu(self) -> bool:
        return stats.is_gpu(self.device)


def devices(run: str | pathlib.Path) -> tuple[Device, ...]:
    """The devices of RUN: those of its own rows, or of each of its folders, which are a fleet's nodes.

    Raises: FileNotFoundError when it has no result file; NoRows when its files have no row; ValueError when folders hold
    the same GPU, runs one after another, and when one folder holds files of several machines.
    """
    files = stats.group_by(records.files_of(run), records.study_folder)
    by_folder = {folder: records.read_files(paths) for folder, paths in sorted(files.items())}
    if not any(loaded.measurements for loaded in by_folder.values()):
        raise records.NoRows(run, sum(loaded.bad_lines for loaded in by_folder.values()))
    found: list[Device] = []
    for folder, loaded in by_folder.items():
        keys = list(dict.fromkeys(r.machine.key for r in loaded.runs))
        if len(keys) > 1:
            raise ValueError(f"{folder} holds runs of several machines ({', '.join(keys)})")
        is_node = len(files) > 1 or any(" --ray " in r.command for r in loaded.runs)  # a lone one may be a fleet's only
        found += of_node(loaded, folder.name if is_node else "")
    for uuid, same in stats.group_by(found, lambda device: device.uuid).items():
        if uuid and len(same) > 1:
            nodes = " and ".join(device.node for device in same)
            raise ValueError(f"{nodes} hold the same GPU {uuid}: runs of one machine one after another")
    return tuple(found)


def of_node(loaded: Loaded, node: str) -> list[Device]:
    """The devices that a node's rows name, the CPU first."""
    if not (here := loaded.machine):
        return []
    made = []
    for name, rows in sorted(stats.group_by(loaded.measurements, lambda m: m.device).items()):
        gpu = here.gpu(name) if stats.is_gpu(name) else None
        timed = {m.key: m for m in rows if stats.quick_seconds(m)}
        broken = tuple(m for m in rows if m.status in ("failed", "wrong"))
        model = gpu.name if gpu else f"{here.cpu}, {here.cores} cores"
        made.append(Device(node, name, gpu.uuid if gpu else "", model, here, timed, broken))
    return made


def quantity(m: Measurement, machine: Machine) -> str:
    """The quantity that a row measures, in words: `HBM read`. "" for what happens once in a process, as it is too noisy."""
    p, gpu, seconds = m.problem, m.on_gpu, stats.quick_seconds(m) or 0.0
    if m.process == "fresh" or p.once:
        return ""
    if isinstance(p, Matmul | Conv):
        what = f"{p.math} {'products' if p.op == 'matmul' else 'convolutions'}"
        if m.mode != "resident":
            return f"{what} with copies"
        return what if seconds >= _LONG_S else f"short {what}"
    if isinstance(p, Stream):
        cache = last_cache_bytes(machine, m.device)
        far = not cache or p.footprint_bytes >= BEYOND_CACHE * cache
        return f"{('HBM' if gpu else 'memory') if far else 'cache'} {p.operation}"
    if isinstance(p, PeerCopy):
        ways = f"gpu-{p.target}" if p.ways == 1 else f"and from gpu-{p.target}"
        return f"{'' if p.nbytes >= _LARGE_BYTES else 'short '}copies to {ways}"
    if isinstance(p, AllReduce):
        return f"{'' if p.nbytes >= _LARGE_BYTES else 'short '}all-reduces over {p.gpus}"
    if isinstance(p, AtOnce):
        inner = quantity(msgspec.structs.replace(m, problem=p.inner), machine)
        return f"{inner} while {p.gpus} work" if p.together > 1 else inner
    if isinstance(p, Transfer):
        return f"{p.host_memory} {p.direction} copies" if p.nbytes >= _LARGE_BYTES else f"short {p.direction} copies"
    return {"peak": f"{p.math} arithmetic", "launch": "launches"}.get(p.op, f"{p.op} steps")


def plain_key(m: Measurement) -> str:
    """A row's key without the number of its GPU, so that it is the same on every GPU of a node."""
    if not m.on_gpu:
        return m.key
    return Row(m.kernel, m.problem, msgspec.structs.replace(m.settings, device="gpu")).key


def readable(runs: Iterable[str | pathlib.Path]) -> list[tuple[Device, ...]]:
    """The devices of each of these runs; runs that cannot be read as a fleet's, or are empty, are left out."""
    found = []
    for run in runs:
        with contextlib.suppress(options.Usage, ValueError):
            found.append(devices(run))
    return found


def stored_baseline(device: Device, known: Iterable[tuple[Device, ...]]) -> Device | None:
    """The same device in the first of the runs `known` that has it, else None. A GPU is matched by UUID, a CPU by node and
    model."""

    def same(other: Device) -> bool:
        if device.uuid:
            return other.uuid == device.uuid
        return (other.model, other.node, other.device) == (device.model, device.node, device.device)

    return next((other for run in known for other in run if same(other)), None)


def saved() -> list[pathlib.Path]:
    """Every saved baseline, the newest first."""
    return sorted((baselines.folder(name) for name in baselines.names()), key=lambda p: -p.stat().st_mtime)
