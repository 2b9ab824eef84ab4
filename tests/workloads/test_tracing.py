"""A training step as the operations of its trace: equal to the tables for their networks, gradients and loops by hand, and any
other model that compiles; see tests/support/inside_tracing.py."""

import pytest

LIGHT = [
    "light_networks",
    "gradients_of_convolutions",
    "batched_attention",
    "loops",
    "loops_that_end_by_the_data",
    "a_step_of_its_own",
    "several_inputs_and_outputs",
    "text_and_augmentation",
    "what_does_not_grow_evenly",
    "a_batch_that_cannot_change",
    "data_of_a_user",
]


@pytest.mark.parametrize("name", [*LIGHT, pytest.param("other_networks", marks=pytest.mark.slow)])
def test_inside_tensorflow(train, name):
    measurement = train(1, 1, model=f"tests.support.inside_tracing:{name}", kernel="keras/build")
    assert (measurement.status, measurement.reason) == ("ok", "")
