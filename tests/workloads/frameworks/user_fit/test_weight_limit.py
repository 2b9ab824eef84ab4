"""A model whose weights do not fit into memory is refused before they are allocated: trained ones with gradient and state."""

import pytest

from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.user_fit.weight_limit import WeightLimit


def test_trained_weights_count_three_times_and_others_once():
    limit = WeightLimit(free_bytes=1300)
    limit.add(300, is_trainable=True)
    limit.add(400, is_trainable=False)  # 3 x 300 + 400 are just free
    with pytest.raises(Refusal, match="its weights, their gradients and the optimizer's state take ") as refusal:
        limit.add(1, is_trainable=False)
    assert refusal.value.change == "make the model smaller, or take a machine with more memory"
