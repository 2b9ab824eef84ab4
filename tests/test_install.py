"""install.py with everything it touches replaced by fakes: no network, no pip, no driver."""

import importlib.util
import json
import platform
import re
import subprocess
import sys
from collections import namedtuple

import pytest

from workloads import ROOT

_spec = importlib.util.spec_from_file_location("install", ROOT / "install.py")
setup = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(setup)
PROJECT = """\
[project]
dependencies = ["numpy"]
[project.optional-dependencies]
keras = ["tensorflow"]
fleet = ["ray"]
cuda12 = ["cupy-cuda12x", "cuda-bindings"]
cuda13 = ["cuda-bindings"]
"""


class Driver:
    """A CUDA driver library's answers; `woken` counts the calls that a finished set-up must not make."""

    def __init__(self, version, devices, init=0):
        self.version, self.devices, self.init, self.woken = version, devices, init, 0

    def cuDriverGetVersion(self, pointer):
        pointer._obj.value = self.version
        return 0

    def cuInit(self, flags):
        self.woken += 1
        return self.init

    def cuDeviceGetCount(self, pointer):
        pointer._obj.value = self.devices
        return 0


class Machine:
    """A folder, a disk, a driver and a pip that fails when `fails(command)` says so; `commands` is what was run."""

    def __init__(self, folder):
        self.folder, self.venv, self.commands = folder, folder / "venv", []
        self.driver, self.free, self.fails = None, 500e9, lambda command: False

    def run(self, *command):
        self.commands.append([str(word) for word in command])
        if self.fails(command):
            return False
        if "venv" in command:
            (self.venv / "bin").mkdir(parents=True, exist_ok=True)
            (self.venv / "bin" / "python").touch()
            (self.venv / "pyvenv.cfg").touch()
        else:
            assert not self.stamp_file.exists(), "a stamp while packages are being installed"
        return True

    def library(self, name):
        if self.driver is None:
            raise OSError(name)
        return self.driver

    @property
    def stamp_file(self):
        return self.venv / setup.STAMP

    @property
    def stamp(self):
        return json.loads(self.stamp_file.read_text())

    def set_up(self, extras):
        """(the error or "", the commands of this call)."""
        before = len(self.commands)
        try:
            setup.set_up(self.venv, set(extras.split(",")))
        except setup.Stop as stop:
            return str(stop), self.commands[before:]
        return "", self.commands[before:]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine(tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    for name in ("constraints.txt", "constraints-cuda13.txt"):
        (tmp_path / name).touch()
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "run", machine.run)
    monkeypatch.setattr(setup.ctypes, "CDLL", machine.library)
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda place: namedtuple("Usage", "free")(machine.free))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return machine


def packages(command):
    return command[command.index("-c") + 2 :]


def test_a_set_up_runs_once_and_leaves_the_gpu_asleep(machine):
    error, commands = machine.set_up("keras")
    assert not error
    assert commands[0][1:] == ["-m", "venv", "--clear", str(machine.venv)]
    assert packages(commands[1]) == ["numpy", "tensorflow"] and len(commands) == 2
    assert machine.stamp["extras"] == ["keras"]
    machine.driver = Driver(12080, devices=1)
    machine.set_up("keras")
    machine.driver.woken = 0
    assert machine.set_up("keras") == ("", []) and machine.driver.woken == 0


def test_an_extra_that_is_gone_is_left_out(machine):
    machine.set_up("keras,fleet")
    (machine.folder / "pyproject.toml").write_text(PROJECT.replace('fleet = ["ray"]', ""))
    assert [packages(command) for command in machine.set_up("keras")[1]] == [["numpy", "tensorflow"]]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "constraints-cuda13.txt"])
def test_a_changed_list_is_installed_into_the_same_venv(machine, name):
    machine.set_up("keras,fleet")
    with open(machine.folder / name, "a") as file:
        file.write("# changed\n")
    _, commands = machine.set_up("keras")
    assert [packages(command) for command in commands] == [["numpy", "ray", "tensorflow"]]
    assert machine.set_up("keras,fleet") == ("", [])


def test_what_starts_over(machine, monkeypatch):
    machine.set_up("keras")
    monkeypatch.setattr(platform, "python_version", lambda: "3.12.99")
    _, commands = machine.set_up("keras")
    assert "venv" in commands[0]
    machine.set_up("keras")
    (machine.venv / "bin" / "python").unlink()
    assert "venv" in machine.set_up("keras")[1][0]


def test_a_failed_or_interrupted_installation_leaves_no_stamp_and_is_redone(machine, monkeypatch):
    machine.fails = lambda command: "tensorflow" in command
    error, _ = machine.set_up("keras")
    assert error == "the installation failed, see above; to try again: make run"
    assert not machine.stamp_file.exists()
    machine.fails = lambda command: False
    error, commands = machine.set_up("keras")
    assert not error
    assert "venv" in commands[0]
    machine.set_up("keras")

    def interrupted(*command):
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.set_up("fleet")
    assert not machine.stamp_file.exists()


@pytest.mark.parametrize("text", ["", "{", "3", "[]", '{"inputs": 1}'])
def test_a_broken_stamp_is_no_stamp(machine, text):
    machine.set_up("keras")
    machine.stamp_file.write_text(text)
    assert "venv" in machine.set_up("keras")[1][0]


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_missing_venv_module_is_said_before_anything_is_made(machine, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    error, commands = machine.set_up("keras")
    assert error.endswith("sudo apt install python{}.{}-venv".format(*sys.version_info[:2])) and not commands
    assert not machine.venv.exists()


def test_too_small_a_disk_is_said_before_anything_is_made(machine, capsys):
    machine.free = 5.9e9
    error, commands = machine.set_up("keras")
    assert error.startswith("too little disk at ") and not commands
    assert "needs up to 6 GB of disk, 5.9 GB free" in capsys.readouterr().err
    assert not machine.venv.exists()
    machine.free = 6e9
    assert not machine.set_up("keras")[0] and not machine.set_up("fleet")[0]
    machine.free = 12.9e9
    assert "too little disk" in machine.set_up("cuda12")[0] and machine.stamp_file.exists()


def test_cuda13_has_constraints_of_its_own(machine):
    machine.set_up("keras")
    assert machine.commands[-1][machine.commands[-1].index("-c") + 1] == str(machine.folder / "constraints.txt")
    machine.set_up("cuda13")
    assert machine.commands[-1][machine.commands[-1].index("-c") + 1] == str(machine.folder / "constraints-cuda13.txt")


def test_one_venv_holds_one_cuda_flavor_and_cuda13_by_name_keeps_a_gpu_from_adding_cuda12(machine):
    machine.set_up("cuda12")
    error, commands = machine.set_up("cuda13")
    assert "VENV=.venv13" in error and not commands and machine.stamp_file.exists()
    machine.stamp_file.unlink()
    machine.driver = Driver(13000, devices=1)
    assert not machine.set_up("keras,cuda13")[0] and not machine.set_up("keras")[0]
    assert machine.stamp["extras"] == ["cuda13", "keras"]


@pytest.mark.parametrize(
    ("driver", "extra", "words"),
    [
        (None, None, "CPU only, no CUDA driver here"),
        (Driver(0, 0), None, "CPU only, no CUDA driver here"),
        (Driver(12040, 0), None, "CPU only, a CUDA 12.4 driver without a GPU"),
        (Driver(12040, 1, init=100), None, "CPU only, a CUDA 12.4 driver without a GPU"),
        (Driver(11080, 1), None, "CPU only, a CUDA 11.8 driver is too old (12.0 or newer is needed)"),
        (Driver(12000, 1), "cuda12", "1 GPU, CUDA 12.0 driver"),
        (Driver(13010, 8), "cuda12", "8 GPUs, CUDA 13.1 driver"),
    ],
)
def test_what_the_driver_answers(machine, driver, extra, words):
    machine.driver = driver
    assert setup.gpu_extra(*setup.cuda_driver()) == (extra, words)


def test_a_gpu_gets_its_packages_also_when_it_comes_later_or_is_hidden(machine, monkeypatch):
    machine.set_up("keras")
    machine.driver = Driver(13000, devices=1)
    _, commands = machine.set_up("keras")
    assert packages(commands[-1]) == ["cuda-bindings", "cupy-cuda12x", "numpy", "tensorflow"]
    assert machine.stamp["extras"] == ["cuda12", "keras"]
    machine.driver = Driver(12080, devices=1)
    machine.set_up("keras")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.set_up("keras") == ("", []) and machine.stamp["extras"] == ["cuda12", "keras"]


def test_a_failed_gpu_installation_is_said_and_goes_on_with_the_cpu(machine, capsys):
    machine.driver = Driver(12080, devices=1)
    machine.fails = lambda command: "cupy-cuda12x" in command
    error, commands = machine.set_up("keras")
    assert not error
    assert packages(commands[-1]) == ["numpy", "tensorflow"]
    assert "the GPU packages could not be installed, see above; going on with the CPU" in capsys.readouterr().err
    assert machine.stamp["extras"] == ["keras"]
    assert machine.set_up("keras") == ("", []), "a failed GPU installation is not tried again on every run"
    assert [packages(command) for command in machine.set_up("fleet")[1]] == [["numpy", "ray", "tensorflow"]]


def test_an_unknown_extra_and_a_folder_that_is_no_venv_are_refused(machine):
    expected = ("no extra kears; EXTRAS takes keras, fleet, cuda12, cuda13: make run EXTRAS=bench", [])
    assert machine.set_up("kears") == expected
    machine.venv.mkdir()
    (machine.venv / "thesis.txt").touch()
    error, commands = machine.set_up("keras")
    assert "is left alone" in error and not commands
    assert [path.name for path in machine.venv.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-cuda13.txt"])
def test_the_real_constraints_pin_and_name_no_place(name):
    lines = (ROOT / name).read_text().splitlines()
    assert len(lines) > 100
    assert all(re.match(r"[\w.-]+==[\w.]+( ; [\w '=<>!().]+)?$", line) for line in lines)


@pytest.mark.parametrize("python", ["/bin/false", "/nowhere/python"])
def test_make_without_a_python_that_runs_says_what_to_install(python, tmp_path):
    for given, said in (
        ("PYTHON", f"error: PYTHON={python} is not a Python 3.11, 3.12 or 3.13 that runs"),
        ("CANDIDATES", f"(tried {python}); sudo apt install python3 python3-venv, or name one"),
    ):
        words = ["make", "run", f"{given}={python}", f"VENV={tmp_path}/venv"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 2 and said in done.stderr
    assert not any(tmp_path.iterdir())
