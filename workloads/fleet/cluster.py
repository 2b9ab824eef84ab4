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
    """A node of the cluster."""

    #: Its name in the run's folder.
    name: str
    #: Ray's id of it.
    id: str
    #: CPUs that Ray counts on it.
    cpus: float
    #: GPUs that Ray counts on it.
    gpus: float


def nodes(listed: list[dict]) -> list[Node]:
    """The living nodes of ray.nodes(), by the name they were started with, else their host's."""
    alive = []
    for entry in listed:
        if entry["Alive"]:
            resources = entry["Resources"]
            node = Node(
                name=_folder_name(entry),
                id=entry["NodeID"],
                cpus=resources.get("CPU", 0.0),
                gpus=resources.get("GPU", 0.0),
            )
            alive.append(node)
    return sorted(alive, key=lambda node: (node.name, node.id))


def with_distinct_names(nodes: list[Node]) -> list[Node]:
    """The nodes. Those that share a name get the start of their node id added to it."""
    nodes_of_a_name = Counter(node.name for node in nodes)
    distinct = []
    for node in nodes:
        if nodes_of_a_name[node.name] > 1:
            node = replace(node, name=f"{node.name}-{node.id[:8]}")
        distinct.append(node)
    return distinct


def _folder_name(node: dict) -> str:
    """The name of a node, as a folder can have it. A node that was started without a name has its address for one; it gets its
    host's name."""
    has_name = node["NodeName"] not in ("", node["NodeManagerAddress"])
    name = node["NodeName"] if has_name else node["NodeManagerHostname"]
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "node"


def greet() -> dict[str, str]:
    """The facts that a node tells of itself before it gets work. Runs on that node."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {
        "sources": records.source_hash(),
        "python": platform.python_version(),
        "boot": boot.read_text().strip() if boot.exists() else "",
    }


def measure_node(order: bytes, earlier: dict[str, bytes], cpus: int) -> Iterator[tuple[str, bytes]]:
    """Runs the suite in a folder with the files of an earlier run; gives (file, the lines that it grew by) each second, the last
    message being a Done. Runs on that node, in a task that holds it."""
    with tempfile.TemporaryDirectory(prefix="crossover-") as name:
        folder = Path(name)
        copied: dict[str, int] = {}  # file -> its bytes that the caller has
        for file, text in earlier.items():
            (folder / file).write_bytes(text)
            copied[file] = len(text)
        child = _start_suite(folder, cpus)
        assert child.stdin
        try:
            child.stdin.write(order)
            child.stdin.flush()
            code = None
            while code is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(_COPIED_EVERY_S)
                for path in sorted(folder.glob("*.*")):
                    begin = copied.get(path.name, 0)
                    new = path.read_bytes()[begin:]
                    whole_lines = new[: new.rfind(b"\n") + 1]
                    if whole_lines:
                        copied[path.name] = begin + len(whole_lines)
                        yield path.name, whole_lines
            if code:
                yield MESSAGES, msgspec.json.encode(Done(error=_failure(folder, code))) + b"\n"
        finally:
            processes.end_group(child)
            child.stdin.close()


def _start_suite(folder: Path, cpus: int) -> subprocess.Popen:
    """The suite's process, which takes its order from a pipe and writes into the folder.

    Ray tells libraries to use as many threads as the task has CPUs; measured is what a node does when it is told nothing.
    """
    variables = dict(os.environ)
    if variables.get("OMP_NUM_THREADS") == str(cpus):
        del variables["OMP_NUM_THREADS"]
    with (folder / LOG).open("wb") as log, (folder / MESSAGES).open("wb") as messages:
        return subprocess.Popen(
            [sys.executable, "-c", _SUITE, str(folder)],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=messages,
            stderr=log,
            start_new_session=True,
        )


def _failure(folder: Path, code: int) -> ChildFailure:
    """The failure of a suite that ended with a code; below 0, by a signal."""
    words = (folder / LOG).read_text(errors="replace").strip().splitlines()
    last = words[-1][:300] if words else "it said nothing"
    ending = f"signal {-code}" if code < 0 else f"exit code {code}"
    return ChildFailure(message=f"its suite ended with {ending}: {last}", exit=code)


def current() -> str:
    """The address of the cluster that runs here: $RAY_ADDRESS, else the one started last when it still answers; "" for none."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        return address
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / _CURRENT
    last_address = note.read_text().strip() if note.is_file() else ""
    return last_address if last_address and answers(last_address) else ""


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


def usable(ray, nodes: list[Node], note: Callable[[str], None], limit_s: float) -> list[Node]:
    """The nodes that answer with this version of the project. A line says why each other node is left out."""
    if not nodes:
        return []
    limit_s = min(limit_s, _GREETING_S)
    ours = greet()
    greetings = {}
    for node in nodes:
        task = ray.remote(greet).options(num_cpus=0, max_retries=0, scheduling_strategy=on(node))
        greetings[node.id] = task.remote()
    ray.wait(list(greetings.values()), num_returns=len(greetings), timeout=limit_s, fetch_local=True)
    alike: list[Node] = []
    nodes_by_boot: dict[str, list[str]] = {}
    for node in nodes:
        boot = node.id
        try:
            theirs = ray.get(greetings[node.id], timeout=0)
            why = _other_version(theirs, ours)
            boot = theirs.get("boot") or node.id
        except ray.exceptions.GetTimeoutError:
            why = f"it did not answer within {limit_s:.0f} s"
        except Exception as error:  # whatever a node's Python raises
            why = first_line(error)
        if why:
            note(f"{node.name} ({node.id[:8]}) left out: {why}")
        else:
            alike.append(node)
            nodes_by_boot.setdefault(boot, []).append(node.name)
    for names in nodes_by_boot.values():
        if len(names) > 1:
            note(f"{', '.join(names)} are one machine: they measure at the same time and disturb each other")
    return alike


def _other_version(theirs: dict[str, str], ours: dict[str, str]) -> str:
    """Why a node of these facts cannot measure with us; "" where it can."""
    for fact in _ALIKE:
        if theirs.get(fact) != ours[fact]:
            return f"its {fact} are {theirs.get(fact)}, here {ours[fact]}: bring both to one version"
    return ""


def first_line(error: BaseException) -> str:
    """The telling line of one of Ray's long errors: the last that names an error, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"\w+(\.\w+)*(Error|Exception): ", line)]
    return (named or lines or [type(error).__name__])[-1 if named else 0][:300]


def on(node: Node):
    """The scheduling that places a task on that node, and on no other when the node is gone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.id, soft=False)
