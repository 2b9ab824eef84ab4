"""S0 as its article has it: its weights, that it learns, and that CPU and GPU learn the same."""

import contextlib
import json
import os
import subprocess
import sys

import numpy as np
from must_reach import Figure, exactly, table

from kernels import networks
from kernels.problems import Training
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Measurement, Row, Settings

LIMITS, SEED, TIMEOUT_S, STEPS = Limits(max_time=0.3), 1, 300, 20
LEARNS = Training("cifar10-cnn", 32, 4096, 10, "float64")  # of 640 samples nothing is learned in some epochs
ALIKE = Training("cifar10-cnn", 32, 32 * STEPS)
EXACT = {"data": "synthetic", "dropout": "off", "shuffle": "off", "tf32": "off"}


def training(problem: Training, device: str, **given: str) -> Row:
    return Row("training/keras/fit", problem, Settings(device, switches={"data": "synthetic", **given}))


def measured(device: str, jit: bool) -> list[Measurement]:
    """S0 learning on a device, its first steps' losses, and with `jit` those once more, compiled by XLA; in one process.

    Raises: SystemExit with the reason when one is not ok: then there is nothing to print a table of.
    """
    wanted = [training(LEARNS, device), training(ALIKE, device, **EXACT)]
    wanted += [training(ALIKE, device, jit_compile="on", **EXACT)] * jit
    with contextlib.closing(Worker(environment(wanted[0], facts.describe().uuids))) as worker:
        found = [worker.ask(Order("measure", row, LIMITS, SEED), TIMEOUT_S) for row in wanted]
    for m in found:
        if m.status != "ok":
            raise SystemExit(f"{m.status} on {device}: {m.reason}")
    return found


def learns(m: Measurement) -> Figure:
    """The smallest rise of the accuracy from one epoch to the next."""
    accuracy = m.series["job_accuracy"]
    least = float(min(np.diff(accuracy)))
    words = ", ".join(f"{100 * a:.1f}" for a in accuracy)
    what = f"{m.settings.device}: least rise of the train accuracy ({words} %)"
    return Figure(what, "> 0", exactly(least), least > 0)


def below(what: str, apart: float) -> Figure:
    return Figure(what, "<= 1e-3", exactly(apart), apart <= 1e-3)


def alike(what: str, a: Measurement, b: Measurement, from_same: float) -> list[Figure]:
    """How far the losses of the first steps lie apart: one step from the same weights, and both left to themselves."""
    one, other = (np.array(m.series["step_loss"]) for m in (a, b))
    if not len(one) == len(other) == STEPS:
        raise SystemExit(f"{len(one)} and {len(other)} step losses, not {STEPS}")
    return [
        below(f"{what}: the next loss after each of the first {STEPS} steps from the same weights", from_same),
        below(f"{what}: the mean loss of the first {STEPS} steps, as fit says it", abs(other.mean() / one.mean() - 1)),
        below(f"{what}: the loss of each of the first {STEPS} steps, left to themselves", apart(one, other)),
    ]


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.max(np.abs(other / one - 1)))


def in_a_child(device: str) -> dict:
    """What `alone` says of a device, in a process of its own with the environment of a row there."""
    variables = {**os.environ, **environment(training(ALIKE, device), facts.describe().uuids)}
    words = [sys.executable, __file__, device]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise SystemExit(f"the steps on {device} failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def order(row: Row, x, y):
    from workloads.frameworks import trainers

    return trainers.Task(row=row, network=networks.find(row.problem.model), x=x, y=y, seed=SEED, phases={})


def stepwise(device: str) -> dict:
    """Two models beside each other, one on the CPU, operation by operation, the other on the GPU (without one: on the CPU,
    compiled). Before each step the second takes over the first one's weights and moments; then both make the step, and their
    losses on the next batch are compared."""
    from workloads.frameworks import data, trainers

    x, y = data.load("synthetic", networks.find(ALIKE.model), ALIKE.samples, SEED)
    cpu = training(ALIKE, "cpu", **EXACT, jit_compile="off", **({} if device == "cpu" else {"gpu": "visible"}))
    other = training(ALIKE, device, **EXACT, **({"jit_compile": "on"} if device == "cpu" else {}))
    (a, row_a), (b, row_b) = ((trainers.built(order(row, x, y)).model, row) for row in (cpu, other))

    def step(model, row: Row, i: int) -> float:
        part = slice(i * ALIKE.batch, (i + 1) * ALIKE.batch)
        model.reset_metrics()
        with trainers.on_row_device(row):
            return float(model.train_on_batch(x[part], y[part], return_dict=True)["loss"])

    variables = [(*model.variables, *model.optimizer.variables) for model in (a, b)]
    one, two = [], []
    for i in range(STEPS):
        for of, variable in zip(*variables, strict=True):
            variable.assign(of.numpy())
        one.append(step(a, row_a, i))
        step(b, row_b, i)
        two.append(step(b, row_b, i + 1) if i + 1 < STEPS else None)
    return {"from_same": apart(np.array(one[1:]), np.array(two[:-1]))}


def alone(device: str) -> int:
    """In a process of its own: prints as JSON how steps from the same weights differ."""
    from workloads.frameworks import tensors

    tensors.begin(device, None)
    print(json.dumps(stepwise(device)))
    return 0


def main() -> int:
    if len(sys.argv) > 1:
        return alone(sys.argv[1])
    gpu = bool(facts.describe().gpus)
    devices = ["cpu"] + ["gpu:0"] * gpu
    found = {device: measured(device, jit=not gpu) for device in devices}
    from_same = in_a_child(devices[-1])["from_same"]
    weights = {m.values["parameters"] for rows in found.values() for m in rows}
    more = exactly(max(weights) - 1_667_594)
    figures = [Figure("S0's weights beyond the article's 1,667,594", "0", more, weights == {1_667_594.0})]
    figures += [learns(found[device][0]) for device in devices]
    notes = [
        f"S0 at batch {LEARNS.batch} on made-up data: accuracy over {LEARNS.epochs} epochs of {LEARNS.samples:,} float64 "
        "samples; losses with dropout, shuffling and TF32 off. Left to themselves two trainings drift apart by rounding alone: "
        "Adam's first step moves every weight by the learning rate to the side that its gradient has, however small that is."
    ]
    what, pair = "CPU and GPU", [found[devices[-1]][1], found["cpu"][1]]
    if not gpu:
        what, pair = "CPU op by op and compiled", found["cpu"][1:]
        why = facts.gpu_problem()
        notes += ["", f"No CPU beside a GPU here ({why}): the CPU is compared with itself compiled by XLA."]
    figures += alike(what, *pair, from_same)
    return table("learning", "Training S0", figures, notes)


if __name__ == "__main__":
    sys.exit(main())
