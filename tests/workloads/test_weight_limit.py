"""A model whose weights do not fit into memory is refused before they are allocated: trained ones with their gradients."""

import pytest

from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.user_fit.weight_limit import WeightLimit


def test_trained_weights_count_twice_and_others_once():
    limit = WeightLimit(free_bytes=1000)
    limit.add(300, is_trainable=True)
    limit.add(400, is_trainable=False)  # 2 x 300 + 400 are just free
    with pytest.raises(Refusal, match="its weights, their gradients and the optimizer's state take ") as refusal:
        limit.add(1, is_trainable=False)
    assert refusal.value.change == "make the model smaller, or take a machine with more memory"
