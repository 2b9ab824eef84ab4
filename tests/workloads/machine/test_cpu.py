"""What the operating system says, from the files of other machines worked out by hand."""

import pytest
from fake_gpu import use_root, write

from workloads.machine import cpu as host


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Makes files of another machine those that are read."""
    return lambda files, folder=".": use_root(monkeypatch, write(tmp_path / folder, files))


THREAD = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R)   Processor @ 2.50GHz
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu sse4_2 avx avx2 fma hypervisor avx512f avx512dq avx512bw avx512vl
"""
CASCADE_LAKE = f"{THREAD}\n{THREAD.replace(': 0', ': 1', 1)}"
SAPPHIRE_RAPIDS = CASCADE_LAKE.replace("avx512vl", "avx512vl amx_bf16 amx_tile amx_int8").replace(
    "Intel(R) Xeon(R)   Processor @ 2.50GHz", "Intel(R) Xeon(R) Platinum 8480+"
)
ZEN2 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 23
model\t\t: 49
model name\t: AMD EPYC 7742 64-Core Processor
physical id\t: 0
core id\t\t: 3
flags\t\t: fpu sse4_2 avx avx2 fma sse4a
"""
LATE_INTEL = SAPPHIRE_RAPIDS.replace("model name", "cpu family: 6\nmodel: 143\nmodel name")
# What both of these call themselves is "AMD EPYC".
ZEN4, ZEN5 = (
    ZEN2.replace(": 23", f": {f}").replace(": 49", f": {m}").replace(" 7742", "") for f, m in ((25, 17), (26, 2))
)
GRAVITON3 = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes sve
CPU implementer\t: 0x41
CPU part\t: 0xd40

processor\t: 1
Features\t: fp asimd evtstrm aes sve
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""
RASPBERRY = GRAVITON3.replace(" sve", "").replace("0xd40", "0xd0b")


@pytest.mark.parametrize(
    ("text", "maker", "simd", "model", "virtual"),
    [
        (CASCADE_LAKE, "intel", "avx512", "Intel(R) Xeon(R) Processor @ 2.50GHz", True),
        (SAPPHIRE_RAPIDS, "intel", "avx512+amx", "Intel(R) Xeon(R) Platinum 8480+", True),
        (ZEN2, "amd", "avx2", "AMD EPYC 7742 64-Core Processor (Zen 2)", False),
        (ZEN4, "amd", "avx2", "AMD EPYC 64-Core Processor (Zen 4)", False),
        (ZEN5, "amd", "avx2", "AMD EPYC 64-Core Processor (Zen 5)", False),
        (ZEN5.replace(": 26", ": 27"), "amd", "avx2", "AMD EPYC 64-Core Processor", False),
        (LATE_INTEL, "intel", "avx512+amx", "Intel(R) Xeon(R) Platinum 8480+ (Sapphire Rapids)", True),
        (GRAVITON3, "arm", "sve", "Neoverse V1", False),
        (RASPBERRY, "arm", "neon", "Cortex-A76", False),
    ],
)
def test_cpuinfo(place, text, maker, simd, model, virtual):
    place({"proc/cpuinfo": text})
    blocks = host.cpuinfo()
    names = host.features(blocks)
    assert (host.maker(blocks), host.simd(names), host.model(blocks)) == (maker, simd, model)
    assert host.virtual(names) is virtual


def test_cores_are_counted_by_sysfs_or_cpuinfo(place):
    name = "sys/devices/system/cpu/cpu{}/topology/core_cpus_list"
    place({name.format(cpu): f"{cpu % 2},{cpu % 2 + 2}\n" for cpu in range(4)})
    assert host.cores(frozenset({0, 1, 2, 3}), []) == (2, 2)
    assert host.cores(frozenset({0, 2}), []) == (1, 2), "two threads of one core are one core"
    place({"proc/cpuinfo": CASCADE_LAKE}, "nothing")
    assert host.cores(frozenset({0, 1}), host.cpuinfo()) == (1, 2)
    assert host.cores(frozenset({0, 1, 2}), []) == (3, 1)
    boards = ("sys_vendor", "QEMU", True), ("product_name", "Virtual Machine", True), ("sys_vendor", "Dell Inc.", False)
    for name, text, virtual in boards:
        place({f"sys/class/dmi/id/{name}": f"{text}\n"}, text)
        assert host.virtual(set()) is virtual


def test_caches_cpu_lists_ticks_and_memory(place, monkeypatch):
    folder = "sys/devices/system/cpu/cpu3/cache/index"
    levels = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "107520K")]
    caches = [zip(("level", "type", "size"), cache, strict=True) for cache in levels]
    place({f"{folder}{i}/{name}": text for i, cache in enumerate(caches) for name, text in cache})
    sizes = {"L1d": 49152, "L1i": 32768, "L2": 2097152, "L3": 110100480}
    assert host.caches(frozenset({3, 5})) == sizes and host.caches(frozenset({0})) == {}
    assert host.cpu_list("0-2,8") == [0, 1, 2, 8]
    stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 100 10 50 1000 3 5 35 20 0 0\ncpu1 1000 0 0 0 0 0 0 0 0 0\nintr 5\n"
    place({"proc/stat": stat})
    assert host.ticks(frozenset({0})) == (200 / host.TICKS_A_SECOND, 20 / host.TICKS_A_SECOND)
    others = ("MemFree", "Buffers", "Cached", "Shmem", "Active", "Inactive", "Slab")
    sizes = {"MemTotal": 1000, "MemAvailable": 600, **dict.fromkeys(others, 0)}
    place({"proc/meminfo": "".join(f"{name}: {size} kB\n" for name, size in sizes.items())})
    monkeypatch.setattr("psutil.PROCFS_PATH", str(host.ROOT / "proc"))
    assert host.memory() == (1024000, 614400)


V1 = {
    "proc/self/cgroup": "4:memory:/jobs/a\n1:cpu,cpuacct:/jobs/a\n0::/\n",
    "proc/self/mountinfo": "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n",
    "cg/cpu/cpu.cfs_quota_us": "-1",
    "cg/cpu/cpu.cfs_period_us": "100000",
    "cg/cpu/jobs/cpu.cfs_quota_us": "250000",
    "cg/cpu/jobs/cpu.cfs_period_us": "100000",
    "cg/cpu/jobs/a/cpu.cfs_quota_us": "400000",
    "cg/cpu/jobs/a/cpu.cfs_period_us": "100000",
    "cg/cpu/jobs/a/cpu.stat": "nr_periods 7\nthrottled_time 1500000000\n",
    "cg/memory/memory.limit_in_bytes": "9223372036854771712",
    "cg/memory/memory.usage_in_bytes": "5",
    "cg/memory/jobs/a/memory.limit_in_bytes": "8000",
    "cg/memory/jobs/a/memory.usage_in_bytes": "5000",
    "cg/memory/jobs/a/memory.stat": "inactive_file 1\ntotal_inactive_file 1000\n",
}
V2 = {
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup rw\n",
    "sys/fs/cgroup/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 9\nthrottled_usec 250000\n",
    "sys/fs/cgroup/memory.max": "6000\n",
    "sys/fs/cgroup/memory.current": "1000\n",
    "sys/fs/cgroup/memory.stat": "anon 600\ninactive_file 400\n",
}


@pytest.mark.parametrize(
    ("files", "quota", "throttled", "memory"),
    [
        (V1, 2.5, 1.5, (8000, 4000)),
        (V2, 1.5, 0.25, (6000, 5400)),
        (V2 | {"sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}, None, 0.25, None),
        ({}, None, 0, None),
    ],
)
def test_cgroups_tell_the_tightest_of_their_folders(place, files, quota, throttled, memory):
    place(files)
    assert (host.quota_cpus(), host.memory_limit()) == (quota, memory)
    assert host.throttled_s() == pytest.approx(throttled)
