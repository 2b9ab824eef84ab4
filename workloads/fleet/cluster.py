"""A Ray cluster, a running one or one started here: its nodes that can run the suite, and the task that runs it on one."""

import contextlib
import importlib.util
import os
import platform
import re
import secrets
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from workloads import ROOT, options, records
from workloads.machine import processes
from workloads.records.messages import ChildFailure, Done

# Beside the result files in a node's folder: what its suite prints, its messages (workloads.records.messages), its plan.
LOG = "suite.log"
MESSAGES = "messages.ndjson"
PLAN = "plan.json"
_SUITE = "import sys; from workloads import suite; sys.exit(suite.on_node(sys.argv[1]))"
_COPIED_EVERY_S = 1.0
AUTO = "python -m workloads.suite --ray auto"
_LOGIN_SINCE = (2, 59)  # the Ray whose documentation has the log-in by token for a local cluster
_INSTALL = "-m pip install 'ray>=2.59'"
_PORT = 6379  # on which `ray start --head` listens
_ANSWERS_S = 5.0  # a cluster that does not take a connection within this is not there
_GREETING_S = 120.0
_CURRENT = "ray/ray_current_cluster"  # where Ray notes the address of the cluster started last, as ray.init documents
_ALIKE = ("sources", "python")  # what must be the same on every node


class Node(msgspec.Struct, frozen=True):
    """A node of the cluster: its name here, Ray's id of it, what Ray counts on it."""

    name: str
    id: str
    cpus: float
    gpus: float


def nodes(listed: list[dict]) -> list[Node]:
    """The living nodes of ray.nodes(), by the name they were started with, else their host's."""
    found = [
        Node(_called(n), n["NodeID"], n["Resources"].get("CPU", 0.0), n["Resources"].get("GPU", 0.0))
        for n in listed
        if n["Alive"]
    ]
    return sorted(found, key=lambda node: (node.name, node.id))


def with_distinct_names(found: list[Node]) -> list[Node]:
    """The nodes. Those that share a name get the start of their node id added to it."""
    often = Counter(node.name for node in found)
    return [replace(node, name=f"{node.name}-{node.id[:8]}") if often[node.name] > 1 else node for node in found]


def _called(node: dict) -> str:
    """The name of a node, as a folder can have it. A node without a name of its own is called by its address."""
    own = node["NodeName"] not in ("", node["NodeManagerAddress"])
    name = node["NodeName"] if own else node["NodeManagerHostname"]
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "node"


def greet() -> dict[str, str]:
    """The facts that a node tells of itself before it gets work. Runs on that node."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {
        "sources": records.source_hash(),
        "python": platform.python_version(),
        "boot": boot.read_text().strip() if boot.exists() else "",
    }


def measure_node(order: bytes, kept: dict[str, bytes], cpus: int) -> Iterator[tuple[str, bytes]]:
    """Runs the suite in a folder with the files of an earlier run; gives (file, the lines that it grew by) each second, the last
    message being a Done. Runs there, in a task that holds the node."""
    # Ray tells libraries to use as many threads as the task has CPUs; measured is what a node does when it is told nothing.
    told = {"OMP_NUM_THREADS": str(cpus)}
    variables = {name: value for name, value in os.environ.items() if told.get(name) != value}
    with tempfile.TemporaryDirectory(prefix="crossover-") as name:
        folder, copied = Path(name), {file: len(text) for file, text in kept.items()}
        for file, text in kept.items():
            (folder / file).write_bytes(text)
        with (folder / LOG).open("wb") as log, (folder / MESSAGES).open("wb") as answers:
            how: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": answers,
                "stderr": log,
                "start_new_session": True,
            }
            child = subprocess.Popen([sys.executable, "-c", _SUITE, name], cwd=ROOT, env=variables, **how)
        assert child.stdin
        try:
            child.stdin.write(order)
            child.stdin.flush()
            code = None
            while code is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(_COPIED_EVERY_S)
                for path in sorted(folder.glob("*.*")):
                    new = path.read_bytes()[copied.get(path.name, 0) :]
                    if new := new[: new.rfind(b"\n") + 1]:
                        copied[path.name] = copied.get(path.name, 0) + len(new)
                        yield path.name, new
            if code:
                words = (folder / LOG).read_text(errors="replace").strip().splitlines()
                last = words[-1][:300] if words else "it said nothing"
                ending = f"signal {-code}" if code < 0 else f"exit code {code}"
                error = ChildFailure(message=f"its suite ended with {ending}: {last}", exit=code)
                yield MESSAGES, msgspec.json.encode(Done(error=error)) + b"\n"
        finally:
            processes.end_group(child)
            child.stdin.close()


def current() -> str:
    """The address of the cluster that runs here: $RAY_ADDRESS, else the one started last when it still answers; "" for none."""
    if given := os.environ.get("RAY_ADDRESS"):
        return given
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / _CURRENT
    found = note.read_text().strip() if note.is_file() else ""
    return found if found and answers(found) else ""


def answers(address: str) -> bool:
    """Does anything take a connection at HOST:PORT?"""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWERS_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def connect(address: str, note: Callable[[str], None]):
    """Ray, connected to the cluster at HOST:PORT; with `auto` to the one that runs here, else to a local one, which is said.

    Raises: Missing without Ray and where no cluster answers; Usage for what is no address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    if importlib.util.find_spec("ray") is None:
        raise options.Missing("Ray is not installed", f"{options.python()} {_INSTALL}")
    if address.startswith("ray://"):
        raise options.Usage(
            f"{address} is an address of Ray Client, which carries no streams; name the cluster's own, on one "
            "of its nodes",
            AUTO,
        )
    if address != "auto" and not re.fullmatch(r"\[?[\w.:-]+\]?:\d{1,5}", address):
        message = f"{address!r} is no address of a cluster; it is auto or HOST:PORT, such as 10.0.0.1:{_PORT}"
        if re.fullmatch(r"[\w.-]+", address):
            raise options.Usage(message, wrong=address, right=f"{address}:{_PORT}")
        raise options.Usage(message, AUTO)
    where = current() if address == "auto" else address
    nobody = options.Missing(f"no Ray cluster answers at {where}", instead=AUTO, first="ray start --head")
    if where and not answers(where):
        raise nobody
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not where:
        note("no Ray cluster runs here: a local one is started for this run")
        return _local(quiet)
    import ray

    try:
        ray.init(address=where, **quiet)
    # what answers is no Ray, or another version of it
    except (ConnectionError, RuntimeError, ValueError, SystemExit) as error:
        why = str(error).splitlines()[0] if str(error) and not isinstance(error, SystemExit) else ""
        raise options.Missing(f"{nobody}{': ' + why if why else ''}", nobody.tip) from error
    return ray


def _local(quiet: dict[str, Any]):
    """Ray with a cluster of its own, which listens on every network: only who has this run's token may use it.

    Raises: Missing for a Ray without a log-in.
    """
    os.environ.pop("RAY_ADDRESS", None)
    # Ray reads both when it is imported; its processes inherit them.
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < _LOGIN_SINCE:
        why = f"Ray {ray.__version__} starts a cluster that anybody on the network may use"
        raise options.Missing(why, f"{options.python()} {_INSTALL}")
    ray.init(include_dashboard=False, **quiet)
    return ray


def usable(ray, found: list[Node], note: Callable[[str], None], limit_s: float) -> list[Node]:
    """The nodes that answer with this version of the project. A line says why each other node is left out."""
    if not found:
        return []
    ours = greet()
    asked = {
        node.id: ray.remote(greet).options(num_cpus=0, max_retries=0, scheduling_strategy=on(node)).remote()
        for node in found
    }
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=min(limit_s, _GREETING_S), fetch_local=True)
    kept: list[Node] = []
    boots: dict[str, list[str]] = {}
    for node in found:
        try:
            said = ray.get(asked[node.id], timeout=0)
            other = next((what for what in _ALIKE if said.get(what) != ours[what]), "")
            why = f"its {other} are {said.get(other)}, here {ours[other]}: bring both to one version" if other else ""
        except ray.exceptions.GetTimeoutError:
            why = f"it did not answer within {min(limit_s, _GREETING_S):.0f} s"
        except Exception as error:  # whatever a node's own Python raises
            why = first_line(error)
        if why:
            note(f"{node.name} ({node.id[:8]}) left out: {why}")
        else:
            kept.append(node)
            boots.setdefault(said["boot"] or node.id, []).append(node.name)
    for alike in (names for names in boots.values() if len(names) > 1):
        note(f"{', '.join(alike)} are one machine: they measure at the same time and disturb each other")
    return kept


def first_line(error: BaseException) -> str:
    """The telling line of one of Ray's long errors: the last that names an error, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"\w+(\.\w+)*(Error|Exception): ", line)]
    return (named or lines or [type(error).__name__])[-1 if named else 0][:300]


def on(node: Node):
    """The scheduling that places a task on that node, and on no other when the node is gone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.id, soft=False)
