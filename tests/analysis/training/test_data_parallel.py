"""Trainings on two GPUs, of a stored run."""

import pytest
import stored_runs

from analysis.training import data_parallel


@pytest.mark.parametrize(
    ("batch", "step", "all_reduce", "bus_bytes_per_s", "loss_difference"),
    [
        (32, (1.874e-3, 1.738e-3, 2.128e-3), (4.488e-5, 4.256e-5, 6.119e-5), 1.4863e11, 8.0908e-5),
        (2048, (3.989e-3, 3.456e-3, 4.155e-3), (5.134e-5, 4.528e-5, 7.021e-5), 1.2993e11, 2.7123e-5),
    ],
)
def test_stored_data_parallel_steps_are_known(batch, step, all_reduce, bus_bytes_per_s, loss_difference):
    cases = data_parallel.cases(stored_runs.analysis("two-gpus").rows)
    (case,) = [case for case in cases if (case.several.problem.batch, case.count) == (batch, 2)]
    assert case.several.problem.model == "cifar10-cnn"
    assert stored_runs.numbers(data_parallel.step(case.several)) == stored_runs.near(*step)
    assert stored_runs.numbers(data_parallel.all_reduce(case)) == stored_runs.near(*all_reduce)
    assert data_parallel.bus_bytes_per_s(case) == pytest.approx(bus_bytes_per_s, rel=5e-4)
    assert data_parallel.loss_difference(case) == pytest.approx(loss_difference, rel=5e-4)
