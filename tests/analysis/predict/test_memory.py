"""Peak memory and the largest batch, counted by hand on a small network."""

import msgspec
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row

from analysis.predict.memory import batch_bytes, counted_bytes, fixed_bytes, memory
from kernels import networks
from kernels.networks.layers import Layer, Network
from kernels.problems import Training

OWN = Network("own", "", (4, 4, 1), 3, (Layer("flatten", "flatten"), Layer("a", "dense", 8), Layer("b", "dense", 3)))
T = Training("own", 10, 100)
WEIGHTS = 16 * 8 + 8 + 8 * 3 + 3  # 163


def test_memory_grows_with_the_batch_only_in_part():
    assert fixed_bytes(OWN) == 4 * WEIGHTS * 4  # weights, gradients, two moments
    assert fixed_bytes(msgspec.structs.replace(OWN, optimizer="sgd")) == 4 * WEIGHTS * 2
    frozen = (*OWN.layers[:1], msgspec.structs.replace(OWN.layers[1], trainable=False), OWN.layers[2])
    assert fixed_bytes(msgspec.structs.replace(OWN, layers=frozen)) == 4 * (WEIGHTS + 27 * 3)
    assert batch_bytes(OWN) == 4 * (16 + 8 + 3 + 2 * 8) and batch_bytes(OWN, "float64") == 8 * 16 + 4 * (8 + 3 + 16)
    # the data set in float32 on the device itself; on the CPU the arrays too
    assert counted_bytes(OWN, T, "gpu:0") == 4 * WEIGHTS * 4 + 10 * 172 + 100 * 64
    assert counted_bytes(OWN, T, "cpu") == 4 * WEIGHTS * 4 + 10 * 172 + 100 * 128
    wide = msgspec.structs.replace(T, dtype="float64")
    assert counted_bytes(OWN, wide, "cpu") == 4 * WEIGHTS * 4 + 10 * 236 + 100 * (128 + 64)


def test_the_largest_batch_fills_the_free_memory():
    found = memory(OWN, T, "gpu:0", machine=GPU_MACHINE)
    capacity, least = 141 * 2**30, 4 * WEIGHTS * 4 + 100 * 64
    assert found.peak.value == counted_bytes(OWN, T, "gpu:0") and found.capacity == capacity
    assert (found.peak.low, found.peak.high) == (least + 860, least + 3440)  # half and twice the batch's 1720
    assert found.largest_batch.value == pytest.approx((capacity - least) / 172)
    assert found.largest_batch.low == pytest.approx((capacity - least) / 344)
    assert memory(OWN, T, "gpu:0", machine=CPU_MACHINE).largest_batch is None


def test_host_data_takes_no_gpu_memory():
    arrays = memory(OWN, T, "gpu:0")
    streamed = memory(OWN, T, "gpu:0", residence="tf.data")
    assert arrays.copied == 100 * 64 and streamed.copied == 0
    assert arrays.peak.value - streamed.peak.value == 100 * 64
    resident = memory(OWN, T, "gpu:0", residence="resident")
    assert (resident.peak, resident.copied) == (arrays.peak, 0)  # asked for, not by Keras's fit
    on_cpu = memory(OWN, T, "cpu", residence="tf.data")
    assert (on_cpu.peak, on_cpu.copied) == (memory(OWN, T, "cpu").peak, 0)


def peaks(device, beyond, kernel="training/keras/fit"):
    made = []
    for i, more in enumerate(beyond, 1):
        t = Training("lenet", 32, 1000 * i)
        value = counted_bytes(networks.find("lenet"), t, device) + more
        made.append(row(kernel, t, 1e-3, device=device, values={"peak_memory_bytes": value}))
    return made


def test_measured_peaks_set_the_count_right():
    measured = peaks("gpu:0", (1e8, 2e8, 4e8))
    gpu = memory(OWN, T, "gpu:0", measurements=measured, machine=GPU_MACHINE)
    plain = counted_bytes(OWN, T, "gpu:0")
    assert gpu.peak.value == pytest.approx(plain + 2e8)
    assert (gpu.peak.low, gpu.peak.high) == pytest.approx((plain - 860 + 1e8, plain + 1720 + 4e8))
    for others in (
        peaks("gpu:0", (9e8, 9e8)),
        peaks("cpu", (9e8, 9e8, 9e8)),
        peaks("gpu:0", (9e8,) * 3, "training/jax/loop"),
    ):
        assert memory(OWN, T, "gpu:0", measurements=others, machine=GPU_MACHINE).peak.value == plain


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_a_batch_is_at_most_the_data_set(device):
    """A batch of 1,000 out of 100 samples is one of 100."""
    large, whole = (msgspec.structs.replace(T, batch=batch) for batch in (1000, 100))
    assert (
        counted_bytes(OWN, large, device)
        == counted_bytes(OWN, whole, device)
        == counted_bytes(OWN, T, device) + 90 * 172
    )
    assert memory(OWN, large, device, machine=GPU_MACHINE) == memory(OWN, whole, device, machine=GPU_MACHINE)


@pytest.mark.parametrize(
    ("optimizer", "arrays"),
    [("sgd", 0), ("rmsprop", 1), ("adagrad", 1), ("adam", 2), ("nadam", 2), ("adamw", 2), ("adamax", 2)],
)
def test_an_optimizer_keeps_arrays_of_its_own(optimizer, arrays):
    assert fixed_bytes(msgspec.structs.replace(OWN, optimizer=optimizer)) == 4 * WEIGHTS * (2 + arrays)


def test_three_measured_peaks_correct_the_count():
    corrected = {}
    for count in (2, 3):
        measured = peaks("gpu:0", (1e8,) * count)
        corrected[count] = memory(OWN, T, "gpu:0", measurements=measured, machine=GPU_MACHINE).peak.value
    plain = counted_bytes(OWN, T, "gpu:0")
    assert corrected == {2: plain, 3: pytest.approx(plain + 1e8)}
