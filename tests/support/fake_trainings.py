"""Rows of trainings that follow known laws, to the digit."""

from fake_measurements import by_later_epochs, row
from msgspec.structs import replace

from analysis.crossover.answer import Answer
from kernels.problems import Training
from workloads.records import Measurement, Settings
from workloads.records import settings as switches

FIT = "training/keras/fit"


def trained(
    model: str,
    batch: int,
    samples: int,
    law: tuple[float, float, float],
    *,
    device: str = "cpu",
    epochs: int = 1,
    once: tuple[float, float, float] = (0.0, 0.0, 0.0),
    kernel: str = FIT,
    dtype: str = "float32",
    threads=None,
    noise: float = 0.0,
    **given: str,
) -> Measurement:
    """A row whose fits follow (setup, epoch, step) seconds to the digit, with (start-up, build, compile) before them: the
    start-up that of a device, as five processes saw it alike.
    `noise`: two of three later epochs are that much below and above."""
    problem = Training(model, batch, samples, epochs, dtype)
    series = {"import_s": (0.0,) * 5, "device_start_s": (once[0],) * 5} if once[0] else {}
    phases = {"import": 0.0, "device_start": once[0], "build": once[1], "compile": once[2], "first_call": 1.0}
    values = {"jit_compile": 0.0 if device == "cpu" else 1.0}
    made = row(kernel, problem, law[2], device=device, threads=threads, phases_s=phases, series=series, values=values)
    settings = Settings(device, threads, switches=switches.without_defaults({"data": "synthetic", **given}))
    return by_later_epochs(replace(made, settings=settings), law, noise)


def both(model: str, batch: int, samples: int, cpu: float, gpu: float, **given) -> list[Measurement]:
    """A row of each device whose step takes so many seconds, and nothing else any."""
    steps = (("cpu", cpu), ("gpu:0", gpu))
    return [trained(model, batch, samples, (0.0, 0.0, s), device=device, **given) for device, s in steps]


def batches() -> list[Measurement]:
    """CPU 2 ms + 10 µs a sample, GPU 4 ms whatever the batch: alike at batch 200. 50,000 samples and 10 epochs (S0's)."""
    made = []
    for batch in (50, 100, 400, 800):
        made.append(trained("cifar10-cnn", batch, 16 * batch, (0.0, 0.0, 2e-3 + 1e-5 * batch), once=(5.0, 0.0, 0.0)))
        made.append(trained("cifar10-cnn", batch, 16 * batch, (0.0, 0.0, 4e-3), device="gpu:0", once=(5.0, 0.0, 3.5)))
    return made


def one(answers: list[Answer], by: str) -> Answer:
    (found,) = [a for a in answers if a.form.mode == by]
    return found


def small_data() -> list[Measurement]:
    """S1b in batches of 32 (5 epochs): the CPU begins in 6 s, an epoch costs 0.02 s + 8 ms a step; the GPU begins in 16 s,
    0.06 s + 2 ms a step."""
    made = []
    for samples in (320, 3200, 32_000, 320_000):
        made.append(trained("fashion-mlp", 32, samples, (0.1, 0.02, 8e-3), once=(5.0, 0.4, 0.6)))
        made.append(trained("fashion-mlp", 32, samples, (0.1, 0.06, 2e-3), device="gpu:0", once=(9.0, 0.4, 6.6)))
    return made
