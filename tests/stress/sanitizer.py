"""Our products under compute-sanitizer: it finds nothing there, and what is planted: a store out of bounds, races of cp.async."""

import concurrent.futures
import re
import shutil
import subprocess
import sys

import numpy as np
from gpu_bench import on_gpu
from must_reach import Figure, exactly, table

from kernels.cuda import loader, matmul_tiles, tiles
from kernels.problems import Matmul
from tests.stress.tiles import Form

FORMS = {"warps": matmul_tiles.WARPS[-1], "tensors": matmul_tiles.TENSORS[-1], "wgmma": matmul_tiles.GROUPS[-1]}
FORMS["direct"] = matmul_tiles.DIRECT[1]
# What is planted in a kernel of float32: the tool, what stands there, and what is put instead.
FAULTS = {
    "a store one row past the edge": ("memcheck", r"row < high &&", "row <= high &&"),
    "a wait for one stage too few": ("racecheck", r'"n"\(STAGES - 2\)', '"n"(STAGES - 1)'),
    "no barrier after the wait": ("racecheck", r"(arrived\(\);)\s+__syncthreads\(\);(?=\s+next)", r"\1"),
}
RUNS = [("memcheck", kind, "") for kind in FORMS] + [("racecheck", kind, "") for kind in ("warps", "tensors", "direct")]
RUNS += [(tool, "warps", fault) for fault, (tool, *_) in FAULTS.items()]
FOUND, LONGEST_S = 86, 90


def one(kind: str, fault: str) -> int:
    """Runs a kernel, under whatever tool started this process."""
    import cupy

    cupy.cuda.set_allocator(None)  # from no pool: what lies beside an array is nobody's
    if fault:
        text, planted = re.subn(*FAULTS[fault][1:], loader.source("matmul/cuda_warp"))
        assert planted
        loader.source = lambda file: text
    problem = Matmul(7 if kind == "direct" else 131, 137, 1048, "float32" if kind == "warps" else "bfloat16")
    given = [cupy.asarray(x if kind == "warps" else x.view(np.uint16)) for x in problem.inputs(3, True)]
    Form(tiles.TilePlan(tiles=FORMS[kind], parts=1 if fault else 3), problem).bind(problem, *given)()
    cupy.cuda.Device().synchronize()
    return 0


def found(run: tuple[str, str, str]) -> int:
    """FOUND if the tool finds an error, 0 if it does not; else what went wrong."""
    tool, *what = run
    own = ["--report-api-errors", "no"] if tool == "memcheck" else []  # CuPy asks what a driver may not have
    command = ["compute-sanitizer", "--tool", tool, *own, "--error-exitcode", str(FOUND)]
    command += [sys.executable, __file__, *what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    if done.returncode != (FOUND if what[1] else 0):
        print(run, done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    return done.returncode


def main() -> int:
    if not shutil.which("compute-sanitizer"):
        print("error: compute-sanitizer is not on the PATH; it comes with the CUDA toolkit", file=sys.stderr)
        return 3
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(found, RUNS))
    figures = [
        Figure(
            f"{tool}, {kind}: {fault or 'as it is'}",
            str(FOUND if fault else 0),
            exactly(code),
            code == (FOUND if fault else 0),
        )
        for (tool, kind, fault), code in zip(RUNS, codes, strict=True)
    ]
    note = f"The tool's exit code: {FOUND} if it found an error, 0 if it found none. One form of each kernel: "
    note += "; ".join(f"{kind} {of}" for kind, of in FORMS.items()) + "."
    return table("sanitizer", "Our products under compute-sanitizer", figures, [note], kind="stress")


if __name__ == "__main__":
    sys.exit(one(*sys.argv[1:]) if sys.argv[1:] else on_gpu(main))
