"""What TensorFlow says of its devices and blocks."""

from types import SimpleNamespace

from workloads.frameworks import tensors


def test_the_line_that_says_what_tensorflow_missed():
    log = [
        "I0000 00:00:1.1 1 port.cc:153] oneDNN custom operations are on.",
        "I0000 00:00:1.2 1 dso_loader.cc:144] Could not load dynamic library 'libcudnn.so.9'; dlerror: no such file",
        "W0000 00:00:1.3 1 gpu_device.cc:2] Cannot dlopen some GPU libraries.",
    ]
    assert tensors.missed(log) == "Could not load dynamic library 'libcudnn.so.9'; dlerror: no such file"
    assert tensors.missed(log[::2]) == "Cannot dlopen some GPU libraries."
    assert tensors.missed(log[:1]) == "its log does not say why"


def test_a_blocks_seconds_get_its_name(monkeypatch):
    moments = iter((100.0, 102.5))
    monkeypatch.setattr(tensors, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    phases = {"build": 1.0}
    with tensors.timed(phases, "compile"):
        pass
    assert phases == {"build": 1.0, "compile": 2.5}
