"""Answers of models in words."""

import msgspec
from fake_answers import answered

from analysis.text import inference as inference_words
from analysis.training import inference as said
from kernels.problems import Inference
from workloads.records import Samples


def test_no_winner_where_intervals_meet():
    """40 blocks of 1 to 3 ms, shuffled alike: the medians are known to a third, so 1.2 times is not told, and 8 times
    roughly."""
    spread = [1e-3 + 2e-3 * (i * 17 % 40) / 39 for i in range(40)]

    def taken(times: float) -> tuple[Samples]:
        return (Samples("host-latency", tuple(s * times for s in spread), 1, (1,) * 40, "max-time"),)

    sides = (("cpu", 1.0), ("gpu:0", 1.2), ("gpu:1", 1 / 8))
    made = [msgspec.structs.replace(answered(1, 2e-3, device=device), samples=taken(times)) for device, times in sides]
    assert inference_words.lines(made[:2])[0].endswith("on the CPU, can't tell.")
    assert inference_words.lines([made[0], made[2]])[0].endswith("GPU 8.0x faster.")
    (one,) = said.cases(made)
    batches = [*made[:1], msgspec.structs.replace(made[1], problem=Inference("lenet", 2), settings=made[0].settings)]
    assert "become 1.7x on the CPU" in inference_words.batching_sentences(one, batches)[0]
    slower = msgspec.structs.replace(made[0], problem=Inference("lenet", 2), samples=taken(2))
    (words,) = inference_words.batching_sentences(one, [made[0], slower])
    assert words.endswith("become no more for certain on the CPU.")
    gpu = answered(1, {"host-latency": 2e-3, "host-throughput": 1e-3}, mode="resident", device="gpu:0")
    waited, queued = inference_words.lines([answered(1, 3e-3, mode="resident"), gpu])
    assert waited.endswith(" Batch 1: 500 samples/s on the GPU, 333 on the CPU, GPU 1.5x faster.")
    assert queued.startswith("lenet, resident, calls queued: ")
    assert "1,000 samples/s on the GPU, 333 on the CPU" in queued
