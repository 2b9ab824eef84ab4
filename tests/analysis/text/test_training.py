"""What is said of trainings: one job on a page, crossings that are known, a step beside its epoch, losses; on rows that follow
laws whose answers are worked out by hand."""

import msgspec
from fake_measurements import page_of
from fake_trainings import both, one, trained

from analysis.blocks import markdown
from analysis.report.charts import break_even as break_even_chart
from analysis.report.sections import training as section
from analysis.stats import Estimate
from analysis.text import crossings
from analysis.text import rows as row_words
from analysis.text import training as words
from analysis.training import break_even
from analysis.training.break_even import BY_STEP, BY_WHOLE_TRAINING
from workloads.records import Measurement


def wide(samples: int, cpu: float, gpu: float) -> list[Measurement]:
    """Widths 100 and 1000 in rows of so many samples: on the CPU a step takes `cpu` seconds a hundred units, on the GPU `gpu`."""
    made = []
    for units in (100, 1000):
        setup = (f"mlp-784-{units}x2-10", 128, samples)
        made += [
            trained(*setup, (0.0, 0.0, cpu * units / 100), once=(5.0, 0.0, 0.0)),
            trained(*setup, (0.0, 0.0, gpu), device="gpu:0", once=(9.0, 0.0, 6.0)),
        ]
    return made


def test_a_page_says_one_job_of_a_training():
    """60,000 samples and 10 epochs are 4680 steps of 128: at width 100 5 + 4.68 s and 15 + 9.36, at 1000 5 + 46.8 and
    15 + 9.36; of the row's own 2,048 samples and 10 epochs, 160 steps, the CPU wins both. The training itself has 10 smaller
    last batches more, for which the GPU compiles a second time: 5 + 46.9 and 15 + 9.38 + 6."""
    every = wide(2048, 1e-3, 2e-3)
    found = one(break_even.answers(every, ["width"]), BY_WHOLE_TRAINING)
    expected = [(9.68, 24.36), (51.8, 24.36)]
    assert [(round(p.cpu.seconds.value, 6), round(p.gpu.seconds.value, 6)) for p in found.points] == expected
    of = "60,000 samples, 10 epochs, from its parts"
    said = words.answer_sentence(found)
    assert said == f"mlp-784-Wx2-10, batch 128, whole training of {of}: the GPU wins from width 355."
    (said,) = [s for s in words.training_sentences(every) if s.startswith("mlp-784-1000x2-10")]
    assert said.startswith(f"mlp-784-1000x2-10, batch 128, {of}: 30 s on the GPU, 51.9 s on the CPU, 1.7x faster.")
    page = markdown(section.section(page_of(every)))
    (row_,) = [s for s in page if s.startswith("| mlp-784-Wx2-10")]
    assert f"| {of}: the GPU wins from width 355 |" in row_ and "2,048" not in row_
    # 10 s / (16 x 8 ms) = 78.1 epochs of 2,048 samples: 160,000 of the 600,000
    (paid,) = [s for s in map(words.break_even_sentence, break_even.pairs(every)) if s.startswith("mlp-784-1000x2-10")]
    assert paid.endswith("begins after 15.0 s on the GPU, 5.00 s on the CPU. Break-even after 79 epochs.")
    every = both("mnist-cnn", 32, 60_000, 2e-3, 1e-3, once=(5.0, 0.0, 3.0))
    (said,) = words.training_sentences(every)
    assert said.startswith("MNIST CNN, batch 32, 60,000 samples, 5 epochs: ")
    assert [row[0] for row in words.table(every)] == ["MNIST CNN, batch 32, 60,000 samples, 5 epochs"]
    (batch,) = break_even.pairs(both("peaks", 100, 100, 2e-3, 1e-3))
    planned = break_even.planned(batch.setup, "")
    assert (planned.samples, planned.epochs) == (100, 2000)  # all of a batch: another job has another batch


def test_a_crossing_between_distant_sizes_is_only_somewhere():
    """Between 100 and 40,000 samples a straight line says nothing: no number, no interval, and no place at the answer's top."""
    own = {"kernel": "training/keras/resident"}  # whose steps are no bounds
    made = [m for n in (100, 40_000) for m in both("peaks", n, n, 1e-6 * n, 1e-3, **own)]
    found = one(break_even.answers(made, ["samples"]), BY_STEP)
    assert found.crossings[0].wide
    expected = "the GPU starts to win between 100 and 40,000 samples"
    assert crossings.verdict_words(found) == expected
    assert not [s for s in words.training_sentences(made) if "wins from" in s]
    between = both("peaks", 2000, 2000, 1.1e-3, 1e-3, noise=0.9, epochs=2, **own)
    (crossing,) = one(break_even.answers([*made, *between], ["samples"]), BY_STEP).crossings
    assert (crossing.below, crossing.above, crossing.widest_gap) == (
        100,
        40_000,
        20.0,
    )  # neither wins at 2000: still far
    noise = {200: 0.0, 1000: 0.2, 4000: 0.0}
    near = [m for n, off in noise.items() for m in both("peaks", n, n, 1e-6 * n, 1e-3, noise=off, epochs=2, **own)]
    said = words.training_sentences(near)[1]  # 20 times in all, in steps of 5 and 4
    assert "by a step: the GPU wins from " in said


def test_noisy_or_vanishing_savings_are_called_that():
    assert break_even_chart._known(Estimate(1e-3, -2e-3, 4e-3)) == "<4.00 ms"
    assert break_even_chart._known(Estimate(3e-3, -2e-3, 4e-3)) == "3.00 ms"
    assert break_even_chart._known(Estimate(-3e-3, -4e-3, 2e-3)) == "<2.00 ms"
    every = [
        trained("mnist-cnn", 32, 60_000, (0.0, 0.0, 2e-3), epochs=2),
        trained("mnist-cnn", 32, 60_000, (0.0, 0.0, 1e-3), device="gpu:0", epochs=2, noise=0.4),
    ]
    (said,) = words.training_sentences(every)
    assert break_even.pairs(every)[0].gpu.cost.step.noise > 1
    told = "A step alone: can't tell, 1.0 ms on the GPU, 2.00 ms on the CPU; the intervals overlap."
    assert said.endswith(told)


def test_losses_are_compared_between_devices():
    made = both("peaks", 100, 100, 1e-3, 1e-3, epochs=2000, kernel="training/tensorflow/loop")
    for m, end in zip(made, (0.02, 0.96), strict=True):  # a row keeps 200 of 2000 losses
        m.series.update({"job_loss": (2.5, *[1.0] * 198, end), "loss": (3.1, 2.9, 2.6)})
    expected = "loss 2.5 to 0.02 in 2,000 epochs; loss 3.1 to 2.6 in 3 epochs of few samples"
    assert row_words.losses(made[0]) == expected
    (pair,) = break_even.pairs(made)
    said = words.loss_sentence(pair)
    assert said.endswith("after 2,000 epochs the loss is 0.0200 on the CPU, 0.960 on the GPU.")
    made[1].values["tf32"] = 1.0
    said = words.loss_sentence(pair)
    assert said.endswith("0.960 on the GPU. The GPU's products are in TF32: --tf32 off shows whether that is why.")
    assert said in words.lines(made) and "### Losses that differ" in markdown(section.section(page_of(made)))
    made[0].series["job_loss"], made[1].series["job_loss"] = (2.5, 0.5), (2.5, 0.9)  # less than twice
    assert words.loss_sentence(pair) == ""
    made[0].series["job_loss"], made[1].series["job_loss"] = (2.5, 1e-9), (2.5, 1e-7)  # both have learned it all
    assert words.loss_sentence(pair) == ""
    made[0].series.update({"accuracy": (0.1, 0.5, 0.75), "job_loss": ()})
    assert row_words.losses(made[0]) == "loss 3.1 to 2.6, accuracy 10.0 % to 75.0 % in 3 epochs of few samples"
    made[0].series.update({"accuracy": (), "loss": (1.0, 1e-9)})
    assert row_words.losses(made[0]) == "loss 1 to 1e-09 in 2 epochs of few samples"


def test_losses_of_other_samples_are_not_compared():
    """2.29 on a GPU against 0.763 is 3.00 times: said of one version's samples alone."""
    cpu, gpu = both("cifar10-cnn", 32, 2048, 1e-3, 1e-3)
    for m, end in ((cpu, 0.763), (gpu, 2.29)):
        m.series["loss"], m.notes["samples"] = (2.33, 2.31, end), "2"
    told = "after 3 epochs of few samples the loss is 0.763 on the CPU, 2.29 on the GPU."
    for version, said in (("2", [told]), ("1", [])):
        cpu.notes["samples"] = version
        found = [s.partition(": ")[2] for s in words.lines([cpu, gpu]) if " the loss is " in s]
        assert found == said
        assert any("### Losses" in line for line in markdown(section.section(page_of([cpu, gpu])))) is bool(said)


# 10 + 0.5 + 4 s before it; 2 epochs of 32 steps: 0.1 + 2 x (0.05 + 32 x 0.015) = 1.16 s; the smaller last batch compiles in 1 s.
ONE = trained("cifar10-cnn", 32, 1000, (0.1, 0.05, 15e-3), epochs=2, once=(10.0, 0.5, 4.0))


def test_a_single_devices_training_names_its_parts():
    assert words.single_jobs([msgspec.structs.replace(ONE, phases_s=ONE.phases_s | {"compile_last": 1.0})]) == [
        "CIFAR-10 CNN, batch 32, 1,000 samples, 2 epochs, on the CPU: 16.7 s. Start-up takes 10.0 s. Building and compiling "
        "take 5.50 s, training 1.16 s."
    ]
    phases = {name: s for name, s in ONE.phases_s.items() if name not in ("import", "device_start")}
    later = msgspec.structs.replace(ONE, phases_s=phases, series={})
    assert ": 5.66 s without start-up. Building and compiling take 4.50 s" in words.single_job(later)
    assert ": 15.7 s. Start-up takes 10.0 s." in words.single_job(later, [ONE, later])
    busy = msgspec.structs.replace(ONE, flags=("steal",))
    assert ": 15.7 s (doubtful: steal). " in words.single_job(busy)
    own, other = ONE.fits  # 32 steps of 5 to 25 ms by their difference, an epoch of 0.53 s as it was measured
    loud = msgspec.structs.replace(ONE, fits=(own, msgspec.structs.replace(other, later_epoch_s=(0.01, 0.17, 0.33))))
    assert words.single_job(loud).endswith(words.single_job(ONE).rpartition(", ")[2]), "its steps are not told anew"


def test_the_plainest_row_of_both_devices_is_compared():
    gpu = trained("cifar10-cnn", 32, 1000, (0.1, 0.05, 1e-3), epochs=2, device="gpu:0", once=(10.0, 0.5, 4.0))
    assert words.single_jobs([ONE, gpu]) == []
    assert words.single_jobs([gpu])[0].startswith("CIFAR-10 CNN, batch 32, 1,000 samples, 2 epochs, on the GPU: ")
    loop, jit = (
        trained("cifar10-cnn", 32, 1000, (0.0, 0.0, 1e-3), epochs=2, **more)
        for more in ({"kernel": "training/tensorflow/loop"}, {"jit_compile": "on"})
    )
    more = trained("cifar10-cnn", 32, 2000, (0.1, 0.05, 15e-3), epochs=2)
    assert break_even.unpaired([loop, jit, ONE, more]) == [ONE, more] and break_even.unpaired([loop]) == [loop]
    many = [trained("lenet", n, 32 * n, (0.1, 0.0, 1e-3)) for n in range(1, words.MOST_SINGLE + 2)]
    assert len(words.single_jobs(many[:-1])) == words.MOST_SINGLE and words.single_jobs(many) == []


def test_a_break_even_is_told_of_undisturbed_trainings():
    once = (5.0, 0.0, 3.0)
    plain = both("mnist-cnn", 32, 60_000, 2e-3, 1e-3, once=once)
    changed = both("mnist-cnn", 32, 60_000, 2e-3, 1e-3, once=once, shuffle="off")
    (told,) = words.lines(plain)
    assert told.endswith("The GPU is ahead from the first epoch.") and words.lines(changed) == []
