"""install.py with everything it touches replaced by fakes: no network, no pip, no driver."""

import importlib.metadata
import importlib.util
import json
import platform
import re
import subprocess
import sys
import tomllib
from collections import namedtuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
SIZES = """\
# base: 1 packages, 20 MB
# keras: 2 packages, 580 MB
# cuda12: 3 packages, 3000 MB
numpy==2.4.6
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
        self.imports, self.imported = True, 0

    def run(self, command, log, progress=None):
        log.write_text("the words of pip\n")
        if command[-1] == "import keras":
            self.imported += 1
            return self.imports
        self.commands.append(command)
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
        except setup.SetUpError as stop:
            return str(stop), self.commands[before:]
        return "", self.commands[before:]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine(tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    for name in ("constraints.txt", "constraints-cuda13.txt"):
        (tmp_path / name).write_text(SIZES)
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "run", machine.run)
    monkeypatch.setattr(setup.ctypes, "CDLL", machine.library)
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda place: namedtuple("Usage", "free")(machine.free))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return machine


def packages(command):
    return command[command.index("-c") + 2 :]


def test_set_up_runs_once_without_waking_the_gpu(machine):
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
def test_a_changed_list_goes_into_the_same_venv(machine, name):
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


def test_a_failed_installation_is_redone(machine, monkeypatch):
    machine.fails = lambda command: "tensorflow" in command
    error, _ = machine.set_up("keras")
    assert error == f"the installation failed; the whole log is {machine.venv}.log; to try again: make run"
    assert not machine.stamp_file.exists()
    machine.fails = lambda command: False
    error, commands = machine.set_up("keras")
    assert not error
    assert "venv" in commands[0]
    machine.set_up("keras")

    def interrupted(command, log, progress=None):
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
def test_a_missing_venv_module_is_reported_first(machine, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    error, commands = machine.set_up("keras")
    assert error.endswith("sudo apt install python{}.{}-venv".format(*sys.version_info[:2])) and not commands
    assert not machine.venv.exists()


def test_a_small_disk_is_reported_first(machine):
    """600 MB of wheels take 5.5 times as much; what a GPU adds 16.5 GB."""
    machine.free = 3.29e9
    error, commands = machine.set_up("keras")
    assert error.startswith("too little disk at ") and "3.3 GB are needed, 3.3 GB free" in error and not commands
    assert not machine.venv.exists()
    machine.free = 3.31e9
    assert not machine.set_up("keras")[0]
    machine.free = 16.4e9
    assert "too little disk" in machine.set_up("cuda12")[0] and machine.stamp_file.exists()
    machine.free = 16.6e9
    assert not machine.set_up("cuda12")[0]


def test_what_a_set_up_brings_is_said_first(machine, capsys):
    machine.set_up("keras")
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("set-up   Python ") and first.endswith(": 3 packages, 600 MB, once")
    assert last == f"set-up   0 packages, 0 MB in 0 s; pip's log: {machine.venv}.log"
    machine.set_up("fleet")  # its size is not known: it is named
    assert capsys.readouterr().err.splitlines()[0].endswith(": fleet, keras, once")
    assert setup.size({"base", "keras", "cuda12"}) == setup.Packages(packages=6, download=3_600_000_000)


def test_pip_is_watched_by_what_it_installs(tmp_path, monkeypatch, capsys):
    """Wheels of 30 and 12 MB are downloaded; of three packages one was there before and one is not complete."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("pip-23.0.dist-info", "numpy-2.dist-info", "scipy-1.dist-info"):
        (packages / name).mkdir(parents=True)
    (packages / "pip-23.0.dist-info" / "INSTALLER").touch()
    progress = setup.Progress(tmp_path, setup.Packages(packages=2, download=84_000_000))
    (progress.downloads / "pip-unpack-1").mkdir(parents=True)
    for name, megabytes in (("numpy-2-cp311.whl", 30), ("scipy-1-cp311.whl", 12)):
        with open(progress.downloads / "pip-unpack-1" / name, "wb") as wheel:
            wheel.truncate(megabytes * 1_000_000)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    progress.look()
    half = "[##########----------]"
    assert re.search(rf"{re.escape(half)}  42 of 84 MB  (numpy|scipy)  about 0 s left$", capsys.readouterr().err)
    setup.Progress(tmp_path, setup.Packages(packages=2, download=40_000_000)).look()  # more came than was expected
    assert re.search(r"42 MB  (numpy|scipy)$", capsys.readouterr().err)
    (packages / "numpy-2.dist-info" / "INSTALLER").touch()
    progress.look()
    assert capsys.readouterr().err.endswith(f"{half}  1 of 2 packages installed")
    assert (progress.installed, progress.downloaded) == (1, 42_000_000)


def test_what_a_command_prints_goes_into_the_log(tmp_path):
    log = tmp_path / "log"
    assert setup.run([sys.executable, "-c", "print('one')"], log)
    assert not setup.run([sys.executable, "-c", "raise SystemExit('two')"], log)
    assert [line for line in log.read_text().splitlines() if not line.startswith("$ ")] == ["one", "two"]


def test_a_vanishing_folder_stops_nothing(tmp_path, monkeypatch):
    def vanished(progress):
        looks.append(progress)
        raise FileNotFoundError(".venv/downloads/pip-unpack")

    looks = []
    monkeypatch.setattr(setup, "LOOK_S", 0.01)
    monkeypatch.setattr(setup.Progress, "look", vanished)
    progress = setup.Progress(tmp_path, None)
    assert setup.run(["sleep", "0.1"], tmp_path / "log", progress)
    assert looks


def test_a_failure_shows_the_end_of_the_log(machine, capsys):
    machine.fails = lambda command: "pip" in command
    machine.set_up("keras")
    assert capsys.readouterr().err.splitlines()[-1] == "  the words of pip"


def test_a_failing_tensorflow_leaves_set_up_undone(machine):
    machine.imports = False
    error, _ = machine.set_up("keras")
    assert error.startswith("TensorFlow was installed and cannot be imported") and not machine.stamp_file.exists()
    machine.imports = True
    assert not machine.set_up("keras")[0] and machine.imported == 2
    machine.set_up("keras")
    assert machine.imported == 2


def test_the_command_starts_this_checkout_in_any_folder(tmp_path):
    """In an environment without packages, in a folder whose name has a blank."""
    venv = tmp_path / "a b"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    setup.add_command(venv)
    setup.add_command(venv)  # again, as in every set-up
    (tmp_path / "elsewhere").mkdir()
    ended = subprocess.run(
        [venv / "bin" / "crossover", "explain", "--help"], cwd=tmp_path / "elsewhere", capture_output=True, text=True
    )
    assert ended.returncode == 0 and "a b/bin/crossover' explain" in ended.stdout.splitlines()[0]
    imported = "import crossover; print(crossover.__file__)"
    ended = subprocess.run([venv / "bin" / "python", "-c", imported], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout == f"{ROOT / 'crossover.py'}\n"


def test_cuda13_has_constraints_of_its_own(machine):
    machine.set_up("keras")
    assert machine.commands[-1][machine.commands[-1].index("-c") + 1] == str(machine.folder / "constraints.txt")
    machine.set_up("cuda13")
    assert machine.commands[-1][machine.commands[-1].index("-c") + 1] == str(machine.folder / "constraints-cuda13.txt")


def test_one_venv_has_one_cuda_flavor(machine):
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


def test_a_late_or_hidden_gpu_gets_its_packages(machine, monkeypatch):
    machine.set_up("keras")
    machine.driver = Driver(13000, devices=1)
    _, commands = machine.set_up("keras")
    assert packages(commands[-1]) == ["cuda-bindings", "cupy-cuda12x", "numpy", "tensorflow"]
    assert machine.stamp["extras"] == ["cuda12", "keras"]
    machine.driver = Driver(12080, devices=1)
    machine.set_up("keras")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.set_up("keras") == ("", []) and machine.stamp["extras"] == ["cuda12", "keras"]


def test_a_failed_gpu_installation_leaves_the_cpu(machine, capsys):
    machine.driver = Driver(12080, devices=1)
    machine.fails = lambda command: "cupy-cuda12x" in command
    error, commands = machine.set_up("keras")
    assert not error
    assert packages(commands[-1]) == ["numpy", "tensorflow"]
    said = f"set-up   the GPU packages could not be installed (see {machine.venv}.log): going on with the CPU"
    assert said in capsys.readouterr().err.splitlines()
    assert machine.stamp["extras"] == ["keras"]
    assert machine.set_up("keras") == ("", []), "a failed GPU installation is not tried again on every run"
    assert [packages(command) for command in machine.set_up("fleet")[1]] == [["numpy", "ray", "tensorflow"]]


def test_unknown_extras_and_foreign_folders_are_refused(machine):
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
    pins = [line for line in lines if not line.startswith("#")]
    assert len(pins) > 100
    assert all(re.match(r"[\w.-]+==[\w.]+( ; [\w '=<>!().]+)?$", line) for line in pins)


def closure(requirements):
    """The names of all packages that these need on this machine, as they are installed here."""
    names, open_ = set(), list(requirements)
    while open_:
        requirement = Requirement(open_.pop())
        name = canonicalize_name(requirement.name)
        extras = requirement.extras or {""}
        if (name, *extras) in names or not wanted(requirement, ""):
            continue
        names.add((name, *extras))
        needs = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
        for extra in extras:
            open_ += [str(need).partition(";")[0] for need in needs if wanted(need, extra)]
    return {name for name, *_ in names}


def wanted(requirement, extra):
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def test_a_user_gets_at_most_55_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    users = setup.size({"base", "keras", "report"})
    assert len(closure(setup.packages(project, ["keras", "report"]))) == users.packages <= 55
    assert len(closure(setup.packages(project, []))) == setup.size({"base"}).packages
    assert users.download <= 790e6
    for extra in ("dev", "fleet", "bench", "cuda12"):
        assert setup.size({extra}).packages > 0


@pytest.mark.parametrize("python", ["/bin/false", "/nowhere/python"])
def test_make_without_a_python_names_one_to_install(python, tmp_path):
    for given, said in (
        ("PYTHON", f"error: PYTHON={python} is not a Python 3.11, 3.12 or 3.13 that runs"),
        ("CANDIDATES", f"(tried {python}); sudo apt install python3 python3-venv, or name one"),
    ):
        words = ["make", "run", f"{given}={python}", f"VENV={tmp_path}/venv"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 2 and said in done.stderr
    assert not any(tmp_path.iterdir())
