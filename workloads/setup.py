"""Installs what a make target needs into a virtual environment: setup.py --venv .venv --extras keras,report

Standard library only, in words that Python 3.6 can parse: one that is too old must get as far as its message.
The dependencies are installed, the project is not: what runs is the checkout.
"""

import argparse
import ctypes
import hashlib
import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROJECT = os.path.join(ROOT, "pyproject.toml")
CONSTRAINTS = os.path.join(ROOT, "constraints.txt")
STAMP = "crossover-setup.json"
LOG = "crossover-setup.log"
PIN = re.compile(
    r"^(?P<other># with cuda13: )?(?P<pin>(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; [^#]+?)?)"
    r"  # (?P<download>[\d.]+) MB, (?P<disk>[\d.]+) MB on disk: (?P<extras>[\w ]+)$"
)


class Stop(Exception):
    """One line for the user; `code` is the exit status."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


def say(text):
    print("set-up: " + text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- checks: nothing is made before all of them pass


def check_python(version):
    if not (3, 11) <= tuple(version[:2]) <= (3, 13):
        age = "old" if tuple(version[:2]) < (3, 11) else "new"
        words = f"Python {version[0]}.{version[1]} is too {age}; 3.11, 3.12 or 3.13 is needed"
        raise Stop(words + ": make run PYTHON=python3.12", 3)


def check_venv():
    try:
        importlib.import_module("venv")
        # Debian ships the module and its wheels in packages of their own: version() looks for the wheels too.
        importlib.import_module("ensurepip").version()
    except Exception:
        name = "python{}.{}-venv".format(*sys.version_info[:2])
        words = f"{sys.executable} has no usable venv module; on Debian and Ubuntu"
        raise Stop(f"{words}: sudo apt install {name}", 3) from None


def check_place(venv):
    ours = any(os.path.exists(os.path.join(venv, name)) for name in ("pyvenv.cfg", LOG))
    if os.path.isdir(venv) and os.listdir(venv) and not ours:
        raise Stop(f"{venv} is not a virtual environment and is left alone; name another: make run VENV=.venv", 2)
    if os.path.exists(venv) and not os.path.isdir(venv):
        raise Stop(f"{venv} is not a folder; name another: make run VENV=.venv", 2)


def check_disk(venv, download, disk):
    place = os.path.abspath(venv)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    free = shutil.disk_usage(place).free / 1e6
    say(f"downloads up to {download:.0f} MB, needs {(download + disk) / 1e3:.1f} GB of disk, {free / 1e3:.1f} GB free")
    if free < download + disk:
        raise Stop(f"too little disk at {place}: make room, or name a bigger one: make run VENV=/path/to/venv")


# ---------------------------------------------------------------- the GPU, asked of its driver


def cuda_library():
    """The CUDA driver's library or None; it comes with the driver, never with a package."""
    try:
        return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return None


def driver_version(library):
    """12040 for CUDA 12.4; 0 without a driver. Cheap: it does not wake the GPU."""
    version = ctypes.c_int(0)
    known = library is not None and library.cuDriverGetVersion(ctypes.byref(version)) == 0
    return version.value if known else 0


def find_gpu(library):
    """(the extra a GPU needs or None, the reason in words)."""
    version = driver_version(library)
    if not version:
        return None, "CPU only, no CUDA driver here"
    words = f"CUDA {version // 1000}.{version % 1000 // 10} driver"
    count = ctypes.c_int(0)
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value < 1:
        return None, f"CPU only, a {words} without a GPU"
    if version < 12000:
        return None, f"CPU only, a {words} is too old (12.0 or newer is needed)"
    # CUDA 12 libraries run on newer drivers as well, and TensorFlow has no others.
    return "cuda12", f"{count.value} GPU{'s' * (count.value > 1)}, {words}"


# ---------------------------------------------------------------- what to install


def requirements(extras):
    import tomllib

    with open(PROJECT, "rb") as file:
        project = tomllib.load(file)["project"]
    known = project["optional-dependencies"]
    unknown = sorted(set(extras) - set(known))
    if unknown:
        raise Stop(f"no extra {', '.join(unknown)}; EXTRAS takes {', '.join(known)}: make run EXTRAS=referee", 2)
    return sorted(set(project["dependencies"]).union(*(known[extra] for extra in extras)))


def read_pins():
    with open(CONSTRAINTS, encoding="utf-8") as file:
        return [match.groupdict() for match in map(PIN.match, file.read().splitlines()) if match]


def sizes(extras, there=()):
    """Megabytes to download and on disk for the extras, less what is there already."""
    want, have = {"core", *extras}, set(there)
    rows = {}
    for pin in read_pins():
        used = set(pin["extras"].split())
        if used & want and not used & have and ("cuda13" in want or not pin["other"]):
            rows[pin["name"]] = (float(pin["download"]), float(pin["disk"]))
    return sum(row[0] for row in rows.values()), sum(row[1] for row in rows.values())


def constraints_for(extras, venv):
    """CUDA 13 needs other versions of what both flavors share: its lines then stand in for theirs."""
    if "cuda13" not in extras:
        return CONSTRAINTS
    pins = read_pins()
    replaced = {pin["name"] for pin in pins if pin["other"]}
    path = os.path.join(venv, "crossover-constraints.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(pin["pin"] + "\n" for pin in pins if pin["other"] or pin["name"] not in replaced)
    return path


# ---------------------------------------------------------------- the stamp, written last: it means a good set-up


def fingerprint():
    digest = hashlib.sha256(platform.python_version().encode())
    for path in (PROJECT, CONSTRAINTS):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def read_stamp(venv):
    try:
        with open(os.path.join(venv, STAMP), encoding="utf-8") as file:
            stamp = json.load(file)
        whole = {"inputs", "extras", "failed", "gpu", "python"} <= set(stamp)
        return stamp if whole and os.path.exists(python_of(venv)) else None
    except (OSError, ValueError, TypeError):
        return None


def write_stamp(venv, stamp):
    path = os.path.join(venv, STAMP)
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(stamp, file)
    os.replace(path + ".part", path)


def python_of(venv):
    return os.path.join(venv, "Scripts" if os.name == "nt" else "bin", "python" + ".exe" * (os.name == "nt"))


# ---------------------------------------------------------------- making it


def run(command, log):
    """The exit status; everything goes to the log, the big downloads also to the user."""
    with (
        open(log, "a", encoding="utf-8") as file,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
        ) as child,
    ):
        for line in child.stdout or ():
            file.write(line)
            big = re.match(r"\s+(?:Downloading|Using cached) (\S+?)-\S+ \((\d{2,}(?:\.\d+)? MB|[\d.]+ GB)\)", line)
            if big:
                say(f"  {big.group(1)} {big.group(2)}")
            elif line.startswith("Installing collected"):
                say("  unpacking")
    return child.returncode


def make_venv(venv):
    # The venv's own Python may be the one that runs this: the one it was made from stays when the venv is cleared.
    base = getattr(sys, "_base_executable", None) or sys.executable
    if os.path.exists(venv):
        shutil.rmtree(venv)
    os.makedirs(venv)
    if run([base, "-m", "venv", venv], os.path.join(venv, LOG)):
        raise Stop(f"the virtual environment could not be made, see {os.path.join(venv, LOG)}")


def install(venv, extras):
    command = [python_of(venv), "-m", "pip", "install", "--no-input", "--only-binary", ":all:", "--progress-bar", "off"]
    return run([*command, "-c", constraints_for(extras, venv), *requirements(extras)], os.path.join(venv, LOG)) == 0


def install_or_fall_back(venv, wanted, auto):
    """Gives the extras that were nobody's wish but the GPU's and could not be installed."""
    if install(venv, wanted):
        return set()
    if auto:
        say(f"the GPU packages could not be installed ({last_error(venv)}); going on with the CPU")
        if install(venv, wanted - auto):
            say("to try the GPU packages again: make run EXTRAS=" + ",".join(sorted(auto)))
            return auto
    raise Stop(f"the installation failed ({last_error(venv)}), see {os.path.join(venv, LOG)}; to try again: make run")


def last_error(venv):
    with open(os.path.join(venv, LOG), encoding="utf-8") as file:
        errors = [line.strip() for line in file if line.startswith("ERROR:")]
    return errors[-1][7:] if errors else "pip failed"


def set_up(venv, asked):
    stamp, inputs, library = read_stamp(venv), fingerprint(), cuda_library()
    # What decides about the GPU, without waking it: the driver, and CUDA_VISIBLE_DEVICES hiding every device.
    gpu = [driver_version(library), os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")]
    fresh = stamp is not None and stamp["inputs"] == inputs
    if fresh and asked <= set(stamp["extras"]) and stamp["gpu"] == gpu:
        return
    requirements(asked)
    there = set(stamp["extras"]) if stamp else set()
    failed = set(stamp["failed"]) - asked if fresh and stamp["gpu"] == gpu else set()
    extra, words = find_gpu(library)
    auto = {extra} - {None} - failed - asked - there if "cuda13" not in asked | there else set()
    wanted = asked | there | auto
    if {"cuda12", "cuda13"} <= wanted:
        raise Stop(f"{venv} cannot hold both CUDA flavors: make run VENV=.venv13 EXTRAS=cuda13", 2)
    new = {"inputs": inputs, "extras": sorted(wanted), "failed": [], "gpu": gpu, "python": platform.python_version()}
    if fresh and wanted <= there:
        write_stamp(venv, new)
        return
    check_venv()
    check_place(venv)
    say(f"{', '.join(sorted(wanted)) or 'no extras'} into {venv} with Python {platform.python_version()} ({words})")
    check_disk(venv, *sizes(wanted, there | {"core"} if fresh else ()))
    # From here on things are made. A venv without a stamp is of unknown state, and one of another Python is of no use.
    if stamp and stamp["python"] == new["python"]:
        os.remove(os.path.join(venv, STAMP))
    else:
        make_venv(venv)
    failed |= install_or_fall_back(venv, wanted, auto)
    write_stamp(venv, dict(new, extras=sorted(wanted - failed), failed=sorted(failed)))
    say(f"done; {python_of(venv)} is the interpreter")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--extras", default="")
    options = parser.parse_args(argv)
    try:
        check_python(sys.version_info)
        set_up(options.venv, {extra for extra in re.split(r"[ ,]+", options.extras) if extra})
    except Stop as stop:
        print(f"error: {stop}", file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print("error: interrupted; the next set-up starts over: make run", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
