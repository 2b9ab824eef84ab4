"""make bench NAME=measured_steps: the step that `explain --measure` measures beside that of later epochs of plain Keras.

Both sides measure each model in turns (explain, Keras, Keras, explain), each in a process of its own. ARGS: names of models run
these alone; --folder FOLDER takes FOLDER/NAME.py with build() and data() in place of the models here; --device, --rounds,
--stop-after.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import house
import msgspec
import numpy as np
from must_reach import Figure, exactly, table

from analysis.explain import measure
from analysis.explain.measuring import Child, TimeBudget
from analysis.explain.request import Request, settings_of
from analysis.predict import profile, what_if
from analysis.stats import Estimate, covering
from analysis.training import costs
from kernels.problems import Training
from workloads.machine import facts

PLAIN_KERAS = house.ROOT / "tests/bench/plain_keras.py"
STYLES = house.ROOT / "tests/support/model_styles.py"
LATER_EPOCHS = house.ROOT / "tests/support/later_epochs.py"
MOST_OFF = 0.07
BUDGET_S = 90.0
SAMPLES = 50_000


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that both sides build from the same lines."""

    name: str
    #: As explain takes it.
    model: str
    #: The file that plain Keras runs, and the function or the key of MODELS in it.
    file: str
    function: str
    batch: int
    #: The function in the file that gives the data; "" for made-up ones.
    data: str = ""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A model's step by both sides."""

    name: str
    #: By explain: the medians of each measurement, with their intervals.
    explain_s: tuple[Estimate, ...] = ()
    #: By plain Keras: each later epoch.
    keras_s: tuple[float, ...] = ()
    #: Why one side has none.
    failure: str = ""

    @property
    def ratio(self) -> Estimate:
        """Explain's step over plain Keras's: of the medians; the interval reaches to the ends of both."""
        ends = [end for step in self.explain_s for end in (step.low, step.high)]
        explain = covering(float(np.median([step.value for step in self.explain_s])), *ends)
        return explain / covering(float(np.median(self.keras_s)), *self.keras_s)


def models() -> list[Model]:
    """Four of the tables, which plain_keras.py has in lines of its own, and six styles."""
    every = []
    for name in ("strided-cnn", "cifar10-cnn", "cifar10-mlp", "mlp-784-500x2-10"):
        every.append(Model(name=name, model=name, file=str(PLAIN_KERAS), function=name, batch=32))
    for name in ("deep_mlp", "cnn", "residual", "lstm", "gru_on_words", "autoencoder"):
        every.append(Model(name=name, model=f"{STYLES}:{name}", file=str(STYLES), function=name, batch=32))
    return every


def models_of(folder: pathlib.Path) -> list[Model]:
    """The models of a folder, each a file with build() and data()."""
    every = []
    for file in sorted(folder.resolve().glob("[!_]*.py")):
        model = Model(name=file.stem, model=f"{file}:build", file=str(file), function="build", batch=32, data="data")
        every.append(model)
    return every


class PlainKeras:
    """The process of plain Keras on a device."""

    def __init__(self, device: str):
        environment = {**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}
        if device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        self._process = subprocess.Popen(
            [sys.executable, str(LATER_EPOCHS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def steps(self, model: Model) -> tuple[float, ...]:
        """The seconds of a step in each later epoch.

        Raises: RuntimeError for a model that does not train.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"file": model.file, "function": model.function, "data": model.data, "batch": model.batch}
        print(json.dumps(order), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline() or '{"failure": "plain Keras ended"}')
        if "failure" in answer:
            raise RuntimeError(answer["failure"])
        return tuple(answer["step_s"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Explain:
    """The step part of `explain --measure` on a device, as it types it, in its child."""

    def __init__(self, device: str, folder: pathlib.Path):
        self._device = "cpu" if device == "cpu" else "gpu:0"
        self._folder = folder
        self._child = Child()
        self._count = 0

    def step(self, model: Model) -> Estimate:
        """The seconds of a step.

        Raises: RuntimeError for a step that is not measured.
        """
        self._count += 1
        place = self._folder / str(self._count)
        options = {"data": f"{model.file}:{model.data}"} if model.data else {}
        request = Request(Training(model.model, model.batch, SAMPLES), switches=options)
        change = what_if.Change(words="", training=request.training, settings=settings_of(request, self._device))
        words = (*measure.command(change), "-q", "-o", str(place))
        failure = self._child.measure(model.name, words, TimeBudget(seconds=BUDGET_S), lambda doing, taken_s: None)
        if failure:
            raise RuntimeError(failure.reason)
        rows = profile.read(str(place)).measurements
        for row in rows:
            cost = costs.measured(row, rows) if row.problem.op == "training" else None
            if cost is not None and cost.step is not None:
                return cost.step
        raise RuntimeError("no row has a step")

    def close(self) -> None:
        self._child.close()


def pair(model: Model, explain: Explain, keras: PlainKeras, rounds: int) -> Pair:
    """A model's step by both sides, in turns whose order alternates."""
    explain_s: list[Estimate] = []
    keras_s: list[float] = []
    try:
        for number in range(rounds):
            if number % 2:
                keras_s += keras.steps(model)
                explain_s.append(explain.step(model))
            else:
                explain_s.append(explain.step(model))
                keras_s += keras.steps(model)
    except RuntimeError as error:
        return Pair(name=model.name, failure=str(error))
    return Pair(name=model.name, explain_s=tuple(explain_s), keras_s=tuple(keras_s))


def figures(pairs: Sequence[Pair]) -> list[Figure]:
    """A line a model, then how many are within the target."""
    lines = []
    within = 0
    for one in pairs:
        if one.failure:
            continue
        off = abs(one.ratio.value - 1)
        within += off <= MOST_OFF
        what = f"{one.name}: explain's step over Keras's {1e3 * float(np.median(one.keras_s)):.3g} ms"
        lines.append(Figure(what, f"{1 - MOST_OFF:g} .. {1 + MOST_OFF:g}", one.ratio, off <= MOST_OFF))
    what = f"models within {100 * MOST_OFF:.0f} %, of {len(pairs)}"
    lines.append(Figure(what, f"{len(pairs)}", exactly(within), within == len(pairs)))
    return lines


def measured(chosen: Sequence[Model], flags: argparse.Namespace) -> list[Pair]:
    """The models one after the other, until the time to begin none."""
    end = time.monotonic() + flags.stop_after
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        explain = Explain(flags.device, pathlib.Path(folder))
        keras = PlainKeras(flags.device)
        try:
            for model in chosen:
                if time.monotonic() > end:
                    break
                pairs.append(pair(model, explain, keras, flags.rounds))
                print(msgspec.json.encode(pairs[-1]).decode(), file=sys.stderr, flush=True)
        finally:
            explain.close()
            keras.close()
    return pairs


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models; all where there are none")
    parser.add_argument("--folder", type=pathlib.Path, help="models in place of those here")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu" if facts.gpu_problem() else "gpu")
    parser.add_argument("--rounds", type=int, default=2, help="measurements of each side")
    parser.add_argument("--stop-after", type=float, default=3600.0, help="seconds from which on no model is begun")
    flags = parser.parse_args(argv)
    known = models_of(flags.folder) if flags.folder else models()
    chosen = [model for model in known if not flags.names or model.name in flags.names]
    pairs = measured(chosen, flags)
    failures = [f"- {one.name}: {one.failure}" for one in pairs if one.failure]
    load = f"Load average of the last minutes at the end: {os.getloadavg()[1]:.1f}."
    title = f"The step that explain --measure measures beside plain Keras's, {flags.device.upper()}"
    return table("measured_steps", title, figures(pairs), [load, *failures], args=f"--device {flags.device}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
