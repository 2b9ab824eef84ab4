"""workloads/setup.py with everything it touches replaced by fakes: no network, no pip, no driver."""

import json
import platform
import sys
from collections import namedtuple

import pytest

from workloads import setup

PINS = """\
# core + keras: 9 MB
numpy==2.4.6  # 16.00 MB, 60.00 MB on disk: core keras
tensorflow==2.21.0 ; python_version == "3.11"  # 500.00 MB, 1900.00 MB on disk: keras cuda12 cuda13
ray==2.60.0  # 80.00 MB, 200.00 MB on disk: fleet
cuda-bindings==12.9.10  # 7.00 MB, 30.00 MB on disk: cuda12 dev
cupy-cuda12x==14.2.0  # 100.00 MB, 300.00 MB on disk: cuda12
# with cuda13: cuda-bindings==13.5.0  # 8.00 MB, 33.00 MB on disk: cuda13 dev
"""
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

    def run(self, command, log):
        self.commands.append(command)
        with open(log, "a") as file:
            if self.fails(command):
                file.write("ERROR: No matching distribution found\n")
                return 1
        if "venv" in command:
            (self.venv / "bin").mkdir()
            (self.venv / "bin" / "python").touch()
            (self.venv / "pyvenv.cfg").touch()
        else:
            assert not self.stamp_file.exists(), "a stamp while packages are being installed"
        return 0

    @property
    def stamp_file(self):
        return self.venv / setup.STAMP

    @property
    def stamp(self):
        return json.loads(self.stamp_file.read_text())

    def set_up(self, extras):
        """(exit status, the commands of this call)."""
        before = len(self.commands)
        return setup.main(["--venv", str(self.venv), "--extras", extras]), self.commands[before:]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine(tmp_path)
    (tmp_path / "constraints.txt").write_text(PINS)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setattr(setup, "CONSTRAINTS", str(tmp_path / "constraints.txt"))
    monkeypatch.setattr(setup, "PROJECT", str(tmp_path / "pyproject.toml"))
    monkeypatch.setattr(setup, "run", machine.run)
    monkeypatch.setattr(setup, "cuda_library", lambda: machine.driver)
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda place: namedtuple("Usage", "free")(machine.free))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return machine


def packages(command):
    return command[command.index("-c") + 2 :]


def test_first_set_up_makes_the_venv_then_installs_then_stamps(machine):
    code, commands = machine.set_up("keras")
    assert code == 0
    assert commands[0][1:] == ["-m", "venv", str(machine.venv)]
    assert packages(commands[1]) == ["numpy", "tensorflow"]
    assert len(commands) == 2
    assert machine.stamp["extras"] == ["keras"]


def test_a_finished_set_up_runs_nothing_and_leaves_the_gpu_asleep(machine):
    machine.driver = Driver(12080, devices=1)
    machine.set_up("keras")
    machine.driver.woken = 0
    assert machine.set_up("keras") == (0, [])
    assert machine.driver.woken == 0


def test_targets_with_other_extras_share_their_union(machine):
    machine.set_up("keras")
    _, commands = machine.set_up("keras,fleet")
    assert [packages(command) for command in commands] == [["numpy", "ray", "tensorflow"]]
    assert machine.stamp["extras"] == ["fleet", "keras"]
    assert machine.set_up("keras") == machine.set_up("fleet") == (0, [])


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_list_is_installed_into_the_same_venv(machine, name):
    machine.set_up("keras,fleet")
    with open(machine.folder / name, "a") as file:
        file.write("# changed\n")
    _, commands = machine.set_up("keras")
    assert [packages(command) for command in commands] == [["numpy", "ray", "tensorflow"]]
    assert machine.set_up("keras,fleet") == (0, [])


def test_another_python_starts_over(machine, monkeypatch):
    machine.set_up("keras")
    monkeypatch.setattr(platform, "python_version", lambda: "3.12.99")
    _, commands = machine.set_up("keras")
    assert "venv" in commands[0]


def test_a_failed_installation_leaves_no_stamp_and_is_redone(machine, capsys):
    machine.fails = lambda command: "tensorflow" in command
    code, _ = machine.set_up("keras")
    assert code == 1
    assert "No matching distribution found" in capsys.readouterr().err
    assert not machine.stamp_file.exists()
    machine.fails = lambda command: False
    code, commands = machine.set_up("keras")
    assert code == 0
    assert "venv" in commands[0]


def test_an_interrupted_update_leaves_no_stamp(machine, monkeypatch):
    machine.set_up("keras")

    def interrupted(command, log):
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "run", interrupted)
    assert machine.set_up("fleet")[0] == 130
    assert not machine.stamp_file.exists()


@pytest.mark.parametrize("text", ["", "{", "3", "[]", '{"inputs": 1}'])
def test_a_broken_stamp_is_no_stamp(machine, text):
    machine.set_up("keras")
    machine.stamp_file.write_text(text)
    assert "venv" in machine.set_up("keras")[1][0]


def test_a_stamp_without_its_interpreter_is_no_stamp(machine):
    machine.set_up("keras")
    (machine.venv / "bin" / "python").unlink()
    assert "venv" in machine.set_up("keras")[1][0]


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_missing_venv_module_is_said_before_anything_is_made(machine, monkeypatch, capsys, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert machine.set_up("keras") == (3, [])
    line = "sudo apt install python{}.{}-venv\n".format(*sys.version_info[:2])
    assert capsys.readouterr().err.endswith(line)
    assert not machine.venv.exists()


def test_too_small_a_disk_is_said_before_anything_is_made(machine, capsys):
    machine.free = 2475e6  # 516 MB to download and 1960 MB on disk are one too many
    assert machine.set_up("keras") == (1, [])
    assert "error: too little disk" in capsys.readouterr().err
    assert not machine.venv.exists()
    machine.free = 2476e6
    assert machine.set_up("keras")[0] == 0


def test_the_announcement_comes_first_and_has_the_sizes(machine, monkeypatch, capsys):
    said = []
    monkeypatch.setattr(setup, "run", lambda command, log: said.append(capsys.readouterr().err) or 1)
    machine.set_up("keras")
    assert "downloads up to 516 MB, needs 2.5 GB of disk, 500.0 GB free" in said[0]


def test_sizes_count_a_package_once_and_leave_out_what_is_there(machine):
    assert setup.sizes({"keras", "cuda12"}) == (623, 2290)
    assert setup.sizes({"keras", "cuda12"}, {"core", "keras"}) == (107, 330)
    assert setup.sizes({"cuda13"}) == setup.sizes({"cuda13", "dev"}) == (524, 1993)


def test_cuda13_takes_the_place_of_the_pins_that_differ(machine):
    machine.set_up("cuda13")
    with open(machine.commands[-1][machine.commands[-1].index("-c") + 1]) as file:
        pins = file.read().splitlines()
    assert "cuda-bindings==13.5.0" in pins
    assert "cuda-bindings==12.9.10" not in pins
    assert 'tensorflow==2.21.0 ; python_version == "3.11"' in pins


def test_one_venv_holds_one_cuda_flavor(machine, capsys):
    machine.set_up("cuda12")
    assert machine.set_up("cuda13") == (2, [])
    assert "VENV=.venv13" in capsys.readouterr().err


def test_cuda13_by_name_keeps_a_gpu_from_adding_cuda12(machine):
    machine.driver = Driver(13000, devices=1)
    assert machine.set_up("keras,cuda13")[0] == 0
    assert machine.set_up("keras")[0] == 0
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
def test_what_the_driver_answers(driver, extra, words):
    assert setup.find_gpu(driver) == (extra, words)


def test_a_gpu_gets_its_packages(machine):
    machine.driver = Driver(13000, devices=1)
    _, commands = machine.set_up("keras")
    assert packages(commands[-1]) == ["cuda-bindings", "cupy-cuda12x", "numpy", "tensorflow"]
    assert machine.stamp["extras"] == ["cuda12", "keras"]


def test_a_gpu_that_comes_later_is_found(machine):
    machine.set_up("keras")
    machine.driver = Driver(12080, devices=1)
    _, commands = machine.set_up("keras")
    assert "cupy-cuda12x" in commands[-1]


def test_hidden_devices_change_nothing_that_is_installed(machine, monkeypatch):
    machine.driver = Driver(12080, devices=1)
    machine.set_up("keras")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine.driver.devices = 0
    assert machine.set_up("keras") == (0, [])
    assert machine.stamp["extras"] == ["cuda12", "keras"]


def test_a_failed_gpu_installation_is_said_and_goes_on_with_the_cpu(machine, capsys):
    machine.driver = Driver(12080, devices=1)
    machine.fails = lambda command: "cupy-cuda12x" in command
    code, commands = machine.set_up("keras")
    assert code == 0
    assert packages(commands[-1]) == ["numpy", "tensorflow"]
    said = capsys.readouterr().err
    assert "the GPU packages could not be installed (No matching distribution found); going on with the CPU" in said
    assert (machine.stamp["extras"], machine.stamp["failed"]) == (["keras"], ["cuda12"])
    assert machine.set_up("keras") == (0, []), "a failed GPU installation is not tried again on every run"
    assert [packages(command) for command in machine.set_up("fleet")[1]] == [["numpy", "ray", "tensorflow"]]


@pytest.mark.parametrize("works", [True, False])
def test_gpu_packages_asked_for_by_name_are_tried_again(machine, works):
    machine.driver = Driver(12080, devices=1)
    machine.fails = lambda command: "cupy-cuda12x" in command
    machine.set_up("keras")
    machine.fails = lambda command: "cupy-cuda12x" in command and not works
    assert machine.set_up("cuda12")[0] == (0 if works else 1)
    assert machine.stamp_file.exists() == works
    assert not works or machine.stamp["extras"] == ["cuda12", "keras"]


def test_a_folder_that_is_no_venv_is_left_alone(machine, capsys):
    machine.venv.mkdir()
    (machine.venv / "thesis.txt").touch()
    assert machine.set_up("keras") == (2, [])
    assert "is left alone" in capsys.readouterr().err
    assert [path.name for path in machine.venv.iterdir()] == ["thesis.txt"]


def test_an_unknown_extra_is_said_with_those_there_are(machine, capsys):
    assert machine.set_up("kears") == (2, [])
    assert "no extra kears; EXTRAS takes keras, fleet, cuda12, cuda13" in capsys.readouterr().err


@pytest.mark.parametrize(("version", "word"), [((3, 10, 13), "old"), ((3, 6, 1), "old"), ((3, 14, 0), "new")])
def test_a_python_out_of_range_is_said(monkeypatch, capsys, version, word):
    monkeypatch.setattr(sys, "version_info", version)
    assert setup.main([]) == 3
    assert f"Python {version[0]}.{version[1]} is too {word}; 3.11, 3.12 or 3.13 is needed" in capsys.readouterr().err


def test_every_line_of_the_real_constraints_is_read():
    with open(setup.CONSTRAINTS) as file:
        lines = [line for line in file if "==" in line and (line[0] != "#" or line.startswith("# with cuda13: "))]
    assert len(lines) > 50
    assert len(setup.read_pins()) == len(lines)
    assert not [line for line in lines if "://" in line or "@" in line]
