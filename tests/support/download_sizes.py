"""`download_sizes.py UV CONSTRAINTS FLAVOR` writes into the head of a constraints file how many packages each extra adds, and
how large their wheels are: what a set-up says before it begins (install.py). Counted for Python 3.11 on Linux x86-64."""

import pathlib
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLATFORM = ["--python-version", "3.11", "--python-platform", "x86_64-unknown-linux-gnu", "--only-binary", ":all:"]
USERS = ["keras", "report"]  # what `make run` installs; other extras come on top of these


def wheels(uv: str, constraints: str, extras: list[str]) -> dict[str, int]:
    """Bytes of the wheel of each package that the project with these extras needs."""
    with tempfile.TemporaryDirectory() as folder:
        lock = pathlib.Path(folder) / "pylock.toml"
        command = [uv, "pip", "compile", "-q", "pyproject.toml", *PLATFORM, "-c", constraints, "-o", str(lock)]
        for extra in extras:
            command += ["--extra", extra]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        locked = tomllib.loads(lock.read_text())["packages"]
    # A wheel of pure Python is listed beside the compiled one, which is larger and which pip takes.
    return {package["name"]: max(wheel["size"] for wheel in package["wheels"]) for package in locked}


def added(larger: dict[str, int], smaller: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in larger.items() if name not in smaller}


def main(uv: str, constraints: str, flavor: str) -> None:
    base = wheels(uv, constraints, [])
    keras = wheels(uv, constraints, ["keras"])
    users = wheels(uv, constraints, USERS)
    parts = {"base": base, "keras": added(keras, base), "report": added(users, keras)}
    for extra in ("dev", "fleet", "bench", flavor):
        parts[extra] = added(wheels(uv, constraints, [*USERS, extra]), users)
    head = [f"# {extra}: {len(part)} packages, {sum(part.values()) / 1e6:.0f} MB\n" for extra, part in parts.items()]
    file = ROOT / constraints
    pins = [line for line in file.read_text().splitlines(keepends=True) if not line.startswith("#")]
    file.write_text("".join(head + pins))


if __name__ == "__main__":
    main(*sys.argv[1:])
