"""Our triad against STREAM's in C, compiled here: same arrays, size, threads and passes, in alternating blocks of one process."""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

# gcc's threads, so that no second pool spins
os.environ.setdefault("NUMBA_THREADING_LAYER_PRIORITY", "omp tbb workqueue")

import numba
import numpy as np
from in_turns import compare
from must_reach import Figure, table

from analysis import stats, units
from kernels import registry
from kernels.problems import Stream
from workloads import ROOT
from workloads.harness import memory_needs, timing
from workloads.harness.timing import Limits
from workloads.machine import facts

SIZES = (32 << 10, 1 << 20, 256 << 20, 1 << 30)
PAST_CACHES = 64 << 20  # where non-temporal stores make sense
ROUNDS = 16
SOURCE = ROOT / "tests" / "support" / "stream.c"
FLAGS = ("-O3", "-march=native", "-fopenmp")


def compiled(folder: str) -> ctypes.CDLL:
    """The C triad as a library in `folder`; the compiler is $CC, else gcc."""
    library = pathlib.Path(folder) / "stream.so"
    words = [*os.environ.get("CC", "gcc").split(), *FLAGS, "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
    subprocess.run(words, check=True)
    return ctypes.CDLL(str(library))


def c_triad(library: ctypes.CDLL, arrays, out: np.ndarray, passes: int, threads: int):
    """A call of the C triad on those arrays."""
    places = [ctypes.c_void_p(x.ctypes.data) for x in (*arrays, out)]
    numbers = ctypes.c_double(3), ctypes.c_ssize_t(out.size), ctypes.c_long(passes), ctypes.c_int(threads)
    return lambda: library.triad(*places, *numbers)


def bound(library: ctypes.CDLL, problem: Stream, threads: int, variants: list[str]) -> tuple[dict, int]:
    """(side -> its call, passes of a call), each side checked on the same arrays; C writes where `loop` does."""
    numba.set_num_threads(threads)
    arrays = problem.inputs(1)
    runs = {name: registry.find(f"stream/numba/{name}").bind(problem, *arrays) for name in variants}
    passes = runs["loop"].passes
    out = runs["loop"]()
    answer = out.copy()
    runs["C"] = c_triad(library, arrays, out, passes, threads)
    out.fill(0)
    runs["C"]()
    same = [np.allclose(out, answer, rtol=1e-12, atol=1e-12)]
    same += [np.array_equal(runs[name](), answer) for name in variants]
    if not all(same):
        raise SystemExit(f"the triads differ: {dict(zip(runs, same, strict=True))}")
    return runs, passes


def main() -> int:
    limits, figures, notes = Limits(visit_s=0.05), [], []
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(folder)
        for threads in dict.fromkeys((1, facts.usable_cores())):
            for size in SIZES:
                problem, variants = Stream("triad", size), ["loop", "nontemporal"] if size >= PAST_CACHES else ["loop"]
                what = f"triad, {units.size(size)}, {units.count(threads, 'thread')}"
                try:
                    memory_needs.require_memory(problem, "cpu")
                except memory_needs.DoesNotFit as error:
                    notes.append(f"- {what}: left out, {error}")
                    continue
                runs, passes = bound(library, problem, threads, variants)
                takes = {name: timing.host(run) for name, run in runs.items()}
                samples = compare(takes, limits, ROUNDS)
                for name, target in zip(variants, (1.0, 1.2), strict=False):
                    ratio = stats.verdict(samples[name], samples["C"], paired=True).ratio
                    figures.append(Figure(f"{what}: {name} / C", f">= {target}", ratio, ratio.low >= target))
                gigabytes = problem.bytes_moved * passes / 1e9
                rates = [f"{name} {gigabytes / stats.median_of(s).value:.4g}" for name, s in samples.items()]
                often = units.count(passes, "pass", "passes")
                notes.append(f"- {what}, {often} a call, GB/s by STREAM's count: {', '.join(rates)}")
    about = (
        f"Rates over those of a C STREAM triad ({' '.join(FLAGS)}), float64, sizes of all three arrays together; {ROUNDS} "
        f"alternating blocks a side in one process; Numba's threads are {numba.threading_layer()}'s. C's threads share the cache "
        "line at the border of their parts, ours do not, which shows where the arrays are small. Reached is what the whole "
        "interval reaches."
    )
    return table("stream", "Our triad and STREAM's in C", figures, [about, "", *notes])


if __name__ == "__main__":
    sys.exit(main())
