"""`install.py VENV EXTRA,...` puts the packages of these extras into a virtual environment; the Makefile runs it.

The dependencies are installed, the project is not: what runs is the checkout, also by `VENV/bin/crossover`.
Standard library only."""

import contextlib
import ctypes
import dataclasses
import hashlib
import importlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent
STAMP = "crossover-setup.json"  # written last: it means a good set-up
FLAVORS = {"cuda12", "cuda13"}
DISK_PER_DOWNLOAD = 5.5  # bytes of disk for each byte of wheels: the wheel, pip's cached copy, and 3.3 unpacked
LOG_TAIL = 12  # lines of the log that a failure shows
BAR = 20  # characters
# VENV/bin/crossover: sh starts the Python of the environment, whose path may have blanks or be too long for a first line.
# Python takes these two lines as a string.
SCRIPT = """\
#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys

from crossover import main

sys.exit(main())
"""
LOOK_S = 0.5  # seconds between two looks at how far pip is


class SetUpError(Exception):
    """One line for the user."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packages:
    """What a set-up downloads and installs."""

    #: How many packages.
    packages: int
    #: Sum of the wheels, in bytes.
    download: int

    def __str__(self) -> str:
        return f"{self.packages} packages, {self.download / 1e6:.0f} MB"


def say(text: str) -> None:
    """Prints a line of the set-up on stderr."""
    print(f"set-up   {text}", file=sys.stderr, flush=True)


def redraw(text: str) -> None:
    """Writes a text over the last line of a terminal, where the next text is written over it; nothing where stderr is none."""
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        print(f"\r\x1b[K{text[: columns - 1]}", end="", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Seconds as words: `85 s`, `2 min 5 s`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def cuda_driver() -> tuple[ctypes.CDLL | None, int]:
    """The CUDA driver's library and its version as the driver counts it, 12040 for CUDA 12.4. None and 0 where there is no
    driver, or CUDA_VISIBLE_DEVICES hides all GPUs."""
    version = ctypes.c_int(0)
    try:
        library = ctypes.CDLL("libcuda.so.1")  # it comes with the driver, never with a package
        library.cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None, 0
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return (library, version.value) if version.value and not hidden else (None, 0)


def gpu_extra(library: ctypes.CDLL | None, version: int) -> tuple[str | None, str]:
    """The extra of pyproject.toml that the GPU needs, None where no GPU can be used, and the reason in words. It starts the
    driver.

    library, version: as `cuda_driver` returns them.
    """
    if library is None or not version:
        return None, "CPU only, no CUDA driver here"
    major, minor = version // 1000, version % 1000 // 10
    driver = f"CUDA {major}.{minor} driver"
    count = ctypes.c_int(0)
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)) or count.value < 1:
        return None, f"CPU only, a {driver} without a GPU"
    if major < 12:
        return None, f"CPU only, a {driver} is too old (12.0 or newer is needed)"
    # CUDA 12 libraries run on newer drivers as well, and TensorFlow has no others.
    gpus = "1 GPU" if count.value == 1 else f"{count.value} GPUs"
    return "cuda12", f"{gpus}, {driver}"


def constraints(extras: set[str]) -> pathlib.Path:
    """The file that pins the versions of packages for these extras, such as cuda12."""
    return ROOT / ("constraints-cuda13.txt" if "cuda13" in extras else "constraints.txt")


def size(extras: set[str]) -> Packages | None:
    """How many packages these extras install, and of how many bytes. The head of the constraints says it, where `make
    constraints` counted it on Linux x86-64; None where it does not name one of them.

    extras: `base` among them is the dependencies of the project itself.
    """
    lines = re.findall(r"^# (\w+): (\d+) packages, (\d+) MB$", constraints(extras).read_text(), re.MULTILINE)
    by_extra = {}
    for extra, packages, megabytes in lines:
        by_extra[extra] = Packages(packages=int(packages), download=int(megabytes) * 1_000_000)
    if not extras <= by_extra.keys():
        return None
    return Packages(
        packages=sum(by_extra[extra].packages for extra in extras),
        download=sum(by_extra[extra].download for extra in extras),
    )


def check(venv: pathlib.Path, expected: Packages | None) -> None:
    """Raises SetUpError, before anything is written, where Python cannot make an environment, its folder is used for something
    else, or its disk is too small.

    venv: the folder of the environment. expected: what is downloaded; None where that is not known.
    """
    try:
        importlib.import_module("venv")
        importlib.import_module("ensurepip").version()  # Debian ships its wheels in a package of their own
    except Exception:
        words = f"{sys.executable} has no usable venv module; on Debian and Ubuntu"
        raise SetUpError(f"{words}: sudo apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv") from None
    if venv.exists() and not (venv / "pyvenv.cfg").exists() and not (venv.is_dir() and not any(venv.iterdir())):
        raise SetUpError(f"{venv} is not a virtual environment and is left alone; name another: make run VENV=.venv")
    place = next(folder for folder in (venv.absolute(), *venv.absolute().parents) if folder.exists())
    free_bytes = shutil.disk_usage(place).free
    needed_bytes = DISK_PER_DOWNLOAD * expected.download if expected else 0
    if free_bytes < needed_bytes:
        needs = f"{needed_bytes / 1e9:.1f} GB are needed, {free_bytes / 1e9:.1f} GB free"
        raise SetUpError(f"too little disk at {place}: {needs}; name a bigger one: make run VENV=/path/to/venv")


class Progress:
    """How far pip is: first the bytes in its temporary folder, then the packages in the environment."""

    def __init__(self, venv: pathlib.Path, expected: Packages | None):
        """venv: the folder of the environment. expected: what pip will install; None where that is not known."""
        self.downloads = venv / "downloads"  # pip's temporary folder
        self.expected = expected
        self.downloaded = 0  # bytes
        self._venv = venv
        self._packages_before = self._packages()
        self._begin = time.monotonic()
        self._installing = False

    def _packages(self) -> set[str]:
        """The packages whose installation is complete: pip writes INSTALLER last."""
        return {file.parent.name for file in self._venv.glob("lib/*/site-packages/*.dist-info/INSTALLER")}

    @property
    def installed(self) -> int:
        """How many packages pip has installed since this record was made."""
        return len(self._packages() - self._packages_before)

    def look(self) -> None:
        """Shows how far pip is: as a bar on a terminal, else by one line when all is downloaded."""
        wheels: dict[pathlib.Path, os.stat_result] = {}
        for file in self.downloads.rglob("*.whl"):
            try:
                wheels[file] = file.stat()
            except FileNotFoundError:  # pip removes them at the end
                continue
        self.downloaded = max(self.downloaded, sum(stat.st_size for stat in wheels.values()))
        installed = self.installed
        if installed and not self._installing:
            self._installing = True
            if not sys.stderr.isatty():
                say(f"downloaded {self.downloaded / 1e6:.0f} MB in {duration(time.monotonic() - self._begin)}")
        if installed:
            expected_packages = self.expected.packages if self.expected else 0
            self._draw(installed, expected_packages, f"{_out_of(installed, expected_packages)} packages installed")
        elif wheels:
            newest = max(wheels, key=lambda file: wheels[file].st_mtime).name.partition("-")[0]
            expected_bytes = self.expected.download if self.expected else 0
            megabytes = _out_of(round(self.downloaded / 1e6), round(expected_bytes / 1e6))
            self._draw(self.downloaded, expected_bytes, f"{megabytes} MB  {newest}{self._left(expected_bytes)}")

    def _left(self, expected_bytes: int) -> str:
        """The words for how long the download still takes, by its speed so far; "" within its first tenth, as most of the time
        until then went into finding the packages."""
        if not expected_bytes / 10 < self.downloaded < expected_bytes:
            return ""
        missing_bytes = expected_bytes - self.downloaded
        seconds = (time.monotonic() - self._begin) * missing_bytes / self.downloaded
        return f"  about {duration(seconds)} left"

    def _draw(self, done: int, total: int, text: str) -> None:
        """Draws a bar that is filled by done / total, with a text behind it. total: 0 where it is not known."""
        filled = min(BAR, BAR * done // total) if total else 0
        bar = "#" * filled + "-" * (BAR - filled)
        redraw(f"         [{bar}]  {text}")


def _out_of(done: int, total: int) -> str:
    """`3 of 5`; the first number alone where the second is less, or 0 as it is not known."""
    return f"{done} of {total}" if done <= total else f"{done}"


def run(command: list[str], log: pathlib.Path, progress: Progress | None = None) -> bool:
    """Runs a command and returns whether it succeeded. What it prints is added to the log.

    progress: of pip, shown every LOOK_S seconds; None for another command.
    """
    variables = dict(os.environ)
    if progress:
        progress.downloads.mkdir(exist_ok=True)
        variables["TMPDIR"] = str(progress.downloads.absolute())
    with log.open("a") as file:
        print("$", shlex.join(command), file=file, flush=True)
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=variables)
        try:
            while True:
                try:
                    return child.wait(LOOK_S) == 0
                except subprocess.TimeoutExpired:
                    if progress:
                        with contextlib.suppress(FileNotFoundError):  # pip removes folders while they are read
                            progress.look()
        finally:
            child.kill()
            child.wait()
            if progress:
                shutil.rmtree(progress.downloads, ignore_errors=True)
            redraw("")


def packages(project: dict, extras: set[str]) -> list[str]:
    """The requirements of the project and of these extras. project: the table of pyproject.toml."""
    wanted = set(project["dependencies"])
    for extra in extras:
        wanted.update(project["optional-dependencies"][extra])
    return sorted(wanted)


def pip_install(venv: pathlib.Path, project: dict, extras: set[str]) -> list[str]:
    """The command that installs the requirements of the project and of these extras into an environment."""
    # --no-compile: Python compiles what is imported; compiling everything takes longer than importing what is used.
    pip = [
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
        "--no-compile",
        "--only-binary",
        ":all:",
    ]
    return [str(venv / "bin" / "python"), *pip, "-c", str(constraints(extras)), *packages(project, extras)]


def read_stamp(venv: pathlib.Path) -> dict:
    """What the last set-up of an environment wrote when it was done: extras, Python, driver, hash of its inputs. {} where
    none was completed, or by another Python."""
    try:
        stamp = json.loads((venv / STAMP).read_text())
        known = stamp["python"] == platform.python_version() and (venv / "bin" / "python").exists()
        return stamp if known and set(stamp["extras"]) else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def failed(what: str, log: pathlib.Path) -> SetUpError:
    """The error for a command that failed; prints the end of its log. what: the beginning of the message."""
    for line in log.read_text(errors="replace").splitlines()[-LOG_TAIL:]:
        print(f"  {line[:200]}", file=sys.stderr)
    return SetUpError(f"{what}; the whole log is {log}; to try again: make run")


def inputs_hash() -> str:
    """A hash of the files that decide what a set-up installs: pyproject.toml and the constraints."""
    files = [ROOT / "pyproject.toml", *sorted(ROOT.glob("constraints*.txt"))]
    text = "".join(file.read_text() for file in files)
    return hashlib.sha256(text.encode()).hexdigest()


def chosen_extras(requested: set[str], installed: set[str], project: dict, venv: pathlib.Path) -> set[str]:
    """The extras that were typed now, and those that are installed already.

    Raises: SetUpError for a name that is no extra, and for packages of two CUDA versions.
    """
    known = project["optional-dependencies"].keys()
    unknown = requested - known
    if unknown:
        raise SetUpError(
            f"no extra {', '.join(sorted(unknown))}; EXTRAS takes {', '.join(known)}: make run EXTRAS=bench"
        )
    extras = requested | (installed & known)
    if extras >= FLAVORS:
        raise SetUpError(f"{venv} cannot hold both CUDA flavors: make run VENV=.venv13 EXTRAS=cuda13")
    return extras


def new_environment(venv: pathlib.Path, log: pathlib.Path) -> None:
    """Makes a virtual environment in place of what was in its folder.

    Raises: SetUpError.
    """
    # The Python that runs this may be in that folder: the one that it was made from stays when the folder is cleared.
    python = getattr(sys, "_base_executable", sys.executable)
    if not run([python, "-m", "venv", "--clear", str(venv)], log):
        raise failed(f"the virtual environment could not be made in {venv}", log)


def install(
    venv: pathlib.Path, project: dict, extras: set[str], *, gpu: str | None, log: pathlib.Path, progress: Progress
) -> set[str]:
    """Installs the packages of the extras. Returns the extras that are installed.

    gpu: the extra of a GPU that is here, though nobody typed it; None for none. If it cannot be installed, the set-up goes on
    without it.

    Raises: SetUpError.
    """
    if gpu:
        if run(pip_install(venv, project, extras | {gpu}), log, progress):
            return extras | {gpu}
        say(f"the GPU packages could not be installed (see {log}): going on with the CPU")
        say(f"to try the GPU packages again: make run EXTRAS={gpu}")
    if not run(pip_install(venv, project, extras), log, progress):
        raise failed("the installation failed", log)
    return extras


def set_up(venv: pathlib.Path, requested: set[str]) -> None:
    """Installs what the environment lacks of the requested extras; nothing where nothing changed since its last set-up.

    Raises: SetUpError.
    """
    inputs = inputs_hash()
    stamp = read_stamp(venv)
    library, driver = cuda_driver()
    installed = set(stamp.get("extras", ()))
    is_unchanged = stamp.get("inputs") == inputs and driver in (0, stamp.get("driver"))
    if is_unchanged and requested <= installed:
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = chosen_extras(requested, installed, project, venv)
    gpu, machine = gpu_extra(library, driver)
    if is_unchanged or extras & FLAVORS:  # not tried again before something changes
        gpu = None
    wanted = extras | {gpu} if gpu else extras
    expected = size(wanted - installed if stamp else wanted | {"base"})
    check(venv, expected)
    say(f"Python {platform.python_version()}, {machine}: {expected or ', '.join(sorted(wanted))}, once")
    begin = time.monotonic()
    log = venv.with_name(f"{venv.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    (venv / STAMP).unlink(missing_ok=True)
    if not stamp:
        new_environment(venv, log)
    progress = Progress(venv, expected)
    installed = install(venv, project, extras, gpu=gpu, log=log, progress=progress)
    # The first import of TensorFlow compiles its Python files, which no training that is timed should do.
    redraw("         importing TensorFlow for the first time")
    if "keras" in installed and not run([str(venv / "bin" / "python"), "-c", "import keras"], log):
        raise failed("TensorFlow was installed and cannot be imported", log)
    stamp = {"extras": sorted(installed), "inputs": inputs, "python": platform.python_version(), "driver": driver}
    (venv / STAMP).write_text(json.dumps(stamp))
    brought = Packages(packages=progress.installed, download=progress.downloaded)
    say(f"{brought} in {duration(time.monotonic() - begin)}; pip's log: {log}")


def add_command(venv: pathlib.Path) -> None:
    """Lets the Python of an environment import the packages of this checkout from any folder, and adds the command
    `crossover`."""
    (packages,) = venv.glob("lib/python3*/site-packages")
    (packages / "crossover.pth").write_text(f"{ROOT}\n")
    script = venv / "bin" / "crossover"
    script.write_text(SCRIPT.format(python=shlex.quote(str((venv / "bin" / "python").absolute()))))
    script.chmod(0o755)


if __name__ == "__main__":
    try:
        set_up(pathlib.Path(sys.argv[1]), set(re.findall(r"[^ ,]+", sys.argv[2])))
        add_command(pathlib.Path(sys.argv[1]))
    except SetUpError as stop:
        sys.exit(f"error: {stop}")
    except KeyboardInterrupt:
        sys.exit("error: interrupted; the next set-up starts over: make run")
