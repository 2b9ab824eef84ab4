"""Writes constraints.txt anew: `make constraints`. Runs in a bare virtual environment, whose pip it uses.

One set of versions for all extras and every Python that is here (python3.11, 3.12, 3.13), CUDA 12 first; a version that
must differ by Python gets a marker, one that must differ with CUDA 13 a line of its own. Sizes are asked of the index.
"""

import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
SETS = (
    "",
    "keras report",
    "keras report fleet dev",
    "keras report cuda12",
    "keras report fleet dev cuda12",
    "keras report cuda13",
    "referee",
    "fuzz",
)


def interpreters():
    """Those of PYTHONS that are here and run."""
    works = {}
    for version in PYTHONS:
        check = [f"python{version}", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        try:
            if subprocess.run(check, capture_output=True, text=True).stdout.strip() == version:
                works[version] = check[0]
        except FileNotFoundError:
            pass
    missing = sorted(set(PYTHONS) - set(works))
    print(f"resolving for Python {', '.join(works)}; not here: {', '.join(missing) or 'none'}", flush=True)
    return works


def resolve(pip, requirements, pins, work):
    """pip's report as {name: entry}, or None when the pins leave no solution."""
    constraints, report = work / "pins.txt", work / "report.json"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
    done = subprocess.run(
        [
            *pip,
            "install",
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--only-binary",
            ":all:",
            "--report",
            report,
            "-c",
            constraints,
            *requirements,
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    found = json.loads(report.read_text())["install"]
    entries = {canonicalize_name(entry["metadata"]["name"]): entry for entry in found}
    local = [name for name, entry in entries.items() if "+" in entry["metadata"]["version"]]
    if local:
        sys.exit(f"error: local versions that no public index has: {', '.join(local)}")
    return entries


def versions(entries):
    return {name: entry["metadata"]["version"] for name, entry in entries.items()}


def closure(requirements, entries, python):
    """The names that these requirements bring, by the metadata of the packages resolved for this Python."""
    here = {"python_version": python, "python_full_version": python + ".0"}
    seen, todo = set(), [(Requirement(text), "") for text in requirements]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({**here, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for brought in ("", *requirement.extras):
            if (name, brought) not in seen and name in entries:
                seen.add((name, brought))
                todo += [(Requirement(text), brought) for text in entries[name]["metadata"].get("requires_dist", [])]
    return {name for name, _ in seen}


def tail(url, count):
    """(the last bytes of a file, its whole size)."""
    if url.startswith("file:"):
        data = pathlib.Path(urllib.request.url2pathname(url[7:])).read_bytes()
        return data[-count:], len(data)
    request = urllib.request.Request(url, headers={"Range": f"bytes=-{count}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        data, whole = answer.read(), answer.headers.get("Content-Range", "").rpartition("/")[2]
    return data, int(whole or len(data))


def measure(entry):
    """(MB to download, MB on disk): the wheel's size, and by its table of contents (a .pyc beside each .py)."""
    for count in (1 << 16, 1 << 24):
        data, whole = tail(entry["download_info"]["url"], count)
        try:
            files = zipfile.ZipFile(io.BytesIO(data)).infolist()
        except (zipfile.BadZipFile, ValueError):
            continue
        # A file takes whole blocks of 4 KiB.
        disk = sum((1 + file.filename.endswith(".py")) * -(-file.file_size // 4096) * 4096 for file in files)
        return whole / 1e6, disk / 1e6
    sys.exit(f"error: no table of contents in {entry['metadata']['name']}")


def line(name, version, size, extras, marker=""):
    return f"{name}=={version}{marker}  # {size[0]:.2f} MB, {size[1]:.2f} MB on disk: {' '.join(extras)}"


def pin_lines(by_python, sizes, users):
    lines = []
    for name in sorted(set().union(*by_python.values())):
        found = {python: pins[name] for python, pins in by_python.items() if name in pins}
        same = len(set(found.values())) == 1
        for python, version in list(found.items())[: 1 if same else None]:
            marker = "" if same else f' ; python_version == "{python}"'
            lines.append(line(name, version, sizes[name], users[name], marker))
    return lines


def totals(sizes, users):
    """The header's table, from the same numbers as the lines."""
    rows = []
    for extras in SETS:
        picked = [sizes[name] for name in sizes if {"core", *extras.split()} & set(users[name])]
        download, disk = (sum(size[i] for size in picked) for i in (0, 1))
        title = "core + " + extras if extras else "core"
        rows.append(f"# {title:45} {len(picked):3} packages {download:6.0f} MB {disk:6.0f} MB on disk")
    return rows


HEAD = """\
# Exact versions of all that any extra brings, on Linux x86_64 with Python {pythons}.
# Made by `make constraints`; set-up reads the sizes behind each line (download, on disk: extras that bring it).
# CUDA 13 and CUDA 12 need different versions of the packages in the lines "with cuda13" at the end: set-up puts those
# in place of the CUDA 12 ones when asked for cuda13 (make run VENV=.venv13 EXTRAS=cuda13).
#"""


def main():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wishes = {"core": project["dependencies"], **project["optional-dependencies"]}
    every = sorted(set().union(*(wishes[extra] for extra in wishes if extra != "cuda13")))
    every13 = sorted(set().union(*(wishes[extra] for extra in wishes if extra != "cuda12")))
    by_python, first = {}, None
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for python, command in interpreters().items():
            subprocess.run([command, "-m", "venv", work / python], check=True)
            pip = [work / python / "bin" / "python", "-m", "pip"]
            found = resolve(pip, every, versions(first) if first else {}, work) or resolve(pip, every, {}, work)
            if not found:
                sys.exit(f"error: no solution for Python {python}")
            first, by_python[python] = first or found, versions(found)
            if len(by_python) == 1:
                # NVIDIA numbers its cuda-* packages by CUDA version: only they may differ, the rest is shared.
                kept = {name: version for name, version in versions(found).items() if not name.startswith("cuda-")}
                with_13 = resolve(pip, every13, kept, work)
                if not with_13:
                    sys.exit("error: no solution with cuda13")
    old, new = versions(first), versions(with_13)
    changed = {name: with_13[name] for name in sorted(new) if old.get(name, new[name]) != new[name]}
    added = {name: entry for name, entry in with_13.items() if name not in first}
    for pins in by_python.values():
        pins.update(versions(added))
    entries = {**first, **added}
    oldest = next(iter(by_python))
    brought = {extra: closure(wishes[extra], with_13 if extra == "cuda13" else first, oldest) for extra in wishes}
    users = {name: [extra for extra in wishes if name in brought[extra]] for name in entries}
    with ThreadPoolExecutor(8) as pool:
        sizes = dict(zip(entries, pool.map(measure, entries.values()), strict=True))
    other = ["# with cuda13: " + line(name, new[name], measure(changed[name]), users[name]) for name in changed]
    head = [HEAD.format(pythons=", ".join(by_python)), *totals(sizes, users), ""]
    text = head + pin_lines(by_python, sizes, users) + other
    target = ROOT / "constraints.txt"
    pathlib.Path(f"{target}.part").write_text("\n".join(text) + "\n")
    os.replace(f"{target}.part", target)
    print("\n".join(re.sub("^# ", "", row) for row in totals(sizes, users)))


main()
