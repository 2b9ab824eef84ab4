"""Rows: their keys and their libraries."""

import msgspec
import pytest
from small_result_files import row, write

from kernels.problems import Matmul, Training
from workloads import records
from workloads.records import Measurement, Row, Settings
from workloads.records.settings import ordinary


@pytest.mark.parametrize("name", ["a\nerror: fake", "a\rb", "a\x1b[31m", "a\u202eb"])
def test_control_characters_make_a_kernels_name_invalid(tmp_path, name):
    path = tmp_path / "matmul.jsonl"
    write(path, row(1), msgspec.structs.replace(row(2), kernel=f"matmul/numpy/{name}"))
    loaded = records.read(path)
    assert (loaded.measurements, loaded.bad_lines) == ((row(1),), 1)


def test_the_key_ignores_how_a_row_was_made():
    problem = Matmul(3, 3, 3, "float32", "float32", "float32")
    assert row(3).key == Measurement("matmul/numpy/blas", problem, Settings(threads=1), "failed").key
    assert row(3).key != row(4).key


def test_a_jax_row_names_its_library():
    training = Training("cifar10-cnn", 32, 320)
    loop = Row("training/jax/loop", training, Settings("cpu"))
    assert loop.library == "jax" and ordinary(loop)
    trial = Row("training/keras/trial", training, Settings("cpu"))
    assert trial.library == "tensorflow" and not ordinary(trial)
