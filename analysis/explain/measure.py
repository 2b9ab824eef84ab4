"""`explain --measure`: measures here the parts that a verdict lacks, each by its own command, within a time budget."""

import contextlib
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import msgspec

from analysis import labels
from analysis.explain.explanation import Explanation, Request, Sources, settings_of
from analysis.predict import what_if
from analysis.predict.profile import PASSES, measuring
from workloads import options
from workloads.records import settings

BUDGET_S = 90
_SAMPLES, _STEPS = 2048, 64  # enough samples and steps to measure the real step by its later epochs
_PATIENCE_S = 15  # what a child may take beyond its share: it finishes the visit that it is in
# Seconds that a part is guessed to take, rounded from one look at two cores.
_GUESS_S = {"training": 30, "launch": 20, "conv": 20, "matmul": 15, "stream": 40, "transfer": 10}


class Part(msgspec.Struct, frozen=True):
    """Something to measure: its name in words, the arguments of `python -m`, and the seconds that it is guessed to take."""

    words: str
    command: tuple[str, ...]
    seconds: int


def parts(e: Explanation | None, asked: Request, of: Sources, devices: list[str]) -> list[Part]:
    """The parts to measure on this machine's devices, the most needed first: the model's real step, the dispatch of a step,
    then the model's operations."""
    measured = {s.device for s in e.sides if s.cost.source == "measured"} if e else set()
    predicted = {p.settings.device for p in e.predictions} if e else set()
    found = [_step(asked, device) for device in devices if device not in measured]
    for device in devices:
        if not of.profile(device).constant("keras-step", device):
            words = "workloads.launch --backends tensorflow --variants function fit --calls elementwise step epoch"
            command = *words.split(), *_on(device)
            found.append(Part(f"dispatch on the {labels.device(device)}", command, _GUESS_S["launch"]))
    math = "float32" if of.cpu.machine and of.cpu.machine.lacks("tf32") else "tf32"
    return found + [part for device in devices if device not in predicted for part in _operations(asked, device, math)]


def _on(device: str) -> tuple[str, ...]:
    return ("--device", "cpu" if device == "cpu" else "gpu", "--fast")


def command(change: what_if.Change) -> tuple[str, ...]:
    """The words of `python -m ...` that measure a change's step, of as few samples as tell it."""
    t = change.training
    least = max(_STEPS * t.batch, _SAMPLES) + t.samples % t.batch
    return *what_if.command(change, epochs=1, samples=min(t.samples, least)), "--fast"


def _step(asked: Request, device: str) -> Part:
    change = what_if.Change("", asked.training, settings_of(asked, device))
    return Part(f"its own step on the {labels.device(device)}", command(change), _GUESS_S["training"])


def _operations(asked: Request, device: str, math: str) -> list[Part]:
    """The products, convolutions and passes of its step; of a user's own model those of one that has a name. `math`: of a GPU."""
    t = asked.training
    own = not settings.is_user_model(t.model)
    kinds = {layer.kind for layer in asked.of.layers}
    found = []
    for op, kind, instead, words in (
        ("conv", "conv", "cifar10-cnn", "its convolutions"),
        ("matmul", "dense", "fashion-mlp", "its dense layers"),
    ):
        if kind in kinds:
            model = ("--model", t.model if own else instead, "--batch", str(t.batch), "--direction", "all")
            command = (f"workloads.{op}", *model, *measuring(op, device, math), "--fast")
            found.append(Part(f"{words} on the {labels.device(device)}", command, _GUESS_S[op]))
    passes = ("--operations", *PASSES.split(), "--dtypes", "float32") if device == "cpu" else ()
    command = ("workloads.stream", *passes, "--sizes", "64KiB:64MiB:x32", *measuring("stream", device, math), "--fast")
    copies = ("workloads.transfer", "--sizes", "4B:64MiB:x16", "--directions", "h2d", *_on(device))
    if device != "cpu":
        found.append(Part("copies to the GPU", copies, _GUESS_S["transfer"]))
    return [*found, Part(f"passes over memory on the {labels.device(device)}", command, _GUESS_S["stream"])]


def seconds(found: Iterable[Part], budget: float = BUDGET_S) -> float:
    """Seconds that the parts are guessed to take, at most the budget."""
    return min(budget, sum(p.seconds for p in found))


def run(
    found: list[Part], folder: pathlib.Path, budget: float = BUDGET_S, say: Callable[[str], None] = lambda text: None
) -> list[str]:
    """Runs each part into a folder of its own, NAME-1 and so on, until the budget is spent. Returns the parts that were not
    reached or failed, in words."""
    begin, left_out = time.monotonic(), []
    say(f"Measuring here for about {seconds(found, budget):.0f} s; rows go to {options.near(folder)}-*")
    for i, part in enumerate(found, 1):
        left = budget - (time.monotonic() - begin)
        if left < min(part.seconds, budget) / 2:
            left_out.append(f"{part.words}: the time was spent")
            continue
        head = f"{i}/{len(found)} {part.words}"
        reason = child(part, folder.with_name(f"{folder.name}-{i}"), left, head, say)
        left_out += [f"{part.words}: {reason}"] if reason else []
    return left_out


def child(
    part: Part, folder: pathlib.Path, left: float, head: str = "", say: Callable[[str], None] = lambda text: None
) -> str:
    """Runs a part in a child process. Returns why it has no rows or why the first row failed; "" if all is well. The child
    stops by itself when its time is over; it is ended if it does not, or on Ctrl-C."""
    stop = ("--stop-after", f"{left:.0f}", "-q", "-o", str(folder))
    command = [sys.executable, "-m", *part.command, *stop]
    begin, errors, late = time.monotonic(), None, False
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C reaches it from here, once
    ) as child:
        try:
            while errors is None:
                taken = time.monotonic() - begin
                say(f"{head}: {taken:.0f} of about {min(part.seconds, left):.0f} s")
                if late := taken > left + _PATIENCE_S:
                    child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    errors = child.communicate(timeout=1)[1]
        except KeyboardInterrupt:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=_PATIENCE_S)
            child.kill()
            raise
    if late:
        return f"it took longer than the {left:.0f} s it had"
    if child.returncode in (options.OK, options.FAILED) and list(folder.glob("*.jsonl")):
        return next((line for line in errors.splitlines() if line.startswith("failed: ")), "")
    said = [line.removeprefix("error: ").partition("; finish with:")[0] for line in errors.splitlines() if line.strip()]
    return said[0] if said else f"{shlex.join(part.command)} ended with {child.returncode}"
