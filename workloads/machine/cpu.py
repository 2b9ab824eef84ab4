"""The CPU, its memory and the limits on this process, as the operating system reports them.

/proc and /sys are read under ROOT, which a test sets to the files of another machine.
"""

import functools
import os
import platform
import re
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned number
_MAKERS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}
# Source: Arm's implementer codes, as in the kernel's arch/arm64/include/asm/cputype.h.
_IMPLEMENTERS = {
    0x41: "arm",
    0x42: "broadcom",
    0x43: "cavium",
    0x48: "hisilicon",
    0x4E: "nvidia",
    0x50: "ampere",
    0x51: "qualcomm",
    0x61: "apple",
    0x6D: "microsoft",
    0xC0: "ampere",
}
_ARM_PARTS = {
    0xD03: "Cortex-A53",
    0xD08: "Cortex-A72",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse N1",
    0xD40: "Neoverse V1",
    0xD49: "Neoverse N2",
    0xD4F: "Neoverse V2",
    0xD83: "Neoverse V3",
}
# Maker, family, models, microarchitecture, which a name such as "AMD EPYC" does not contain.
# Source: Linux, "Figure out Zen generations" in arch/x86/kernel/cpu/amd.c, and arch/x86/include/asm/intel-family.h.
_MICROARCHITECTURES = """
amd 23 0-47,80-95 Zen
amd 23 48-79,96-127,144-145,160-175 Zen 2
amd 25 0-15,32-95 Zen 3
amd 25 16-31,96-175 Zen 4
amd 26 0-47,64-79,112-127 Zen 5
intel 6 63 Haswell
intel 6 79 Broadwell
intel 6 85 Skylake or Cascade Lake
intel 6 106 Ice Lake
intel 6 143 Sapphire Rapids
intel 6 207 Emerald Rapids
intel 6 173 Granite Rapids
"""
# Features that give a level, highest first; the level is the feature's name but for three.
_SIMD = ("avx512f", "avx2", "avx", "sse4_2", "sse42", "sse2", "sve", "asimd", "neon", "vsx", "rvv")
_LEVELS = {"avx512f": "avx512", "sse4_2": "sse42", "asimd": "neon"}
_SLOW_GOVERNORS = ("powersave", "conservative", "ondemand")
# These drivers choose the clock themselves; with them `powersave` is the normal governor and no handicap.
_DRIVER_CHOOSES = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
_VM_MAKERS = ("qemu", "kvm", "vmware", "virtualbox", "innotek", "xen", "amazon ec2", "google", "bochs", "parallels")


def text(path: Path) -> str:
    """The file's text, stripped; empty when it is not there or may not be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def cpuinfo() -> list[dict[str, str]]:
    """/proc/cpuinfo, one dictionary a logical CPU; empty where there is no such file."""
    cpus = []
    for block in text(ROOT / "proc/cpuinfo").split("\n\n"):
        if block.strip():
            cpus.append(_fields(block))
    return cpus


def _fields(lines: str) -> dict[str, str]:
    """The fields of lines like `key: value`."""
    fields = {}
    for line in lines.splitlines():
        if ":" in line:
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
    return fields


@functools.cache
def sysctl() -> dict[str, str]:
    """macOS's `sysctl hw machdep.cpu kern.hv_vmm_present`; empty elsewhere."""
    if platform.system() != "Darwin":
        return {}
    done = subprocess.run(
        ["sysctl", "hw", "machdep.cpu", "kern.hv_vmm_present"], capture_output=True, text=True, timeout=10, check=False
    )
    return _fields(done.stdout)


def features(blocks: list[dict[str, str]]) -> set[str]:
    """The CPU's features in lower case: /proc/cpuinfo's flags (x86) or Features (Arm), of the first CPU."""
    first = blocks[0] if blocks else {}
    return set((first.get("flags") or first.get("Features") or "").lower().split())


def simd(names: set[str]) -> str:
    """The highest SIMD level among CPU features, `+amx` when it has tiles too: `avx512+amx`, `avx2`, `neon`, `scalar`.

    Takes the names of /proc/cpuinfo and of NumPy's feature table, in lower case.
    """
    feature = next((feature for feature in _SIMD if feature in names), "scalar")
    return _LEVELS.get(feature, feature) + ("+amx" if "amx_tile" in names else "")


def maker(blocks: list[dict[str, str]]) -> str:
    """The CPU's maker as one lower-case word: intel, amd, arm, apple, ...; `unknown`."""
    if brand := sysctl().get("machdep.cpu.brand_string"):
        return "apple" if brand.startswith("Apple") else "intel"
    first = blocks[0] if blocks else {}
    if "CPU implementer" in first:
        return _IMPLEMENTERS.get(int(first["CPU implementer"], 16), "arm")
    name = first.get("vendor_id", "")
    return _MAKERS.get(name) or re.sub(r"[^a-z0-9]+", "", name.lower()) or "unknown"


def model(blocks: list[dict[str, str]]) -> str:
    """The CPU's model as its maker writes it, with its microarchitecture where that is known: `AMD EPYC (Zen 4)`; Arm cores by
    their part number."""
    if brand := sysctl().get("machdep.cpu.brand_string"):
        return brand
    first = blocks[0] if blocks else {}
    if "CPU part" in first:
        part = int(first["CPU part"], 16)
        return _ARM_PARTS.get(part, f"{maker(blocks)} part {part:#x}")
    name = " ".join(first.get("model name", "").split()) or platform.processor() or platform.machine()
    family = f"{maker(blocks)} {first.get('cpu family')} "
    number = first.get("model", "")
    for line in _MICROARCHITECTURES.splitlines():
        if line.startswith(family):
            models, _, microarchitecture = line.removeprefix(family).partition(" ")
            if number in map(str, cpu_list(models)):
                name += f" ({microarchitecture})"
    return name


def virtual(names: set[str]) -> bool:
    """Is this a virtual machine? By the hypervisor flag, /sys/hypervisor, the maker of the board or macOS's answer."""
    if "hypervisor" in names or text(ROOT / "sys/hypervisor/type") or sysctl().get("kern.hv_vmm_present") == "1":
        return True
    board = " ".join(text(ROOT / f"sys/class/dmi/id/{name}").lower() for name in ("sys_vendor", "product_name"))
    return any(name in board for name in _VM_MAKERS) or "virtual machine" in board


def affinity() -> frozenset[int]:
    """The logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def cpu_list(words: str) -> list[int]:
    """The numbers of a list as the kernel writes it: `0-2,8` is 0, 1, 2, 8."""
    numbers: list[int] = []
    for part in words.split(","):
        if part:
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def cores(cpus: frozenset[int], blocks: list[dict[str, str]]) -> tuple[int, int]:
    """(physical cores, hardware threads a core) of these logical CPUs."""
    if physical := sysctl().get("hw.physicalcpu"):
        return int(physical), max(1, len(cpus) // int(physical))
    folders = [ROOT / f"sys/devices/system/cpu/cpu{cpu}/topology" for cpu in cpus]
    siblings = [text(f / "core_cpus_list") or text(f / "thread_siblings_list") for f in folders]
    if all(siblings):
        return len(set(siblings)), max(len(cpu_list(s)) for s in siblings)
    ids = {(b["physical id"], b["core id"]) for b in blocks if "core id" in b and int(b["processor"]) in cpus}
    count = len(ids) or len(cpus)
    return count, max(1, len(cpus) // count)


def caches(cpus: frozenset[int]) -> dict[str, int]:
    """Bytes of each cache that the first of these CPUs sees: L1d, L1i, L2, L3. A VM may lie about its L3."""
    sizes = {}
    for index in sorted((ROOT / f"sys/devices/system/cpu/cpu{min(cpus)}/cache").glob("index*")):
        letter = {"Data": "d", "Instruction": "i"}.get(text(index / "type"), "")
        if match := re.fullmatch(r"(\d+)([KM]?)", text(index / "size")):
            sizes[f"L{text(index / 'level')}{letter}"] = int(match[1]) << {"K": 10, "M": 20}.get(match[2], 0)
    names = {"hw.l1dcachesize": "L1d", "hw.l1icachesize": "L1i", "hw.l2cachesize": "L2", "hw.l3cachesize": "L3"}
    return sizes or {name: int(sysctl()[key]) for key, name in names.items() if sysctl().get(key, "0") != "0"}


class Group(NamedTuple):
    """The cgroup folders that limit this process."""

    #: Version of cgroups; 0: none.
    version: int
    #: The folders, innermost first.
    folders: tuple[Path, ...]


@functools.cache
def cgroup(controller: str) -> Group:
    """The cgroup folders of this process for `cpu` or `memory`, up to where the hierarchy is mounted."""
    lines = [line.split(":", 2) for line in text(ROOT / "proc/self/cgroup").splitlines()]
    mounts = [line.partition(" - ") for line in text(ROOT / "proc/self/mountinfo").splitlines()]
    for version, kind in ((1, "cgroup"), (2, "cgroup2")):
        paths = [path for _, names, path in lines if (controller in names.split(",") if version == 1 else names == "")]
        for left, _, right in mounts:
            fields = left.split()
            file_system = [*right.split(), "", "", ""]  # kind, source, options
            controllers = file_system[2].split(",")
            if paths and file_system[0] == kind and (version == 2 or controller in controllers):
                return Group(version, _chain(ROOT / fields[4].lstrip("/"), fields[3], paths[0]))
    return Group(0, ())


def _chain(mount: Path, mount_root: str, path: str) -> tuple[Path, ...]:
    """The folder of `path` below a mount of the hierarchy from `mount_root` on, then its parents up to the mount."""
    inside = path[len(mount_root.rstrip("/")) :] if path.startswith(mount_root.rstrip("/")) else "/"
    folder = mount / inside.lstrip("/")
    if ".." in inside or not folder.is_dir():  # the container sees only its own part, mounted at the top
        return (mount,)
    return (folder, *[p for p in folder.parents if p == mount or mount in p.parents])


def quota_cpus() -> float | None:
    """CPUs' worth of time that the tightest cgroup quota grants; None without a quota."""
    version, folders = cgroup("cpu")
    quotas = []
    for folder in folders:
        if version == 2:
            quota, _, period = text(folder / "cpu.max").partition(" ")
        else:
            quota, period = text(folder / "cpu.cfs_quota_us"), text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # "max" and "-1" are no quota
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def governors() -> tuple[list[str], list[str]]:
    """The frequency governors in use, and those of them whose clock lags behind the work."""
    folders = (ROOT / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq")
    governors_and_drivers = {(text(folder / "scaling_governor"), text(folder / "scaling_driver")) for folder in folders}
    slow = {name for name, driver in governors_and_drivers if name in _SLOW_GOVERNORS and driver not in _DRIVER_CHOOSES}
    return sorted({name for name, _ in governors_and_drivers}), sorted(slow)


def throttled_s() -> float:
    """Seconds so far in which a cgroup's CPU quota stopped this process's group."""
    version, folders = cgroup("cpu")
    key, unit = ("throttled_usec", 1e-6) if version == 2 else ("throttled_time", 1e-9)
    return max((_stat(folder / "cpu.stat").get(key, 0) * unit for folder in folders), default=0.0)


def _stat(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


class Room(NamedTuple):
    """A cgroup's memory."""

    #: Bytes that the group may use.
    limit: int
    #: Bytes of them that are free. Page cache that can be dropped counts as free.
    left: int


def memory_limit() -> Room | None:
    """The cgroup memory limit with the least room; None without a limit."""
    version, folders = cgroup("memory")
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }.get(version, ("", "", ""))
    rooms = []
    for folder in folders:
        limit = text(folder / names[0])
        if limit.isdigit() and int(limit) < _UNLIMITED:
            used = int(text(folder / names[1]) or 0) - _stat(folder / "memory.stat").get(names[2], 0)
            rooms.append(Room(int(limit), max(0, int(limit) - max(0, used))))
    return min(rooms, key=lambda room: room.left, default=None)


def memory() -> tuple[int, int]:
    """(total, available) bytes that the kernel reports now; on a VM whose memory grows with use, far too little."""
    import psutil  # the doctor has to speak without it, too

    host = psutil.virtual_memory()
    return host.total, host.available


class Ticks(NamedTuple):
    """CPU time since boot, summed over some CPUs."""

    #: Seconds at work.
    busy_s: float
    #: Seconds that the hypervisor gave to other machines.
    stolen_s: float


def ticks(cpus: frozenset[int]) -> Ticks:
    """Busy and stolen seconds of these logical CPUs since boot, from /proc/stat; zeros without that file."""
    busy = stolen = 0
    for line in text(ROOT / "proc/stat").splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus:
            # user, nice, system, idle, wait, irq, softirq, steal
            counts = [int(number) for number in (numbers + ["0"] * 8)[:8]]
            busy += sum(counts[:3]) + sum(counts[5:7])
            stolen += counts[7]
    return Ticks(busy / TICKS_A_SECOND, stolen / TICKS_A_SECOND)


def others_running(this_process: bool = True) -> bool | None:
    """Whether a thread of the parent's other child processes runs right now, or, by default, another thread of `this_process`.
    None where the system does not tell."""
    parent = os.getppid()
    children = text(ROOT / f"proc/{parent}/task/{parent}/children").split()
    processes = [pid for pid in children if pid != str(os.getpid())]
    if this_process:
        if not (ROOT / "proc/self/task").is_dir():
            return None
        processes.append("self")
    this_thread = str(threading.get_native_id())
    for process in processes:
        for task in _listed(ROOT / f"proc/{process}/task"):
            if task != this_thread and _state(f"{process}/task/{task}") == "R":
                return True
    return False


def _state(process: str) -> str:
    """The letter of the state of a process or thread, which is R while it runs; "" where it is gone."""
    # It follows the command in parentheses, which may have any character.
    return text(ROOT / f"proc/{process}/stat").rpartition(") ")[2][:1]


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # gone meanwhile
        return []
