"""Our convolution in Numba against oneDNN as TensorFlow runs it, at layers that nobody chose and at those of models."""

import contextlib
import os
import sys
import time

# TensorFlow's before it starts
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

import drawn
import msgspec
import numba
from drawn import Case, Row
from in_turns import BLOCKS, row
from must_reach import Figure, printed

from kernels import reference, registry
from kernels.problems import Conv
from kernels.reference import stream as passes
from tests.bench.conv_cuda import BATCHES, MODELS, layers, of_models
from workloads.harness import timing
from workloads.harness.timing import Limits

OURS = ("conv/numba/blocked", "conv/numba/held")
ROW = "conv/tensorflow/graph"  # calls one after the other in one graph: TensorFlow's dispatch is in none of them
LIBRARIES = ("conv/tensorflow/eager", "conv/tensorflow/held", ROW)
ROW_S = 1.0  # a row of calls that takes longer is left out: dispatch is then nothing beside a call
# powers of ten of the FLOPs
CLASSES = {"< 100 MFLOP": (6, 8), "100 MFLOP to 3 GFLOP": (8, 9.5), "> 3 GFLOP": (9.5, 11)}
OF_MODELS = 32  # their batch
HELD_S, HELD_AT_MOST = 0.1, 50  # of a call of TensorFlow's `held`: as many convolutions as come to that
MEAN, LEAST = 1.05, 0.9
BELOW = 6  # the lowest rows of a set, each with a line of its own


def cases(salt: int, dtypes: list[str]) -> list[Case]:
    """What is drawn, in every direction; where the salt is 0 the convolutions of the models' training steps too."""
    found = []
    for every in layers(salt, CLASSES, BATCHES).values():
        ways = [msgspec.structs.replace(layer, direction=way) for layer in every for way in Conv.DIRECTIONS]
        found += [Case(drawn.draw(salt)[0], "drawn", problem) for problem in ways]
    return found + of_models([OF_MODELS]) if salt == 0 else found


def measure(case: Case, turn: int) -> Row:
    """Both ways of ours beside both of TensorFlow, where each takes the layer."""
    import tensorflow

    from kernels.conv import tensorflow as conv_tensorflow

    with contextlib.suppress(RuntimeError):  # it is told once
        tensorflow.config.threading.set_intra_op_parallelism_threads(1)
        tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    numba.set_num_threads(1)
    problem = case.problem
    own = [registry.find(name) for name in OURS[: 1 + (problem.direction != "wgrad")]]
    inputs, whole = problem.inputs(1), problem.inputs(3, True)
    begin = time.perf_counter()
    calls = {kernel.name: kernel.bind(problem, *inputs) for kernel in own}
    calls[OURS[0]]()
    first_s = time.perf_counter() - begin
    equal = all(reference.check(problem, whole, kernel.bind(problem, *whole)()).passed for kernel in own)
    once = timing.call_seconds(timing.host(calls[OURS[0]]), Limits(visit_s=0))
    conv_tensorflow.IN_ONE_CALL = max(2, min(HELD_AT_MOST, round(HELD_S / once)))
    tensors = [tensorflow.constant(array) for array in inputs]
    libraries = [name for name in LIBRARIES if name != ROW or once * passes.IN_A_ROW <= ROW_S]
    for name in libraries:
        with contextlib.suppress(ValueError):  # no layout can be held for wgrad and for dgrad with a stride
            calls[name] = registry.find(name).bind(problem, *tensors)
    shape, layout = drawn.described(problem)
    return row(case, calls, libraries, turn, layout=layout, shape=shape, first_s=first_s, equal=equal)


def figures(rows: list[Row]) -> list[Figure]:
    """The claim of every direction, drawn and of models, and its lowest rows."""
    found = [printed("rows exact on whole numbers", sum(r.equal for r in rows))]
    for kind, way in ((kind, way) for kind in ("drawn", "layers") for way in Conv.DIRECTIONS):
        of = [r for r in rows if r.kind == kind and r.layout.startswith(way)]
        found += drawn.claim(f"{way}, {kind}", [r.ratio for r in of], MEAN, LEAST)
        for r in sorted(of, key=lambda r: r.ratio)[:BELOW]:
            what = f"{kind}: {r.layout} {'x'.join(map(str, r.shape))}, {r.rate / 1e9:.3g} GFLOP/s"
            found.append(printed(f"{what}: {r.library} / ours", r.ratio))
    return found


BENCH = drawn.Bench(
    *("conv_numba", "Our convolution in Numba beside oneDNN", ("float32",), cases, measure, figures),
    f"Ours: `blocked`; the library: oneDNN in TensorFlow; of both the fastest way (eager, `blocked`: filters laid out in "
    f"every call; `held`: once; in rows of after 2026-11-28 `graph`, {passes.IN_A_ROW} calls in one graph, too, if shorter than "
    f"{ROW_S:g} s). One thread, NHWC. Drawn: {drawn.EACH} layers of each of {', '.join(CLASSES)}, batch "
    f"{', '.join(map(str, BATCHES))}. Layers: those of {', '.join(MODELS)} at batch {OF_MODELS}. A layer is its n, h, w, "
    "c_in, c_out, r, s, stride. Below each claim its lowest rows.",
    f"N(0,1) operands. {BLOCKS} blocks a side whose order turns around, the FMA peak among them, each side's fastest counts.",
)


if __name__ == "__main__":
    sys.exit(drawn.main(BENCH))
