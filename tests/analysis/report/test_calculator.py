"""The tables that the page's calculator looks up, worked out by hand from rows and predictions."""

import itertools

import fake_measurements as fake
import made_profile
import pytest
from fake_measurements import GPU_MACHINE, row

from analysis.crossover.crossover import crossovers
from analysis.predict.prediction import predict
from analysis.predict.profile import Profile
from analysis.report import calculator
from kernels.problems import Matmul, Training
from workloads.records import Settings

SIZES = (64, 128, 256)


def square_rows(mode: str, seconds: dict[int, float]) -> list:
    return [row("matmul/cupy/cublas", fake.square(n), s, mode=mode) for n, s in seconds.items()]


def cpu_rows() -> list:
    return [row("matmul/numpy/blas", fake.square(n), n * 1e-6, threads=1) for n in SIZES]


def test_a_square_table_has_seconds_and_copies():
    """Resident 10, 20, 40 µs; copied 25, 50, 100 µs: copies add 15, 30 and 60 µs."""
    rows = cpu_rows()
    rows += square_rows("resident", {64: 10e-6, 128: 20e-6, 256: 40e-6})
    rows += square_rows("roundtrip", {64: 25e-6, 128: 50e-6, 256: 100e-6})
    (tool,) = calculator.squares(rows, crossovers(rows))
    assert (tool.name, tool.kind) == ("float32, n x n x n", "call")
    assert {axis.name: axis.values for axis in tool.sides["cpu"].axes} == {"n": (64.0, 128.0, 256.0)}
    assert tool.sides["cpu"].seconds == pytest.approx((64e-6, 128e-6, 256e-6))
    assert tool.sides["gpu"].seconds == pytest.approx((10e-6, 20e-6, 40e-6))
    assert list(tool.copies) == ["roundtrip"]
    assert tool.copies["roundtrip"].seconds == pytest.approx((15e-6, 30e-6, 60e-6))


def test_free_and_two_sized_copies_make_no_table():
    """At 64 the copied call is no longer than the resident one, so two sizes are left, and a table has three."""
    rows = cpu_rows()
    rows += square_rows("resident", {64: 10e-6, 128: 20e-6, 256: 40e-6})
    rows += square_rows("roundtrip", {64: 10e-6, 128: 50e-6, 256: 100e-6})
    (tool,) = calculator.squares(rows, crossovers(rows))
    assert tool.copies == {}
    two = [m for m in rows if m.problem.n > 64]
    assert calculator.squares(two, crossovers(two)) == []


def test_without_a_gpu_the_fastest_cpu_rows_remain():
    rows = cpu_rows()
    rows += [row("matmul/numba/packed", fake.square(n), 3e-6 * n, threads=1) for n in SIZES]
    (tool,) = calculator.squares(rows, ())
    assert list(tool.sides) == ["cpu"]
    assert tool.sides["cpu"].seconds == pytest.approx((64e-6, 128e-6, 256e-6))


def test_a_product_table_marks_far_shapes():
    """Three shapes from 32 to 512 in M: the grid's corners have M of 32, 128 and 512. A corner is near a row if no size of it is
    more than 4 times as large or small."""
    shapes = [(32, 64, 16), (128, 64, 16), (512, 64, 16)]
    rows = []
    for m, n, k in shapes:
        problem = Matmul(m, n, k)
        rows.append(row("matmul/numpy/blas", problem, m * 1e-6, threads=1))
        rows.append(row("matmul/numba/packed", problem, m * 5e-6, threads=1))
    table = calculator._grid(rows, "float32", "float32")
    assert [(axis.name, axis.values) for axis in table.axes] == [
        ("M", (32.0, 128.0, 512.0)),
        ("N", (64.0,)),
        ("K", (16.0,)),
    ]
    assert table.seconds == pytest.approx((32e-6, 128e-6, 512e-6))
    assert table.known == (1, 1, 1)
    assert calculator._powers((32, 512)) == (32.0, 128.0, 512.0)
    assert calculator._powers((32, 700)) == (32.0, 128.0, 512.0, 1024.0)  # the largest size is within the grid
    diagonal = [row("matmul/numpy/blas", fake.square(n), n * 1e-6, threads=1) for n in (16, 128, 1024)]
    table = calculator._grid(diagonal, "float32", "float32")
    sides = (16.0, 64.0, 256.0, 1024.0)
    assert [axis.values for axis in table.axes] == [sides] * 3
    known = dict(zip(itertools.product(sides, repeat=3), table.known, strict=True))
    near = [(16, 16, 16), (64, 64, 64), (256, 256, 64), (1024, 1024, 1024)]
    far = [(16, 16, 256), (1024, 1024, 64), (16, 256, 64), (1024, 16, 16)]
    assert [known[corner] for corner in near] == [1] * 4
    assert [known[corner] for corner in far] == [0] * 4


def test_a_training_table_has_step_epoch_and_start():
    """A step, an epoch and what comes before the first epoch, at every batch of the grid, for one training on each device."""
    job = made_profile.training("mlp-784-100x2-10", 32, 2e-3)
    profile = Profile([*made_profile.everything(), job], GPU_MACHINE)
    (tool,) = calculator.trainings(profile, ["mlp-784-100x2-10", "own.py:build"])
    assert (tool.name, tool.kind, tool.copies) == ("training mlp-784-100x2-10", "training", {})
    batches = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
    for side, device in (("cpu", "cpu"), ("gpu", "gpu:0")):
        for table in (tool.sides[side], tool.epoch[side], tool.once[side]):
            assert [(axis.name, axis.values) for axis in table.axes] == [("batch", batches)]
        network = calculator.networks.known("mlp-784-100x2-10")
        for i, batch in enumerate(batches):
            problem = Training("mlp-784-100x2-10", int(batch), network.samples, network.epochs)
            predicted = predict(problem, Settings(device), profile)
            steps = -(-network.samples // int(batch))
            cost = predicted.cost
            assert (cost.last_step_saves.value > 0) is bool(network.samples % int(batch)), (
                "a smaller last batch is shorter"
            )
            epoch = cost.epoch.value + steps * predicted.step_s.value - cost.last_step_saves.value
            assert tool.sides[side].seconds[i] == pytest.approx(predicted.step_s.value)
            assert tool.epoch[side].seconds[i] == pytest.approx(epoch)
            once = [cost.start, cost.build, cost.compile, cost.dataset_setup]
            assert tool.once[side].seconds[i] == pytest.approx(sum(part.value for part in once if part))
    assert tool.constants == (("samples an epoch", f"{network.samples:,}"), ("epochs", str(network.epochs)))


def test_without_both_devices_no_training_is_offered():
    cpu_only = [m for m in made_profile.everything() if m.device == "cpu"]
    assert calculator.trainings(Profile(cpu_only, fake.CPU_MACHINE), ["mlp-784-100x2-10"]) == []
