"""The profile that comes with the package says what the result files of its machine under reports/ say."""

import functools
import gzip

import compact_profile
import made_profile
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE
from made_profile import passes, written

from analysis.explain import explanation
from analysis.explain.profiles import RowNames
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.predict import prediction, profile
from analysis.training import break_even
from kernels import networks
from kernels.problems import Training
from workloads import ROOT
from workloads.options import Usage
from workloads.records import Settings, decode

H200 = "nvidia-h200"


@functools.cache
def both() -> tuple[profile.Profile, profile.Profile]:
    """(stored profile, profile of all result files)."""
    return profile.read(H200), profile.read(str(ROOT / "reports" / H200))


@pytest.mark.parametrize("machine", compact_profile.MACHINES)
def test_the_stored_profile_matches_its_result_files(machine):
    packed = profile.stored(machine).read_bytes()
    assert len(packed) <= 500_000
    stored, expected = (
        decode(lines.splitlines()) for lines in (gzip.decompress(packed), compact_profile.lines(machine))
    )
    same = stored == expected  # pytest would compare megabytes
    assert same, "the rows in reports/ have changed: make profile"


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("model", networks.NETWORKS)
def test_both_predict_the_same(model, device):
    network = networks.find(model)
    for batch in (1, network.batch, 2048):
        training = Training(model, batch, network.samples, network.epochs)
        for jit in ("auto", "on", "off"):
            settings = Settings(device, switches={"jit_compile": jit})
            stored, whole = (prediction.predict(training, settings, one) for one in both())
            assert stored == whole


@pytest.mark.parametrize("model", ["fashion-mlp", "cifar10-cnn", "mnist-cnn"])
def test_both_explain_the_same(model):
    network = networks.find(model)
    asked = Request(Training(model, network.batch, network.samples, network.epochs))
    stored, whole = (explanation.explain(asked, Sources(cpu=one, gpu=one)) for one in both())
    assert len(stored.both) == 2
    assert stored.record() == whole.record()


def test_both_have_the_same_measured_trainings():
    stored, whole = (break_even.trained(one.measurements) for one in both())
    assert [one.cost for one in stored] == [one.cost for one in whole]
    assert len(stored) > 100


def test_a_folder_comes_before_a_stored_profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(profile.read(H200).measurements) > 3000
    written(tmp_path / H200, passes())
    assert len(profile.read(H200).measurements) == len(passes())


def test_cpu_rows_alone_have_no_gpu_unless_named(tmp_path):
    launches = made_profile.launches()
    on_cpu = made_profile.written(tmp_path / "cpu", [m for m in launches if m.device == "cpu"], CPU_MACHINE)
    both = made_profile.written(tmp_path / "both", launches, GPU_MACHINE)
    alone, pair = RowNames(runs=(on_cpu,)).sources(), RowNames(runs=(both,)).sources()
    assert (alone.gpu, pair.gpu is pair.cpu, alone.cpu.key) == (None, True, CPU_MACHINE.key)
    beside = RowNames(runs=(on_cpu,), gpu_profile=both).sources()
    assert (beside.cpu.key, beside.gpu.key) == (CPU_MACHINE.key, GPU_MACHINE.key)
    with pytest.raises(Usage):
        RowNames(runs=(both,), gpu_profile=on_cpu).sources()
