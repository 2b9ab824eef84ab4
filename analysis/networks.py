"""The networks that a run's layers are of: their names, and all of a step's products together."""

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from analysis.families import Family, batch_family
from analysis.layers import is_square
from kernels import networks

if TYPE_CHECKING:
    from kernels.networks.layers import Network
    from kernels.networks.training_step import Work
    from kernels.problems import Problem
    from workloads.records import Measurement, Run

_DEFAULT = "cifar10-cnn"  # of python -m workloads.conv without shapes


def models(runs: "Iterable[Run]") -> list[str]:
    """The networks whose layers the commands of the runs asked for."""
    named = []
    for command in (r.command for r in runs):
        found = re.findall(r"--model[ =]([\w-]+)|\bmodel='([\w-]+)'", command)
        named += [one or other for one, other in found]
        if "workloads.conv" in command and not found and not re.search(r"--(shapes|vary)|(shapes|vary)=", command):
            named.append(_DEFAULT)
    return list(dict.fromkeys(named))


def steps(runs: "Iterable[Run]", measurements: "Iterable[Measurement]", op: str) -> "list[tuple[str, list[Work]]]":
    """(network, the works of one step at a batch in an arithmetic) of each network whose layers were measured in a direction,
    all of them: what may be added up."""
    problems = {m.problem: None for m in measurements if m.problem.op == op}
    there: dict[tuple, set[Family]] = {}  # which kinds of layers were measured at each batch, arithmetic and layout
    for p in problems:
        at = (batch_family(p).size(p), p.dtype, p.math, p.layout if op == "conv" else "")
        there.setdefault(at, set()).add(_any_layout(p))
    maths = list(dict.fromkeys((dtype, math) for _, dtype, math, _ in there))
    layouts = list(dict.fromkeys(layout for *_, layout in there))
    wanted = sorted(there, key=lambda at: (at[0], maths.index(at[1:3]), layouts.index(at[3])))
    found = []
    for model in (m for m in models(runs) if networks.known(m)):
        own = {
            _any_layout(w.problem)
            for w in _step(networks.known(model), 1, "float32", "")
            if w.problem and w.problem.op == op
        }
        for batch, dtype, math, layout in (at for at in wanted if there[at] & own):
            works = [w for w in _step(networks.known(model), batch, dtype, math) if w.problem and w.problem.op == op]
            works = [_in_layout(w, layout) for w in works if w.kind in ("conv", "dense")]
            lacking = {w.direction for w in works if w.problem not in problems}
            if kept := [w for w in works if w.direction not in lacking]:
                found.append((model, kept))
    return found


@functools.lru_cache(maxsize=1024)
def _step(network: "Network", batch: int, dtype: str, math: str) -> "tuple[Work, ...]":
    """Kept: convolutions and products ask for the same steps."""
    return tuple(networks.step(network, batch, dtype, math))


def _in_layout(work: "Work", layout: str) -> "Work":
    if not (layout and work.problem):
        return work
    return msgspec.structs.replace(work, problem=msgspec.structs.replace(work.problem, layout=layout))


def names(runs: "Iterable[Run]", measurements: "Iterable[Measurement]") -> "dict[Problem, str]":
    """The layers of the runs' networks that a measured problem is of, whatever its batch: `conv2`, `conv2 +3` (as many more);
    with the network where there are several."""
    wanted = models(runs)
    found: dict = {}
    for model in wanted:
        network = networks.known(model)
        for work in networks.step(network, 1) if network else ():
            if work.kind in ("conv", "dense"):
                layer = work.layer if len(wanted) == 1 else f"{model} {work.layer}"
                found.setdefault(_any_layout(work.problem), {})[layer] = None
    made = {}
    for problem in dict.fromkeys(m.problem for m in measurements if m.problem.op in ("conv", "matmul")):
        if not is_square(problem) and (layers := found.get(_any_layout(problem))):
            first, *more = layers
            made[problem] = f"{first} +{len(more)}" if more else first
    return made


def _any_layout(problem: "Problem") -> Family:
    return batch_family(msgspec.structs.replace(problem, layout="NHWC") if problem.op == "conv" else problem)
