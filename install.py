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
    """What a set-up brings."""

    packages: int
    #: Sum of the wheels, in bytes.
    download: int

    def __str__(self):
        return f"{self.packages} packages, {self.download / 1e6:.0f} MB"


def say(text):
    print(f"set-up   {text}", file=sys.stderr, flush=True)


def redraw(text):
    """Replaces the line of a terminal, which the next line replaces again."""
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        print(f"\r\x1b[K{text[: columns - 1]}", end="", file=sys.stderr, flush=True)


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def cuda_driver():
    """(the driver's library, 12040 for CUDA 12.4); (None, 0) where there is none or CUDA_VISIBLE_DEVICES hides every GPU."""
    version = ctypes.c_int(0)
    try:
        library = ctypes.CDLL("libcuda.so.1")  # it comes with the driver, never with a package
        library.cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None, 0
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return (library, version.value) if version.value and not hidden else (None, 0)


def gpu_extra(library, version):
    """(the extra that the GPU needs or None, the reason in words). Wakes the GPU."""
    if not version:
        return None, "CPU only, no CUDA driver here"
    driver = f"CUDA {version // 1000}.{version % 1000 // 10} driver"
    count = ctypes.c_int(0)
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)) or count.value < 1:
        return None, f"CPU only, a {driver} without a GPU"
    if version < 12000:
        return None, f"CPU only, a {driver} is too old (12.0 or newer is needed)"
    # CUDA 12 libraries run on newer drivers as well, and TensorFlow has no others.
    gpus = "1 GPU" if count.value == 1 else f"{count.value} GPUs"
    return "cuda12", f"{gpus}, {driver}"


def constraints(extras):
    """The file that pins the versions for these extras."""
    return ROOT / ("constraints-cuda13.txt" if "cuda13" in extras else "constraints.txt")


def size(extras):
    """What these extras bring (base: the dependencies), as the head of the constraints says, where `make constraints` counts it
    on Linux x86-64; None where it does not name one of them."""
    lines = re.findall(r"^# (\w+): (\d+) packages, (\d+) MB$", constraints(extras).read_text(), re.MULTILINE)
    known = {extra: (int(packages), int(megabytes) * 1_000_000) for extra, packages, megabytes in lines}
    if not extras <= known.keys():
        return None
    packages = 0
    download = 0
    for extra in extras:
        extra_packages, extra_download = known[extra]
        packages += extra_packages
        download += extra_download
    return Packages(packages=packages, download=download)


def check(venv, expected):
    """Nothing is made before all of this holds."""
    try:
        importlib.import_module("venv")
        importlib.import_module("ensurepip").version()  # Debian ships its wheels in a package of their own
    except Exception:
        words = f"{sys.executable} has no usable venv module; on Debian and Ubuntu"
        raise SetUpError(f"{words}: sudo apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv") from None
    if venv.exists() and not (venv / "pyvenv.cfg").exists() and not (venv.is_dir() and not any(venv.iterdir())):
        raise SetUpError(f"{venv} is not a virtual environment and is left alone; name another: make run VENV=.venv")
    place = next(folder for folder in (venv.absolute(), *venv.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    need = DISK_PER_DOWNLOAD * expected.download if expected else 0
    if free < need:
        needs = f"{need / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB free"
        raise SetUpError(f"too little disk at {place}: {needs}; name a bigger one: make run VENV=/path/to/venv")


class Progress:
    """How far pip is: the bytes in its temporary folder, then the packages in the environment."""

    def __init__(self, venv, expected):
        self.downloads = venv / "downloads"  # pip's temporary folder
        self.expected = expected
        self.downloaded = 0  # bytes
        self._venv = venv
        self._packages_before = self._packages()
        self._begin = time.monotonic()
        self._installing = False

    def _packages(self):
        """The packages whose installation is complete: pip writes INSTALLER last."""
        return {file.parent.name for file in self._venv.glob("lib/*/site-packages/*.dist-info/INSTALLER")}

    @property
    def installed(self):
        """How many packages are new."""
        return len(self._packages() - self._packages_before)

    def look(self):
        """Shows how far it is: redrawn on a terminal, else one line when all is downloaded."""
        wheels = {}
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
            total = self.expected.packages if self.expected else 0
            self._draw(installed, total, f"{self._out_of(installed, total)} packages installed")
        elif wheels:
            newest = max(wheels, key=lambda file: wheels[file].st_mtime).name.partition("-")[0]
            total = self.expected.download if self.expected else 0
            megabytes = self._out_of(round(self.downloaded / 1e6), round(total / 1e6))
            self._draw(self.downloaded, total, f"{megabytes} MB  {newest}{self._left(total)}")

    def _out_of(self, done, total):
        return f"{done} of {total}" if done <= total else f"{done}"

    def _left(self, total):
        """How long the download takes to its end, by its speed so far."""
        if not total / 10 < self.downloaded < total:  # before that most of the time went into finding the packages
            return ""
        seconds = (time.monotonic() - self._begin) * (total - self.downloaded) / self.downloaded
        return f"  about {duration(seconds)} left"

    def _draw(self, done, total, text):
        filled = min(BAR, BAR * done // total) if total else 0
        bar = "#" * filled + "-" * (BAR - filled)
        redraw(f"         [{bar}]  {text}")


def run(command, log, progress=None):
    """Whether the command succeeds. What it prints goes into the log; `progress` looks at it from time to time."""
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


def packages(project, extras):
    """The requirements of the project and these extras."""
    wanted = set(project["dependencies"])
    for extra in extras:
        wanted.update(project["optional-dependencies"][extra])
    return sorted(wanted)


def pip_install(venv, project, extras):
    """The command that installs the requirements of the project and these extras."""
    # Python compiles what is imported; compiling everything takes longer than importing what is used.
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


def read_stamp(venv):
    """The stamp, {} for none: then the venv is of unknown state, or one of another Python."""
    try:
        stamp = json.loads((venv / STAMP).read_text())
        known = stamp["python"] == platform.python_version() and (venv / "bin" / "python").exists()
        return stamp if known and set(stamp["extras"]) else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def failed(what, log):
    """The error of a command that failed, after the end of its log."""
    for line in log.read_text(errors="replace").splitlines()[-LOG_TAIL:]:
        print(f"  {line[:200]}", file=sys.stderr)
    return SetUpError(f"{what}; the whole log is {log}; to try again: make run")


def inputs_hash():
    """What a set-up follows from, besides the extras, Python and the driver."""
    files = [ROOT / "pyproject.toml", *sorted(ROOT.glob("constraints*.txt"))]
    text = "".join(file.read_text() for file in files)
    return hashlib.sha256(text.encode()).hexdigest()


def chosen_extras(requested, installed, project, venv):
    """The extras that were named now or are installed already.

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


def new_environment(venv, log):
    """Makes a virtual environment, without what was in its folder."""
    # The venv's own Python may be the one that runs this: the one it was made from stays when the venv is cleared.
    python = getattr(sys, "_base_executable", sys.executable)
    if not run([python, "-m", "venv", "--clear", str(venv)], log):
        raise failed(f"the virtual environment could not be made in {venv}", log)


def install(venv, project, extras, *, gpu, log, progress):
    """Installs the packages of the extras, and of `gpu`, the extra of a GPU that nobody named, unless that fails: then the set-up
    goes on without. Returns the extras that are installed."""
    if gpu:
        if run(pip_install(venv, project, extras | {gpu}), log, progress):
            return extras | {gpu}
        say(f"the GPU packages could not be installed (see {log}): going on with the CPU")
        say(f"to try the GPU packages again: make run EXTRAS={gpu}")
    if not run(pip_install(venv, project, extras), log, progress):
        raise failed("the installation failed", log)
    return extras


def set_up(venv, requested):
    """Installs what the requested extras lack; nothing where nothing changed since the last set-up."""
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


def add_command(venv):
    """Makes the packages of this checkout those of the environment, in any folder, and `crossover` one of its commands."""
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
