"""The budget's arithmetic and sentences, on made-up measurements whose sums are known."""

import msgspec
import pytest
from fake_measurements import launch_rows, row, transfer_rows

from analysis import budget
from analysis.estimate import Estimate
from kernels.problems import Training

S0 = Training("cifar10-cnn", 32, 9600)
# ms of the six products of a step, in the table's order
CPU_MS = (1.0, 2.0, 3.0, 0.5, 0.25, 0.25)


def training(device="cpu", ms=21.0, **values):
    return row("training/keras/fit", S0, ms / 1e3, device=device, values=values)


def products(of, kernel="matmul/numpy/blas", factor=1.0, **fields):
    return [
        row(kernel, p, factor * ms / 1e3, threads=2, **fields) for p, ms in zip(budget.gemms(of), CPU_MS, strict=True)
    ]


def part(made, name):
    return next(p for p in made.parts if p.name == name)


def test_dense_layers_are_the_sum_of_their_products_and_the_rest_is_the_remainder():
    cpu = training()
    made = budget.budget(cpu, [cpu, *products(cpu)])
    assert part(made, "dense layers").seconds.value == pytest.approx(7e-3)
    assert made.explained.value == pytest.approx(7e-3)
    assert made.remainder.value == pytest.approx(14e-3)
    assert made.missing == ["convolutions", "element-wise passes", "launches"]
    assert part(made, "copies to the device").seconds == Estimate(0, 0, 0)


def test_the_fastest_library_counts_and_our_own_kernels_never():
    cpu = training()
    slow, ours = products(cpu, factor=3.0), products(cpu, "matmul/numba/parallel", factor=0.1)
    made = budget.budget(cpu, [*slow, *products(cpu), *ours])
    assert part(made, "dense layers").seconds.value == pytest.approx(7e-3)
    assert part(made, "dense layers").why == "library kernels, measured: matmul/numpy/blas"
    alone = budget.budget(cpu, ours)
    assert part(alone, "dense layers").seconds is None


def test_rows_of_other_devices_modes_and_arithmetic_do_not_count():
    gpu = training("gpu:0", tf32=1.0)
    float32 = products(training(), "matmul/cupy/cublas")
    assert part(budget.budget(gpu, float32 + products(training())), "dense layers").seconds is None
    tf32 = products(gpu, "matmul/cupy/cublas")
    assert {m.problem.math for m in tf32} == {"tf32"}
    assert part(budget.budget(gpu, tf32), "dense layers").seconds.value == pytest.approx(7e-3)
    assert part(budget.budget(training(), float32), "dense layers").seconds is None
    copied = products(gpu, "matmul/cupy/cublas", mode="roundtrip")
    assert part(budget.budget(gpu, copied), "dense layers").seconds is None


def test_on_a_gpu_the_device_clock_counts_and_its_copies_are_not_measured_yet():
    gpu = training("gpu:0", tf32=1.0)
    rows = [row("matmul/cupy/cublas", p, {"host-latency": 1.0, "device": 1e-3}) for p in budget.gemms(gpu)]
    made = budget.budget(gpu, rows)
    assert made.explained.value == pytest.approx(6e-3)
    copies = part(made, "copies to the device")
    assert copies.seconds is None
    assert copies.why == "not measured yet: 384 KiB a batch; copies come with workloads.transfer"


def test_a_product_without_a_row_is_said():
    cpu = training()
    made = budget.budget(cpu, products(cpu)[1:])
    dense = part(made, "dense layers")
    assert dense.seconds.value == pytest.approx(6e-3)
    assert dense.partial
    assert "1 of 6 operations not measured" in dense.why
    assert "| dense layers | 6.00 ms (29 %) (in part) |" in budget.table([made])


def test_why_no_product_was_measured_is_the_rows_own_reason():
    gpu = training("gpu:0", tf32=1.0)
    rows = [
        row("matmul/cupy/cublas", p, None, status="skipped", reason="cupy is not installed") for p in budget.gemms(gpu)
    ]
    assert part(budget.budget(gpu, rows), "dense layers").why == "not measured: cupy is not installed"


def test_the_remainder_has_its_sign_and_its_interval():
    cpu = training(ms=5.0)
    made = budget.budget(cpu, products(cpu))
    assert made.remainder.value == pytest.approx(-2e-3)
    assert "its parts come to 2.00 ms more than the step (-40 %), so they are counted too high" in budget.sentence(made)
    wide = msgspec.structs.replace(made, remainder=Estimate(-2e-3, -5e-3, 1e-3))
    assert "more than the step (-40 %), which is within their noise" in budget.sentence(wide)
    assert "| remainder | -2.00 ms (-40 %) |" in budget.table([made])
    assert budget.difference(Estimate(10, 9, 12), Estimate(4, 3, 6)) == Estimate(6, 3, 9)
    assert budget.total([Estimate(1, 0.5, 2), Estimate(2, 1, 4)]) == Estimate(3, 1.5, 6)


def test_the_sentence():
    cpu = training()
    assert budget.sentence(budget.budget(cpu, products(cpu))) == (
        "cifar10-cnn (S0) at batch 32 takes 21.0 ms a step on the CPU; its dense layers account for 7.00 ms (33 %); "
        "14.0 ms (67 %) is not explained yet: convolutions, element-wise passes and launches are not measured yet."
    )


def test_nothing_measured_but_the_step_leaves_it_all_to_the_remainder():
    cpu = training()
    made = budget.budget(cpu, [])
    assert made.remainder.value == pytest.approx(21e-3)
    assert "21.0 ms (100 %) is not explained yet" in budget.sentence(made)


def test_lines_put_devices_side_by_side_and_failed_rows_into_words():
    cpu, gpu = training(), training("gpu:0", ms=2.1, tf32=1.0)
    lost = row("training/keras/fit", S0, None, device="gpu:1", status="failed", reason="TensorFlow finds no GPU")
    lines = budget.lines([cpu, gpu, lost, *products(cpu), *products(gpu, "matmul/cupy/cublas", 0.1)])
    assert "| a step | CPU | GPU |" in lines
    assert "| dense layers | 7.00 ms (33 %) | 0.700 ms (33 %) |".replace("0.700 ms", "700 us") in lines
    assert "| convolutions | not measured yet | not measured yet |" in lines
    assert "cifar10-cnn (S0) at batch 32 has no time on GPU 1 (failed): TensorFlow finds no GPU" in lines
    assert "- copies to the device: none: the batch is in host memory (the CPU)" in lines
    assert budget.lines([]) == []


def test_models_without_a_table_have_a_budget_too():
    own = row("training/keras/fit", Training("their.module:build", 32, 9600), 2e-3)
    (made,) = budget.budgets([own])
    assert made.remainder.value == pytest.approx(made.step.value)
    assert "not in kernels.networks" in part(made, "dense layers").why
    assert budget.gemms(own) == ()
    assert budget.sentence(made).startswith("their.module:build at batch 32 takes 2.00 ms a step on the CPU; ")


def test_flags_of_the_rows_are_said():
    cpu = training()
    made = budget.budget(cpu, products(cpu, flags=("other-load",)))
    assert any("some rows are flagged other-load" in line for line in budget.notes([made]))
    assert budget.sentence(made).endswith(" (doubtful: rows are flagged other-load).")


def test_a_row_without_samples_has_no_budget():
    with pytest.raises(ValueError, match="no time: it broke"):
        budget.budget(row("training/keras/fit", S0, None, status="failed", reason="it broke"), [])


def test_copies_come_from_the_law_of_tensorflows_own_before_cupys():
    gpu = training("gpu:0", tf32=1.0)
    copies = part(budget.budget(gpu, transfer_rows(0.0)), "copies to the device")
    assert copies.seconds.value == pytest.approx(6e-5 + 384 * 1024 / 6e9, rel=1e-2)  # 32 images of 32 x 32 x 3 float32
    assert copies.why == "384 KiB a batch by the law of transfer/tensorflow/constant"
    cupy = [m for m in transfer_rows(0.0) if "tensorflow" not in m.kernel]
    copies = part(budget.budget(gpu, cupy), "copies to the device")
    assert copies.seconds.value == pytest.approx(2e-5 + 384 * 1024 / 11e9, rel=1e-2)
    pinned = [m for m in cupy if m.problem.host_memory == "pinned"]
    assert part(budget.budget(gpu, pinned), "copies to the device").seconds is None
    small = [m for m in cupy if m.problem.nbytes < 10_000 or m.problem.host_memory == "pinned"]
    assert part(budget.budget(training(), small), "copies to the device").seconds == Estimate(0, 0, 0)


@pytest.mark.parametrize(("device", "jit", "setting", "step"), [("cpu", 0.0, "off", 4e-4), ("gpu:0", 1.0, "on", 9e-4)])
def test_kerass_own_step_is_a_part_of_the_same_device_and_compilation(device, jit, setting, step):
    rows = [m for m in launch_rows(0.0) if m.kernel.endswith({"off": "fit_op_by_op", "on": "fit_jit"}[setting])]
    made = budget.budget(training(device, jit_compile=jit), rows)
    own = part(made, budget.SMALL_STEP)
    assert own.seconds.value == pytest.approx(step)
    assert own.why.startswith(f"measured with jit_compile {setting}: ")
    assert part(made, "launches").seconds is None
    assert f"a Keras step of a model with almost no work accounts for {step * 1e6:.0f} us" in budget.sentence(made)
    other = budget.budget(training(device, jit_compile=1 - jit), rows)
    assert [p.name for p in other.parts if p.name == budget.SMALL_STEP] == []
    untold = budget.budget(training(device), rows)
    assert part(untold, "launches").why == budget.NO_LAUNCH


def test_on_a_gpu_parts_that_come_to_more_than_the_step_may_run_at_the_same_time():
    gpu = training("gpu:0", ms=0.5, jit_compile=1.0)
    assert "so some run at the same time or are counted too high" in budget.sentence(budget.budget(gpu, launch_rows(0.0)))


def test_a_fit_and_its_epochs_are_shared_by_their_steps():
    """0.3 s a fit, 0.6 s an epoch, 2 ms a step: 0.9 s over the 300 steps of a fit, 0.6 s where epochs are the samples."""
    law = {f"fit_s {e}x{s}": (0.3 + e * (0.6 + 0.002 * s),) * 5 for e, s in ((1, 1), (1, 41), (3, 1))}
    cpu = msgspec.structs.replace(training(), series=law)
    made = budget.budget(cpu, [cpu])
    assert part(made, budget.FIT_SHARE).seconds.value == pytest.approx(3e-3)
    assert made.remainder.value == pytest.approx(18e-3)
    said = budget.sentence(made)
    start = "cifar10-cnn (S0) at batch 32 takes 21.0 ms a step, with its share of the fit and its epochs on the CPU; "
    assert said.startswith(start)
    assert "its fit and epochs around the steps account for 3.00 ms (14 %)" in said
    (samples,) = cpu.samples
    epochs = msgspec.structs.replace(cpu, samples=(msgspec.structs.replace(samples, stop_reason=budget.EPOCHS_OF + "one fit"),))
    assert part(budget.budget(epochs, [epochs]), budget.FIT_SHARE).seconds.value == pytest.approx(2e-3)
    assert budget.FIT_SHARE not in [p.name for p in budget.budget(training(), []).parts]
    loop = msgspec.structs.replace(cpu, kernel="training/tensorflow/loop")
    below = {**law, "fit_s 1x1": (-9.0,) * 5, "fit_s 3x1": (-9.0,) * 5}
    for none in (loop, msgspec.structs.replace(cpu, series=below)):
        assert budget.FIT_SHARE not in [p.name for p in budget.budget(none, []).parts]
