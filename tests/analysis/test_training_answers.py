"""The job of a training on one device in a sentence: its parts by hand, and which rows have one."""

import msgspec
from test_jobs import trained

from analysis.stats import Estimate
from analysis.text import training_answers

# 10 + 0.5 + 4 s before it; 2 epochs of 32 steps: 0.1 + 2 x (0.05 + 32 x 0.015) = 1.16 s; the smaller last batch compiles in 1 s.
ONE = trained("cifar10-cnn", 32, 1000, (0.1, 0.05, 15e-3), epochs=2, once=(10.0, 0.5, 4.0))


def test_a_job_of_one_device_is_told_by_its_parts_and_without_a_start_up_says_so():
    last = msgspec.structs.replace(ONE, phases_s=ONE.phases_s | {"compile_last": 1.0})
    assert training_answers.lines([last]) == [
        "cifar10-cnn (S0) on the CPU: the job of 1,000 samples and 2 epochs takes 16.7 s: 10.0 s start-up, 5.50 s building and "
        "compiling and 1.16 s training (64 steps of 15.0 ms)."
    ]
    phases = {name: s for name, s in ONE.phases_s.items() if name not in ("import", "device_start")}
    series = {name: taken for name, taken in ONE.series.items() if name.startswith("fit_s")}
    later = msgspec.structs.replace(ONE, phases_s=phases, series=series)
    assert "takes 5.66 s, without its start-up, which no row has: 4.50 s building" in training_answers.single_job(later)
    assert "takes 15.7 s: 10.0 s start-up" in training_answers.single_job(later, [ONE, later])
    bare = msgspec.structs.replace(ONE, series={})
    assert training_answers.single_job(bare) == "cifar10-cnn (S0) on the CPU: a step of 32 samples takes 18.1 ms."


def test_what_is_beside_the_steps_noise_flags_and_settings_are_said():
    how = {"once": (10.0, 0.1, 1.0), "dtype": "float64", "threads": 2, "noise": 0.2, "jit_compile": "on"}
    (said,) = training_answers.lines([trained("peaks", 100, 100, (0.2, 1e-3, 1e-3), epochs=100, **how)])
    assert said.startswith(
        "peaks (S4), float64 inputs, jit on, 2 threads on the CPU: the job of 100 samples and 100 epochs takes "
    )
    # a fit's 0.2 s and 100 epochs of 1 + 1 ms: which of these two is an epoch's and which a step's, epochs of one step don't say
    assert said.endswith("400 ms training (100 steps of 4.00 ms, with their share of what a fit and its epochs cost).")
    rough = trained("cifar10-cnn", 32, 320, (0.3, 0.0, 10e-3), noise=0.1)
    assert "400 ms training (10 steps of 10.0 ms, +-" in training_answers.single_job(rough)
    assert training_answers.single_job(rough).endswith("; what a fit and its epochs cost besides is the rest).")
    unknown = trained("cifar10-cnn", 32, 320, (0.3, 0.0, 10e-3), noise=0.9)
    assert "400 ms training (10 steps of 40.0 ms, with their share of " in training_answers.single_job(unknown)
    assert training_answers._doubt(Estimate(1.0, 0.5, 2.6)) == ", hardly known"
    busy = msgspec.structs.replace(ONE, flags=("steal",))
    assert training_answers.single_job(busy).endswith(" (doubtful: its row is flagged steal).")


def test_trainings_of_both_devices_are_told_side_by_side_elsewhere_and_of_each_other_the_plainest_row():
    gpu = trained("cifar10-cnn", 32, 1000, (0.1, 0.05, 1e-3), epochs=2, device="gpu:0", once=(10.0, 0.5, 4.0))
    assert training_answers.lines([ONE, gpu]) == []
    assert training_answers.lines([gpu])[0].startswith("cifar10-cnn (S0) on the GPU: ")
    loop, jit = (
        trained("cifar10-cnn", 32, 1000, (0.0, 0.0, 1e-3), epochs=2, **more)
        for more in ({"kernel": "training/tensorflow/loop"}, {"jit_compile": "on"})
    )
    assert training_answers.chosen([loop, jit, ONE]) == [ONE] and training_answers.chosen([loop]) == [loop]
    many = [trained("lenet", 32, 32 * n, (0.1, 0.0, 1e-3)) for n in range(1, training_answers.MOST + 2)]
    assert len(training_answers.lines(many[:-1])) == training_answers.MOST
    assert training_answers.lines(many) == []
