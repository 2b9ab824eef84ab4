"""Copies between host and device without a GPU: what is put on a stream happens when somebody waits."""

import fake_peers
import numpy as np
import pytest

from kernels.problems import Transfer


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
@pytest.mark.parametrize(
    "nbytes", [5, 16, 16 * 9 + 5]
)  # of buffers of 16 bytes: less than one, one, ten pieces by four slots
def test_staged_bytes_arrive_whole_call_after_call(monkeypatch, built, direction, nbytes):
    """A buffer that is filled again before its copy is done brings the bytes of a later piece."""
    with fake_peers.imported(monkeypatch, built, count=1, names=("kernels.transfer.cupy",)) as (transfer, host):
        monkeypatch.setattr(transfer, "STAGE_BYTES", 16)
        problem = Transfer(direction, nbytes)
        (data,) = problem.inputs(3)
        run = transfer.staged(problem, data)
        for _ in range(2):
            np.testing.assert_array_equal(np.asarray(run()), data)
        assert not any(stream.waiting for stream in host.streams)
