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
# Numbers in a line of /proc/stat.
_STATES = ("user", "nice", "system", "idle", "wait", "irq", "softirq", "steal")
_BUSY_STATES = ("user", "nice", "system", "irq", "softirq")
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


class Microarchitecture(NamedTuple):
    """A microarchitecture, which a name such as "AMD EPYC" does not contain, and the CPUs that have it."""

    #: As `maker` says it.
    maker: str
    #: Number of the family in /proc/cpuinfo.
    family: str
    #: Numbers of the models, as a list that `cpu_list` reads.
    models: str
    name: str


# Source: Linux, "Figure out Zen generations" in arch/x86/kernel/cpu/amd.c, and arch/x86/include/asm/intel-family.h.
_MICROARCHITECTURES = (
    Microarchitecture(maker="amd", family="23", models="0-47,80-95", name="Zen"),
    Microarchitecture(maker="amd", family="23", models="48-79,96-127,144-145,160-175", name="Zen 2"),
    Microarchitecture(maker="amd", family="25", models="0-15,32-95", name="Zen 3"),
    Microarchitecture(maker="amd", family="25", models="16-31,96-175", name="Zen 4"),
    Microarchitecture(maker="amd", family="26", models="0-47,64-79,112-127", name="Zen 5"),
    Microarchitecture(maker="intel", family="6", models="63", name="Haswell"),
    Microarchitecture(maker="intel", family="6", models="79", name="Broadwell"),
    Microarchitecture(maker="intel", family="6", models="85", name="Skylake or Cascade Lake"),
    Microarchitecture(maker="intel", family="6", models="106", name="Ice Lake"),
    Microarchitecture(maker="intel", family="6", models="143", name="Sapphire Rapids"),
    Microarchitecture(maker="intel", family="6", models="207", name="Emerald Rapids"),
    Microarchitecture(maker="intel", family="6", models="173", name="Granite Rapids"),
)
# Features that give a level, highest first; the level is the feature's name but for three.
_SIMD = ("avx512f", "avx2", "avx", "sse4_2", "sse42", "sse2", "sve", "asimd", "neon", "vsx", "rvv")
_LEVELS = {"avx512f": "avx512", "sse4_2": "sse42", "asimd": "neon"}
_SLOW_GOVERNORS = ("powersave", "conservative", "ondemand")
# These drivers choose the clock themselves; with them `powersave` is the normal governor and no handicap.
_DRIVER_CHOOSES = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20}
_CACHES_OF_MACOS = {"hw.l1dcachesize": "L1d", "hw.l1icachesize": "L1i", "hw.l2cachesize": "L2", "hw.l3cachesize": "L3"}
_VM_MAKERS = ("qemu", "kvm", "vmware", "virtualbox", "innotek", "xen", "amazon ec2", "google", "bochs", "parallels")


def text(path: Path) -> str:
    """The content of a text file without white space around it; "" if it does not exist or may not be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def cpuinfo() -> list[dict[str, str]]:
    """The fields of /proc/cpuinfo, by name, for each logical CPU; [] where the system has no such file."""
    cpus = []
    for block in text(ROOT / "proc/cpuinfo").split("\n\n"):
        if block.strip():
            cpus.append(_fields(block))
    return cpus


def _fields(lines: str) -> dict[str, str]:
    """Key -> value, from lines like `key: value`."""
    fields = {}
    for line in lines.splitlines():
        if ":" in line:
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
    return fields


@functools.cache
def sysctl() -> dict[str, str]:
    """What macOS's `sysctl` says of the machine and its CPU, by name; {} on other systems."""
    if platform.system() != "Darwin":
        return {}
    done = subprocess.run(
        ["sysctl", "hw", "machdep.cpu", "kern.hv_vmm_present"], capture_output=True, text=True, timeout=10, check=False
    )
    return _fields(done.stdout)


def features(cpus: list[dict[str, str]]) -> set[str]:
    """The names of the CPU's features, such as avx2, in lower case. cpus: what `cpuinfo` gives, of which the first one counts."""
    first = cpus[0] if cpus else {}
    return set((first.get("flags") or first.get("Features") or "").lower().split())


def simd(feature_names: set[str]) -> str:
    """The widest vector instructions of a CPU: `avx512`, `avx2`, `neon`, ..., `scalar` for none; `avx512+amx` if it also
    multiplies tiles.

    feature_names: as /proc/cpuinfo or NumPy's table of features has them, in lower case.
    """
    level = "scalar"
    for feature in _SIMD:  # highest first
        if feature in feature_names:
            level = _LEVELS.get(feature, feature)
            break
    return f"{level}+amx" if "amx_tile" in feature_names else level


def maker(cpus: list[dict[str, str]]) -> str:
    """The CPU's maker as one lower-case word: intel, amd, arm, apple, ...; `unknown`. cpus: what `cpuinfo` gives."""
    brand = sysctl().get("machdep.cpu.brand_string")
    if brand:
        return "apple" if brand.startswith("Apple") else "intel"
    first = cpus[0] if cpus else {}
    if "CPU implementer" in first:
        return _IMPLEMENTERS.get(int(first["CPU implementer"], 16), "arm")
    name = first.get("vendor_id", "")
    return _MAKERS.get(name) or re.sub(r"[^a-z0-9]+", "", name.lower()) or "unknown"


def model(cpus: list[dict[str, str]]) -> str:
    """The CPU's model as its maker writes it, with its microarchitecture where that is known: `AMD EPYC (Zen 4)`. An Arm
    core's name is found by its part number. cpus: what `cpuinfo` gives."""
    brand = sysctl().get("machdep.cpu.brand_string")
    if brand:
        return brand
    first = cpus[0] if cpus else {}
    if "CPU part" in first:
        part = int(first["CPU part"], 16)
        return _ARM_PARTS.get(part, f"{maker(cpus)} part {part:#x}")
    name = " ".join(first.get("model name", "").split()) or platform.processor() or platform.machine()
    number = first.get("model", "")
    for known in _MICROARCHITECTURES:
        is_family = known.maker == maker(cpus) and known.family == first.get("cpu family")
        if is_family and number in map(str, cpu_list(known.models)):
            name += f" ({known.name})"
    return name


def virtual(feature_names: set[str]) -> bool:
    """Whether this is a virtual machine: by a CPU feature that hypervisors set, /sys/hypervisor, the maker of the board, or
    macOS's answer. feature_names: of the CPU, in lower case."""
    if (
        "hypervisor" in feature_names
        or text(ROOT / "sys/hypervisor/type")
        or sysctl().get("kern.hv_vmm_present") == "1"
    ):
        return True
    board = " ".join(text(ROOT / f"sys/class/dmi/id/{name}").lower() for name in ("sys_vendor", "product_name"))
    return any(name in board for name in _VM_MAKERS) or "virtual machine" in board


def affinity() -> frozenset[int]:
    """The logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def cpu_list(ranges: str) -> list[int]:
    """The numbers in a list as the Linux kernel writes it: `0-2,8` is 0, 1, 2, 8."""
    numbers: list[int] = []
    for part in ranges.split(","):
        if part:
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers


class Cores(NamedTuple):
    """The physical cores of some logical CPUs."""

    #: Number of cores.
    number: int
    #: Hardware threads of a core.
    threads_a_core: int


def cores(cpus: frozenset[int], cpuinfo_fields: list[dict[str, str]]) -> Cores:
    """The physical cores of these logical CPUs. cpuinfo_fields: what `cpuinfo` gives, used where /sys does not say."""
    physical = int(sysctl().get("hw.physicalcpu", 0))
    if physical:
        return Cores(number=physical, threads_a_core=max(1, len(cpus) // physical))
    threads_of_cores = []  # for each logical CPU the list of CPUs that share its core, such as `0,64`
    for number in cpus:
        topology = ROOT / f"sys/devices/system/cpu/cpu{number}/topology"
        threads_of_cores.append(text(topology / "core_cpus_list") or text(topology / "thread_siblings_list"))
    if all(threads_of_cores):
        most_threads = max(len(cpu_list(threads)) for threads in threads_of_cores)
        return Cores(number=len(set(threads_of_cores)), threads_a_core=most_threads)
    core_ids = set()
    for fields in cpuinfo_fields:
        if "core id" in fields and int(fields["processor"]) in cpus:
            core_ids.add((fields["physical id"], fields["core id"]))
    count = len(core_ids) or len(cpus)
    return Cores(number=count, threads_a_core=max(1, len(cpus) // count))


def caches(cpus: frozenset[int]) -> dict[str, int]:
    """Name of a cache (L1d, L1i, L2, L3) -> its bytes, as the first of these logical CPUs sees it. A virtual machine may claim a
    larger L3 than it has."""
    sizes = {}
    for index in sorted((ROOT / f"sys/devices/system/cpu/cpu{min(cpus)}/cache").glob("index*")):
        letter = {"Data": "d", "Instruction": "i"}.get(text(index / "type"), "")
        size = re.fullmatch(r"(\d+)([KM]?)", text(index / "size"))
        if size:
            sizes[f"L{text(index / 'level')}{letter}"] = int(size[1]) * _BYTES[size[2]]
    if sizes:
        return sizes
    for key, name in _CACHES_OF_MACOS.items():
        cache_bytes = int(sysctl().get(key, 0))
        if cache_bytes:
            sizes[name] = cache_bytes
    return sizes


class Cgroup(NamedTuple):
    """The cgroup of this process and those around it, whose limits it has to keep."""

    #: Version of cgroups; 0: none.
    version: int
    #: Their folders, innermost first.
    folders: tuple[Path, ...]


@functools.cache
def cgroup(controller: str) -> Cgroup:
    """The cgroups that limit this process's use of `cpu` or `memory`, up to the folder at which their tree is mounted."""
    # Lines of NUMBER:CONTROLLERS:PATH; version 2 names no controllers.
    memberships = [line.split(":", 2) for line in text(ROOT / "proc/self/cgroup").splitlines()]
    mounts = [_Mount.from_line(line) for line in text(ROOT / "proc/self/mountinfo").splitlines()]
    paths = [path for _, controllers, path in memberships if controller in controllers.split(",")]
    for mount in mounts:
        if paths and mount.kind == "cgroup" and controller in mount.options:
            return Cgroup(version=1, folders=_folder_and_parents(mount, paths[0]))
    paths = [path for _, controllers, path in memberships if controllers == ""]
    for mount in mounts:
        if paths and mount.kind == "cgroup2":
            return Cgroup(version=2, folders=_folder_and_parents(mount, paths[0]))
    return Cgroup(version=0, folders=())


class _Mount(NamedTuple):
    """A line of /proc/self/mountinfo."""

    #: Kind of the file system.
    kind: str
    #: Where it is mounted.
    folder: Path
    #: The folder of the file system that is mounted there; / for all of it.
    root: str
    #: Options of the file system; of cgroups of version 1 the controllers are among them.
    options: list[str]

    @classmethod
    def from_line(cls, line: str) -> "_Mount":
        """The mount of a line `ID PARENT DEVICE ROOT FOLDER ... - KIND SOURCE OPTIONS`."""
        mount, _, file_system = line.partition(" - ")
        root, folder = mount.split()[3:5]
        kind_source_options = [*file_system.split(), "", "", ""]
        kind = kind_source_options[0]
        options = kind_source_options[2].split(",")
        return cls(kind=kind, folder=ROOT / folder.lstrip("/"), root=root, options=options)


def _folder_and_parents(mount: _Mount, path: str) -> tuple[Path, ...]:
    """The folder of the cgroup with this path in its tree, then the folders above it up to the one at which the tree is
    mounted."""
    root = mount.root.rstrip("/")
    inside = path[len(root) :] if path.startswith(root) else "/"
    folder = mount.folder / inside.lstrip("/")
    if ".." in inside or not folder.is_dir():  # a container sees only its own part, mounted at the top
        return (mount.folder,)
    above = [parent for parent in folder.parents if parent == mount.folder or mount.folder in parent.parents]
    return (folder, *above)


def quota_cpus() -> float | None:
    """The CPU time that the tightest cgroup quota grants, as a number of CPUs; None without a quota."""
    group = cgroup("cpu")
    quotas = []
    for folder in group.folders:
        if group.version == 2:
            quota, _, period = text(folder / "cpu.max").partition(" ")
        else:
            quota = text(folder / "cpu.cfs_quota_us")
            period = text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # "max" and "-1" are no quota
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


class Governors(NamedTuple):
    """The frequency governors of the CPUs, each name once."""

    #: All that are in use, sorted.
    names: list[str]
    #: Of these, the governors whose clock lags behind the work.
    slow: list[str]


def governors() -> Governors:
    """The frequency governors in use; none where the system shows none, as in most virtual machines."""
    names = set()
    slow = set()
    for folder in (ROOT / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"):
        name = text(folder / "scaling_governor")
        names.add(name)
        if name in _SLOW_GOVERNORS and text(folder / "scaling_driver") not in _DRIVER_CHOOSES:
            slow.add(name)
    return Governors(names=sorted(names), slow=sorted(slow))


def throttled_s() -> float:
    """Seconds for which a cgroup's CPU quota has stopped the processes of this process's cgroup so far."""
    group = cgroup("cpu")
    if group.version == 2:
        key = "throttled_usec"
        unit_s = 1e-6
    else:
        key = "throttled_time"
        unit_s = 1e-9
    return max((_stat(folder / "cpu.stat").get(key, 0) * unit_s for folder in group.folders), default=0.0)


def _stat(path: Path) -> dict[str, int]:
    """Name -> number, from a file with lines like `nr_throttled 12`; other lines are left out."""
    numbers = {}
    for line in text(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            name, number = words
            numbers[name] = int(number)
    return numbers


class Room(NamedTuple):
    """A cgroup's memory."""

    #: Bytes that the group may use.
    limit: int
    #: Bytes of them that are free. Page cache that can be dropped counts as free.
    left: int


def memory_limit() -> Room | None:
    """The memory of the cgroup around this process that has the least left; None where none has a limit."""
    group = cgroup("memory")
    if group.version == 2:
        limit_file = "memory.max"
        used_file = "memory.current"
        droppable = "inactive_file"  # page cache
    else:
        limit_file = "memory.limit_in_bytes"
        used_file = "memory.usage_in_bytes"
        droppable = "total_inactive_file"
    rooms = []
    for folder in group.folders:
        limit = text(folder / limit_file)
        if limit.isdigit() and int(limit) < _UNLIMITED:
            used = int(text(folder / used_file) or 0) - _stat(folder / "memory.stat").get(droppable, 0)
            rooms.append(Room(limit=int(limit), left=max(0, int(limit) - max(0, used))))
    return min(rooms, key=lambda room: room.left, default=None)


class HostMemory(NamedTuple):
    """The memory of the host, as its kernel reports it. Bytes."""

    total: int
    #: What programs may still take.
    available: int


def memory() -> HostMemory:
    """The memory that the kernel reports now; in a virtual machine whose memory grows with use, far too little."""
    import psutil  # imported here, as the doctor has to work without it, too

    host = psutil.virtual_memory()
    return HostMemory(total=host.total, available=host.available)


class Ticks(NamedTuple):
    """CPU time since boot, summed over some CPUs."""

    #: Seconds at work.
    busy_s: float
    #: Seconds that the hypervisor gave to other machines.
    stolen_s: float


def ticks(cpus: frozenset[int]) -> Ticks:
    """CPU time of these logical CPUs together since boot, from /proc/stat; zeros without that file."""
    busy_ticks = 0
    stolen_ticks = 0
    for line in text(ROOT / "proc/stat").splitlines():
        name, *numbers = line.split()
        cpu_number = name.removeprefix("cpu")
        if cpu_number == name or not cpu_number.isdigit() or int(cpu_number) not in cpus:
            continue
        by_state = dict(zip(_STATES, map(int, numbers), strict=False))  # old kernels have fewer states, new ones more
        busy_ticks += sum(by_state.get(state, 0) for state in _BUSY_STATES)
        stolen_ticks += by_state.get("steal", 0)
    return Ticks(busy_s=busy_ticks / TICKS_A_SECOND, stolen_s=stolen_ticks / TICKS_A_SECOND)


def others_running(this_process: bool = True) -> bool | None:
    """Whether a thread of the parent's other child processes runs at this moment; None where the system does not tell.

    this_process: whether the other threads of this process count, too.
    """
    parent = os.getppid()
    children = text(ROOT / f"proc/{parent}/task/{parent}/children").split()
    processes = [pid for pid in children if pid != str(os.getpid())]
    if this_process:
        if not (ROOT / "proc/self/task").is_dir():
            return None
        processes.append("self")
    this_thread = str(threading.get_native_id())
    for process in processes:
        for task in _names_in(ROOT / f"proc/{process}/task"):
            if task != this_thread and _state(f"{process}/task/{task}") == "R":
                return True
    return False


def _state(process: str) -> str:
    """The letter for the state of a process or thread, R while it runs; "" where it has ended.

    process: its folder below /proc.
    """
    # It follows the command in parentheses, which may have any character.
    return text(ROOT / f"proc/{process}/stat").rpartition(") ")[2][:1]


def _names_in(folder: Path) -> list[str]:
    """The names of the files in a folder; [] if it does not exist."""
    try:
        return os.listdir(folder)
    except OSError:  # the process has ended meanwhile
        return []
