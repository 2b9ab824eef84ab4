"""Scripts by their text: their fits and the commands that name them."""

import pytest

from workloads import options
from workloads.records import script_files


def test_a_missing_fit_is_left_out_of_corrections():
    stop = script_files.no_such_fit("train.py", "11", [])
    assert (str(stop), stop.wrong, stop.right) == ("train.py calls no fit at 11", "--fit", "")


@pytest.mark.parametrize("typed", ["train.py 'unclosed", "train.py \\", " "])
def test_an_unsplittable_script_is_one_error(typed):
    with pytest.raises(options.Usage, match=r"No closing quotation|No escaped character|names no script") as stop:
        script_files.typed_words(typed)
    assert (stop.value.wrong, stop.value.right) == (typed, "train.py")


NAMES = {
    "train.py:41": script_files.ScriptTraining(script="train.py", fit="41"),
    "a/train.ipynb:3.2 --lr '0 1'": script_files.ScriptTraining(
        script="a/train.ipynb", fit="3.2", arguments=("--lr", "0 1")
    ),
    "package.train:7 -v": script_files.ScriptTraining(script="package.train", fit="7", arguments=("-v",)),
    "mine.py:build": None,
    "package.module:build": None,
    "cifar10-cnn": None,
    "train.py:41 'unclosed": None,
    "": None,
    "'my train.py:41' -v": script_files.ScriptTraining(script="my train.py", fit="41", arguments=("-v",)),
}


@pytest.mark.parametrize(("name", "training"), NAMES.items())
def test_a_scripts_training_name_gives_its_command(name, training):
    assert script_files.script_training(name) == training
    assert training is None or training.name == name
