"""S0 as its article has it: its weights, that it learns, that CPU and GPU learn the same, and what our hooks cost a fit."""

import contextlib
import json
import os
import subprocess
import sys
import time

import numpy as np
from must_reach import Figure, exactly, table

from analysis import stats
from analysis.stats import Estimate
from kernels import networks
from kernels.problems import Training
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Measurement, Row, Settings

LIMITS, SEED, TIMEOUT_S, STEPS = Limits(max_time=0.3), 1, 300, 20
LEARNS = Training("cifar10-cnn", 32, 4096, 10, "float64")  # of 640 samples nothing is learned in some epochs
ALIKE = Training("cifar10-cnn", 32, 32 * STEPS)
WATCHED = Training("cifar10-cnn", 32, 160)  # a short fit, whose clock is looked at before it, as of every warm fit
STAMPED = Training("cifar10-cnn", 32, 160, 3)  # the epochs of fits longer than --max-time are stamped
WATCH, STAMPS = "the look at the clock before it", "its epochs stamped"
EXACT = {"data": "synthetic", "dropout": "off", "shuffle": "off", "tf32": "off"}
# pairs of fits and their seconds: at least, at most; narrow enough
PAIRS, SECONDS, NOISE = ((20, 400), (8.0, 30.0), 0.005)


def training(problem: Training, device: str, **given: str) -> Row:
    return Row("training/keras/fit", problem, Settings(device, switches={"data": "synthetic", **given}))


def uuids() -> dict[str, str]:
    return facts.describe().uuids


def measured(device: str, jit: bool) -> list[Measurement]:
    """S0 learning on a device, its first steps' losses, and with `jit` those once more, compiled by XLA; in one process.

    Raises: SystemExit with the reason when one is not ok: then there is nothing to print a table of.
    """
    wanted = [training(LEARNS, device), training(ALIKE, device, **EXACT)]
    wanted += [training(ALIKE, device, jit_compile="on", **EXACT)] * jit
    with contextlib.closing(Worker(environment(wanted[0], uuids()))) as worker:
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


def in_a_child(device: str, compare: bool) -> dict:
    """What `alone` says of a device, in a process of its own with the environment of a row there."""
    words = [sys.executable, __file__, device, *["compare"] * compare]
    variables = {**os.environ, **environment(training(WATCHED, device), uuids())}
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise SystemExit(f"the fits on {device} failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def order(row: Row, x, y):
    from workloads.frameworks import trainers
    from workloads.records import settings

    return trainers.Order(row, settings.of(row), networks.find(row.problem.model), x, y, SEED, {})


def alternate(device: str, problem: Training, stamped: bool) -> dict:
    """The same model fitted by Keras alone and as keras_child times it, in turns."""
    from workloads.frameworks import data, keras_fit, models, trainers
    from workloads.harness import telemetry

    made, build = [], models.build
    models.build = lambda *given: made.append(build(*given)) or made[0]
    x, y = data.load("synthetic", networks.find(problem.model), problem.samples, SEED)
    row = training(problem, device)
    trainer = trainers.way(row.kernel)(order(row, x, y))
    models.build = build
    watch, (model,) = telemetry.watch(device, framework=True), made
    sides = {
        "ours": lambda: trainer.fit(problem.samples, problem.epochs, stamped=stamped),
        "bare": lambda: model.fit(x, y, batch_size=problem.batch, epochs=problem.epochs, verbose=0),
    }
    for work in (*sides.values(), *sides.values()):
        work()
    taken: dict[str, list[float]] = {"ours": [], "bare": []}
    begin = time.perf_counter()
    while True:
        for side in ("ours", "bare") if len(taken["bare"]) % 2 else ("bare", "ours"):
            if side == "ours":
                watch.before_block()
            taken[side].append(keras_fit.seconds(sides[side]))
        ratio = stats.median(np.divide(taken["ours"], taken["bare"]))
        spent, pairs = time.perf_counter() - begin, len(taken["bare"])
        narrow = pairs >= PAIRS[0] and spent > SECONDS[0] and ratio.noise < NOISE
        if narrow or pairs == PAIRS[1] or spent > SECONDS[1]:
            return {
                "ratio": [ratio.value, ratio.low, ratio.high],
                "pairs": pairs,
                "fit_s": float(np.median(taken["bare"])),
            }


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
        with trainers.placed(row):
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


def hooks(device: str, what: str, said: dict) -> Figure:
    ratio = Estimate(*said["ratio"])
    words = f"{device}: fit of {1e3 * said['fit_s']:.3g} ms with {what} / without ({said['pairs']} pairs in alternating order)"
    return Figure(words, "0.98 .. 1.02", ratio, ratio.low >= 0.98 and ratio.high <= 1.02)


def alone(device: str, compare: bool) -> int:
    """In a process of its own: prints as JSON what the hooks cost on a device and, to compare, how steps from the same weights
    differ."""
    from workloads.frameworks import tensorflow

    tensorflow.begin(device, None)
    told = {what: alternate(device, problem, what == STAMPS) for what, problem in ((WATCH, WATCHED), (STAMPS, STAMPED))}
    print(json.dumps(told | (stepwise(device) if compare else {})))
    return 0


def main() -> int:
    if len(sys.argv) > 1:
        return alone(sys.argv[1], "compare" in sys.argv[2:])
    gpu = bool(facts.describe().gpus)
    devices = ["cpu"] + ["gpu:0"] * gpu
    found = {device: measured(device, jit=not gpu) for device in devices}
    said = {device: in_a_child(device, device == devices[-1]) for device in devices}
    weights = {m.values["parameters"] for rows in found.values() for m in rows}
    more = exactly(max(weights) - 1_667_594)
    figures = [Figure("S0's weights beyond the article's 1,667,594", "0", more, weights == {1_667_594.0})]
    figures += [learns(found[device][0]) for device in devices]
    notes = [
        f"S0 at batch {LEARNS.batch} on made-up data: accuracy over {LEARNS.epochs} epochs of {LEARNS.samples:,} float64 "
        "samples; losses with dropout, shuffling and TF32 off; our hooks are a look at "
        "the clock before each warm fit and the stamps of its epochs where one fit is long enough to take them for its "
        "samples. Left to themselves two trainings drift apart by rounding alone: Adam's first step moves every "
        "weight by the learning rate to the side that its gradient has, however small that is."
    ]
    pair = [found[devices[-1]][1], found["cpu"][1]] if gpu else found["cpu"][1:]
    if not gpu:
        notes += [
            "",
            f"No CPU beside a GPU here ({facts.gpu_problem()}): the CPU is compared with itself compiled by XLA.",
        ]
    what = "CPU and GPU" if gpu else "CPU op by op and compiled"
    figures += alike(what, *pair, said[devices[-1]]["from_same"])
    figures += [hooks(device, what, said[device][what]) for device in devices for what in (WATCH, STAMPS)]
    return table("training", "Training S0", figures, notes)


if __name__ == "__main__":
    sys.exit(main())
