"""A training step as the operations of its trace: equal to the tables for their networks, gradients and loops by hand, and any
other model that compiles; see tests/support/inside_tracing.py."""

import pytest

from kernels import networks

LIGHT = [
    "light_networks",
    "gradients_of_convolutions",
    "batched_attention",
    "loops",
    "loops_that_end_by_the_data",
    "a_step_of_its_own",
    "several_inputs_and_outputs",
    "text_and_augmentation",
    "layers_that_a_call_makes",
    "what_does_not_grow_evenly",
    "a_batch_that_cannot_change",
    "data_of_a_user",
    "steps_that_do_not_trace",
    "ragged_inputs_are_refused",
    "layers_without_a_vocabulary_are_refused",
    "sparse_arrays_are_refused",
    "arrays_without_a_size",
    "samples_of_a_pipeline",
    "layers_of_cudnn",
    "two_inputs_as_a_network",
]


@pytest.mark.parametrize("name", LIGHT)
def test_inside_tensorflow(train, name):
    measurement = train(1, 1, model=f"tests.support.inside_tracing:{name}", kernel="keras/build")
    assert (measurement.status, measurement.reason) == ("ok", "")


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(networks.NETWORKS)), ids=sorted(networks.NETWORKS))
def test_products_and_convolutions_are_those_of_the_tables(train, place):
    measurement = train(1, 1, model=f"tests.support.inside_tracing:network_{place}", kernel="keras/build")
    assert (measurement.status, measurement.reason) == ("ok", "")
