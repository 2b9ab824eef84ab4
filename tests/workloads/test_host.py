"""What the operating system says, from the files of other machines worked out by hand."""

import pytest
from fake_gpu import write

from workloads.machine import cpu as host

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
def test_cpuinfo(tmp_path, text, maker, simd, model, virtual):
    blocks = host.cpuinfo(write(tmp_path, {"proc/cpuinfo": text}))
    names = host.features(blocks)
    assert (host.maker(blocks), host.simd(names), host.model(blocks)) == (maker, simd, model)
    assert host.virtual(names, tmp_path) is virtual


def test_cores_by_sysfs_by_cpuinfo_and_by_neither_and_a_virtual_machine_by_its_board(tmp_path):
    name = "sys/devices/system/cpu/cpu{}/topology/core_cpus_list"
    root = write(tmp_path, {name.format(cpu): f"{cpu % 2},{cpu % 2 + 2}\n" for cpu in range(4)})
    assert host.cores(frozenset({0, 1, 2, 3}), [], root) == (2, 2)
    assert host.cores(frozenset({0, 2}), [], root) == (1, 2), "two threads of one core are one core"
    nothing = tmp_path / "nothing"
    blocks = host.cpuinfo(write(nothing, {"proc/cpuinfo": CASCADE_LAKE}))
    assert host.cores(frozenset({0, 1}), blocks, nothing) == (1, 2)
    assert host.cores(frozenset({0, 1, 2}), [], nothing) == (3, 1)
    boards = ("sys_vendor", "QEMU", True), ("product_name", "Virtual Machine", True), ("sys_vendor", "Dell Inc.", False)
    for name, text, virtual in boards:
        root = write(tmp_path / text, {f"sys/class/dmi/id/{name}": f"{text}\n"})
        assert host.virtual(set(), root) is virtual


def test_caches_cpu_lists_ticks_and_meminfo(tmp_path):
    folder = "sys/devices/system/cpu/cpu3/cache/index"
    levels = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "107520K")]
    caches = [zip(("level", "type", "size"), cache, strict=True) for cache in levels]
    root = write(tmp_path, {f"{folder}{i}/{name}": text for i, cache in enumerate(caches) for name, text in cache})
    sizes = {"L1d": 49152, "L1i": 32768, "L2": 2097152, "L3": 110100480}
    assert host.caches(frozenset({3, 5}), root) == sizes and host.caches(frozenset({0}), root) == {}
    assert host.cpu_list("0-2,8") == [0, 1, 2, 8]
    stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 100 10 50 1000 3 5 35 20 0 0\ncpu1 1000 0 0 0 0 0 0 0 0 0\nintr 5\n"
    seen = host.ticks(frozenset({0}), write(tmp_path, {"proc/stat": stat}))
    assert seen == (200 / host.TICKS_A_SECOND, 20 / host.TICKS_A_SECOND)
    text = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nHugePages_Total:   0\n"
    assert host.memory(write(tmp_path, {"proc/meminfo": text})) == (1024000, 614400)
    assert host.memory(tmp_path / "none")[0] > 0, "psutil answers where there is no /proc/meminfo"


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
def test_cgroups_tell_the_tightest_of_their_folders(tmp_path, files, quota, throttled, memory):
    root = write(tmp_path, files)
    assert (host.quota_cpus(root), host.memory_limit(root)) == (quota, memory)
    assert host.throttled_s(root) == pytest.approx(throttled)
