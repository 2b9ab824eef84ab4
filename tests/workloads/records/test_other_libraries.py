"""Models and trainings of other libraries than Keras, by what a file imports."""

import pytest

from workloads.records import other_libraries, script_files

FILES = {
    "import torch.nn as nn": "PyTorch",
    "from flax import linen": "JAX",
    "import numpy\nfrom sklearn.svm import SVC": "scikit-learn",
    "import torch, keras": "",
    "import jax\nfrom tensorflow import keras": "",
    "import numpy": "",
    "def build(:": "",
}


@pytest.mark.parametrize(("source", "library"), FILES.items())
def test_the_library_is_imported_in_place_of_keras(source, library, tmp_path):
    file = tmp_path / "train.py"
    file.write_text(source)
    assert other_libraries.library_imported(file) == library
    refused = script_files.without_fit(str(file))
    assert (refused.first == f"write the model with Keras in {file}") == bool(library)
    assert library in str(refused)
