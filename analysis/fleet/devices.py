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
# Shorter calls and smaller copies are mostly latency: another quantity.
_LONG_S = 1e-4
_LARGE_BYTES = 1 << 20


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one node, with its rows."""

    #: Name of the node's folder; "" where rows lie in the run's own folder.
    node: str
    #: The device on its node: cpu, gpu:0, gpu:1.
    device: str
    #: What identifies a GPU; "" for a CPU.
    uuid: str
    #: The product; devices of one model are alike.
    model: str
    #: The node's machine.
    machine: Machine
    #: Key -> row, of the rows that have a time.
    rows: dict[str, Measurement]
    #: Rows without a time, as they were lost or failed.
    broken: tuple[Measurement, ...]

    @property
    def is_gpu(self) -> bool:
        return stats.is_gpu(self.device)


def devices(run: str | pathlib.Path) -> tuple[Device, ...]:
    """The devices of a fleet's run. Each folder with result files is a node; files in the run's own folder are of a single
    machine.

    Raises: FileNotFoundError when it has no result file; NoRows when its files have no row; ValueError when folders hold
    the same GPU, runs one after another, and when one folder holds files of several machines.
    """
    files = stats.group_by(records.files_of(run), records.study_folder)
    by_folder = {folder: records.read_files(paths) for folder, paths in sorted(files.items())}
    if not any(loaded.measurements for loaded in by_folder.values()):
        raise records.NoRows(run, sum(loaded.bad_lines for loaded in by_folder.values()))
    devices: list[Device] = []
    for folder, loaded in by_folder.items():
        keys = list(dict.fromkeys(r.machine.key for r in loaded.runs))
        if len(keys) > 1:
            raise ValueError(f"{folder} holds runs of several machines ({', '.join(keys)})")
        is_node = len(files) > 1 or any(" --ray " in r.command for r in loaded.runs)  # a lone one may be a fleet's only
        devices += node_devices(loaded, folder.name if is_node else "")
    for uuid, same in stats.group_by(devices, lambda device: device.uuid).items():
        if uuid and len(same) > 1:
            nodes = " and ".join(device.node for device in same)
            raise ValueError(f"{nodes} hold the same GPU {uuid}: runs of one machine one after another")
    return tuple(devices)


def node_devices(loaded: Loaded, node: str) -> list[Device]:
    """The devices of one node, with their rows; the CPU first. node: its name; "" for a run of a single machine."""
    machine = loaded.machine
    if machine is None:
        return []
    devices = []
    for name, rows in sorted(stats.group_by(loaded.measurements, lambda m: m.device).items()):
        gpu = machine.gpu(name) if stats.is_gpu(name) else None
        timed = {m.key: m for m in rows if stats.quick_seconds(m)}
        broken = tuple(m for m in rows if m.status in ("failed", "wrong"))
        device = Device(
            node=node,
            device=name,
            uuid=gpu.uuid if gpu else "",
            model=gpu.name if gpu else f"{machine.cpu}, {machine.cores} cores",
            machine=machine,
            rows=timed,
            broken=broken,
        )
        devices.append(device)
    return devices


def quantity(m: Measurement, machine: Machine) -> str:
    """What a row measures, in words that rows of the same kind share, such as `HBM read`: devices are compared quantity by
    quantity. "" for what happens once in a process, which is too noisy to compare. machine: where the row was measured.
    """
    problem = m.problem
    if m.process == "fresh" or problem.once:
        return ""
    if isinstance(problem, Matmul | Conv):
        return _compute_quantity(m)
    if isinstance(problem, Stream):
        cache = last_cache_bytes(machine, m.device)
        if cache and problem.footprint_bytes < BEYOND_CACHE * cache:
            return f"cache {problem.operation}"
        return f"HBM {problem.operation}" if m.on_gpu else f"memory {problem.operation}"
    if isinstance(problem, PeerCopy):
        gpus = f"gpu-{problem.target}" if problem.ways == 1 else f"and from gpu-{problem.target}"
        return _short_or_long(f"copies to {gpus}", problem.nbytes)
    if isinstance(problem, AllReduce):
        return _short_or_long(f"all-reduces over {problem.gpus}", problem.nbytes)
    if isinstance(problem, AtOnce):
        inner = quantity(msgspec.structs.replace(m, problem=problem.inner), machine)
        return f"{inner} while {problem.gpus} work" if problem.together > 1 else inner
    if isinstance(problem, Transfer):
        if problem.nbytes < _LARGE_BYTES:
            return f"short {problem.direction} copies"
        return f"{problem.host_memory} {problem.direction} copies"
    if problem.op == "peak":
        return f"{problem.math} arithmetic"
    return "launches" if problem.op == "launch" else f"{problem.op} steps"


def _compute_quantity(m: Measurement) -> str:
    """The quantity that a row of a product or convolution measures: `short float32 products`."""
    what = f"{m.problem.math} products" if m.problem.op == "matmul" else f"{m.problem.math} convolutions"
    if m.mode != "resident":
        return f"{what} with copies"
    seconds = stats.quick_seconds(m) or 0.0
    return what if seconds >= _LONG_S else f"short {what}"


def _short_or_long(what: str, nbytes: int) -> str:
    """The words for copies, with `short` before them if they are of few bytes: `short copies to gpu-1`."""
    return what if nbytes >= _LARGE_BYTES else f"short {what}"


def plain_key(m: Measurement) -> str:
    """A row's key without the number of its GPU, so that it is the same on every GPU of a node."""
    if not m.on_gpu:
        return m.key
    return Row(m.kernel, m.problem, msgspec.structs.replace(m.settings, device="gpu")).key


def readable(runs: Iterable[str | pathlib.Path]) -> list[tuple[Device, ...]]:
    """The devices of each of these runs, which may serve as baselines. Those that cannot be read, or are no fleet's, are
    left out.
    """
    fleets = []
    for run in runs:
        with contextlib.suppress(options.Usage, ValueError):
            fleets.append(devices(run))
    return fleets


def stored_baseline(device: Device, runs: Iterable[tuple[Device, ...]]) -> Device | None:
    """The same device in the first of the runs that has it, else None. A GPU is matched by UUID, a CPU by node and model."""
    for run in runs:
        for other in run:
            if _is_same(device, other):
                return other
    return None


def _is_same(device: Device, other: Device) -> bool:
    """Whether two records are of one physical device: by the UUID of a GPU, else by model, node and number."""
    if device.uuid:
        return other.uuid == device.uuid
    return (other.model, other.node, other.device) == (device.model, device.node, device.device)


def saved() -> list[pathlib.Path]:
    """Every saved baseline, the newest first."""
    return sorted((baselines.folder(name) for name in baselines.names()), key=lambda p: -p.stat().st_mtime)
