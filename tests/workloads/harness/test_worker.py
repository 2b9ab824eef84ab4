"""The environment of a worker."""

import pytest
from fake_data_parallel import part

from kernels.problems import AllReduce, AtOnce, PeerCopy, Training
from workloads.harness.worker import SHARED, environment
from workloads.records import Row, Settings
from workloads.records import settings as switches


def test_a_process_sees_the_gpus_of_its_rows():
    uuids = {"gpu:0": "GPU-a", "gpu:1": "GPU-b", "gpu:2": "GPU-c"}
    both = environment(part(2, device="gpu:0"), uuids)
    assert (both["CUDA_VISIBLE_DEVICES"], both["NCCL_NVLS_ENABLE"]) == ("GPU-a,GPU-b", "0")
    assert both["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert environment(part(1, device="gpu:0"), uuids)["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert environment(part(2), uuids)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment(part(2), uuids)["XLA_FLAGS"] == "--xla_force_host_platform_device_count=2"
    assert environment(part(2, library="tensorflow"), uuids)[switches.PARTS] == "2"
    assert not {"XLA_FLAGS", switches.PARTS} & set(environment(part(1), uuids))


@pytest.mark.parametrize(
    ("device", "given", "variables"),
    [
        ("cpu", {}, {"CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}),
        ("cpu", {"gpu": "visible"}, {"CUDA_VISIBLE_DEVICES": "GPU-7"}),
        ("gpu:0", {}, {"CUDA_VISIBLE_DEVICES": "GPU-7"}),
        ("cpu", {"keras_backend": "jax"}, {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}),
        ("gpu:0", {"keras_backend": "jax"}, {"JAX_PLATFORMS": "cuda", **SHARED}),
        ("cpu", {"keras_backend": "torch"}, {"KERAS_BACKEND": "torch"}),
        # a process of its own: plans are kept by shape alone
        ("gpu:0", {"tf32": "off"}, {"NVIDIA_TF32_OVERRIDE": "0"}),
        ("cpu", {"TF_ENABLE_ONEDNN_OPTS": "0"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}),
    ],
)
def test_a_process_is_prepared_before_any_import(device, given, variables):
    wanted = Row("training/keras/fit", Training("cifar10-cnn", 4, 8), Settings(device, switches=given))
    assert variables.items() <= environment(wanted, {"gpu:0": "GPU-7"}).items()
    like = Settings(device, switches={**given, "dropout": "off", "residence": "tf.data"})
    plain = Row("training/keras/fit", Training("lenet", 4, 8), like)
    # one child serves both
    assert environment(plain, {}) == environment(Row(wanted.kernel, wanted.problem, wanted.settings), {})


def test_a_row_sees_its_gpus_by_uuid():
    uuids = {f"gpu:{i}": f"GPU-{i}" for i in range(4)}
    for p in (PeerCopy(3, 1, 4), PeerCopy(1, 3, 4), AllReduce(8, "1,3")):
        own = environment(Row("peer/cupy/direct", p, Settings("gpu:3")), uuids)
        assert own["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-3"
    alone = Row("matmul/cupy/cublas", AtOnce("matmul", 64, "0,1,2"), Settings("gpu:2"))
    assert environment(alone, uuids)["CUDA_VISIBLE_DEVICES"] == "GPU-2"
