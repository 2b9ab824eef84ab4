"""Numbers as people read them: three significant digits and a unit; GB/s = 1e9 bytes a second."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.problems import Problem

# The columns of the rows' table: name, unit (text, or count for whole numbers), which is better, and what it is.
COLUMNS = """
dtype                text    -       type of the operands
math                 text    -       arithmetic that products are computed in
mode                 text    -       where the data are: resident on the device, or copied in each call (roundtrip...)
reuse                count   -       calls that use a copy
device               text    -       cpu, gpu:0, ...
threads              count   -       of the CPU; absent: as many as the library takes
cache                text    -       warm, or cold
switches             text    -       a framework's options that are not their default, name=text
median_s             s       lower   host latency: a call that is waited for
low_s                s       lower   the lower end of its 95 % interval within this run
high_s               s       lower   the upper end
device_median_s      s       lower   a call on the GPU's clock
throughput_median_s  s       lower   host throughput: one of many queued calls
first_call_s         s       lower   the first call, what it compiles included
flops                FLOP    -       of a call
bytes_moved          byte    -       of a call, each input read once and each output written once
flops_per_s          FLOP/s  higher  by the GPU's clock where there is one, else by host latency
bytes_per_s          byte/s  higher  the same of bytes
roof_fraction        1       higher  of the rate that the measured roofs allow
joules_per_sample    J       lower   energy of an answer
noise                1       lower   half the interval's width over median_s
status               text    -       ok, skipped, failed, wrong
reason               text    -       why it is not ok
flags                text    -       what makes the numbers doubtful, above-roof among them
"""


UNITS = dict(line.split()[:2] for line in COLUMNS.strip().splitlines())
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def digits(value: float, most: int = 3) -> str:
    """Three significant digits, or as many as `most`, never an exponent: 131, 24.1, 0.00123, 771000."""
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.{most - 1}e}")
    if rounded == 0:
        return "0"
    return f"{rounded:.{max(0, most - 1 - math.floor(math.log10(abs(rounded))))}f}"


def _rounded(value: float) -> float:
    return float(f"{value:.2e}")


def seconds(value: float) -> str:
    """A time in s, ms, µs or ns; with a minus where it is taken off."""
    size, unit = next(((s, u) for s, u in _TIMES if abs(_rounded(value)) >= s), _TIMES[-1])
    return f"{digits(value / size)} {unit}" if value else "0 s"


def flops_rate(value: float) -> str:
    """A rate of arithmetic in GFLOP/s, from 1e12 on in TFLOP/s."""
    size, unit = (1e12, "TFLOP/s") if _rounded(value) >= 1e12 else (1e9, "GFLOP/s")
    return f"{digits(value / size)} {unit}"


def bytes_rate(value: float) -> str:
    """A bandwidth in GB/s (1e9)."""
    return f"{digits(value / 1e9)} GB/s"


def rate(problem: "Problem", seconds: float) -> str:
    """A problem's rate: FLOPs a second or bytes a second, whichever it is rated by; a dash if it counts neither."""
    work = getattr(problem, problem.rated)
    return (flops_rate if problem.rated == "flops" else bytes_rate)(work / seconds) if work else "-"


def percent(fraction: float) -> str:
    return "<0.01 %" if 0 < fraction < 1e-4 else f"{digits(100 * fraction)} %"


def size(count: float) -> str:
    """Bytes in KiB, MiB, GiB where they come to at least one."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{digits(count / 1024**power)} {unit}"
    return f"{count:.0f} bytes"


def count(number: int, one: str, many: str = "") -> str:
    """2 rows, 1 row."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def join(words) -> str:
    """a, b and c."""
    words = list(words)
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""
