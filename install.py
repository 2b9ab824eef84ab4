"""`install.py VENV EXTRA,...` puts the packages of these extras into a virtual environment; the Makefile runs it.

The dependencies are installed, the project is not: what runs is the checkout. Standard library only."""

import ctypes
import hashlib
import importlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent
STAMP = "crossover-setup.json"  # written last: it means a good set-up
FLAVORS = {"cuda12", "cuda13"}
# On disk with the downloads: everything for the CPU, what changes later of that, and what a CUDA flavor adds.
CPU_GB, CHANGED_GB, GPU_GB = 6, 2, 11


class Stop(Exception):
    """One line for the user."""


def say(text):
    print(f"set-up: {text}", file=sys.stderr, flush=True)


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
    words, count = f"CUDA {version // 1000}.{version % 1000 // 10} driver", ctypes.c_int(0)
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)) or count.value < 1:
        return None, f"CPU only, a {words} without a GPU"
    if version < 12000:
        return None, f"CPU only, a {words} is too old (12.0 or newer is needed)"
    # CUDA 12 libraries run on newer drivers as well, and TensorFlow has no others.
    return "cuda12", f"{count.value} GPU{'s' * (count.value > 1)}, {words}"


def check(venv, need):
    """Nothing is made before all of this holds."""
    try:
        importlib.import_module("venv")
        importlib.import_module("ensurepip").version()  # Debian ships its wheels in a package of their own
    except Exception:
        words = f"{sys.executable} has no usable venv module; on Debian and Ubuntu"
        raise Stop(f"{words}: sudo apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv") from None
    if venv.exists() and not (venv / "pyvenv.cfg").exists() and not (venv.is_dir() and not any(venv.iterdir())):
        raise Stop(f"{venv} is not a virtual environment and is left alone; name another: make run VENV=.venv")
    place = next(folder for folder in (venv.absolute(), *venv.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free / 1e9
    say(f"needs up to {need} GB of disk, {free:.1f} GB free")
    if free < need:
        raise Stop(f"too little disk at {place}: make room, or name a bigger one: make run VENV=/path/to/venv")


def run(*command):
    """Did it succeed? What it prints goes to stderr, as a target's stdout is its own."""
    return subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0


def install(venv, project, extras):
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    pins = ROOT / f"constraints{'-cuda13' if 'cuda13' in extras else ''}.txt"
    pip = ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:", "-c"]
    return run(venv / "bin" / "python", *pip, pins, *sorted({package for each in lists for package in each}))


def read_stamp(venv):
    """The stamp, {} for none: then the venv is of unknown state, or one of another Python."""
    try:
        stamp = json.loads((venv / STAMP).read_text())
        known = stamp["python"] == platform.python_version() and (venv / "bin" / "python").exists()
        return stamp if known and set(stamp["extras"]) else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def set_up(venv, asked):
    text = (ROOT / "pyproject.toml").read_text()
    inputs = hashlib.sha256("".join([text, *(p.read_text() for p in sorted(ROOT.glob("constraints*.txt")))]).encode())
    stamp, (library, version) = read_stamp(venv), cuda_driver()
    there = set(stamp.get("extras", ()))
    same = stamp.get("inputs") == inputs.hexdigest() and version in (0, stamp.get("driver"))
    if same and asked <= there:
        return
    project = tomllib.loads(text)["project"]
    if unknown := asked - (known := project["optional-dependencies"]).keys():
        raise Stop(f"no extra {', '.join(sorted(unknown))}; EXTRAS takes {', '.join(known)}: make run EXTRAS=bench")
    wanted, (gpu, words) = asked | there & known.keys(), gpu_extra(library, version)
    if wanted >= FLAVORS:
        raise Stop(f"{venv} cannot hold both CUDA flavors: make run VENV=.venv13 EXTRAS=cuda13")
    # GPU packages that no one named may fail; they are not tried again before something changes.
    auto = {gpu} if gpu and not same and not wanted & FLAVORS else set()
    say(f"{', '.join(sorted(wanted | auto))} into {venv} with Python {platform.python_version()} ({words})")
    check(venv, (CHANGED_GB if stamp else CPU_GB) + GPU_GB * bool((wanted | auto) & FLAVORS - there))
    (venv / STAMP).unlink(missing_ok=True)
    # The venv's own Python may be the one that runs this: the one it was made from stays when the venv is cleared.
    if not stamp and not run(getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--clear", venv):
        raise Stop(f"the virtual environment could not be made in {venv}")
    done = install(venv, project, wanted | auto)
    if auto and not done:
        say("the GPU packages could not be installed, see above; going on with the CPU")
        say(f"to try the GPU packages again: make run EXTRAS={gpu}")
        done, auto = install(venv, project, wanted), set()
    if not done:
        raise Stop("the installation failed, see above; to try again: make run")
    stamp = {"extras": sorted(wanted | auto), "inputs": inputs.hexdigest(), "python": platform.python_version()}
    (venv / STAMP).write_text(json.dumps(stamp | {"driver": version}))
    say(f"done; {venv / 'bin' / 'python'} is the interpreter")


if __name__ == "__main__":
    try:
        set_up(pathlib.Path(sys.argv[1]), set(re.findall(r"[^ ,]+", sys.argv[2])))
    except Stop as stop:
        sys.exit(f"error: {stop}")
    except KeyboardInterrupt:
        sys.exit("error: interrupted; the next set-up starts over: make run")
